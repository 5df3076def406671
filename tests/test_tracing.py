from __future__ import annotations

import os
import signal

import pytest
from coverage import Coverage

from tests.tracing import start_all, stop_all, traced_at_first, untraced, untraced_environment

with_coverage = pytest.mark.skipif(
    Coverage.current() is None or not hasattr(signal, "setitimer"),
    reason="runs with coverage, and not on Windows: pytest --cov",
)


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


@with_coverage
def test_coverage_sees_the_beginning_of_a_test() -> None:
    before = Coverage.current()
    with traced_at_first():
        assert Coverage.current() is before
        while Coverage.current() is not None:
            pass
    assert Coverage.current() is before


@with_coverage
@pytest.mark.parametrize("name", ["stop", "start"])
def test_a_signal_between_two_of_them_leaves_their_order(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = getattr(Coverage, name)

    def change_and_be_interrupted(coverage: Coverage) -> None:
        change(coverage)
        signal.raise_signal(signal.SIGPROF)

    second = Coverage(data_file=None)
    with second.collect():
        before = all_of_them()
        with traced_at_first():
            with monkeypatch.context() as patch:
                patch.setattr(Coverage, name, change_and_be_interrupted)
                with untraced():
                    pass
            assert all_of_them() == before
        assert all_of_them() == before
    assert before[0] is second


def all_of_them() -> list[Coverage]:
    """Return what follows this process, the last one first."""
    stopped: list[Coverage] = []
    stop_all(stopped)
    found = list(stopped)
    start_all(stopped)
    return found


@pytest.mark.skipif(not hasattr(signal, "getitimer"), reason="Windows has no such timer")
def test_no_timer_is_left_behind() -> None:
    with traced_at_first():
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
