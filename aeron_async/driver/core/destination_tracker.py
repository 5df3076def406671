"""Where the datagrams of a multi-destination-cast channel go.

With `control-mode=dynamic` every receiver that speaks becomes a destination, and is one until it
has been silent for the timeout. With `control-mode=manual` the application says who they are, and
they never time out; one that falls silent may have moved, and its name is looked up again.

Source: Aeron `aeron_udp_destination_tracker.c`, `MultiSndDestination`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["DestinationTracker", "SendDestination"]


class SendDestination:
    """One receiver of the channel, or one group of them.

    Args:
        address: Where it is; None while its name leads nowhere.
        receiver_id: Its name for itself; None until it has spoken.
        uri: As the application gave it; None where it came by itself.
        registration_id: Of the request that added it; 0 where it came by itself.
        now_ns: The time now.

    Attributes:
        has_reported: Whether it has ever said how far it is in a stream of ours.
    """

    __slots__ = (
        "address",
        "has_reported",
        "last_activity_ns",
        "receiver_id",
        "registration_id",
        "uri",
    )

    def __init__(
        self,
        address: Address | None,
        *,
        receiver_id: int | None,
        uri: ChannelUri | None,
        registration_id: int,
        now_ns: int,
    ) -> None:
        self.address: Address | None = address
        self.receiver_id: int | None = receiver_id
        self.uri: ChannelUri | None = uri
        self.registration_id: int = registration_id
        self.last_activity_ns: int = now_ns
        self.has_reported: bool = False

    def is_spoken_for(self, receiver_id: int, source: Address) -> bool:
        """Return whether a status message comes from here.

        Once the receiver has told its id, its port and not its address has to agree: an address
        may be translated on the way.
        """
        if self.receiver_id is None:
            return self.address == source
        return (
            self.receiver_id == receiver_id
            and self.address is not None
            and self.address[1] == source[1]
        )


class DestinationTracker:
    """The destinations of one send endpoint.

    Args:
        is_manual: Whether the application says who they are; if not, they do.
        limit: Most destinations at once.
        count: Shows how many there are.
        refused: Counts receivers that were refused, or made way, because there were too many.
    """

    def __init__(self, *, is_manual: bool, limit: int, count: Counter, refused: Counter) -> None:
        self.is_manual = is_manual
        self._limit = limit
        self._count = count
        self._refused = refused
        self._destinations: list[SendDestination] = []
        # Every destination twice over, so that a rotation of them is one slice.
        self._addresses: list[Address] = []
        self._next_index = 0
        self._expiry_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._destinations)

    @property
    def destinations(self) -> Sequence[SendDestination]:
        """Return the destinations there are."""
        return tuple(self._destinations)

    def addresses(self, now_ns: int) -> Sequence[Address]:
        """Return where the next datagram goes: everywhere, beginning somewhere else each time."""
        if now_ns > self._expiry_ns:
            self._expire(now_ns)
        count = len(self._addresses) // 2
        index = self._next_index
        if index >= count:
            index = 0
        self._next_index = index + 1
        return self._addresses[index : index + count]

    def on_status_message(
        self, receiver_id: int, source: Address, now_ns: int, *, is_report: bool
    ) -> None:
        """Take note of a receiver that spoke.

        Args:
            receiver_id: Its name for itself.
            source: Where that came from.
            now_ns: The time now.
            is_report: Whether it said how far it is in a stream of ours; if not, it announced
                itself or asked for a SETUP, which anybody can.
        """
        for destination in self._destinations:
            if destination.is_spoken_for(receiver_id, source):
                destination.receiver_id = receiver_id
                destination.last_activity_ns = now_ns
                destination.has_reported = destination.has_reported or is_report
                return
        if self.is_manual or not self._make_room(now_ns):
            return
        destination = SendDestination(
            source, receiver_id=receiver_id, uri=None, registration_id=0, now_ns=now_ns
        )
        destination.has_reported = is_report
        self._destinations.append(destination)
        self._expiry_ns = min(self._expiry_ns, now_ns + DESTINATION_TIMEOUT_NS)
        self._on_changed()

    def registration_id_of(self, receiver_id: int, source: Address) -> int:
        """Return which request added the destination that something came from, or 0."""
        for destination in self._destinations:
            if destination.is_spoken_for(receiver_id, source):
                return destination.registration_id
        return 0

    def add(
        self, uri: ChannelUri, address: Address | None, registration_id: int, now_ns: int
    ) -> None:
        """Send to one more receiver from now on, or once its name leads anywhere.

        Raises:
            RegistrationError: There are as many as may be.
        """
        if len(self._destinations) >= self._limit:
            message = (
                f"destination {uri} would be number {len(self._destinations) + 1}, and the limit "
                f"is {self._limit}: remove others, or raise max_destinations"
            )
            raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)
        self._destinations.append(
            SendDestination(
                address, receiver_id=None, uri=uri, registration_id=registration_id, now_ns=now_ns
            )
        )
        self._on_changed()

    def remove(
        self,
        *,
        uri: ChannelUri | None = None,
        address: Address | None = None,
        registration_id: int = 0,
    ) -> bool:
        """Send to a receiver no more; return False where it was none.

        Args:
            uri: As it was added.
            address: Where it is.
            registration_id: Of the request that added it.
        """
        for index, destination in enumerate(self._destinations):
            if (
                destination.registration_id == registration_id
                or (uri is not None and destination.uri == uri)
                or (address is not None and destination.address == address)
            ):
                del self._destinations[index]
                self._on_changed()
                return True
        return False

    def move(self, destination: SendDestination, address: Address) -> None:
        """Send to where the name of a destination leads now; who answers there is not known."""
        destination.address = address
        destination.receiver_id = None
        self._on_changed()

    def _make_room(self, now_ns: int) -> bool:
        """Return whether there is a place for one more.

        Differs: Aeron takes any number, from anybody who sends a status message.
        """
        # Not before it is full: after a stall those that are there may not have been read yet.
        if len(self._destinations) >= self._limit:
            self._expire(now_ns)
        if len(self._destinations) < self._limit:
            return True
        self._refused.increment()
        # Announcements are cheap to forge. Whoever came first of those that sent nothing else has
        # had the longest to answer the SETUP that it was sent, and makes way.
        for index, destination in enumerate(self._destinations):
            if not destination.has_reported:
                del self._destinations[index]
                return True
        return False

    def _expire(self, now_ns: int) -> None:
        """Forget the receivers that came by themselves and were silent for too long."""
        if self.is_manual:
            return
        before = len(self._destinations)
        self._destinations = [
            each
            for each in self._destinations
            if now_ns <= each.last_activity_ns + DESTINATION_TIMEOUT_NS
        ]
        self._expiry_ns = min(
            (each.last_activity_ns + DESTINATION_TIMEOUT_NS for each in self._destinations),
            default=NEVER_NS,
        )
        if len(self._destinations) != before:
            self._on_changed()

    def _on_changed(self) -> None:
        self._addresses = [
            each.address for each in self._destinations if each.address is not None
        ] * 2
        self._count.set(len(self._destinations))
