"""What the cores are given here: a list for a network, counters in memory, and time as a number."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from aeron_async.counters import Counter, CountersManager
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.stream_params import PublicationParams
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId, SystemCounters
from aeron_async.logbuffer.position import compute_position, term_id_at
from aeron_async.protocol.data import DataHeader, encode_heartbeat
from aeron_async.protocol.datagram import DataFrame, Frame, frames
from aeron_async.protocol.header import DataFlags, FrameType, StatusMessageFlags, align_frame
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, SESSION_ID, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.subscriber_position import Subscribable, SubscriberPosition
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.protocol.header import Buffer

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
BITS: Final = TERM_LENGTH.bit_length() - 1
HALF_TERM: Final = TERM_LENGTH // 2
WINDOW: Final = HALF_TERM
RECEIVER_ID: Final = -7_000_000_001
SOURCE: Final = ("192.0.2.1", 40_123)
OTHER_SOURCE: Final = ("192.0.2.2", 40_124)
CONTEXT: Final = DriverContext()

T = TypeVar("T", bound=Frame)


class Outbox:
    """Keeps what is sent; refuses everything while `is_full`. It is a destination, too."""

    def __init__(
        self, *, is_multicast: bool = False, control_address: Address | None = None
    ) -> None:
        self.is_multicast = is_multicast
        self.control_address = control_address
        self.last_activity_ns = 0
        self.is_full = False
        self.sent: list[bytes] = []
        self.addresses: list[Address] = []

    def send(self, datagram: Buffer) -> bool:
        if not self.is_full:
            self.sent.append(bytes(datagram))
        return not self.is_full

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        self.addresses.append(address)
        return self.send(datagram)

    def send_batch(self, batch: memoryview, segment_length: int, address: Address) -> int:
        return self.send_batches_to(batch, array("i", (len(batch), segment_length)), address)

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        return send_each(self.send, data, segments)

    def send_batches_to(self, data: memoryview, segments: SegmentTable, address: Address) -> int:
        self.addresses.append(address)
        return self.send_batches(data, segments)

    def take(self) -> list[bytes]:
        """Return what was sent since the last call."""
        taken, self.sent = self.sent, []
        return taken

    def take_frames(self, kind: type[T]) -> list[T]:
        """Return the frames of one kind sent since the last call; others are forgotten."""
        return [
            frame
            for datagram in self.take()
            for frame in frames(datagram)
            if isinstance(frame, kind)
        ]


def send_each(send: Callable[[memoryview], bool], data: memoryview, segments: SegmentTable) -> int:
    """Send the datagrams of batches until one cannot leave; return the bytes that left."""
    start = 0
    for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
        while start < end:
            datagram = data[start : min(start + segment_length, end)]
            if not send(datagram):
                return start
            start += len(datagram)
    return start


class NoReaders:
    """Hears of the images of subscriptions where there can be none."""

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        pytest.fail(f"{source} has no subscriber {subscriber}")

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        pytest.fail(f"{source} has no subscriber {subscriber}")


class Counts:
    """A table of counters in memory, and the driver's own among them."""

    def __init__(self, context: DriverContext = CONTEXT) -> None:
        self.manager = CountersManager.in_memory(
            512 * 1024, free_to_reuse_timeout_ms=0, epoch_ms=lambda: 0
        )
        self.system = SystemCounters(self.manager, context, version="1.53.0")

    def new(self, value: int = 0) -> Counter:
        counter = self.manager.allocate(1_001, b"", "test")
        counter.set(value)
        return counter

    def __getitem__(self, counter_id: SystemCounterId | DriverCounterId) -> int:
        return self.system[counter_id].get()


def make_params(log: LogBuffers, **changes: Any) -> PublicationParams:
    fields: dict[str, Any] = {
        "mtu_length": log.mtu_length,
        "term_length": log.term_length,
        "session_id": None,
        "start": None,
        "publication_window_length": log.term_length // 2,
        "linger_timeout_ns": 5 * SECOND,
        "max_resend": 16,
        "signal_eos": True,
        "is_sparse": True,
        "spies_simulate_connection": False,
        "is_exclusive": True,
    }
    return PublicationParams(**(fields | changes))


def position_of(term_id: int, term_offset: int, log: LogBuffers) -> int:
    return compute_position(
        term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )


def place(position: int, initial_term_id: int = INITIAL_TERM_ID) -> tuple[int, int]:
    """Return term id and offset of a position in the logs of these tests."""
    term_id = term_id_at(position, initial_term_id=initial_term_id, bits=BITS)
    return term_id, position & (TERM_LENGTH - 1)


def status_message(log: LogBuffers, position: int, **changes: Any) -> StatusMessage:
    fields: dict[str, Any] = {
        "session_id": log.session_id,
        "stream_id": log.stream_id,
        "consumption_term_id": term_id_at(
            position, initial_term_id=log.initial_term_id, bits=log.position_bits
        ),
        "consumption_term_offset": position & (log.term_length - 1),
        "receiver_window": WINDOW,
        "receiver_id": RECEIVER_ID,
    }
    return StatusMessage(**(fields | changes))


def eliciting_message(log: LogBuffers) -> StatusMessage:
    return StatusMessage(
        session_id=log.session_id,
        stream_id=log.stream_id,
        receiver_id=RECEIVER_ID,
        flags=StatusMessageFlags.SEND_SETUP,
    )


def nak(position: int, length: int, initial_term_id: int = INITIAL_TERM_ID) -> Nak:
    term_id, term_offset = place(position, initial_term_id)
    return Nak(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        term_id=term_id,
        term_offset=term_offset,
        length=length,
    )


def setup(position: int = 0, **changes: Any) -> Setup:
    term_id, term_offset = place(position)
    fields: dict[str, Any] = {
        "term_offset": term_offset,
        "session_id": SESSION_ID,
        "stream_id": STREAM_ID,
        "initial_term_id": INITIAL_TERM_ID,
        "active_term_id": term_id,
        "term_length": TERM_LENGTH,
        "mtu_length": MTU_LENGTH,
    }
    return Setup(**(fields | changes))


def data(
    position: int,
    length: int,
    *,
    flags: DataFlags = DataFlags.UNFRAGMENTED,
    frame_type: FrameType = FrameType.DATA,
    **changes: Any,
) -> bytes:
    """Return one frame that takes `length` bytes of the stream; its payload tells its position."""
    term_id, term_offset = place(position, changes.pop("initial_term_id", INITIAL_TERM_ID))
    fields: dict[str, Any] = {
        "frame_length": length,
        "term_offset": term_offset,
        "session_id": SESSION_ID,
        "stream_id": STREAM_ID,
        "term_id": term_id,
    }
    header = DataHeader(flags=flags, frame_type=frame_type, **(fields | changes))
    if frame_type is FrameType.PAD:
        return header.encode()
    body = payload(position, length).ljust(align_frame(length) - 32, b"\0")
    return DataFrame(header, body).encode()


def payload(position: int, length: int) -> bytes:
    """Return what `data` puts into a frame."""
    return (position.to_bytes(8, "little") * (length // 8))[: length - 32]


def pad(position: int, length: int) -> bytes:
    return data(position, length, frame_type=FrameType.PAD)


def heartbeat(position: int, flags: DataFlags = DataFlags.UNFRAGMENTED, **changes: Any) -> bytes:
    term_id, term_offset = place(position, changes.pop("initial_term_id", INITIAL_TERM_ID))
    return encode_heartbeat(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        term_id=term_id,
        term_offset=term_offset,
        flags=flags,
    )


EOS: Final = DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM
