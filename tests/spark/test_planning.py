"""What a query reads: which recordings, from where to where, and in which parts."""

from __future__ import annotations

import json
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.errors import (
    ConfigurationError,
    DataLossError,
    InvalidPositionError,
    UnknownRecordingError,
)
from aeron_async.spark.lake.conditions import Condition
from aeron_async.spark.planning import partitions_of, plan_batch, pruned
from aeron_async.spark.ranges import RecordingRange
from tests.archive.golden import golden_path
from tests.spark.recordings import TERM, RecordingMaker, options_for, scanned

if TYPE_CHECKING:
    from pathlib import Path

SEVERAL = "A3-several-recordings"


def ids(path: Path, **given: str) -> list[int]:
    return [part.descriptor.recording_id for part in plan_batch(options_for(path, **given))]


def filled(path: Path, count: int = 200, **settings: Any) -> RecordingMaker:
    maker = RecordingMaker(path, **settings)
    for number in range(count):
        maker.message(bytes(900), reserved=number * 1_000_000)
    maker.stop()
    return maker


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, [0, 1, 2, 4, 5, 6, 7]),
        ({"recordingIds": "4, 0, 4"}, [0, 4]),
        ({"streamId": "2306"}, [5, 6]),
        ({"channel": "aeron:ipc"}, [1, 4]),
        ({"channel": "aeron:udp?endpoint=127.0.0.1:24221|term-length=64k"}, [0]),
        ({"streamId": "2301", "channel": "aeron:udp?endpoint=127.0.0.1:24221"}, [0]),
        ({"channelPattern": "aeron:udp.*", "streamIds": "2301,2305,2306"}, [0, 5, 6]),
        ({"channelPattern": ".*2422[123]"}, [0, 2]),
    ],
)
def test_recordings_are_selected(given: dict[str, str], wanted: list[int]) -> None:
    assert ids(golden_path(SEVERAL), **given) == wanted


@pytest.mark.parametrize("given", [{"streamId": "1"}, {"channelPattern": "aeron"}])
def test_a_selection_of_nothing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="no recording in"):
        ids(golden_path(SEVERAL), **given)


def test_a_recording_that_was_purged_is_named() -> None:
    with pytest.raises(UnknownRecordingError, match=r"has the id 3 in .* 0, 1, 2, 4"):
        ids(golden_path(SEVERAL), recordingIds="3")


def test_an_archive_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no directory on this host"):
        ids(tmp_path / "gone")
    with pytest.raises(ConfigurationError, match=r"has no archive\.catalog"):
        ids(tmp_path)


def test_an_archive_without_recordings_has_nothing_to_read(tmp_path: Path) -> None:
    Catalog.open(OsDirectory(tmp_path)).close()
    assert ids(tmp_path) == []


def bounds(path: Path, **given: str) -> tuple[int, int]:
    (part,) = plan_batch(options_for(path, **given))
    return part.start, part.end


def test_positions_bound_what_is_read(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    first, last = maker.positions[30], maker.positions[150]
    given = {
        "startingPositions": json.dumps({"0": first}),
        "endingPositions": json.dumps({"0": last}),
    }
    assert bounds(tmp_path, **given) == (first, last)
    found, _ = scanned(options_for(tmp_path, **given))
    assert found["position"] == maker.positions[30:150]
    assert ids(tmp_path, startingPositions="latest") == []
    assert bounds(tmp_path, startingPositions='{"7": 64}') == (0, maker.position)


def test_an_end_before_the_start_is_nothing(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    given = {"startingPositions": json.dumps({"0": maker.positions[9]})}
    assert ids(tmp_path, **given, endingPositions='{"0": 0}') == []


def test_a_position_in_a_frame_is_refused(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    given = {"startingPositions": json.dumps({"0": maker.positions[9] + 32})}
    with pytest.raises(InvalidPositionError, match=f"one begins at {maker.positions[9]}"):
        ids(tmp_path, **given)


@pytest.mark.parametrize("which", ["startingPositions", "endingPositions"])
def test_a_position_that_is_gone_is_data_loss(tmp_path: Path, which: str) -> None:
    maker = filled(tmp_path, start=2 * TERM)
    for given, nearest in ((64, 2 * TERM), (1 << 40, maker.position)):
        option = {which: json.dumps({"0": given})}
        with pytest.raises(DataLossError, match="it holds 131072 to") as caught:
            ids(tmp_path, **option)
        assert caught.value.position == given
        lenient = plan_batch(options_for(tmp_path, **option, failOnDataLoss="false"))
        if lenient:
            assert nearest in (lenient[0].start, lenient[0].end)


def test_times_bound_what_is_read(tmp_path: Path) -> None:
    maker = filled(tmp_path, 500)
    given = {"timestampFrom": "reserved"}
    for start, end in ((0, 1), (70, 71), (71, 140), (142, 400), (499, 500), (0, 9_999)):
        found = bounds(tmp_path, **given, startingTimestamp=str(start), endingTimestamp=str(end))
        last = maker.positions[end] if end < 500 else maker.position
        assert found == (maker.positions[start], last)
    by_recording = {"startingOffsetsByTimestamp": '{"0": 123}', **given}
    assert bounds(tmp_path, **by_recording)[0] == maker.positions[123]
    other = {"startingOffsetsByTimestamp": '{"5": 123}', **given}
    assert bounds(tmp_path, **other)[0] == 0


def test_a_time_that_no_message_has_is_refused_or_the_end(tmp_path: Path) -> None:
    filled(tmp_path)
    given = {"timestampFrom": "reserved", "startingTimestamp": "99999"}
    with pytest.raises(ConfigurationError, match="has no message from"):
        ids(tmp_path, **given)
    assert ids(tmp_path, **given, startingOffsetsByTimestampStrategy="latest") == []


def test_times_are_found_among_messages_that_do_not_say_any(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    for number in range(300):
        maker.message(number.to_bytes(8, "little") + bytes(900) if number % 3 == 0 else b"")
    for _ in range(200):
        maker.message(bytes(4))
    maker.stop()
    given = {"timestampFrom": "payload:0:int64:ms", "startingTimestamp": "100"}
    assert bounds(tmp_path, **given)[0] == maker.positions[102]


def ranges(tmp_path: Path, lengths: list[int], term_length: int = TERM) -> list[RecordingRange]:
    found = []
    for length in lengths:
        maker = RecordingMaker(tmp_path, term_length=term_length)
        maker.close()
        found.append(RecordingRange(maker.descriptor, 96, 96 + length))
    return found


def test_partitions_are_cut_at_terms(tmp_path: Path) -> None:
    parts = ranges(tmp_path, [10 * TERM])
    groups = partitions_of(parts, max_bytes=3 * TERM, min_partitions=None)
    pieces = [piece for group in groups for piece in group]
    assert pieces[0].start == 96
    assert pieces[-1].end == 96 + 10 * TERM
    for before, after in pairwise(pieces):
        assert before.end == after.start
        assert before.end % TERM == 0
    assert len(groups) == len(pieces) == 4
    assert max(piece.length for piece in pieces) <= 3 * TERM


def test_short_recordings_share_a_partition(tmp_path: Path) -> None:
    parts = ranges(tmp_path, [TERM // 4] * 10)
    groups = partitions_of(parts, max_bytes=TERM, min_partitions=None)
    assert [len(group) for group in groups] == [4, 4, 2]
    assert [piece for group in groups for piece in group] == parts


def test_there_are_at_least_so_many_partitions_where_terms_let_it(tmp_path: Path) -> None:
    (part,) = ranges(tmp_path, [8 * TERM])
    for wanted in range(1, 9):
        assert len(partitions_of([part], max_bytes=1 << 30, min_partitions=wanted)) >= wanted
    assert len(partitions_of([part], max_bytes=1 << 30, min_partitions=1)) == 1
    (small,) = ranges(tmp_path, [TERM // 2])
    assert len(partitions_of([small], max_bytes=1 << 30, min_partitions=8)) == 1


def test_nothing_makes_no_partition() -> None:
    assert partitions_of([], max_bytes=1, min_partitions=3) == []


def test_ten_gigabytes_are_planned_in_less_than_a_second(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path, term_length=16 << 20, segment_length=128 << 20)
    maker.message(b"the only one")
    maker.close()
    catalog = Catalog.open(maker.directory, capacity=4_096)
    catalog.update(0, stop_position=10 << 30, stop_timestamp_ms=2)
    catalog.close()
    for base in range(128 << 20, 10 << 30, 128 << 20):
        (tmp_path / f"0-{base}.rec").touch()
    before = perf_counter()
    options = options_for(tmp_path)
    groups = partitions_of(plan_batch(options), max_bytes=256 << 20, min_partitions=None)
    assert perf_counter() - before < 1
    assert len(groups) == 40


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ([], [(0, 10)]),
        ([("position", ">=", 3 * TERM + 5)], [(3, 10)]),
        ([("position", ">", -7)], [(0, 10)]),
        ([("position", "<", 3 * TERM + 5)], [(0, 4)]),
        ([("position", "<=", 10**12)], [(0, 10)]),
        ([("position", "=", 3 * TERM + 64)], [(3, 4)]),
        ([("position", "=", 10**12)], []),
        ([("position", "=", 3 * TERM, 5 * TERM, None)], [(3, 6)]),
        ([("position", "=", None)], []),
        ([("position", ">=", 2 * TERM), ("position", "<", 2 * TERM)], [(2, 3)]),
        ([("position", "<", -1)], []),
        ([("recording_id", "=", 0)], [(0, 10)]),
        ([("recording_id", ">", 0)], []),
        ([("stream_id", "=", 1001, 7)], [(0, 10)]),
        ([("stream_id", "<=", 1000)], []),
        ([("channel", "=", "aeron:ipc")], [(0, 10)]),
        ([("channel", ">=", "b")], []),
        ([("recording_id", "<", 1)], [(0, 10)]),
        ([("length", "=", 7)], [(0, 10)]),
    ],
)
def test_filters_leave_out_whole_terms(
    tmp_path: Path, conditions: list[tuple[Any, ...]], wanted: list[tuple[int, int]]
) -> None:
    (part,) = ranges(tmp_path, [1])
    part = attrs.evolve(part, start=0, end=10 * TERM)
    given = [Condition(column, how, tuple(values)) for column, how, *values in conditions]
    found = pruned([part], given)
    assert [(each.start // TERM, each.end // TERM) for each in found] == wanted
