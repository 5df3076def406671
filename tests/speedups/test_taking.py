"""How far a source was taken, and who is informed: in both twins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.twins import TWINS


def source_of(twin: Any) -> Any:
    """Return a source of one twin whose trigger is moved by a hundred each time."""

    class Source(twin.Taking):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self._position = self.moved_count = 0
            self._trigger = 100
            self._is_closed = False
            self.flag = twin.WakeFlag()
            self._attach(twin.Cell(memoryview(bytearray(8)).cast("q")), self.flag)

        def _move_trigger(self) -> None:
            self.moved_count += 1
            self._trigger += 100

    return Source()


@pytest.fixture(params=TWINS)
def source(request: pytest.FixtureRequest) -> Any:
    return source_of(request.param())


def test_beyond_its_trigger_its_flag_is_set_once(source: Any) -> None:
    told = []
    source.flag.callback = lambda: told.append(source._position)
    for position in (50, 100, 101, 150, 250):
        source._take(position)
    assert told == [101]
    assert source.flag.is_set
    assert source.moved_count == 0, "who waits for the answer looks the trigger up by itself"


def test_a_flag_whose_callback_runs_at_once_moves_the_trigger(source: Any) -> None:
    told = []

    def answer() -> None:
        told.append(source._position)
        source.flag.is_set = False

    source.flag.callback = answer
    for position in (50, 101, 150, 200, 201, 250, 301):
        source._take(position)
    assert told == [101, 201, 301]
    assert source.moved_count == 3
    assert source._trigger == 400


def test_what_was_taken_is_not_taken_again_nor_after_the_end(source: Any) -> None:
    source._take(80)
    source._take(60)
    assert source._position == 80
    source._is_closed = True
    source._take(500)
    assert source._position == 80
    assert not source.flag.is_set


@pytest.mark.parametrize("twin", TWINS)
def test_a_flag_with_nothing_to_wake_stays_set(twin: Any) -> None:
    flag = twin().WakeFlag()
    flag.set()
    flag.set()
    assert flag.is_set
