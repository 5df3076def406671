"""Fixtures for pytest: drivers, worlds in virtual time, and the seed of a failing test.

`simulate` is for plain tests, and all others for `async def` tests under pytest-asyncio 1.4 or
later. `aeron` and `aeron_pair` have real sockets; the rest are a `World`, and tests that use them
run on a `VirtualLoop`.

Invariant: pytest loads this module wherever the package is installed. So it imports nothing else,
and changes how a test runs only if the test uses one of the fixtures.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from aeron_async import Aeron, Publication, Subscription
    from aeron_async.archive import DurableStream
    from aeron_async.testing.fates import Conditions
    from aeron_async.testing.services import Market
    from aeron_async.testing.world import World

    async_fixture: Callable[..., Any]
else:
    try:
        # In strict mode pytest-asyncio ignores fixtures without its own decorator.
        from pytest_asyncio import fixture as async_fixture
    except ImportError:
        async_fixture = pytest.fixture

FIXTURES: Final = frozenset(
    {
        *("world", "lossy_link", "partition", "simulate"),
        *("aeron", "aeron_pair", "rpc_pair", "durable_log", "market"),
    }
)
LOSS: Final = 0.2
"""Share that `lossy_link` loses by default."""
TERM_LENGTH: Final = 64 * 1024
CONNECT_S: Final = 30.0
"""Most seconds that the two of `aeron_pair` may take to connect."""
LIMIT_S: Final = 3_600.0
"""Virtual seconds after which an `async def` test counts as stuck."""

HAS_FAILED: Final = pytest.StashKey[bool]()
WORLD: Final = pytest.StashKey["World"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the seed."""
    group = parser.getgroup("aeron_async")
    group.addoption(
        "--aeron-seed", type=int, default=None, help="seed of every world, whatever its test says"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "aeron(seed=0, loss=0.2, ...): seed and conditions of the links of a test's world",
    )


class VirtualLoops:
    """Plugin that tells pytest-asyncio which loop a test runs on."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], Any]]:
        """Return the factory of loops in virtual time."""
        from aeron_async.testing.virtual_clock import VirtualLoop  # noqa: PLC0415 - see the module's invariant

        return {"virtual": VirtualLoop}


VIRTUAL_LOOPS: Final = VirtualLoops()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Run tests that use a world in virtual time.

    The hook is registered only for this call: if it answered for some tests, it would have to
    answer for all, and tests without these fixtures must run as without this plugin.
    """
    if not asks_for(metafunc.definition, "world"):
        return (yield)
    manager = metafunc.config.pluginmanager
    manager.register(VIRTUAL_LOOPS)
    try:
        return (yield)
    finally:
        manager.unregister(VIRTUAL_LOOPS)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test whose service has failed; add the service's failure to that of the test.

    Raises:
        Exception: A service or a callback has raised it.
        ExceptionGroup: Several have.
    """
    try:
        result = yield
    except (Exception, asyncio.CancelledError, pytest.fail.Exception) as failure:
        if WORLD in pyfuncitem.stash:
            pyfuncitem.stash[WORLD].failures.add_to(failure)
        raise
    if WORLD in pyfuncitem.stash:
        pyfuncitem.stash[WORLD].failures.raise_untold()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed to the report of a failing test."""
    report = yield
    if report.failed and asks_for(item, *FIXTURES):
        item.stash[HAS_FAILED] = True
        seed = seed_of(item)
        report.sections.append((f"aeron_async seed {seed}", f"run again with --aeron-seed {seed}"))
    return report


@async_fixture
async def aeron(request: pytest.FixtureRequest) -> AsyncIterator[Aeron]:
    """A client with a driver of its own, on real sockets, which closes without waiting."""
    if asks_for(request.node, "world"):
        pytest.fail(REAL_SOCKETS, pytrace=False)
    from aeron_async import Aeron, DriverContext, MediaDriver  # noqa: PLC0415 - see the module's invariant

    context = DriverContext(
        term_buffer_length=TERM_LENGTH,
        ipc_term_buffer_length=TERM_LENGTH,
        close_linger_timeout_ns=0,
    )
    async with (
        MediaDriver.launch(context, seed=seed_of(request.node)) as driver,
        Aeron.connect(driver) as aeron,
    ):
        yield aeron


@async_fixture
async def aeron_pair(aeron: Aeron) -> tuple[Publication, Subscription]:
    """A publication and a subscription that are connected, at a port that the system has chosen."""
    subscription = await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", 1001)
    channel = f"aeron:udp?endpoint={subscription.local_address}"
    publication = await aeron.add_publication(channel, 1001)
    await publication.wait_connected(timeout=CONNECT_S)
    return publication, subscription


@async_fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A `World` in virtual time, closed and checked for leaks after the test."""
    from aeron_async.testing.virtual_clock import (  # noqa: PLC0415 - see the module's invariant
        VirtualTime,
    )
    from aeron_async.testing.world import World, aclose_all  # noqa: PLC0415 - see the module's invariant

    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTime):
        pytest.fail(NO_VIRTUAL_LOOP, pytrace=False)
    others = asyncio.all_tasks()
    world = World(seed=seed_of(request.node), conditions=conditions_of(request.node))
    request.node.stash[WORLD] = world
    loop.limit_ns = loop.now_ns + round(LIMIT_S * 1e9)
    yield world
    loop.limit_ns = None
    if request.node.stash.get(HAS_FAILED, False):
        # The test has failed: a leak is a consequence, and would hide the failure.
        await world.aclose()
    else:
        await aclose_all(world, others=others)


@pytest.fixture
def lossy_link(world: World) -> World:
    """A world whose every link loses datagrams; `@pytest.mark.aeron(loss=0.2)` sets the share."""
    return world


@pytest.fixture
def partition(world: World) -> Callable[..., AbstractContextManager[None]]:
    """Cut hosts of the world off from all others for the duration of a `with` block."""
    return world.partitioned


@async_fixture
async def rpc_pair(world: World) -> AsyncIterator[Callable[..., Any]]:
    """A function that serves an `rpc.Server` in the world, and returns a connected client."""
    from aeron_async.testing.services import rpc_pair  # noqa: PLC0415 - see the module's invariant

    async with AsyncExitStack() as stack:
        yield lambda service, **options: stack.enter_async_context(
            rpc_pair(world, service, **options)
        )


@async_fixture
async def durable_log(world: World, tmp_path: Path) -> AsyncIterator[DurableStream]:
    """A durable stream in the world, whose archive is in the folder of the test."""
    from aeron_async.testing.services import durable_log  # noqa: PLC0415 - see the module's invariant

    async with durable_log(world, tmp_path) as log:
        yield log


@async_fixture
async def market(world: World) -> AsyncIterator[Market]:
    """Market data in the world: `market.start()`, and `await market.subscribe()`."""
    from aeron_async.testing.services import Market  # noqa: PLC0415 - see the module's invariant

    async with aclosing(Market(world)) as market:
        yield market


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`aeron_async.testing.simulate` with the seed and conditions of the test."""
    from aeron_async.testing.world import (  # noqa: PLC0415 - see the module's invariant
        simulate,
        tell_and_close,
    )

    seed, conditions = seed_of(request.node), conditions_of(request.node)

    def simulate_here(story: Callable[[World], Any], **options: Any) -> Any:
        own = {"seed": seed, "conditions": conditions} | options
        return simulate(partial(tell_and_close, story), **own)

    return simulate_here


NO_VIRTUAL_LOOP: Final = (
    "the fixture world, and those that use it, are for `async def` tests under pytest-asyncio 1.4 "
    "or later; a plain test asks for simulate"
)
REAL_SOCKETS: Final = (
    "the fixtures aeron and aeron_pair have real sockets, and a test with a world has none: use "
    'world.host("name").aeron() there'
)


def asks_for(item: pytest.Item, *names: str) -> bool:
    """Return whether a test uses any of these fixtures, and not others with the same name."""
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(
        is_ours(name, info.name2fixturedefs.get(name, ())) for name in names
    )


def is_ours(name: str, definitions: Sequence[pytest.FixtureDef[Any]]) -> bool:
    """Return whether a name refers to the fixture of this module; the last definition counts."""
    for definition in reversed(definitions):
        if name not in definition.argnames:
            return getattr(definition.func, "__module__", None) == __name__
        # It uses the fixture that it overrides, and may only extend it.
    return False


def seed_of(item: pytest.Item) -> int:
    """Return the seed of a test's world: from the command line, its marker, or 0."""
    seed: int | None = item.config.getoption("--aeron-seed")
    if seed is None:
        seed = marked(item).get("seed", 0)
    return seed


def conditions_of(item: pytest.Item) -> Conditions | None:
    """Return the conditions of a test's links, or None if its marker sets none.

    Raises:
        UsageError: The marker has an unknown argument.
    """
    import attrs  # noqa: PLC0415 - see the module's invariant

    from aeron_async.testing.fates import Conditions  # noqa: PLC0415 - see the module's invariant

    given = {name: value for name, value in marked(item).items() if name != "seed"}
    known = attrs.fields_dict(Conditions)
    if unknown := given.keys() - known.keys():
        names = ", ".join(sorted(unknown))
        message = f"@pytest.mark.aeron has no {names}; there are seed, {', '.join(known)}"
        raise pytest.UsageError(message)
    if asks_for(item, "lossy_link") and given.keys().isdisjoint({"loss", "bursts"}):
        given["loss"] = LOSS
    return Conditions(**given) if given else None


def marked(item: pytest.Item) -> dict[str, Any]:
    """Return the arguments of a test's markers; the closest marker overrides the others."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("aeron"):
        said = {**marker.kwargs, **said}
    return said
