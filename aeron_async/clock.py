"""Clocks: the time sources of agents, which a test may replace.

Invariant: `protocol`, `logbuffer` and `driver/core` call no clock; the caller passes the time. They
take only constants from here.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

__all__ = [
    "NEVER_NS",
    "NS_PER_MS",
    "NS_PER_SECOND",
    "NS_PER_US",
    "Clock",
    "SystemClock",
]

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_SECOND: Final = 1_000_000_000
NEVER_NS: Final = 2**63 - 1
"""The deadline of what is not due at any time: the last nanosecond of a 64-bit clock."""


class Clock(Protocol):
    """Monotonic time for deadlines; wall-clock time for people and other machines."""

    def now_ns(self) -> int:
        """Return monotonic time in nanoseconds."""
        ...

    def epoch_ms(self) -> int:
        """Return wall-clock time in milliseconds since 1970."""
        ...

    def epoch_ns(self) -> int:
        """Return wall-clock time in nanoseconds since 1970."""
        ...


class SystemClock:
    """The system's own clocks.

    `time.monotonic_ns` and not `loop.time()`: uvloop's steps by a whole millisecond.
    """

    # Class attributes, so that reading the time costs one call and no Python frame.
    now_ns: staticmethod[[], int] = staticmethod(time.monotonic_ns)
    epoch_ns: staticmethod[[], int] = staticmethod(time.time_ns)

    def epoch_ms(self) -> int:
        """Return wall-clock time in milliseconds since 1970."""
        return time.time_ns() // NS_PER_MS
