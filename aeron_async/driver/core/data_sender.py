"""The sending half of a network publication: SETUPs, data, heartbeats and resends.

Invariant: data is sent only up to the sender limit. One exception: of a padding frame only the
header is sent, so padding may move the sender position past the limit.

Invariant: a resend begins only at the start of a frame of this publication, which
`FrameBoundaryIndex` verifies. A NAK for any other place is refused. `RefusedNaks` warns when the
same one is repeated: its receiver was sent something that does not belong to this publication, and
its stream is stuck.

Source: Aeron `NetworkPublication.send`, `aeron_network_publication.c`. `FrameBoundaryIndex` and
`RefusedNaks` have no counterpart: `aeron_network_publication_resend` resends from any place that a
NAK names, and sends whatever lies there.
"""

from __future__ import annotations

import mmap
from array import array
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS, SETUP_INTERVAL_NS
from aeron_async.driver.core.lanes import Streaming
from aeron_async.driver.core.outbox import HandshakeBudget, HeartbeatBatch, ResendBatch
from aeron_async.driver.core.round_trip import RoundTrip
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.log_buffers import producer_position
from aeron_async.logbuffer.placing import skip_whole
from aeron_async.logbuffer.position import (
    max_message_length,
    partition_index,
    term_id_at,
)
from aeron_async.logbuffer.scanner import BLOCK_BITS, mark_starts, scan_batches, scan_for_send
from aeron_async.logs import get_logger, within
from aeron_async.protocol.data import encode_heartbeat
from aeron_async.protocol.header import FRAME_ALIGNMENT, DataFlags, SetupFlags, align_frame
from aeron_async.protocol.setup import SETUP_LENGTH, Setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address, DataOutbox
    from aeron_async.driver.core.stream_counters import PublicationCounters
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.timestamps import SendTimestamps
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.logs import LogBudget
    from aeron_async.protocol.header import Buffer

__all__ = [
    "FrameBoundaryIndex",
    "RefusedNaks",
    "StreamSender",
    "resend_range",
]

# Frame starts, and resends from there.

POSITION_LENGTH: Final = 8


class FrameBoundaryIndex:
    """The start of the first datagram in each block of the stream, for the length of one term.

    The log alone cannot tell where frames begin, because payload may look like a header: a peer
    that influences what is published could make the sender resend bytes of the peer's own as
    frames. So this class records, for every 4 KiB of the stream, where the first datagram in it
    began, and finds a frame by walking from header to header from there. A resend starts at no
    other place.

    An honest NAK begins where a gap does: at the end of a datagram that was sent or resent. Resent
    data may be divided into other datagrams than before, so that place is the start of a frame, but
    not always of a datagram as first sent.

    The cost: one comparison per datagram, and 8 bytes per 4 KiB of a term, touched as the stream
    advances. A check walks over at most 4 KiB and a datagram, and only if the header at the place
    names this very place, which payload hardly ever does. Rejected: one bit for each place in a
    term, which costs a store per datagram and misses other divisions; and walking from the start of
    the term, which takes milliseconds for every NAK.

    Attributes:
        next_position: A datagram that begins at or after this position must be marked; in bytes.
    """

    def __init__(self, log: LogBuffers, position: int) -> None:
        self._log = log
        self._block_count = log.term_length >> BLOCK_BITS
        # A datagram that covers a place began at most this many blocks before it.
        self._reach = (log.mtu_length >> BLOCK_BITS) + 1
        # Most streams of many are silent, and have this one position alone.
        self._first_position = position
        self._table: memoryview | None = None
        self.next_position: int = ((position >> BLOCK_BITS) + 1) << BLOCK_BITS

    @property
    def _positions(self) -> memoryview:
        """Return the position of the first datagram in each block."""
        if self._table is None:
            # Anonymous memory: pages for data that is never sent are never allocated.
            memory = mmap.mmap(-1, self._block_count * POSITION_LENGTH)
            self._table = memoryview(memory).cast("q")
            first = self._first_position
            self._table[(first >> BLOCK_BITS) % self._block_count] = first
        return self._table

    def mark(self, position: int) -> None:
        """Record that the first datagram of a block begins at `position`."""
        block = position >> BLOCK_BITS
        self._positions[block % self._block_count] = position
        self.next_position = (block + 1) << BLOCK_BITS

    def mark_batches(self, position: int, length: int, segments: SegmentTable) -> None:
        """Record, for each block that segment batches reach, its first datagram.

        `position` is that of the first datagram, `length` that of all that were sent.
        """
        self.next_position = mark_starts(
            self._positions, self.next_position, position, segments, length
        )

    def is_start(self, position: int) -> bool:
        """Return whether a frame is known to begin at `position`, a multiple of 32."""
        log = self._log
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        offset = position & (log.term_length - 1)
        # A cheap check that refuses most false places. It proves nothing.
        term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
        if words[(offset >> 2) + 2] != offset or words[(offset >> 2) + 5] != term_id:
            return False
        known_position = self._known_start_before(position)
        if known_position is None:
            return False
        return skip_whole(words, offset - (position - known_position), offset) == offset

    def _known_start_before(self, position: int) -> int | None:
        """Return the start of a datagram at or before `position`, if one is near enough.

        Each term begins with a datagram and with a block, so the result lies in the same term.
        """
        block = position >> BLOCK_BITS
        for each in range(block, block - self._reach - 1, -1):
            known_position = self._positions[each % self._block_count]
            if known_position >> BLOCK_BITS == each and known_position <= position:
                return known_position
        return None


def oldest_resendable(log: LogBuffers, sender_position: int) -> int:
    """Return the position from which sent data can be resent, in bytes.

    The log keeps a term. What lies further back than half a term and the longest message may be
    cleaned while a receiver asks for it.
    """
    return sender_position - log.term_length // 2 - max_message_length(log.term_length)


def resend_range(
    log: LogBuffers,
    send: Callable[[memoryview], bool],
    *,
    sender_position: int,
    position: int,
    length: int,
) -> int:
    """Resend the whole frames of a range, and return how many bytes of the stream that covered.

    A range resends nothing if it begins before `oldest_resendable`, begins beyond what was sent, or
    is shorter than its first frame.
    """
    if not oldest_resendable(log, sender_position) <= position < sender_position:
        return 0
    index = partition_index(position, bits=log.position_bits)
    term, words = log.terms[index], log.term_words[index]
    # Differs: C continues into data that has not been sent yet, past the sender limit.
    sent_length = sender_position - position
    start = position & (log.term_length - 1)
    offset, end = start, min(start + min(length, sent_length), log.term_length)
    while offset < end:
        limit = min(end - offset, log.mtu_length)
        available, padding = scan_for_send(term, words, offset, limit=limit)
        if available == 0 or not send(term[offset : offset + available]):
            break
        offset += available + padding
    return offset - start


# Refused NAKs.

REPEATS_MIN: Final = 8
"""This many NAKs for one place are no accident."""
LOG_INTERVAL_NS: Final = 1_000_000_000
NO_FRAME: Final = "no frame begins there"
TOO_OLD: Final = "the data has left the log"
REMEDIES: Final = {
    NO_FRAME: (
        "the receiver has frames that this publication did not send, and cannot continue behind "
        "them: look for forged frames, or for another publisher of this session; a receiver of "
        "this software ends its image after image_gap_timeout_ns, and joins again"
    ),
    TOO_OLD: (
        "the receiver is more than half a term behind: let the publication wait for it with fc=min "
        "or fc=tagged, or raise term-length; a receiver of this software ends its image after "
        "image_gap_timeout_ns, and joins again"
    ),
}
"""What to do about NAKs, by the reason for which they are refused."""

log: Final = get_logger(__name__)


class RefusedNaks:
    """Counts the NAKs refused in a row for the same place, and logs when they are too many."""

    __slots__ = ("_count", "_is_news", "_log", "_logged_ns", "_peer_log", "_position", "_reason")

    def __init__(self, log_buffers: LogBuffers, log_budget: LogBudget | None = None) -> None:
        self._peer_log = within(log_budget, log)
        self._log = log_buffers
        self._position = -1
        self._reason = NO_FRAME
        self._count = 0
        self._is_news = False
        self._logged_ns = -LOG_INTERVAL_NS

    def on_refused(self, position: int, reason: str) -> None:
        """Record a NAK for a position, in bytes, and why it is refused: a key of `REMEDIES`."""
        self._reason = reason
        if position != self._position:
            self._position = position
            self._count = 0
        self._count += 1
        self._is_news = self._count >= REPEATS_MIN

    def tell(self, source: Address | None, now_ns: int) -> None:
        """Log the last refused NAK if it was repeated too often, at most once a second."""
        if not self._is_news:
            return
        self._is_news = False
        if now_ns < self._logged_ns + LOG_INTERVAL_NS:
            return
        self._logged_ns = now_ns
        self._peer_log.warning(
            "naks_refused",
            source=source,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            position=self._position,
            count=self._count,
            reason=self._reason,
            remedy=REMEDIES[self._reason],
        )


# The sender.

UNANSWERED_INTERVAL_MAX_NS: Final = 1_000_000_000
"""The longest interval between SETUPs under a handshake budget; each is twice the one before.

At Aeron's interval of 100 ms the budget (three bytes for each byte of a request) is used up in
700 ms, and a receiver that starts later is never found.
"""
SEND_RETRY_NS: Final = 1_000_000
"""How long to wait before retrying a datagram that could not be sent."""
BATCH_LENGTH_MAX: Final = 65_504
"""The most bytes that one call may send: what one UDP datagram holds, in whole frames."""
BATCH_COUNT_MAX: Final = 64
"""The most datagrams that one call may send: `UDP_MAX_SEGMENTS` of the oldest kernels."""
BATCHES_MAX: Final = 64
"""The most segment batches that are scanned before they are sent."""


class StreamSender(Streaming):
    """The sending half of one publication.

    `burst_limit` is the number of full segment batches sent before other streams get their turn;
    a batch of a single datagram costs as much as six datagrams.

    Attributes:
        setup_count: Number of SETUPs sent.
        first_setup_ns: When the first SETUP was sent.
        refused_naks: Logs NAKs that are refused again and again.
        is_revoked: Whether heartbeats say that the stream was revoked.
    """

    # As for `SubscribablePublication`: with 30 attributes, each object would have its own table.
    __slots__ = (
        "_batch_count_max",
        "_bits",
        "_burst_limit",
        "_bytes_sent",
        "_counters",
        "_flow_control_limits",
        "_handshake",
        "_heartbeat",
        "_heartbeats_sent",
        "_last_setup_ns",
        "_log",
        "_mask",
        "_outbox",
        "_params",
        "_rejected_naks",
        "_resends",
        "_resent_count",
        "_resent_length",
        "_retransmits_sent",
        "_retransmitted_bytes",
        "_said",
        "_segments",
        "_setup_interval_ns",
        "_short_sends",
        "_timestamps",
        "_withheld",
        "first_setup_ns",
        "is_revoked",
        "refused_naks",
        "setup_count",
    )

    setup_count: int
    first_setup_ns: int

    def __init__(
        self,
        log: LogBuffers,
        *,
        params: PublicationParams,
        counters: PublicationCounters,
        system_counters: SystemCounters,
        outbox: DataOutbox,
        burst_limit: int,
        now_ns: int,
        timestamps: SendTimestamps | None = None,
    ) -> None:
        self._log = log
        self._params = params
        self._counters = counters
        self._bytes_sent = system_counters[SystemCounterId.BYTES_SENT]
        self._heartbeats_sent = system_counters[SystemCounterId.HEARTBEATS_SENT]
        self._retransmits_sent = system_counters[SystemCounterId.RETRANSMITS_SENT]
        self._retransmitted_bytes = system_counters[SystemCounterId.RETRANSMITTED_BYTES]
        # Made for the first NAK.
        self._resends: ResendBatch | None = None
        self._resent_count = self._resent_length = 0
        self._rejected_naks = system_counters[DriverCounterId.NAKS_REJECTED]
        self.refused_naks: RefusedNaks = RefusedNaks(log, system_counters.log_budget)
        self.round_trip = RoundTrip()
        self.is_revoked = False
        # The last heartbeat, and what it says: an idle stream says the same again and again.
        self._heartbeat, self._said = b"", (-1, 0)
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]
        self._flow_control_limits = system_counters[SystemCounterId.SENDER_FLOW_CONTROL_LIMITS]
        self._outbox = outbox
        length = params.handshake_length
        self._handshake = None if length is None else HandshakeBudget(length)
        self._setup_interval_ns = SETUP_INTERVAL_NS
        self._withheld = system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD]
        self._timestamps = timestamps
        # With timestamps, datagrams are sent one by one, each as full as possible.
        is_batching = params.is_batching and timestamps is None
        self._batch_count_max = BATCH_COUNT_MAX if is_batching else 1
        self._burst_limit = burst_limit
        self._bits = log.position_bits
        self._mask = log.term_length - 1
        # Made for the first data that is sent.
        self._segments: SegmentTable | None = None
        self._is_tracking_limit = False
        self._last_setup_ns = now_ns - SETUP_INTERVAL_NS
        self._last_sent_ns = now_ns - HEARTBEAT_INTERVAL_NS
        self.setup_count = self.first_setup_ns = 0
        self.position = self.limit = producer_position(log)
        self._frame_starts = FrameBoundaryIndex(log, self.position)
        self._attach(counters.sender_position, self._bytes_sent)
        counters.sender_position.set(self.position)
        counters.sender_limit.set(self.limit)

    @property
    def heartbeat_deadline_ns(self) -> int:
        """Return when a heartbeat is due if no data is sent before."""
        return self._last_sent_ns + HEARTBEAT_INTERVAL_NS

    @property
    def has_budget(self) -> bool:
        """Return whether the handshake budget still applies: no receiver has answered yet."""
        return self._handshake is not None

    @property
    def setup_deadline_ns(self) -> int:
        """Return when the next SETUP may be sent."""
        return self._last_setup_ns + self._setup_interval_ns

    def send_setup_soon(self) -> None:
        """Let the next SETUP be sent at once: until now there was no address to send it to."""
        self._last_setup_ns -= self._setup_interval_ns

    def on_answered(self) -> None:
        """Drop the handshake budget: a receiver has answered."""
        self._handshake, self._setup_interval_ns = None, SETUP_INTERVAL_NS

    def set_limit(self, limit: int) -> None:
        """Set the limit that flow control computed; it may lie behind the position."""
        if limit != self.limit:
            self.limit = limit
            self._counters.sender_limit.set(limit)

    def skip_to(self, position: int) -> None:
        """Move the position forward over data that only spies have read.

        A receiver that joins later may still ask for it, so its frame starts are recorded.
        """
        log, starts, start = self._log, self._frame_starts, self.position
        while start < position:
            if start >= starts.next_position:
                starts.mark(start)
            words = log.term_words[partition_index(start, bits=self._bits)]
            start += max(FRAME_ALIGNMENT, align_frame(words[(start & self._mask) >> 2]))
        self.position = max(self.position, position)
        self._counters.sender_position.set(self.position)
        self.set_limit(self.position)

    def send_setup(self, now_ns: int, position: int) -> None:
        """Send a SETUP for a receiver that starts at `position`, if the budget allows it."""
        self._last_setup_ns = now_ns
        if self._handshake is not None:
            if not self._handshake.try_take(SETUP_LENGTH):
                self._withheld.increment()
                return
            if self.setup_count:
                self._setup_interval_ns = min(
                    2 * self._setup_interval_ns, UNANSWERED_INTERVAL_MAX_NS
                )
        flags = SetupFlags.GROUP if self._params.has_group_semantics else SetupFlags(0)
        if self._params.is_response_requested:
            flags |= SetupFlags.SEND_RESPONSE
        setup = Setup(
            flags=flags,
            term_offset=position & self._mask,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            initial_term_id=self._log.initial_term_id,
            active_term_id=self._term_id(position),
            term_length=self._log.term_length,
            mtu_length=self._log.mtu_length,
            ttl=self._params.ttl,
        )
        self.send(setup.encode())
        self.first_setup_ns = self.first_setup_ns if self.setup_count else now_ns
        self.setup_count += 1

    def send_data_fast(self, now_ns: int) -> bool:
        """Send one datagram; return whether that was all there was and nothing held it back.

        A failed send is not counted here: the burst that follows tries it again.
        """
        log, position = self._log, self.position
        window = self.limit - position
        if self._timestamps is not None or window <= log.mtu_length:
            return False
        index = partition_index(position, bits=self._bits)
        offset = position & self._mask
        term, words = log.terms[index], log.term_words[index]
        length, padding = scan_for_send(term, words, offset, limit=log.mtu_length)
        if length == 0 or padding:
            return False
        if not self._outbox.send(term[offset : offset + length]):
            return False
        self.on_sent_alone(length, now_ns)
        # After a full term comes another one, which may hold more data.
        end = offset + length
        return end <= self._mask and words[end >> 2] == 0

    def send_data(self, now_ns: int) -> int:
        """Send a burst of whole frames, and return when to send again."""
        log, limit, mtu_length = self._log, self.limit, self._log.mtu_length
        position, frame_starts, table = self.position, self._frame_starts, self._segments
        deadline_ns = NEVER_NS
        sent_length = 0
        is_blocked = False
        cost_left = self._burst_limit * BATCH_COUNT_MAX
        while cost_left > 0:
            window = limit - position
            if window <= 0:
                is_blocked = True
                break
            index = partition_index(position, bits=self._bits)
            offset = position & self._mask
            term, words = log.terms[index], log.term_words[index]
            if table is None:
                if words[offset >> 2] <= 0:
                    break
                table = self._segments = memoryview(array("i", bytes(8 * BATCHES_MAX)))
            available, count, padding, cost = scan_batches(
                term,
                words,
                offset,
                table,
                limit=window,
                mtu_length=mtu_length,
                batch_length=BATCH_LENGTH_MAX,
                max_count=self._batch_count_max,
                cost=cost_left,
            )
            if available == 0:
                is_blocked = words[offset >> 2] > 0
                break
            segments = table[: 2 * count]
            left = self._send_batches(term[offset : offset + available], segments)
            cost_left -= cost
            if left:
                frame_starts.mark_batches(position, left, segments)
                sent_length += left
                position += left
            if left < available:
                deadline_ns = now_ns + SEND_RETRY_NS
                break
            position += padding
        else:
            deadline_ns = now_ns
        if sent_length:
            self._last_sent_ns = now_ns
            self._is_tracking_limit = True
            self.round_trip.on_sent(self.position, now_ns)
            self.position = position
            self._counters.sender_position.set(position)
            self._bytes_sent.increment(sent_length)
        if is_blocked and self._is_tracking_limit:
            self._on_blocked()
        return deadline_ns

    def send_heartbeat(
        self, now_ns: int, *, is_end_of_stream: bool, batch: HeartbeatBatch | None = None
    ) -> None:
        """Send a heartbeat at the sender position, now or with the others of a batch."""
        flags = DataFlags.UNFRAGMENTED
        if self.is_revoked:
            flags |= DataFlags.END_OF_STREAM | DataFlags.REVOKED
        elif is_end_of_stream and self._params.signal_eos:
            flags |= DataFlags.END_OF_STREAM
        said = (self.position, flags)
        if said != self._said:
            self._heartbeat = encode_heartbeat(
                session_id=self._log.session_id,
                stream_id=self._log.stream_id,
                term_id=self._term_id(self.position),
                term_offset=self.position & self._mask,
                flags=flags,
            )
            self._said = said
        heartbeat = self._heartbeat
        if batch is not None:
            batch.add(self._outbox, heartbeat)
            self._bytes_sent.increment(len(heartbeat))
        elif self.send(heartbeat):
            self._bytes_sent.increment(len(heartbeat))
        self._heartbeats_sent.increment()
        self._last_sent_ns = now_ns

    def resend(self, position: int, length: int) -> int:
        """Gather a range to resend, as far as the log holds it; return how many bytes that covers.

        It leaves with `send_resends`, or before if there is too much.

        Differs: Aeron treats whatever lies at the start of the range as a frame.
        """
        log = self._log
        is_too_old = position < oldest_resendable(log, self.position)
        if is_too_old or not self._frame_starts.is_start(position):
            self._rejected_naks.increment()
            self.refused_naks.on_refused(position, TOO_OLD if is_too_old else NO_FRAME)
            return 0
        if self._resends is None:
            self._resends = ResendBatch(self.send, self._send_batches)
        resent_length = resend_range(
            log,
            self._resends.add,
            sender_position=self.position,
            position=position,
            length=length,
        )
        if resent_length > 0:
            self._resent_count += 1
            self._resent_length += resent_length
        return resent_length

    def send_resends(self, take_back: Callable[[int], int]) -> bool:
        """Send what `resend` has gathered; return whether all of it left.

        Args:
            take_back: Called with the bytes that did not leave, the last ones; returns how many
                ranges that takes back.
        """
        if self._resends is None or not self._resent_count:
            return True
        count, self._resent_count = self._resent_count, 0
        length, self._resent_length = self._resent_length, 0
        short_length = self._resends.send()
        if short_length:
            count -= take_back(short_length)
        if count > 0:
            self._retransmits_sent.increment(count)
            self._retransmitted_bytes.increment(max(0, length - short_length))
        return not short_length

    def send(self, datagram: Buffer) -> bool:
        """Send one datagram; if that fails, count it and return False."""
        if self._timestamps is not None and isinstance(datagram, memoryview):
            self._timestamps.stamp(datagram)
        if self._outbox.send(datagram):
            return True
        self._short_sends.increment()
        return False

    def _send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        """Send segment batches; return the bytes sent, and count the datagram that failed."""
        if self._timestamps is None:
            left = self._outbox.send_batches(data, segments)
            if left < len(data):
                self._short_sends.increment()
            return left
        start = 0
        for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
            while start < end:
                datagram_end = min(start + segment_length, end)
                if not self.send(data[start:datagram_end]):
                    return start
                start = datagram_end
        return start

    def _on_blocked(self) -> None:
        """Count an exhausted window, once until data is sent again."""
        self._is_tracking_limit = False
        self._counters.back_pressure_events.increment()
        self._flow_control_limits.increment()

    def _term_id(self, position: int) -> int:
        return term_id_at(position, initial_term_id=self._log.initial_term_id, bits=self._bits)
