"""Loss detection for one image: its gaps, and when to send a NAK for each.

`LossDetector` tracks the first gap only. When it is filled, the next one becomes the first. A gap
that moves or shrinks is a new gap, and starts with the initial delay again. A detector never gives
up: `image_watch` and the liveness timeout end a stream that cannot be repaired.

`LookaheadLossDetector` sends NAKs for the gaps behind the first, on unicast only. With one NAK at a
time each loss would cost the stream a round trip. It scans the data behind the first gap once,
piece by piece, and sends a NAK for each gap that has data behind it: a few at a time, and only as
far as `NakCredit` allows. `RequestedGaps` remembers these gaps until they are filled, and how long
answers take. A gap whose answer is overdue is requested again, as is one that becomes the first.

Differs: Aeron sends NAKs for the first gap of an image alone.

Source: Aeron `LossDetector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.round_trip import SmoothedTime
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import scan_for_gap

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.budgets import NakCredit
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.status_message_sender import StatusMessageSender
    from aeron_async.logbuffer.late_frames import LateFrames
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
QUICK_ANSWER_NS: Final = 1_000_000
"""A NAK whose answer takes no longer is repeated when that is overdue, and not every 100 us."""
GAPS_KEPT: Final = 256
"""Most requested gaps that are remembered; the oldest are forgotten first."""


class RequestedGap(NamedTuple):
    """Where a requested gap ends, in bytes, and when it was requested last."""

    end: int
    asked_ns: int
    is_repeated: bool


class RequestedGaps:
    """The gaps behind the first one for which NAKs were sent, until they are filled.

    They are in the order of the requests. A gap that is partly filled keeps its place if the rest
    is its end; all other changes are found out when the gap is requested again.
    """

    __slots__ = ("_answers", "_gaps")

    def __init__(self) -> None:
        self._gaps: dict[int, RequestedGap] = {}
        self._answers = SmoothedTime()

    def __contains__(self, position: int) -> bool:
        return position in self._gaps

    @property
    def overdue_ns(self) -> int:
        """Return how long to wait for an answer, in nanoseconds; 0 if that is not known."""
        return self._answers.overdue_ns

    @property
    def deadline_ns(self) -> int:
        """Return when the oldest request is overdue; `NEVER_NS` if that cannot be known yet."""
        overdue_ns = self._answers.overdue_ns
        if not self._gaps or not overdue_ns:
            return NEVER_NS
        return self._gaps[next(iter(self._gaps))].asked_ns + overdue_ns

    def answer_ns(self, position: int) -> int:
        """Return when the answer for a gap is overdue; 0 if it was not requested."""
        gap = self._gaps.get(position)
        return 0 if gap is None else gap.asked_ns + self._answers.overdue_ns

    def on_asked(self, start: int, end: int, now_ns: int, *, is_repeated: bool = False) -> None:
        """Record that a NAK was sent for a gap, which begins at the end of a frame."""
        self._gaps[start] = RequestedGap(end, now_ns, is_repeated)
        if len(self._gaps) > GAPS_KEPT:
            del self._gaps[next(iter(self._gaps))]

    def on_placed(self, position: int, end_position: int, now_ns: int) -> None:
        """Record that frames were placed from the one position to the other."""
        gap = self._gaps.pop(position, None)
        if gap is None:
            return
        if not gap.is_repeated:
            # Of one that was requested twice it is not known which request was answered.
            self._answers.on_measured(now_ns - gap.asked_ns)
        if position < end_position < gap.end:
            self._gaps[end_position] = gap

    def take_overdue(self, first_end: int, now_ns: int) -> tuple[int, int] | None:
        """Remove and return start and end of the oldest gap, if its answer is overdue.

        Gaps up to `first_end`, the end of the first gap, are only removed.
        """
        while now_ns >= self.deadline_ns:
            start = next(iter(self._gaps))
            gap = self._gaps.pop(start)
            if start >= first_end:
                return start, gap.end
        return None

    def clear(self) -> None:
        """Forget all gaps."""
        self._gaps.clear()


class LookaheadLossDetector:
    """The gaps behind the first gap of one image.

    Only for streams with a single receiver: in a group each receiver waits for a random time before
    it sends a NAK. Here it waits for `delay`, since a late datagram may still arrive.

    `late_frames` is shown which gaps are requested, so that each resend finds its place at once.
    `record_loss` gets the length of each gap for which a NAK is sent; None if nobody could read it.
    """

    __slots__ = (
        "_asked_from",
        "_asked_ns",
        "_credit",
        "_delay",
        "_feedback",
        "_first_end",
        "_is_repeat_unpaid",
        "_is_unpaid",
        "_limit_position",
        "_log",
        "_position",
        "_record_loss",
        "_requested",
        "_scan_ns",
    )

    def __init__(
        self,
        log: LogBuffers,
        feedback: StatusMessageSender,
        delay: FeedbackDelay,
        credit: NakCredit,
        late_frames: LateFrames,
        record_loss: Callable[[int], None] | None,
    ) -> None:
        # When to scan further; never when everything was scanned, or the stream must first advance.
        self._scan_ns = NEVER_NS
        self._requested = late_frames.requested = RequestedGaps()
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
        # Where the first gap ends; the gaps in question lie behind it.
        self._first_end = 0
        # Whether the credit did not allow to scan further, or to repeat a request.
        self._is_unpaid = self._is_repeat_unpaid = False

    @property
    def deadline_ns(self) -> int:
        """Return when to call `ask`."""
        repeat_ns = NEVER_NS if self._is_repeat_unpaid else self._requested.deadline_ns
        return min(self._scan_ns, repeat_ns)

    def on_first_gap(self, end_position: int, hwm_position: int, now_ns: int) -> None:
        """Record where the first gap ends, and up to where data may have arrived behind it."""
        self._first_end = end_position
        if end_position > self._position:
            self._asked_from = self._position = end_position
        # No timer: only progress of the first gap allows more NAKs, and that calls this method.
        can_spend = self._credit.can_spend
        self._is_repeat_unpaid = self._is_repeat_unpaid and not can_spend
        if self._scan_ns != NEVER_NS:
            return
        is_due = can_spend if self._is_unpaid else hwm_position > self._limit_position
        if is_due:
            # Data that arrives after this point may itself be late.
            self._limit_position = hwm_position
            self._scan_ns = now_ns + self._delay.initial_ns()

    def on_first_asked(self, now_ns: int) -> int:
        """Record that a NAK for the first gap was sent; return when its answer is overdue.

        Returns 0 where that is not known, or so late that a lost NAK is better replaced before.
        """
        self._asked_ns = now_ns
        overdue_ns = self._requested.overdue_ns
        return now_ns + overdue_ns if overdue_ns <= QUICK_ANSWER_NS else 0

    def on_no_gap(self) -> None:
        """Record that nothing is missing."""
        self._scan_ns = NEVER_NS
        self._is_unpaid = self._is_repeat_unpaid = False
        self._requested.clear()

    def has_asked(self, position: int) -> bool:
        """Return whether a NAK was sent for the gap at a position while it was not the first."""
        return self._asked_from <= position < self._position

    def answer_ns(self, position: int) -> int:
        """Return when a NAK for a gap at `position` may be repeated; 0 if none was sent."""
        if position >= self._position:
            return 0
        retry_ns = self._asked_ns + self._delay.retry_ns()
        return max(retry_ns, self._requested.answer_ns(position))

    def ask(self, now_ns: int) -> None:
        """Send NAKs that are due for gaps behind the first, a limited number at a time."""
        if now_ns < self.deadline_ns:
            return
        count = self._repeat(now_ns)
        if now_ns >= self._scan_ns:
            self._scan_ns = NEVER_NS
            self._is_unpaid = False
            self._scan(GAPS_AT_ONCE - count, now_ns)
        self._feedback.send_gathered_naks()

    def _repeat(self, now_ns: int) -> int:
        """Request again what is overdue; return how many NAKs were sent."""
        log, count = self._log, 0
        while count < GAPS_AT_ONCE and not self._is_repeat_unpaid:
            gap = self._requested.take_overdue(self._first_end, now_ns)
            if gap is None:
                break
            start, end = gap
            words = log.term_words[partition_index(start, bits=log.position_bits)]
            offset = start & (log.term_length - 1)
            found, gap_length = scan_for_gap(words, offset, limit=offset + end - start)
            # Otherwise frames lie there by now.
            if found == offset and gap_length:
                count += 1
                self._is_repeat_unpaid = not self._credit.try_spend()
                if not self._is_repeat_unpaid:
                    self._gather_nak(start, gap_length, now_ns)
                self._requested.on_asked(start, start + gap_length, now_ns, is_repeated=True)
        return count

    def _scan(self, most: int, now_ns: int) -> None:
        """Request gaps for the first time, `most` at a time."""
        log, bits = self._log, self._log.position_bits
        mask = log.term_length - 1
        position = self._position
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
                if not most:
                    self._scan_ns = now_ns + max(self._delay.retry_ns(), 1)
                    break
                if not self._credit.try_spend():
                    self._is_unpaid = True
                    break
                most -= 1
                self._gather_nak(position, gap_length, now_ns)
                self._requested.on_asked(position, base + end, now_ns)
                if self._record_loss is not None:
                    self._record_loss(gap_length)
                position = base + end
        self._position = position

    def _gather_nak(self, position: int, length: int, now_ns: int) -> None:
        log = self._log
        self._feedback.gather_nak(
            term_id=term_id_at(
                position, initial_term_id=log.initial_term_id, bits=log.position_bits
            ),
            term_offset=position & (log.term_length - 1),
            length=length,
            now_ns=now_ns,
        )
        self._asked_ns = now_ns
