"""Reasons why a publication or a subscription waits: what was observed, and what to change.

`aeron_async.why` returns a `Why`; the log and timeout errors show its text.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeAlias, final

import attrs

from aeron_async.text import printable

__all__ = [
    "ClaimSeen",
    "ImageSeen",
    "PublicationSeen",
    "ReceiverSeen",
    "RefusalSeen",
    "StreamSeen",
    "SubscriptionSeen",
    "WaitReason",
    "Why",
]


@final
class WaitReason(Enum):
    """What a caller waits for."""

    NOTHING = auto()
    """There is nothing to wait for: an offer has room, or there is something to read."""
    CLOSED = auto()
    """The publication or subscription is closed."""

    # Of publications.
    NO_ANSWER = auto()
    """The publication sends SETUPs, and no receiver has answered one."""
    RECEIVERS_GONE = auto()
    """The receivers have left, or stopped sending status messages."""
    REJECTED = auto()
    """A receiver has rejected or refused the stream, and given a reason."""
    GROUP_TOO_SMALL = auto()
    """There are fewer receivers than flow control requires."""
    NO_DESTINATION = auto()
    """The channel is multi-destination, and has no destination."""
    NAME_UNRESOLVED = auto()
    """No destination's name can be resolved."""
    SPIES_DO_NOT_CONNECT = auto()
    """Only spies read the stream, and without `ssc=true` they do not count as subscribers."""
    NO_SUBSCRIPTION_HERE = auto()
    """The publication is IPC, and no subscription of its driver reads it."""
    BACK_PRESSURED = auto()
    """The slowest subscriber has no room for more."""
    CLAIM_UNCOMMITTED = auto()
    """A claim was neither committed nor aborted: nothing behind it can be sent or read."""
    NOT_SENT = auto()
    """There is room to offer, but some of what was offered is not sent yet."""

    DRIVER_ELSEWHERE = auto()
    """The driver is another process, and only that one knows."""
    DRIVER_LOST = auto()
    """The driver of another process has gone, and the client looks for the next one."""

    # Of subscriptions.
    NOTHING_HEARD = auto()
    """No datagram of any stream has arrived."""
    OTHER_STREAMS_HEARD = auto()
    """Only other streams have arrived."""
    OTHER_SESSIONS_HEARD = auto()
    """Only sessions have arrived that the channel does not accept."""
    SETUP_NOT_ANSWERED = auto()
    """Data has arrived, but its publisher has not answered the request for a SETUP."""
    IMAGE_REFUSED = auto()
    """The driver has refused to create an image, because of one of its limits."""
    COOLING_DOWN = auto()
    """The session that arrives had an image here that has ended."""
    NO_RESPONSE_SESSION = auto()
    """No server has announced its response session, or the one that did has gone."""
    NO_PUBLICATION_HERE = auto()
    """The subscription reads publications of its own driver, and none of them matches."""
    LEFT_BEHIND = auto()
    """The subscriber was too slow, and the stream continued without it."""
    DATA_MISSING = auto()
    """Datagrams were lost before what has arrived, and were requested again."""
    NO_DATA = auto()
    """There are images, and everything that has arrived was read."""

    # Of requests to an archive.
    NOT_ANSWERED = auto()
    """The archive has not answered, though the request was sent."""


@attrs.frozen(kw_only=True)
class ReceiverSeen:
    """A receiver of a publication.

    Attributes:
        receiver_id: Receiver id, in hexadecimal.
        silent_ns: Time since its last status message.
        address: Source address of its status messages, as `host:port`; empty if unknown.
    """

    receiver_id: str
    silent_ns: int
    address: str = ""


@attrs.frozen(kw_only=True)
class ClaimSeen:
    """A claim that was neither committed nor aborted.

    Attributes:
        position: Where it begins, in bytes.
        unblocks_in_ns: Time until the driver turns it into padding, if it is not committed before;
            None for an exclusive publication, which the driver never unblocks.
        timeout_ns: `publication_unblock_timeout_ns` of the driver.
    """

    position: int
    unblocks_in_ns: int | None
    timeout_ns: int


@attrs.frozen(kw_only=True)
class StreamSeen:
    """A stream other than the requested one.

    Attributes:
        channel: Channel of a publication or subscription of the same driver; empty for a stream
            from the network.
        source: Source address of its datagrams; empty for one of the same driver.
        session_id: Session that it has or accepts; None for any.
        differs_in: In what it differs from the stream that waits: "session id", "stream id" or
            "channel"; empty for a stream from the network.
    """

    stream_id: int
    session_id: int | None = None
    channel: str = ""
    source: str = ""
    differs_in: str = ""


@attrs.frozen(kw_only=True)
class RefusalSeen:
    """A stream that this driver has refused.

    Attributes:
        session_id: Session of the publication.
        source: Source address of its SETUP, as `host:port`.
        reason: The limit that would be exceeded, and the setting to change.
    """

    session_id: int
    source: str
    reason: str


@attrs.frozen(kw_only=True)
class ImageSeen:
    """An image of a subscription.

    Attributes:
        unread_length: Bytes that have arrived and were not read.
        missing_length: Bytes from the first missing one up to the highest known position.
    """

    session_id: int
    source: str
    unread_length: int
    missing_length: int = 0


@attrs.frozen(kw_only=True)
class PublicationSeen:
    """State of a publication in the driver at one moment. Lists have at most eight entries.

    Attributes:
        is_connected: Whether offers are accepted.
        position: Where the next message would start, in bytes.
        position_limit: Position below which an offer may begin, in bytes.
        last_error: Why a receiver rejected the stream, if one did.
        is_ipc: Whether it is an IPC publication.
        setup_count: SETUPs sent so far.
        setups_for_ns: Time since the first SETUP.
        is_answered: Whether any receiver has ever answered.
        sent_to: Destinations of datagrams, as `host:port`.
        interfaces: Interfaces that multicast datagrams leave by; empty without multicast.
        has_destinations: Whether the channel has `control-mode=manual` or `dynamic`.
        is_manual: Whether the application adds the destinations.
        destination_count: How many destinations there are.
        unresolved: Destinations whose names cannot be resolved.
        receivers: Live receivers, longest silent first.
        receiver_count: How many receivers are alive.
        last_gone: The receiver that left or became silent last, unless one has rejected the stream
            since.
        group_size: Receivers that flow control tracks; None if it tracks none.
        group_min_size: How many receivers a connected publication needs.
        slowest_receiver: The receiver that sets the pace, if it is known.
        claim: The claim that blocks the stream, if there is one.
        slowest_address: Address of the slowest receiver, as `host:port`; empty if unknown.
        sender_position: Position up to which was sent, in bytes.
        sender_limit: Position up to which may be sent, in bytes; on IPC may be offered.
        reader_count: Spies of a UDP publication, subscriptions of an IPC publication.
        reader_lag: Bytes that the slowest of these has not read; None without one.
        do_spies_connect: Whether `ssc=true` is set.
        nearly: Subscriptions of this driver that almost match this stream, the likeliest first.
        refusal: Why the same driver refuses the stream, if it does.
        elsewhere: Aeron directory of a driver that is another process, of which little is known
            here; empty if the driver is in this process.
        is_driver_lost: Whether that driver has gone, and the client looks for the next one.
    """

    is_connected: bool = False
    position: int = 0
    position_limit: int = 0
    last_error: str | None = None
    is_ipc: bool = False
    setup_count: int = 0
    setups_for_ns: int = 0
    is_answered: bool = False
    sent_to: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    has_destinations: bool = False
    is_manual: bool = False
    destination_count: int = 0
    unresolved: tuple[str, ...] = ()
    receivers: tuple[ReceiverSeen, ...] = ()
    receiver_count: int = 0
    last_gone: ReceiverSeen | None = None
    group_size: int | None = None
    group_min_size: int = 0
    slowest_receiver: str | None = None
    slowest_address: str = ""
    claim: ClaimSeen | None = None
    sender_position: int = 0
    sender_limit: int = 0
    reader_count: int = 0
    reader_lag: int | None = None
    do_spies_connect: bool = False
    nearly: tuple[StreamSeen, ...] = ()
    refusal: RefusalSeen | None = None
    elsewhere: str = ""
    is_driver_lost: bool = False


@attrs.frozen(kw_only=True)
class SubscriptionSeen:
    """State of a subscription in the driver at one moment. Lists have at most eight entries.

    Attributes:
        images: Its images.
        is_local: Whether it reads publications of its own driver only: IPC, or a spy.
        listening_at: Where it receives, as `host:port`.
        interfaces: Interfaces on which it joined multicast groups; empty without multicast.
        reports_to: Control addresses that it sends status messages to, as `host:port`; empty
            without any.
        answered_from: For a response subscription, the control addresses of its server.
        session_id: The only session accepted; None for all.
        is_response_pending: Whether it waits for a server to announce its session.
        asked_sessions: Sessions whose publishers have not answered the request for a SETUP.
        other_sessions: Sessions of the stream that arrive and are not accepted.
        cooling_sessions: Sessions whose images have ended here.
        other_streams: Streams that arrive there and match no subscription.
        refusals: Streams that this driver has refused, newest last.
        resting_count: Streams that continued without this subscriber.
        nearly: Publications of this driver that almost match, the likeliest first.
        last_error: For a response subscription, why nothing answers.
        elsewhere: Aeron directory of a driver that is another process, of which little is known
            here; empty if the driver is in this process.
        is_driver_lost: Whether that driver has gone, and the client looks for the next one.
    """

    images: tuple[ImageSeen, ...] = ()
    is_local: bool = False
    listening_at: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    reports_to: tuple[str, ...] = ()
    answered_from: tuple[str, ...] = ()
    session_id: int | None = None
    is_response_pending: bool = False
    asked_sessions: tuple[int, ...] = ()
    other_sessions: tuple[int, ...] = ()
    cooling_sessions: tuple[int, ...] = ()
    other_streams: tuple[StreamSeen, ...] = ()
    refusals: tuple[RefusalSeen, ...] = ()
    resting_count: int = 0
    nearly: tuple[StreamSeen, ...] = ()
    last_error: str | None = None
    elsewhere: str = ""
    is_driver_lost: bool = False


TEXT_LENGTH_MAX: Final = 900
"""Longest text of a `Why`, in characters, so that it fits into a field of a log line.

The length of the channel in the subject is limited, and the remedy is never cut.
"""
SIGHT_LENGTH_MIN: Final = 200

Seen: TypeAlias = PublicationSeen | SubscriptionSeen


@final
@attrs.frozen(kw_only=True)
class Why:
    """Why a publication or a subscription waits; `str()` of it is one line for people.

    Attributes:
        reason: The reason.
        subject: What waits, with its channel and stream.
        sight: What was observed, in words.
        remedy: What to change; empty if there is nothing to change.
        seen: What was observed, as values.
    """

    reason: WaitReason
    subject: str
    sight: str
    remedy: str
    seen: Seen

    def __str__(self) -> str:
        room = TEXT_LENGTH_MAX - len(self.subject) - len(self.remedy)
        text = f"{self.subject}: {printable(self.sight, max(SIGHT_LENGTH_MIN, room))}"
        return f"{text}; {self.remedy}" if self.remedy else text
