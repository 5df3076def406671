"""A watching thread for tests, and how to wait for what it does."""

from __future__ import annotations

import os
import selectors
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from aeron_async.concurrent.atomic_buffer import WHY_NOT_SHARED
from tests.by_hand import NOT_BUILT

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async._speedups.watching import WatchedWord, WatchThread

needs_watcher = pytest.mark.skipif(
    WHY_NOT_SHARED is not None or find_spec("aeron_async._speedups.watching") is None,
    reason=NOT_BUILT,
)

FOREVER: Final = 2**64 - 1
HOUR_NS: Final = 3_600 * 10**9
PATIENCE_S: Final = 60.0
LOOKS: Final = 20_000_000
"""How often a test looks for something before it fails."""

SPINNING: Final = {"max_spins": FOREVER}
YIELDING: Final = {"max_yields": FOREVER}
NAPPING: Final = {"min_nap_ns": HOUR_NS, "max_nap_ns": HOUR_NS}
BACKING_OFF: Final = {"max_spins": 10, "max_yields": 20, "max_nap_ns": 100_000}
LADDERS: Final = {
    "spinning": SPINNING,
    "yielding": YIELDING,
    "napping": NAPPING,
    "backing off": BACKING_OFF,
}


def await_that(is_so: Callable[[], object]) -> None:
    for _ in range(LOOKS):
        if is_so():
            return
        os.sched_yield()
    pytest.fail("it does not happen")


def watch_thread(**arguments: Any) -> WatchThread:
    """Return a thread that naps for 1 us, unless the arguments say otherwise."""
    defaults = {
        "max_spins": 0,
        "max_yields": 0,
        "min_nap_ns": 1_000,
        "max_nap_ns": 1_000,
        "silent_nap_ns": 0,
        "silence_ns": 0,
        "pauses": True,
        "word_limit": 4_096,
    }
    made: WatchThread = import_module("aeron_async._speedups.watching").WatchThread(
        **{**defaults, **arguments}
    )
    return made


class Watch:
    """A thread, and who has been called back: a small loop of its own."""

    def __init__(self, **arguments: Any) -> None:
        self.thread = watch_thread(**arguments)
        self.called: list[object] = []
        self.errors: list[Exception] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.thread.fileno(), selectors.EVENT_READ)

    def add(
        self,
        buffer: Any,
        offset: int = 0,
        width: int = 64,
        name: object = None,
        *,
        is_command: bool = False,
    ) -> WatchedWord:
        return self.thread.add(
            buffer, offset, width, lambda: self.called.append(name), is_command=is_command
        )

    def is_rung(self) -> bool:
        return bool(self._selector.select(0))

    def turn(self) -> None:
        """Wait until the thread rings, and dispatch."""
        assert self._selector.select(PATIENCE_S), "the thread does not ring"
        self.thread.dispatch(self.errors.append)

    def wait(self, count: int) -> None:
        while len(self.called) < count:
            self.turn()

    def look_twice(self) -> None:
        """Wait until the thread has looked at all words, from the first to the last."""
        seen = self.thread.scan_count
        await_that(lambda: self.thread.is_parked or self.thread.scan_count > seen + 1)

    def close(self) -> None:
        self._selector.close()
        self.thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
