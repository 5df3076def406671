"""The commands of clients to a driver, their results, and the driver's events.

Beside these a client uses the driver's conductor, its context and `MediaDriver`, nothing else.

Source: Aeron `aeron.command`: AddPublication, PublicationReady, ImageReady and their neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

from aeron_async.driver.core.image_state import ImageEnd, ImageEndReason
from aeron_async.driver.core.suppliers import CongestionControlSupplier, FlowControlSupplier
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.wake_flag import WakeFlag
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import PublicationSeen, SubscriptionSeen

__all__ = [
    "AddedCounter",
    "ClientListener",
    "CongestionControlSupplier",
    "FlowControlSupplier",
    "ImageEnd",
    "ImageEndReason",
    "ImagePort",
    "ImageReady",
    "MemoryWatch",
    "PublicationErrorFrame",
    "PublicationListener",
    "PublicationReady",
    "PublicationUser",
    "SubscriptionListener",
    "SubscriptionReady",
    "SubscriptionUser",
]

MESSAGE_LENGTH_MAX: Final = 1_100
"""In characters: the 1023 bytes that a frame holds, and some room for escapes."""


class PublicationListener(Protocol):
    """What a client implements to hear about one of its publications."""

    def on_window_changed(self) -> None:
        """The publisher limit was raised, or the connection came or went."""
        ...

    def on_publication_error(self, error: PublicationErrorFrame) -> None:
        """A receiver rejected the stream."""
        ...

    def on_publication_failed(self, error: Exception) -> None:
        """The driver had to end the publication; it no longer exists."""
        ...


class PublicationUser(PublicationListener, Protocol):
    """A publication of a client, as a driver in another process needs to know it."""

    @property
    def has_error_handler(self) -> bool:
        """Return whether the application is to hear of errors at once."""
        ...


class SubscriptionListener(Protocol):
    """What a client implements to hear about one of its subscriptions.

    Attributes:
        is_expecting: Whether the driver, which sets it, calls `deliver` soon in any case.
    """

    is_expecting: bool

    @property
    def is_polling(self) -> bool:
        """Return whether the client looks by itself, and waits for no `on_image_progress`."""
        ...

    @property
    def deliver(self) -> Callable[[], object] | None:
        """Return what hands arrived messages to a handler at once; None if the client has none.

        It is called in the callback of a socket, after `on_image_progress`. The driver has done its
        part by then, so a handler may do what it likes.
        """
        ...

    @property
    def written_channel(self) -> str | None:
        """Return the channel as the client wrote it; None if that is not known."""
        ...

    def on_available_image(self, ready: ImageReady) -> None:
        """The subscription has joined an image; nothing of it has been read yet."""
        ...

    def on_image_progress(self) -> None:
        """More of an image can be read, or its end is known."""
        ...

    def on_unavailable_image(self, image_id: int, end: ImageEnd | None = None) -> None:
        """The image is over, and its log will be freed. `end` says why, if the image knows."""
        ...

    def on_unanswered(self, reason: str | None) -> None:
        """No session answers the requests of this subscription; with None, one does again."""
        ...


class SubscriptionUser(SubscriptionListener, Protocol):
    """A subscription of a client, as the client's side of a driver elsewhere needs to know it."""

    def on_lapsed(self) -> None:
        """Check that the client is still served before the next message; from any thread."""
        ...


class ClientListener(Protocol):
    """What a client implements to hear about its driver."""

    def on_driver_closed(self, error: Exception | None) -> None:
        """The driver was closed by its owner, or failed with `error`."""
        ...


class ImagePort(Protocol):
    """What the reader of an image asks the driver."""

    @property
    def consumption_trigger(self) -> int:
        """Return the position, in bytes, beyond which the reader must notify the driver."""
        ...

    def readable_position(self, position: int) -> int:
        """Return the position that the reader must not pass, in bytes.

        The reader stops before that at the first frame that is missing.

        Args:
            position: Up to where the reader has read, in bytes.
        """
        ...


class ImageHold(Protocol):
    """Whether a stream waits for the reader of an image."""

    @property
    def left_count(self) -> int:
        """Return how often the stream has continued without the reader."""
        ...


class MemoryWatch(Protocol):
    """Looks at memory that a driver in another process writes, while tasks wait for it."""

    def begin(self) -> None:
        """Look for one more task, from now on: what is stored later calls the listener.

        What was stored before does not, so the task checks its condition after this call.
        """
        ...

    def end(self) -> None:
        """Look no more for one of the tasks."""
        ...


def _shown(message: object) -> str:
    return printable(message, MESSAGE_LENGTH_MAX)


@attrs.frozen(kw_only=True)
class PublicationErrorFrame:
    """The error frame of a receiver that rejected a stream or refused to join it.

    Attributes:
        code: One of `ErrorCode`: 13 if an application rejected the image; 10 if a limit of the
            receiver prevents it from joining, and 8 or 11 if it cannot join at all.
        message: The receiver's reason, up to 1023 bytes of UTF-8; everything but visible text is
            escaped.
        session_id: Session id of the stream.
        stream_id: Stream id of the stream.
        receiver_id: The receiver's id, 64 bits.
        group_tag: The receiver's group tag; None if it has none.
        source_address: Where the frame came from, as `host:port`; None if it was not sent.
        registration_id: Id of the publication as this client added it.
        destination_registration_id: The id that `add_destination` returned for the destination the
            frame came from; None if it came from no such destination.

    Source: Aeron `PublicationErrorFrame`.
    """

    code: int
    message: str = attrs.field(converter=_shown)
    session_id: int
    stream_id: int
    receiver_id: int
    group_tag: int | None
    source_address: str | None
    registration_id: int
    destination_registration_id: int | None


@attrs.frozen(kw_only=True, eq=False)
class PublicationReady:
    """A publication that was added.

    Attributes:
        registration_id: Id of this request; used to remove the publication.
        original_registration_id: Id of the publication itself, which other requests may share.
        uri: The channel as asked for.
        log: The log to append to.
        publisher_limit: Position below which an offer may begin, in bytes.
        channel_status: Status of the endpoint: 1 when active; None for IPC, which has none.
        local_address: The bound address of the endpoint, as `host:port`; empty for IPC.
        sender_position: Up to where the stream has been sent, in bytes.
        sender_limit: Up to where receivers allow to send, in bytes; None where that is not known.
        is_exclusive: Whether no other request shares it.
        wake_flag: To be set after something was appended.
        slowest_receiver: Returns the receiver that sets the limit, if known.
        seen: Returns the driver's state of it, to explain why it waits.
        window_watch: Looks at the limit and the connection; None if the driver wakes the client.
        sent_watch: Looks at `sender_position`; None if the driver wakes the client.
    """

    registration_id: int
    original_registration_id: int
    uri: ChannelUri
    session_id: int
    stream_id: int
    log: LogBuffers
    publisher_limit: Counter
    sender_position: Counter
    channel_status: Counter | None
    local_address: str
    is_exclusive: bool
    wake_flag: WakeFlag
    slowest_receiver: Callable[[], str | None]
    seen: Callable[[], PublicationSeen]
    window_watch: MemoryWatch | None = None
    sent_watch: MemoryWatch | None = None
    sender_limit: Counter | None = None


@attrs.frozen(kw_only=True, eq=False)
class SubscriptionReady:
    """A subscription that was added.

    Attributes:
        registration_id: Used to remove the subscription.
        uri: The channel as asked for.
        channel_status: Status of the endpoint: 1 when active; None without one, as for IPC.
        local_address: The bound address of the endpoint, as `host:port`; empty without one.
        seen: Returns the driver's state of it, to explain why it waits.
        arm: To be called before waiting, if the driver wakes no reader by itself: watches for the
            next message, and returns whether there is one already.
        disarm: To be called after waiting, if there is `arm`: watches no more.
        check_served: To be called before the reader moves a position after other work: ends the
            client if that took so long that a driver in another process may have given it up, and
            its counters with it. None if the driver runs in this event loop.
    """

    registration_id: int
    uri: ChannelUri
    stream_id: int
    channel_status: Counter | None
    local_address: str
    seen: Callable[[], SubscriptionSeen]
    arm: Callable[[], bool] | None = None
    disarm: Callable[[], object] | None = None
    check_served: Callable[[], object] | None = None


@attrs.frozen(kw_only=True, eq=False)
class ImageReady:
    """An image that a subscription has joined.

    Attributes:
        image_id: Identifies the image within its driver.
        log: The log to read.
        join_position: Where this subscription starts, in bytes.
        position: The counter to move after each message, in bytes.
        source_identity: Where the stream comes from, as `host:port`; `aeron:ipc` for a publication
            of the same driver.
        port: Gives the positions up to which to read, and at which to notify the driver.
        hold: Counts how often the stream has continued without this subscription.
        wake_flag: To be set beyond `port.consumption_trigger`; the driver then polls the stream.
    """

    image_id: int
    session_id: int
    stream_id: int
    log: LogBuffers
    join_position: int
    position: Counter
    source_identity: str
    port: ImagePort
    hold: ImageHold
    wake_flag: WakeFlag


@attrs.frozen(kw_only=True, eq=False)
class AddedCounter:
    """A counter that a client has added.

    Attributes:
        correlation_id: Id of this request; used to remove the counter.
        registration_id: The same, or what the client has chosen for a static counter.
        is_static: Whether the counter stays when it is removed.
        counter: Its value, for the caller alone, who invalidates it.
    """

    correlation_id: int
    registration_id: int
    is_static: bool
    counter: Counter
