"""Lets coverage look away: traced lines take three to four times as long."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

TRACED_S: Final = 0.1
"""Processor time after which a test mostly repeats what coverage has seen of it.

A slower machine sees less in it. With it 96.6 % of the package were seen, with half of it 95.6 %;
`make test` asks for 95.
"""

FOLLOWING: Final = "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"
"""The variables by which coverage follows programs that are started."""


def untraced_environment() -> dict[str, str]:
    """Return what a program is to be started with that coverage is not to follow."""
    return {name: text for name, text in os.environ.items() if name not in FOLLOWING}


def look_away() -> Coverage | None:
    """Stop coverage, and return what `traced` is to start again for a test.

    What pytest does between two tests is more than most of them do. A worker of pytest-xdist has
    three of them, one below the other: the last one is that of the tests.
    """
    last = Coverage.current()
    while (coverage := Coverage.current()) is not None:
        coverage.stop()
    return last


@contextmanager
def traced(coverage: Coverage | None) -> Iterator[None]:
    """Run with coverage, if there is any."""
    if coverage is None:
        yield
        return
    coverage.start()
    try:
        yield
    finally:
        coverage.stop()


@contextmanager
def traced_at_first(coverage: Coverage | None) -> Iterator[None]:
    """Run with coverage, if there is any, for the first tenth of a second of processor time."""
    if coverage is None or not hasattr(signal, "setitimer"):
        with traced(coverage):
            yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Unless the test does so itself at this moment, or has done so.
        if Coverage.current() is coverage:
            coverage.stop()

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, TRACED_S)
    try:
        with traced(coverage):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def untraced() -> Iterator[None]:
    """Run without coverage, if there is any, what shows it nothing it has not seen.

    Programs that are started in the meantime are not followed either.
    """
    environ = {name: os.environ.pop(name) for name in FOLLOWING if name in os.environ}
    coverage = Coverage.current()
    if coverage is not None:
        coverage.stop()
    try:
        yield
    finally:
        os.environ.update(environ)
        if coverage is not None:
            coverage.start()
