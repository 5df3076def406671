"""Whole drivers in a bottle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aeron_async.testing.fates import Conditions
from aeron_async.testing.virtual_clock import VirtualLoop, VirtualTime
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
MESSAGES = [bytes([number % 256]) * (number % 300) for number in range(2_000)]


class VirtualUvLoop(VirtualTime, uvloop.Loop):  # type: ignore[misc]  # the two loops differ in details
    """Virtual time over uvloop."""


async def exchange(world: World) -> tuple[list[bytes], str]:
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        subscription = await receiving.add_subscription(CHANNEL, 1)
        publication = await sending.add_publication(CHANNEL, 1)
        offering = asyncio.create_task(publication.offer_many(MESSAGES))
        received = [bytes((await anext(subscription)).data) for _ in MESSAGES]
        await offering
    return received, world.network.trace.digest()


@pytest.mark.parametrize("loop_factory", [VirtualLoop, VirtualUvLoop])
def test_a_bad_link_loses_no_message(loop_factory: Callable[[], Any]) -> None:
    conditions = Conditions(loss=0.2, duplication=0.1, reordering=0.1)
    received, _ = simulate(exchange, seed=1, conditions=conditions, loop_factory=loop_factory)
    assert received == MESSAGES


def test_a_seed_tells_the_same_story_on_either_loop() -> None:
    conditions = Conditions(loss=0.2)
    digests = {
        simulate(exchange, seed=2, conditions=conditions, loop_factory=factory)[1]
        for factory in (VirtualLoop, VirtualUvLoop, VirtualLoop)
    }
    assert len(digests) == 1
    assert simulate(exchange, seed=3, conditions=conditions)[1] not in digests
