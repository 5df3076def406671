"""The gaps of one image: finding them, and requesting the data or padding them.

`ImageGaps` sends a NAK for the first gap of a reliable stream, and repeats it until the gap is
filled; in an unreliable stream it fills the gap with padding.

A loss is recorded when the driver acts on a gap: of each gap once, and of one that grows only what
is new. What merely arrives late is no loss.

Source: Aeron `PublicationImage.trackRebuild`, `processPendingLoss`, `onGapDetected`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import NakCredit
from aeron_async.driver.core.feedback_delay import StaticDelay
from aeron_async.driver.core.loss_detector import LookaheadLossDetector, LossDetector
from aeron_async.driver.core.losses import UNFILLED
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.log_buffers import zero
from aeron_async.logbuffer.position import compute_position, partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import fill_gap, scan_for_gap

if TYPE_CHECKING:
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.losses import Losses
    from aeron_async.driver.core.status_message_sender import StatusMessageSender
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import LateFrames
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "ImageGaps",
]

FILL_RETRY_NS: Final = 1_000_000
"""How long to wait before trying again to fill a gap that could not be filled."""


class ImageGaps:
    """The gaps of one image: NAKs are sent if it is reliable, else gaps become padding.

    `late_frames` places what is resent; None if the image is not reliable.
    `losses` counts them.
    """

    def __init__(
        self,
        log: LogBuffers,
        feedback: StatusMessageSender,
        delay: FeedbackDelay,
        system_counters: SystemCounters,
        late_frames: LateFrames | None,
        losses: Losses,
    ) -> None:
        # The first gap, and when to act on it.
        self.detector: LossDetector = LossDetector(delay)
        self._log = log
        self._feedback = feedback
        self._is_reliable = late_frames is not None
        self._credit = NakCredit()
        self._ahead: LookaheadLossDetector | None = None
        if late_frames is not None and isinstance(delay, StaticDelay):
            self._ahead = LookaheadLossDetector(
                log, feedback, delay, self._credit, late_frames, losses
            )
        self._fills = system_counters[SystemCounterId.LOSS_GAP_FILLS]
        self._losses = losses
        self._hwm_position = 0
        # The end of the last first gap that was recorded.
        self._recorded_position = 0

    def scan(self, position: int, hwm_position: int, now_ns: int) -> tuple[int, bool]:
        """Return how far the stream is complete, and whether a new gap was found."""
        log, bits = self._log, self._log.position_bits
        mask = log.term_length - 1
        self._hwm_position = hwm_position
        while position < hwm_position:
            base = position & ~mask
            limit = min(hwm_position - base, log.term_length)
            index = partition_index(position, bits=bits)
            words = log.term_words[index]
            offset, gap_length = scan_for_gap(words, position & mask, limit=limit)
            position = base + offset
            if gap_length:
                if words[offset >> 2] > 0:
                    # Payload of a forged datagram that began in a hole and covers the start of a
                    # frame yet to come. What lies behind it cannot be trusted either.
                    zero(log.terms[index], offset, offset + gap_length)
                    if self._ahead is not None:
                        self._ahead.on_removed()
                term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=bits)
                is_new = self.detector.on_gap(
                    term_id=term_id, term_offset=offset, length=gap_length, now_ns=now_ns
                )
                end = offset + gap_length
                is_proven = end < limit and words[end >> 2] != 0
                if is_new:
                    self._on_new_gap(position, base + end, is_proven=is_proven)
                if self._ahead is not None:
                    # Each term begins with a frame.
                    is_start = is_proven or end == log.term_length
                    self._ahead.on_first_gap(base + end, hwm_position, now_ns, is_start=is_start)
                return position, is_new
        self.forget()
        return position, False

    @property
    def end(self) -> int:
        """Return where the first gap ends, in bytes; 0 if there is no gap."""
        gap, log = self.detector, self._log
        if not gap.length:
            return 0
        start = compute_position(
            gap.term_id,
            gap.term_offset,
            initial_term_id=log.initial_term_id,
            bits=log.position_bits,
        )
        return start + gap.length

    def forget(self) -> None:
        """Send no NAK until the next scan finds a gap."""
        self.detector.on_no_gap()
        if self._ahead is not None:
            self._ahead.on_no_gap()

    @property
    def deadline_ns(self) -> int:
        """Return when the next NAK is due."""
        if not self.detector.length:
            return NEVER_NS  # There is no first gap, and so none behind it.
        deadline_ns = self.detector.deadline_ns
        return deadline_ns if self._ahead is None else min(deadline_ns, self._ahead.deadline_ns)

    def _on_new_gap(self, start: int, end: int, *, is_proven: bool) -> None:
        self._feedback.nak_budget.on_gap(start, end, is_proven=is_proven)
        self._credit.on_gap(start)
        if self._ahead is not None:
            # A NAK was sent before this gap became the first, or for a larger gap of which it is
            # the rest: the answer is on its way.
            detector = self.detector
            detector.deadline_ns = max(detector.deadline_ns, self._ahead.answer_ns(start))

    def repair(self, now_ns: int) -> bool:
        """Act on gaps that are due; return whether the first one was filled with padding."""
        is_filled = self._repair_first(now_ns)
        if self._ahead is not None:
            self._ahead.ask(now_ns)
        self._feedback.send_gathered_naks()
        return is_filled

    def _record_first(self) -> None:
        """Record the first gap as far as it has not been recorded before."""
        end = self.end
        start = max(end - self.detector.length, self._recorded_position)
        if start < end and not (self._ahead is not None and self._ahead.has_asked(start)):
            if self._is_reliable:
                self._losses.on_gap(start, end, self._hwm_position)
            else:
                self._losses.record(end - start)
            self._recorded_position = end

    def _repair_first(self, now_ns: int) -> bool:
        gap = self.detector
        if not gap.try_feedback(now_ns):
            return False
        self._record_first()
        if self._is_reliable:
            retry_at_ns = self._feedback.try_gather_nak(
                term_id=gap.term_id,
                term_offset=gap.term_offset,
                length=gap.length,
                now_ns=now_ns,
            )
            if retry_at_ns == 0:
                # A NAK that may not be sent costs no credit.
                retry_at_ns = now_ns + self._credit.pay_and_wait_ns()
                if self._ahead is not None:
                    start = self.end - gap.length
                    retry_at_ns = max(retry_at_ns, self._ahead.on_first_asked(start, now_ns))
            gap.deadline_ns = max(gap.deadline_ns, retry_at_ns)
            return False
        if fill_gap(self._log, term_id=gap.term_id, offset=gap.term_offset, length=gap.length):
            self._fills.increment()
            self._losses.note(UNFILLED, gap.length)
            gap.on_no_gap()
            return True
        # Bytes lie there that are no frame: only a hostile peer can have sent them.
        gap.deadline_ns = now_ns + FILL_RETRY_NS
        return False
