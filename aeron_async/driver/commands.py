"""What clients ask of a driver, what they are given, and what they hear from it.

A client holds these and nothing else of the driver, so that a driver in another process can stand
in for the embedded one.

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
    from aeron_async.logbuffer.wake_flag import Doorbell
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import PublicationSeen, SubscriptionSeen

__all__ = [
    "ClientListener",
    "CongestionControlSupplier",
    "FlowControlSupplier",
    "ImageEnd",
    "ImageEndReason",
    "ImagePort",
    "ImageReady",
    "PublicationErrorFrame",
    "PublicationListener",
    "PublicationReady",
    "SubscriptionListener",
    "SubscriptionReady",
]

MESSAGE_LENGTH_MAX: Final = 1_100
"""In characters: the 1023 bytes that a frame holds, and a little for escapes."""


class PublicationListener(Protocol):
    """Who hears of one publication of a client."""

    def on_window_changed(self) -> None:
        """The publisher limit was raised, or the connection came or went."""
        ...

    def on_publication_error(self, error: PublicationErrorFrame) -> None:
        """A receiver rejected the stream."""
        ...

    def on_publication_failed(self, error: Exception) -> None:
        """The driver had to end the publication: it is there no more."""
        ...


class SubscriptionListener(Protocol):
    """Who hears of one subscription of a client."""

    def on_available_image(self, ready: ImageReady) -> None:
        """A source has been joined; nothing of it has been read yet."""
        ...

    def on_image_progress(self, image_id: int) -> None:
        """More of the image can be read, or its end is known."""
        ...

    def on_unavailable_image(self, image_id: int, end: ImageEnd | None = None) -> None:
        """The image is over; its log is about to go. Why, where the image itself can tell."""
        ...

    def on_unanswered(self, reason: str | None) -> None:
        """No session answers the requests that name this subscription; None: one does again."""
        ...


class ClientListener(Protocol):
    """Who hears of a client as a whole."""

    def on_driver_closed(self, error: Exception | None) -> None:
        """The driver is gone: closed by its owner, or failed with `error`."""
        ...


class ImagePort(Protocol):
    """What the reader of an image and the driver have to tell one another."""

    @property
    def consumption_trigger(self) -> int:
        """Return the position, in bytes, beyond which progress is worth telling."""
        ...

    @property
    def rebuild_position(self) -> int:
        """Return the position, in bytes, up to which there is no gap: as far as may be read."""
        ...


class ImageHold(Protocol):
    """Whether a stream waits for the reader of an image."""

    @property
    def left_count(self) -> int:
        """Return how often it has gone on without the reader."""
        ...


def _shown(message: object) -> str:
    return printable(message, MESSAGE_LENGTH_MAX)


@attrs.frozen(kw_only=True)
class PublicationErrorFrame:
    """What a receiver said when it rejected a stream or refused to join it, and who it is.

    Attributes:
        code: One of `ErrorCode`: 13 where an application rejected the image; 10 where a limit of
            the receiver kept it from joining, and 8 or 11 where it cannot join at all.
        message: The receiver's reason, up to 1023 bytes of UTF-8, with everything escaped that is
            no visible text.
        session_id: Of the stream.
        stream_id: Of the stream.
        receiver_id: The receiver's name for itself, 64 bits.
        group_tag: Of the receiver; None where it has none.
        source_address: Where the frame came from, as `host:port`; None where it was not sent.
        registration_id: Of the publication as this client added it.
        destination_registration_id: What `add_destination` returned for the destination that the
            frame came from; None where it came from none that was added.

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
        registration_id: Of this request; removes it again.
        original_registration_id: Of the publication, which other requests may share.
        uri: The channel as asked for.
        log: Where to append.
        publisher_limit: Position below which an offer may begin, in bytes.
        channel_status: Of the endpoint: 1 when active; None without one, as for IPC.
        local_address: What the endpoint is bound to, as `host:port`; empty without one.
        sender_position: Up to where it has been sent, in bytes.
        is_exclusive: Whether no other request shares it.
        doorbell: To be rung when something was appended.
        slowest_receiver: Says which receiver sets the pace, where it is known.
        seen: Says what the driver knows of it; for explanations of why it waits.
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
    doorbell: Doorbell
    slowest_receiver: Callable[[], str | None]
    seen: Callable[[], PublicationSeen]


@attrs.frozen(kw_only=True, eq=False)
class SubscriptionReady:
    """A subscription that was added.

    Attributes:
        registration_id: Removes it again.
        uri: The channel as asked for.
        channel_status: Of the endpoint: 1 when active; None without one, as for IPC.
        local_address: What the endpoint is bound to, as `host:port`; empty without one.
        seen: Says what the driver knows of it; for explanations of why it waits.
    """

    registration_id: int
    uri: ChannelUri
    stream_id: int
    channel_status: Counter | None
    local_address: str
    seen: Callable[[], SubscriptionSeen]


@attrs.frozen(kw_only=True, eq=False)
class ImageReady:
    """An image that a subscription has joined.

    Attributes:
        image_id: Names the image within its driver.
        log: Where to read.
        join_position: Where this subscription starts, in bytes.
        position: To be moved after a message was taken, in bytes.
        source_identity: Where the stream comes from, as `host:port`; `aeron:ipc` where that is a
            publication of the same driver.
        port: Says when progress is worth telling.
        hold: Says whether the stream has gone on without this subscription.
        doorbell: To be rung when it is; polls whatever the image is read from.
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
    doorbell: Doorbell
