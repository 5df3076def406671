"""A stranger in the runs of the swarm: it learns of the streams, and shoots at them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from aeron_async.testing.trace import Verdict
from aeron_async.testing.world import simulate
from tests.support.draw import draw_scenario
from tests.support.hostile import ATTACKS, heartbeats_ahead
from tests.support.nemesis import ADDRESS, IMPERSONATIONS, Attacker
from tests.support.run import run_scenario

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"


@pytest.mark.parametrize("is_unreliable", [False, True])
def test_whoever_cannot_be_told_from_the_stream_itself_is_left_out(
    is_unreliable: bool,  # noqa: FBT001 - a table of cases
) -> None:
    async def story(world: World) -> None:
        attacker = Attacker(world, Random(1), is_unreliable=is_unreliable)
        left_out = IMPERSONATIONS | ({heartbeats_ahead} if is_unreliable else set())
        assert set(attacker._attacks) == set(ATTACKS) - left_out
        await attacker.shoot()

    simulate(story)


def test_an_attacker_learns_what_the_stream_is_and_how_far_it_has_come() -> None:
    async def story(world: World) -> None:
        attacker = Attacker(world, Random(1), is_unreliable=False)
        sources: set[SocketAddress] = set()

        def watch(
            now_ns: int,
            verdict: Verdict,
            source: SocketAddress,
            destination: SocketAddress,
            datagram: bytes,
        ) -> None:
            del now_ns, destination, datagram
            if verdict is Verdict.DELIVERED:
                sources.add(source)

        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, 1)
            publication = await sending.add_publication(CHANNEL, 1)
            for _ in range(20):
                await publication.offer(bytes(5_000))
                assert len((await anext(subscription)).data) == 5_000
            await world.sleep(1)
            ((_, receiver), session_id, stream_id), victim = next(iter(attacker._victims.items()))
            assert receiver == ("10.0.0.2", 20_121)
            assert (session_id, stream_id) == (publication.session_id, 1)
            assert victim.initial_term_id == publication.initial_term_id
            assert (victim.term_length, victim.mtu_length) == (65_536, 1_408)
            assert 0 < victim.position <= publication.position
            world.network.trace.watch(watch)
            await attacker.shoot()
            assert sources >= {ADDRESS, receiver}
            assert len(attacker._victims) == 1, "what it shot itself taught it nothing"
            await publication.offer(b"still here")
            assert (await anext(subscription)).data == b"still here"

    simulate(story)


def test_a_run_with_a_stranger_is_a_run_in_which_more_arrives() -> None:
    seed = next(each for each in range(1_500) if "hostile" in draw_scenario(each).features)
    with_stranger = run_scenario(draw_scenario(seed))
    without = run_scenario(draw_scenario(seed, without=frozenset({"hostile"})))
    assert with_stranger.failure == without.failure == ""
    assert with_stranger.datagram_count > without.datagram_count + 100
