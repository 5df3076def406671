"""The catalog of an archive: its file, its entries, and the ids of its recordings.

Layout of the header, little endian: version, length of the header (32), next recording id (64
bits), alignment of entries; zeros up to 32. Entries follow until one whose length is not positive.
A catalog from before alignments has 0 there; its entries are 1024 bytes apart, and the first one is
at 1024.

`Catalog` only ever appends entries, and changes their fields in place. In memory it holds the ids
and offsets of the valid entries, and nothing else; it reads a descriptor when a caller asks for it.

Invariant: the header's next recording id is raised above an id before an entry gets that id, and an
entry is complete on the disk before its length makes it valid. Ids are never used again.

Differs: Aeron creates a catalog if there is none, even beside segment files, and trusts an existing
one; new recordings then overwrite the segments of recordings that the catalog does not list.

Source: Aeron `Catalog`, `CatalogHeader`, `CatalogIndex`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.archive.disk.descriptor import (
    ACTIVE,
    BLOCK,
    ENTRY_HEADER,
    ENTRY_HEADER_LENGTH,
    RecordingState,
    decode_descriptor,
    encode_block,
    encode_entry,
)
from aeron_async.archive.disk.files import close_quietly, read_exactly, write_all
from aeron_async.archive.disk.segments import parse_segment_name
from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ArchiveFileError,
    ConfigurationError,
    UnknownRecordingError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File, ReadableFile

__all__ = [
    "CATALOG_NAME",
    "DEFAULT_ALIGNMENT",
    "DEFAULT_CAPACITY",
    "HEADER",
    "HEADER_LENGTH",
    "LARGEST_CAPACITY",
    "NEXT_ID_OFFSET",
    "VERSION",
    "Catalog",
    "CatalogHeader",
    "Entry",
    "grown_capacity",
    "last_used_id",
    "read_header",
    "refuse_to_forget",
    "scan_entries",
    "version_text",
]

# The file: its header and its entries.

CATALOG_NAME: Final = "archive.catalog"
HEADER: Final = Struct("<iiqi")
HEADER_LENGTH: Final = 32
NEXT_ID_OFFSET: Final = 8
MAJOR: Final = 3
VERSION: Final = 0x00030100
"""3.1.0, the version that the official archive writes."""
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
    """The header of a catalog.

    Attributes:
        version: Version of the format, as three numbers of a byte each.
        next_recording_id: Id of the next recording; 0 if it follows the last entry.
        alignment: Alignment of entries, in bytes.
        first_offset: Offset of the first entry.
    """

    version: int
    next_recording_id: int
    alignment: int
    first_offset: int


@attrs.frozen
class Entry:
    """An entry found by a scan.

    Attributes:
        offset: Offset of its header.
        length: Length with its header, up to the next entry.
        state: Whether it is valid.
        checksum: Stored checksum.
        recording_id: Id of its recording.
        stop_position: Stop position of its recording; -1 if it has none.
    """

    offset: int
    length: int
    state: RecordingState
    checksum: int
    recording_id: int
    stop_position: int


def version_text(version: int) -> str:
    """Return a version as text, such as "3.1.0"."""
    return f"{version >> 16 & 0xFF}.{version >> 8 & 0xFF}.{version & 0xFF}"


def read_header(file: ReadableFile) -> CatalogHeader:
    """Read the header of a catalog.

    Raises:
        ArchiveFileError: The file is not a catalog, or has an unknown version.
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
        message = f"the next recording id is {next_recording_id}, which is no valid id"
        raise ArchiveFileError(message, file=file.name, offset=NEXT_ID_OFFSET)
    if alignment == 0:
        return CatalogHeader(version, next_recording_id, OLD_ALIGNMENT, OLD_ALIGNMENT)
    is_power = alignment & (alignment - 1) == 0
    if not is_power or not ENTRY_HEADER_LENGTH <= alignment <= LARGEST_ALIGNMENT:
        message = f"entries aligned to {alignment} bytes: no power of two from 32 to 65536"
        raise ArchiveFileError(message, file=file.name, offset=16)
    return CatalogHeader(version, next_recording_id, alignment, HEADER_LENGTH)


def scan_entries(file: ReadableFile, header: CatalogHeader) -> Iterator[Entry]:
    """Yield the entries in order, up to a length of 0 or the end; read 1 MiB at a time.

    Raises:
        ArchiveFileError: An entry exceeds the file, or ids do not rise.
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
    """Return a catalog length with room for so many bytes; None if that is impossible.

    Source: Aeron `Catalog.growCatalog`.
    """
    if needed > LARGEST_CAPACITY:
        return None
    while capacity < needed:
        capacity = min(capacity + (capacity >> 1), LARGEST_CAPACITY)
    return capacity


# Recording ids.

LARGEST_ID: Final = 1 << 62


def last_used_id(names: Iterable[str]) -> tuple[int, list[str]]:
    """Return the highest recording id in the file names, or -1, and all names of segment files."""
    found = [(parsed[0], each) for each in names if (parsed := parse_segment_name(each))]
    # An id so large was not counted up to: it is ignored, because it would leave no next id.
    last_id = max((each for each, _ in found if each < LARGEST_ID), default=-1)
    return last_id, [name for _, name in found]


def refuse_to_forget(directory: Directory, files: list[str]) -> None:
    """Refuse to create a catalog where segments exist: new recordings would get their ids.

    Raises:
        ArchiveFileError: There are segment files.
    """
    if files:
        message = (
            f"there is none in {directory.path}, and there are files of recordings, "
            f"{min(files)} one of {len(files)}, which those of a new catalog would replace: put a "
            "copy of the catalog back, or move these files away"
        )
        raise ArchiveFileError(message, file=CATALOG_NAME, offset=0)


# The catalog.

EIGHT_BYTES: Final = 8
STATE_AT: Final = 4
CHECKSUM_AT: Final = 8
NEW_NAME: Final = "archive.catalog.new"
"""Name of a catalog being created, so that a file with the final name is complete."""


@final
class Catalog:
    """The recordings of one directory; made by `open`.

    Args:
        file: The catalog's file, open as long as the catalog.
        checksum: Checksum of entries; None for none.
        sync_level: 0 does not wait for the disk, 1 waits for written data, and 2 also for the
            metadata of files.

    Attributes:
        alignment: Alignment of entries, in bytes.
        capacity: Length of the file, in bytes.
        next_recording_id: Id of the next recording.
        sync_level: See above.
        unfinished: Ids of recordings that had no stop position when the catalog was opened.
        version: Version of the format, as three numbers of a byte each.
    """

    def __init__(
        self,
        file: File,
        *,
        checksum: Checksum | None = None,
        sync_level: int = 0,
    ) -> None:
        self._file = file
        self._checksum = checksum
        self.sync_level = sync_level
        # Whether a failed `add` may have left an entry with its length behind the last one.
        self._is_half_added = False
        header = read_header(file)
        self.version: int = header.version
        self.alignment: int = header.alignment
        self.capacity: int = file.length()
        self._ids = array("q")
        self._offsets = array("q")
        self.unfinished: list[int] = []
        self._end = header.first_offset
        last_id = -1
        for entry in scan_entries(file, header):
            last_id = entry.recording_id
            if entry.state is RecordingState.VALID:
                self._ids.append(entry.recording_id)
                self._offsets.append(entry.offset)
                if entry.stop_position == ACTIVE:
                    self.unfinished.append(entry.recording_id)
            self._end = entry.offset + entry.length
        self.next_recording_id: int = header.next_recording_id or last_id + 1
        if self.next_recording_id <= last_id:
            message = (
                f"the next recording id is {self.next_recording_id}, and {last_id} is used: "
                "`aeron-async archive repair` corrects it"
            )
            raise ArchiveFileError(message, file=file.name, offset=NEXT_ID_OFFSET)

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        capacity: int = DEFAULT_CAPACITY,
        checksum: Checksum | None = None,
        sync_level: int = 0,
    ) -> Self:
        """Open the catalog of a directory for writing, and create it if there is none.

        Args:
            directory: Directory of the archive.
            capacity: Length of a new catalog, in bytes; a shorter existing one is extended to it.
            checksum: Checksum of entries; None for none.
            sync_level: See the class.

        Raises:
            ConfigurationError: The capacity is out of range.
            ArchiveFileError: The catalog cannot be read; or there is none, but there are segment
                files.
            OSError: The disk failed.
        """
        if not HEADER_LENGTH <= capacity <= LARGEST_CAPACITY:
            message = (
                f"catalog capacity {capacity} must be from {HEADER_LENGTH} to {LARGEST_CAPACITY} "
                "bytes: change catalog_capacity"
            )
            raise ConfigurationError(message)
        last_id, files = last_used_id(directory.names())
        try:
            file = directory.open(CATALOG_NAME)
        except FileNotFoundError:
            refuse_to_forget(directory, files)
            file = make_catalog(directory, capacity=capacity, sync_level=sync_level)
        try:
            catalog = cls(file, checksum=checksum, sync_level=sync_level)
            # A restored older catalog may lack recordings, whose segments a reused id would
            # overwrite.
            catalog.next_recording_id = max(catalog.next_recording_id, last_id + 1)
            if catalog.capacity < capacity:
                # Extended only after it was read: a damaged file is not changed.
                file.set_length(capacity)
                catalog.capacity = capacity
        except BaseException:
            close_quietly(file)
            raise
        return catalog

    @classmethod
    def open_to_read(cls, directory: Directory) -> Self:
        """Open the catalog of a directory for reading; another archive may use it.

        Raises:
            FileNotFoundError: There is no catalog.
            ArchiveFileError: The catalog cannot be read.
        """
        file = directory.open_to_read(CATALOG_NAME)
        try:
            return cls(file)
        except BaseException:
            close_quietly(file)
            raise

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, recording_id: object) -> bool:
        return isinstance(recording_id, int) and self._place(recording_id) is not None

    def ids(self, start: int = 0) -> Iterator[int]:
        """Yield the ids of valid recordings in order, beginning with the first that is not less."""
        place = bisect_left(self._ids, start)
        while place < len(self._ids):
            recording_id = self._ids[place]
            yield recording_id
            # A recording may have been deleted since the last step.
            place = bisect_left(self._ids, recording_id + 1)

    def get(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording.

        Raises:
            UnknownRecordingError: No recording has that id.
            ArchiveFileError: Its entry is damaged.
        """
        offset = self._offset(recording_id)
        body = self._read_body(offset)
        return decode_descriptor(body, file=self._file.name, offset=offset + ENTRY_HEADER_LENGTH)

    def body(self, recording_id: int) -> memoryview:
        """Return an entry as stored, without its header; control messages carry it in this form.

        Raises:
            UnknownRecordingError: No recording has that id.
        """
        return self._read_body(self._offset(recording_id))

    def checksum_problem(self, recording_id: int, checksum: Checksum) -> str | None:
        """Return how the checksum of an entry is wrong; None if it is right."""
        offset = self._offset(recording_id)
        header = bytearray(ENTRY_HEADER_LENGTH)
        read_exactly(self._file, memoryview(header), offset)
        stored = ENTRY_HEADER.unpack_from(header)[2]
        wanted = checksum(self._read_body(offset))
        return None if stored == wanted else f"checksum {stored}, and the entry's is {wanted}"

    def add(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Add a recording, and return its descriptor with the new id.

        Raises:
            ArchiveError: The catalog is full.
            OSError: The disk is full, or failed; nothing was added.
        """
        descriptor = attrs.evolve(descriptor, recording_id=self.next_recording_id)
        entry = self._sealed(encode_entry(descriptor, alignment=self.alignment))
        offset = self._end
        self._grow_to(offset + len(entry))
        # Before the entry: a skipped id does no harm, an id that the header would hand out again
        # does.
        self._write_next_id(descriptor.recording_id + 1)
        # The bytes behind the entry may be left from an entry that was never finished.
        end = bytes(min(4, self.capacity - offset - len(entry)))
        if self._is_half_added:
            self._end_at(offset)
        # The length comes last: without it the entry is not valid.
        write_all(self._file, [entry[4:], end], offset + 4)
        self._sync()
        self._is_half_added = True
        write_all(self._file, [entry[:4]], offset)
        self._sync()
        self._is_half_added = False
        self.next_recording_id = descriptor.recording_id + 1
        self._ids.append(descriptor.recording_id)
        self._offsets.append(offset)
        self._end = offset + len(entry)
        return descriptor

    def delete(self, recording_id: int) -> None:
        """Delete a recording from the catalog; its id is never used again.

        Raises:
            UnknownRecordingError: No recording has that id.
        """
        offset = self._offset(recording_id)
        write_all(self._file, [RecordingState.DELETED.to_bytes(4, "little")], offset + STATE_AT)
        self._sync()
        place = bisect_left(self._ids, recording_id)
        del self._ids[place], self._offsets[place]

    def update(self, recording_id: int, **changes: int) -> RecordingDescriptor:
        """Change numbers of an entry in place, and return its new descriptor.

        Args:
            recording_id: Id of the recording.
            changes: Numeric attributes of the descriptor.

        Raises:
            UnknownRecordingError: No recording has that id.
        """
        numbers: dict[str, Any] = {**changes}
        descriptor = attrs.evolve(self.get(recording_id), **numbers)
        offset = self._offset(recording_id)
        body = self._read_body(offset)
        # Write only the numbers: bytes behind the strings may belong to another implementation.
        body[: BLOCK.size] = encode_block(descriptor)
        write_all(self._file, [body[: BLOCK.size]], offset + ENTRY_HEADER_LENGTH)
        if self._checksum is not None:
            checksum = self._checksum(body).to_bytes(4, "little", signed=True)
            write_all(self._file, [checksum], offset + CHECKSUM_AT)
        self._sync()
        return descriptor

    def _sealed(self, entry: bytearray) -> bytearray:
        """Return a valid entry with its checksum."""
        length = len(entry) - ENTRY_HEADER_LENGTH
        checksum = 0 if self._checksum is None else self._checksum(entry[ENTRY_HEADER_LENGTH:])
        ENTRY_HEADER.pack_into(entry, 0, length, RecordingState.VALID, checksum)
        return entry

    def _grow_to(self, needed: int) -> None:
        if needed <= self.capacity:
            return
        capacity = grown_capacity(self.capacity, needed)
        if capacity is None:
            message = (
                f"the catalog is full: an entry up to {needed} of {LARGEST_CAPACITY} bytes; "
                "purge recordings and record into another directory"
            )
            raise ArchiveError(message, code=ArchiveErrorCode.STORAGE_SPACE)
        self._file.set_length(capacity)
        self.capacity = capacity

    def _end_at(self, offset: int) -> None:
        write_all(self._file, [bytes(4)], offset)
        self._sync()

    def _write_next_id(self, recording_id: int) -> None:
        write_all(self._file, [recording_id.to_bytes(EIGHT_BYTES, "little")], NEXT_ID_OFFSET)

    def _read_body(self, offset: int) -> memoryview:
        header = bytearray(ENTRY_HEADER_LENGTH)
        read_exactly(self._file, memoryview(header), offset)
        length = ENTRY_HEADER.unpack_from(header)[0]
        if not 0 < length <= self._end - offset - ENTRY_HEADER_LENGTH:
            message = f"an entry of {length} bytes, which had another length before"
            raise ArchiveFileError(message, file=self._file.name, offset=offset)
        body = memoryview(bytearray(length))
        read_exactly(self._file, body, offset + ENTRY_HEADER_LENGTH)
        return body

    def _place(self, recording_id: int) -> int | None:
        place = bisect_left(self._ids, recording_id)
        is_there = place < len(self._ids) and self._ids[place] == recording_id
        return place if is_there else None

    def _offset(self, recording_id: int) -> int:
        place = self._place(recording_id)
        if place is None:
            message = f"unknown recording id: {recording_id}"
            raise UnknownRecordingError(message)
        return self._offsets[place]

    def _sync(self) -> None:
        if self.sync_level:
            self._file.sync(metadata=self.sync_level > 1)


def make_catalog(directory: Directory, *, capacity: int, sync_level: int) -> File:
    """Create an empty catalog, complete before it gets its name, and open it."""
    file = directory.open(NEW_NAME, create=True)
    try:
        file.set_length(0)
        file.set_length(capacity)
        write_all(file, [HEADER.pack(VERSION, HEADER_LENGTH, 0, DEFAULT_ALIGNMENT)], 0)
        file.sync(metadata=True)
        directory.rename(NEW_NAME, CATALOG_NAME)
        if sync_level:
            directory.sync()
    except BaseException:
        # The new name is removed, whether or not the renaming succeeded.
        with suppress(OSError):
            directory.remove(NEW_NAME)
        raise
    finally:
        close_quietly(file)
    return directory.open(CATALOG_NAME)
