from __future__ import annotations

import os
import signal

import pytest
from coverage import Coverage

from tests.tracing import traced_at_first, untraced, untraced_environment


def test_coverage_looks_away_and_on_again() -> None:
    before = Coverage.current()
    with untraced():
        assert Coverage.current() is None
    assert Coverage.current() is before


def test_coverage_looks_on_after_a_failure() -> None:
    before = Coverage.current()
    with pytest.raises(ZeroDivisionError), untraced():
        _ = 1 / 0
    assert Coverage.current() is before


def test_a_program_is_not_followed_and_has_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "{}")
    environment = untraced_environment()
    assert environment.keys() == {
        name for name in os.environ if not name.startswith("COVERAGE_PROCESS")
    }
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.skipif(Coverage.current() is None, reason="runs with coverage: pytest --cov")
def test_coverage_sees_the_beginning_of_a_test() -> None:
    before = Coverage.current()
    with traced_at_first():
        assert Coverage.current() is before
        while Coverage.current() is not None:
            pass
    assert Coverage.current() is before


@pytest.mark.skipif(not hasattr(signal, "getitimer"), reason="Windows has no such timer")
def test_no_timer_is_left_behind() -> None:
    with traced_at_first():
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
