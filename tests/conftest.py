"""Which loops the tests run on, in which order they run, what they leave out, and silence.

Tests that touch real sockets, and a part of the client's, run once on asyncio and once on uvloop.
`unused_udp_port` stands before that of pytest-asyncio: see `tests/ports.py`.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

from tests.freezing import Freezing
from tests.interrupts import hear_interrupts
from tests.items import first_of_each, name_of
from tests.kept_folders import remove_kept_folders
from tests.ports import unused_udp_ports
from tests.spark.sessions import spark_of
from tests.traced_tests import TracedTests

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

# A Java that lives for seconds gains nothing from a compiler that optimises, nor from verifying the
# thousands of classes that come with it and with Spark.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# A busy machine is no reason to fail, and a failing example must be the same for everybody.
EXAMPLES = int(os.environ.get("AERON_ASYNC_EXAMPLES", "25"))
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
settings.load_profile("steady")

# Sockets differ from loop to loop; of what stands on them, a part that touches everything once.
ON_EVERY_LOOP = ("io/", "client/test_closing.py", "client/test_flow.py")

# What waits for other processes begins first, so that nobody waits for it at the end; worlds, which
# any worker can take one by one, come last.
FIRST = ("spark", "slow", "examples", "cli", "benchmarks")
LAST = "sim"


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
    if config.getoption("--quick"):
        firsts = list(first_of_each(items).values())
        config.hook.pytest_deselected(items=list(set(items).difference(firsts)))
        items[:] = firsts


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if name_of(item.path).startswith(ON_EVERY_LOOP):
        return LOOP_FACTORIES
    return {"asyncio": asyncio.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    hear_interrupts()
    config.pluginmanager.register(TracedTests())
    config.pluginmanager.register(Freezing())
    if config.getoption("--quick"):
        settings.load_profile("quick")
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(name, JAVA_OPTIONS)


def pytest_unconfigure() -> None:
    # Workers of xdist end without what they had registered for their end.
    remove_kept_folders()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.scheduling import scheduler  # noqa: PLC0415 - xdist need not be there

    return scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # What a worker sends about a test that passes, and nobody reads: an eighth of what an empty
    # test takes.
    report = yield
    if report.passed and hasattr(item.config, "workerinput"):
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
    from tests import warm_children  # noqa: PLC0415 - few tests ask for what it imports

    monkeypatch.setattr(asyncio, "create_subprocess_exec", warm_children.create_subprocess_exec)
