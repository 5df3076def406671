"""The sources of one image: their addresses, when each was heard, and whether each has ended.

A unicast or multicast image has one source; with several destinations it may have one for each.

Source: Aeron `ImageConnection`, `aeron_publication_image_track_connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.outbox import Address, ReceiveDestination, ReportBatch

__all__ = ["NEVER_HEARD_NS", "ImageConnection", "ImageConnections"]

NEVER_HEARD_NS: Final = -(2**63)


class ImageConnection:
    """One source of an image; answers go out by the destination that receives it."""

    __slots__ = (
        "destination",
        "eos_position",
        "is_end_of_stream",
        "is_new",
        "last_activity_ns",
        "source",
    )

    def __init__(self, destination: ReceiveDestination, source: Address, *, now_ns: int) -> None:
        self.destination: ReceiveDestination = destination
        self.source: Address = source
        # When a datagram of it was last accepted.
        self.last_activity_ns: int = now_ns
        self.is_end_of_stream: bool = False
        # Whether it is not among the image's connections yet.
        self.is_new: bool = False
        self.eos_position: int = 0

    def is_alive(self, now_ns: int) -> bool:
        """Return whether the source was heard recently enough to be sent to."""
        return now_ns < self.last_activity_ns + DESTINATION_TIMEOUT_NS

    def send(self, frame: bytes) -> bool:
        """Send a control frame to the source, or to its control address if one is configured."""
        destination = self.destination
        return destination.send_to(frame, destination.control_address or self.source)


class ImageConnections:
    """Every source of one image, by the destination that receives it.

    There are at most as many as destinations, which only the subscription adds.
    """

    __slots__ = ("_awaited", "_connections")

    def __init__(self, destination: ReceiveDestination, source: Address, *, now_ns: int) -> None:
        self._connections = {destination: ImageConnection(destination, source, now_ns=now_ns)}
        self._awaited: set[ReceiveDestination] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ImageConnection]:
        return iter(self._connections.values())

    def find(
        self, destination: ReceiveDestination, source: Address, now_ns: int
    ) -> ImageConnection | None:
        """Return the connection of a source, or None if the destination belongs to another one.

        The first source of which something is accepted takes the destination, by `keep`. If there
        are several connections, a destination whose source is silent may be taken by another
        source: the other connections keep the stream alive. A single connection keeps its source
        until the image ends, because nothing distinguishes another publisher of the same session.
        """
        connection = self._connections.get(destination)
        if connection is not None and connection.source == source:
            return connection
        if connection is None or (len(self._connections) > 1 and not connection.is_alive(now_ns)):
            connection = ImageConnection(destination, source, now_ns=NEVER_HEARD_NS)
            connection.is_new = True
            return connection
        return None

    def keep(self, connection: ImageConnection) -> None:
        """Store a new source, if anything of it was accepted."""
        if connection.last_activity_ns != NEVER_HEARD_NS:
            connection.is_new = False
            self._connections[connection.destination] = connection
            self._awaited.discard(connection.destination)

    def expect(self, destination: ReceiveDestination) -> None:
        """Let the stream not end before a source by this destination was heard and ended it."""
        if destination not in self._connections:
            self._awaited.add(destination)

    def remove(self, destination: ReceiveDestination) -> None:
        """Remove the source that this destination receives."""
        self._connections.pop(destination, None)
        self._awaited.discard(destination)

    @property
    def eos_position(self) -> int | None:
        """Return where the stream ends, in bytes, once every source has ended it; else None."""
        if self._awaited or not all(each.is_end_of_stream for each in self):
            return None
        return max((each.eos_position for each in self), default=None)

    def active_count(self, now_ns: int, timeout_ns: int) -> int:
        """Return how many sources were heard within the timeout that ends images."""
        count, oldest_ns = 0, now_ns - timeout_ns
        for each in self._connections.values():
            count += each.last_activity_ns > oldest_ns
        return count

    def live_count(self, now_ns: int) -> int:
        """Return how many sources are alive."""
        return sum(each.is_alive(now_ns) for each in self)

    def has_spoken_since(self, time_ns: int) -> bool:
        """Return whether any source was heard after `time_ns`."""
        return any(each.last_activity_ns > time_ns for each in self._connections.values())

    def send_to_live(self, frame: bytes, now_ns: int) -> tuple[int, int]:
        """Send to every live source; return how many sends succeeded and how many failed."""
        outcomes = [
            each.send(frame) for each in self._connections.values() if each.is_alive(now_ns)
        ]
        sent_count = sum(outcomes)
        return sent_count, len(outcomes) - sent_count

    def gather_for_live(
        self, frames: bytes, now_ns: int, batch: ReportBatch, *, length: int = 0
    ) -> None:
        """Let frames of one length, in bytes, leave with a batch to every live source.

        A length of 0 means a single frame.
        """
        for each in self._connections.values():
            if each.is_alive(now_ns):
                destination = each.destination
                address = destination.control_address or each.source
                batch.add(destination, address, frames, length)

    def send_to_all(self, frame: bytes) -> int:
        """Send to every source, even a silent one; return how many sends succeeded."""
        return sum(each.send(frame) for each in self._connections.values())
