"""Which loops the tests run on, in which order they run, and silence.

Tests that touch real sockets, and a part of the client's, run once on asyncio and once on uvloop.
`unused_udp_port` stands before that of pytest-asyncio: see `tests/ports.py`.
"""

from __future__ import annotations

import asyncio
import gc
import os
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from coverage import Coverage
from hypothesis import settings

from tests import warm_children
from tests.archive.golden import remove_copies
from tests.interrupts import hear_interrupts
from tests.ports import unused_udp_ports
from tests.spark.sessions import spark_of
from tests.tracing import look_away, traced, traced_at_first, untraced

try:
    import uvloop
except ImportError:  # pragma: no cover - there is none for Windows
    LOOP_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
else:
    LOOP_FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager

# A Java that lives for seconds compiles less than it runs, and need not verify thousands of classes
# that everybody runs.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# A busy machine is no reason to fail, and a failing example must be the same for everybody.
EXAMPLES = int(os.environ.get("AERON_ASYNC_EXAMPLES", "40"))
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
settings.load_profile("steady")

HERE = Path(__file__).parent
# Sockets differ from loop to loop; of what stands on them, a part that touches everything once.
ON_EVERY_LOOP = ("io/", "client/test_closing.py", "client/test_flow.py")

# Coverage follows a test of many parameters for the first alone, and each test for a moment. It
# looks away from what starts programs, or is a campaign.
UNTRACED = ("benchmarks/", "examples/", "fuzz/", "interop/", "slow/", "test_tidy.py")
EACH_TRACED = ("cli/", "io/", "spark/", "speedups/", "test_")
"""Where parameters take branches of their own."""
WHOLLY_TRACED = ("logbuffer/", "protocol/")
"""Where every branch must be seen, also what the last example of a property takes."""
is_first_of_its_kind = pytest.StashKey[bool]()
COVERAGE = pytest.StashKey[Coverage | None]()
"""What sees the tests of this process, and is stopped between them."""

# What waits for other processes begins first, so that nobody waits for it at the end; worlds, which
# any worker can take one by one, come last.
FIRST = ("spark", "slow", "examples", "cli", "benchmarks")
LAST = "sim"


@cache
def name_of(path: Path) -> str:
    """Return the path of a file from here on: paths are slow, and tests are many."""
    return path.relative_to(HERE).as_posix()


def place_in_line(item: pytest.Item) -> tuple[bool, str, int, bool]:
    """Return what sorts the tests: those that start Spark first, since they stay together."""
    name = name_of(item.path)
    folder, spark = name.partition("/")[0], spark_of(f"tests/{name}")
    place = FIRST.index(folder) if folder in FIRST else len(FIRST)
    return spark is None, spark or "", place, folder == LAST


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="run each test with the first of its parameters, and draw few examples",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=place_in_line)
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        item.stash[is_first_of_its_kind] = name not in seen
        seen.add(name)
    if config.getoption("--quick"):
        others = [item for item in items if not item.stash[is_first_of_its_kind]]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.stash[is_first_of_its_kind]]


def pytest_collection_finish() -> None:
    # Ten thousand tests live as long as the run: looking through them for garbage, again and
    # again, costs a tenth of it.
    gc.collect()
    gc.freeze()


def how_traced(item: pytest.Item) -> AbstractContextManager[None]:
    """Return what coverage sees of a test: all of it, its beginning, or nothing."""
    path = name_of(item.path)
    marks = ("untraced", "processes")
    if path.startswith(UNTRACED) or any(map(item.get_closest_marker, marks)):
        return untraced()
    coverage = item.config.stash[COVERAGE]
    if path.startswith(WHOLLY_TRACED):
        return traced(coverage)
    if item.stash[is_first_of_its_kind] or path.startswith(EACH_TRACED):
        return traced_at_first(coverage)
    return untraced()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if name_of(item.path).startswith(ON_EVERY_LOOP):
        return LOOP_FACTORIES
    return {"asyncio": asyncio.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    hear_interrupts()
    if config.getoption("--quick"):
        settings.load_profile("quick")
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(name, JAVA_OPTIONS)


def pytest_unconfigure() -> None:
    # Workers of xdist end without what they had registered for their end.
    remove_copies()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.scheduling import scheduler  # noqa: PLC0415 - xdist need not be there

    return scheduler(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let coverage see in the first worker alone what each of them imports."""
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        session.config.stash[COVERAGE] = look_away()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Let coverage look away from what is no test."""
    session.config.stash[COVERAGE] = session.config.stash.get(COVERAGE, None) or look_away()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with how_traced(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with how_traced(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with how_traced(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out of what a worker sends about a test that passes what nobody reads of it."""
    report = yield
    if report.passed:
        report.keywords = {}
    return report


@pytest.fixture(scope="session")
def unused_udp_port_factory() -> Callable[[], int]:
    return partial(next, unused_udp_ports())


@pytest.fixture
def unused_udp_port(unused_udp_port_factory: Callable[[], int]) -> int:
    return unused_udp_port_factory()


@pytest.fixture(autouse=True)
def _quiet_logs() -> None:
    # `structlog.testing.capture_logs` still sees every line.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture
def _warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the programs that a test starts from one that has imported everything."""
    monkeypatch.setattr(asyncio, "create_subprocess_exec", warm_children.create_subprocess_exec)
