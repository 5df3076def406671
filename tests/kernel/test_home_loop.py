"""Whether the event loop that an object belongs to runs here: in both kernels, in every Python."""

from __future__ import annotations

import asyncio
import ctypes
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aeron_async.kernel import paths
from tests.kernel.test_twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]


@pytest.fixture(params=["pure", pytest.param("compiled", marks=needs_compiled)])
def kernel(request: pytest.FixtureRequest) -> Any:
    return paths if request.param == "pure" else import_module("aeron_async.kernel._paths")


class Counted:
    """A loop that runs, and counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def is_running(self) -> bool:
        self.count += 1
        return True


def thread_state() -> dict[str, Any]:
    """Return what extensions keep for this thread."""
    get = ctypes.pythonapi.PyThreadState_GetDict
    # Borrowed, so it must not be taken for a new reference.
    get.restype = ctypes.c_void_p
    found: dict[str, Any] = ctypes.cast(get(), ctypes.py_object).value
    return found


@needs_compiled
def test_a_loop_that_asyncio_keeps_for_the_thread_is_not_asked() -> None:
    """Python 3.12 and 3.13 keep the loop itself: each offer called its `is_running`."""
    loop, other, key = Counted(), Counted(), "__asyncio_running_event_loop__"
    home = import_module("aeron_async.kernel._paths").HomeLoop(loop)
    state = thread_state()
    kept = {name: value for name, value in state.items() if name == key}
    try:
        # Nothing of asyncio runs between this and its end.
        counts = []
        for each in (loop, other, None):
            state[key] = each
            assert home.is_here()
            counts.append(loop.count)
    finally:
        state.pop(key)
        state.update(kept)
    assert counts == [0, 1, 2]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_loop_is_here_only_while_it_runs(
    kernel: Any, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Between runs asyncio keeps nothing, None or an empty holder for a thread, by its version."""
    loop, other = new_loop(), new_loop()

    async def is_here(home: Any) -> bool:
        return home.is_here() is True

    async def make() -> Any:
        home = kernel.HomeLoop(asyncio.get_running_loop())
        assert home.is_here()
        return home

    try:
        home = kernel.HomeLoop(loop)
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
