"""Many clients of one server, with the settings that the page about calls gives for them."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aeron_async import DriverContext, rpc
from aeron_async.testing import simulate
from tests.rpc.test_calls import SERVICE, UDP, make_server

if TYPE_CHECKING:
    from aeron_async.testing import World

CLIENTS = int(os.environ.get("AERON_ASYNC_RPC_CLIENTS", "30"))
CHANNEL = UDP + "|term-length=256k"
ROUNDS = 3


def test_each_of_many_clients_is_answered_and_the_one_too_many_is_told() -> None:
    async def story(world: World) -> None:
        bob, alice = world.host("bob"), world.host("alice")
        async with (
            bob.aeron(DriverContext(max_images_per_stream=CLIENTS + 64)) as served,
            alice.aeron() as aeron,
            make_server().serve(served, CHANNEL, clients_limit=CLIENTS) as serving,
            AsyncExitStack() as stack,
        ):
            clients = [
                await stack.enter_async_context(rpc.Client(aeron, CHANNEL, SERVICE, name=f"c{n}"))
                for n in range(CLIENTS)
            ]
            await asyncio.gather(*(each.wait_connected(60) for each in clients))
            for _ in range(ROUNDS):
                answers = await asyncio.gather(
                    *(each.call("echo", b"%d" % n) for n, each in enumerate(clients)),
                    *(each.call("later", b"%d" % n) for n, each in enumerate(clients)),
                )
                assert answers == 2 * [b"%d" % n for n in range(CLIENTS)]
            counts = serving.counts
            assert counts.clients == CLIENTS
            assert counts.answered == 2 * ROUNDS * CLIENTS
            assert (counts.under_way, counts.malformed, counts.refused_clients) == (0, 0, 0)
            assert {each.name for each in serving.callers} == {f"c{n}" for n in range(CLIENTS)}
            await stack.enter_async_context(rpc.Client(aeron, CHANNEL, SERVICE))
            await world.sleep(2)
            assert serving.counts.refused_clients >= 1
            assert serving.counts.clients == CLIENTS

    simulate(story, seed=1)
