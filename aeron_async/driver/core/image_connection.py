"""The sources of one image: where they are, when they were heard, and whether they have ended.

A unicast or multicast image has one; a subscription with several destinations has one for each.

Source: Aeron `ImageConnection`, `aeron_publication_image_track_connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.outbox import Address, ReceiveDestination

__all__ = ["NEVER_HEARD_NS", "ImageConnection", "ImageConnections"]

NEVER_HEARD_NS: Final = -(2**63)


class ImageConnection:
    """What an image knows of one of its sources.

    Args:
        destination: By which way it is heard, and answered.
        source: Where its datagrams come from.
        now_ns: The time now.

    Attributes:
        last_activity_ns: When anything was heard of it.
        is_new: Whether the image does not know it yet.
    """

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
        self.last_activity_ns: int = now_ns
        self.is_end_of_stream: bool = False
        self.is_new: bool = False
        self.eos_position: int = 0

    def is_alive(self, now_ns: int) -> bool:
        """Return whether the source was heard recently enough to be answered."""
        return now_ns < self.last_activity_ns + DESTINATION_TIMEOUT_NS

    def send(self, frame: bytes) -> bool:
        """Send a control frame to the source, or to where it wants to hear of us."""
        destination = self.destination
        return destination.send_to(frame, destination.control_address or self.source)


class ImageConnections:
    """Every source of one image, by the way it is heard.

    There are at most as many as there are destinations, and it is the subscription that adds those.

    Args:
        destination: By which way the first SETUP came.
        source: From where.
        now_ns: The time now.
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
        """Return what is known of a source, or None where that way leads to another one.

        The first that is heard to some purpose has a way, and is `kept` then. Of several ways one
        that has fallen silent is free for the next: its twin has kept the stream alive meanwhile.
        The only way stays its source's until the image ends, for nothing tells another publisher
        of the same session from it.
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
        """Let a way lead to a new source, if anything of it was accepted."""
        if connection.last_activity_ns != NEVER_HEARD_NS:
            connection.is_new = False
            self._connections[connection.destination] = connection
            self._awaited.discard(connection.destination)

    def expect(self, destination: ReceiveDestination) -> None:
        """Let the stream not end before a source has ended it that is yet to be heard."""
        if destination not in self._connections:
            self._awaited.add(destination)

    def remove(self, destination: ReceiveDestination) -> None:
        """Forget the source that was heard that way."""
        self._connections.pop(destination, None)
        self._awaited.discard(destination)

    @property
    def eos_position(self) -> int | None:
        """Return where the stream ends, in bytes, once every source has said so."""
        if self._awaited or not all(each.is_end_of_stream for each in self):
            return None
        return max((each.eos_position for each in self), default=None)

    def active_count(self, now_ns: int, timeout_ns: int) -> int:
        """Return how many sources were heard within the timeout that ends images."""
        return sum(now_ns < each.last_activity_ns + timeout_ns for each in self)

    def live_count(self, now_ns: int) -> int:
        """Return how many sources there are to ask."""
        return sum(each.is_alive(now_ns) for each in self)

    def has_spoken_since(self, time_ns: int) -> bool:
        """Return whether any source was heard after a time."""
        return any(each.last_activity_ns > time_ns for each in self._connections.values())

    def send_to_live(self, frame: bytes, now_ns: int) -> tuple[int, int]:
        """Send to every source heard recently; return how often it could leave, and not leave."""
        outcomes = [
            each.send(frame) for each in self._connections.values() if each.is_alive(now_ns)
        ]
        sent_count = sum(outcomes)
        return sent_count, len(outcomes) - sent_count

    def send_to_all(self, frame: bytes) -> int:
        """Send to every source, however silent; return how often it could leave."""
        return sum(each.send(frame) for each in self._connections.values())
