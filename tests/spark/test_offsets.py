"""Offsets: the same ones are always the same text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.spark.offsets import Cut, Offsets, RecordingOffset
from tests.archive.disk.streams import described

POSITIONS = st.integers(0, (1 << 62) // 32).map(lambda each: each * 32)
RECORDINGS = st.dictionaries(
    st.integers(0, (1 << 62)),
    st.builds(
        RecordingOffset,
        POSITIONS,
        POSITIONS,
        st.integers(0, 1 << 60),
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.booleans(),
        st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    max_size=8,
)
CUTS = st.none() | st.builds(Cut, st.integers(1, 1 << 40), st.none() | st.integers(1, 4_096))
GONE = st.none() | st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 60))


def text(offsets: Offsets) -> str:
    return json.dumps(offsets.to_json())


@given(RECORDINGS, st.randoms())
def test_the_same_offsets_are_the_same_text_in_whatever_order_they_were_found(
    recordings: dict[int, RecordingOffset], draw: Any
) -> None:
    shuffled = list(recordings.items())
    draw.shuffle(shuffled)
    assert text(Offsets(recordings)) == text(Offsets(dict(shuffled)))


@given(RECORDINGS, CUTS, GONE)
def test_what_was_written_is_read_and_written_the_same(
    recordings: dict[int, RecordingOffset], cut: Cut | None, gone: tuple[int, int] | None
) -> None:
    offsets = Offsets(recordings, cut, gone)
    again = Offsets.from_json(json.loads(text(offsets)))
    assert again == offsets
    assert text(again) == text(offsets)


@given(RECORDINGS, RECORDINGS)
def test_other_offsets_are_another_text(
    some: dict[int, RecordingOffset], others: dict[int, RecordingOffset]
) -> None:
    assert (text(Offsets(some)) == text(Offsets(others))) == (some == others)


def test_recordings_stand_in_the_order_of_their_numbers_not_of_their_digits() -> None:
    begun = RecordingOffset.begun(described(), 0)
    assert list(Offsets({10: begun, 9: begun}).to_json()["recs"]) == ["9", "10"]


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_offsets_of_another_version_are_refused(version: object) -> None:
    with pytest.raises(ConfigurationError, match=f"of version {version!r}.*checkpointLocation"):
        Offsets.from_json({"v": version, "recs": {}})


@pytest.mark.parametrize(
    "recs",
    [
        None,
        [],
        {"three": {"pos": 0, "from": 0, "began": 0, "term": 0}},
        {"3": 4096},
        {"3": {"pos": 0, "from": 0, "began": 0}},
        {"3": {"pos": 0.5, "from": 0, "began": 0, "term": 0}},
        {"3": {"pos": True, "from": 0, "began": 0, "term": 0}},
        {"3": {"pos": 1 << 63, "from": 0, "began": 0, "term": 0}},
    ],
)
def test_what_is_no_offset_is_refused(recs: object) -> None:
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        Offsets.from_json({"v": 1, "recs": recs})


@pytest.mark.parametrize("cut", [None, 5, [], [0], ["5"], [True], [5, 0], [5, None]])
def test_what_is_no_cut_is_refused(cut: object) -> None:
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        Offsets.from_json({"v": 1, "recs": {}, "cut": cut})


@pytest.mark.parametrize("gone", [None, 5, [], [0], [1, "2"], [-1, 0], [1, 2, 3]])
def test_what_is_not_gone_is_refused(gone: object) -> None:
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        Offsets.from_json({"v": 1, "recs": {}, "gone": gone})


@given(RECORDINGS, st.sets(st.integers(0, 9)), GONE)
def test_only_what_was_read_to_its_end_and_is_removed_is_left_out(
    recordings: dict[int, RecordingOffset], present: set[int], gone: tuple[int, int] | None
) -> None:
    offsets = Offsets(recordings, None, gone)
    found = offsets.without_gone(present)
    left_out = recordings.keys() - found.recordings.keys()
    assert left_out == {
        key for key, each in recordings.items() if each.is_done and key not in present
    }
    assert found.without_gone(present) == found
    assert (found.gone or (-1, 0))[0] == max([*left_out, (gone or (-1, 0))[0]])


def test_another_recording_with_the_same_id_is_told_by_its_start_and_first_term() -> None:
    begun = RecordingOffset.begun(described(), 64)
    assert begun.is_of(described(session_id=3, start_position=128, stop_position=256))
    assert not begun.is_of(described(start_timestamp_ms=2))
    assert not begun.is_of(described(initial_term_id=8))
