"""Recordings that were read to their ends and removed: offsets do not grow with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk import changes
from aeron_async.errors import DataLossError
from tests.spark.growing import GrowingArchive
from tests.spark.queries import Query

if TYPE_CHECKING:
    from pathlib import Path


def begun_ms(recording_id: int) -> int:
    return 1_000 + 10 * recording_id


def read_and_removed(archive: GrowingArchive, query: Query, count: int) -> None:
    """Let recordings come, be read and go, one after the other."""
    for recording_id in range(count):
        recording = archive.record(start_timestamp_ms=begun_ms(recording_id))
        recording.write(2)
        recording.stop()
        assert query.batch() == 2
        changes.purge_recording(archive.directory, archive.catalog, recording_id)
        query.restart()


def test_they_are_left_out_with_the_next_batch_and_not_before(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    query = Query(archive.path)
    read_and_removed(archive, query, 5)
    assert query.batch() == -1
    assert list(query.at.recordings) == [4]
    assert query.at.met.bounds == (0, 5)
    reported = query.follower.reported()
    assert reported is not None
    assert not reported.recordings
    archive.record(start_timestamp_ms=begun_ms(5)).write(3)
    assert query.batch() == 3
    assert list(query.at.recordings) == [5]
    assert query.at.met.bounds == (0, 6)
    assert query.at.newest_ms == begun_ms(5)
    assert query.numbers == {**{each: [0, 1] for each in range(5)}, 5: [0, 1, 2]}


def test_one_that_was_empty_all_the_time_is_read_still(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    query = Query(archive.path)
    late = archive.record(start_timestamp_ms=begun_ms(0))
    for recording_id in (1, 2):
        recording = archive.record(start_timestamp_ms=begun_ms(recording_id))
        recording.write(2)
        recording.stop()
        assert query.batch() == 2
        changes.purge_recording(archive.directory, archive.catalog, recording_id)
    late.write(4)
    assert query.batch() == 4


def test_an_archive_that_was_made_anew_is_refused_though_nothing_of_it_is_known(
    tmp_path: Path,
) -> None:
    archive = GrowingArchive(tmp_path)
    query = Query(archive.path)
    read_and_removed(archive, query, 3)
    for file in tmp_path.iterdir():
        file.unlink()
    GrowingArchive(tmp_path).record(start_timestamp_ms=begun_ms(9)).write(1)
    query.restart()
    with pytest.raises(DataLossError, match=r"created again, so change checkpointLocation"):
        query.batch()
