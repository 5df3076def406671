"""The program that calls compiled functions with anything, for a moment and without sanitizers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from aeron_async import _speedups
from tests.by_hand import NOT_BUILT
from tests.fuzz.compiled import MODULES, fuzz

RUNS = 10_000


@pytest.mark.parametrize("name", MODULES)
def test_whatever_a_compiled_function_is_called_with_it_returns_or_raises(name: str) -> None:
    if find_spec(f"aeron_async._speedups.{name}") is None:
        pytest.skip(NOT_BUILT)
    calls, raised = fuzz(name, RUNS, seed=1)
    assert calls.total() == RUNS
    # One that always raises, or that is hardly ever called, says nothing of what is behind it.
    assert all(raised[each] < count for each, count in calls.items())
    assert min(calls.values()) > RUNS // 200


def test_every_compiled_module_is_called() -> None:
    folder = Path(_speedups.__file__).parent
    found = {path.stem for path in folder.glob("*.pyx")}
    assert found == set(MODULES)
