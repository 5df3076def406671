"""The clock of one simulated host: it may drift from true time, and jump.

Source: the faults are those of Jepsen's clock nemesis.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND

if TYPE_CHECKING:
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = ["HostClock"]

BOOT_NS: Final = 1_000 * NS_PER_SECOND
"""Uptime at the start: a clock that began at 0 would hide who forgot that it need not."""
EPOCH_MS: Final = 1_800_000_000_000
"""Wall-clock time at the start, in January 2027."""


class HostClock:
    """A `Clock` over virtual time.

    Args:
        loop: Whose time is the true one.
    """

    def __init__(self, loop: VirtualTime) -> None:
        self._loop = loop
        self._since_ns = loop.now_ns
        self._base_ns = BOOT_NS
        self._epoch_base_ms = EPOCH_MS
        self._rate = Fraction(1)
        self._is_right = True

    def now_ns(self) -> int:
        """Return monotonic time in nanoseconds, as this host has it."""
        passed_ns = self._loop.now_ns - self._since_ns
        if not self._is_right:
            passed_ns = passed_ns * self._rate.numerator // self._rate.denominator
        return self._base_ns + passed_ns

    def epoch_ms(self) -> int:
        """Return wall-clock time in milliseconds since 1970, as this host has it."""
        return self._epoch_base_ms + (self.now_ns() - BOOT_NS) // NS_PER_MS

    def epoch_ns(self) -> int:
        """Return wall-clock time in nanoseconds since 1970, as this host has it."""
        return self._epoch_base_ms * NS_PER_MS + self.now_ns() - BOOT_NS

    def jump(self, by_ns: int) -> None:
        """Step monotonic time, as a hypervisor does that moves a machine."""
        self._base_ns += by_ns
        self._epoch_base_ms -= by_ns // NS_PER_MS

    def jump_epoch(self, by_ms: int) -> None:
        """Step wall-clock time alone, as somebody does who sets the date."""
        self._epoch_base_ms += by_ms

    def set_rate(self, rate: Fraction | float) -> None:
        """Let this clock run faster or slower than true time from now on.

        Args:
            rate: Its seconds in a true second; 1 is right.
        """
        self._base_ns = self.now_ns()
        self._since_ns = self._loop.now_ns
        self._rate = Fraction(rate).limit_denominator(1_000_000)
        self._is_right = self._rate == 1
