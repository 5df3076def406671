"""The bytes of a catalog: its header, its entries one after the other, and where they end.

Layout of the header, little endian: version, length of the header (32), next recording id (64
bits), alignment of entries; zeros up to 32. Entries follow until one whose length is not positive.
A catalog of before alignments has 0 there, its entries are 1024 bytes apart, and the first one is
at 1024.

Source: Aeron `Catalog`, `CatalogHeader`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.descriptor import (
    BLOCK,
    ENTRY_HEADER_LENGTH,
    RecordingState,
)
from aeron_async.archive.disk.files import read_exactly
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.files import File

__all__ = [
    "CATALOG_NAME",
    "DEFAULT_ALIGNMENT",
    "DEFAULT_CAPACITY",
    "HEADER",
    "HEADER_LENGTH",
    "LARGEST_CAPACITY",
    "NEXT_ID_OFFSET",
    "VERSION",
    "CatalogHeader",
    "Entry",
    "grown_capacity",
    "read_header",
    "scan_entries",
    "version_text",
]

CATALOG_NAME: Final = "archive.catalog"
HEADER: Final = Struct("<iiqi")
HEADER_LENGTH: Final = 32
NEXT_ID_OFFSET: Final = 8
MAJOR: Final = 3
VERSION: Final = 0x00030100
"""3.1.0, as the official archive writes it."""
DEFAULT_ALIGNMENT: Final = 64
OLD_ALIGNMENT: Final = 1_024
DEFAULT_CAPACITY: Final = 1 << 20
"""Length of a new catalog, in bytes."""
LARGEST_CAPACITY: Final = (1 << 31) - 1
LARGEST_ALIGNMENT: Final = 65_536
CHUNK_LENGTH: Final = 1 << 20
START_OF_ENTRY: Final = Struct("<iii36xq24xq")
"""Length, state, checksum, recording id and stop position."""
STATES: Final = {int(each): each for each in RecordingState}


@attrs.frozen
class CatalogHeader:
    """What a catalog says of itself.

    Attributes:
        version: Its format, as three numbers of a byte each.
        next_recording_id: The id that the next recording gets; 0 where it follows from the last.
        alignment: Of entries, in bytes.
        first_offset: Of the first entry.
    """

    version: int
    next_recording_id: int
    alignment: int
    first_offset: int


@attrs.frozen
class Entry:
    """An entry that a scan came by.

    Attributes:
        offset: Of its header.
        length: With its header, up to the next entry.
        state: Whether it counts.
        checksum: As it is stored.
        recording_id: Of its recording.
        stop_position: Likewise; -1 where it has none.
    """

    offset: int
    length: int
    state: RecordingState
    checksum: int
    recording_id: int
    stop_position: int


def version_text(version: int) -> str:
    """Return a version as people write it."""
    return f"{version >> 16 & 0xFF}.{version >> 8 & 0xFF}.{version & 0xFF}"


def read_header(file: File) -> CatalogHeader:
    """Return what a catalog says of itself.

    Raises:
        ArchiveFileError: It is no catalog, or one of a version that is not known.
    """
    data = bytearray(HEADER_LENGTH)
    if read_exactly(file, memoryview(data), 0) < HEADER_LENGTH:
        message = f"a catalog begins with a header of {HEADER_LENGTH} bytes, and this is shorter"
        raise ArchiveFileError(message, file=file.name, offset=0)
    version, _, next_recording_id, alignment = HEADER.unpack_from(data)
    if version >> 16 != MAJOR:
        message = (
            f"a catalog of version {version_text(version)} ({version:#x}), and only those of "
            f"major version {MAJOR} are known"
        )
        raise ArchiveFileError(message, file=file.name, offset=0)
    if next_recording_id < 0:
        message = f"the next recording id is {next_recording_id}, which none can be"
        raise ArchiveFileError(message, file=file.name, offset=NEXT_ID_OFFSET)
    if alignment == 0:
        return CatalogHeader(version, next_recording_id, OLD_ALIGNMENT, OLD_ALIGNMENT)
    is_power = alignment & (alignment - 1) == 0
    if not is_power or not ENTRY_HEADER_LENGTH <= alignment <= LARGEST_ALIGNMENT:
        message = f"entries aligned to {alignment} bytes: no power of two from 32 to 65536"
        raise ArchiveFileError(message, file=file.name, offset=16)
    return CatalogHeader(version, next_recording_id, alignment, HEADER_LENGTH)


def scan_entries(file: File, header: CatalogHeader) -> Iterator[Entry]:
    """Walk the entries, in pieces of 1 MiB; the last is followed by the end or by no length.

    Raises:
        ArchiveFileError: An entry goes on beyond the file, or ids do not rise.
    """
    end = file.length()
    offset, last_id = header.first_offset, -1
    needed = ENTRY_HEADER_LENGTH + BLOCK.size
    chunk = memoryview(bytearray(min(CHUNK_LENGTH, max(end, needed))))
    chunk_at, chunk_end = 0, 0
    unpack = START_OF_ENTRY.unpack_from
    while offset + ENTRY_HEADER_LENGTH <= end:
        if offset + needed > chunk_end or offset < chunk_at:
            chunk_at = offset
            chunk_end = offset + read_exactly(file, chunk, offset)
        at = offset - chunk_at
        length, number, checksum, recording_id, stop_position = unpack(chunk, at)
        if length <= 0:
            return
        whole = -(-(length + ENTRY_HEADER_LENGTH) // header.alignment) * header.alignment
        if length < BLOCK.size or offset + ENTRY_HEADER_LENGTH + length > end:
            message = (
                f"an entry of {length} bytes, where one has at least {BLOCK.size} and the file "
                f"ends after {end - offset - ENTRY_HEADER_LENGTH}"
            )
            raise ArchiveFileError(message, file=file.name, offset=offset)
        if recording_id <= last_id:
            message = f"recording {recording_id} comes after {last_id}: ids only rise"
            raise ArchiveFileError(message, file=file.name, offset=offset)
        state = STATES.get(number)
        if state is None:
            message = f"an entry of state {number}: 0 is invalid, 1 valid and 2 deleted"
            raise ArchiveFileError(message, file=file.name, offset=offset + 4)
        yield Entry(offset, whole, state, checksum, recording_id, stop_position)
        last_id = recording_id
        offset += whole


def grown_capacity(capacity: int, needed: int) -> int | None:
    """Return the length of a catalog that has room for so much; None if none has.

    Source: Aeron `Catalog.growCatalog`.
    """
    if needed > LARGEST_CAPACITY:
        return None
    while capacity < needed:
        capacity = min(capacity + (capacity >> 1), LARGEST_CAPACITY)
    return capacity
