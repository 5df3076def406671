"""What cannot be read any more: every way to lose it, when a batch is planned and when it is read.

With `failOnDataLoss=true` each is an error that says what was lost; with false the query goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk import changes
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.segments import segment_name
from aeron_async.errors import DataLossError
from aeron_async.spark.admission import Limit
from tests.archive.disk.streams import TERM
from tests.logs import captured_logs
from tests.spark.growing import NUMBER, GrowingArchive, GrowingRecording
from tests.spark.queries import ALL, Query

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.offsets import Offsets
    from aeron_async.spark.ranges import RecordingRange

SEGMENT = 2 * TERM
COUNT = 900
BOTH = pytest.mark.parametrize("fails", [True, False], ids=["fails", "goes-on"])


@pytest.fixture
def archive(tmp_path: Path) -> GrowingArchive:
    return GrowingArchive(tmp_path)


def query(archive: GrowingArchive, *, fails: bool, **options: str) -> Query:
    return Query(archive.path, failOnDataLoss=str(fails).lower(), **options)


def filled(archive: GrowingArchive, count: int = COUNT) -> GrowingRecording:
    """Return a recording of some segments that is no longer written to."""
    recording = archive.record()
    recording.write(count, size=500)
    assert recording.position > 3 * SEGMENT
    return recording


def numbers(rows: list[tuple[int, bytes]]) -> list[int]:
    return [NUMBER.unpack_from(payload)[0] for _, payload in rows]


def from_position(recording: GrowingRecording, position: int) -> list[int]:
    """Return the numbers of the messages that begin at or behind a position."""
    return [number for number, start in enumerate(recording.starts) if start >= position]


def planned(each: Query) -> tuple[Offsets, list[RecordingRange]]:
    end = each.follower.latest(each.at, ALL)
    return end, each.follower.ranges(each.at, end)


# Purged below the checkpoint.


@BOTH
def test_purged_before_the_batch_is_decided(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    if fails:
        with pytest.raises(
            DataLossError, match=f"recording 0, position 0: purged.*{SEGMENT} bytes"
        ):
            each.batch()
        return
    each.batch()
    assert each.numbers[0] == from_position(recording, SEGMENT)


@BOTH
def test_purged_before_the_batch_is_planned_again(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    end = each.follower.latest(each.at, ALL)
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    start = each.at
    each.restart()
    if fails:
        with pytest.raises(DataLossError, match="purged"):
            each.follower.ranges(start, end)
        return
    rows = each.rows(start, end)
    assert numbers(rows) == from_position(recording, SEGMENT)


@BOTH
def test_purged_between_planning_and_reading(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    _, parts = planned(each)
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    if fails:
        with pytest.raises(DataLossError, match="its file is not there"):
            each.read(parts)
        return
    assert numbers(each.read(parts)) == from_position(recording, SEGMENT)


@BOTH
def test_a_new_recording_that_is_purged_is_lost_from_where_it_began(
    archive: GrowingArchive, *, fails: bool
) -> None:
    each = query(archive, fails=fails)
    recording = filled(archive)
    recording.stop()
    end = each.follower.latest(each.at, ALL)
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    if fails:
        with pytest.raises(DataLossError, match="position 0: purged"):
            each.follower.ranges(each.at, end)
        return
    assert numbers(each.rows(each.at, end)) == from_position(recording, SEGMENT)


def test_a_batch_all_of_which_was_purged_is_empty(archive: GrowingArchive) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=False)
    end = each.follower.latest(each.at, Limit(max_rows=3))
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    assert each.follower.ranges(each.at, end) == []


# Truncated, or what a host had not yet written when it lost its power.


@BOTH
def test_truncated_below_the_checkpoint(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    assert each.batch() == COUNT
    changes.truncate(archive.directory, archive.catalog, 0, SEGMENT)
    if fails:
        with pytest.raises(DataLossError, match=f"rolled back: it now ends at {SEGMENT}"):
            each.batch()
        return
    assert [each.batch(), each.batch()] == [0, -1]
    assert each.at.recordings[0].position == SEGMENT


@BOTH
def test_truncated_before_the_batch_is_planned_again(
    archive: GrowingArchive, *, fails: bool
) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    end = each.follower.latest(each.at, ALL)
    changes.truncate(archive.directory, archive.catalog, 0, SEGMENT)
    if fails:
        with pytest.raises(DataLossError, match="rolled back"):
            each.follower.ranges(each.at, end)
        return
    assert numbers(each.rows(each.at, end)) == [
        number for number, last in enumerate(recording.ends) if last <= SEGMENT
    ]


@BOTH
def test_truncated_between_planning_and_reading(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    _, parts = planned(each)
    cut = recording.ends[20]
    changes.truncate(archive.directory, archive.catalog, 0, cut)
    if fails:
        with pytest.raises(DataLossError, match=f"position {cut}: a frame of 0 bytes"):
            each.read(parts)
        return
    assert numbers(each.read(parts)) == list(range(21))


@BOTH
def test_a_growing_recording_that_lost_what_was_read(
    archive: GrowingArchive, *, fails: bool
) -> None:
    recording = filled(archive)
    each = query(archive, fails=fails)
    assert each.batch() == COUNT
    cut = recording.ends[-10]
    zero(archive, cut, recording.position)
    each.restart()
    if fails:
        with pytest.raises(DataLossError, match=f"rolled back: it now ends at {cut}"):
            each.batch()
        return
    assert [each.batch(), each.batch()] == [0, -1]
    assert each.at.recordings[0].position == cut


def test_an_end_that_is_held_back_is_no_roll_back(archive: GrowingArchive) -> None:
    recording = filled(archive)
    each = query(archive, fails=True)
    assert each.batch() == COUNT
    each.options = query(archive, fails=True, safetyLagBytes="64k").options
    each.restart()
    assert [each.batch(), each.batch()] == [-1, -1]
    assert each.at.recordings[0].position == recording.position


# Removed.


@BOTH
def test_removed_before_it_was_read_to_its_end(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    archive.record(stream_id=11).write(3)
    recording.stop()
    each = query(archive, fails=fails)
    changes.purge_recording(archive.directory, archive.catalog, 0)
    if fails:
        with pytest.raises(DataLossError, match=r"removed: .* not read to its end"):
            each.batch()
        return
    assert [each.batch(), each.batch()] == [3, -1]
    assert set(each.numbers) == {1}


@BOTH
def test_removed_after_it_was_read_to_its_end(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=fails)
    assert each.batch() == COUNT
    changes.purge_recording(archive.directory, archive.catalog, 0)
    each.restart()
    assert each.batch() == -1


@BOTH
def test_removed_before_the_batch_is_planned_again(archive: GrowingArchive, *, fails: bool) -> None:
    filled(archive).stop()
    each = query(archive, fails=fails)
    end = each.follower.latest(each.at, ALL)
    changes.purge_recording(archive.directory, archive.catalog, 0)
    if fails:
        with pytest.raises(DataLossError, match="removed"):
            each.follower.ranges(each.at, end)
        return
    assert each.follower.ranges(each.at, end) == []


@BOTH
def test_removed_between_planning_and_reading(archive: GrowingArchive, *, fails: bool) -> None:
    filled(archive).stop()
    each = query(archive, fails=fails)
    _, parts = planned(each)
    changes.purge_recording(archive.directory, archive.catalog, 0)
    if fails:
        with pytest.raises(DataLossError, match="its file is not there"):
            each.read(parts)
        return
    assert each.read(parts) == []


# Another archive in the same place.


@BOTH
def test_an_archive_that_was_made_anew_is_refused_in_any_case(
    archive: GrowingArchive, *, fails: bool
) -> None:
    archive.record().write(10)
    each = query(archive, fails=fails)
    start, end = each.at, each.follower.latest(each.at, ALL)
    for file in archive.path.iterdir():
        file.unlink()
    GrowingArchive(archive.path).record(start_timestamp_ms=77).write(500)
    each.restart()
    with pytest.raises(DataLossError, match=r"another recording has this id.*checkpointLocation"):
        each.batch()
    with pytest.raises(DataLossError, match="another recording has this id"):
        each.follower.ranges(start, end)


# A file is missing, or damaged.


@BOTH
def test_a_file_that_is_missing_when_the_batch_is_planned(
    archive: GrowingArchive, *, fails: bool
) -> None:
    recording = filled(archive)
    each = query(archive, fails=fails)
    (archive.path / segment_name(0, SEGMENT)).unlink()
    if fails:
        with pytest.raises(DataLossError, match=f"position {SEGMENT}: its file 0-{SEGMENT}.rec"):
            each.batch()
        return
    each.batch()
    assert each.numbers[0] == [
        number
        for number, last in enumerate(recording.ends)
        if last <= SEGMENT or last > 2 * SEGMENT
    ]


@BOTH
def test_a_file_that_is_missing_when_it_is_read(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    each = query(archive, fails=fails)
    _, parts = planned(each)
    (archive.path / segment_name(0, SEGMENT)).unlink()
    if fails:
        with pytest.raises(DataLossError, match="its file is not there"):
            each.read(parts)
        return
    assert len(each.read(parts)) < len(recording.ends)


@BOTH
def test_a_chain_that_is_broken_is_read_up_to_there_and_from_the_next_term(
    archive: GrowingArchive, *, fails: bool
) -> None:
    recording = filled(archive)
    each = query(archive, fails=fails)
    _, parts = planned(each)
    at = recording.ends[40]
    overwrite(archive, at, b"\x11" * 32)
    if fails:
        with pytest.raises(DataLossError, match=f"position {at}:"):
            each.read(parts)
        return
    assert numbers(each.read(parts)) == [*range(41), *from_position(recording, TERM)]


@BOTH
def test_a_checksum_that_is_wrong_is_read_up_to_there_and_from_the_next_term(
    archive: GrowingArchive, *, fails: bool
) -> None:
    recording = archive.record(checksum_named("crc32"))
    recording.write(COUNT, size=500)
    each = query(archive, fails=fails, verifyChecksum="crc32")
    _, parts = planned(each)
    at = recording.ends[40]
    overwrite(archive, at + 32 + 100, b"\xee")
    if fails:
        with pytest.raises(DataLossError, match=f"position {at}: a frame whose checksum"):
            each.read(parts)
        return
    assert numbers(each.read(parts)) == [*range(41), *from_position(recording, TERM)]


@BOTH
def test_zeros_before_the_end_that_was_safe(archive: GrowingArchive, *, fails: bool) -> None:
    recording = filled(archive)
    recording.stop()
    at = recording.ends[40]
    zero(archive, at, TERM)
    each = query(archive, fails=fails)
    _, parts = planned(each)
    if fails:
        with pytest.raises(DataLossError, match=f"position {at}: a frame of 0 bytes"):
            each.read(parts)
        return
    assert numbers(each.read(parts)) == [*range(41), *from_position(recording, TERM)]


def test_a_loss_is_told_once_and_added_up(archive: GrowingArchive) -> None:
    recording = filled(archive)
    recording.stop()
    each = query(archive, fails=False)
    changes.purge_segments(archive.directory, archive.catalog, 0, SEGMENT)
    with captured_logs() as lines:
        for _ in range(5):
            each.follower.latest(each.at, ALL)
    assert [(line["event"], line["lost_bytes"]) for line in lines] == [("data_lost", SEGMENT)]
    assert each.follower.lost_bytes == SEGMENT


def overwrite(archive: GrowingArchive, position: int, data: bytes) -> None:
    file = archive.directory.open(segment_name(0, position // SEGMENT * SEGMENT))
    file.write([data], position % SEGMENT)
    file.close()


def zero(archive: GrowingArchive, start: int, end: int) -> None:
    while start < end:
        count = min(end, start // SEGMENT * SEGMENT + SEGMENT) - start
        overwrite(archive, start, bytes(count))
        start += count
