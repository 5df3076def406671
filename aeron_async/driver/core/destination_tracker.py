"""The destinations of a multi-destination-cast publication.

With `control-mode=dynamic` every receiver that sends a status message becomes a destination, until
it has been silent for the timeout. With `control-mode=manual` the application adds and removes
destinations, and they never time out; one that is silent may have moved, so its name is resolved
again.

Source: Aeron `aeron_udp_destination_tracker.c`, `MultiSndDestination`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["DestinationTracker", "SendDestination"]


class SendDestination:
    """One destination: a receiver, or a group of receivers.

    Args:
        address: Its address; None while its name does not resolve.
        receiver_id: The receiver's id; None until it has sent a status message.
        uri: As the application gave it; None if the receiver was added by its status message.
        registration_id: Id of the request that added it; 0 if its status message did.
        now_ns: The time now.

    Attributes:
        has_reported: Whether it has ever reported its position in a stream of ours.
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
        """Return whether a status message comes from this destination.

        Once the receiver's id is known, the port has to agree but not the address, which may be
        translated on the way.
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
        is_manual: Whether the application adds the destinations; if not, status messages do.
        limit: Most destinations at once.
        count: The counter that shows the number of destinations.
        refused: Counts receivers that were refused or dropped because there were too many.
    """

    def __init__(self, *, is_manual: bool, limit: int, count: Counter, refused: Counter) -> None:
        self.is_manual = is_manual
        self._limit = limit
        self._count = count
        self._refused = refused
        self._destinations: list[SendDestination] = []
        # Every address twice in a row, so that any rotation of the list is one slice.
        self._addresses: list[Address] = []
        self._next_index = 0
        self._expiry_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._destinations)

    @property
    def destinations(self) -> Sequence[SendDestination]:
        """Return all destinations."""
        return tuple(self._destinations)

    def addresses(self, now_ns: int) -> Sequence[Address]:
        """Return the addresses for the next datagram: all, starting with another one each time."""
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
        """Record a status message of a receiver, and add the receiver if it is new.

        Args:
            receiver_id: The receiver's id.
            source: The address the message came from.
            now_ns: The time now.
            is_report: Whether it reported a position in a stream of ours; if not, it announced
                the receiver or asked for a SETUP, which any host can do.
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
        """Return the id of the request that added this sender's destination, or 0."""
        for destination in self._destinations:
            if destination.is_spoken_for(receiver_id, source):
                return destination.registration_id
        return 0

    def add(
        self, uri: ChannelUri, address: Address | None, registration_id: int, now_ns: int
    ) -> None:
        """Send to one more destination from now on, or once its name resolves.

        Raises:
            RegistrationError: The limit is reached.
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
        """Stop sending to a destination; return False if there is none such.

        Args:
            uri: The URI with which it was added.
            address: Its address.
            registration_id: Id of the request that added it.
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
        """Send to the new address of a destination; the receiver id there is not known yet."""
        destination.address = address
        destination.receiver_id = None
        self._on_changed()

    def _make_room(self, now_ns: int) -> bool:
        """Return whether there is room for one more destination.

        Differs: Aeron takes any number, from any host that sends a status message.
        """
        # Only when full: after a stall, status messages of live receivers may be waiting unread.
        if len(self._destinations) >= self._limit:
            self._expire(now_ns)
        if len(self._destinations) < self._limit:
            return True
        self._refused.increment()
        # Announcements are cheap to forge. Of the receivers that sent nothing else, the first has
        # had the longest time to answer its SETUP, so it is dropped.
        for index, destination in enumerate(self._destinations):
            if not destination.has_reported:
                del self._destinations[index]
                return True
        return False

    def _expire(self, now_ns: int) -> None:
        """Drop the receivers that were added by status messages and have timed out."""
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
