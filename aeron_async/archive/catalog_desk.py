"""The catalog, for tasks: one piece of work after the other, off the event loop."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import attrs

from aeron_async.archive.disk.disk_errors import code_of, reason_of
from aeron_async.errors import (
    ArchiveError,
    ArchiveFileError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.archive.disk.catalog import Catalog
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk_threads import Disk

__all__ = ["CatalogDesk"]

Result = TypeVar("Result")
SHORTEST_PAGE: Final = 16
LONGEST_PAGE: Final = 1_024
"""Recordings that are read in one go: a turn of threads costs as much as reading many."""


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
            return await self._run(function, *args, **keywords)

    async def call_checked(
        self,
        check: Callable[[], object],
        function: Callable[..., Result],
        /,
        *args: Any,
        **keywords: Any,
    ) -> Result:
        """Call a function, as `call`, unless a check raises that is made when its turn has come.

        What somebody has begun meanwhile who knows the catalog as it is now is seen by the check.
        """
        async with self._lock:
            check()
            return await self._run(function, *args, **keywords)

    async def _run(self, function: Callable[..., Result], *args: Any, **keywords: Any) -> Result:
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

    async def descriptors(
        self, start: int, *, is_wanted: Callable[[RecordingDescriptor], bool] | None = None
    ) -> AsyncIterator[RecordingDescriptor]:
        """Walk what is known of recordings, in the order of their ids, from one on.

        A page of them is read at once; one that is purged after that may still come.

        Args:
            start: The first id.
            is_wanted: Whether one is to come, asked wherever the disk is used; all when not given.

        Raises:
            ArchiveFileError: An entry is damaged; those before it have come.
            StorageError: The disk failed.
        """
        length, following = SHORTEST_PAGE, self.following(start)
        while following is not None:
            page = await self.call(read_page, self.catalog, following, length, is_wanted)
            for each in page.found:
                yield each
            if page.error is not None:
                raise page.error
            following = self.following(page.following)
            length = min(2 * length, LONGEST_PAGE)

    def following(self, recording_id: int) -> int | None:
        """Return the first id from one on, or None; it is looked up in memory."""
        return next(self.catalog.ids(recording_id), None)


@attrs.frozen
class Page:
    """Some recordings that follow one another.

    Attributes:
        found: Those that are wanted.
        following: The id behind the last that was looked at.
        error: Why the next one cannot be read.
    """

    found: list[RecordingDescriptor]
    following: int
    error: ArchiveFileError | None


def read_page(
    catalog: Catalog,
    start: int,
    length: int,
    is_wanted: Callable[[RecordingDescriptor], bool] | None,
) -> Page:
    """Return what is wanted of so many recordings, up to one that is damaged."""
    found: list[RecordingDescriptor] = []
    following = start
    for recording_id in islice(catalog.ids(start), length):
        following = recording_id + 1
        try:
            descriptor = catalog.get(recording_id)
        except ArchiveFileError as error:
            return Page(found, following, error)
        if is_wanted is None or is_wanted(descriptor):
            found.append(descriptor)
    return Page(found, following, None)
