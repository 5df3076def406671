"""Keeps the garbage collector from looking again and again at what lasts as long as the run.

Ten thousand tests do, and what they import, and what is kept of each that has run: to look through
it takes 0.06 s of a processor after 1,400 tests, and more with each. Tests of failing worlds, and
of pytest within pytest, do so several times each.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Final, final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["MODULES_MAX", "TESTS_MAX", "Freezing"]

TESTS_MAX: Final = 300
MODULES_MAX: Final = 100
"""After so many tests, or so many new modules, what there is then is taken for lasting."""


@final
class Freezing:
    """A plugin for pytest."""

    def __init__(self) -> None:
        self._test_count = self._module_count = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        # Nothing of it is garbage; to look for some takes a seventh of it.
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()
            self._freeze()

    def pytest_runtest_logfinish(self) -> None:
        self._test_count += 1
        modules_more = len(sys.modules) - self._module_count
        if self._test_count >= TESTS_MAX or modules_more >= MODULES_MAX:
            self._freeze()

    def _freeze(self) -> None:
        # What is garbage now would stay for good.
        gc.collect()
        gc.freeze()
        self._test_count, self._module_count = 0, len(sys.modules)
