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
    from aeron_async.driver.core.budgets import NakCredit
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.losses import Losses
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
REPEATS_AT_ONCE: Final = GAPS_AT_ONCE // 2
"""Of these NAKs, as many may be repeats: new gaps must not wait for those without an answer."""
REPEATS_MAX: Final = 8
"""After so many repeats a gap behind the first waits until it is the first."""
FIRST_ANSWER_NS: Final = 10_000_000
"""The NAK for a gap that becomes the first is repeated after this time at the latest."""
QUICK_ANSWER_NS: Final = 1_000_000
"""A NAK whose answer takes no longer is repeated when that is overdue, and not every 100 us."""
GAPS_KEPT: Final = 256
"""Most requested gaps that are remembered; the oldest are forgotten first."""


class RequestedGap(NamedTuple):
    """Where a requested gap ends, in bytes, when it was requested last, and how often again."""

    end: int
    asked_ns: int
    repeat_count: int


class RequestedGaps:
    """The gaps behind the first one for which NAKs were sent, until they are filled.

    They are in the order of the requests. The rest of a gap that begins to be filled counts as
    requested when that began. A gap that is filled in any other way is forgotten, or found out when
    it would be requested again.

    Each request is repeated a few times. With requests that are repeated, the time after which
    answers are overdue is doubled, until one to a first request shows how long it takes. Only while
    nothing is known, the time until a gap was filled that was requested twice counts as well.

    Attributes:
        answers: How long answers take.
        is_uncertain: Whether frames were removed, so that what a scan has found may be wrong.
    """

    __slots__ = ("_doubled_ns", "_gaps", "answers", "is_uncertain")

    def __init__(self) -> None:
        self.is_uncertain: bool = False
        self._gaps: dict[int, RequestedGap] = {}
        self.answers: SmoothedTime = SmoothedTime()
        self._doubled_ns = 0

    def __contains__(self, position: int) -> bool:
        return position in self._gaps

    @property
    def deadline_ns(self) -> int:
        """Return when the oldest request is overdue; `NEVER_NS` if that cannot be known yet."""
        overdue_ns = self.answers.overdue_ns
        if not self._gaps or not overdue_ns:
            return NEVER_NS
        return self._gaps[next(iter(self._gaps))].asked_ns + overdue_ns

    def answer_ns(self, position: int) -> int:
        """Return when the answer for a gap is overdue; 0 if it was not requested."""
        gap = self._gaps.get(position)
        return 0 if gap is None else gap.asked_ns + min(self.answers.overdue_ns, FIRST_ANSWER_NS)

    def on_asked(self, start: int, end: int, now_ns: int, *, repeat_count: int = 0) -> None:
        """Record that a NAK was sent for a gap, which begins at the end of a frame."""
        self._gaps.pop(start, None)
        self._gaps[start] = RequestedGap(end, now_ns, repeat_count)
        if len(self._gaps) > GAPS_KEPT:
            del self._gaps[next(iter(self._gaps))]

    def on_placed(self, position: int, end_position: int, now_ns: int) -> None:
        """Record that frames were placed from the one position to the other."""
        gap = self._gaps.pop(position, None)
        if gap is None:
            return
        # Of one that was requested twice it is not known which request was answered.
        took_ns = now_ns - gap.asked_ns
        self.answers.on_measured(took_ns, is_certain=not gap.repeat_count)
        if position < end_position < gap.end:
            self.on_asked(end_position, gap.end, now_ns, repeat_count=max(1, gap.repeat_count))

    def take_overdue(self, first_end: int, limit: int, now_ns: int) -> dict[int, RequestedGap]:
        """Remove and return gaps whose answers are overdue, by their starts, the oldest first.

        Gaps up to `first_end`, the end of the first gap, are only removed, as are those that were
        requested again often enough.
        """
        overdue: dict[int, RequestedGap] = {}
        is_doubled = False
        while len(overdue) < limit and now_ns >= self.deadline_ns:
            start = next(iter(self._gaps))
            gap = self._gaps.pop(start)
            if start >= first_end and gap.repeat_count < REPEATS_MAX:
                overdue[start] = gap
                is_doubled = is_doubled or gap.asked_ns >= self._doubled_ns
        if is_doubled:
            self.answers.on_unanswered()
            self._doubled_ns = now_ns
        return overdue

    def on_first_asked(self, position: int) -> None:
        """Record that a NAK was sent for a gap that has become the first: forget it if possible."""
        gap = self._gaps.pop(position, None)
        if gap is not None and not self.answers.usual_ns:
            self._gaps[position] = gap._replace(repeat_count=1)

    def clear(self) -> None:
        """Forget all gaps, because frames were removed."""
        self._gaps.clear()
        self.is_uncertain = True


class LookaheadLossDetector:
    """The gaps behind the first gap of one image.

    Only for streams with a single receiver: in a group each receiver waits for a random time before
    it sends a NAK. Here it waits for `delay`, since a late datagram may still arrive.

    `late_frames` is shown which gaps are requested, so that each resend finds its place at once.
    `losses` counts the gaps for which a NAK is sent.
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
        "_losses",
        "_position",
        "_recorded_position",
        "_repeat_ns",
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
        losses: Losses,
    ) -> None:
        # When to scan further; never when everything was scanned, or the stream must first advance.
        self._scan_ns = NEVER_NS
        self._requested = late_frames.requested = RequestedGaps()
        self._log = log
        self._feedback = feedback
        self._delay = delay
        self._credit = credit
        self._losses = losses
        # From the one to the other, NAKs were sent for all gaps.
        self._asked_from = 0
        self._position = 0
        self._limit_position = 0
        self._asked_ns = 0
        # Where the first gap ends; the gaps in question lie behind it.
        self._first_end = 0
        # Whether the credit did not allow to scan further, or to repeat a request.
        self._is_unpaid = self._is_repeat_unpaid = False
        self._repeat_ns = 0
        # Up to here losses were recorded: a new scan finds them again.
        self._recorded_position = 0

    @property
    def deadline_ns(self) -> int:
        """Return when to call `ask`."""
        if self._is_repeat_unpaid:
            return self._scan_ns
        return min(self._scan_ns, max(self._requested.deadline_ns, self._repeat_ns))

    def on_first_gap(
        self, end_position: int, hwm_position: int, now_ns: int, *, is_start: bool
    ) -> None:
        """Record where the first gap ends, and up to where data may have arrived behind it.

        `is_start` says whether a frame begins there. A scan begins nowhere else: a position inside
        a frame that arrives later would be taken for one where a gap begins.
        """
        self._first_end = end_position
        if self._requested.is_uncertain:
            self._requested.is_uncertain = False
            self._position = self._limit_position = 0
            self._scan_ns = NEVER_NS
        if end_position > self._position:
            if not is_start:
                self._scan_ns = NEVER_NS
                return
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

    def on_first_asked(self, position: int, now_ns: int) -> int:
        """Record that a NAK for the first gap, which begins at `position`, was sent.

        Return when its answer is overdue.

        Returns 0 where that is not known, or so late that a lost NAK is better replaced before.
        """
        self._asked_ns = now_ns
        self._requested.on_first_asked(position)
        usual_ns = self._requested.answers.usual_ns
        return now_ns + usual_ns if usual_ns <= QUICK_ANSWER_NS else 0

    def on_removed(self) -> None:
        """Record that frames were removed which may have been taken for honest ones."""
        self._requested.clear()

    def on_no_gap(self) -> None:
        """Record that nothing is missing."""
        self._scan_ns = NEVER_NS
        self._is_unpaid = self._is_repeat_unpaid = False
        self._requested.clear()
        self._requested.is_uncertain = False
        self._position = self._limit_position = 0

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
        """Gather NAKs that are due for gaps behind the first, a limited number at a time."""
        if now_ns < self.deadline_ns:
            return
        count = self._repeat(now_ns) if now_ns >= self._repeat_ns else 0
        if now_ns >= self._scan_ns:
            self._scan_ns = NEVER_NS
            self._is_unpaid = False
            self._scan(GAPS_AT_ONCE - count, now_ns)

    def _repeat(self, now_ns: int) -> int:
        """Request again what is overdue; return how many NAKs were sent."""
        log, count = self._log, 0
        if self._is_repeat_unpaid:
            return count
        overdue = self._requested.take_overdue(self._first_end, REPEATS_AT_ONCE, now_ns)
        for start, gap in overdue.items():
            words = log.term_words[partition_index(start, bits=log.position_bits)]
            offset = start & (log.term_length - 1)
            hole, length = scan_for_gap(words, offset, limit=offset + gap.end - start)
            if hole != offset or not length or words[offset >> 2]:
                continue  # Frames lie there by now.
            # One that is not paid for is not sent, but waits as if it were.
            repeat_count = max(1, gap.repeat_count)
            if self._credit.try_spend():
                count, repeat_count = count + 1, gap.repeat_count + 1
                self._gather_naks(start, [(offset, length)], now_ns)
            else:
                self._is_repeat_unpaid = True
            self._requested.on_asked(start, start + length, now_ns, repeat_count=repeat_count)
        if count:
            self._repeat_ns = now_ns + max(self._delay.retry_ns(), 1)
        return count

    def _scan(self, most: int, now_ns: int) -> None:
        """Request gaps for the first time, `most` at a time."""
        log, bits = self._log, self._log.position_bits
        mask = log.term_length - 1
        position = self._position
        # By the position of the term: a NAK names its term.
        asked: dict[int, list[tuple[int, int]]] = {}
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
                asked.setdefault(base, []).append((offset, gap_length))
                self._requested.on_asked(position, base + end, now_ns)
                if position >= self._recorded_position:
                    self._losses.on_gap(position, base + end, self._limit_position)
                    self._recorded_position = base + end
                position = base + end
        self._position = position
        for base, gaps in asked.items():
            self._gather_naks(base, gaps, now_ns)

    def _gather_naks(self, position: int, gaps: list[tuple[int, int]], now_ns: int) -> None:
        """Let NAKs leave for gaps of the term of a position: offset and length of each."""
        log = self._log
        term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
        self._feedback.gather_naks(term_id, gaps, now_ns)
        self._asked_ns = now_ns
