"""The delay before a receiver sends a NAK for lost data, and before it repeats the NAK.

A unicast receiver sends its NAK at once: the only reason to wait is reordering. A receiver in a
group waits for a random time, so that the others receive the retransmission for the first NAK
before they send their own.

Source: Aeron `FeedbackDelayGenerator`, `StaticDelayGenerator`, `OptimalMulticastDelayGenerator`;
RFC 5401, NACK suppression by truncated exponential back-off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "NO_DELAY",
    "FeedbackDelay",
    "GroupDelay",
    "StaticDelay",
]


SHORTEST_NS: Final = 1_000
"""A first delay of at most this counts as none; repeats are computed from this value at least."""


class FeedbackDelay(Protocol):
    """When to send the first NAK for a gap, and when to repeat it."""

    def initial_ns(self) -> int:
        """Return the wait from finding a gap to its first NAK, in nanoseconds."""
        ...

    def retry_ns(self) -> int:
        """Return the wait from one NAK to the next for the same gap, in nanoseconds."""
        ...


class StaticDelay:
    """The same delays every time, for unicast.

    Args:
        initial_ns: Before the first NAK.
        retry_ns: Between repeated NAKs.
    """

    def __init__(self, *, initial_ns: int, retry_ns: int) -> None:
        self._initial_ns = initial_ns
        self._retry_ns = retry_ns

    def initial_ns(self) -> int:
        """Return the wait from finding a gap to its first NAK, in nanoseconds."""
        return self._initial_ns

    def retry_ns(self) -> int:
        """Return the wait from one NAK to the next for the same gap, in nanoseconds."""
        return self._retry_ns


NO_DELAY: Final = StaticDelay(initial_ns=0, retry_ns=0)


class GroupDelay:
    """Random delays in [0, max_backoff_ns], few of them short: few of many receivers send a NAK.

    With lambda = ln(group_size) + 1 and T = max_backoff_ns, a draw x, uniform over one
    lambda/T from lambda/(T(e^lambda - 1)) on, becomes (T/lambda) ln(x (e^lambda - 1) T/lambda).

    Args:
        max_backoff_ns: The longest wait, T.
        group_size: How many receivers are expected to miss the same data; at least 1.
        random: Draws uniformly from [0, 1).
    """

    def __init__(
        self, *, max_backoff_ns: int, group_size: int, random: Callable[[], float]
    ) -> None:
        rate = math.log(group_size) + 1
        self._random = random
        self._scale_ns = max_backoff_ns / rate
        self._span = math.exp(rate) - 1
        self._max_backoff_ns = max_backoff_ns

    def initial_ns(self) -> int:
        """Return a fresh random wait, in nanoseconds."""
        # x (e^lambda - 1) T/lambda of the formula above is 1 + u (e^lambda - 1) for u in [0, 1).
        drawn = self._scale_ns * math.log(1 + self._random() * self._span)
        return min(int(drawn), self._max_backoff_ns)

    def retry_ns(self) -> int:
        """Return a fresh random wait, in nanoseconds."""
        return self.initial_ns()
