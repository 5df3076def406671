"""Fates of datagrams, and the links that decide them.

A fate is the list of what arrives in place of a datagram: nothing, the datagram, the datagram
twice, or something else, each with a delay beyond the link's own. `ScriptedFates` and `SeededFates`
decide it.

Invariant: datagrams leave a `Link` in the order they were sent, and arrive in that order, unless
the conditions reorder them.

Source: the impairments are those of `tc netem`, and of RFC 8867 and related RFCs; bursts of loss
follow Gilbert and Elliott.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

__all__ = [
    "Bursts",
    "Conditions",
    "Fate",
    "Fates",
    "Link",
    "Passage",
    "ScriptedFates",
    "SeededFates",
]

Passage = tuple[int, bytes]
"""An arriving datagram: nanoseconds beyond the link's own delay, and the bytes."""

# Fates.

FLIPPED_BITS_MAX: Final = 16
EXTENSION_LENGTH_MAX: Final = 64


class Fates(Protocol):
    """Decides what arrives in place of each datagram."""

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return what arrives, in the order of sending; an empty sequence is a loss."""
        ...


class Fate(Enum):
    """Fate of one datagram, for scripts: hypothesis shrinks a list of them to the shortest."""

    DELIVER = auto()
    DROP = auto()
    DUPLICATE = auto()
    DELAY = auto()


class ScriptedFates:
    """Scripted fates of the first datagrams, in order; all later ones are delivered.

    Args:
        fates: In the order of sending.
        delay_ns: Delay of a delayed datagram, or of the second of two.
    """

    def __init__(self, fates: Iterable[Fate], *, delay_ns: int = 5 * NS_PER_MS) -> None:
        self._fates = iter(fates)
        self._delay_ns = delay_ns

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return the scripted fate of the next datagram."""
        match next(self._fates, Fate.DELIVER):
            case Fate.DELIVER:
                return ((0, datagram),)
            case Fate.DROP:
                return ()
            case Fate.DUPLICATE:
                return ((0, datagram), (self._delay_ns, datagram))
            case Fate.DELAY:
                return ((self._delay_ns, datagram),)
            case never:
                assert_never(never)


@attrs.frozen(kw_only=True)
class Bursts:
    """Loss in bursts, after Gilbert and Elliott: a link alternates between a good and a bad state.

    Attributes:
        start: Chance, for each datagram, that a good link turns bad.
        end: Chance, for each datagram, that a bad link turns good again; 1 / end is the mean burst.
        loss: Chance that a bad link loses a datagram.
    """

    start: float
    end: float
    loss: float = 1.0

    def __attrs_post_init__(self) -> None:
        for name in ("start", "end", "loss"):
            _check_chance(name, getattr(self, name))


@attrs.frozen(kw_only=True)
class Conditions:
    """Quality of a link, in one direction. Chances are between 0 and 1, for each datagram.

    Attributes:
        loss: Chance of loss.
        bursts: Loss in bursts, or None.
        duplication: Chance to arrive a second time.
        duplicate_delay_ns: Most delay of the second arrival.
        reordering: Chance to be overtaken by datagrams sent later.
        reorder_delay_ns: Most delay of the overtaken datagram.
        corruption: Chance of damage that UDP does not notice: bits flipped, cut, extended, spliced.
        delay_ns: Delay of the link.
        jitter_ns: Most additional delay; later datagrams still arrive later.
        bandwidth: Bits a second, or None for no limit.
        queue_limit: Datagrams that may wait for bandwidth; further ones are lost.
        mtu_length: Longest datagram that passes, in bytes; longer ones are lost.

    Raises:
        ConfigurationError: A chance outside 0 to 1, or a negative time, rate, limit or length.
    """

    loss: float = 0.0
    bursts: Bursts | None = None
    duplication: float = 0.0
    duplicate_delay_ns: int = 0
    reordering: float = 0.0
    reorder_delay_ns: int = NS_PER_MS
    corruption: float = 0.0
    delay_ns: int = 50_000
    jitter_ns: int = 0
    bandwidth: int | None = None
    queue_limit: int = 1_000
    mtu_length: int = 65_507

    def __attrs_post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering", "corruption"):
            _check_chance(name, getattr(self, name))
        for name in ("duplicate_delay_ns", "reorder_delay_ns", "delay_ns", "jitter_ns"):
            _check_minimum(name, getattr(self, name), 0)
        for name in ("queue_limit", "mtu_length"):
            _check_minimum(name, getattr(self, name), 1)
        if self.bandwidth is not None:
            _check_minimum("bandwidth", self.bandwidth, 1)

    @property
    def is_lossless(self) -> bool:
        """Return whether every datagram arrives once, whole, and in order."""
        return (
            not (self.loss or self.duplication or self.reordering or self.corruption)
            and self.bursts is None
        )


class SeededFates:
    """Random fates.

    Args:
        conditions: The chances.
        random: Random numbers; the same seed gives the same fates.
    """

    def __init__(self, conditions: Conditions, random: Random) -> None:
        self._conditions = conditions
        self._random = random
        self._is_bad = False
        self._previous = b""
        self._is_lossless = conditions.is_lossless

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return the random fate of the next datagram."""
        if self._is_lossless:
            return ((0, datagram),)
        conditions, random = self._conditions, self._random
        if self._is_lost():
            return ()
        arriving = datagram
        if conditions.corruption and random.random() < conditions.corruption:
            arriving = self._damage(datagram)
        self._previous = datagram
        delay_ns = 0
        if conditions.reordering and random.random() < conditions.reordering:
            delay_ns = 1 + random.randrange(max(1, conditions.reorder_delay_ns))
        passages = [(delay_ns, arriving)]
        if conditions.duplication and random.random() < conditions.duplication:
            later_ns = delay_ns + random.randint(0, conditions.duplicate_delay_ns)
            passages.append((later_ns, arriving))
        return passages

    def _is_lost(self) -> bool:
        random, bursts = self._random, self._conditions.bursts
        if bursts is not None:
            self._is_bad = (
                random.random() >= bursts.end if self._is_bad else (random.random() < bursts.start)
            )
            if self._is_bad and random.random() < bursts.loss:
                return True
        return self._conditions.loss > 0 and random.random() < self._conditions.loss

    def _damage(self, datagram: bytes) -> bytes:
        random = self._random
        match random.randrange(4):
            case 0:
                damaged = bytearray(datagram)
                for _ in range(random.randint(1, FLIPPED_BITS_MAX)):
                    damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
                return bytes(damaged)
            case 1:
                return datagram[: random.randrange(len(datagram) + 1)]
            case 2:
                return datagram + random.randbytes(random.randint(1, EXTENSION_LENGTH_MAX))
            case _:
                cut = random.randrange(len(datagram) + 1)
                return datagram[:cut] + self._previous[cut:]


def _check_chance(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        message = f"{name}={value} must be a chance between 0 and 1"
        raise ConfigurationError(message)


def _check_minimum(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        message = f"{name}={value} must be {minimum} or more"
        raise ConfigurationError(message)


# Links.


class Link:
    """One direction between two hosts.

    Args:
        random: Random numbers of this link alone, so that events elsewhere change nothing here.
        conditions: Its quality.

    Attributes:
        is_lost: Called with each datagram; returns whether it is lost, before any random decision.
            For faults that select datagrams. None loses none.
    """

    def __init__(self, random: Random, conditions: Conditions) -> None:
        self._random = random
        self._departures: deque[int] = deque()
        self._busy_until_ns = 0
        self._last_arrival_ns = 0
        self._cutters: set[object] = set()
        self.is_lost: Callable[[bytes], bool] | None = None
        self.set_conditions(conditions)

    @property
    def is_up(self) -> bool:
        """Whether datagrams pass; setting it overrides every `cut`."""
        return not self._cutters

    @is_up.setter
    def is_up(self, is_up: bool) -> None:
        self._cutters.clear()
        if not is_up:
            self._cutters.add(self)

    def cut(self, cutter: object) -> None:
        """Stop all datagrams until every cutter has mended the link, or `is_up` is set."""
        self._cutters.add(cutter)

    def mend(self, cutter: object) -> None:
        """Undo the cut of one cutter."""
        self._cutters.discard(cutter)

    @property
    def conditions(self) -> Conditions:
        """Return the quality of the link."""
        return self._conditions

    def set_conditions(self, conditions: Conditions, fates: Fates | None = None) -> None:
        """Change the quality of the link from now on.

        Args:
            conditions: Delay, bandwidth and MTU; also the chances, unless there is a script.
            fates: A script in place of random fates.
        """
        self._conditions = conditions
        self._fates = SeededFates(conditions, self._random) if fates is None else fates

    def carry(self, datagram: bytes, now_ns: int) -> tuple[Verdict, list[Passage]]:
        """Return the verdict on a datagram sent now, and what arrives when.

        The times are those of arrival, not delays.
        """
        conditions = self._conditions
        if self._cutters:
            return Verdict.PARTITIONED, []
        if len(datagram) > conditions.mtu_length:
            return Verdict.TOO_LONG, []
        departure_ns = now_ns
        if conditions.bandwidth is not None:
            departure_ns = self._depart(len(datagram), now_ns, conditions.bandwidth)
            if departure_ns < 0:
                return Verdict.QUEUE_FULL, []
        if self.is_lost is not None and self.is_lost(datagram):
            return Verdict.LOST, []
        passages = self._fates.decide(datagram)
        if not passages:
            return Verdict.LOST, []
        arrival_ns = departure_ns + conditions.delay_ns
        if conditions.jitter_ns:
            arrival_ns += self._random.randint(0, conditions.jitter_ns)
        # What was sent earlier arrives earlier: jitter is a queue in the network, not another
        # route.
        arrival_ns = self._last_arrival_ns = max(arrival_ns, self._last_arrival_ns)
        return Verdict.SENT, [(arrival_ns + extra_ns, data) for extra_ns, data in passages]

    def _depart(self, length: int, now_ns: int, bandwidth: int) -> int:
        """Return when the last bit has left, or -1 if the queue is full."""
        departures = self._departures
        while departures and departures[0] <= now_ns:
            departures.popleft()
        if len(departures) >= self._conditions.queue_limit:
            return -1
        took_ns = length * 8 * NS_PER_SECOND // bandwidth
        self._busy_until_ns = max(now_ns, self._busy_until_ns) + took_ns
        departures.append(self._busy_until_ns)
        return self._busy_until_ns
