"""What the next micro-batch reads, and that it does so once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk import changes
from aeron_async.errors import ConfigurationError, DataLossError, UnknownRecordingError
from aeron_async.spark.admission import Limit
from aeron_async.spark.options import ArchiveOptions
from tests.archive.disk.streams import TERM
from tests.spark.growing import NUMBER, GrowingArchive
from tests.spark.queries import ALL, MS, Query

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def archive(tmp_path: Path) -> GrowingArchive:
    return GrowingArchive(tmp_path)


def test_what_is_recorded_is_read_once_and_an_idle_query_reads_nothing(
    archive: GrowingArchive,
) -> None:
    recording = archive.record()
    query = Query(archive.path)
    assert query.batch() == -1
    recording.write(300)
    assert query.batch() == 300
    assert query.batch() == -1
    recording.write(1)
    assert query.batch() == 1
    assert query.numbers == {0: list(range(301))}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_query_begins_where_another_one_has_read_before_that_may_be_read_again(
    archive: GrowingArchive, *, is_stopped: bool
) -> None:
    """An archive that has begun to write again is kept a distance from, and was not before."""
    recording = archive.record()
    recording.write(300)
    end = recording.position
    if is_stopped:
        recording.stop()
    given = {"startingPositions": json.dumps({"0": end}), "safetyLagBytes": "65536"}
    query = Query(archive.path, **given)
    assert query.batch() == -1
    if not is_stopped:
        recording.write(2_000, 100)
        assert query.batch() > 0
        assert query.numbers[0][0] == 300
        past = {"startingPositions": json.dumps({"0": recording.position + 32})}
        with pytest.raises(DataLossError, match="it holds 0 to"):
            Query(archive.path, **past)


@pytest.mark.parametrize(
    "limit",
    [Limit(max_bytes=1), Limit(max_bytes=10_000), Limit(max_bytes=3 * TERM), Limit(max_rows=7)],
)
def test_limited_batches_are_the_same_rows_whatever_the_limit(
    archive: GrowingArchive, limit: Limit
) -> None:
    some, other = archive.record(), archive.record(start_position=32 * 100, stream_id=11)
    some.write(200)
    other.write(90)
    query = Query(archive.path)
    while query.batch(limit) >= 0:
        query.restart()
    assert query.numbers == {0: list(range(200)), 1: list(range(90))}


def test_rows_are_no_more_than_the_limit(archive: GrowingArchive) -> None:
    archive.record().write(100)
    query = Query(archive.path)
    assert [query.batch(Limit(max_rows=30)) for _ in range(5)] == [30, 30, 30, 10, -1]


def test_a_message_whose_end_is_not_there_yet_is_read_when_it_is(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    long = NUMBER.pack(3) * 600
    recording.write_first_half(long)
    query = Query(archive.path)
    assert query.batch() == 3
    assert query.batch() == -1
    recording.write_second_half(long)
    assert query.batch() == 1
    assert query.numbers == {0: [0, 1, 2, 3]}


def test_a_batch_is_the_same_when_it_is_planned_again_after_a_restart(
    archive: GrowingArchive,
) -> None:
    recording = archive.record()
    recording.write(100)
    query = Query(archive.path)
    start, end = query.at, query.follower.latest(query.at, Limit(max_bytes=20_000))
    before = query.rows(start, end)
    recording.write(100)
    archive.record().write(5)
    query.restart()
    assert query.rows(start, end) == before
    recording.stop()
    query.restart()
    assert query.rows(start, end) == before


def test_a_new_recording_joins_at_its_start(archive: GrowingArchive) -> None:
    archive.record().write(10)
    query = Query(archive.path, startingPositions="latest")
    assert query.batch() == -1
    new = archive.record(start_position=320, stream_id=12)
    assert query.batch() == -1
    new.write(4)
    end = query.follower.latest(query.at, ALL)
    assert end.recordings[1].first == 320
    query.restart()
    assert query.batch() == 4
    assert query.numbers == {1: [0, 1, 2, 3]}


def test_a_recording_that_ended_stays_and_says_that_it_is_done(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(5)
    query = Query(archive.path)
    assert query.batch() == 5
    recording.stop()
    # That it is done is told once, in a batch without rows.
    assert [query.batch(), query.batch()] == [0, -1]
    assert query.at.recordings[0].is_done
    changes.purge_recording(archive.directory, archive.catalog, 0)
    query.restart()
    assert query.batch() == -1


def test_a_recording_that_is_extended_is_read_on(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(5)
    recording.stop()
    query = Query(archive.path)
    assert query.batch() == 5
    position = archive.catalog.get(0).stop_position
    archive.catalog.update(0, stop_position=-1, stop_timestamp_ms=-1)
    assert query.at.recordings[0].position == position
    assert query.batch() in {0, -1}


def test_only_selected_recordings_are_read(archive: GrowingArchive) -> None:
    archive.record().write(3)
    archive.record(stream_id=77).write(4)
    query = Query(archive.path, streamId="77")
    assert query.batch() == 4
    archive.record(stream_id=77).write(2)
    assert query.batch() == 2
    assert set(query.numbers) == {1, 2}


def test_a_recording_that_is_selected_no_more_stays_in_the_offsets(archive: GrowingArchive) -> None:
    archive.record().write(3)
    archive.record(stream_id=77).write(4)
    query = Query(archive.path)
    assert query.batch() == 7
    query.options = ArchiveOptions.parse({"path": str(archive.path), "streamId": "77"})
    query.restart()
    assert query.batch() == -1
    assert set(query.at.recordings) == {0, 1}


def test_a_recording_that_is_named_and_is_not_there_is_refused(archive: GrowingArchive) -> None:
    with pytest.raises(UnknownRecordingError, match="change recordingIds"):
        Query(archive.path, recordingIds="3")


def test_positions_to_start_from_are_taken(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(10)
    query = Query(archive.path, startingPositions=f'{{"0": {recording.ends[3]}}}')
    assert query.batch() == 6
    assert query.numbers == {0: [4, 5, 6, 7, 8, 9]}


def test_a_frozen_query_reads_what_there_was_and_ends(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(50)
    query = Query(archive.path)
    query.follower.freeze()
    limit = Limit(max_rows=20)
    assert query.batch(limit) == 20
    recording.write(50)
    archive.record(stream_id=13).write(9)
    assert [query.batch(limit) for _ in range(3)] == [20, 10, -1]
    assert query.numbers == {0: list(range(50))}


def test_a_frozen_query_that_is_restarted_reads_what_there_is_then(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(5)
    query = Query(archive.path)
    query.follower.freeze()
    assert query.batch() == 5
    recording.write(5)
    archive.record(stream_id=13).write(9)
    query.restart()
    query.follower.freeze()
    assert [query.batch(), query.batch()] == [14, -1]


def test_less_than_the_minimum_waits_for_the_delay(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(10)
    query = Query(archive.path, minBytesPerTrigger="1m", maxTriggerDelay="10s")
    assert query.batch() == -1
    query.clock.ns = 9_999 * MS
    assert query.batch() == -1
    query.clock.ns = 10_000 * MS
    assert query.batch() == 10


@pytest.mark.parametrize("how", ["everything at once", "frozen"])
def test_a_minimum_is_not_waited_for_by_who_wants_all_there_is(
    archive: GrowingArchive, how: str
) -> None:
    archive.record().write(10)
    query = Query(archive.path, minBytesPerTrigger="1m")
    if how == "frozen":
        query.follower.freeze()
    assert query.batch(ALL if how == "frozen" else None) == 10


def test_what_there_is_to_read_is_reported_without_a_look(archive: GrowingArchive) -> None:
    recording = archive.record()
    query = Query(archive.path)
    assert query.follower.reported() is None
    recording.write(10)
    query.batch(Limit(max_rows=1))
    reported = query.follower.reported()
    assert reported is not None
    assert reported.recordings[0].position == recording.position


def test_an_idle_query_that_has_read_all_finds_no_end_again(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(100)
    query = Query(archive.path)
    query.batch()
    cache: Any = query.follower._end_cache
    before = cache.search_count
    for _ in range(300):
        query.clock.ns += 20 * MS
        assert query.batch() == -1
    assert cache.search_count == before


def test_what_is_held_back_is_asked_for_less_and_less_often(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(100)
    query = Query(archive.path, safetyLagBytes="4k")
    query.batch()
    cache: Any = query.follower._end_cache
    before = cache.search_count
    for _ in range(1_000):
        query.clock.ns += 10 * MS
        assert query.batch() == -1
    # After 10 ms, 20 ms and so on up to 2 s: 10 s are over after a dozen.
    assert cache.search_count - before == 11
    recording.write(100)
    assert query.batch() > 0


def test_growth_into_the_next_file_is_seen_at_once(archive: GrowingArchive) -> None:
    recording = archive.record()
    query = Query(archive.path)
    for number in range(400):
        recording.write(1, size=1_376)
        assert query.batch() == 1, number
    assert recording.position > 4 * TERM


def test_a_file_that_is_full_ends_where_the_next_one_is_not_there_yet(
    archive: GrowingArchive,
) -> None:
    recording = archive.record()
    recording.write(1)
    for _ in range(2):
        recording.pad_unless(TERM + 1)
    assert recording.position == 2 * TERM
    # The archive makes the next file at once; another may not.
    (archive.path / f"0-{2 * TERM}.rec").unlink()
    query = Query(archive.path)
    assert [query.batch(), query.batch()] == [1, -1]
    assert query.at.recordings[0].position == 2 * TERM


def test_a_directory_without_a_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="change path"):
        Query(tmp_path)
