"""Where blocking work on the disk is done: off the event loop, or for simulated worlds at once.

Invariant: what was begun is done before its caller goes on, cancelled or not. The memory that it
reads belongs to somebody, who may take it back then.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Disk", "DiskThreads", "InlineDisk", "finished"]

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
