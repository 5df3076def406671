"""The catalog, for tasks: one piece of work after the other, off the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, final

from aeron_async.archive.disk.disk_errors import code_of, reason_of
from aeron_async.errors import (
    ArchiveError,
    StorageError,
    UnknownRecordingError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.archive.disk.catalog import Catalog
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk_threads import Disk

__all__ = ["CatalogDesk"]

Result = TypeVar("Result")


@final
class CatalogDesk:
    """Lets one task at a time work on a catalog.

    Args:
        catalog: Open to write.
        disk: Where the work is done.
        path: What messages call its directory.
    """

    def __init__(self, catalog: Catalog, disk: Disk, *, path: str) -> None:
        self.catalog = catalog
        self._path = path
        self._disk = disk
        self._lock = asyncio.Lock()

    def __contains__(self, recording_id: object) -> bool:
        return recording_id in self.catalog

    async def call(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function that works on the catalog while nobody else does.

        Raises:
            StorageError: The disk is full, or failed.
        """
        async with self._lock:
            try:
                return await self._disk.run(function, *args, **keywords)
            except ArchiveError:
                raise
            except OSError as error:
                message = (
                    f"the catalog in {self._path}, or a file that it tells of, could not be used: "
                    f"{reason_of(error)}"
                )
                raise StorageError(message, code=code_of(error)) from error

    async def get(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording; see `Catalog.get`."""
        return await self.call(self.catalog.get, recording_id)

    async def add(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Add a recording; see `Catalog.add`."""
        return await self.call(self.catalog.add, descriptor)

    async def update(self, recording_id: int, **changes: Any) -> RecordingDescriptor:
        """Change what is known of a recording; see `Catalog.update`."""
        return await self.call(self.catalog.update, recording_id, **changes)

    async def descriptors(self, start: int) -> AsyncIterator[RecordingDescriptor]:
        """Walk what is known of recordings, in the order of their ids, from one on."""
        recording_id = self.following(start)
        while recording_id is not None:
            # Not there when it is purged before this has its turn.
            with suppress(UnknownRecordingError):
                yield await self.get(recording_id)
            recording_id = self.following(recording_id + 1)

    def following(self, recording_id: int) -> int | None:
        """Return the first id from one on, or None; it is looked up in memory."""
        return next(self.catalog.ids(recording_id), None)
