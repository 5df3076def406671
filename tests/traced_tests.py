"""Which tests coverage sees, and how much of each.

It follows a test of many parameters for the first alone, and each test for a moment. It looks away
from what starts programs, or is a campaign, and from what pytest does between two tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

import pytest

from tests.items import first_of_each, name_of
from tests.tracing import look_away, traced, traced_at_first, untraced

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from coverage import Coverage

__all__ = ["RULES", "TracedTests"]

UNTRACED: Final = ("benchmarks/", "examples/", "fuzz/", "interop/", "slow/", "test_tidy.py")
WHOLLY_TRACED: Final = ("logbuffer/", "protocol/")
"""Where every branch must be seen, also what the last example of a property takes."""
EACH_TRACED: Final = ("cli/", "io/", "spark/", "speedups/", "test_")
"""Where parameters take branches of their own."""
RULES: Final = (*UNTRACED, *WHOLLY_TRACED, *EACH_TRACED)


@final
class TracedTests:
    """A plugin for pytest that starts coverage for a test, and stops it again."""

    def __init__(self) -> None:
        self._coverage: Coverage | None = None
        self._firsts: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        # All workers import the same: one of them shows it.
        if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
            self._look_away()
        return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._firsts = {item.nodeid for item in first_of_each(session.items).values()}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        self._look_away()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._as_told(item):
            return (yield)

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    def _look_away(self) -> None:
        self._coverage = look_away() or self._coverage

    def _as_told(self, item: pytest.Item) -> AbstractContextManager[None]:
        name = name_of(item.path)
        if name.startswith(UNTRACED) or any(
            map(item.get_closest_marker, ("untraced", "processes"))
        ):
            return untraced()
        if name.startswith(WHOLLY_TRACED):
            return traced(self._coverage)
        if item.nodeid in self._firsts or name.startswith(EACH_TRACED):
            return traced_at_first(self._coverage)
        return untraced()
