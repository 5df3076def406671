"""How far a source was taken, and who is told of it: in both kernels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.twins import TWINS


def source_of(kernel: Any) -> Any:
    """Return a source of a kernel whose trigger is moved by a hundred each time."""

    class Source(kernel.Taking):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self._position = self.moved_count = 0
            self._trigger = 100
            self._is_closed = False
            self.bell = kernel.Doorbell()
            self._attach(kernel.Cell(memoryview(bytearray(8)).cast("q")), self.bell)

        def _move_trigger(self) -> None:
            self.moved_count += 1
            self._trigger += 100

    return Source()


@pytest.fixture(params=TWINS)
def source(request: pytest.FixtureRequest) -> Any:
    return source_of(request.param())


def test_beyond_its_trigger_a_bell_is_rung_once(source: Any) -> None:
    rung = []
    source.bell.answer = lambda: rung.append(source._position)
    for position in (50, 100, 101, 150, 250):
        source._take(position)
    assert rung == [101]
    assert source.bell.is_rung
    assert source.moved_count == 0, "who waits for the answer looks the trigger up by itself"


def test_a_bell_that_is_answered_at_once_moves_the_trigger(source: Any) -> None:
    rung = []

    def answer() -> None:
        rung.append(source._position)
        source.bell.is_rung = False

    source.bell.answer = answer
    for position in (50, 101, 150, 200, 201, 250, 301):
        source._take(position)
    assert rung == [101, 201, 301]
    assert source.moved_count == 3
    assert source._trigger == 400


def test_what_was_taken_is_not_taken_again_nor_after_the_end(source: Any) -> None:
    source._take(80)
    source._take(60)
    assert source._position == 80
    source._is_closed = True
    source._take(500)
    assert source._position == 80
    assert not source.bell.is_rung


@pytest.mark.parametrize("twin", TWINS)
def test_a_bell_that_nobody_answers_stays_rung(twin: Any) -> None:
    bell = twin().Doorbell()
    bell.ring()
    bell.ring()
    assert bell.is_rung
