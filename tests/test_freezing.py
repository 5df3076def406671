from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.freezing import MODULES_MAX, TESTS_MAX, Freezing

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each call is added."""
    found: list[str] = []

    def noted(name: str) -> Callable[[], None]:
        return lambda: found.append(name)

    for name in ("collect", "freeze", "disable", "enable"):
        monkeypatch.setattr(gc, name, noted(name))
    return found


def collected(freezing: Freezing) -> None:
    """Go through a collection, which may fail."""
    collecting = freezing.pytest_collection()
    next(collecting)
    with pytest.raises(LookupError):
        collecting.throw(LookupError())


def test_no_garbage_is_looked_for_while_tests_are_collected(frozen: list[str]) -> None:
    collected(Freezing())
    assert frozen == ["disable", "enable", "collect", "freeze"]


def test_what_is_kept_of_many_tests_is_frozen(frozen: list[str]) -> None:
    freezing = Freezing()
    collected(freezing)
    frozen.clear()
    for _ in range(2 * TESTS_MAX + 1):
        freezing.pytest_runtest_logfinish()
    assert frozen == ["collect", "freeze"] * 2


def test_many_modules_are_frozen_at_once(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    freezing = Freezing()
    collected(freezing)
    frozen.clear()
    for number in range(MODULES_MAX):
        assert frozen == []
        monkeypatch.setitem(sys.modules, f"module_of_test_freezing_{number}", ModuleType("x"))
        freezing.pytest_runtest_logfinish()
    assert frozen == ["collect", "freeze"]
