"""What becomes of one datagram on its way: by a script, or by dice whose seed is known.

A fate is the list of what arrives: nothing, the datagram, twice the datagram, something else, each
with the time it takes beyond the link's own.

Source: the impairments are those of `tc netem`, and of RFC 8867's neighbours; bursts of loss follow
Gilbert and Elliott.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import attrs

from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

__all__ = ["Bursts", "Conditions", "Fate", "Fates", "Passage", "ScriptedFates", "SeededFates"]

Passage = tuple[int, bytes]
"""Something that arrives: nanoseconds beyond the link's own delay, and the bytes."""

FLIPPED_BITS_MAX: Final = 16
EXTENSION_LENGTH_MAX: Final = 64


class Fates(Protocol):
    """Decides what arrives in place of each datagram."""

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return what arrives, in the order of sending; an empty sequence is a loss."""
        ...


class Fate(Enum):
    """One datagram's fate, for scripts: hypothesis shrinks a list of them to the shortest."""

    DELIVER = auto()
    DROP = auto()
    DUPLICATE = auto()
    DELAY = auto()


class ScriptedFates:
    """The fates of the first datagrams, one after the other; all later ones are delivered.

    Args:
        fates: In the order of sending.
        delay_ns: How much later a delayed datagram, or the second of two, arrives.
    """

    def __init__(self, fates: Iterable[Fate], *, delay_ns: int = 5 * NS_PER_MS) -> None:
        self._fates = iter(fates)
        self._delay_ns = delay_ns

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return what the script says of the next datagram."""
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
    """Loss in bursts, after Gilbert and Elliott: a link that is good, or bad, and changes its mind.

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
    """How good a link is, in one direction. Chances are between 0 and 1, for each datagram.

    Attributes:
        loss: Chance to be lost.
        bursts: Loss in bursts, or None.
        duplication: Chance to arrive a second time.
        duplicate_delay_ns: The second comes up to this much later.
        reordering: Chance to be overtaken by those sent after it.
        reorder_delay_ns: The overtaken arrives up to this much later.
        corruption: Chance to be damaged without UDP noticing: bits flipped, cut, extended, spliced.
        delay_ns: What the way takes.
        jitter_ns: What it may take beyond that; later datagrams still arrive later.
        bandwidth: Bits a second, or None for no limit.
        queue_limit: Datagrams that wait where the bandwidth is used up; further ones are lost.
        mtu_length: Longest datagram that gets through, in bytes; longer ones vanish.

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
    """Fates by dice.

    Args:
        conditions: The odds.
        random: The dice; the same seed throws the same.
    """

    def __init__(self, conditions: Conditions, random: Random) -> None:
        self._conditions = conditions
        self._random = random
        self._is_bad = False
        self._previous = b""
        self._is_lossless = conditions.is_lossless

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return what the dice say of the next datagram."""
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
