"""Recordings are read to their facts, whatever their form; damage is named, and never stalls."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.descriptor import RecordingState
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_reader import RecordingReader, check_position, find_place
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.errors import ArchiveFileError, InvalidPositionError, StorageError
from tests.archive.disk.streams import FrameSource, described, frame, read_all
from tests.archive.golden import RECORDINGS, golden_path, recording_facts
from tests.support.faulty_files import Faults, FaultyDirectory

if TYPE_CHECKING:
    from pathlib import Path

READABLE = [
    (name, number)
    for name, number in RECORDINGS
    if recording_facts(name, number)["state"] == RecordingState.VALID
]


def messages_of(data: bytes) -> list[bytes]:
    """Return the whole messages among frames."""
    found: list[bytes] = []
    parts: list[bytes] | None = None
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        if data[at + 6] == 1:
            flags, payload = data[at + 5], data[at + 32 : at + length]
            if flags & 0x80:
                parts = []
            if parts is not None:
                parts.append(payload)
                if flags & 0x40:
                    found.append(b"".join(parts))
                    parts = None
        at += (length + 31) & -32
    return found


@pytest.mark.parametrize(("name", "number"), READABLE)
def test_an_official_recording_is_read_message_by_message(name: str, number: int) -> None:
    facts = recording_facts(name, number)
    directory = OsDirectory(golden_path(name), create=False)
    descriptor = Catalog.open_to_read(directory).get(number)
    checksum = CHECKSUMS["crc32"] if facts["record_checksum"] == "CRC-32" else None
    end = facts["stop_position"]
    end = facts["end_position"] if end == -1 else end
    start = descriptor.start_position
    data = read_all(directory, descriptor, start, end, checksum=checksum)
    found = messages_of(data)
    assert [len(each) for each in found] == facts["message_lengths"]
    assert hashlib.sha256(b"".join(found)).hexdigest() == facts["messages_sha256"]


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[OsDirectory, Any, bytes]:
    """Return three segments and a bit, and what they hold."""
    directory = OsDirectory(tmp_path)
    descriptor = described(start_position=4_096, initial_term_id=2**31 - 2)
    writer = RecordingWriter(directory, descriptor, position=4_096)
    source, data = FrameSource(descriptor, 1), bytearray()
    while writer.position < 300_000:
        block, padding = source.block()
        data += block
        data += bytes(padding)
        writer.write([(block, padding)])
    writer.close()
    return directory, descriptor, bytes(data)


def test_what_was_written_is_read_in_blocks_of_any_length(
    recorded: tuple[OsDirectory, Any, bytes],
) -> None:
    directory, descriptor, data = recorded
    end = 4_096 + len(data)
    for length in (1_440, 4_096, 1 << 16, 1 << 20):
        assert read_all(directory, descriptor, 4_096, end, buffer_length=length) == data


def test_a_live_recording_is_followed_up_to_what_is_written(
    recorded: tuple[OsDirectory, Any, bytes],
) -> None:
    directory, descriptor, data = recorded
    end = 4_096 + len(data)
    reader = RecordingReader(directory, descriptor, 4_096)
    buffer, got = ScanBuffer(), bytearray()
    for limit in range(4_096, end + 7_001, 7_001):
        while (block := reader.read(buffer, recorded=end, limit=limit)) is not None:
            assert block.position == 4_096 + len(got)
            assert block.end_position <= limit
            got += block.frames
            got += bytes(block.padding)
    assert bytes(got) == data
    assert reader.read(buffer, recorded=end) is None
    reader.close()
    reader.close()


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0, bytes(4), "a frame of 0 bytes"),
        (0, b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (0, b"\0\0\1\0", "a frame of 65536 bytes"),
        (4, b"\1", "a frame of version 1"),
        (6, b"\7", "and type 7"),
        (8, b"\1\0\0\0", "that says it is at 1"),
        (16, b"\1\0\0\0", "a frame of stream 1 in a recording of 10"),
        (20, b"\1\0\0\0", "a frame of term 1"),
    ],
)
def test_a_damaged_frame_is_named_once_all_before_it_was_read(
    recorded: tuple[OsDirectory, Any, bytes], at: int, value: bytes, match: str
) -> None:
    directory, descriptor, data = recorded
    place = find_place(directory, descriptor, 210_000, end=4_096 + len(data)).after
    offset = place - 131_072
    file = directory.open("0-131072.rec")
    file.write([value], offset + at)
    file.close()
    reader, buffer = RecordingReader(directory, descriptor, 4_096), ScanBuffer()
    with pytest.raises(ArchiveFileError, match=match) as caught:
        read_on(reader, buffer, 4_096 + len(data))
    assert reader.position == place
    assert (caught.value.file, caught.value.offset) == ("0-131072.rec", offset)


def read_on(reader: RecordingReader, buffer: ScanBuffer, end: int) -> None:
    while reader.read(buffer, recorded=end) is not None:
        pass


def test_a_file_that_is_missing_or_short_is_named(
    recorded: tuple[OsDirectory, Any, bytes],
) -> None:
    directory, descriptor, data = recorded
    end = 4_096 + len(data)
    file = directory.open("0-131072.rec")
    file.set_length(100)
    file.close()
    with pytest.raises(ArchiveFileError, match=r"0-131072\.rec, offset"):
        read_all(directory, descriptor, 4_096, end)
    directory.remove("0-131072.rec")
    with pytest.raises(ArchiveFileError, match="the file is not there"):
        read_all(directory, descriptor, 4_096, end)


def test_a_frame_beyond_the_end_or_the_buffer_is_named(
    recorded: tuple[OsDirectory, Any, bytes],
) -> None:
    directory, descriptor, data = recorded
    first = (int.from_bytes(data[:4], "little") + 31) & -32
    with pytest.raises(ArchiveFileError, match="before the end of what is recorded"):
        read_all(directory, descriptor, 4_096, 4_096 + first - 32)
    with pytest.raises(ArchiveFileError, match="longer than any that is sent"):
        read_all(directory, descriptor, 4_096, 4_096 + len(data), buffer_length=128)


def test_checksums_are_checked_where_asked_for(tmp_path: Path) -> None:
    directory, descriptor = OsDirectory(tmp_path), described()
    crc = CHECKSUMS["crc32"]
    writer = RecordingWriter(directory, descriptor, position=0, checksum=crc)
    first, second = frame(descriptor, 0, b"a" * 100), frame(descriptor, 160, b"b" * 100)
    writer.write([(memoryview(first + second), 0)])
    writer.close()
    assert len(read_all(directory, descriptor, 0, 320, checksum=crc)) == 320
    file = directory.open("0-0.rec")
    file.write([b"!"], 200)
    file.close()
    reader, buffer = RecordingReader(directory, descriptor, 0, checksum=crc), ScanBuffer()
    block = reader.read(buffer, recorded=320)
    assert block is not None
    assert (block.length, block.end_position) == (160, 160)
    with pytest.raises(ArchiveFileError, match=r"0-0\.rec, offset 160: .*checksum"):
        reader.read(buffer, recorded=320)
    assert len(read_all(directory, descriptor, 0, 320)) == 320


def test_a_disk_that_fails_is_a_storage_error() -> None:
    directory, descriptor = FaultyDirectory(), described()
    writer = RecordingWriter(directory, descriptor, position=0)
    writer.write([(memoryview(frame(descriptor, 0, b"x")), 0)])
    reader = RecordingReader(directory, descriptor, 0)
    directory.faults = Faults(open_error=1.0)
    with pytest.raises(StorageError, match="could not be opened"):
        reader.read(ScanBuffer(), recorded=64)
    directory.faults = Faults(read_error=1.0)
    with pytest.raises(StorageError, match="could not be read"):
        reader.read(ScanBuffer(), recorded=64)


# Positions.


def test_a_position_in_mid_frame_is_refused_with_the_nearest(
    recorded: tuple[OsDirectory, Any, bytes],
) -> None:
    directory, descriptor, data = recorded
    end = 4_096 + len(data)
    starts, at = [], 0
    while at < len(data):
        starts.append(4_096 + at)
        at += (int.from_bytes(data[at : at + 4], "little") + 31) & -32
    for position in range(4_096, end + 1, 32):
        if position in starts or position == end:
            check_position(directory, descriptor, position, end=end)
        elif position % 7 == 0:
            with pytest.raises(InvalidPositionError, match="middle of a frame") as caught:
                check_position(directory, descriptor, position, end=end)
            distance = min(abs(each - position) for each in [*starts, end])
            assert caught.value.nearest is not None
            assert abs(caught.value.nearest - position) == distance


@pytest.mark.parametrize(("position", "nearest"), [(0, 4_096), (1 << 40, None)])
def test_a_position_outside_is_refused_with_the_nearest(
    recorded: tuple[OsDirectory, Any, bytes], position: int, nearest: int | None
) -> None:
    directory, descriptor, data = recorded
    end = 4_096 + len(data)
    with pytest.raises(InvalidPositionError, match="outside of recording 0") as caught:
        check_position(directory, descriptor, position, end=end)
    assert caught.value.nearest == (end if nearest is None else nearest)


def test_a_place_between_two_fragments_knows_the_next_message(tmp_path: Path) -> None:
    directory, descriptor = OsDirectory(tmp_path), described()
    writer = RecordingWriter(directory, descriptor, position=0)
    data = b"".join(
        frame(descriptor, 64 * number, b"x" * 32, flags=flags)
        for number, flags in enumerate([0x80, 0x00, 0x40, 0xC0])
    )
    writer.write([(memoryview(data), 0)])
    writer.close()
    place = find_place(directory, descriptor, 64, end=256)
    assert (place.before, place.after, place.message) == (64, 64, 192)
    place = find_place(directory, descriptor, 96, end=256)
    assert (place.before, place.after, place.message) == (64, 128, 192)
    place = find_place(directory, descriptor, 224, end=256)
    assert (place.before, place.after, place.message) == (192, 256, 256)
