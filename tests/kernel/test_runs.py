"""Several runs of datagrams, placed at once."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from tests.kernel.test_twins import PURE, TWINS, filled
from tests.logbuffer.logs import TERM_LENGTH, make_log, read_all

COUNT = 32
LENGTH = COUNT * 160
DATA = bytes(filled([100] * COUNT).terms[0][:LENGTH])
CUTS = (1_280, 640, 1_920, 640, 4_480, 1_280, 4_640, 160, LENGTH, 160)


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def place(twin: Any, data: bytes, cuts: Any, *, index: int = 0, start: int = 0) -> tuple[Any, int]:
    log = make_log()
    placed = twin.place_runs(
        memoryview(data), array("i", cuts), index, start, log.terms[0], log.term_words[0], start,
        limit=TERM_LENGTH,
    )  # fmt: skip
    return log, placed


def test_runs_that_follow_one_another_are_placed_at_once(twin: Any) -> None:
    log, placed = place(twin, DATA, CUTS)
    assert placed == LENGTH
    assert bytes(log.terms[0][:LENGTH]) == DATA
    assert read_all(log) == read_all(filled([100] * COUNT))


@pytest.mark.parametrize(("index", "start"), [(0, 640), (2, 1_280), (4, 3_200), (8, 4_960)])
def test_runs_are_placed_from_the_middle_of_one_on(twin: Any, index: int, start: int) -> None:
    log, placed = place(twin, DATA, CUTS, index=index, start=start)
    assert placed == LENGTH - start
    assert bytes(log.terms[0][start:LENGTH]) == DATA[start:]
    assert not any(log.terms[0][:start])


@pytest.mark.parametrize("word", [1, 2, 3, 4, 5])
def test_a_run_of_another_stream_or_place_ends_what_is_placed(twin: Any, word: int) -> None:
    data = bytearray(DATA)
    data[1_280 + 4 * word + (0 if word != 1 else 2)] ^= 0x40
    log, placed = place(twin, bytes(data), CUTS)
    assert placed == 1_280
    assert bytes(log.terms[0][:1_280]) == DATA[:1_280]
    assert not any(log.terms[0][1_280:])


def test_a_datagram_without_a_byte_ends_what_is_placed(twin: Any) -> None:
    assert place(twin, DATA, (1_280, 640, 1_280, 0, 1_920, 640))[1] == 1_280
    assert place(twin, DATA, (0, 0, 1_280, 640))[1] == 0


@pytest.mark.parametrize(
    ("cuts", "index", "start", "most"),
    [
        ((), 0, 0, 0),
        ((1_280,), 0, 0, 0),
        ((2**31 - 1, 640), 0, 0, LENGTH),
        ((-640, 640), 0, 0, 0),
        ((1_280, -640), 0, 0, 0),
        ((1_280, 0, 1_920, 640), 0, 0, 0),
        ((1_280, 640, 640, 640), 0, 0, 1_280),
        ((1_280, 640), 2, 0, 0),
        ((1_280, 640), -2, 0, 0),
        ((1_280, 640), 2**62, 0, 0),
        ((1_280, 640), 0, -32, 0),
        ((1_280, 640), 0, LENGTH, 0),
        ((1_280, 640), 0, LENGTH - 16, 0),
    ],
)
def test_cuts_that_cannot_be_meant_touch_nothing_else(
    twin: Any, cuts: Any, index: int, start: int, most: int
) -> None:
    if twin is PURE and (min(index, start, *cuts[:1]) < 0 or len(cuts) < 2):
        pytest.skip("Python raises by itself, or counts from the end")
    log, placed = place(twin, DATA, cuts, index=index, start=start)
    assert placed <= most
    assert bytes(log.terms[0][:placed]) == DATA[:placed]
    assert not any(log.terms[0][placed:])
