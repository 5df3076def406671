"""Budgets for what peers can make a driver send: replies, NAKs and resends.

Any host that can send to a port of the driver can ask, and the address a question came from may be
forged; then the host with that address gets the answers. So each kind of answer has its limit:

- `ReplyLimiter`: replies in a second, in all and for each asker;
- `NakBudget` and `NakPatience`: NAKs of one image;
- `RetransmitBudget`: resends of one publication.

Invariant: a NAK is free of `NakBudget` only where a frame that arrived behind the gap proves that
the gap is there, and then a few times for each gap. `NakPatience` slows down the NAKs for a gap
that nothing fills.

Differs: Aeron repeats a NAK every 100 us without end, and believes every heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

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
    "NakPatience",
    "ReplyLimiter",
    "RetransmitBudget",
]

# Replies.

INTERVAL_NS: Final = 1_000_000_000


class ReplyLimiter:
    """Counts the answers of one second; it remembers no more askers than it answers.

    Args:
        limit: Answers in a second.
        limit_per_asker: Answers in a second to one of those who ask.
        limit_per_source: Answers in a second to one address, where many ask from there; None sets
            no other limit to it than to all.
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
        self._start_ns = -INTERVAL_NS
        self._sent_count = 0
        self._counts: dict[Hashable, int] = {}

    @classmethod
    def of(cls, context: DriverContext) -> Self:
        """Return one for the round-trip measurements of one image."""
        return cls(
            limit=context.max_rtt_replies_per_second,
            limit_per_asker=context.max_rtt_replies_per_source,
        )

    def try_take(self, asker: Hashable, now_ns: int, *, source: Hashable = None) -> bool:
        """Return whether a question may be answered now, and take note that it is.

        Args:
            asker: Who asks.
            now_ns: The time now.
            source: The address that it asks from, where others may ask from there, too.
        """
        if now_ns >= self._start_ns + INTERVAL_NS:
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
"""At 30 % loss of NAKs and of what they bring, one gap in two hundred needs more than these."""

HASTY_NAKS: Final = 16
"""Repeats of one gap as fast as the feedback delay says."""
REPEAT_WAIT_NS: Final = 2_000_000
"""Further repeats; a sender ignores them for 10 ms after each answer."""
LONGEST_WAIT_NS: Final = 200_000_000
"""As long as between two status messages of an image that is told nothing new."""
CREDIT_AT_FIRST: Final = 24 * NAK_LENGTH
CREDIT_FOR_FIRST_GAP: Final = 12 * NAK_LENGTH
NAK_CREDIT_PER_BYTE: Final = 2
"""At 30 % loss a stream of 100-byte messages pays for more NAKs than its gaps can need."""
CREDIT_LIMIT: Final = 64 * 1024
NS_PER_SECOND: Final = 1_000_000_000


class NakBudget:
    """A bucket that is full at first; no second sees more than the limit leave it.

    A frame that arrived behind a gap proves it; each proven gap may be asked for several times, as
    soon as its delays say. Only a NAK without such proof draws on the bucket: for a gap that ends
    where a heartbeat claims the sender to be, and for the same gap again and again. So an honest
    stream is repaired at the speed of its losses, however many small gaps a second that makes,
    while a forged heartbeat, half a term ahead of the sender, brings a bounded number of NAKs.

    Args:
        limit: NAKs in a second, at least 10; a tenth of them may leave at once.
    """

    __slots__ = ("_burst_ns", "_free_count", "_interval_ns", "_is_full_ns", "_proven")

    def __init__(self, limit: int) -> None:
        burst = limit // 10
        self._interval_ns = -(-NS_PER_SECOND // (limit - burst))
        self._burst_ns = burst * self._interval_ns
        self._is_full_ns = 0
        self._free_count = 0
        self._proven = -1, -1

    def on_gap(self, start: int, end: int, *, is_proven: bool) -> None:
        """Take note of the gap that is asked for next; positions in bytes.

        A gap that only lost its front, or only its end, is still the same loss: what is asked for
        free must have both another start and another end than what was free before.
        """
        free_start, free_end = self._proven
        if not is_proven:
            self._free_count = 0
        elif start > free_start and end != free_end:
            self._proven = start, end
            self._free_count = FREE_NAKS_PER_GAP

    def try_take(self, now_ns: int) -> bool:
        """Return whether a NAK may leave now."""
        if self._free_count:
            self._free_count -= 1
            return True
        is_full_ns = max(self._is_full_ns, now_ns) + self._interval_ns
        if is_full_ns - now_ns > self._burst_ns:
            return False
        self._is_full_ns = is_full_ns
        return True

    @property
    def next_ns(self) -> int:
        """Return when the next NAK may leave that draws on the budget."""
        return self._is_full_ns + self._interval_ns - self._burst_ns


class NakPatience:
    """Asks more slowly for what does not come, and very slowly for what is not paid for.

    A stranger who begins streams by the dozen in the name of another host, and claims to have sent
    much of each, would otherwise have a thousand NAKs a second sent to that host for each stream:
    a hundred bytes for every one of its own. So a stream that does not move on has a few NAKs, and
    then five a second.

    A gap is asked for a few times in haste, then often enough to be heard soon after a sender has
    turned a deaf ear for 10 ms. And all NAKs of a stream together are paid for by what they bring:
    two bytes for each byte that the stream has moved on, so that nobody gets much more out than in.
    """

    __slots__ = ("_count", "_credit", "_start")

    def __init__(self) -> None:
        self._start = -1
        self._count = 0
        self._credit = CREDIT_AT_FIRST

    def on_gap(self, start: int) -> None:
        """Take note of where the first gap begins, in bytes; further on, something has come."""
        if start > self._start:
            if self._start >= 0:
                earned = NAK_CREDIT_PER_BYTE * (start - self._start)
                self._credit = min(self._credit + earned, CREDIT_LIMIT)
            self._start = start
            self._count = 0

    @property
    def can_spend(self) -> bool:
        """Return whether a gap behind the first may be asked for: some is left for the first."""
        return self._credit >= CREDIT_FOR_FIRST_GAP

    def try_spend(self) -> bool:
        """Pay for a gap behind the first; return False where that must wait for credit."""
        if not self.can_spend:
            return False
        self._credit -= NAK_LENGTH
        return True

    def wait_ns(self) -> int:
        """Return how long to wait, at the least, after the NAK that leaves now."""
        self._credit = max(0, self._credit - NAK_LENGTH)
        if self._credit < NAK_LENGTH:
            return LONGEST_WAIT_NS
        self._count += 1
        return 0 if self._count <= HASTY_NAKS else REPEAT_WAIT_NS


# Resends.

SECOND: Final = 1_000_000_000
# The bucket counts billionths of a byte, so that nothing is lost however often it is looked at.
CREDIT_PER_BYTE: Final = SECOND
CREDIT_PER_PERCENT: Final = CREDIT_PER_BYTE // 100


class RetransmitBudget:
    """What one publication may still send again.

    A NAK of 28 bytes brings up to 2 MiB. The bucket holds so much at most, and what is taken from
    it comes back in two ways: a share of every byte that is sent for the first time, and a base
    for every second. So resends never exceed, over any time whatever,

        burst + base * seconds + share * bytes sent for the first time.

    The share must not slow honest repair. Where a fraction p of all datagrams is lost, resends are
    p / (1 - p) of what is sent for the first time: 43 % at a loss of 30 %. With a share below that
    what is sent shrinks with what may be repaired, again and again, until only the base is left:
    simulated, a quarter and a base of 128 KiB keep a sixth of the goodput, and half keeps all of
    it. Half is the next round number that leaves room for chance.

    The base is for repair that goes by time. What was lost just before a stream pauses is repaired
    while nothing is sent: a receiver window each second. And at round trips longer than the
    retransmit linger a gap is answered every linger, again and again before the first answer can
    arrive: 128 full datagrams each second are one each linger and a few more. At a loss of 30 %,
    15 to 50 ms and an MTU of 8 KiB they keep nine tenths of the goodput, a window of 128 KiB alone
    little more than half.

    Differs: Aeron has no such bound.

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
