"""Blocking work off the event loop: threads for the disk, and an asynchronous catalog.

Invariant: `Disk.run` returns only when the work is done, even if the caller is cancelled. The work
reads memory of another object, which may reuse that memory afterwards.
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
    "AsyncCatalog",
    "Disk",
    "DiskThreads",
    "InlineDisk",
    "finished",
]

DEFAULT_THREAD_COUNT: Final = 4

Result = TypeVar("Result")


class Disk(Protocol):
    """Executor of blocking work.

    Attributes:
        is_off_loop: Whether the work runs off the event loop, which continues while it runs.
    """

    is_off_loop: bool

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function, and return its result once it is done."""
        ...

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Start a call, and return the future of its result; see `finished`."""
        ...

    async def aclose(self) -> None:
        """Wait for the calls that were started, and refuse new ones."""
        ...


async def finished(future: asyncio.Future[Result]) -> Result:
    """Wait until work is done, even if cancelled, and return its result.

    A cancellation is raised when the work is done.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as error:
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                # Cancelled again; the cancellation is raised below.
                continue
        # The caller gets the cancellation. To read the error marks it as retrieved; otherwise the
        # loop would log "exception was never retrieved".
        future.exception()
        raise error from None


@final
class DiskThreads:
    """Disk work in a few threads of its own.

    Args:
        thread_count: Most calls at once.
    """

    is_off_loop = True

    def __init__(self, thread_count: int = DEFAULT_THREAD_COUNT) -> None:
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix="aeron-archive-disk")
        self._is_closed = False

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Start a call in a thread; see `Disk.begin`.

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
        """Wait for the calls that were started, and end the threads."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        # In a thread of the loop: a thread of the pool cannot wait for its own end.
        await finished(loop.run_in_executor(None, self._pool.shutdown))


@final
class InlineDisk:
    """Disk work in the caller's own thread, for simulations in virtual time."""

    is_off_loop = False

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Call a function now; see `Disk.begin`."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function(*args, **keywords))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        return future

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function now; see `Disk.run`."""
        return function(*args, **keywords)

    async def aclose(self) -> None:
        """Do nothing: no call is ever in progress."""


SHORTEST_PAGE: Final = 16
LONGEST_PAGE: Final = 1_024
"""Most recordings read in one call: switching threads once costs as much as reading many."""


@final
class AsyncCatalog:
    """Gives one task at a time access to a catalog.

    Args:
        catalog: Catalog, open for writing.
        disk: Runs the work.
        path: Path of its directory, for error texts.
    """

    def __init__(self, catalog: Catalog, disk: Disk, *, path: str) -> None:
        # Its methods block, and need the lock: use `call`, unless they read memory only.
        self.blocking: Catalog = catalog
        self._path = path
        self._disk = disk
        self._lock = asyncio.Lock()

    def __contains__(self, recording_id: object) -> bool:
        return recording_id in self.blocking

    async def call(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function that uses the catalog, under the catalog's lock.

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
        """Call a function as `call` does, unless a check raises that runs under the lock.

        The check sees what other tasks have started while this one waited for the lock.
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
                f"the catalog in {self._path}, or a file of a recording, could not be used: "
                f"{reason_of(error)}"
            )
            raise StorageError(message, code=code_of(error)) from error

    async def get(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording; see `Catalog.get`."""
        return await self.call(self.blocking.get, recording_id)

    async def add(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Add a recording; see `Catalog.add`."""
        return await self.call(self.blocking.add, descriptor)

    async def update(self, recording_id: int, **changes: Any) -> RecordingDescriptor:
        """Change the entry of a recording; see `Catalog.update`."""
        return await self.call(self.blocking.update, recording_id, **changes)

    async def descriptors(
        self, start: int, *, is_wanted: Callable[[RecordingDescriptor], bool] | None = None
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over descriptors, in the order of their ids, beginning with one id.

        A page of them is read at once; a recording purged after that may still be yielded.

        Args:
            start: The first id.
            is_wanted: Filter, called in the thread of the disk; all recordings if not given.

        Raises:
            ArchiveFileError: An entry is damaged; those before it were yielded.
            StorageError: The disk failed.
        """
        length, following = SHORTEST_PAGE, self.following(start)
        while following is not None:
            page = await self.call(read_page, self.blocking, following, length, is_wanted)
            for each in page.found:
                yield each
            if page.error is not None:
                raise page.error
            following = self.following(page.following)
            length = min(2 * length, LONGEST_PAGE)

    def following(self, recording_id: int) -> int | None:
        """Return the first known id not less than `recording_id`, or None; needs no disk."""
        return next(self.blocking.ids(recording_id), None)


@attrs.frozen
class Page:
    """A page of consecutive recordings.

    Attributes:
        found: Descriptors that the filter accepted.
        following: The id after the last one that was read.
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
    """Read a page of descriptors, up to a damaged one."""
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
