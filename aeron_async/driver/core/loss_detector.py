"""Loss detection for one image: its gaps, and when to send a NAK for each.

`LossDetector` tracks the first gap only. When it is filled, the next one becomes the first. A gap
that moves or shrinks is a new gap, and starts with the initial delay again. A detector never gives
up: `image_watch` and the liveness timeout end a stream that cannot be repaired.

`LookaheadLossDetector` sends NAKs for the gaps behind the first, on unicast only. With one NAK at a
time each loss would cost the stream a round trip. It scans the data behind the first gap once,
piece by piece, and sends a NAK for each gap that has data behind it: a few at a time, and only as
far as `NakCredit` allows. A gap that remains when it becomes the first is requested again. The
detector remembers only the position up to which it has sent NAKs, and when it sent the last one.

Differs: Aeron sends NAKs for the first gap of an image alone.

Source: Aeron `LossDetector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import scan_for_gap

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.budgets import NakCredit
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.status_message_sender import StatusMessageSender
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = ["GAPS_AT_ONCE", "LookaheadLossDetector", "LossDetector"]


class LossDetector:
    """The first gap of one image, and the timer of its NAK.

    Args:
        delay: Delays before the first NAK and before each repeat.

    Attributes:
        term_id: Term of the active gap.
        term_offset: Offset of the active gap in its term, in bytes.
        length: Length of the active gap in bytes; 0 when nothing is missing.
        deadline_ns: When to send a NAK for it; `NEVER_NS` when nothing is missing.
    """

    __slots__ = ("_delay", "deadline_ns", "length", "term_id", "term_offset")

    def __init__(self, delay: FeedbackDelay) -> None:
        self._delay = delay
        self.term_id: int = 0
        self.term_offset: int = 0
        self.length: int = 0
        self.deadline_ns: int = NEVER_NS

    def on_gap(self, *, term_id: int, term_offset: int, length: int, now_ns: int) -> bool:
        """Record the first gap as the latest scan found it, and return whether it is a new one."""
        before = self.length
        is_known = before and term_offset == self.term_offset and term_id == self.term_id
        if is_known and length == before:
            return False
        self.term_id = term_id
        self.term_offset = term_offset
        self.length = length
        # Differs: Aeron also restarts the delay for a gap that grows. Heartbeats could make a gap
        # grow in every cycle: then no NAK is ever sent or, if it grows in between, one each time.
        if not is_known or length < before:
            self.deadline_ns = now_ns + self._delay.initial_ns()
        return True

    def on_no_gap(self) -> None:
        """Record that the latest scan found nothing missing."""
        self.length = 0
        self.deadline_ns = NEVER_NS

    def try_feedback(self, now_ns: int) -> bool:
        """Return whether to send a NAK now; if so, set the time of the next one."""
        if now_ns < self.deadline_ns:
            return False
        self.deadline_ns = now_ns + self._delay.retry_ns()
        return True


GAPS_AT_ONCE: Final = 15
"""NAKs per poll behind the first gap; with the first, as many as a sender remembers answering."""


class LookaheadLossDetector:
    """The gaps behind the first gap of one image.

    Only for streams with a single receiver: in a group each receiver waits for a random time before
    it sends a NAK. Here it waits for `delay`, since a late datagram may still arrive.

    `record_loss` gets the length of each gap for which a NAK is sent; None if nobody could read it.
    """

    __slots__ = (
        "_asked_from",
        "_asked_ns",
        "_credit",
        "_delay",
        "_feedback",
        "_is_unpaid",
        "_limit_position",
        "_log",
        "_position",
        "_record_loss",
        "deadline_ns",
    )

    def __init__(
        self,
        log: LogBuffers,
        feedback: StatusMessageSender,
        delay: FeedbackDelay,
        credit: NakCredit,
        record_loss: Callable[[int], None] | None,
    ) -> None:
        # When to scan further; never when everything was scanned, or the stream must first advance.
        self.deadline_ns: int = NEVER_NS
        self._log = log
        self._feedback = feedback
        self._delay = delay
        self._credit = credit
        self._record_loss = record_loss
        # From the one to the other, NAKs were sent for all gaps.
        self._asked_from = 0
        self._position = 0
        self._limit_position = 0
        self._asked_ns = 0
        self._is_unpaid = False

    def on_first_gap(self, end_position: int, hwm_position: int, now_ns: int) -> None:
        """Record where the first gap ends, and up to where data may have arrived behind it."""
        if end_position > self._position:
            self._asked_from = self._position = end_position
        if self.deadline_ns != NEVER_NS:
            return
        # No timer: only progress of the first gap allows more NAKs, and that calls this method.
        is_due = self._credit.can_spend if self._is_unpaid else hwm_position > self._limit_position
        if is_due:
            # Data that arrives after this point may itself be late.
            self._limit_position = hwm_position
            self.deadline_ns = now_ns + self._delay.initial_ns()

    def on_first_asked(self, now_ns: int) -> None:
        """Record that a NAK for the first gap was sent."""
        self._asked_ns = now_ns

    def on_no_gap(self) -> None:
        """Record that nothing is missing."""
        self.deadline_ns = NEVER_NS
        self._is_unpaid = False

    def has_asked(self, position: int) -> bool:
        """Return whether a NAK was sent for the gap at a position while it was not the first."""
        return self._asked_from <= position < self._position

    def answer_ns(self, position: int) -> int:
        """Return when a NAK for a gap at `position` may be repeated; 0 if none was sent."""
        return self._asked_ns + self._delay.retry_ns() if position < self._position else 0

    def ask(self, now_ns: int) -> None:
        """Send NAKs for gaps not requested before, a limited number at a time, if that is due."""
        if now_ns < self.deadline_ns:
            return
        self.deadline_ns = NEVER_NS
        self._is_unpaid = False
        log, bits = self._log, self._log.position_bits
        mask = log.term_length - 1
        position = self._position
        count = 0
        while position < self._limit_position:
            base = position & ~mask
            limit = min(self._limit_position - base, log.term_length)
            words = log.term_words[partition_index(position, bits=bits)]
            offset, gap_length = scan_for_gap(words, position & mask, limit=limit)
            end = offset + gap_length
            position = base + offset
            if gap_length:
                # Behind a gap that only a heartbeat revealed lies nothing yet. A gap that does not
                # begin with a hole comes from no honest sender. Both wait until they are the first.
                if end >= limit or not words[end >> 2] or words[offset >> 2]:
                    break
                if count == GAPS_AT_ONCE:
                    self.deadline_ns = now_ns + max(self._delay.retry_ns(), 1)
                    break
                if not self._credit.try_spend():
                    self._is_unpaid = True
                    break
                count += 1
                self._feedback.send_nak_outside_budget(
                    term_id=term_id_at(position, initial_term_id=log.initial_term_id, bits=bits),
                    term_offset=offset,
                    length=gap_length,
                    now_ns=now_ns,
                )
                self._asked_ns = now_ns
                if self._record_loss is not None:
                    self._record_loss(gap_length)
                position = base + end
        self._position = position
