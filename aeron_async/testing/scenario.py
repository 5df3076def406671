"""What a seed stands for: a topology, its workload and its troubles, all drawn from it.

Each feature has dice of its own, so that leaving one out changes nothing about the others: that is
how a failing seed is made smaller.

Source: swarm testing (Groce and others, 2012): a run that has every feature at once hides what a
run with few of them shows.
"""

from __future__ import annotations

from enum import Enum, auto
from random import Random
from typing import Final

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from aeron_async.logbuffer.position import max_message_length
from aeron_async.protocol.header import FrameType
from aeron_async.testing.fates import Bursts, Conditions

__all__ = ["FEATURES", "Scenario", "Stream", "Trouble", "TroubleKind"]

FEATURES: Final = (
    "bandwidth",
    "bursts",
    "cancellation",
    "churn",
    "claims",
    "corruption",
    "crash",
    "delay",
    "drift",
    "duplication",
    "end_of_positions",
    "exclusive",
    "first_frames",
    "flapping",
    "jitter",
    "jump",
    "large_messages",
    "late_join",
    "loss",
    "one_way",
    "partition",
    "pause",
    "polling",
    "reordering",
    "restart",
    "send_errors",
    "several_terms",
    "slow_reader",
    "small_mtu",
    "term_id_wrap",
    "unreliable",
)
TERM_LENGTHS: Final = (64 * 1024, 64 * 1024, 128 * 1024, 1024 * 1024)
MTU_LENGTHS: Final = (96, 128, 288, 1408, 4096, 8192)
CONTROL_FRAMES: Final = (FrameType.SETUP, FrameType.SM, FrameType.NAK, FrameType.DATA)
INITIAL_TERM_IDS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 2)
BYTES_MAX: Final = 400_000
"""Offered to one publication, at most: a run is to take a tenth of a second."""


class TroubleKind(Enum):
    """What happens to one host for a while."""

    PARTITION = auto()
    ONE_WAY = auto()
    FLAPPING = auto()
    PAUSE = auto()
    CRASH = auto()
    RESTART = auto()
    DRIFT = auto()
    JUMP = auto()
    SEND_ERRORS = auto()


@attrs.frozen(kw_only=True)
class Trouble:
    """One trouble of one host.

    Attributes:
        kind: What happens.
        at_ns: When it begins, from the start of the run.
        duration_ns: How long it lasts.
        host: Index of the host.
        amount: How much, where that means something: a rate, or nanoseconds.
    """

    kind: TroubleKind
    at_ns: int
    duration_ns: int
    host: int
    amount: float = 0.0

    @property
    def duration_s(self) -> float:
        """Return how long it lasts, in seconds."""
        return self.duration_ns / NS_PER_SECOND


@attrs.frozen(kw_only=True)
class Stream:
    """One publication, and how it is written to.

    Attributes:
        host: Index of the host that publishes.
        endpoint_host: Index of the host that receives.
        stream_id: Of the stream.
        parameters: Of the channel, besides its endpoint.
        is_exclusive: Whether the publication is.
        has_claims: Whether some messages are claimed and some claims aborted.
        lengths: Of the messages, in bytes.
        gap_ns: Mean time between two offers.
        cancel_chance: For each offer.
    """

    host: int
    endpoint_host: int
    stream_id: int
    parameters: str
    is_exclusive: bool
    has_claims: bool
    lengths: tuple[int, ...]
    gap_ns: int
    cancel_chance: float


@attrs.frozen(kw_only=True)
class Reader:
    """One subscription, and how it is read.

    Attributes:
        host: Index of the host.
        stream_id: Of the stream.
        parameters: Of the channel, besides its endpoint.
        kind: `iterate`, `batches` or `poll`.
        starts_at_ns: When it is added, from the start of the run.
        lives_ns: After which time it is closed and added again; 0 is never.
        stalls: Times and durations, in nanoseconds, at which it does not read.
        is_reliable: Whether gaps are repaired.
    """

    host: int
    stream_id: int
    parameters: str
    kind: str
    starts_at_ns: int
    lives_ns: int
    stalls: tuple[tuple[int, int], ...]
    is_reliable: bool


@attrs.frozen(kw_only=True)
class Scenario:
    """A whole run.

    Attributes:
        seed: It was drawn from.
        features: Those that are in it.
        host_count: Hosts, the first of which receives.
        conditions: Of every link from the publishers' hosts, and of every link towards them.
        first_frames: Frame type and how many of its first are lost, for each.
        streams: The publications.
        readers: The subscriptions.
        troubles: In the order in which they begin.
        duration_ns: Until when there is trouble; then all is well.
    """

    seed: int
    features: frozenset[str]
    host_count: int
    conditions: tuple[Conditions, Conditions]
    first_frames: tuple[tuple[FrameType, int], ...]
    streams: tuple[Stream, ...]
    readers: tuple[Reader, ...]
    troubles: tuple[Trouble, ...]
    duration_ns: int

    @property
    def is_exact(self) -> bool:
        """Return whether every byte can be held to what was offered."""
        return "corruption" not in self.features

    @property
    def may_lose_images(self) -> bool:
        """Return whether silence may end an image before its stream has ended."""
        return not self.features.isdisjoint(
            {"partition", "one_way", "flapping", "pause", "crash", "restart", "jump", "drift"}
            | {"send_errors", "bandwidth", "corruption", "bursts", "delay"}
        )

    @classmethod
    def draw(cls, seed: int, *, without: frozenset[str] = frozenset()) -> Scenario:
        """Return what a seed stands for.

        Args:
            seed: Any integer.
            without: Features to leave out; nothing else changes.
        """
        dice = Dice(seed, without)
        topology = dice.of("topology")
        host_count = topology.choice((2, 2, 3, 4))
        duration_ns = topology.randint(500, 4_000) * NS_PER_MS
        stream_count = topology.choice((1, 1, 2, 3))
        streams = share_parameters(
            [draw_stream(dice, n, host_count, duration_ns) for n in range(stream_count)]
        )
        troubles = draw_troubles(dice, host_count, duration_ns)
        end_ns = max([duration_ns, *(each.at_ns + each.duration_ns for each in troubles)])
        readers = tuple(
            reader
            for stream_id in sorted({each.stream_id for each in streams})
            for reader in draw_readers(dice, stream_id, streams, duration_ns)
        )
        return cls(
            seed=seed,
            features=frozenset(name for name in FEATURES if dice.has(name)),
            host_count=host_count,
            conditions=(draw_conditions(dice, "data"), draw_conditions(dice, "control")),
            first_frames=draw_first_frames(dice),
            streams=streams,
            readers=readers,
            troubles=troubles,
            duration_ns=end_ns,
        )


class Dice:
    """Which features a seed has, and dice for each.

    Args:
        seed: Of all dice.
        without: Features it is not to have.
    """

    def __init__(self, seed: int, without: frozenset[str]) -> None:
        self._seed = seed
        odds = self.of("features")
        density = odds.uniform(0.0, 0.4)
        drawn = [name for name in FEATURES if odds.random() < density]
        self._features = frozenset(drawn) - without

    def has(self, feature: str) -> bool:
        """Return whether this run has a feature."""
        return feature in self._features

    def of(self, *names: object) -> Random:
        """Return dice for one purpose."""
        return Random("/".join(map(str, (self._seed, *names))))  # noqa: S311 - seeded on purpose


def draw_conditions(dice: Dice, direction: str) -> Conditions:
    """Return how good the links in one direction are."""

    def chance(feature: str, most: float) -> float:
        return dice.of(feature, direction).uniform(0.0, most) if dice.has(feature) else 0.0

    bursts = None
    if dice.has("bursts"):
        # One run in twenty loses whole windows at a time.
        random = dice.of("bursts", direction)
        mean = random.uniform(20, 90) if random.random() < 0.05 else random.uniform(1, 3)  # noqa: PLR2004 - as the line above says
        bursts = Bursts(start=random.uniform(0, 0.1), end=1 / mean)
    bandwidth = None
    if dice.has("bandwidth"):
        bandwidth = round(10 ** dice.of("bandwidth").uniform(6, 10))
    delay_ns = 50 * NS_PER_US
    if dice.has("delay"):
        delay_ns = round(10 ** dice.of("delay").uniform(5, 8.87))
    jitter_ns = 0
    if dice.has("jitter"):
        jitter_ns = dice.of("jitter", direction).randint(0, 200) * NS_PER_MS
    reorder_delay_ns = round(10 ** dice.of("reordering", direction, "delay").uniform(4, 8))
    return Conditions(
        loss=chance("loss", 0.3),
        bursts=bursts,
        duplication=chance("duplication", 0.5),
        duplicate_delay_ns=dice.of("duplication", "delay").randint(0, 2_000) * NS_PER_MS,
        reordering=chance("reordering", 0.3),
        reorder_delay_ns=reorder_delay_ns,
        corruption=chance("corruption", 0.05),
        delay_ns=delay_ns,
        jitter_ns=jitter_ns,
        bandwidth=bandwidth,
        queue_limit=dice.of("bandwidth", "queue").randint(25, 10_000),
    )


def draw_first_frames(dice: Dice) -> tuple[tuple[FrameType, int], ...]:
    """Return which kinds of frame are lost the first few times, and how often."""
    if not dice.has("first_frames"):
        return ()
    random = dice.of("first_frames")
    return tuple(
        (kind, random.randint(1, 20))
        for kind in CONTROL_FRAMES
        if random.random() < 0.5  # noqa: PLR2004 - a coin
    )


def draw_stream(dice: Dice, index: int, host_count: int, duration_ns: int) -> Stream:
    """Return one publication."""
    random = dice.of("stream", index)
    term_length = random.choice(TERM_LENGTHS) if dice.has("several_terms") else 64 * 1024
    mtu_length = random.choice(MTU_LENGTHS) if dice.has("small_mtu") else 1408
    longest = max_message_length(term_length)
    if dice.has("large_messages"):
        lengths = [min(longest, round(2 ** random.uniform(0, 17))) for _ in range(200)]
    else:
        lengths = [random.choice((0, 1, 8, 31, 32, 33, 100, 1000, 1376)) for _ in range(200)]
    total, count = 0, 0
    while count < len(lengths) and total < BYTES_MAX:
        total += lengths[count] + 32
        count += 1
    parameters = [f"term-length={term_length}", f"mtu={mtu_length}"]
    if dice.has("end_of_positions"):
        parameters += start_near_the_end(random, term_length)
    elif dice.has("term_id_wrap"):
        parameters += start_at_a_wrap(random, term_length)
    return Stream(
        host=0 if host_count == 1 else random.randrange(1, host_count),
        endpoint_host=0,
        stream_id=random.choice((1, 2)),
        parameters="|".join(parameters),
        is_exclusive=dice.has("exclusive") or "init-term-id" in " ".join(parameters),
        has_claims=dice.has("claims"),
        lengths=tuple(lengths[:count]),
        gap_ns=max(1, duration_ns // max(1, count)),
        cancel_chance=0.2 if dice.has("cancellation") else 0.0,
    )


def share_parameters(streams: list[Stream]) -> tuple[Stream, ...]:
    """Let streams that share a publication agree about it."""
    first: dict[tuple[int, int], Stream] = {}
    shared = []
    for stream in streams:
        if not stream.is_exclusive:
            model = first.setdefault((stream.host, stream.stream_id), stream)
            stream = attrs.evolve(stream, parameters=model.parameters, lengths=model.lengths)  # noqa: PLW2901 - it is the same stream, agreeing
        shared.append(stream)
    return tuple(shared)


def start_near_the_end(random: Random, term_length: int) -> list[str]:
    """Return parameters that begin a stream two or so terms before its last position."""
    initial = random.choice(INITIAL_TERM_IDS)
    term_id = _wrap(initial + 2**31 - 1 - random.randint(1, 3))
    offset = random.randrange(0, term_length, 32)
    return [f"init-term-id={initial}", f"term-id={term_id}", f"term-offset={offset}"]


def start_at_a_wrap(random: Random, term_length: int) -> list[str]:
    """Return parameters that begin a stream where its term ids are about to wrap."""
    initial = random.choice(INITIAL_TERM_IDS)
    offset = random.randrange(0, term_length, 32)
    return [f"init-term-id={initial}", f"term-id={initial}", f"term-offset={offset}"]


def draw_readers(
    dice: Dice, stream_id: int, streams: tuple[Stream, ...], duration_ns: int
) -> list[Reader]:
    """Return the subscriptions of one stream."""
    del streams
    random = dice.of("readers", stream_id)
    count = random.choice((1, 1, 1, 2, 3))
    unreliable = dice.has("unreliable")
    readers = []
    for number in range(count):
        own = dice.of("reader", stream_id, number)
        stalls: tuple[tuple[int, int], ...] = ()
        if dice.has("slow_reader"):
            stalls = tuple(
                (own.randint(0, duration_ns), round(10 ** own.uniform(6, 10.4)))
                for _ in range(own.randint(1, 3))
            )
        kind = own.choice(("poll", "batches")) if dice.has("polling") else "iterate"
        readers.append(
            Reader(
                host=0,
                stream_id=stream_id,
                parameters="reliable=false" if unreliable else "",
                kind=kind,
                starts_at_ns=own.randint(0, duration_ns) if dice.has("late_join") else 0,
                lives_ns=own.randint(100, 3_000) * NS_PER_MS if dice.has("churn") else 0,
                stalls=stalls,
                is_reliable=not unreliable,
            )
        )
    return readers


def draw_troubles(dice: Dice, host_count: int, duration_ns: int) -> tuple[Trouble, ...]:
    """Return what happens to the hosts, in order."""
    troubles: list[Trouble] = []

    def add(feature: str, kind: TroubleKind, longest_ns: int, *, most: int = 2) -> None:
        if not dice.has(feature):
            return
        random = dice.of(feature)
        for _ in range(random.randint(1, most)):
            longest = longest_ns
            if random.random() < 0.05:  # noqa: PLR2004 - one in twenty is long enough to end images
                longest *= 3
            amount = random.uniform(0, 1)
            troubles.append(
                Trouble(
                    kind=kind,
                    at_ns=random.randint(0, duration_ns),
                    duration_ns=random.randint(0, longest),
                    host=random.randrange(host_count),
                    amount=amount,
                )
            )

    add("partition", TroubleKind.PARTITION, 8 * NS_PER_SECOND)
    add("one_way", TroubleKind.ONE_WAY, 8 * NS_PER_SECOND)
    add("flapping", TroubleKind.FLAPPING, 10 * NS_PER_SECOND, most=1)
    add("pause", TroubleKind.PAUSE, 4 * NS_PER_SECOND, most=3)
    add("crash", TroubleKind.CRASH, 3 * NS_PER_SECOND)
    add("restart", TroubleKind.RESTART, NS_PER_SECOND)
    add("drift", TroubleKind.DRIFT, 5 * NS_PER_SECOND, most=1)
    add("jump", TroubleKind.JUMP, 1, most=2)
    add("send_errors", TroubleKind.SEND_ERRORS, 2 * NS_PER_SECOND)
    return tuple(sorted(troubles, key=lambda each: each.at_ns))


def _wrap(term_id: int) -> int:
    return (term_id + 2**31) % 2**32 - 2**31
