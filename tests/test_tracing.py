from __future__ import annotations

import os
import signal
from pathlib import Path
from time import process_time

import pytest
from coverage import Coverage

from tests.traced_tests import RULES
from tests.tracing import (
    TRACED_S,
    look_away,
    traced,
    traced_at_first,
    untraced,
    untraced_environment,
)

ROOT = Path(__file__).parent

with_timer = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="Windows has no timer of processor time"
)


@pytest.fixture
def coverage() -> Coverage:
    return Coverage(data_file=None, config_file=False)


def test_coverage_sees_a_test_and_nothing_else(coverage: Coverage) -> None:
    with untraced():
        with traced(coverage):
            assert Coverage.current() is coverage
        assert Coverage.current() is None


def test_coverage_sees_nothing_after_a_failure(coverage: Coverage) -> None:
    with untraced():
        with pytest.raises(ZeroDivisionError), traced(coverage):
            _ = 1 / 0
        assert Coverage.current() is None


def test_where_there_is_no_coverage_none_is_started() -> None:
    with untraced(), traced(None), traced_at_first(None):
        assert Coverage.current() is None


def test_the_last_of_several_is_that_of_the_tests(coverage: Coverage) -> None:
    with untraced():
        assert look_away() is None
        Coverage(data_file=None, config_file=False).start()
        coverage.start()
        assert look_away() is coverage
        assert Coverage.current() is None


def test_coverage_looks_away_and_on_again(coverage: Coverage) -> None:
    with untraced(), traced(coverage):
        with untraced():
            assert Coverage.current() is None
        assert Coverage.current() is coverage


def test_coverage_looks_on_after_a_failure(coverage: Coverage) -> None:
    with untraced(), traced(coverage):
        with pytest.raises(ZeroDivisionError), untraced():
            _ = 1 / 0
        assert Coverage.current() is coverage


def test_a_program_is_not_followed_and_has_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "{}")
    environment = untraced_environment()
    assert environment.keys() == {
        name for name in os.environ if not name.startswith("COVERAGE_PROCESS_")
    }
    assert environment["PATH"] == os.environ["PATH"]


@with_timer
def test_coverage_sees_the_beginning_of_a_test(coverage: Coverage) -> None:
    with untraced():
        with traced_at_first(coverage):
            assert Coverage.current() is coverage
            begun_s = process_time()
            while Coverage.current() is not None:
                assert process_time() < begun_s + 100 * TRACED_S
        assert Coverage.current() is None


@with_timer
@pytest.mark.parametrize("name", ["stop", "start"])
def test_a_signal_while_coverage_changes_does_no_harm(
    name: str, coverage: Coverage, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = getattr(Coverage, name)

    def change_and_be_interrupted(self: Coverage) -> None:
        change(self)
        signal.raise_signal(signal.SIGPROF)

    with untraced():
        with traced_at_first(coverage):
            monkeypatch.setattr(Coverage, name, change_and_be_interrupted)
            with untraced():
                assert Coverage.current() is None
            monkeypatch.undo()
        assert Coverage.current() is None


@pytest.mark.parametrize("beginning", RULES)
def test_each_rule_is_about_tests_that_there_are(beginning: str) -> None:
    assert any(ROOT.glob(f"{beginning}*"))


@with_timer
def test_no_timer_is_left_behind(coverage: Coverage) -> None:
    before = signal.getsignal(signal.SIGPROF)
    with untraced(), traced_at_first(coverage):
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) is before
