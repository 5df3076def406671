"""A disk that lets one piece of work wait, so that others come in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, final

from aeron_async.archive.disk_access import DiskThreads, finished

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HeldDisk"]

Result = TypeVar("Result")


@final
class HeldDisk:
    """Threads, of which one waits before it does what it was told to hold.

    Attributes:
        is_holding: Set once something is held.
        may_go_on: To be set for it to be done.
    """

    is_off_loop = True

    def __init__(self) -> None:
        self._threads = DiskThreads()
        self._names: frozenset[str] = frozenset()
        self.is_holding = asyncio.Event()
        self.may_go_on = asyncio.Event()

    def hold(self, *names: str) -> None:
        """Let the next call of one of these functions wait."""
        self._names = frozenset(names)
        self.is_holding.clear()
        self.may_go_on.clear()

    def begin(
        self, function: Callable[..., Result], /, *args: Any, **keywords: Any
    ) -> asyncio.Future[Result]:
        """Let a function be called; see `Disk.begin`."""
        if getattr(function, "__name__", "") not in self._names:
            return self._threads.begin(function, *args, **keywords)
        self._names = frozenset()
        return asyncio.ensure_future(self._later(function, args, keywords))

    async def _later(
        self, function: Callable[..., Result], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Result:
        self.is_holding.set()
        await self.may_go_on.wait()
        return await self._threads.run(function, *args, **keywords)

    async def run(self, function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
        """Call a function; see `Disk.run`."""
        return await finished(self.begin(function, *args, **keywords))

    async def aclose(self) -> None:
        """Wait for what was begun; see `Disk.aclose`."""
        await self._threads.aclose()
