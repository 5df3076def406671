"""Where views get their statistics: the door of a process, or the Aeron directory of a driver.

A source is opened by its first look, and again after a failure: what it looks at may come later,
go, and come back. A directory is looked at by the door in it, if its driver has opened one; that
knows more than its counters do.

Invariant: a door in a directory that does not answer holds one look up. Later looks take the
counters at once, and the door is asked in the background, at most once in `DOOR_PAUSE_S`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

from aeron_async.door import DoorClient
from aeron_async.door_socket import check_path
from aeron_async.driver.counter_stats import CncSource
from aeron_async.driver.media_driver import DOOR_NAME
from aeron_async.errors import AeronError, AeronTimeoutError
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from aeron_async.cli.top_model import StatsSource
    from aeron_async.stats import Stats

__all__ = ["DirectorySource", "DoorSource", "open_source"]

DOOR_TIMEOUT_S: Final = 5.0
"""How long a door may take to greet, and how long to answer."""
DIRECTORY_DOOR_TIMEOUT_S: Final = 2.0
"""The same of the door in a directory: views wait 5 s, and there must be time for the counters."""
DOOR_PAUSE_S: Final = 30.0
"""How long the door in a directory is left alone after it has not answered."""
DOOR_SILENT: Final = "its door does not answer, and less is known from its counters"


def open_source(kind: Literal["door", "directory"], place: str) -> StatsSource:
    """Return a source of the snapshots of one driver; it connects when it is first asked.

    Raises:
        ConfigurationError: The path of the door is longer than the system allows.
    """
    return DoorSource(place) if kind == "door" else DirectorySource(place)


@final
class DoorSource:
    """The door of a process; it is opened by the first look, and again after a failure.

    Args:
        path: The door.
        timeout: Seconds that its greeting, and each answer, may take.
    """

    def __init__(self, path: str, *, timeout: float = DOOR_TIMEOUT_S) -> None:
        self.name: Final = path
        self.remark: Final = ""
        self._timeout = timeout
        self._door: DoorClient | None = None
        self._path = check_path(path)

    async def take(self) -> Stats:
        """Return a new snapshot.

        Raises:
            AeronError: There is no door, or it does not answer as it must.
        """
        try:
            if self._door is None:
                door = DoorClient(self._path, timeout=self._timeout)
                self._door = await door.__aenter__()
            return await self._door.get_stats()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Leave the door."""
        door, self._door = self._door, None
        if door is not None:
            await door.aclose()


@final
class DirectorySource:
    """The Aeron directory of a driver: the door in it, or else its counters."""

    def __init__(self, directory: str) -> None:
        self.name: Final = directory
        self._counters = CncSource(directory)
        self._door_path = Path(directory) / DOOR_NAME
        self._door: DoorSource | None = None
        self._is_silent = False
        self._again_s = 0.0
        self._tasks = TaskOwner()

    @property
    def remark(self) -> str:
        """Return that the door does not answer; empty if it does, or if there is none."""
        return DOOR_SILENT if self._is_silent else ""

    async def take(self) -> Stats:
        """Return a new snapshot.

        Raises:
            AeronError: There is no driver, or its files cannot be read.
        """
        if self._is_silent:
            if not self._tasks and asyncio.get_running_loop().time() >= self._again_s:
                self._tasks.start(self._take_by_door(), "a view asks a silent door")
        elif (stats := await self._take_by_door()) is not None:
            return stats
        return self._counters.take()

    async def _take_by_door(self) -> Stats | None:
        """Return what the door in the directory says; None if there is no door that answers."""
        door, self._door = self._door, None
        if door is None:
            if not self._door_path.is_socket():
                self._is_silent = False
                return None
            door = DoorSource(str(self._door_path), timeout=DIRECTORY_DOOR_TIMEOUT_S)
        try:
            stats = await door.take()
        except AeronTimeoutError:
            self._is_silent = True
            self._again_s = asyncio.get_running_loop().time() + DOOR_PAUSE_S
            return None
        except AeronError:
            # It is of a driver that has died, or has no room for one more client.
            self._is_silent = False
            return None
        self._door, self._is_silent = door, False
        return stats

    async def aclose(self) -> None:
        """Leave the door, and close the files."""
        await self._tasks.aclose()
        self._counters.close()
        if self._door is not None:
            await self._door.aclose()
            self._door = None
