"""Ask for the gaps behind the first one of an image, each once, and with it where that may be.

Asking for one gap, and for the next when that is filled, costs a stream a round trip for each of
its losses. Here all that has come behind the first gap is looked through once, piece by piece, and
each gap that data proves is asked for: a few at a time, and once the stream has paid for it. What
does not come of it is asked for again when its gap has become the first. Of the others no more is
remembered than up to where they were asked for, and when the last time was.

Differs: Aeron asks for the first gap of an image alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import scan_for_gap

if TYPE_CHECKING:
    from aeron_async.driver.core.delay import FeedbackDelay
    from aeron_async.driver.core.image_feedback import ImageFeedback
    from aeron_async.driver.core.nak_budget import NakPatience
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["GAPS_AT_ONCE", "GapsAhead"]

GAPS_AT_ONCE: Final = 15
"""Gaps asked for in one poll; with the first one as many as a sender remembers to have answered."""


class GapsAhead:
    """What has been asked for behind the first gap of one image.

    Only for streams that nobody else receives: a group waits before it asks, each for another time.

    Args:
        log: Where the image is rebuilt.
        feedback: Asks for what is missing.
        delay: Says how long to wait first: what is late may come yet.
        patience: Pays for what is asked.

    Attributes:
        deadline_ns: When to look on; `NEVER_NS` when everything has been looked through, and when
            the stream has to move on first.
    """

    __slots__ = (
        "_asked_ns",
        "_delay",
        "_feedback",
        "_is_unpaid",
        "_limit_position",
        "_log",
        "_patience",
        "_position",
        "deadline_ns",
    )

    def __init__(
        self,
        log: LogBuffers,
        feedback: ImageFeedback,
        delay: FeedbackDelay,
        patience: NakPatience,
    ) -> None:
        self.deadline_ns = NEVER_NS
        self._log = log
        self._feedback = feedback
        self._delay = delay
        self._patience = patience
        self._position = 0
        self._limit_position = 0
        self._asked_ns = 0
        self._is_unpaid = False

    def on_first_gap(self, end_position: int, hwm_position: int, now_ns: int) -> None:
        """Take note of where the first gap ends, and up to where data may have come behind it."""
        self._position = max(self._position, end_position)
        if self.deadline_ns != NEVER_NS:
            return
        # Without a timer: only what moves the first gap on pays for more, and that is seen here.
        is_due = (
            self._patience.can_spend if self._is_unpaid else hwm_position > self._limit_position
        )
        if is_due:
            # Not what comes until then: that may be as late as this is now.
            self._limit_position = hwm_position
            self.deadline_ns = now_ns + self._delay.initial_ns()

    def on_first_asked(self, now_ns: int) -> None:
        """Take note that the first gap has been asked for."""
        self._asked_ns = now_ns

    def on_no_gap(self) -> None:
        """Take note that nothing is missing."""
        self.deadline_ns = NEVER_NS
        self._is_unpaid = False

    def answer_ns(self, position: int) -> int:
        """Return when a gap that begins here may be asked for again; 0 where it never was."""
        return self._asked_ns + self._delay.retry_ns() if position < self._position else 0

    def ask(self, now_ns: int) -> None:
        """Ask for gaps not asked for before, some at a time, if it is time to."""
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
                # Nothing lies behind what only a heartbeat tells of, and a gap that does not begin
                # with a hole is of no honest sender: that is for when it is the first.
                if end >= limit or not words[end >> 2] or words[offset >> 2]:
                    break
                if count == GAPS_AT_ONCE:
                    self.deadline_ns = now_ns + max(self._delay.retry_ns(), 1)
                    break
                if not self._patience.try_spend():
                    self._is_unpaid = True
                    break
                count += 1
                self._feedback.send_proven_nak(
                    term_id=term_id_at(position, initial_term_id=log.initial_term_id, bits=bits),
                    term_offset=offset,
                    length=gap_length,
                    now_ns=now_ns,
                )
                self._asked_ns = now_ns
                position = base + end
        self._position = position
