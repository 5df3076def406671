"""Everything that happened to every datagram, as a hash to compare and as events to look at.

Nothing is kept: a listener that wants to keep something says how much.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final

from aeron_async.driver.media.sockets import SocketAddress

__all__ = ["Trace", "Verdict", "Watcher"]

EVENT: Final = Struct("<qBHHI")


class Verdict(IntEnum):
    """What happened to a datagram at one place of its way."""

    SENT = 0
    """It is on its way; what arrives of it is told by `DELIVERED`."""
    DELIVERED = 1
    """It was read by whoever owns the socket."""
    LOST = 2
    PARTITIONED = 3
    QUEUE_FULL = 4
    TOO_LONG = 5
    """Longer than the link carries."""
    NO_ROUTE = 6
    """No host has the address."""
    NO_SOCKET = 7
    """The host has no socket there; a connected sender is told that it was refused."""
    NOT_THE_PEER = 8
    """The socket is connected to somebody else."""
    BUFFER_FULL = 9
    """The socket's receive buffer was full."""
    REFUSED = 10
    """The sender's own system refused it."""


Watcher = Callable[[int, Verdict, SocketAddress, SocketAddress, bytes], None]
"""Told of the time in nanoseconds, the verdict, the source, the destination, and the bytes."""


class Trace:
    """The events of one network.

    Attributes:
        counts: How many events of each verdict.
    """

    def __init__(self) -> None:
        self.counts = [0] * len(Verdict)
        self._hash = blake2b(digest_size=16)
        self._watchers: list[Watcher] = []

    def note(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        """Take note of an event."""
        self.counts[verdict] += 1
        self._hash.update(
            EVENT.pack(now_ns, verdict, source[1], destination[1], len(datagram)) + datagram
        )
        for watcher in self._watchers:
            watcher(now_ns, verdict, source, destination, datagram)

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of every event from now on: time, verdict, source, destination, bytes."""
        self._watchers.append(watcher)

    def digest(self) -> str:
        """Return the hash of all events so far; two runs that agree in it did the same."""
        return self._hash.hexdigest()
