"""Lanes: the short way of a message alone through a driver, and the state that they read and move.

A `ReceiveLane` takes a datagram that is one frame, and next in order for a calm image: it places
the frame in the log, moves the positions, and wakes the readers, in one call. What it does not take
goes the long way, with the same effect: through the dispatcher, `PublicationImage` and the receiver
agent. The transport calls it for what it receives first, until it refuses a datagram.

Invariant: a lane runs in the thread of the receiver agent, with which it shares a counter.

The compiled twin changes the fields of `Rebuilding` and `Reporting` without a call of Python. There
is no other copy of them.
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
    from collections.abc import Callable, Mapping

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.stream_counters import ImageCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.wake_flag import WakeFlag

__all__ = [
    "LaneDestination",
    "Rebuilding",
    "ReceiveLane",
    "Reporting",
]

DATA: Final = int(FrameType.DATA)
FRAME_FIELDS: Final = Struct("<iBxHiiii")
"""Frame length, version, type, term offset, session id, stream id and term id of a data header."""


class Reporting:
    """The part of a status message sender that is compiled: what the last one said.

    Attributes:
        last_sm_position: The position in the last status message that was sent, in bytes.
        overrun_threshold: Nothing may be placed beyond this position, in bytes.
    """

    last_sm_position: int
    overrun_threshold: int


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
        _calm_until_ns: Until then nothing is due and no gap is known, so what arrives in order
            needs no poll.
    """

    __slots__ = (
        "_calm_until_ns",
        "_feedback",
        "_is_fast_way_closed",
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
        "_listener",
        "_now_ns",
        "_segments",
        "_shown",
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
        self._shown: tuple[Any, ...] = ()

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
        if not image.insert_alone_fast(
            memoryview(datagram), segments, connection, term_id, term_offset, now_ns
        ):
            return False
        destination.last_activity_ns = now_ns
        self._bytes_received.increment(length)
        self._shown = image.subscribers.active
        if image.failure is not None:
            self._listener.on_image_activity(image)
        return True

    def deliver(self) -> None:
        """Hand what was taken last to the readers that have a handler."""
        shown, self._shown = self._shown, ()
        for subscriber in shown:
            if subscriber.client is not None and subscriber.client.deliver is not None:
                subscriber.client.deliver()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.lanes import Rebuilding, ReceiveLane, Reporting
