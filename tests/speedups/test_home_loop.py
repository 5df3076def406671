"""Whether the event loop that an object belongs to runs here: in both twins, in every Python."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from tests.twins import TWINS

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


class Said:
    """A loop that says whether it runs."""

    is_on = True

    def is_running(self) -> bool:
        return self.is_on


def test_a_loop_is_here_for_as_long_as_it_says_that_it_runs(twin: Any) -> None:
    loop = Said()
    home = twin.HomeLoop(loop)
    assert home.loop is loop
    assert home.is_here()
    loop.is_on = False
    assert not home.is_here()
    loop.is_on = True
    assert home.is_here()


def test_a_loop_that_runs_in_another_thread_is_not_here(twin: Any) -> None:
    home = twin.HomeLoop(Said())
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(home.is_here).result()
    assert home.is_here()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_loop_is_here_only_while_it_runs(
    twin: Any, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Between runs asyncio keeps nothing, None or an empty holder for a thread, by its version."""
    loop, other = new_loop(), new_loop()

    async def is_here(home: Any) -> bool:
        return home.is_here() is True

    async def make() -> Any:
        home = twin.HomeLoop(asyncio.get_running_loop())
        assert home.is_here()
        return home

    try:
        home = twin.HomeLoop(loop)
        assert not home.is_here(), "no loop has run"
        assert not other.run_until_complete(is_here(home))
        assert not home.is_here(), "another one has run"
        assert loop.run_until_complete(is_here(home))
        assert not home.is_here(), "it has run"
        home = loop.run_until_complete(make())
        assert not home.is_here(), "it was made in a run that has ended"
        assert not other.run_until_complete(is_here(home))
        assert loop.run_until_complete(is_here(home)), "it runs again"
    finally:
        loop.close()
        other.close()
