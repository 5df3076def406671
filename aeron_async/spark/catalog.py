"""Recordings that a query selects, read again when the catalog changes.

The bytes of the catalog tell whether it changed, and where: only entries that have changed, or are
new, are decoded again. The modification time of the file does not tell: the official archive writes
through mapped memory, and the system updates that time later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.archive.disk.catalog import (
    CATALOG_NAME,
    NEXT_ID_OFFSET,
    read_header,
    scan_entries,
)
from aeron_async.archive.disk.descriptor import (
    ENTRY_HEADER,
    ENTRY_HEADER_LENGTH,
    RecordingState,
    decode_descriptor,
)
from aeron_async.archive.recording_channels import stripped_channel
from aeron_async.errors import ConfigurationError, UnknownRecordingError
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.spark.options import REPLAY
from aeron_async.spark.read_again import ReadAgain
from aeron_async.spark.stored_archive import StoredFile, directory_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.archive.disk.catalog import CatalogHeader
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "CatalogWatch",
    "LiveDirectory",
    "is_selective",
    "open_directory",
    "read_recordings",
]

SHOWN: Final = 20
"""Ids in an error text; enough to notice a typo."""


def open_directory(options: ArchiveOptions, *, clock: Clock | None = None) -> ReadableDirectory:
    """Return the directory of the archive, or its replacement with `access=replay`.

    Args:
        options: Options of the query.
        clock: Tells the replacement when to ask the archive again.

    Raises:
        ConfigurationError: There is no such directory.
    """
    if options.access == REPLAY:
        # Imported here because it starts a driver, and few queries need it.
        from aeron_async.spark.replayed_archive import ReplayedDirectory  # noqa: PLC0415

        return ReplayedDirectory(options, clock=clock)
    return directory_at(options.path)


def read_recordings(
    directory: ReadableDirectory, options: ArchiveOptions
) -> dict[int, RecordingDescriptor]:
    """Return the recordings that a query selects, in order of id.

    Raises:
        ConfigurationError: There is no catalog, or the archive does not answer.
        UnknownRecordingError: A recording given by id does not exist.
        ArchiveFileError: The catalog is damaged.
    """
    watch = CatalogWatch(directory, options)
    watch.look()
    watch.check_named()
    return watch.selected


@runtime_checkable
class LiveDirectory(Protocol):
    """A directory whose live archive says which recordings it has, and how far they go."""

    def recordings(self) -> Mapping[int, RecordingDescriptor]:
        """Return the recordings by id, in order; the same object if it has not asked again."""
        ...

    def recorded(self, descriptor: RecordingDescriptor) -> int:
        """Return the current end of a recording, in bytes."""
        ...


def is_selective(options: ArchiveOptions) -> bool:
    """Return whether a query selects some recordings, and not all."""
    given = (options.recording_ids, options.stream_id, options.channel, options.channel_pattern)
    return any(each is not None for each in given)


def selector(options: ArchiveOptions) -> Callable[[RecordingDescriptor], bool]:
    """Return a function that tells whether a query selects a recording."""
    channel = options.channel
    if channel is not None:
        channel = stripped_channel(ChannelUri.parse(channel))
    pattern = None if options.channel_pattern is None else re.compile(options.channel_pattern)

    def is_meant(each: RecordingDescriptor) -> bool:
        return (
            (options.stream_id is None or each.stream_id == options.stream_id)
            and (options.stream_ids is None or each.stream_id in options.stream_ids)
            and (channel is None or each.stripped_channel == channel)
            and (pattern is None or pattern.fullmatch(each.stripped_channel) is not None)
        )

    return is_meant


def file_of(data: bytearray) -> StoredFile:
    """Return the bytes of a catalog as a file."""
    return StoredFile(CATALOG_NAME, pa.BufferReader(pa.py_buffer(data)))


def descriptor_in(data: bytearray, offset: int) -> RecordingDescriptor | None:
    """Return the descriptor in the entry at an offset; None if the entry is not valid."""
    length, state, _ = ENTRY_HEADER.unpack_from(data, offset)
    if state != RecordingState.VALID:
        return None
    at = offset + ENTRY_HEADER_LENGTH
    return decode_descriptor(memoryview(data)[at : at + length], file=CATALOG_NAME, offset=at)


@final
class CatalogWatch:
    """The recordings of an archive and the selection of a query, kept up to date.

    Attributes:
        recordings: All recordings by id, in order.
        selected: Those that the query selects, in order.
    """

    def __init__(self, directory: ReadableDirectory, options: ArchiveOptions) -> None:
        self._directory = directory
        self._ids = None if options.recording_ids is None else set(options.recording_ids)
        self._is_meant = selector(options)
        self._bytes = ReadAgain()
        self._listed: Mapping[int, RecordingDescriptor] = {}
        # Where each entry begins, valid or not, and where the last one ends.
        self._starts: list[int] = []
        self._entry_ids: list[int] = []
        self._end = 0
        self.recordings: dict[int, RecordingDescriptor] = {}
        self.selected: dict[int, RecordingDescriptor] = {}

    def look(self) -> set[int]:
        """Update the recordings; return the ids of those that are new, have changed or are gone.

        Raises:
            ConfigurationError: The catalog is gone.
            ArchiveFileError: The catalog is damaged.
        """
        if isinstance(self._directory, LiveDirectory):
            listed = self._directory.recordings()
            if listed is self._listed:
                return set()
            self._listed = listed
            return self._take({**dict.fromkeys(self.recordings), **listed})
        is_other = self._read()
        if self._end and not is_other:
            return set()
        # Forgotten meanwhile: a catalog that is damaged is read as a whole the next time, too.
        end, self._end = self._end, 0
        data = self._bytes.data
        found = self._changed(end, self._bytes.before, data) if end else None
        return self._take(self._whole(data) if found is None else found)

    def check_named(self) -> None:
        """Refuse the id of a recording that does not exist.

        Raises:
            UnknownRecordingError: A recording given by id does not exist.
        """
        for recording_id in sorted(self._ids or ()):
            if recording_id not in self.recordings:
                ids = list(self.recordings)
                more = ", ..." if len(ids) > SHOWN else ""
                message = (
                    f"no recording has the id {recording_id} in {self._directory.path}, which has "
                    f"{', '.join(map(str, ids[:SHOWN])) + more or 'none'}: change recordingIds"
                )
                raise UnknownRecordingError(message)

    def _take(self, found: Mapping[int, RecordingDescriptor | None]) -> set[int]:
        """Update the recordings by descriptors, None for one that is gone."""
        changed = set()
        for recording_id, each in found.items():
            if self.recordings.get(recording_id) == each:
                continue
            changed.add(recording_id)
            if each is None:
                del self.recordings[recording_id]
                self.selected.pop(recording_id, None)
                continue
            self.recordings[recording_id] = each
            if (self._ids is None or recording_id in self._ids) and self._is_meant(each):
                self.selected[recording_id] = each
        return changed

    def _whole(self, data: bytearray) -> dict[int, RecordingDescriptor | None]:
        """Return all descriptors of a catalog, and None for recordings that are gone."""
        header = read_header(file_of(data))
        self._starts, self._entry_ids = [], []
        found = self._added(header.first_offset, data, header)
        return {**dict.fromkeys(self.recordings), **found}

    def _added(
        self, end: int, data: bytearray, header: CatalogHeader
    ) -> dict[int, RecordingDescriptor | None]:
        """Return the descriptors of the entries from an offset on."""
        found = {}
        for entry in scan_entries(file_of(data), attrs.evolve(header, first_offset=end)):
            self._starts.append(entry.offset)
            self._entry_ids.append(entry.recording_id)
            end = entry.offset + entry.length
            found[entry.recording_id] = descriptor_in(data, entry.offset)
        self._end = end
        return found

    def _changed(
        self, end: int, before: bytearray, data: bytearray
    ) -> dict[int, RecordingDescriptor | None] | None:
        """Return the descriptors that have changed since the last look; None if all may have."""
        if not self._starts or min(len(before), len(data)) < end:
            return None
        old, new = (np.frombuffer(memoryview(each)[:end], "<i8") for each in (before, data))
        places = np.flatnonzero(old != new) * old.itemsize
        # In the header, the id of the next recording may change, and nothing else.
        if np.any((places < self._starts[0]) & (places != NEXT_ID_OFFSET)):
            return None
        found: dict[int, RecordingDescriptor | None] = {}
        numbers = np.searchsorted(self._starts, places[places >= self._starts[0]], "right") - 1
        for number in np.unique(numbers).tolist():
            start, recording_id = self._starts[number], self._entry_ids[number]
            each = descriptor_in(data, start)
            is_same_length = data[start : start + 4] == before[start : start + 4]
            if not is_same_length or (each is not None and each.recording_id != recording_id):
                return None
            found[recording_id] = each
        return found | self._added(end, data, read_header(file_of(data)))

    def _read(self) -> bool:
        """Read the entries of the catalog; return whether they are others than before.

        The file is longer than its entries. What lies behind them is read only if it is no longer
        zero.
        """
        try:
            file = self._directory.open_to_read(CATALOG_NAME)
        except FileNotFoundError as error:
            message = (
                f"path={self._directory.path!r} has no archive.catalog, so it is no directory of "
                "an archive: change path"
            )
            raise ConfigurationError(message) from error
        try:
            length = file.length()
            if not self._end:
                return self._bytes.read(file, 0, length)
            is_other = self._bytes.read(file, 0, min(self._end + ENTRY_HEADER_LENGTH, length))
            if any(self._bytes.data[self._end :]):
                # Read into other memory: what was there before the first of both reads is needed.
                before, self._bytes.before = self._bytes.before, bytearray()
                self._bytes.read(file, 0, length)
                self._bytes.before = before
            return is_other
        finally:
            file.close()
