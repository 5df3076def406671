"""One client of a door: its socket, what it is to be sent, and what it watches.

Invariant: one state at most waits for a client, and a client that does not read is dropped.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.door_socket import close_in_child

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

__all__ = ["REQUEST_MAX", "DoorConnection", "DoorWatch", "Line"]

REQUEST_MAX: Final = 4 * 1024
"""Longest line of a client, in bytes."""
READ_TIMEOUT_S: Final = 5.0
"""How long a client may take to read one chunk."""

Line = tuple[bytes, ...]


@final
class DoorConnection:
    """One client of a door, and what it is to be sent.

    Attributes:
        watch: What it watches.
        is_slow: Whether it was dropped because it did not read.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._writer: asyncio.StreamWriter | None = None
        self._sending = asyncio.Lock()
        self._pending: Line | None = None
        self._arrived = asyncio.Event()
        self.watch: DoorWatch | None = None
        self._is_closed = False
        self.is_slow = False
        self.is_pushing = False

    async def open(self) -> asyncio.StreamReader:
        """Return what the client sends."""
        reader, self._writer = await asyncio.open_unix_connection(
            sock=self._sock, limit=REQUEST_MAX
        )
        return reader

    async def send(self, line: Iterable[bytes]) -> None:
        """Send a line; another one waits until all of it is written.

        Raises:
            OSError: The client is gone, or was dropped because it does not read.
        """
        assert self._writer is not None
        async with self._sending:
            for chunk in line:
                self._writer.write(chunk)
                try:
                    async with asyncio.timeout(READ_TIMEOUT_S):
                        await self._writer.drain()
                except TimeoutError:
                    self.is_slow = True
                    self.close()
                    raise
                await asyncio.sleep(0)

    def offer(self, line: Line) -> bool:
        """Have a state sent as soon as the client reads; return whether it replaced an older."""
        is_replaced = self._pending is not None
        self._pending = line
        self._arrived.set()
        return is_replaced

    def forget(self) -> None:
        """Send no state that still waits."""
        self._pending = None
        self._arrived.clear()

    async def push(self) -> None:
        """Send states as they come, until the client is gone."""
        with suppress(OSError):
            while not self._is_closed:
                await self._arrived.wait()
                self._arrived.clear()
                line, self._pending = self._pending, None
                if line is not None:
                    await self.send(line)
        self.close()

    def on_forked(self) -> None:
        """Leave the client to the parent; called in a child process."""
        self._is_closed = True
        # A socket that is closed has no number.
        if (descriptor := self._sock.fileno()) >= 0:
            close_in_child(descriptor)

    def close(self) -> None:
        """Close the connection at once; what waits to be written is lost."""
        self._is_closed = True
        self._arrived.set()
        if self._writer is not None:
            self._writer.transport.abort()
        self._sock.close()


@final
class DoorWatch:
    """The clients that look at one interval, the line that they were last sent, and its time."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms: Final = interval_ms
        self.shown_ns = 0
        self.connections: dict[DoorConnection, None] = {}
        self.latest: Line | None = None
        self.task: asyncio.Task[None] | None = None
