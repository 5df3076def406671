"""Recordings that stop in the middle of a message, are cut, and are extended by another session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.archive.disk import changes
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.errors import DataLossError
from aeron_async.spark.boundaries import session_start, whole_end
from tests.archive.disk.streams import TERM, frame
from tests.spark.growing import NUMBER, GrowingArchive, GrowingRecording
from tests.spark.queries import Query

if TYPE_CHECKING:
    from pathlib import Path

LONG = NUMBER.pack(3) * 600


@pytest.fixture
def archive(tmp_path: Path) -> GrowingArchive:
    return GrowingArchive(tmp_path)


def cut_and_extend(
    archive: GrowingArchive, recording: GrowingRecording, position: int, *numbers: int
) -> None:
    """Do what the next attempt of a sink does."""
    changes.truncate(archive.directory, archive.catalog, recording.recording_id, position)
    extended = archive.catalog.update(
        recording.recording_id, stop_position=-1, stop_timestamp_ms=-1, session_id=77
    )
    writer = RecordingWriter(archive.directory, extended, position=position, checksum=None)
    for number in numbers:
        block = frame(extended, writer.position, NUMBER.pack(number), flags=0xC0)
        writer.write([(memoryview(block), 0)])
    writer.close()


def test_what_follows_a_message_that_was_cut_off_is_read(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    recording.write_first_half(LONG)
    recording.stop()
    query = Query(archive.path)
    assert [query.batch(), query.batch()] == [3, -1]
    assert query.at.recordings[0].position == recording.ends[2]
    assert query.at.recordings[0].is_done
    cut_and_extend(archive, recording, recording.ends[2], 3, 4)
    assert query.batch() == 2
    assert query.numbers == {0: [0, 1, 2, 3, 4]}


def test_what_follows_a_message_that_was_left_there_is_read(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    recording.write_first_half(LONG)
    recording.stop()
    query = Query(archive.path)
    assert query.batch() == 3
    cut_and_extend(archive, recording, recording.position, 3, 4)
    query.restart()
    assert query.batch() == 2
    assert query.numbers == {0: [0, 1, 2, 3, 4]}


def test_a_checkpoint_behind_a_message_that_is_not_whole_is_kept(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    recording.write_first_half(LONG)
    recording.stop()
    frames = Query(archive.path, fragmentMode="frame")
    assert frames.batch() > 3
    assert frames.at.recordings[0].position == recording.position
    query = Query(archive.path)
    query.at = frames.at
    assert query.batch() == -1


def test_a_recording_that_was_cut_and_extended_between_two_looks_is_rolled_back(
    archive: GrowingArchive,
) -> None:
    recording = archive.record()
    recording.write(20)
    query = Query(archive.path)
    assert query.batch() == 20
    recording.stop()
    cut_and_extend(archive, recording, recording.ends[9], 10)
    with pytest.raises(DataLossError, match="rolled back"):
        query.batch()


@pytest.mark.parametrize("size", [8, 100])
@pytest.mark.parametrize("kept", [0, 4, 9])
@pytest.mark.parametrize("fails", [True, False])
def test_what_was_cut_and_recorded_anew_beyond_it_is_read_again(
    archive: GrowingArchive, *, size: int, kept: int, fails: bool
) -> None:
    recording = archive.record()
    recording.write(20, size)
    query = Query(archive.path, failOnDataLoss=str(fails).lower())
    assert query.batch() == 20
    recording.stop()
    # As if nothing but more had come: it is longer than it was, whatever ends where.
    numbers = range(100, 200)
    cut_and_extend(archive, recording, recording.starts[kept], *numbers)
    query.restart()
    if fails:
        with pytest.raises(DataLossError, match=f"it was cut at {recording.starts[kept]} or"):
            query.batch()
        return
    while query.batch() >= 0:
        query.restart()
    assert query.numbers == {0: [*range(20), *numbers]}


def test_an_extension_over_many_terms_is_found(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(20, 8)
    recording.stop()
    numbers = range(100, 100 + 2 * TERM // 64 - 20)
    cut_and_extend(archive, recording, recording.ends[9], *numbers)
    extended = archive.catalog.get(0)
    end = recording.ends[9] + 64 * len(numbers)
    assert end > TERM
    assert session_start(archive.directory, extended, end) == recording.ends[9]
    assert session_start(archive.directory, extended, recording.ends[9]) == recording.ends[9]
    # Of another session there is nothing, and behind the end there is none.
    other = attrs.evolve(extended, session_id=5)
    assert session_start(archive.directory, other, end) == end
    assert session_start(archive.directory, extended, end + TERM) == end + TERM
    for file in archive.path.glob("0-*.rec"):
        file.unlink()
    assert session_start(archive.directory, extended, end) == end


def test_frames_with_checksums_do_not_tell_whose_they_are(archive: GrowingArchive) -> None:
    checksum = checksum_named("crc32c")
    recording = archive.record(checksum)
    recording.write(20)
    descriptor = archive.catalog.get(0)
    assert session_start(archive.directory, descriptor, recording.position) == recording.position


def test_the_last_frame_tells_that_all_is_whole(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    recording.stop()
    assert whole_end(archive.directory, archive.catalog.get(0)) == recording.position


def test_a_payload_that_looks_like_a_last_frame_is_seen_through(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    begin = recording.position
    descriptor = archive.catalog.get(0)
    inner = frame(descriptor, begin + 32 + 64, bytes(32), flags=0x80)
    recording.write_payload(bytes(64) + inner)
    recording.stop()
    assert whole_end(archive.directory, archive.catalog.get(0)) == recording.position


def test_padding_at_the_end_is_whole(archive: GrowingArchive) -> None:
    recording = archive.record()
    recording.write(3)
    recording.pad_unless(TERM + 1)
    recording.write(1)
    recording.stop()
    assert whole_end(archive.directory, archive.catalog.get(0)) == recording.position
    archive.catalog.update(0, stop_position=TERM)
    assert whole_end(archive.directory, archive.catalog.get(0)) == TERM


@pytest.mark.parametrize("damage", ["zeros", "no file", "stop in a frame"])
def test_damage_at_the_end_is_left_to_who_reads(archive: GrowingArchive, damage: str) -> None:
    recording = archive.record()
    recording.write(3, 8)
    recording.stop()
    (path,) = archive.path.glob("0-*.rec")
    if damage == "zeros":
        content = bytearray(path.read_bytes())
        content[recording.starts[1] : recording.position] = bytes(
            recording.position - recording.starts[1]
        )
        path.write_bytes(content)
    elif damage == "no file":
        path.unlink()
    else:
        archive.catalog.update(0, stop_position=recording.position - 32)
    descriptor = archive.catalog.get(0)
    assert whole_end(archive.directory, descriptor) == descriptor.stop_position
