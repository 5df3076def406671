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

LOOK_S: Final = 0.02
"""Processor time after which it is looked whether a test has shown coverage anything new."""
LOOKS_IN_VAIN: Final = 2
"""So many such looks in a row, and coverage looks away."""
TRACED_S: Final = 0.2
"""Processor time after which a test is not followed any more, whatever else it shows.

A slower machine sees less in it; `make test` asks for 95 %.
"""

FOLLOWING: Final = "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"
"""The variables by which coverage follows programs that are started, if somebody has set them."""


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
    """Run with coverage, if there is any, for as long as it sees what it has not seen before."""
    if coverage is None or not hasattr(signal, "setitimer"):
        with traced(coverage):
            yield
        return

    before, seen = signal.getsignal(signal.SIGPROF), seen_by(coverage)
    looks_left, patience = round(TRACED_S / LOOK_S), LOOKS_IN_VAIN

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen, looks_left, patience
        # The test has stopped it itself, or does so at this moment.
        if Coverage.current() is not coverage:
            return
        found, looks_left = seen_by(coverage), looks_left - 1
        patience = patience - 1 if found == seen else LOOKS_IN_VAIN
        if not (patience and looks_left):
            signal.setitimer(signal.ITIMER_PROF, 0)
            coverage.stop()
        seen = found

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, LOOK_S, LOOK_S)
    try:
        with traced(coverage):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def seen_by(coverage: Coverage) -> int:
    """Return how many steps from line to line a coverage has seen that it keeps in memory."""
    collector = coverage._collector
    return 0 if collector is None else sum(map(len, list(collector.data.values())))


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
