"""Loss detection for one image: the first gap, and when to ask for it.

Only the first gap is tracked. When it is filled, the next one becomes the first; whether that was
asked for before, `image_gaps` knows. A gap that moves or shrinks is a new gap, and starts with the
initial delay again. A detector never gives up: `image_watch` and the liveness timeout end a stream
that cannot be repaired.

Source: Aeron `LossDetector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.driver.core.feedback_delay import FeedbackDelay

__all__ = ["NEVER_NS", "LossDetector"]

NEVER_NS: Final = 2**63 - 1


class LossDetector:
    """The first gap of one image, and the timer of its NAK.

    Args:
        delay: When to ask first, and when again.

    Attributes:
        term_id: Term of the active gap.
        term_offset: Offset of the active gap in its term, in bytes.
        length: Length of the active gap in bytes; 0 when nothing is missing.
        deadline_ns: When to ask for it; `NEVER_NS` when nothing is missing.
    """

    __slots__ = ("_delay", "deadline_ns", "length", "term_id", "term_offset")

    def __init__(self, delay: FeedbackDelay) -> None:
        self._delay = delay
        self.term_id: int = 0
        self.term_offset: int = 0
        self.length: int = 0
        self.deadline_ns: int = NEVER_NS

    def on_gap(self, *, term_id: int, term_offset: int, length: int, now_ns: int) -> bool:
        """Take the first gap as the latest scan saw it, and return whether it is a new one."""
        before = self.length
        is_known = before and term_offset == self.term_offset and term_id == self.term_id
        if is_known and length == before:
            return False
        self.term_id = term_id
        self.term_offset = term_offset
        self.length = length
        # Differs: Aeron begins anew with a gap that grows as well. Heartbeats could make one grow
        # in every cycle: then it would never be asked for, or, grown in between, each time at once.
        if not is_known or length < before:
            self.deadline_ns = now_ns + self._delay.initial_ns()
        return True

    def on_no_gap(self) -> None:
        """Take note that the latest scan found nothing missing."""
        self.length = 0
        self.deadline_ns = NEVER_NS

    def try_feedback(self, now_ns: int) -> bool:
        """Return whether the gap is to be asked for now, and if so arm the next time."""
        if now_ns < self.deadline_ns:
            return False
        self.deadline_ns = now_ns + self._delay.retry_ns()
        return True
