"""The sending half of a network publication: SETUPs, data, heartbeats and resends.

Invariant: data leaves only up to the sender limit, except that a padding frame, of which only the
header travels, may carry the sender position past it.

Invariant: a resend begins only where a frame of the publication begins; `FrameStarts` knows where
that is. A NAK for any other place is refused, and `RefusedNaks` warns when the same one comes
again and again: a receiver that asks from there was sent something that is not of the publication,
and its stream stands still.

Source: Aeron `NetworkPublication.send`, `aeron_network_publication.c`. For `FrameStarts` and
`RefusedNaks` it has none: `aeron_network_publication_resend` resends from wherever a NAK says, and
answers with whatever lies there.
"""

from __future__ import annotations

import mmap
from array import array
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS, SETUP_INTERVAL_NS
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.outbox import HandshakeBudget
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.log_buffers import producer_position
from aeron_async.logbuffer.position import (
    compute_position,
    max_message_length,
    partition_index,
    term_id_at,
)
from aeron_async.logbuffer.scanner import BLOCK_BITS, mark_starts, scan_for_send, scan_runs
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
    from aeron_async.logbuffer.placing import Cuts
    from aeron_async.logs import LogBudget
    from aeron_async.protocol.header import Buffer

__all__ = [
    "FrameStarts",
    "RefusedNaks",
    "StreamSender",
    "resend_range",
]

# Where frames begin, and resends from there.

POSITION_LENGTH: Final = 8


class FrameStarts:
    """The datagrams that began a block of the stream, for the last term's length of it.

    The log alone cannot tell where frames begin, because payload may look like a header: a peer
    that has a say in what is published could have bytes of its own sent to the receivers as
    frames. So this class remembers, for every 4 KiB of the stream, where the first datagram in it
    began, and finds a frame by walking from header to header from there. Only these two kinds of
    places are ever believed.

    An honest NAK begins where a gap does: where some datagram ended that was sent or sent again.
    What is sent again may be cut elsewhere than before, so that is the start of a frame, but not
    always that of a datagram as it was first sent.

    The cost: a comparison for each datagram, and 8 bytes for each 4 KiB of a term, touched as the
    stream goes by. A question walks over 4 KiB and a datagram at most, and that only if the place
    claims to be the one that is asked for, which hardly any payload does. Rejected: a bit for each
    place in a term, which costs a store for each datagram and knows nothing of other cuts; and
    walking from the start of the term, which takes milliseconds for every NAK.

    Args:
        log: Where the frames are.
        position: Where the stream starts, in bytes.

    Attributes:
        next_position: From here on the start of a datagram is worth a `mark`, in bytes.
    """

    def __init__(self, log: LogBuffers, position: int) -> None:
        self._log = log
        self._block_count = log.term_length >> BLOCK_BITS
        # A datagram that covers a place began so many blocks before it at most.
        self._reach = (log.mtu_length >> BLOCK_BITS) + 1
        # Anonymous memory: the pages of what is never sent are never taken.
        memory = mmap.mmap(-1, self._block_count * POSITION_LENGTH)
        self._positions = memoryview(memory).cast("q")
        self.mark(position)

    def mark(self, position: int) -> None:
        """Take note that the first datagram of a block begins at `position`."""
        block = position >> BLOCK_BITS
        self._positions[block % self._block_count] = position
        self.next_position: int = (block + 1) << BLOCK_BITS

    def mark_runs(self, position: int, length: int, cuts: Cuts) -> None:
        """Take note of runs of datagrams: for each block that they reach, of its first one there.

        Args:
            position: Of the first.
            length: Of all together, as far as they have left.
            cuts: Where they are cut; see `scan_runs`.
        """
        self.next_position = mark_starts(
            self._positions, self.next_position, position, cuts, length
        )

    def is_start(self, position: int) -> bool:
        """Return whether a frame is known to begin at `position`, a multiple of 32."""
        log = self._log
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        offset = position & (log.term_length - 1)
        # What most lies do not survive, at the price of two loads. It proves nothing.
        term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
        if words[(offset >> 2) + 2] != offset or words[(offset >> 2) + 5] != term_id:
            return False
        known_position = self._known_start_before(position)
        if known_position is None:
            return False
        walked = offset - (position - known_position)
        while walked < offset:
            frame_length = words[walked >> 2]
            if frame_length <= 0:
                return False
            walked += (frame_length + 31) & -32
        return walked == offset

    def _known_start_before(self, position: int) -> int | None:
        """Return the start of a datagram at or before `position`, if one is near enough.

        Terms begin with a datagram and with a block, so that it never lies in another term.
        """
        block = position >> BLOCK_BITS
        for each in range(block, block - self._reach - 1, -1):
            known_position = self._positions[each % self._block_count]
            if known_position >> BLOCK_BITS == each and known_position <= position:
                return known_position
        return None


def resend_range(
    log: LogBuffers,
    send: Callable[[memoryview], bool],
    *,
    sender_position: int,
    term_id: int,
    term_offset: int,
    length: int,
) -> int:
    """Send whole frames of a range again, and return how many bytes of the stream that covered.

    A range that begins before the resend window (half a term and the longest message behind the
    sender) or beyond what was sent brings nothing; nor does one shorter than its first frame.

    Args:
        log: Where the frames are.
        send: Takes a datagram, and says whether it could leave.
        sender_position: Up to where data has been sent, in bytes.
        term_id: Term of the range.
        term_offset: Where it begins, in bytes.
        length: How long it is, in bytes.
    """
    position = compute_position(
        term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )
    bottom = sender_position - log.term_length // 2 - max_message_length(log.term_length)
    if not bottom <= position < sender_position:
        return 0
    index = partition_index(position, bits=log.position_bits)
    term, words = log.terms[index], log.term_words[index]
    # Differs: C goes on into what has not been sent yet, past the sender limit.
    sent_length = sender_position - position
    offset, end = term_offset, min(term_offset + min(length, sent_length), log.term_length)
    while offset < end:
        limit = min(end - offset, log.mtu_length)
        available, padding = scan_for_send(term, words, offset, limit=limit)
        if available == 0 or not send(term[offset : offset + available]):
            break
        offset += available + padding
    return offset - term_offset


# NAKs that are refused.

REPEATS_MIN: Final = 8
"""So many NAKs for one place are no accident."""
LOG_INTERVAL_NS: Final = 1_000_000_000
REMEDY: Final = (
    "the receiver was sent frames that are not of this publication, and cannot go on where they "
    "lie: look for forged frames, or for another publisher of this session; a receiver of this "
    "software ends its image after image_gap_timeout_ns, and joins again"
)

log: Final = get_logger(__name__)


class RefusedNaks:
    """Remembers the place that was refused last, and how often.

    Args:
        log_buffers: Name the stream.
        log_budget: For its log lines, which peers can cause; None is without limit.
    """

    __slots__ = ("_count", "_is_news", "_log", "_logged_ns", "_peer_log", "_position")

    def __init__(self, log_buffers: LogBuffers, log_budget: LogBudget | None = None) -> None:
        self._peer_log = within(log_budget, log)
        self._log = log_buffers
        self._position = -1
        self._count = 0
        self._is_news = False
        self._logged_ns = -LOG_INTERVAL_NS

    def on_refused(self, position: int) -> None:
        """Take note of a NAK from where no frame begins, in bytes of the stream."""
        if position != self._position:
            self._position = position
            self._count = 0
        self._count += 1
        self._is_news = self._count >= REPEATS_MIN

    def tell(self, source: Address | None, now_ns: int) -> None:
        """Log what was just refused once too often, at most once a second.

        Args:
            source: Where the NAK came from.
            now_ns: The time now.
        """
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
            reason="no frame begins there",
            remedy=REMEDY,
        )


# What leaves.

UNANSWERED_INTERVAL_MAX_NS: Final = 1_000_000_000
"""The longest pause between SETUPs that a budget allows; each is twice as long as the one before.

At Aeron's pace of 100 ms the three bytes for each byte of a request are used up in 700 ms, and a
receiver that comes later is never found.
"""
SEND_RETRY_NS: Final = 1_000_000
"""How long a datagram that could not leave waits for the next try."""
RUN_LENGTH_MAX: Final = 65_504
"""The most bytes that one call may send: what a UDP datagram holds, in whole frames."""
RUN_COUNT_MAX: Final = 64
"""The most datagrams that one call may send: `UDP_MAX_SEGMENTS` of the oldest kernels."""
RUNS_MAX: Final = 64
"""The most runs that are looked for before they are sent."""


class StreamSender:
    """The sending half of one publication.

    Args:
        log: The terms it sends from.
        params: What the channel and the context say of the publication.
        counters: Where its position and limit are shown.
        system_counters: The driver's.
        outbox: Takes the datagrams.
        burst_limit: Full runs of datagrams sent in one go before others get their turn; what a run
            of one costs is counted as six datagrams.
        now_ns: The time now.
        timestamps: Writes the time of sending into messages; None where nobody asked for it.

    Attributes:
        position: Up to where data has been sent, in bytes.
        limit: Up to where data may be sent, in bytes.
        setup_count: SETUPs sent.
        first_setup_ns: When the first of them left.
        refused_naks: Tells of NAKs that are refused again and again.
    """

    setup_count: int
    limit: int
    position: int
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
        self._rejected_naks = system_counters[DriverCounterId.NAKS_REJECTED]
        self.refused_naks: RefusedNaks = RefusedNaks(log, system_counters.log_budget)
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]
        self._flow_control_limits = system_counters[SystemCounterId.SENDER_FLOW_CONTROL_LIMITS]
        self._outbox = outbox
        length = params.handshake_length
        self._handshake = None if length is None else HandshakeBudget(length)
        self._setup_interval_ns = SETUP_INTERVAL_NS
        self._withheld = system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD]
        self._timestamps = timestamps
        # Datagrams that leave one by one are each as full as can be.
        is_batching = params.is_batching and timestamps is None
        self._run_count_max = RUN_COUNT_MAX if is_batching else 1
        self._burst_limit = burst_limit
        self._bits = log.position_bits
        self._mask = log.term_length - 1
        self._cuts = memoryview(array("i", bytes(8 * RUNS_MAX)))
        self._is_tracking_limit = False
        self._last_setup_ns = now_ns - SETUP_INTERVAL_NS
        self._last_sent_ns = now_ns - HEARTBEAT_INTERVAL_NS
        self.setup_count = self.first_setup_ns = 0
        self.position = self.limit = producer_position(log)
        self._frame_starts = FrameStarts(log, self.position)
        counters.sender_position.set(self.position)
        counters.sender_limit.set(self.limit)

    @property
    def heartbeat_deadline_ns(self) -> int:
        """Return when a heartbeat is due if no data leaves before."""
        return self._last_sent_ns + HEARTBEAT_INTERVAL_NS

    @property
    def has_budget(self) -> bool:
        """Return whether little may leave before a receiver has answered."""
        return self._handshake is not None

    @property
    def setup_deadline_ns(self) -> int:
        """Return when the next SETUP may leave."""
        return self._last_setup_ns + self._setup_interval_ns

    def hasten_setup(self) -> None:
        """Let the next SETUP leave at once: before, there was nobody to send it to."""
        self._last_setup_ns -= self._setup_interval_ns

    def on_answered(self) -> None:
        """Send without a budget from now on: a receiver has answered."""
        self._handshake, self._setup_interval_ns = None, SETUP_INTERVAL_NS

    def set_limit(self, limit: int) -> None:
        """Take a new limit from flow control; it may lie behind the position."""
        if limit != self.limit:
            self.limit = limit
            self._counters.sender_limit.set(limit)

    def skip_to(self, position: int) -> None:
        """Take what was read up to `position` without being sent for sent, if that is further.

        Whoever joins later may still ask for it, so where its frames begin is kept in mind.
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
        """Send a SETUP that says where a receiver that comes now starts, if its budget allows it.

        Args:
            now_ns: The time now.
            position: Of that start, in bytes.
        """
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

    def send_data(self, now_ns: int) -> int:
        """Send a burst of whole frames, and return when there is more to do."""
        log, limit, mtu_length = self._log, self.limit, self._log.mtu_length
        position, frame_starts = self.position, self._frame_starts
        deadline_ns = NEVER_NS
        sent_length = 0
        is_blocked = False
        cost_left = self._burst_limit * RUN_COUNT_MAX
        while cost_left > 0:
            window = limit - position
            if window <= 0:
                is_blocked = True
                break
            index = partition_index(position, bits=self._bits)
            offset = position & self._mask
            term, words = log.terms[index], log.term_words[index]
            available, count, padding, cost = scan_runs(
                term,
                words,
                offset,
                self._cuts,
                limit=window,
                mtu_length=mtu_length,
                run_length=RUN_LENGTH_MAX,
                max_count=self._run_count_max,
                cost=cost_left,
            )
            if available == 0:
                is_blocked = words[offset >> 2] > 0
                break
            cuts = self._cuts[: 2 * count]
            left = self._send_runs(term[offset : offset + available], cuts)
            cost_left -= cost
            if left:
                frame_starts.mark_runs(position, left, cuts)
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
            self.position = position
            self._counters.sender_position.set(position)
            self._bytes_sent.increment(sent_length)
        if is_blocked and self._is_tracking_limit:
            self._on_blocked()
        return deadline_ns

    def send_alone(self, now_ns: int) -> bool:
        """Send one datagram; return whether that was all there is, and nothing holds it back.

        One that could not leave is not counted: the burst that follows then tries it again.
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
        if position >= self._frame_starts.next_position:
            self._frame_starts.mark(position)
        self.position = position + length
        self._last_sent_ns = now_ns
        self._is_tracking_limit = True
        self._counters.sender_position.set(self.position)
        self._bytes_sent.increment(length)
        # A term that is full is followed by another, and so perhaps by more.
        end = offset + length
        return end <= self._mask and words[end >> 2] == 0

    def send_heartbeat(self, now_ns: int, *, is_end_of_stream: bool) -> None:
        """Send a heartbeat at the sender position."""
        flags = DataFlags.UNFRAGMENTED
        if self._log.metadata.is_publication_revoked:
            flags |= DataFlags.END_OF_STREAM | DataFlags.REVOKED
        elif is_end_of_stream and self._params.signal_eos:
            flags |= DataFlags.END_OF_STREAM
        heartbeat = encode_heartbeat(
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            term_id=self._term_id(self.position),
            term_offset=self.position & self._mask,
            flags=flags,
        )
        if self.send(heartbeat):
            self._bytes_sent.increment(len(heartbeat))
        self._heartbeats_sent.increment()
        self._last_sent_ns = now_ns

    def resend(self, term_id: int, term_offset: int, length: int) -> int:
        """Send a range again, as far as the log still holds it; return how much that covered.

        Differs: Aeron takes whatever lies where the range begins for a frame.
        """
        log = self._log
        position = compute_position(
            term_id, term_offset, initial_term_id=log.initial_term_id, bits=self._bits
        )
        if not self._frame_starts.is_start(position):
            self._rejected_naks.increment()
            self.refused_naks.on_refused(position)
            return 0
        resent_length = resend_range(
            log,
            self.send,
            sender_position=self.position,
            term_id=term_id,
            term_offset=term_offset,
            length=length,
        )
        if resent_length > 0:
            self._retransmits_sent.increment()
            self._retransmitted_bytes.increment(resent_length)
        return resent_length

    def send(self, datagram: Buffer) -> bool:
        """Send one datagram; count it when it could not leave."""
        if self._timestamps is not None and isinstance(datagram, memoryview):
            self._timestamps.stamp(datagram)
        if self._outbox.send(datagram):
            return True
        self._short_sends.increment()
        return False

    def _send_runs(self, data: memoryview, cuts: Cuts) -> int:
        """Send runs of datagrams; return how much of it left, counting the first that did not."""
        if self._timestamps is None:
            left = self._outbox.send_runs(data, cuts)
            if left < len(data):
                self._short_sends.increment()
            return left
        start = 0
        for end, segment_length in zip(cuts[::2], cuts[1::2], strict=True):
            while start < end:
                datagram_end = min(start + segment_length, end)
                if not self.send(data[start:datagram_end]):
                    return start
                start = datagram_end
        return start

    def _on_blocked(self) -> None:
        """Count a window that is used up, once until data leaves again."""
        self._is_tracking_limit = False
        self._counters.back_pressure_events.increment()
        self._flow_control_limits.increment()

    def _term_id(self, position: int) -> int:
        return term_id_at(position, initial_term_id=self._log.initial_term_id, bits=self._bits)
