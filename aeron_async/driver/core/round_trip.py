"""How long it takes until a sender hears of what it sent, and a receiver of what it asked for.

`SmoothedTime` turns measurements into a time after which an answer is overdue, as TCP does.
`RoundTrip` measures for a sender of a unicast stream, by the NAKs that it gets.

Source: RFC 6298, the retransmission timer of TCP. Aeron has no counterpart.
"""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["SHORTEST_ANSWER_NS", "RoundTrip", "SmoothedTime"]

SHORTEST_ANSWER_NS: Final = 100_000
"""No answer is overdue sooner: a receiver at its fastest repeats a NAK after this time."""
LONGEST_ANSWER_NS: Final = 1_000_000_000
"""Every answer is overdue after this time."""
DOUBLINGS_MAX: Final = 6
TIMES_KEPT: Final = 128
TIMES_APART_NS: Final = 100_000
"""How far apart the kept times are at least: all together cover more than the default linger."""

NONE: Final = array("q")


class SmoothedTime:
    """A mean of measured times and of their deviations; recent ones count most."""

    __slots__ = ("_deviation_ns", "_doublings", "_is_certain", "_mean_ns")

    def __init__(self) -> None:
        self._mean_ns = self._deviation_ns = self._doublings = 0
        self._is_certain = False

    def on_measured(self, took_ns: int, *, is_certain: bool = True) -> None:
        """Take a measurement, in nanoseconds.

        One that may be too long, because what was answered may be a later request, is better than
        none, and counts until there is a certain one.
        """
        took_ns = max(1, took_ns)
        if self._mean_ns and not is_certain:
            return
        self._doublings = 0
        if not self._is_certain:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
            self._is_certain = is_certain
            return
        difference_ns = took_ns - self._mean_ns
        self._deviation_ns += (abs(difference_ns) - self._deviation_ns) // 4
        self._mean_ns = max(1, self._mean_ns + difference_ns // 8)

    def on_unanswered(self) -> None:
        """Wait twice as long from now on, until the next measurement."""
        self._doublings = min(self._doublings + 1, DOUBLINGS_MAX)

    def forget(self) -> None:
        """Begin again, as if nothing had been measured."""
        self._mean_ns = self._deviation_ns = self._doublings = 0
        self._is_certain = False

    @property
    def usual_ns(self) -> int:
        """Return how long an answer may take by what was measured; 0 if nothing was."""
        if not self._mean_ns:
            return 0
        overdue_ns = max(SHORTEST_ANSWER_NS, self._mean_ns + 4 * self._deviation_ns)
        return min(overdue_ns, LONGEST_ANSWER_NS)

    @property
    def overdue_ns(self) -> int:
        """Return how long to wait for an answer, in nanoseconds; 0 if nothing was measured."""
        return min(self.usual_ns << self._doublings, LONGEST_ANSWER_NS)


class RoundTrip:
    """How long it takes until the NAK of a unicast receiver answers what was sent.

    A NAK shows that the receiver has what lies behind the gap. Since that was sent, a round trip
    has passed, or more if the receiver was slow. Only the first NAK for each gap is measured, and
    only if it was answered. A stream remembers when it sent what only after a first NAK: most never
    get one.
    """

    __slots__ = ("_count", "_furthest_end", "_positions", "_time", "_times_ns")

    def __init__(self) -> None:
        # Where each burst began and when it was sent, as rings.
        self._positions = self._times_ns = NONE
        self._count = 0
        self._furthest_end = 0
        self._time = SmoothedTime()

    def on_sent(self, position: int, now_ns: int) -> None:
        """Record that what begins at `position` was sent for the first time."""
        if not self._count:
            return
        times_ns, last = self._times_ns, (self._count - 1) % TIMES_KEPT
        if now_ns - times_ns[last] >= TIMES_APART_NS:
            slot = self._count % TIMES_KEPT
            self._positions[slot] = position
            times_ns[slot] = now_ns
            self._count += 1

    def on_nak(self, gap_end: int, sender_position: int, now_ns: int) -> None:
        """Measure by a NAK, which was answered, for a gap that ends at this position, in bytes."""
        if not self._furthest_end < gap_end <= sender_position:
            return
        self._furthest_end = gap_end
        if not self._count:
            self._positions, self._times_ns = (array("q", bytes(8 * TIMES_KEPT)) for _ in range(2))
            self._positions[0], self._times_ns[0] = sender_position, now_ns
            self._count = 1
            return
        for count in range(self._count, max(0, self._count - TIMES_KEPT), -1):
            slot = (count - 1) % TIMES_KEPT
            if self._positions[slot] < gap_end:
                self._time.on_measured(now_ns - self._times_ns[slot])
                return
        # That was sent too long ago to know when.
        self._time.forget()

    def linger_ns(self, limit_ns: int) -> int:
        """Return how long a resend may take, in nanoseconds; `limit_ns` if nothing is known."""
        overdue_ns = self._time.overdue_ns
        return min(limit_ns, overdue_ns) if overdue_ns else limit_ns
