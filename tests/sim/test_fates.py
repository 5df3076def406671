"""Fates of datagrams: scripts, dice, and drivers that repair whatever they decide."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ConfigurationError
from aeron_async.testing.fates import Bursts, Conditions, Fate, ScriptedFates, SeededFates
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.testing.fates import Passage
    from aeron_async.testing.world import World

COUNT = 20_000
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
MESSAGES = [bytes([number]) * number for number in range(60)]


def decide(conditions: Conditions, *, seed: int = 1, count: int = COUNT) -> list[Sequence[Passage]]:
    fates = SeededFates(conditions, Random(seed))
    return [fates.decide(number.to_bytes(8, "little") * 4) for number in range(count)]


def test_a_script_is_followed_to_its_end_and_then_all_is_delivered() -> None:
    fates = ScriptedFates([Fate.DROP, Fate.DUPLICATE, Fate.DELAY, Fate.DELIVER], delay_ns=7)
    assert fates.decide(b"a") == ()
    assert fates.decide(b"b") == ((0, b"b"), (7, b"b"))
    assert fates.decide(b"c") == ((7, b"c"),)
    assert fates.decide(b"d") == ((0, b"d"),)
    assert fates.decide(b"e") == ((0, b"e"),)


@given(
    there=st.lists(st.sampled_from(Fate), max_size=200),
    back=st.lists(st.sampled_from(Fate), max_size=200),
)
def test_any_bounded_misfortune_is_repaired(there: list[Fate], back: list[Fate]) -> None:
    async def story(world: World) -> list[bytes]:
        alice, bob = world.host("alice"), world.host("bob")
        world.link(alice, bob).set_conditions(Conditions(), ScriptedFates(there))
        world.link(bob, alice).set_conditions(Conditions(), ScriptedFates(back))
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, 1)
            publication = await sending.add_publication(CHANNEL, 1)
            offering = asyncio.create_task(publication.offer_many(MESSAGES))
            received = [(await anext(subscription)).data for _ in MESSAGES]
            await offering
        return received

    assert simulate(story, limit_s=600) == MESSAGES


def test_good_conditions_throw_no_dice() -> None:
    class Untouched(Random):
        def random(self) -> float:
            raise AssertionError

    fates = SeededFates(Conditions(delay_ns=5, bandwidth=1), Untouched())
    assert fates.decide(b"a") == ((0, b"a"),)


def test_the_same_seed_throws_the_same() -> None:
    conditions = Conditions(loss=0.2, duplication=0.2, reordering=0.2, corruption=0.2)
    assert decide(conditions, seed=1) == decide(conditions, seed=1)
    assert decide(conditions, seed=1) != decide(conditions, seed=2)


def test_the_share_that_is_lost_is_the_chance() -> None:
    lost = sum(not passages for passages in decide(Conditions(loss=0.2)))
    assert lost / COUNT == pytest.approx(0.2, abs=0.01)


def test_bursts_are_as_long_as_they_should_be_on_average() -> None:
    passages = decide(Conditions(bursts=Bursts(start=0.05, end=0.25)))
    lost = [not each for each in passages]
    bursts = sum(now and not before for before, now in zip([False, *lost], lost, strict=False))
    assert sum(lost) / bursts == pytest.approx(4, abs=0.5)


def test_a_bad_link_may_let_something_through() -> None:
    passages = decide(Conditions(bursts=Bursts(start=1, end=0, loss=0.5)))
    assert sum(not each for each in passages) / COUNT == pytest.approx(0.5, abs=0.02)


def test_duplicates_come_up_to_their_delay_later() -> None:
    passages = decide(Conditions(duplication=0.5, duplicate_delay_ns=NS_PER_MS))
    twice = [each for each in passages if len(each) == 2]
    assert len(twice) / COUNT == pytest.approx(0.5, abs=0.02)
    assert all(first[1] == second[1] for first, second in twice)
    assert all(0 <= second[0] - first[0] <= NS_PER_MS for first, second in twice)


def test_the_overtaken_come_up_to_their_delay_later() -> None:
    passages = decide(Conditions(reordering=0.3, reorder_delay_ns=NS_PER_MS))
    delays = [each[0][0] for each in passages]
    assert sum(delay > 0 for delay in delays) / COUNT == pytest.approx(0.3, abs=0.02)
    assert max(delays) <= NS_PER_MS


def test_damage_flips_cuts_extends_and_splices() -> None:
    passages = decide(Conditions(corruption=1.0), count=2_000)
    originals = [number.to_bytes(8, "little") * 4 for number in range(2_000)]
    damaged = [each[0][1] for each in passages]
    assert any(len(each) < 32 for each in damaged)
    assert any(32 < len(each) <= 32 + 64 for each in damaged)
    assert any(
        len(each) == 32 and each != original
        for each, original in zip(damaged, originals, strict=True)
    )
    assert any(
        each.startswith(now[:8]) and each.endswith(before[16:]) and now != before
        for each, now, before in zip(damaged[1:], originals[1:], originals, strict=False)
    )


@pytest.mark.parametrize("name", ["loss", "duplication", "reordering", "corruption"])
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_chance_is_between_0_and_1(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}={value} must be a chance"):
        Conditions(**{name: value})  # type: ignore[arg-type]  # one of the chances


def test_chances_of_bursts_are_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"^end=2 must be a chance"):
        Bursts(start=0.5, end=2)


@pytest.mark.parametrize(
    ("name", "minimum"),
    [
        ("duplicate_delay_ns", 0),
        ("reorder_delay_ns", 0),
        ("delay_ns", 0),
        ("jitter_ns", 0),
        ("queue_limit", 1),
        ("mtu_length", 1),
        ("bandwidth", 1),
    ],
)
def test_times_rates_and_limits_have_minima(name: str, minimum: int) -> None:
    Conditions(**{name: minimum})  # type: ignore[arg-type]  # one of the numbers
    with pytest.raises(ConfigurationError, match=rf"^{name}={minimum - 1} must be {minimum} or"):
        Conditions(**{name: minimum - 1})  # type: ignore[arg-type]  # likewise
