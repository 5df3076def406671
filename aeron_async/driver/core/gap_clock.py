"""How long the first gap of an image has been there, in the time in which its source was heard.

A source that is silent cannot answer, so its silence does not count: that has a timeout of its own,
and a partition that heals in time is repaired as ever. Nor does the time count in which the source
itself says that it has sent no more: then only a forged frame or heartbeat claims that there is
a gap.

Source: Aeron has none; a gap that is never filled holds a stream up for as long as its source is
heard.
"""

from __future__ import annotations

from typing import Final

from aeron_async.driver.core.loss_detector import NEVER_NS

__all__ = ["GapClock"]

HEARD_NS: Final = 1_000_000_000
"""A source that was heard so long ago still counts as heard: ten heartbeats may be lost."""
LOOK_NS: Final = 250_000_000
"""How often a gap is looked at, at the least."""
WIDER_STEPS: Final = 8
"""How often, within the timeout, more is asked for than what is missing."""


class GapClock:
    """Times the first gap of one image.

    Args:
        timeout_ns: How long a gap may be there.
    """

    __slots__ = ("_looked_ns", "_since_ns", "_start", "_step_ns", "_wider_ns", "timeout_ns")

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns = timeout_ns
        self._step_ns = max(1, timeout_ns // WIDER_STEPS)
        self._start = -1
        self._since_ns = 0
        self._looked_ns = 0
        self._wider_ns = 0

    @property
    def deadline_ns(self) -> int:
        """Return when to look again, at the latest."""
        return NEVER_NS if self._start < 0 else self._looked_ns + LOOK_NS

    def stop(self) -> None:
        """Take note that nothing is missing."""
        self._start = -1

    def look(self, start: int, *, last_packet_ns: int, now_ns: int) -> bool:
        """Return whether the first gap has been there for too long.

        Args:
            start: Where it begins, in bytes.
            last_packet_ns: When the source was last heard.
            now_ns: The time now.
        """
        if start != self._start:
            self.restart(now_ns)
            self._start = start
        else:
            passed_ns = now_ns - self._looked_ns
            is_heard = now_ns - last_packet_ns <= HEARD_NS
            # After a long pause it has only just been heard again.
            self._since_ns += passed_ns - (min(passed_ns, 2 * LOOK_NS) if is_heard else 0)
        self._looked_ns = now_ns
        return now_ns - self._since_ns >= self.timeout_ns

    def restart(self, now_ns: int) -> None:
        """Count from now."""
        self._since_ns = self._looked_ns = now_ns
        self._wider_ns = self._step_ns

    def is_wider_due(self, now_ns: int) -> bool:
        """Return whether more is to be asked for now than what is missing, and count on."""
        if now_ns - self._since_ns < self._wider_ns:
            return False
        self._wider_ns = now_ns - self._since_ns + self._step_ns
        return True

    def forgive(self, late_ns: int, now_ns: int) -> None:
        """Do not count the time in which this driver was not running."""
        self._since_ns = min(self._since_ns + late_ns, now_ns)
        self._looked_ns = now_ns
