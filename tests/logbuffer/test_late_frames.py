"""How much room there is at a place that does not come in order."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from aeron_async.logbuffer import late_frames as late_frames_module
from aeron_async.logbuffer.late_frames import (
    BEYOND_BUDGET,
    BUDGET_SLOTS,
    BUDGET_SLOTS_PER_SECOND,
    FRAMES_MAX,
    GAP_SLOTS,
    STEPS_MAX,
    Conflict,
    LateFrames,
    WalkBudget,
    covering,
    shown_cover,
    shown_start,
)
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.placing import skip_whole
from aeron_async.logbuffer.rebuilder import insert, is_hole, scan_for_gap
from tests.driver.fakes import data, pad
from tests.logbuffer.logs import MTU_LENGTH, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.log_buffers import LogBuffers


class CountedWords:
    """Words of a term, and how often one was looked at."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self.count = 0

    def __getitem__(self, index: int) -> int:
        self.count += 1
        return int(self._words[index])


@pytest.mark.parametrize(
    ("hwm_position", "wanted_length", "room"),
    [
        (TERM_LENGTH, 1_024, 1_024),
        (TERM_LENGTH, TERM_LENGTH, TERM_LENGTH - 2_048),
        (2_048, 1_024, TERM_LENGTH - 2_048),
        (2_080, 1_024, TERM_LENGTH - 2_048),
    ],
)
def test_no_more_room_is_looked_for_than_is_wanted(
    hwm_position: int, wanted_length: int, room: int
) -> None:
    """A heartbeat far ahead of the stream does not make every datagram behind it dear."""
    late_frames = LateFrames(make_log(log_type=LogType.IMAGE))
    assert room == late_frames.room_at(
        2_048, floor_position=2_048, hwm_position=hwm_position, wanted_length=wanted_length
    )


@pytest.mark.parametrize("wanted_length", [4_096, 8_192])
def test_room_ends_where_a_frame_begins(wanted_length: int) -> None:
    log = make_log(log_type=LogType.IMAGE)
    insert(log.terms[0], log.term_words[0], 4_096, memoryview(data(4_096, 64)))
    late_frames = LateFrames(log)
    for position, room in ((2_048, 2_048), (4_064, 32), (4_096, 0)):
        assert room == late_frames.room_at(
            position, floor_position=1_024, hwm_position=16_384, wanted_length=wanted_length
        )


def test_the_frame_that_covers_a_place_is_found_from_behind() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for start, length in ((0, 96), (96, 1_024)):
        insert(log.terms[0], log.term_words[0], start, memoryview(data(start, length)))
    assert shown_start(log, 0) == shown_start(log, 64) == 0
    assert shown_start(log, 96) == shown_start(log, 1_088) == 96
    assert shown_start(log, 1_120 + 2 * MTU_LENGTH) == -1


def test_a_frame_longer_than_a_datagram_is_found_from_the_start_of_an_earlier_one() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for start, length in ((0, 96), (96, 3 * MTU_LENGTH)):
        insert(log.terms[0], log.term_words[0], start, memoryview(pad(start, length)))
    inside = 96 + 2 * MTU_LENGTH
    assert shown_cover(log, 0, inside) == shown_cover(log, 96, inside) == 96
    assert shown_cover(log, 0, 64) == 0
    assert shown_cover(log, 0, 96) == -1, "a frame begins there"


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    assert late_frames.last_frame(64, from_position=0) == 64
    assert shown_cover(log, 64, 32) == -1
    late_frames.clear(Conflict(0, 64, is_shown=False), hwm_position=128)
    assert not any(log.terms[0][:128])


def test_a_covering_frame_is_looked_for_over_so_many_gaps() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for offset in range(0, 64 * 2 * STEPS_MAX, 64):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 32)))
    end = 64 * 2 * STEPS_MAX - 32
    assert covering(log.term_words[0], 0, end) == end


@pytest.mark.parametrize("count", [1, FRAMES_MAX, FRAMES_MAX + 1, 4 * FRAMES_MAX])
def test_the_last_frame_is_found_however_many_lie_before_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many are walked over at most; beyond that it is looked for from behind."""
    log = make_log(log_type=LogType.IMAGE)
    walked = CountedWords(log.term_words[0])
    for offset in range(0, 32 * count, 32):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 32)))
    late_frames = LateFrames(log)
    monkeypatch.setattr(LateFrames, "_find", lambda _, position: (walked, 0, position))
    assert late_frames.last_frame(32 * count, from_position=0) == 32 * (count - 1)
    assert walked.count <= 2 * FRAMES_MAX


def test_an_honest_stream_of_many_gaps_is_placed_whole() -> None:
    """Beyond the gaps that are looked over, its frames contradict nothing."""
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    count = 3 * STEPS_MAX
    offsets = [*range(0, 64 * count, 128), *range(64 * count - 64, 0, -128)]
    for offset in offsets:
        frame = memoryview(data(offset, 64))
        for _ in range(2):
            conflict = late_frames.place(frame, offset, floor_position=0, hwm_position=64 * count)
            assert conflict is None
    for offset in range(0, 64 * count, 64):
        assert bytes(log.terms[0][offset : offset + 64]) == data(offset, 64)


@pytest.mark.parametrize("behind", [0, 32, 64])
def test_a_contradiction_in_a_hole_clears_no_frame_behind_it(behind: int) -> None:
    log = make_log(log_type=LogType.IMAGE)
    offset = 4_128 + behind
    insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 64)))
    LateFrames(log).clear(Conflict(4_096, 4_128, is_shown=False), hwm_position=8_192)
    assert log.term_words[0][4_096 >> 2] == 0
    assert bytes(log.terms[0][offset : offset + 64]) == data(offset, 64)


@pytest.mark.parametrize("begin", [0, 32, 64])
def test_a_contradiction_clears_the_whole_of_the_first_frame_in_its_place(begin: int) -> None:
    log = make_log(log_type=LogType.IMAGE)
    for offset, length in ((4_096 + begin, 96), (4_192 + begin, 64)):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, length)))
    LateFrames(log).clear(Conflict(4_096, 4_192, is_shown=False), hwm_position=8_192)
    assert not any(log.terms[0][4_096 : 4_192 + begin])
    assert log.term_words[0][(4_192 + begin) >> 2] == 64


def test_what_is_no_frame_behind_a_contradiction_is_cleared_up_to_the_next_frame() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for offset in (4_096, 4_224):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 64)))
    # The end of a longer frame, whose beginning another one has taken.
    log.terms[0][4_160:4_224] = bytes([1]) * 64
    LateFrames(log).clear(Conflict(4_096, 4_160, is_shown=False), hwm_position=8_192)
    assert not any(log.terms[0][4_096:4_224])
    assert bytes(log.terms[0][4_224:4_288]) == data(4_224, 64)


def test_padding_that_was_forged_is_not_walked_through_place_by_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may reach over half a term: with windows of megabytes each would stop the loop."""
    log = make_log(log_type=LogType.IMAGE)
    far = TERM_LENGTH // 2
    insert(log.terms[0], log.term_words[0], far, memoryview(data(far, 64)))
    walked = CountedWords(log.term_words[0])
    monkeypatch.setattr(LateFrames, "_find", lambda *_: (walked, 0, 0))
    monkeypatch.setattr(late_frames_module, "is_frame", lambda *_: True)
    monkeypatch.setattr(
        late_frames_module,
        "scan_for_gap",
        lambda _, offset, *, limit: scan_for_gap(log.term_words[0], offset, limit=limit),
    )
    LateFrames(log).clear(Conflict(0, far + 32, is_shown=False), hwm_position=far + 64)
    assert walked.count < 10
    assert not any(log.terms[0])


class Walks:
    """Counts the slots that are walked over, also by what is compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots = self.gaps = 0
        monkeypatch.setattr(late_frames_module, "skip_whole", self.skip_whole)
        monkeypatch.setattr(late_frames_module, "scan_for_gap", self.scan_for_gap)
        monkeypatch.setattr(late_frames_module, "is_hole", self.is_hole)

    def skip_whole(self, words: memoryview, offset: int, limit: int) -> int:
        end = skip_whole(words, offset, limit)
        self.slots += (end - offset) // 32
        return end

    def scan_for_gap(self, words: memoryview, offset: int, *, limit: int) -> tuple[int, int]:
        start, length = scan_for_gap(words, offset, limit=limit)
        self.gaps += 1
        self.slots += (start + length - offset) // 32
        return start, length

    def is_hole(self, words: memoryview, start: int, end: int) -> bool:
        self.slots += (end - start) // 32
        return is_hole(words, start, end)


def gaps(log: LogBuffers) -> tuple[bytes, int]:
    """Lay frames with many gaps; return padding over the last one, and where it begins."""
    for offset in range(0, 1_024 * STEPS_MAX, 1_024):
        insert(log.terms[0], log.term_words[0], offset + 32, memoryview(data(offset + 32, 64)))
    return pad(1_024 * (STEPS_MAX - 1), 96), 1_024 * (STEPS_MAX - 1)


def frames(log: LogBuffers) -> tuple[bytes, int]:
    """Lay frame behind frame; return what contradicts the last one, and where."""
    for offset in range(0, 48_000, 32):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 32)))
    insert(log.terms[0], log.term_words[0], 48_000, memoryview(data(48_000, 640)))
    return data(48_032, 64), 48_032


def hole(log: LogBuffers) -> tuple[bytes, int]:
    """Lay one far frame; return padding that reaches over it, and where it begins."""
    insert(log.terms[0], log.term_words[0], 60_000 & -32, memoryview(data(60_000 & -32, 64)))
    return pad(0, 64_000), 0


@pytest.mark.parametrize(("lay", "budget_count"), [(gaps, 1), (frames, 1), (hole, 2)])
def test_so_many_slots_are_walked_over_in_a_second(
    lay: Callable[[LogBuffers], tuple[bytes, int]],
    budget_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forged datagram of 32 bytes must not cost a core, however many come."""
    log = make_log(log_type=LogType.IMAGE)
    datagram, position = lay(log)
    walks, late_frames = Walks(monkeypatch), LateFrames(log)
    refused_count = 0
    for count in range(12_000):
        # Half a second for all of them.
        late_frames.fill_budgets(count * 500_000_000 // 12_000)
        conflict = late_frames.place(
            memoryview(datagram)[:32], position, floor_position=0, hwm_position=TERM_LENGTH
        )
        refused_count += conflict is BEYOND_BUDGET
    walked = walks.slots + GAP_SLOTS * walks.gaps
    # The ways are not walked to their end where a gap is the last.
    budget = BUDGET_SLOTS + BUDGET_SLOTS_PER_SECOND // 2
    assert walked <= budget_count * budget + 2 * TERM_LENGTH // 32
    assert walked > BUDGET_SLOTS
    assert refused_count > 6_000 // budget_count


def test_clearing_a_hole_is_paid_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(log_type=LogType.IMAGE)
    hole(log)
    walks, late_frames = Walks(monkeypatch), LateFrames(log)
    late_frames.budget.spend(BUDGET_SLOTS - 100)
    late_frames.clear(Conflict(0, 64_000, is_shown=False), hwm_position=TERM_LENGTH)
    assert walks.slots == 0
    assert log.term_words[0][(60_000 & -32) >> 2] == 64


def test_without_budget_the_first_gap_is_filled_and_duplicates_agree() -> None:
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    late_frames.budget.spend(2 * BUDGET_SLOTS)
    for offset in (4_096, 0, 0, 64, 128, 64):
        frame = memoryview(data(offset, 64))
        insert(log.terms[0], log.term_words[0], 4_096, memoryview(data(4_096, 64)))
        floor = min(offset, 128)
        assert late_frames.place(frame, offset, floor_position=floor, hwm_position=4_160) is None
    for offset in (0, 64, 128, 4_096):
        assert bytes(log.terms[0][offset : offset + 64]) == data(offset, 64)


def test_lost_padding_at_the_first_gap_has_a_budget_of_its_own() -> None:
    """Forged frames far behind the gap use up the other one, and hold no repair up."""
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    late_frames.budget.spend(BUDGET_SLOTS)
    place = {"hwm_position": 2 * TERM_LENGTH}
    for position, floor_position in ((4_096, 0), (TERM_LENGTH, 4_096), (4_096, 4_096)):
        padding = memoryview(pad(position, 32_768))[:32]
        found = late_frames.place(padding, position, floor_position=floor_position, **place)
        assert found is (BEYOND_BUDGET if floor_position < position else None)
    assert log.term_words[0][4_096 >> 2] == 32_768
    assert BUDGET_SLOTS - late_frames.first_gap_budget.slots == 32_768 // 32 - 1


def test_a_run_is_walked_to_from_the_end_of_the_one_before_it() -> None:
    """A forged heartbeat far ahead makes every honest run a late one, and none of them dearer."""
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    for start in range(0, 32_768, 4_096):
        for offset in range(start, start + 4_096, 64):
            room = late_frames.room_at(
                offset, floor_position=0, hwm_position=TERM_LENGTH, wanted_length=64
            )
            assert room >= 64
            insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 64)))
            late_frames.on_placed(start, offset + 64)
    assert late_frames.budget.slots == BUDGET_SLOTS
    # What has been cleared is walked over again.
    late_frames.clear(Conflict(28_672, 28_736, is_shown=False), hwm_position=TERM_LENGTH)
    late_frames.room_at(32_768, floor_position=0, hwm_position=TERM_LENGTH, wanted_length=64)
    assert late_frames.budget.slots < BUDGET_SLOTS


def test_a_repair_is_walked_to_from_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a long way full of gaps costs an honest stream one walk for all of them."""
    log = make_log(log_type=LogType.IMAGE)
    offsets = range(0, TERM_LENGTH, 64)
    for offset in offsets:
        if offset % 1_024:
            insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 64)))
    walks, late_frames = Walks(monkeypatch), LateFrames(log)
    for offset in offsets:
        if offset % 1_024 == 0:
            conflict = late_frames.place(
                memoryview(data(offset, 64)), offset, floor_position=0, hwm_position=TERM_LENGTH
            )
            assert conflict is None
    assert walks.slots <= 2 * TERM_LENGTH // 32
    assert BUDGET_SLOTS - late_frames.budget.slots <= TERM_LENGTH // 32


def test_time_gives_no_more_than_there_may_be() -> None:
    budget = WalkBudget()
    budget.fill(10**18)
    assert budget.slots == BUDGET_SLOTS
    assert budget.try_take(32 * BUDGET_SLOTS)
    assert not budget.try_take(32)
    budget.fill(10**18 + 1_000_000)
    assert budget.slots == BUDGET_SLOTS_PER_SECOND // 1_000
    budget.fill(10**18)
    assert budget.slots == BUDGET_SLOTS_PER_SECOND // 1_000


class Requested:
    """Places where requested gaps begin, and what was placed."""

    def __init__(self, *positions: int) -> None:
        self.positions = set(positions)
        self.placed: list[tuple[int, int, int]] = []

    def __contains__(self, position: int) -> bool:
        return position in self.positions

    def on_placed(self, position: int, end_position: int, now_ns: int) -> None:
        self.placed.append((position, end_position, now_ns))

    def clear(self) -> None:
        self.positions.clear()


def test_a_requested_gap_is_filled_without_a_walk() -> None:
    log = make_log(log_type=LogType.IMAGE)
    insert(log.terms[0], log.term_words[0], 8_192, memoryview(data(8_192, 64)))
    late_frames = LateFrames(log)
    late_frames.requested = requested = Requested(4_096)
    late_frames.fill_budgets(7)
    late_frames.budget.spend(BUDGET_SLOTS - 2)
    places = {"floor_position": 0, "hwm_position": 8_256}
    assert late_frames.room_at(4_096, wanted_length=1_024, **places) == 1_024
    assert late_frames.room_at(4_128, wanted_length=1_024, **places) == 0
    assert late_frames.place(memoryview(data(4_096, 64)), 4_096, **places) is None
    assert late_frames.place(memoryview(data(4_160, 64)), 4_160, **places) is None
    assert late_frames.place(memoryview(data(4_256, 64)), 4_256, **places) is BEYOND_BUDGET
    assert requested.placed == [(4_096, 4_096, 7), (4_160, 4_160, 7)]


def test_a_requested_gap_is_no_place_for_what_does_not_fit() -> None:
    log = make_log(log_type=LogType.IMAGE)
    insert(log.terms[0], log.term_words[0], 4_160, memoryview(data(4_160, 64)))
    late_frames = LateFrames(log)
    late_frames.requested = Requested(4_096)
    places = {"floor_position": 0, "hwm_position": 4_224}
    assert late_frames.room_at(4_096, wanted_length=1_024, **places) == 64
    found = late_frames.place(memoryview(data(4_096, 128)), 4_096, **places)
    assert found == Conflict(4_096, 4_224, is_shown=False)


def test_what_is_cleared_makes_requested_places_uncertain() -> None:
    log = make_log(log_type=LogType.IMAGE)
    insert(log.terms[0], log.term_words[0], 4_096, memoryview(data(4_096, 64)))
    late_frames = LateFrames(log)
    late_frames.requested = requested = Requested(4_160)
    late_frames.clear(Conflict(4_096, 4_160, is_shown=False), hwm_position=8_192)
    assert requested.positions == set()


def test_what_lies_apart_is_placed_without_a_walk() -> None:
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    heard = memoryview(data(0, 64) + data(128, 64) + data(256, 64) + data(64, 64))
    segments = array("i", (len(heard), 64))
    known = 64, 64, TERM_LENGTH
    assert late_frames.place_apart(heard, segments, (0, 0, 64, 0), known, 7) == (0, 64)
    late_frames.requested = requested = Requested(4_096)
    insert(log.terms[0], log.term_words[0], 0, heard[:64])
    assert late_frames.place_apart(heard, segments, (0, 0, 64, 0), known, 7) == (3 * 64, 320)
    assert requested.placed == [(64, 128, 7)]
    assert late_frames.budget.slots == BUDGET_SLOTS
    words = log.term_words[0]
    assert scan_for_gap(words, 0, limit=320) == (192, 64)
    heard = memoryview(data(320, 64) + data(448, 64))
    known = 64, 384, TERM_LENGTH
    assert late_frames.place_apart(heard, array("i", (128, 64)), (0, 0, 64, 0), known, 8) == (
        64,
        512,
    )
    assert requested.placed == [(64, 128, 7)]
