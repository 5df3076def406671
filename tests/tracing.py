"""Lets coverage look away: traced lines take three to four times as long."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator


def untraced_environment() -> dict[str, str]:
    """Return what a program is to be started with that coverage is not to follow."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")
    }


@contextmanager
def untraced() -> Iterator[None]:
    """Run without coverage, if there is any, what shows it nothing it has not seen.

    A worker of pytest-xdist has two: that of pytest-cov, and below it that of every subprocess.
    """
    stopped = []
    while (coverage := Coverage.current()) is not None:
        coverage.stop()
        stopped.append(coverage)
    try:
        yield
    finally:
        for coverage in reversed(stopped):
            coverage.start()
