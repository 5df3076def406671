"""Budgets for what peers can make a driver send: replies, NAKs and resends.

Any host that can send to a port of the driver can make it send something. The source address of
such a request may be forged; then the host with that address gets the answers. So each kind of
answer has a limit:

- `ReplyLimiter`: replies per second, in all and for each asker;
- `NakBudget` and `NakCredit`: NAKs of one image;
- `RetransmitBudget`: resends of one publication.

Invariant: a NAK does not draw on `NakBudget` only if a frame that arrived behind the gap proves
that the gap exists, and then a few times per gap. `NakCredit` slows down the NAKs for a gap that is
not filled.

Differs: Aeron repeats a NAK every 100 us without end, and believes every heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from aeron_async.clock import NS_PER_SECOND
from aeron_async.protocol.nak import NAK_LENGTH

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aeron_async.driver.core.context import DriverContext

__all__ = [
    "CREDIT_AT_FIRST",
    "CREDIT_LIMIT",
    "FREE_NAKS_PER_GAP",
    "HASTY_NAKS",
    "NakBudget",
    "NakCredit",
    "ReplyLimiter",
    "RetransmitBudget",
]

# Replies.


class ReplyLimiter:
    """Limits the answers per second: in all, to one asker, and to one address with many askers.

    `limit_per_source` defaults to `limit`. A limiter remembers no more askers than it answers.
    """

    __slots__ = (
        "_counts",
        "_limit",
        "_limit_per_asker",
        "_limit_per_source",
        "_sent_count",
        "_source_counts",
        "_start_ns",
    )

    def __init__(
        self, *, limit: int, limit_per_asker: int, limit_per_source: int | None = None
    ) -> None:
        self._limit = limit
        self._limit_per_asker = limit_per_asker
        self._limit_per_source = limit if limit_per_source is None else limit_per_source
        self._source_counts: dict[Hashable, int] = {}
        self._start_ns = -NS_PER_SECOND
        self._sent_count = 0
        self._counts: dict[Hashable, int] = {}

    @classmethod
    def of(cls, context: DriverContext) -> Self:
        """Return the limiter for the round-trip measurements of one stream."""
        return cls(
            limit=context.max_rtt_replies_per_second,
            limit_per_asker=context.max_rtt_replies_per_source,
        )

    def try_take(self, asker: Hashable, now_ns: int, *, source: Hashable = None) -> bool:
        """Return whether a request may be answered now, and count it if so.

        `source` is the address the asker sends from, if others may send from there too.
        """
        if now_ns >= self._start_ns + NS_PER_SECOND:
            self._start_ns = now_ns
            self._sent_count = 0
            self._counts.clear()
            self._source_counts.clear()
        if self._sent_count >= self._limit:
            return False
        count = self._counts.get(asker, 0)
        if count >= self._limit_per_asker:
            return False
        source_count = self._source_counts.get(source, 0)
        if source is not None and source_count >= self._limit_per_source:
            return False
        self._counts[asker] = count + 1
        if source is not None:
            self._source_counts[source] = source_count + 1
        self._sent_count += 1
        return True


# NAKs.

FREE_NAKS_PER_GAP: Final = 8
"""NAKs for one proven gap that do not draw on the bucket.

If 30 % of NAKs and of resends are lost, one gap in two hundred needs more than these."""

HASTY_NAKS: Final = 16
"""Repeats for one gap that follow the feedback delay alone."""
REPEAT_WAIT_NS: Final = 2_000_000
"""Interval of further repeats; official senders ignore them for 10 ms after each answer."""
LONGEST_WAIT_NS: Final = 200_000_000
"""The interval of periodic status messages of an image."""
CREDIT_AT_FIRST: Final = 24 * NAK_LENGTH
CREDIT_FOR_FIRST_GAP: Final = 12 * NAK_LENGTH
NAK_CREDIT_PER_BYTE: Final = 2
"""At 30 % loss a stream of 100-byte messages earns more NAKs than its gaps can need."""
CREDIT_LIMIT: Final = 64 * 1024


class NakBudget:
    """A token bucket that is full at first; in no second do more than `limit` NAKs draw on it.

    A frame that arrived behind a gap proves the gap. `FREE_NAKS_PER_GAP` NAKs for one proven gap do
    not draw on the bucket. Only NAKs without such proof do: for a gap that ends where a heartbeat
    claims the sender to be, and for the same gap again and again. So an honest stream is repaired
    at the speed of its losses, however many small gaps it has per second, while a forged heartbeat
    half a term ahead of the sender causes a bounded number of NAKs.

    The limit is at least 10 NAKs per second; a tenth of them may be sent in one burst.
    """

    __slots__ = ("_burst_ns", "_free_count", "_full_at_ns", "_interval_ns", "_proven")

    def __init__(self, limit: int) -> None:
        burst = limit // 10
        self._interval_ns = -(-NS_PER_SECOND // (limit - burst))
        self._burst_ns = burst * self._interval_ns
        # GCRA: the time at which the bucket is full again.
        self._full_at_ns = 0
        self._free_count = 0
        self._proven = -1, -1

    def on_gap(self, start: int, end: int, *, is_proven: bool) -> None:
        """Record the gap that the next NAKs are for; positions in bytes.

        A gap that has only lost its front, or only its end, is still the same loss: a gap gets
        NAKs that do not draw on the bucket only if its start and its end both differ from those of
        the last gap that got them.
        """
        free_start, free_end = self._proven
        if not is_proven:
            self._free_count = 0
        elif start > free_start and end != free_end:
            self._proven = start, end
            self._free_count = FREE_NAKS_PER_GAP

    def try_take(self, now_ns: int) -> bool:
        """Return whether a NAK may be sent now, and count it if so."""
        if self._free_count:
            self._free_count -= 1
            return True
        full_at_ns = max(self._full_at_ns, now_ns) + self._interval_ns
        if full_at_ns - now_ns > self._burst_ns:
            return False
        self._full_at_ns = full_at_ns
        return True

    @property
    def next_ns(self) -> int:
        """Return when the next NAK that draws on the bucket may be sent."""
        return self._full_at_ns + self._interval_ns - self._burst_ns


class NakCredit:
    """Slows down the NAKs of one stream for data that does not arrive.

    A stranger could start dozens of streams in the name of another host and claim to have sent
    much of each. Without a limit that host would get a thousand NAKs a second for each stream: a
    hundred bytes for each byte of the stranger's. So a stream that does not progress sends a few
    NAKs, and then five a second.

    NAKs for one gap are first repeated fast, then often enough to be heard soon after an official
    sender has ignored repeats for 10 ms. All NAKs of a stream together are paid from a credit that
    the stream earns with progress: two bytes for each byte, so that a stranger cannot cause much
    more traffic than it sends.
    """

    __slots__ = ("_count", "_credit", "_start")

    def __init__(self) -> None:
        self._start = -1
        self._count = 0
        self._credit = CREDIT_AT_FIRST

    def on_gap(self, start: int) -> None:
        """Record where the first gap begins, in bytes; progress of that earns credit."""
        if start > self._start:
            if self._start >= 0:
                earned = NAK_CREDIT_PER_BYTE * (start - self._start)
                self._credit = min(self._credit + earned, CREDIT_LIMIT)
            self._start = start
            self._count = 0

    @property
    def can_spend(self) -> bool:
        """Return whether a NAK for a gap behind the first leaves enough credit for the first."""
        return self._credit >= CREDIT_FOR_FIRST_GAP

    def try_spend(self) -> bool:
        """Pay for a NAK for a gap behind the first; return False if the credit is too low."""
        if not self.can_spend:
            return False
        self._credit -= NAK_LENGTH
        return True

    def pay_and_wait_ns(self) -> int:
        """Pay for the NAK that was sent; return the least time to the next one."""
        self._credit = max(0, self._credit - NAK_LENGTH)
        if self._credit < NAK_LENGTH:
            return LONGEST_WAIT_NS
        self._count += 1
        return 0 if self._count <= HASTY_NAKS else REPEAT_WAIT_NS


# Resends.

# The bucket counts billionths of a byte, so that frequent updates lose nothing to rounding.
CREDIT_PER_BYTE: Final = NS_PER_SECOND
CREDIT_PER_PERCENT: Final = CREDIT_PER_BYTE // 100


class RetransmitBudget:
    """Limits what one publication may resend.

    A NAK of 28 bytes can ask for up to 2 MiB. The bucket holds that much at most, and is refilled
    in two ways: by a share of every byte that is sent for the first time, and by a base every
    second. So over any period resends never exceed

        burst + base * seconds + share * bytes sent for the first time.

    The share must not slow honest repair. Where a fraction p of all datagrams is lost, resends are
    p / (1 - p) of what is sent for the first time: 43 % at a loss of 30 %. With a lower share the
    stream slows down, which lowers the refill again, until only the base is left: simulated, a
    share of a quarter with a base of 128 KiB keeps a sixth of the goodput, and a half keeps all of
    it. A half is the next round number that leaves room for chance.

    The base is for repair that depends on time. What was lost just before a stream pauses is
    repaired while nothing is sent: a receiver window each second. And at round trips longer than
    the retransmit linger a gap is resent every linger until the first answer can arrive: 128 full
    datagrams each second are one each linger and a few more. At a loss of 30 %, 15 to 50 ms and an
    MTU of 8 KiB they keep nine tenths of the goodput, a window of 128 KiB alone little more than
    half.

    Differs: Aeron has no such limit.
    """

    def __init__(self, context: DriverContext, *, mtu_length: int, position: int) -> None:
        # The latest receiver window.
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
        # The bucket starts full, so the time since the last refill does not matter.
        self._last_ns = 0

    def take(self, length: int, *, sender_position: int, now_ns: int) -> int:
        """Return how many of `length` bytes may be resent, and count them as spent."""
        base_length = max(self._base_length, self.window_length)
        self._credit = min(
            self._capacity,
            self._credit
            # A clock that was set back neither earns nor costs anything.
            + max(0, now_ns - self._last_ns) * base_length
            + (sender_position - self._last_position) * self._credit_per_byte_sent,
        )
        self._last_ns = now_ns
        self._last_position = sender_position
        # A new linger period, or a clock set back.
        if not 0 < self._linger_until_ns - now_ns <= self._linger_ns:
            self._linger_until_ns = now_ns + self._linger_ns
            self._linger_length = self._length_per_linger
        granted_length = min(length, self._credit // CREDIT_PER_BYTE, self._linger_length)
        self.give_back(-granted_length)
        return granted_length

    def give_back(self, length: int) -> None:
        """Return bytes to the budget that were granted and not sent."""
        self._credit += length * CREDIT_PER_BYTE
        self._linger_length += length
