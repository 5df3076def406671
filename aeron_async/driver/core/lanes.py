"""Lanes: the short way of a message alone through a driver, and the state that they read and move.

A `ReceiveLane` takes a datagram that is one frame, and next in order for a calm image: it places
the frame in the log, moves the positions, and wakes the readers, in one call. What it does not take
goes the long way, with the same effect: through the dispatcher, `PublicationImage` and the receiver
agent. The transport calls it for what it receives first, until it refuses a datagram.

Invariant: a lane runs in the thread of the receiver agent, with which it shares a counter.

The compiled twin changes the fields of `Rebuilding` and `Reporting` without a call of Python, and
`SendLane`, which is compiled only, those of `Streaming` and `OfferSending`. There is no other copy
of them.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async._speedups import WHY_PURE
from aeron_async.driver.core.outbox import ReceiveDestination
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    DATA_HEADER_LENGTH,
    Buffer,
    FrameType,
    align_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aeron_async.counters import Counter
    from aeron_async.driver.core.losses import Arrivals
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.round_trip import RoundTrip
    from aeron_async.driver.core.stream_counters import ImageCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.wake_flag import WakeFlag

__all__ = [
    "LaneDestination",
    "OfferSending",
    "Rebuilding",
    "ReceiveLane",
    "Reporting",
    "Sleeping",
    "Streaming",
]

DATA: Final = int(FrameType.DATA)
FRAME_FIELDS: Final = Struct("<iBxHiiii")
"""Frame length, version, type, term offset, session id, stream id and term id of a data header."""


class Reporting:
    """The part of a status message sender that is compiled: what the last one said.

    Attributes:
        last_sm_position: The position in the last status message that was sent, in bytes.
        overrun_threshold: Nothing may be placed beyond this position, in bytes.
        sent_count: How many status messages were sent.
    """

    last_sm_position: int
    overrun_threshold: int
    sent_count: int = 0


class Rebuilding:
    """The part of an image that is compiled: what a `ReceiveLane` reads and moves.

    Attributes:
        rebuild_position: Every byte before this position is there.
        hwm_position: The end of the furthest frame or heartbeat seen.
        last_packet_ns: When a datagram was last accepted.
        idle_position: The position in the latest heartbeat; -1 once it was examined.
        is_end_of_stream: Whether every source has ended the stream.
        failure: The error that the next poll raises.
        wake_flag: Readers set it; the poll clears it.
        connections: Its sources.
        subscribers: Its readers.
        arrivals: Marks when its bytes arrived: at `_mark_position`, or at `_mark_ns`.
        _calm_until_ns: Until then nothing is due and no gap is known, so what arrives in order
            needs no poll.
    """

    __slots__ = (
        "_calm_until_ns",
        "_feedback",
        "_is_fast_way_closed",
        "_mark_ns",
        "_mark_position",
        "arrivals",
        "connections",
        "failure",
        "hwm_position",
        "idle_position",
        "is_end_of_stream",
        "last_packet_ns",
        "rebuild_position",
        "subscribers",
        "wake_flag",
    )

    _calm_until_ns: int
    _feedback: Any
    _is_fast_way_closed: bool
    _mark_ns: int
    _mark_position: int
    arrivals: Arrivals
    connections: Any
    failure: Exception | None
    hwm_position: int
    idle_position: int
    is_end_of_stream: bool
    last_packet_ns: int
    rebuild_position: int
    subscribers: Any
    wake_flag: WakeFlag

    def _attach(self, log: LogBuffers, counters: ImageCounters) -> None:
        """Give a compiled lane the log and the counters; the one in Python needs neither."""

    def readable_position(self, _position: int) -> int:
        """Return the rebuild position; see `ImagePort`."""
        return self.rebuild_position


class Sleeping:
    """The part of an agent that is compiled: what a `SendLane` asks it.

    Attributes:
        _waiter: What it sleeps on; None while it works.
        _sleeps_until_ns: When it wakes at the latest.
        _is_awake: Whether it was woken, or is about to look.
        _is_polling: Whether it polls a stream now.
    """

    _waiter: Any = None
    _sleeps_until_ns: int
    _is_awake: bool = False
    _is_polling: bool = False

    def may_act(self, now_ns: int) -> bool:
        """Return whether a callback may do part of the agent's work at once.

        Not while the agent works or is about to. Not when it is late either: it must first find out
        whether the silence of the peers was a stall of the loop.
        """
        return self._waiter is not None and not self._is_awake and now_ns <= self._sleeps_until_ns


class Streaming:
    """The part of a `StreamSender` that is compiled: what a datagram that is sent alone moves.

    Attributes:
        position: Up to where data has been sent, in bytes.
        limit: Up to where data may be sent, in bytes.
        round_trip: Measures how long a receiver takes to hear and answer.
        _last_sent_ns: When anything was last sent.
        _is_tracking_limit: Whether an exhausted window is counted when it is met next.
        _frame_starts: Knows where datagrams began.
    """

    __slots__ = (
        "_bytes_sent_alone",
        "_frame_starts",
        "_is_tracking_limit",
        "_last_sent_ns",
        "_sender_position",
        "limit",
        "position",
        "round_trip",
    )

    position: int
    limit: int
    round_trip: RoundTrip
    _last_sent_ns: int
    _is_tracking_limit: bool
    _frame_starts: Any

    def _attach(self, sender_position: Counter, bytes_sent: Counter) -> None:
        """Take the counters that each datagram moves."""
        self._sender_position = sender_position
        self._bytes_sent_alone = bytes_sent

    def on_sent_alone(self, length: int, now_ns: int) -> None:
        """Move the position over one datagram that was sent."""
        position = self.position
        if position >= self._frame_starts.next_position:
            self._frame_starts.mark(position)
        self.position = position + length
        self.round_trip.on_sent(position, now_ns)
        self._last_sent_ns = now_ns
        self._is_tracking_limit = True
        self._sender_position.set(self.position)
        self._bytes_sent_alone.increment(length)


class OfferSending:
    """The part of a publication that is compiled: what a `SendLane` reads and moves.

    Attributes:
        polled_ns: When it was last polled.
        has_sent_burst: Whether that poll sent more than one datagram.
        is_sending: Whether that poll ended with its burst: the next one follows at once.
        wake_flag: Publishers and readers set it; the poll clears it.
        window_listeners: What is told, in this order, that the window may have changed. They only
            wake tasks and agents: no call of theirs comes back into the publication.
        _sender: What makes the datagrams of one that is sent over the network.
        _fast_until_ns: Until then a lone offer, or a heartbeat, needs no poll.
        _fast_position: A lone offer beyond this position, in bytes, needs one.
    """

    __slots__ = (
        "_fast_position",
        "_fast_until_ns",
        "_publisher_position",
        "_sender",
        "has_sent_burst",
        "is_sending",
        "polled_ns",
        "wake_flag",
        "window_listeners",
    )

    polled_ns: int
    has_sent_burst: bool
    is_sending: bool
    wake_flag: WakeFlag
    window_listeners: list[Any]
    _sender: Any
    _fast_until_ns: int
    _fast_position: int

    def _attach(self, publisher_position: Counter) -> None:
        """Take the counter that shows how far it was published."""
        self._publisher_position = publisher_position

    def _on_all_sent(self) -> None:
        """Take note that all that was offered has been sent."""
        self.wake_flag.is_set = self.is_sending = False
        self._publisher_position.set(self._sender.position)
        for listener in self.window_listeners:
            listener.on_window_changed()


class LaneDestination(ReceiveDestination, Protocol):
    """What a `ReceiveLane` knows of its socket.

    Attributes:
        last_activity_ns: When a datagram last arrived.
    """

    last_activity_ns: int


class LaneListener(Protocol):
    """What the owner of a dispatcher implements to hear of what a lane has taken."""

    def on_image_activity(self, image: Any) -> None:
        """The image must be polled."""
        ...


@final
class ReceiveLane:
    """The short way from one socket to the readers, for datagrams of one frame each.

    The effect is that of `DataPacketDispatcher.on_datagram` and `Receiver.on_reading`.

    Args:
        destination: The socket.
        streams: The dispatcher's streams, by their ids.
        listener: Called if the image must be polled after all.
        now_ns: Returns the time of arrival.
        bytes_received: That counter.
    """

    __slots__ = (
        "_bytes_received",
        "_destination",
        "_expecting",
        "_listener",
        "_now_ns",
        "_segments",
        "_streams",
    )

    def __init__(
        self,
        destination: LaneDestination,
        streams: Mapping[int, Any],
        listener: LaneListener,
        now_ns: Callable[[], int],
        bytes_received: Counter,
    ) -> None:
        self._destination = destination
        self._streams = streams
        self._listener = listener
        self._now_ns = now_ns
        self._bytes_received = bytes_received
        self._segments = array("i", (0, 0))
        self._expecting: list[Any] = []

    def take(self, datagram: Buffer, source: Address) -> bool:
        """Place a datagram and show it to readers; return False if it must go the long way."""
        segments = self._segments
        segments[0] = segments[1] = length = len(datagram)
        if length <= DATA_HEADER_LENGTH:
            return False
        frame_length, version, kind, term_offset, session_id, stream_id, term_id = (
            FRAME_FIELDS.unpack_from(datagram)
        )
        if version != CURRENT_VERSION or kind != DATA or align_frame(frame_length) != length:
            return False
        interest = self._streams.get(stream_id)
        image = None if interest is None else interest.images.get(session_id)
        if image is None:
            return False
        now_ns, destination = self._now_ns(), self._destination
        connection = image.connections.find(destination, source, now_ns)
        if connection is None or connection.is_new:
            return False
        count = len(self._expecting)
        self._expect(image.subscribers.active)
        if not image.insert_alone_fast(
            memoryview(datagram), segments, connection, term_id, term_offset, now_ns
        ):
            while len(self._expecting) > count:
                self._expecting.pop().is_expecting = False
            return False
        destination.last_activity_ns = now_ns
        self._bytes_received.increment(length)
        if image.failure is not None:
            self._listener.on_image_activity(image)
        return True

    def deliver(self) -> None:
        """Hand what was taken to the readers that have a handler."""
        expecting, self._expecting = self._expecting, []
        for count, client in enumerate(expecting, start=1):
            client.is_expecting = False
            try:
                if client.deliver is not None:
                    client.deliver()
            except BaseException:
                # That stops the loop, which delivers to the others if it is run again.
                for each in expecting[count:]:
                    each.is_expecting = False
                    each.on_image_progress()
                raise

    def _expect(self, subscribers: Iterable[Any]) -> None:
        """Tell readers that have a handler that `deliver` will call it: no loop needs to."""
        for subscriber in subscribers:
            client = subscriber.client
            if client is not None and client.deliver is not None and not client.is_expecting:
                client.is_expecting = True
                self._expecting.append(client)


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.lanes import (
        OfferSending,
        Rebuilding,
        ReceiveLane,
        Reporting,
        Sleeping,
        Streaming,
    )
