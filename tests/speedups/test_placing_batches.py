"""Several segment batches, placed by one call, and scanned by one call."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.logbuffer.appender import ExclusiveAppender
from tests.logbuffer.logs import NO_LIMIT, TERM_LENGTH, make_log, read_all
from tests.speedups.test_twins import filled
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

COUNT = 32
LENGTH = COUNT * 160
DATA = bytes(filled([100] * COUNT).terms[0][:LENGTH])
CUTS = (1_280, 640, 1_920, 640, 4_480, 1_280, 4_640, 160, LENGTH, 160)


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def place(
    twin: Any, data: bytes, segments: Any, *, index: int = 0, start: int = 0
) -> tuple[Any, int]:
    log = make_log()
    placed = twin.place_batches(
        memoryview(data), array("i", segments), index, start, log.terms[0], log.term_words[0],
        start, limit=TERM_LENGTH,
    )  # fmt: skip
    return log, placed


def test_batches_that_follow_one_another_are_placed_at_once(twin: Any) -> None:
    log, placed = place(twin, DATA, CUTS)
    assert placed == LENGTH
    assert bytes(log.terms[0][:LENGTH]) == DATA
    assert read_all(log) == read_all(filled([100] * COUNT))


@pytest.mark.parametrize(("index", "start"), [(0, 640), (2, 1_280), (4, 3_200), (8, 4_960)])
def test_batches_are_placed_from_the_middle_of_one_on(twin: Any, index: int, start: int) -> None:
    log, placed = place(twin, DATA, CUTS, index=index, start=start)
    assert placed == LENGTH - start
    assert bytes(log.terms[0][start:LENGTH]) == DATA[start:]
    assert not any(log.terms[0][:start])


@pytest.mark.parametrize("word", [1, 2, 3, 4, 5])
def test_a_batch_of_another_stream_or_place_ends_what_is_placed(twin: Any, word: int) -> None:
    data = bytearray(DATA)
    data[1_280 + 4 * word + (0 if word != 1 else 2)] ^= 0x40
    log, placed = place(twin, bytes(data), CUTS)
    assert placed == 1_280
    assert bytes(log.terms[0][:1_280]) == DATA[:1_280]
    assert not any(log.terms[0][1_280:])


@pytest.mark.parametrize("word", [3, 4, 5])
def test_another_stream_within_a_batch_ends_what_is_placed(twin: Any, word: int) -> None:
    data = bytearray(DATA)
    # All of the third datagram is of another stream, and would otherwise follow.
    for frame in range(1_280, 1_920, 160):
        data[frame + 4 * word] ^= 0x40
    log, placed = place(twin, bytes(data), (LENGTH, 640))
    assert placed == 1_280
    assert not any(log.terms[0][1_280:])


def test_the_last_datagram_of_a_batch_may_be_shorter(twin: Any) -> None:
    data = bytes(filled([5_000] * 2).terms[0][: 2 * 5_152])
    log, placed = place(twin, data, (5_152, 1_408, 2 * 5_152, 1_408))
    assert placed == 2 * 5_152
    assert bytes(log.terms[0][:placed]) == data


def test_a_datagram_without_a_byte_ends_what_is_placed(twin: Any) -> None:
    assert place(twin, DATA, (1_280, 640, 1_280, 0, 1_920, 640))[1] == 1_280
    assert place(twin, DATA, (0, 0, 1_280, 640))[1] == 0


@pytest.mark.parametrize(
    ("segments", "start", "most"),
    [
        ((2**31 - 1, 640), 0, LENGTH),
        ((1_280, -640), 0, 0),
        ((1_280, 0, 1_920, 640), 0, 0),
        ((1_280, 640, 640, 640), 0, 1_280),
        ((1_280, 640), LENGTH, 0),
        ((1_280, 640), LENGTH - 16, 0),
    ],
)
def test_cuts_that_cannot_be_meant_touch_nothing_else(
    twin: Any, segments: Any, start: int, most: int
) -> None:
    check_untouched(twin, segments, 0, start, most)


@needs_compiled
@pytest.mark.parametrize(
    ("segments", "index", "start"),
    [
        ((), 0, 0),
        ((1_280,), 0, 0),
        ((-640, 640), 0, 0),
        ((1_280, 640), -2, 0),
        ((1_280, 640), 0, -32),
    ],
)
def test_what_python_raises_for_or_counts_from_the_end_touches_nothing_in_c(
    segments: Any, index: int, start: int
) -> None:
    check_untouched(compiled_twins(), segments, index, start, 0)


@pytest.mark.parametrize("index", [2, 2**62])
def test_an_index_behind_all_cuts_touches_nothing(twin: Any, index: int) -> None:
    check_untouched(twin, (1_280, 640), index, 0, 0)


def check_untouched(twin: Any, segments: Any, index: int, start: int, most: int) -> None:
    log, placed = place(twin, DATA, segments, index=index, start=start)
    assert placed <= most
    assert bytes(log.terms[0][:placed]) == DATA[:placed]
    assert not any(log.terms[0][placed:])


# Placing what lies apart.

IDS = Struct("<iii").unpack(DATA[12:24])
DATAGRAMS = [DATA[at : at + 640] for at in range(0, LENGTH, 640)]
APART: dict[str, Any] = {"base": 3 * TERM_LENGTH, "first": 0, "hwm": 0, "limit": TERM_LENGTH}


def place_apart(
    twin: Any, log: Any, datagrams: list[bytes], requested: set[int], **changes: int
) -> Any:
    """Place datagrams that came in batches of one each, or of as many as have the same length."""
    data, segments = b"".join(datagrams), array("i")
    for each in datagrams:
        end = (segments[-2] if segments else 0) + len(each)
        if segments and segments[-1] == len(each):
            segments[-2] = end
        else:
            segments.extend((end, len(each)))
    return twin.place_apart(
        memoryview(data), segments, 0, 0, log.terms[0], log.term_words[0], IDS,
        **APART | changes, requested=requested,
    )  # fmt: skip


def test_runs_are_placed_where_they_belong(twin: Any) -> None:
    log, base = make_log(), APART["base"]
    heard = [DATAGRAMS[each] for each in (1, 2, 4, 6, 7)]
    assert place_apart(twin, log, heard, set()) == (5 * 640, 8 * 640, [])
    assert bytes(log.terms[0][640:1_920]) == DATA[640:1_920]
    assert not any(log.terms[0][1_920:2_560])
    # The first gap, one that was requested, and more behind all that has come.
    heard = [DATAGRAMS[each] for each in (0, 5)] + [DATA[-640:-480]]
    found = place_apart(twin, log, heard, {base + 3_200}, hwm=8 * 640)
    # The last one lies where this term holds something.
    assert found == (2 * 640, 8 * 640, [0, 640, 3_200, 3_840])
    assert bytes(log.terms[0][3_200:LENGTH]) == DATA[3_200:]


def test_nothing_is_placed_in_a_gap_that_nobody_requested(twin: Any) -> None:
    log = make_log()
    place_apart(twin, log, DATAGRAMS[4:5], set())
    before = bytes(log.terms[0])
    for heard in (DATAGRAMS[1:2], DATAGRAMS[4:5]):
        assert place_apart(twin, log, heard, set(), hwm=3_200) == (0, 3_200, [])
    # Before the first gap, with ids of another stream, and what is no frame.
    assert place_apart(twin, log, DATAGRAMS[1:2], {640}, first=1_280, base=0)[0] == 0
    other = DATA[:12] + b"?" + DATA[13:640]
    assert place_apart(twin, log, [other, DATA[640:1_280]], set())[0] == 0
    assert place_apart(twin, log, [b"?" * 31], set())[0] == 0
    assert place_apart(twin, log, [DATA[:160], b"", DATA[160:320]], set())[0] == 0 + 160
    log.terms[0][:160] = bytes(160)
    assert bytes(log.terms[0]) == before


def test_a_run_of_several_batches_is_placed_and_what_follows_it_elsewhere(twin: Any) -> None:
    log = make_log()
    heard = [DATA[:640], DATA[640:800], DATA[800:1_440], DATA[-160:]]
    assert place_apart(twin, log, heard, set()) == (1_600, LENGTH, [])
    assert bytes(log.terms[0][:1_440]) == DATA[:1_440]
    assert bytes(log.terms[0][1_440:LENGTH]) == bytes(LENGTH - 1_600) + DATA[-160:]


def test_nothing_is_placed_where_what_was_requested_has_come(twin: Any) -> None:
    log = make_log()
    place_apart(twin, log, DATAGRAMS[4:5], set())
    requested = {APART["base"] + 2_560}
    assert place_apart(twin, log, DATAGRAMS[4:5], requested, hwm=3_200) == (0, 3_200, [])


def test_no_run_passes_a_frame_or_the_limit(twin: Any) -> None:
    log = make_log()
    place_apart(twin, log, DATAGRAMS[2:3], set())
    found = place_apart(twin, log, [DATA[:160], DATA[160:3_200]], set(), hwm=1_920)
    assert found == (160, 1_920, [0, 160])
    found = place_apart(twin, log, DATAGRAMS[3:], set(), hwm=1_920, limit=3_300)
    assert found == (1_280, 3_200, [])
    # A gap that reaches the end of all that came is one to the end of the term.
    log = make_log()
    found = place_apart(twin, log, [DATA[:1_280]], set(), hwm=640)
    assert found == (1_280, 1_280, [0, 1_280])


@needs_compiled
@given(
    picked=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=1, max_size=12),
    there=st.sets(st.integers(0, 31)),
    requested=st.sets(st.integers(0, 31)),
    first=st.integers(-2, 8),
    hwm=st.integers(0, 40),
    limit=st.integers(0, 40),
    wrong=st.none() | st.tuples(st.integers(0, LENGTH), st.sampled_from([1, 0x20, 0x80])),
)
def test_both_place_the_same_apart(
    picked: list[tuple[int, int]],
    there: set[int],
    requested: set[int],
    first: int,
    hwm: int,
    limit: int,
    wrong: tuple[int, int] | None,
) -> None:
    heard = [DATA[at * 640 : at * 640 + count * 160] for at, count in picked]
    if wrong is not None:
        each = bytearray(heard[0])
        each[wrong[0] % len(each)] ^= wrong[1]
        heard[0] = bytes(each)
    found = []
    for each_twin in (pure_twins(), compiled_twins()):
        log = make_log()
        for at in there:
            log.terms[0][at * 160 : at * 160 + 160] = DATA[at * 160 : at * 160 + 160]
        where = {"first": first * 160, "hwm": hwm * 160, "limit": limit * 160}
        asked = {APART["base"] + at * 160 for at in requested}
        result = place_apart(each_twin, log, heard, asked, **where)
        found.append((result, bytes(log.terms[0])))
    assert found[0] == found[1]


@needs_compiled
def test_what_is_no_place_takes_nothing() -> None:
    twin, log = compiled_twins(), make_log()
    for changes in ({"base": -1}, {"hwm": 2**63 - 1}, {"first": -(2**63)}, {"limit": 2**63 - 1}):
        assert place_apart(twin, log, DATAGRAMS[:1], set(), **changes)[0] == 0
    where = log.terms[0], log.term_words[0], IDS
    for index, start in ((-2, 0), (1, 0), (0, -1), (2, 0), (0, 2**62)):
        found = twin.place_apart(
            DATA, array("i", (LENGTH, 640)), index, start, *where, **APART, requested=()
        )
        assert found == (0, 0, [])
    assert twin.place_apart(DATA, array("i"), 0, 0, *where, **APART, requested=()) == (0, 0, [])
    assert not any(log.terms[0])


# Cutting what is to be sent.

SCAN: dict[str, int] = {
    "limit": TERM_LENGTH,
    "mtu_length": 1_408,
    "batch_length": 65_504,
    "max_count": 64,
}
LENGTHS = st.lists(st.sampled_from([0, 1, 32, 100, 100, 700, 1_376, 5_000]), max_size=30)


def scan(twin: Any, log: Any, room: int = 64, cost: int = 1_000, **changes: int) -> Any:
    segments = array("i", bytes(8 * room))
    where = log.terms[0], log.term_words[0], 0, segments
    total, count, padding, used = twin.scan_batches(*where, cost=cost, **SCAN | changes)
    return total, list(zip(segments[::2], segments[1::2], strict=True))[:count], padding, used


def test_messages_longer_than_a_datagram_are_a_batch_each(twin: Any) -> None:
    log = filled([5_000] * 5)
    ends = [(each * 5_152, 1_408) for each in range(1, 6)]
    assert scan(twin, log) == (5 * 5_152, ends, 0, 5 * (5 + 3))


def test_no_more_batches_are_cut_than_there_is_room_for_or_than_they_may_cost(twin: Any) -> None:
    log = filled([5_000] * 5)
    assert scan(twin, log, room=2)[:2] == (2 * 5_152, [(5_152, 1_408), (10_304, 1_408)])
    assert scan(twin, log, room=0) == (0, [], 0, 0)
    assert scan(twin, log, cost=0) == (0, [], 0, 0)
    assert scan(twin, log, cost=8)[0] == 5_152
    assert scan(twin, log, cost=9)[0] == 2 * 5_152
    assert scan(twin, log, limit=5_152 + 1_408)[0] == 5_152 + 1_408
    assert scan(twin, log, limit=0) == scan(twin, log, limit=-32) == (0, [], 0, 0)


def test_padding_is_the_end_of_batches(twin: Any) -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    for length in (3 * 1_376 + 1_300, 100):
        appender.offer(bytes(length), limit=NO_LIMIT)
    appender.append_padding(400, limit=NO_LIMIT)
    appender.offer(bytes(100), limit=NO_LIMIT)
    assert scan(twin, log) == (5_760, [(5_568, 1_408), (5_760, 192)], 416, 8 + 6)


@needs_compiled
@given(
    lengths=LENGTHS,
    limit=st.integers(0, 70_000),
    max_count=st.integers(1, 64),
    room=st.integers(0, 8),
    cost=st.integers(0, 200),
)
def test_both_cut_alike_and_note_the_same_starts(
    lengths: list[int], limit: int, max_count: int, room: int, cost: int
) -> None:
    log = filled(lengths)
    options = {"limit": limit, "max_count": max_count, "room": room, "cost": cost}
    total, ends, padding, used = scan(pure_twins(), log, **options)
    assert (total, ends, padding, used) == scan(compiled_twins(), log, **options)
    segments = array("i", [word for pair in ends for word in pair])
    for left, following in ((total, 0), (total // 2, 4_096), (total, 9_000)):
        found = []
        for each in (pure_twins(), compiled_twins()):
            positions = array("q", bytes(64))
            where = memoryview(positions), following, 1 << 20, segments, left
            found.append((each.mark_starts(*where), positions))
        assert found[0] == found[1]


def test_of_each_block_the_first_datagram_is_noted(twin: Any) -> None:
    positions = array("q", bytes(32))
    segments = array("i", (5_152, 1_408, 10_304, 1_408))
    assert twin.mark_starts(memoryview(positions), 0, 0, segments, 10_304) == 12_288
    # The second message begins behind 4 KiB with its last frame but one, at 4224.
    assert list(positions) == [0, 4_224, 9_376, 0]
    assert twin.mark_starts(memoryview(positions), 0, 0, segments, 0) == 0


def test_no_datagram_begins_in_a_block_that_its_batch_does_not_reach(twin: Any) -> None:
    positions = array("q", bytes(32))
    # The batch is one datagram of 96 bytes: none begins behind byte 64.
    assert twin.mark_starts(memoryview(positions), 64, 0, array("i", (96, 96)), 96) == 64
    assert list(positions) == [0, 0, 0, 0]


@needs_compiled
def test_starts_are_noted_only_in_what_was_given() -> None:
    twin, segments = compiled_twins(), array("i", (5_152, 0, 2**31 - 1, -1_408))
    positions = array("q", bytes(32))
    assert twin.mark_starts(memoryview(positions), 0, 0, segments, 2**62) == 0
    assert twin.mark_starts(memoryview(positions)[:0], 0, 0, array("i", (64, 64)), 64) == 0
    assert twin.mark_starts(memoryview(positions), 0, -64, array("i", (64, 64)), 64) == 0
    assert twin.mark_starts(memoryview(positions), -64, 0, array("i", (64, 64)), 64) == -64
    assert list(positions) == [0, 0, 0, 0]
