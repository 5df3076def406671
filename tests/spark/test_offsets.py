"""Offsets: the same ones are always the same text, which is short."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.spark.offsets import Cut, IdRanges, Offsets, RecordingOffset, packed, unpacked
from tests.archive.disk.streams import described

POSITIONS = st.integers(0, (1 << 62) // 32).map(lambda each: each * 32)
IDS = st.integers(0, 1 << 62)
RECORDINGS = st.dictionaries(
    IDS,
    st.builds(
        RecordingOffset,
        POSITIONS,
        st.integers(0, (1 << 32) - 1),
        st.none() | POSITIONS,
        st.booleans(),
    ),
    max_size=8,
)
RANGES = st.sets(IDS, max_size=6).map(
    lambda each: IdRanges(tuple(sorted(each)[: len(each) // 2 * 2]))
)
CUTS = st.none() | st.builds(Cut, st.integers(1, 1 << 40), st.none() | st.integers(1, 4_096))
OFFSETS = st.builds(Offsets, RECORDINGS, CUTS, RANGES, RANGES, st.integers(-1, 1 << 60))
GOOD: dict[str, Any] = {
    "v": 2,
    "met": "AAM=",
    "new": "",
    "open": "AQ==",
    "at": "BA==",
    "who": "AAAAAA==",
    "first": "",
    "newest": 5,
}
VERSION_1: dict[str, Any] = {"pos": 64, "from": 0, "began": 1, "term": 7}


def text(offsets: Offsets) -> str:
    return json.dumps(offsets.to_json())


@given(RECORDINGS, st.randoms())
def test_the_same_offsets_are_the_same_text_in_whatever_order_they_were_found(
    recordings: dict[int, RecordingOffset], draw: Any
) -> None:
    shuffled = list(recordings.items())
    draw.shuffle(shuffled)
    assert text(Offsets(recordings)) == text(Offsets(dict(shuffled)))


@given(OFFSETS)
def test_what_was_written_is_read_and_written_the_same(offsets: Offsets) -> None:
    again = Offsets.from_json(json.loads(text(offsets)))
    assert again == offsets
    assert text(again) == text(offsets)


@given(OFFSETS, OFFSETS)
def test_other_offsets_are_another_text(some: Offsets, others: Offsets) -> None:
    assert (text(some) == text(others)) == (some == others)


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_numbers_are_packed_and_unpacked(numbers: list[int]) -> None:
    assert unpacked(packed(numbers)) == numbers


def test_five_thousand_open_recordings_of_ten_thousand_are_less_than_64_kb() -> None:
    chance = random.Random(1)
    found = {
        each: RecordingOffset(chance.randrange(1 << 25) * 32, chance.randrange(1 << 32))
        for each in chance.sample(range(10_000), 5_000)
    }
    assert len(text(Offsets(found, Cut(1 << 28), IdRanges((0, 10_000))))) < 64_000


@pytest.mark.parametrize("version", [None, 0, 3, "1", True, [2]])
def test_offsets_of_another_version_are_refused(version: object) -> None:
    with pytest.raises(ConfigurationError, match=r"of version .*checkpointLocation"):
        Offsets.from_json({"v": version, "recs": {}})


def test_what_is_right_is_read() -> None:
    assert Offsets.from_json(GOOD) == Offsets(
        {1: RecordingOffset(32, 0)}, None, IdRanges((0, 4)), newest_ms=5
    )


@pytest.mark.parametrize(
    "wrong",
    [
        *({key: None} for key in GOOD if key != "v"),
        *({key: "no base64!"} for key in GOOD if key not in {"v", "newest"}),
        # Bytes without an end, or too many for a number.
        {"open": "gA=="},
        {"at": "gICAgICAgICAAQ=="},
        # A range without an end, and ids without positions.
        {"met": "AA=="},
        {"open": "AQE="},
        {"who": "AAA="},
        # A first position that is not there.
        {"at": "Bg=="},
        {"cut": None},
        {"cut": [0]},
        {"cut": [5, None]},
        {"newest": 0.5},
    ],
)
def test_what_is_no_offset_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        Offsets.from_json(GOOD | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"recs": None},
        {"recs": []},
        {"recs": {"three": VERSION_1}},
        {"recs": {"3": 4096}},
        {"recs": {"3": {"pos": 0, "from": 0, "began": 0}}},
        {"recs": {"3": {**VERSION_1, "pos": 0.5}}},
        {"recs": {"3": {**VERSION_1, "pos": 5}}},
        {"recs": {"3": {**VERSION_1, "pos": True}}},
        {"recs": {"3": {**VERSION_1, "pos": 1 << 63}}},
        {"recs": {"3": {**VERSION_1, "term": 1 << 40}}},
        {"recs": {}, "cut": [True]},
        {"recs": {}, "gone": [1]},
        {"recs": {}, "gone": [1, "2"]},
    ],
)
def test_what_is_no_offset_of_version_1_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        Offsets.from_json({"v": 1, **wrong})


def test_version_1_is_read() -> None:
    descriptor = described()
    each = {
        "pos": 4_096,
        "from": 64,
        "began": descriptor.start_timestamp_ms,
        "term": descriptor.initial_term_id,
    }
    given = {
        "v": 1,
        "recs": {"3": each, "10": {**each, "session": descriptor.session_id, "done": True}},
        "cut": [9],
        "gone": [1, 500],
    }
    found = Offsets.from_json(given)
    assert (found.cut, found.met.bounds, found.newest_ms) == (Cut(9), (1, 2, 3, 4, 10, 11), 500)
    assert [found.is_done(each) for each in (1, 2, 3, 10)] == [True, False, False, True]
    old, new = found.recordings[3], found.recordings[10]
    assert (old.position, old.first) == (4_096, 64)
    assert old.is_of(descriptor)
    assert old.is_of_session(8_888)
    assert new == RecordingOffset.of(descriptor, 4_096, first=64, is_done=True)


def test_another_recording_with_the_same_id_is_told_by_its_start_and_first_term() -> None:
    begun = RecordingOffset.of(described(), 64)
    assert begun.is_of(described(session_id=3, start_position=128, stop_position=256))
    assert not begun.is_of(described(start_timestamp_ms=2))
    assert not begun.is_of(described(initial_term_id=8))
    assert begun.is_of_session(described().session_id)
    assert not begun.is_of_session(3)


SOME = st.sets(st.integers(0, 30))


@given(SOME, SOME)
def test_ranges_are_sets_of_ids(some: set[int], others: set[int]) -> None:
    ranges = IdRanges().with_spans((each, each + 1) for each in some)
    both = ranges.with_spans((each, each + 1) for each in others)
    assert set(ranges) == some
    assert set(both) == some | others
    assert set(both.without(some)) == others - some
    assert [each in both for each in range(32)] == [each in some | others for each in range(32)]
    assert both.end == max(some | others, default=-1) + 1
    # Neighbours are one range.
    assert all(
        end < begin for end, begin in zip(both.bounds[1::2], both.bounds[2::2], strict=False)
    )
