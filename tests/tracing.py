"""Lets coverage look away: traced lines take three to four times as long."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

TRACED_S: Final = 0.1
"""Processor time after which a test repeats what coverage has seen of it.

Half of it left the coverage just above what is asked for, and slower machines see less.
"""

being_changed: Final = Lock()

FOLLOWING: Final = "COVERAGE_PROCESS"
"""What the names of variables begin with by which coverage follows programs that are started."""


def untraced_environment() -> dict[str, str]:
    """Return what a program is to be started with that coverage is not to follow."""
    return {name: text for name, text in os.environ.items() if not name.startswith(FOLLOWING)}


@contextmanager
def traced_at_first() -> Iterator[None]:
    """Run with coverage, if there is any, for the first tenth of a second of processor time."""
    if not hasattr(signal, "setitimer") or Coverage.current() is None:
        yield
        return
    stopped: list[Coverage] = []

    def stop(_number: int, _frame: FrameType | None) -> None:
        # A signal comes between any two lines. Where coverage is being stopped or started already,
        # it goes on: halves of two stacks would be put together in the wrong order.
        if not being_changed.locked():
            stop_all(stopped)

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, TRACED_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        start_all(stopped)


def stop_all(stopped: list[Coverage]) -> None:
    """Stop what follows this process; a worker of pytest-xdist has three, one below the other."""
    with being_changed:
        while (coverage := Coverage.current()) is not None:
            coverage.stop()
            stopped.append(coverage)


def start_all(stopped: list[Coverage]) -> None:
    """Start again what has been stopped."""
    with being_changed:
        while stopped:
            stopped.pop().start()


@contextmanager
def untraced() -> Iterator[None]:
    """Run without coverage, if there is any, what shows it nothing it has not seen.

    Programs that are started in the meantime are not followed either.
    """
    stopped: list[Coverage] = []
    environ = {name: text for name, text in os.environ.items() if name.startswith(FOLLOWING)}
    for name in environ:
        del os.environ[name]
    stop_all(stopped)
    try:
        yield
    finally:
        os.environ.update(environ)
        start_all(stopped)
