"""Loss detection for one image: the first gap, and when to send a NAK for it.

Only the first gap is tracked. When it is filled, the next one becomes the first; `image_gaps`
records whether a NAK for that was sent before. A gap that moves or shrinks is a new gap, and starts
with the initial delay again. A detector never gives up: `image_watch` and the liveness timeout end
a stream that cannot be repaired.

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
