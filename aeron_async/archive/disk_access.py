"""Blocking work off the event loop: threads for the disk, and the catalog behind them.

Invariant: work that a `Disk` has begun is done before its caller goes on, cancelled or not. The
memory that the work reads belongs to another object, which may take it back then.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import attrs

from aeron_async.archive.disk.files import code_of, reason_of
from aeron_async.errors import ArchiveError, ArchiveFileError, ClosedError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.archive.disk.catalog import Catalog
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = [
    "CatalogDesk",
    "Disk",
    "DiskThreads",
    "InlineDisk",
    "finished",
]

DEFAULT_THREAD_COUNT: Final = 4

Result = TypeVar("Result")


class Disk(Protocol):
    """Does blocking work for tasks.

    Attributes:
        is_apart: Whether that is done off the loop, which goes on meanwhile.
    """

    is_apart: bool

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function, and return what it returns once it is done."""
        ...

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Let a function be called, and return where its result will be; see `finished`."""
        ...

    async def aclose(self) -> None:
        """Wait for what was begun, and do nothing more."""
        ...


async def finished(future: asyncio.Future[Result]) -> Result:
    """Wait for work to be done, cancelled or not, and return its result.

    Cancellation is passed on when the work is done.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as error:
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                # Asked once more, and told below.
                continue
        # The error of work that nobody waits for any more is nobody's.
        future.exception()
        raise error from None


@final
class DiskThreads:
    """A few threads of its own.

    Args:
        thread_count: Most pieces of work at once.
    """

    is_apart = True

    def __init__(self, thread_count: int = DEFAULT_THREAD_COUNT) -> None:
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix="aeron-archive-disk")
        self._is_closed = False

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Let a function be called in a thread; see `Disk.begin`.

        Raises:
            ClosedError: The threads have ended.
        """
        if self._is_closed:
            message = "the archive is closed, and uses its disk no more"
            raise ClosedError(message)
        work = partial(function, *args, **keywords) if keywords else function
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, work, *(() if keywords else args))

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function in a thread; see `Disk.run`."""
        return await finished(self.begin(function, *args, **keywords))

    async def aclose(self) -> None:
        """Wait for what was begun, and let the threads end."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        # In a thread of the loop's own, for those that end cannot wait for themselves.
        await finished(loop.run_in_executor(None, self._pool.shutdown))


@final
class InlineDisk:
    """The caller's own thread: virtual time knows no others."""

    is_apart = False

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Call a function now; see `Disk.begin`."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function(*args, **keywords))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        return future

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function now; see `Disk.run`."""
        return function(*args, **keywords)

    async def aclose(self) -> None:
        """Do nothing: nothing is ever under way."""


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
