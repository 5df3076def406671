"""Hostile receivers: streams to many come through, whoever claims to be one of the many."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from aeron_async.testing.world import simulate
from tests.sim.hostile import DYNAMIC, MULTICAST, Figures, run_attacked
from tests.sim.wire import Peer
from tests.support import hostile, hostile_groups
from tests.support.hostile import ATTACKS, Attack, shots
from tests.support.hostile_groups import GROUP_ATTACKS
from tests.support.victim import Target, Victim

if TYPE_CHECKING:
    from aeron_async.testing.world import World

AMPLIFICATION_MAX: Final = 3
KINDS: Final = {"dynamic": DYNAMIC, "multicast": MULTICAST}
DESTINATIONS: Final = "Destinations refused"
MEMBERS: Final = "Flow control receivers refused"
RECEIVED: Final = "Status Messages received"
MOVES: Final = {
    "unknown_destinations": (DESTINATIONS, RECEIVED),
    "unknown_members": (DESTINATIONS, MEMBERS),
    "members_without_room": (DESTINATIONS, RECEIVED),
    "members_that_come_and_go": ("Error Frames received", "Error Frames received"),
    "response_setups_of_a_stranger": (None, None),
}
"""The counter that shows each attack, on a dynamic channel and in a group paced by `min`; who is
asked for no response has nothing to count."""
ASKING: Final = (
    hostile.nak_for_a_huge_range,
    hostile.nak_storm,
    hostile.sm_that_asks_for_setups,
    hostile.rttm_flood,
)
"""What brings answers, which many may get."""


@cache
def undisturbed(kind: str) -> Figures:
    return run_attacked(kind=KINDS[kind])


def check_amplification(kind: str, figures: Figures) -> None:
    """Check that little is sent for each byte shot, but for the copies that a limit allows."""
    usual = undisturbed(kind).sent_length
    copies = DYNAMIC.context.max_destinations - 1 if kind == "dynamic" else 0
    allowed = AMPLIFICATION_MAX * figures.shot_length * (1 + copies)
    assert figures.sent_length - usual <= copies * usual + allowed
    assert figures.reflected_length <= copies * usual + allowed


@pytest.mark.untraced
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", GROUP_ATTACKS, ids=lambda attack: attack.__name__)
def test_a_stream_to_many_comes_through_those_who_claim_to_be_one_of_them(
    kind: str, attack: Attack
) -> None:
    figures = run_attacked(attack, kind=KINDS[kind])
    check_amplification(kind, figures)
    label = MOVES[attack.__name__][kind == "multicast"]
    if label is not None:
        assert figures.count(label) >= undisturbed(kind).count(label) + 100


@pytest.mark.untraced
@pytest.mark.parametrize("kind", KINDS)
def test_what_one_asks_for_is_not_sent_to_many_without_a_bound(kind: str) -> None:
    figures = run_attacked(*ASKING, kind=KINDS[kind])
    check_amplification(kind, figures)
    resent = "Retransmitted bytes"
    budget = 2**21 + 180_000 * 2 + undisturbed(kind).sent_length // 2
    assert figures.count(resent) - undisturbed(kind).count(resent) <= budget


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_to_many_comes_through_all_attacks_at_once(kind: str) -> None:
    check_amplification(kind, run_attacked(*ATTACKS, *GROUP_ATTACKS, kind=KINDS[kind]))


def test_every_attack_on_groups_has_a_counter_and_every_function_is_an_attack() -> None:
    assert set(MOVES) == {attack.__name__ for attack in GROUP_ATTACKS}
    functions = {
        name
        for name, value in vars(hostile_groups).items()
        if getattr(value, "__module__", "") == hostile_groups.__name__ and not name.startswith("_")
    }
    assert functions == set(MOVES)


def test_a_seed_shoots_the_same_and_only_at_the_publication() -> None:
    each = Victim(
        session_id=-77,
        stream_id=1001,
        initial_term_id=2**31 - 2,
        term_length=2**16,
        mtu_length=1408,
        position=4_096,
    )
    drawn, again = (
        [shot for shot, _ in zip(shots(each, Random(5), GROUP_ATTACKS), range(500), strict=False)]
        for _ in range(2)
    )
    assert drawn == again
    assert {target for target, _ in drawn} == {Target.SENDER}
    assert max(len(datagram) for _, datagram in drawn) <= 64


@pytest.mark.untraced
def test_whoever_comes_while_strangers_only_announce_themselves_takes_a_place_and_keeps_it() -> (
    None
):
    async def story(world: World) -> None:
        alice, bob, mallory = (world.host(name) for name in ("alice", "bob", "mallory"))
        async with alice.aeron(DYNAMIC.context) as sending, bob.aeron() as receiving:
            publication = await sending.add_publication(DYNAMIC.publish, 7)
            peer = await Peer.open(mallory, 6_666)
            random = Random(1)
            victim = Victim(
                session_id=publication.session_id,
                stream_id=7,
                initial_term_id=publication.initial_term_id,
                term_length=publication.term_length,
                mtu_length=publication.mtu_length,
                position=0,
            )
            assert DYNAMIC.control is not None
            control = DYNAMIC.control

            def announce(count: int) -> None:
                for _ in range(count):
                    _, datagram = hostile_groups.unknown_destinations(victim, random)
                    peer.say(datagram, control)

            announce(1_000)
            await world.sleep(0.1)
            start_s = world.now_ns / 1e9
            subscription = await receiving.add_subscription(DYNAMIC.subscribe, 7)
            while not subscription.images:
                announce(5)
                await world.sleep(0.01)
                assert world.now_ns / 1e9 - start_s < 0.5
            for _ in range(100):
                announce(500)
                await world.sleep(0.1)
                await publication.offer(b"all the same")
                assert (await anext(subscription)).data == b"all the same"
            assert len(subscription.images) == 1

    simulate(story)
