"""Scenarios drawn from seeds: what each seed stands for.

Invariant: each feature has dice of its own, so that leaving one out changes nothing about the
others. That is how a failing seed is made smaller.
"""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from aeron_async.logbuffer.position import max_message_length
from aeron_async.protocol.header import FrameType
from aeron_async.testing.fates import Bursts, Conditions
from aeron_async.testing.recorder import IDENTITY_LENGTH
from tests.support.scenario import FEATURES, Reader, Scenario, Stream, Trouble, TroubleKind

__all__ = ["Dice", "draw_scenario"]

TERM_LENGTHS: Final = (64 * 1024, 64 * 1024, 128 * 1024, 1024 * 1024)
MTU_LENGTHS: Final = (96, 128, 288, 1408, 4096, 8192)
CONTROL_FRAMES: Final = (FrameType.SETUP, FrameType.SM, FrameType.NAK, FrameType.DATA)
INITIAL_TERM_IDS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 2)
CONTESTED_SESSION_ID: Final = 77_777
RUNS_CHANCE: Final = 0.75
BYTES_MAX: Final = 400_000
"""Offered to one publication, at most: a run is to take a tenth of a second."""


def draw_scenario(
    seed: int, *, without: frozenset[str] = frozenset(), always: frozenset[str] = frozenset()
) -> Scenario:
    """Return what a seed stands for.

    Args:
        seed: Any integer.
        without: Features to leave out; nothing else changes.
        always: Features to have whatever the seed says; nothing else changes.
    """
    dice = Dice(seed, without, always)
    topology = dice.of("topology")
    host_count = topology.choice((2, 2, 3, 4))
    duration_ns = topology.randint(500, 4_000) * NS_PER_MS
    stream_count = topology.choice((1, 1, 2, 3, 4))
    streams = share_parameters(
        [draw_stream(dice, n, host_count, duration_ns) for n in range(stream_count)]
    )
    if dice.has("collision"):
        streams = collide(streams, host_count)
    troubles = draw_troubles(dice, host_count, duration_ns)
    end_ns = max([duration_ns, *(each.at_ns + each.duration_ns for each in troubles)])
    readers = tuple(
        reader
        for place in sorted({(each.endpoint_host, each.stream_id) for each in streams})
        for reader in draw_readers(dice, place, host_count, duration_ns)
    )
    streams = tuple(spread(each, readers) for each in streams)
    return Scenario(
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
        always: Features it is to have in any case.
    """

    def __init__(
        self, seed: int, without: frozenset[str], always: frozenset[str] = frozenset()
    ) -> None:
        self._seed = seed
        odds = self.of("features")
        density = odds.uniform(0.0, 0.4)
        drawn = {name for name in FEATURES if odds.random() < density} - {"runs"}
        # The rule, as it is outside; a world with few features is to have it as often as any.
        if self.of("runs").random() < RUNS_CHANCE:
            drawn.add("runs")
        self._features = (frozenset(drawn) | always) - without

    def has(self, feature: str) -> bool:
        """Return whether this run has a feature."""
        return feature in self._features

    def of(self, *names: object) -> Random:
        """Return dice for one purpose."""
        return Random("/".join(map(str, (self._seed, *names))))


def draw_conditions(dice: Dice, direction: str) -> Conditions:
    """Return how good the links in one direction are."""

    def chance(feature: str, most: float) -> float:
        return dice.of(feature, direction).uniform(0.0, most) if dice.has(feature) else 0.0

    bursts = None
    if dice.has("bursts"):
        # One run in twenty loses whole windows at a time.
        random = dice.of("bursts", direction)
        mean = random.uniform(20, 90) if random.random() < 0.05 else random.uniform(1, 3)
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
    return tuple((kind, random.randint(1, 20)) for kind in CONTROL_FRAMES if random.random() < 0.5)


def draw_stream(dice: Dice, index: int, host_count: int, duration_ns: int) -> Stream:
    """Return one publication."""
    random = dice.of("stream", index)
    lengths = [random.choice((0, 1, 8, 31, 32, 33, 100, 1000, 1376)) for _ in range(200)]
    # Mostly towards the first host, from another; but a host may receive, send, or both.
    endpoint_host = random.choice((0, 0, 0, 1)) if host_count > 2 else 0
    host = endpoint_host
    while host == endpoint_host and random.random() < 0.9:
        host = random.randrange(host_count)
    stream_id = random.choice((1, 2))
    term_length, mtu_length = 64 * 1024, 1408
    if dice.has("several_terms"):
        term_length = dice.of("several_terms", index).choice(TERM_LENGTHS)
    if dice.has("small_mtu"):
        mtu_length = dice.of("small_mtu", index).choice(MTU_LENGTHS)
    if dice.has("large_messages"):
        large, longest = dice.of("large_messages", index), max_message_length(term_length)
        lengths = [min(longest, round(2 ** large.uniform(0, 17))) for _ in range(200)]
    total, count = 0, 0
    while count < len(lengths) and total < BYTES_MAX:
        total += lengths[count] + 32
        count += 1
    parameters = draw_parameters(dice, index, term_length, mtu_length)
    return Stream(
        host=host,
        endpoint_host=endpoint_host,
        stream_id=stream_id,
        parameters="|".join(parameters),
        is_multicast=dice.has("multicast"),
        is_exclusive=dice.has("exclusive")
        or "init-term-id" in " ".join(parameters)
        or "control-mode=manual" in parameters,
        has_claims=dice.has("claims"),
        has_lists=dice.has("lists"),
        has_columns=dice.has("columns"),
        lengths=tuple(lengths[:count]),
        gap_ns=max(1, duration_ns // max(1, count)),
        cancel_chance=0.2 if dice.has("cancellation") else 0.0,
    )


def draw_parameters(dice: Dice, index: int, term_length: int, mtu_length: int) -> list[str]:
    """Return what the channel of a publication says besides its endpoint."""
    parameters = [f"term-length={term_length}", f"mtu={mtu_length}"]
    if dice.has("windows"):
        windows = dice.of("windows", index)
        parameters.append(f"pub-wnd={windows.randrange(8 * 1024, term_length // 2 + 1, 32)}")
    if dice.has("end_of_positions"):
        parameters += start_near_the_end(dice.of("end_of_positions", index), term_length)
    elif dice.has("term_id_wrap"):
        parameters += start_at_a_wrap(dice.of("term_id_wrap", index), term_length)
    if dice.has("multicast"):
        # All that share a publication must agree about it, so nothing here is drawn.
        parameters.append("fc=min" if dice.has("min_flow_control") else "fc=max")
    elif dice.has("destinations"):
        parameters += ["control-mode=manual", "fc=min"]
    return parameters


def share_parameters(streams: list[Stream]) -> tuple[Stream, ...]:
    """Let streams that share a publication agree about it."""
    first: dict[tuple[int, int, int], Stream] = {}
    shared = []
    for stream in streams:
        if not stream.is_exclusive:
            place = stream.host, stream.endpoint_host, stream.stream_id
            model = first.setdefault(place, stream)
            stream = attrs.evolve(stream, parameters=model.parameters, lengths=model.lengths)  # noqa: PLW2901 - it is the same stream, agreeing
        shared.append(stream)
    return tuple(shared)


def collide(streams: tuple[Stream, ...], host_count: int) -> tuple[Stream, ...]:
    """Let the first stream have a rival: another host that publishes under the same session."""
    first = streams[0]
    # Shorter messages would not tell whose they are.
    lengths = tuple(max(IDENTITY_LENGTH, length) for length in first.lengths)
    parameters = f"{first.parameters}|session-id={CONTESTED_SESSION_ID}"
    first = attrs.evolve(
        first, parameters=parameters, lengths=lengths, is_exclusive=True, is_contested=True
    )
    rival = attrs.evolve(first, host=(first.host + 1) % host_count)
    return first, *streams[1:], rival


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
    dice: Dice, place: tuple[int, int], host_count: int, duration_ns: int
) -> list[Reader]:
    """Return the subscriptions of one stream at one host, or of one group at several."""
    count = dice.of("readers", *place).choice((1, 1, 1, 2, 3, 4))
    readers = [draw_reader(dice, place, number, duration_ns) for number in range(count)]
    if dice.has("multicast"):
        random = dice.of("multicast", *place)
        readers = [
            attrs.evolve(each, host=random.randrange(host_count), is_multicast=True)
            for each in readers
        ]
    elif dice.has("destinations"):
        random = dice.of("destinations", *place)
        readers = [
            attrs.evolve(each, host=random.randrange(host_count), is_spread=True)
            for each in readers
        ]
    return readers


def spread(stream: Stream, readers: tuple[Reader, ...]) -> Stream:
    """Let a stream be sent to each host that has a reader of it, if they are at several."""
    place = stream.endpoint_host, stream.stream_id
    hosts = {
        each.host
        for each in readers
        if each.is_spread and (each.endpoint_host, each.stream_id) == place
    }
    return attrs.evolve(stream, destinations=tuple(sorted(hosts)))


def draw_reader(dice: Dice, place: tuple[int, int], number: int, duration_ns: int) -> Reader:
    """Return one subscription; those of one place agree about the window."""
    host, stream_id = place
    parameters = []
    stalls: tuple[tuple[int, int], ...] = ()
    kind, starts_at_ns, lives_ns = "iterate", 0, 0
    linger_ns, leave_chance = 0, 0.0
    if dice.has("slow_reader"):
        slow = dice.of("slow_reader", *place, number)
        stalls = tuple(
            (slow.randint(0, duration_ns), round(10 ** slow.uniform(6, 10.4)))
            for _ in range(slow.randint(1, 3))
        )
    if dice.has("polling"):
        kind = dice.of("polling", *place, number).choice(("poll", "batches"))
    if dice.has("handlers") and dice.of("handlers", *place, number).random() < 0.5:
        kind = "handler"
    if dice.has("turns"):
        turns = dice.of("turns", *place, number)
        kind, leave_chance = "batches", turns.uniform(0.0, 0.5)
        linger_ns = turns.choice((0, round(10 ** turns.uniform(5, 8))))
    if dice.has("late_join"):
        starts_at_ns = dice.of("late_join", *place, number).randint(0, duration_ns)
    if dice.has("churn"):
        lives_ns = dice.of("churn", *place, number).randint(100, 3_000) * NS_PER_MS
    if dice.has("windows"):
        parameters.append(f"rcv-wnd={dice.of('windows', *place).randrange(8192, 131_072, 1024)}")
    elif dice.has("window_auto"):
        parameters.append("rcv-wnd=auto")
    unreliable = dice.has("unreliable")
    if unreliable:
        parameters.append("reliable=false")
    return Reader(
        host=host,
        endpoint_host=host,
        stream_id=stream_id,
        parameters="|".join(parameters),
        kind=kind,
        starts_at_ns=starts_at_ns,
        lives_ns=lives_ns,
        stalls=stalls,
        is_reliable=not unreliable,
        linger_ns=linger_ns,
        leave_chance=leave_chance,
    )


def draw_troubles(dice: Dice, host_count: int, duration_ns: int) -> tuple[Trouble, ...]:
    """Return what happens to the hosts, in order."""
    troubles: list[Trouble] = []

    def add(feature: str, kind: TroubleKind, longest_ns: int, *, most: int = 2) -> None:
        if not dice.has(feature):
            return
        random = dice.of(feature)
        for _ in range(random.randint(1, most)):
            longest = longest_ns
            if random.random() < 0.05:
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
