"""How much NAKs may bring: a token bucket for each publication, in bytes.

Whoever can send to the port can ask, and 28 bytes bring up to 2 MiB. The bucket holds so much at
most, and what is taken from it comes back in two ways: a share of every byte that is sent for the
first time, and a base for every second. So resends never exceed, over any time whatever,

    burst + base * seconds + share * bytes sent for the first time.

The share must not slow honest repair. Where a fraction p of all datagrams is lost, resends are
p / (1 - p) of what is sent for the first time: 43 % at a loss of 30 %. With a share below that what
is sent shrinks with what may be repaired, again and again, until only the base is left: simulated,
a quarter and a base of 128 KiB keep a sixth of the goodput, and half keeps all of it. Half is the
next round number that leaves room for chance.

The base is for repair that goes by time. What was lost just before a stream pauses is repaired
while nothing is sent: a receiver window each second. And at round trips longer than the retransmit
linger a gap is answered every linger, again and again before the first answer can arrive: 128 full
datagrams each second are one each linger and a few more. At a loss of 30 %, 15 to 50 ms and an MTU
of 8 KiB they keep nine tenths of the goodput, a window of 128 KiB alone little more than half.

Differs: Aeron has no such bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext

__all__ = ["RetransmitBudget"]

SECOND: Final = 1_000_000_000
# The bucket counts billionths of a byte, so that nothing is lost however often it is looked at.
CREDIT_PER_BYTE: Final = SECOND
CREDIT_PER_PERCENT: Final = CREDIT_PER_BYTE // 100


class RetransmitBudget:
    """What one publication may still send again.

    Args:
        context: Its limits.
        mtu_length: Of a full datagram, in bytes.
        position: Where the stream starts, in bytes.

    Attributes:
        window_length: The receiver window heard last, in bytes.
    """

    def __init__(self, context: DriverContext, *, mtu_length: int, position: int) -> None:
        self.window_length = 0
        self._capacity = context.max_retransmit_burst_length * CREDIT_PER_BYTE
        self._base_length = context.max_retransmit_base_count * mtu_length
        self._credit_per_byte_sent = context.max_retransmit_percent * CREDIT_PER_PERCENT
        self._linger_ns = context.retransmit_unicast_linger_ns
        self._length_per_linger = context.max_retransmit_linger_length
        self._credit = self._capacity
        self._linger_length = self._length_per_linger
        self._linger_until_ns = 0
        self._last_position = position
        # Full, so that it matters to nobody for how long it has not been looked at.
        self._last_ns = 0

    def take(self, length: int, *, sender_position: int, now_ns: int) -> int:
        """Return how much of `length` may be sent again, and count it as spent.

        Args:
            length: What is asked for, in bytes.
            sender_position: Up to where data has been sent, in bytes.
            now_ns: The time now.
        """
        base_length = max(self._base_length, self.window_length)
        self._credit = min(
            self._capacity,
            self._credit
            # A clock that was set back earns nothing, and takes nothing away.
            + max(0, now_ns - self._last_ns) * base_length
            + (sender_position - self._last_position) * self._credit_per_byte_sent,
        )
        self._last_ns = now_ns
        self._last_position = sender_position
        if not 0 < self._linger_until_ns - now_ns <= self._linger_ns:
            self._linger_until_ns = now_ns + self._linger_ns
            self._linger_length = self._length_per_linger
        granted_length = min(length, self._credit // CREDIT_PER_BYTE, self._linger_length)
        self.give_back(-granted_length)
        return granted_length

    def give_back(self, length: int) -> None:
        """Take back what was granted and not sent, in bytes."""
        self._credit += length * CREDIT_PER_BYTE
        self._linger_length += length
