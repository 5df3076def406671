"""Recordings that a query selects, read again when the catalog changes.

The bytes of the catalog tell whether it changed. The modification time of the file does not: the
official archive writes through mapped memory, and the system updates that time later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, final, runtime_checkable

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.recording_channels import stripped_channel
from aeron_async.errors import ConfigurationError, UnknownRecordingError
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.spark.options import REPLAY, ArchiveAccess
from aeron_async.spark.stored_archive import directory_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "CatalogWatch",
    "Listing",
    "is_selective",
    "open_catalog",
    "open_directory",
    "read_recordings",
]


def open_directory(options: ArchiveOptions, *, clock: Clock | None = None) -> Directory:
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

        return ReplayedDirectory(ArchiveAccess.of(options), clock=clock)
    return directory_at(options.path)


def read_recordings(
    directory: Directory, options: ArchiveOptions
) -> dict[int, RecordingDescriptor]:
    """Return the recordings that a query selects by id, in order of id.

    Raises:
        ConfigurationError: There is no catalog, or the archive does not answer.
        UnknownRecordingError: A recording given by id does not exist.
        ArchiveFileError: The catalog is damaged.
    """
    catalog = open_catalog(directory)
    try:
        ids = list(catalog.ids()) if options.recording_ids is None else options.recording_ids
        is_meant = selector(options)
        found = {}
        for recording_id in sorted(set(ids)):
            if recording_id not in catalog:
                raise UnknownRecordingError(unknown(recording_id, directory, catalog))
            descriptor = catalog.get(recording_id)
            if is_meant(descriptor):
                found[recording_id] = descriptor
        return found
    finally:
        catalog.close()


class OpenCatalog(Protocol):
    """A source of recording descriptors."""

    def ids(self) -> Iterable[int]:
        """Return the ids of the recordings, in order."""
        ...

    def __contains__(self, recording_id: object) -> bool: ...

    def get(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording."""
        ...

    def close(self) -> None:
        """Close the underlying file."""
        ...


@final
class ListedCatalog:
    """Recordings that a live archive has listed; see `OpenCatalog`."""

    def __init__(self, recordings: Mapping[int, RecordingDescriptor]) -> None:
        self._recordings = recordings

    def ids(self) -> Iterable[int]:
        """Return the ids of the recordings, in order."""
        return list(self._recordings)

    def __contains__(self, recording_id: object) -> bool:
        return recording_id in self._recordings

    def get(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording."""
        return self._recordings[recording_id]

    def close(self) -> None:
        """Do nothing: no file is open."""


@runtime_checkable
class Listing(Protocol):
    """A directory that lists its recordings itself."""

    def recordings(self) -> Mapping[int, RecordingDescriptor]:
        """Return the recordings by id, in order."""
        ...


def open_catalog(directory: Directory) -> OpenCatalog:
    """Return the catalog of an archive.

    Raises:
        ConfigurationError: There is no catalog, or the archive does not answer.
        ArchiveFileError: The catalog is damaged.
    """
    if isinstance(directory, Listing):
        return ListedCatalog(directory.recordings())
    try:
        return Catalog.open_to_read(directory)
    except FileNotFoundError as error:
        message = (
            f"path={directory.path!r} has no archive.catalog, so it is no directory of an archive: "
            "change path"
        )
        raise ConfigurationError(message) from error


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


def unknown(recording_id: int, directory: Directory, catalog: OpenCatalog) -> str:
    """Return the error text for an id that no recording has."""
    ids = list(catalog.ids())
    shown = ", ".join(map(str, ids[:20])) + (", ..." if len(ids) > 20 else "")  # noqa: PLR2004 - enough to notice a typo
    return (
        f"no recording has the id {recording_id} in {directory.path}, which has "
        f"{shown or 'none'}: change recordingIds"
    )


@final
class CatalogWatch:
    """The recordings of an archive and the selection of a query, kept up to date.

    Attributes:
        recordings: All recordings by id, in order.
        selected: Those that the query selects.
    """

    def __init__(self, directory: Directory, options: ArchiveOptions) -> None:
        self._directory = directory
        self._ids = None if options.recording_ids is None else set(options.recording_ids)
        self._is_meant = selector(options)
        self._state: object = None
        self.recordings: dict[int, RecordingDescriptor] = {}
        self.selected: dict[int, RecordingDescriptor] = {}

    def look(self) -> None:
        """Update the recordings if the catalog has changed.

        Raises:
            ConfigurationError: The catalog is gone.
            ArchiveFileError: The catalog is damaged.
        """
        found = self._read()
        if found == self._state:
            return
        catalog = open_catalog(self._directory)
        try:
            self.recordings = {each: catalog.get(each) for each in catalog.ids()}
        finally:
            catalog.close()
        self.selected = {
            recording_id: each
            for recording_id, each in self.recordings.items()
            if (self._ids is None or recording_id in self._ids) and self._is_meant(each)
        }
        # The state from before the catalog was read: a change during the read is found the next
        # time.
        self._state = found

    def _read(self) -> object:
        """Return a value that changes whenever the catalog does."""
        if isinstance(self._directory, Listing):
            return dict(self._directory.recordings())
        try:
            file = self._directory.open_to_read(CATALOG_NAME)
        except FileNotFoundError as error:
            message = (
                f"path={self._directory.path!r} has no archive.catalog, so it is no directory of "
                "an archive: change path"
            )
            raise ConfigurationError(message) from error
        try:
            buffer = bytearray(file.length())
            count = read_exactly(file, memoryview(buffer), 0)
        finally:
            file.close()
        return bytes(buffer[:count])
