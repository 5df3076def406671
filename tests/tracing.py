"""Lets coverage look away: traced lines take three to four times as long."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator


FOLLOWING: Final = "COVERAGE_PROCESS"
"""What the names of variables begin with by which coverage follows programs that are started."""


def untraced_environment() -> dict[str, str]:
    """Return what a program is to be started with that coverage is not to follow."""
    return {name: text for name, text in os.environ.items() if not name.startswith(FOLLOWING)}


@contextmanager
def untraced() -> Iterator[None]:
    """Run without coverage, if there is any, what shows it nothing it has not seen.

    A worker of pytest-xdist has two: that of pytest-cov, and below it that of every subprocess.
    Programs that are started in the meantime are not followed either.
    """
    stopped = []
    environ = {name: text for name, text in os.environ.items() if name.startswith(FOLLOWING)}
    for name in environ:
        del os.environ[name]
    while (coverage := Coverage.current()) is not None:
        coverage.stop()
        stopped.append(coverage)
    try:
        yield
    finally:
        os.environ.update(environ)
        for coverage in reversed(stopped):
            coverage.start()
