"""The catalog of an archive, read again when it has changed.

Its bytes tell whether it has. The time of the file does not: the official archive writes through
mapped memory, and that time moves when the system gets round to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.catalog import CATALOG_NAME
from aeron_async.archive.disk.files import read_exactly
from aeron_async.errors import ConfigurationError
from aeron_async.spark.catalog_reading import Listing, open_catalog, selector

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["CatalogWatch"]


@final
class CatalogWatch:
    """Knows which recordings an archive has, and which of them a query means.

    Args:
        directory: Of the archive.
        options: Of the query.

    Attributes:
        recordings: All, by their ids, in order.
        selected: Those that are meant.
    """

    def __init__(self, directory: Directory, options: ArchiveOptions) -> None:
        self._directory = directory
        self._ids = None if options.recording_ids is None else set(options.recording_ids)
        self._is_meant = selector(options)
        self._state: object = None
        self.recordings: dict[int, RecordingDescriptor] = {}
        self.selected: dict[int, RecordingDescriptor] = {}

    def look(self) -> None:
        """Find out what there is now.

        Raises:
            ConfigurationError: There is no catalog any more.
            ArchiveFileError: It is damaged.
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
        # Of before it was read: what changed meanwhile is found the next time.
        self._state = found

    def _read(self) -> object:
        """Return what differs when the catalog does."""
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
