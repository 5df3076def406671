"""Targets for what an archive reads: its clients' messages, and the files in its directory."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.disk.catalog import CATALOG_NAME, HEADER, VERSION, Catalog
from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.mark_file import decode_header
from aeron_async.archive.disk.recording_reader import RecordingReader, find_place
from aeron_async.archive.disk.segment_scan import Problem, ScanBuffer, check_frames, find_end
from aeron_async.archive.disk.segments import parse_segment_name, segment_name
from aeron_async.archive.disk.tail_scan import find_torn
from aeron_async.errors import ArchiveFileError, ProtocolError
from tests.archive.disk.streams import described
from tests.support.faulty_files import FaultyDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File

__all__ = ["ARCHIVE"]

SCHEMA_ID: Final = 101
SBE: Final = Struct("<HHHH")
BUFFER_LENGTH: Final = 65_536
LONGEST_NAME: Final = 255
MARK_HEADER: Final = SBE.pack(128, 200, 100, 2)


def control(data: bytes) -> None:
    """Read a message of the control protocol; behind an odd byte stands one as it is."""
    choice, data = data[:1], data[1:]
    if data and not choice[0] & 1:
        data = SBE.pack(len(data) & 0x7F, data[0], SCHEMA_ID, 14) + data[1:]
    try:
        message = CODEC.decode(data)
    except ProtocolError:
        return
    # What is no ASCII is a question mark from then on.
    again = CODEC.decode(CODEC.encode(message))
    assert CODEC.decode(CODEC.encode(again)) == again


def holding(name: str, data: bytes) -> FaultyDirectory:
    """Return a directory with one file."""
    directory = FaultyDirectory()
    file = directory.open(name, create=True)
    file.write([data], 0)
    file.close()
    return directory


def contents(directory: Directory, name: str) -> bytes:
    file: File = directory.open_to_read(name)
    data = memoryview(bytearray(file.length()))
    file.read_into(data, 0)
    file.close()
    return bytes(data)


def catalog(data: bytes) -> None:
    """Read a catalog; behind an even byte stand its entries only."""
    choice, data = data[:1], data[1:]
    if choice and not choice[0] & 1:
        data = HEADER.pack(VERSION, 32, 0, 64).ljust(32, b"\0") + data
    directory = holding(CATALOG_NAME, data)
    try:
        found = Catalog.open_to_read(directory)
    except ArchiveFileError as error:
        check_place(error, CATALOG_NAME, data)
        return
    last_id = -1
    for recording_id in found.ids():
        assert last_id < recording_id < found.next_recording_id
        last_id = recording_id
        try:
            descriptor = found.get(recording_id)
        except ArchiveFileError as error:
            check_place(error, CATALOG_NAME, data)
            continue
        name = segment_name(recording_id, descriptor.start_position & -descriptor.term_length)
        assert parse_segment_name(name) is not None
    assert contents(directory, CATALOG_NAME) == data


def check_place(error: ArchiveFileError, name: str, data: bytes) -> None:
    assert error.file == name
    assert 0 <= error.offset <= len(data)


def mark_file(data: bytes) -> None:
    """Read the header of a mark file; behind an even byte stands its block only."""
    choice, data = data[:1], data[1:]
    if choice and not choice[0] & 1:
        data = MARK_HEADER + data
    try:
        header = decode_header(data, file="mark")
    except ArchiveFileError as error:
        check_place(error, "mark", data)
        return
    assert header.offset in (0, 8)


def segment(data: bytes) -> None:
    """Walk and read a segment, with checksums and without; the first byte says where to begin."""
    choice, data = data[:1], data[1:]
    start = 32 * (choice[0] & 7) if choice else 0
    descriptor = described(start_position=start, segment_length=65_536)
    directory = holding("0-0.rec", data)
    file = directory.open_to_read("0-0.rec")
    buffer = ScanBuffer(BUFFER_LENGTH)
    end = find_end(file, start, buffer)
    assert end == start or start < end <= len(data)
    torn = find_torn(file, start, end, buffer)
    assert torn is None or start <= torn <= max(start, end)
    for checksum in (None, CHECKSUMS["crc32"]):
        offset = start
        for each in check_frames(
            file, descriptor, base=0, start=start, end=end, checksum=checksum, buffer=buffer
        ):
            if isinstance(each, Problem):
                assert offset <= each.offset < end
                break
            assert offset < each <= end
            offset = each
    read(directory, descriptor, end, buffer)
    assert contents(directory, "0-0.rec") == data


def read(
    directory: Directory, descriptor: RecordingDescriptor, end: int, buffer: ScanBuffer
) -> None:
    """Read a segment to its end, or to where it makes no sense."""
    start = descriptor.start_position
    reader = RecordingReader(directory, descriptor, start)
    position = start
    try:
        while (block := reader.read(buffer, recorded=end)) is not None:
            assert block.position == position
            position = block.end_position
            assert block.length > 0
        assert position >= end
        find_place(directory, descriptor, (start + end) // 64 * 32, end=end)
    except ArchiveFileError as error:
        check_place(error, "0-0.rec", bytes(end))
    finally:
        reader.close()


def names(data: bytes) -> None:
    """Read the name of a file: what is a segment's is its only name, and leads nowhere else."""
    name = data.decode("utf-8", "surrogateescape")
    parsed = parse_segment_name(name)
    if parsed is not None:
        assert segment_name(*parsed) == name
        assert "/" not in name
        assert len(name) <= LONGEST_NAME


ARCHIVE: Final[Mapping[str, Callable[[bytes], None]]] = {
    "control": control,
    "catalog": catalog,
    "mark_file": mark_file,
    "segment": segment,
    "names": names,
}
