"""Outboxes: the interface through which cores send, and limits before a receiver has answered.

A core sends through `DataOutbox` and `ReceiveDestination`. The endpoints of `driver/media`
implement them; in tests, a list does.

Invariant: to a receiver that has not answered a SETUP yet, `HandshakeBudget` allows at most three
times the bytes that came from its address, as a QUIC server does before a path is validated. A
stranger may have forged the address of another host, and only an answer proves it genuine.
`ResponseOutbox` sends to the receiver that asked last, within such a budget, until it answers.

Differs: Aeron sends a SETUP every 100 ms for as long as the publication lives. A publication with
its own budget increases the interval, so that the budget lasts for seconds.

Source: RFC 9000, section 8.1; Aeron `aeron_network_publication_trigger_send_setup_frame`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, Protocol

from aeron_async.clock import NS_PER_SECOND
from aeron_async.protocol.header import DATA_HEADER_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.protocol.header import Buffer

__all__ = [
    "SENT_PER_BYTE",
    "Address",
    "DataOutbox",
    "HandshakeBudget",
    "HeartbeatBatch",
    "ReceiveDestination",
    "ReportBatch",
    "ResendBatch",
    "ResponseOutbox",
]

Address = tuple[str, int]
"""A numeric host and a port; IPv6 without scope or flow."""


class DataOutbox(Protocol):
    """Sends the datagrams of a publication to its receivers."""

    def send(self, datagram: Buffer) -> bool:
        """Send to every receiver now, without a copy; return False if that failed."""
        ...

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        """Send segment batches to every receiver now; return how many bytes were sent.

        Args:
            data: The datagrams, one after the other; not kept.
            segments: For each batch, its end in `data` and the length of its datagrams, in bytes;
                only the last datagram of a batch may be shorter.

        Returns:
            The length of the whole datagrams sent, from the first on; less than the length of
            `data` if one failed, and then none after it was sent.
        """
        ...


class HeartbeatBatch:
    """Heartbeats of several streams, which leave together: those of one outbox in one call.

    All are 32 bytes long, so the system cuts one batch into a datagram for each.
    """

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: dict[DataOutbox, bytearray] = {}

    def add(self, outbox: DataOutbox, heartbeat: bytes) -> None:
        """Let a heartbeat leave with the others."""
        frames = self._frames.get(outbox)
        if frames is None:
            frames = self._frames[outbox] = bytearray()
        frames += heartbeat

    def send(self, on_error: Callable[[Exception], object]) -> int:
        """Send all of them; return how many were not sent.

        Args:
            on_error: Called with what an outbox has raised; the others send all the same.
        """
        short_count = 0
        gathered, self._frames = self._frames, {}
        for outbox, frames in gathered.items():
            length, left = len(frames), 0
            try:
                if length == DATA_HEADER_LENGTH:
                    left = length if outbox.send(frames) else 0
                else:
                    segments = array("i", (length, DATA_HEADER_LENGTH))
                    left = outbox.send_batches(memoryview(frames), segments)
            except Exception as error:  # noqa: BLE001 - it is reported
                on_error(error)
            short_count += (length - left) // DATA_HEADER_LENGTH
        return short_count


RESENT_LENGTH_MAX: Final = 32_768
"""Bytes of resends that are copied before they leave."""
RESENT_COUNT_MAX: Final = 64
"""Resends that leave in one call: the system cuts a batch into no more datagrams."""


class ResendBatch:
    """Resends of one stream, which leave together: those of one length in one call.

    They lie here and there in the log, so they are copied behind each other. What is behind a
    datagram that could not be sent does not leave either.

    Args:
        send: Sends one datagram; returns whether that succeeded.
        send_batches: Sends segment batches; see `DataOutbox`.
    """

    __slots__ = ("_count", "_datagrams", "_length", "_send", "_send_batches", "_short_length")

    def __init__(
        self,
        send: Callable[[memoryview], bool],
        send_batches: Callable[[memoryview, SegmentTable], int],
    ) -> None:
        self._send = send
        self._send_batches = send_batches
        self._datagrams = bytearray()
        self._length = self._count = self._short_length = 0

    def add(self, datagram: memoryview) -> bool:
        """Let a datagram leave with the others; return False if those before it could not."""
        length = len(datagram)
        if self._count and (
            length > self._length
            or self._count >= RESENT_COUNT_MAX
            or len(self._datagrams) + length > RESENT_LENGTH_MAX
        ):
            self._flush()
        if self._short_length:
            return False
        if not self._count:
            self._length = length
        self._datagrams += datagram
        self._count += 1
        # Only the last datagram of a batch may be shorter than the others.
        if length < self._length:
            self._flush()
        return True

    def send(self) -> int:
        """Send all that were added; return how many bytes, of these and before, did not leave."""
        self._flush()
        short_length, self._short_length = self._short_length, 0
        return short_length

    def _flush(self) -> None:
        if not self._count:
            return
        datagrams, self._datagrams = self._datagrams, bytearray()
        count, self._count = self._count, 0
        length = len(datagrams)
        if count == 1:
            sent_length = length if self._send(memoryview(datagrams)) else 0
        else:
            segments = array("i", (length, self._length))
            sent_length = self._send_batches(memoryview(datagrams), segments)
        self._short_length += length - sent_length


class ReceiveDestination(Protocol):
    """One socket of a receive endpoint, by which it receives and answers; most endpoints have one.

    Source: Aeron `ReceiveDestinationTransport`.
    """

    @property
    def is_multicast(self) -> bool:
        """Return whether data arrives by multicast."""
        ...

    @property
    def control_address(self) -> Address | None:
        """Return the address for status messages and NAKs; None means the source of the data."""
        ...

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send to `address` now; return False if that failed."""
        ...

    def send_batch(self, batch: memoryview, segment_length: int, address: Address) -> int:
        """Send datagrams of one length to `address` now; return the bytes sent, in whole ones."""
        ...


class ReportBatch:
    """Status messages of several images, or NAKs of one: those to one address leave in one call.

    Status messages with a group tag are longer than the others, and the system cuts a batch into
    datagrams of one length.
    """

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: dict[tuple[ReceiveDestination, Address, int], bytearray] = {}

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(
        self, destination: ReceiveDestination, address: Address, frames: bytes, length: int = 0
    ) -> None:
        """Let frames of one length, in bytes, leave with the others; 0 for a single frame."""
        key = destination, address, length or len(frames)
        gathered = self._frames.get(key)
        if gathered is None:
            gathered = self._frames[key] = bytearray()
        gathered += frames

    def send(self, on_error: Callable[[Exception], object]) -> tuple[int, int]:
        """Send all of them; return how many were sent and how many were not.

        Args:
            on_error: Called with what a destination has raised; the others send all the same.
        """
        sent_count = short_count = 0
        gathered, self._frames = self._frames, {}
        for (destination, address, length), frames in gathered.items():
            count, start = 0, 0
            try:
                while start < len(frames):
                    left = memoryview(frames)[start:]
                    if len(left) == length:
                        sent_length = length if destination.send_to(left, address) else 0
                    else:
                        sent_length = destination.send_batch(left, length, address)
                    count += sent_length // length
                    # What the system has refused is left out; it may take the others.
                    start += sent_length + length
            except Exception as error:  # noqa: BLE001 - it is reported
                on_error(error)
            sent_count += count
            short_count += len(frames) // length - count
        return sent_count, short_count


# Before a receiver has answered.

SENT_PER_BYTE: Final = 3
"""Bytes that may be sent for each byte that was received."""


class HandshakeBudget:
    """The bytes that may still be sent to one receiver.

    Args:
        length: The initial budget, in bytes.
    """

    __slots__ = ("length",)

    def __init__(self, length: int = 0) -> None:
        self.length: int = length

    def on_received(self, length: int) -> None:
        """Add three times the bytes that the receiver sent."""
        self.length += SENT_PER_BYTE * length

    def try_take(self, length: int) -> bool:
        """Return whether this many bytes may be sent now, and count them if so."""
        if length > self.length:
            return False
        self.length -= length
        return True


KNOWN_MOST: Final = 8
"""Receivers that are remembered because they have asked; the first is forgotten first."""
PREFERRED_NS: Final = 5 * NS_PER_SECOND
"""How long a receiver at the host of the requests goes before others after it has asked."""


class ResponseOutbox:
    """Sends to the receiver that last asked for a SETUP; without one, it sends nothing.

    Only who has asked, or has had the responses before, can answer. A receiver at the host that
    the requests come from goes before all others: it takes the responses from a receiver elsewhere,
    and no other takes them from it. A client may receive at another address than it sends from, so
    others are served, too.

    Args:
        send_to: Sends a datagram to an address, and returns whether that succeeded.
        send_batches_to: Sends segment batches, and returns how many bytes were sent.
        withheld: Counts datagrams not sent because the receiver has not answered yet.
        host: Host that the requests come from; None if it is not known.

    Attributes:
        address: The address of the receiver.
        answered: The same once it has answered; None before: a `SendLane` sends to it by itself.
    """

    def __init__(
        self,
        send_to: Callable[[Buffer, Address], bool],
        send_batches_to: Callable[[memoryview, SegmentTable, Address], int],
        withheld: Counter,
        host: str | None = None,
    ) -> None:
        self._send_to = send_to
        self._send_batches_to = send_batches_to
        self._withheld = withheld
        self._host = host
        self._budget: HandshakeBudget | None = None
        # Who has asked, and who answered last: its image may live although it was silent for long.
        self._known: dict[Address, None] = {}
        # Until when a receiver elsewhere is not listened to.
        self._preferred_ns = 0
        self.address: Address | None = None
        self.answered: Address | None = None

    def goes_before(self, address: Address) -> bool:
        """Return whether a receiver may take the responses from the one that has them."""
        if address[0] != self._host:
            return False
        return self.address is not None and self.address[0] != self._host

    def waits_for(self, address: Address) -> bool:
        """Return whether a receiver is to answer: it asks again if its SETUP was lost."""
        return self._budget is not None and address == self.address

    def on_asked(self, address: Address, length: int, now_ns: int) -> None:
        """Send to this address from now on, unless a receiver goes before it.

        Args:
            address: The address the SETUP request came from.
            length: Length of the request, in bytes.
            now_ns: The time.
        """
        if address[0] == self._host:
            self._preferred_ns = now_ns + PREFERRED_NS
        elif now_ns < self._preferred_ns:
            return
        if address not in self._known and len(self._known) >= KNOWN_MOST:
            del self._known[next(iter(self._known))]
        self._known[address] = None
        if self._budget is None or address != self.address:
            self.address, self._budget = address, HandshakeBudget()
            self.answered = None
        self._budget.on_received(length)

    def may_answer(self, address: Address, now_ns: int) -> bool:
        """Return whether a status message is of the receiver, or of one that may become it."""
        if address == self.address or self._budget is None:
            return address == self.address
        is_behind = now_ns < self._preferred_ns and address[0] != self._host
        return address in self._known and not is_behind

    def on_answered(self, address: Address) -> None:
        """Send to this receiver, which may answer, from now on without a budget."""
        if self._budget is not None:
            self.address, self._budget = address, None
            self.answered = address
            self._known = {address: None}

    def send(self, datagram: Buffer) -> bool:
        """Send to the receiver now; return False if that failed."""
        if self.address is None:
            return False
        if self._budget is not None and not self._budget.try_take(len(datagram)):
            # Withheld on purpose: an immediate retry would be useless.
            self._withheld.increment()
            return True
        return self._send_to(datagram, self.address)

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        """Send segment batches to the receiver now; return how many bytes were sent."""
        if self.address is None or self._budget is not None:
            return 0
        return self._send_batches_to(data, segments, self.address)
