"""Fixtures for pytest: worlds in virtual time, and the seed that a failing test was played with.

`simulate` is for plain tests; `world`, `lossy_link` and `partition` are for `async def` tests under
pytest-asyncio 1.4 or later, which then run on a `VirtualLoop`.

Invariant: pytest loads this module wherever the package is installed, so nothing is imported, and
no test is run otherwise, unless it asks for one of the fixtures.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from aeron_async.testing.fates import Conditions
    from aeron_async.testing.world import World

    async_fixture: Callable[..., Any]
else:
    try:
        # Strict mode leaves alone what its own decorator has not marked.
        from pytest_asyncio import fixture as async_fixture
    except ImportError:
        async_fixture = pytest.fixture

FIXTURES: Final = frozenset({"world", "lossy_link", "partition", "simulate"})
LOSS: Final = 0.2
"""Share that `lossy_link` loses when its test does not say."""
LIMIT_S: Final = 3_600.0
"""Virtual seconds after which an `async def` test is taken to be stuck."""

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
    """Tells pytest-asyncio which loop a test runs on."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], Any]]:
        """Return the one that makes a loop in virtual time."""
        from aeron_async.testing.virtual_clock import VirtualLoop  # noqa: PLC0415 - see the module's invariant

        return {"virtual": VirtualLoop}


VIRTUAL_LOOPS: Final = VirtualLoops()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Let tests that ask for a world run in virtual time.

    The hook stands for no longer than this: an answer for some tests would need one for all, and
    tests that ask for nothing are to run as if this plugin were not there.
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
    """Let a test fail whose service has failed, and one that fails anyway tell of it.

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
    """Say in the report of a failing test which seed it had."""
    report = yield
    if report.failed and asks_for(item, *FIXTURES):
        item.stash[HAS_FAILED] = True
        seed = seed_of(item)
        report.sections.append((f"aeron_async seed {seed}", f"run again with --aeron-seed {seed}"))
    return report


@async_fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A `World` in virtual time, closed and looked after when the test is over."""
    from aeron_async.testing.virtual_clock import (  # noqa: PLC0415 - see the module's invariant
        VirtualTime,
    )
    from aeron_async.testing.world import World, aclose_all  # noqa: PLC0415 - likewise

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
        # What is left open then is no news, and would hide it.
        await world.aclose()
    else:
        await aclose_all(world, others=others)


@pytest.fixture
def lossy_link(world: World) -> World:
    """The world, whose every link loses a share: `@pytest.mark.aeron(loss=0.2)` says how much."""
    return world


@pytest.fixture
def partition(world: World) -> Callable[..., AbstractContextManager[None]]:
    """Cut hosts of the world off from all others for as long as a `with` block lasts."""
    return world.partitioned


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
    "the fixtures world, lossy_link and partition are for `async def` tests under pytest-asyncio "
    "1.4 or later; a plain test asks for simulate"
)


def asks_for(item: pytest.Item, *names: str) -> bool:
    """Return whether a test gets any of these fixtures, and not others of the same name."""
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(
        is_ours(name, info.name2fixturedefs.get(name, ())) for name in names
    )


def is_ours(name: str, definitions: Sequence[pytest.FixtureDef[Any]]) -> bool:
    """Return whether a name means the fixture of this module; the last definition counts."""
    for definition in reversed(definitions):
        if name not in definition.argnames:
            return getattr(definition.func, "__module__", None) == __name__
        # It asks for the one that it stands before, and may only add to it.
    return False


def seed_of(item: pytest.Item) -> int:
    """Return the seed of a test's world: from the command line, its marker, or 0."""
    seed: int | None = item.config.getoption("--aeron-seed")
    if seed is None:
        seed = marked(item).get("seed", 0)
    return seed


def conditions_of(item: pytest.Item) -> Conditions | None:
    """Return the conditions of a test's links, or None where it says nothing of them.

    Raises:
        UsageError: The marker has an argument that is no condition.
    """
    import attrs  # noqa: PLC0415 - see the module's invariant

    from aeron_async.testing.fates import Conditions  # noqa: PLC0415 - likewise

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
    """Return what the markers of a test say; the closest has the last word."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("aeron"):
        said = {**marker.kwargs, **said}
    return said
