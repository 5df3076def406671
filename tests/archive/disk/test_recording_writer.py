"""What the official archive recorded, written by ours, is the same bytes in the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_reader import RecordingReader
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.archive.disk.segments import segment_base, segment_name
from aeron_async.errors import StorageError
from tests.archive.disk.streams import FrameSource, described, frame, read_all
from tests.archive.golden import RECORDINGS, golden_path, recording_facts
from tests.support.faulty_files import Faults, FaultyDirectory

if TYPE_CHECKING:
    from pathlib import Path

# The others lost a part of what had been recorded, or have more than what is recorded in a file.
WHOLE = [
    each
    for each in RECORDINGS
    if each[0] in {"A1-one-finished", "A2-mid-term-start", "A4-crc32", "A6-padding"}
]


@pytest.mark.parametrize("buffer_length", [2_048, 1 << 16, 1 << 20])
@pytest.mark.parametrize(("name", "number"), WHOLE)
@pytest.mark.parametrize("level", [0, 2])
def test_official_segments_are_written_to_the_byte(
    name: str, number: int, buffer_length: int, level: int, tmp_path: Path
) -> None:
    golden = OsDirectory(golden_path(name), create=False)
    descriptor = Catalog.open_to_read(golden).get(number)
    has_checksum = recording_facts(name, number)["record_checksum"] == "CRC-32"
    directory = OsDirectory(tmp_path)
    writer = RecordingWriter(
        directory,
        descriptor,
        position=descriptor.start_position,
        checksum=CHECKSUMS["crc32"] if has_checksum else None,
        sync_level=level,
    )
    reader = RecordingReader(golden, descriptor, descriptor.start_position)
    buffer = ScanBuffer(buffer_length)
    while (block := reader.read(buffer, recorded=descriptor.stop_position)) is not None:
        # Data frames have their checksums in the session already: the same again comes of it.
        assert writer.write([(block.frames, block.padding)]) == block.end_position
    writer.close()
    reader.close()
    wanted = {
        each: (golden_path(name) / each).read_bytes()
        for each in golden.names()
        if each.startswith(f"{number}-")
    }
    assert {each: (tmp_path / each).read_bytes() for each in directory.names()} == wanted


def test_a_recording_begins_in_the_file_that_its_start_lies_in(tmp_path: Path) -> None:
    descriptor = described(start_position=200_704)
    RecordingWriter(OsDirectory(tmp_path), descriptor, position=200_704).close()
    base = segment_base(200_704, start_position=200_704, term_length=65_536, segment_length=131_072)
    assert [each.name for each in tmp_path.iterdir()] == [segment_name(0, base)]


def test_a_file_that_stands_where_the_next_begins_is_not_written_over(tmp_path: Path) -> None:
    descriptor = described(segment_length=65_536)
    writer = RecordingWriter(OsDirectory(tmp_path), descriptor, position=0)
    (tmp_path / "0-65536.rec").write_bytes(b"precious")
    padding = memoryview(frame(descriptor, 0, b"", kind=0, length=65_536))
    with pytest.raises(StorageError, match="stopped at position 65536"):
        writer.write([(padding, 65_504)])
    assert (tmp_path / "0-65536.rec").read_bytes() == b"precious"


def test_a_file_that_cannot_be_had_is_told_at_once() -> None:
    directory = FaultyDirectory(faults=Faults(open_error=1.0))
    with pytest.raises(StorageError, match="stopped at position 0"):
        RecordingWriter(directory, described(), position=0)
    directory.faults = Faults(write_error=1.0)
    with pytest.raises(StorageError, match="stopped at position 0"):
        RecordingWriter(directory, described(), position=0)


def test_what_is_cut_off_leaves_zeros_and_no_file_of_its_own(tmp_path: Path) -> None:
    descriptor = described(segment_length=65_536)
    directory = OsDirectory(tmp_path)
    writer = RecordingWriter(directory, descriptor, position=0)
    source = FrameSource(descriptor, 5)
    good = writer.write([source.block()])
    kept = read_all(directory, descriptor, 0, good)
    while writer.position < 2 * 65_536:
        writer.write([source.block()])
    writer.cut(good)
    assert writer.position == good
    assert directory.names() == ["0-0.rec"]
    assert read_all(directory, descriptor, 0, good) == kept
    data = (tmp_path / "0-0.rec").read_bytes()
    assert (len(data), any(data[good:])) == (65_536, False)


def test_a_file_that_was_not_written_is_not_removed_when_the_rest_is_cut_off(
    tmp_path: Path,
) -> None:
    descriptor = described(segment_length=65_536)
    writer = RecordingWriter(OsDirectory(tmp_path), descriptor, position=0)
    (tmp_path / "0-65536.rec").write_bytes(b"precious")
    padding = memoryview(frame(descriptor, 0, b"", kind=0, length=65_536))
    with pytest.raises(StorageError, match="stopped at position 65536"):
        writer.write([(padding, 65_504)])
    writer.cut(0)
    assert (tmp_path / "0-65536.rec").read_bytes() == b"precious"
    assert not any((tmp_path / "0-0.rec").read_bytes())
