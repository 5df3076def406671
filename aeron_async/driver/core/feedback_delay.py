"""The delay before a receiver asks for lost data, and before it asks again.

Unicast asks at once: the only reason to wait is reordering. A group backs off at random, so that
the first to ask is heard (through its retransmission) by the others before they ask too.

Source: Aeron `FeedbackDelayGenerator`, `StaticDelayGenerator`, `OptimalMulticastDelayGenerator`;
RFC 5401, NACK suppression by truncated exponential back-off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext

__all__ = [
    "NO_DELAY",
    "FeedbackDelay",
    "GroupDelay",
    "StaticDelay",
    "choose_delay",
]

SHORTEST_NS: Final = 1_000
"""The first wait where nothing else is said, and what a repeat counts from at least."""


class FeedbackDelay(Protocol):
    """When to send the first NAK for a gap, and when to repeat it."""

    def initial_ns(self) -> int:
        """Return the wait from finding a gap to its first NAK, in nanoseconds."""
        ...

    def retry_ns(self) -> int:
        """Return the wait from one NAK to the next for the same gap, in nanoseconds."""
        ...


class StaticDelay:
    """The same delays every time, as unicast wants them.

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
    """Random delays in [0, max_backoff_ns], few of them short, so that few of many ask.

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


def choose_delay(
    context: DriverContext,
    *,
    is_reliable: bool,
    is_group: bool,
    nak_delay_ns: int | None,
    random: Callable[[], float],
) -> FeedbackDelay:
    """Return the delays for one image.

    Args:
        context: Where the defaults come from.
        is_reliable: Whether lost data is asked for at all.
        is_group: Whether other receivers may miss the same data.
        nak_delay_ns: The channel's own `nak-delay`; unicast only.
        random: Draws uniformly from [0, 1).
    """
    if not is_reliable:
        return NO_DELAY
    if is_group:
        return GroupDelay(
            max_backoff_ns=context.nak_multicast_max_backoff_ns,
            group_size=context.nak_multicast_group_size,
            random=random,
        )
    initial_ns = context.nak_unicast_delay_ns if nak_delay_ns is None else nak_delay_ns
    # Differs: C repeats a zero delay in every cycle; like Java we take at least 1 us times the
    # ratio, since an event loop must not spin on a gap that nobody will fill.
    retry_ns = max(initial_ns, SHORTEST_NS) * context.nak_unicast_retry_delay_ratio
    # The time is read before all that came is looked through, and that takes longer than this. A
    # turn of the loop in between would be the readers', and a hundred times as long.
    return StaticDelay(initial_ns=initial_ns if initial_ns > SHORTEST_NS else 0, retry_ns=retry_ns)
