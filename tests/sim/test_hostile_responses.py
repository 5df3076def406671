"""Responses go to who asked for them, whoever else asks, and whoever says where they come from."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from aeron_async.protocol.datagram import DataFrame
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.sim.wire import Peer, Wire, until

if TYPE_CHECKING:
    from aeron_async.testing.world import World

REQUESTS, RESPONSES = 10, 11
CONTROL = ("10.0.0.1", 20_122)
ANSWERS = "aeron:udp?endpoint=client:20123|control=server:20122|control-mode=response"


def test_a_stranger_that_asks_for_the_setup_of_responses_gets_none_of_them() -> None:
    async def story(world: World) -> None:
        server, client, mallory = (world.host(name) for name in ("server", "client", "mallory"))
        wire = Wire(world)
        async with server.aeron() as serving, client.aeron() as asking:
            requests = await serving.add_subscription("aeron:udp?endpoint=server:20121", REQUESTS)
            answers = await asking.add_subscription(ANSWERS, RESPONSES)
            request = await asking.add_publication(
                f"aeron:udp?endpoint=server:20121|response-correlation-id={answers.registration_id}",
                REQUESTS,
            )
            await request.offer(b"who?")
            image = (await anext(requests)).image
            response = await serving.add_exclusive_publication(
                "aeron:udp?control=server:20122|control-mode=response"
                f"|response-correlation-id={image.correlation_id}",
                RESPONSES,
            )
            await response.wait_connected(5)
            peer = await Peer.open(mallory, 6_666)
            greedy = StatusMessage(
                session_id=response.session_id,
                stream_id=RESPONSES,
                receiver_id=1,
                flags=StatusMessageFlags.SEND_SETUP,
            ).encode()
            for number in range(200):
                peer.say(greedy, CONTROL)
                await response.offer(f"you {number}".encode(), timeout=5)
                assert (await anext(answers)).data == f"you {number}".encode()
                await world.sleep(0.01)
            assert peer.heard == []
            heard_at = {
                each.destination
                for each in wire.of(DataFrame) + wire.of(Setup)
                if each.source == CONTROL
            }
            assert heard_at == {(client.address, 20_123)}

    simulate(story)


def test_a_stranger_that_knows_the_session_and_answers_first_keeps_no_responses() -> None:
    async def story(world: World) -> None:
        server, client, mallory = (world.host(name) for name in ("server", "client", "mallory"))
        async with server.aeron() as serving, client.aeron() as asking:
            requests = await serving.add_subscription("aeron:udp?endpoint=server:20121", REQUESTS)
            answers = await asking.add_subscription(ANSWERS, RESPONSES)
            request = await asking.add_publication(
                f"aeron:udp?endpoint=server:20121|response-correlation-id={answers.registration_id}",
                REQUESTS,
            )
            await request.offer(b"who?")
            image = (await anext(requests)).image
            peer = await Peer.open(mallory, 6_666)

            async def say_all() -> None:
                while True:
                    for flags in (StatusMessageFlags.SEND_SETUP, StatusMessageFlags(0)):
                        message = StatusMessage(
                            session_id=77,
                            stream_id=RESPONSES,
                            consumption_term_id=5,
                            receiver_window=16_384,
                            receiver_id=1,
                            flags=flags,
                        )
                        peer.say(message.encode(), CONTROL)
                    await world.sleep(0.001)

            saying = asyncio.ensure_future(say_all())
            # What the client hears of, and asks for, is late.
            world.set_conditions(Conditions(delay_ns=10_000_000), server, client)
            response = await serving.add_exclusive_publication(
                "aeron:udp?control=server:20122|control-mode=response|session-id=77"
                "|init-term-id=5|term-id=5|term-offset=0|term-length=64k"
                f"|response-correlation-id={image.correlation_id}",
                RESPONSES,
            )
            await response.wait_connected(0.005)
            assert not answers.is_connected, "the stranger is alone"
            await answers.wait_connected(1)
            await world.sleep(0.1)
            assert peer.heard, "it was sent what a client would be"
            peer.heard.clear()
            for number in range(100):
                await response.offer(f"you {number}".encode(), timeout=5)
                async with asyncio.timeout(1):
                    assert (await anext(answers)).data == f"you {number}".encode()
            assert peer.heard == []
            saying.cancel()

    simulate(story)


def test_session_ids_of_responses_do_not_follow_each_other() -> None:
    async def story(world: World) -> None:
        async with world.host("server").aeron() as serving:
            channel = "aeron:udp?control=server:20122|control-mode=response"
            ids = [
                (
                    await serving.add_exclusive_publication(
                        f"{channel}|response-correlation-id=prototype", RESPONSES
                    )
                ).session_id
                for _ in range(4)
            ]
            assert all(abs(one - other) > 1 for one, other in pairwise(ids))

    simulate(story)


def test_a_flood_of_response_setups_is_answered_ten_times_a_second_and_binds_twice_a_second() -> (
    None
):
    async def story(world: World) -> None:
        server, client = world.host("server"), world.host("client")
        wire = Wire(world)
        async with client.aeron() as asking:
            answers = await asking.add_subscription(ANSWERS, RESPONSES)
            request = await asking.add_publication(
                f"aeron:udp?endpoint=server:20121|response-correlation-id={answers.registration_id}",
                REQUESTS,
            )
            peer = await Peer.open(server, 20_121)
            await until(world, lambda: wire.of(Setup))
            publisher = wire.of(Setup)[0].source
            start_s = world.now_ns / 1e9
            for number in range(1_000):
                setup = ResponseSetup(
                    session_id=request.session_id,
                    stream_id=REQUESTS,
                    response_session_id=5_000 + number,
                )
                peer.say(setup.encode(), publisher)
                await world.sleep(0.001)
            asked = [each.frame for each in wire.of(StatusMessage) if each.frame.session_id]
            # One that has not come half a second later makes room for another.
            assert [each.session_id for each in asked[:5]] == [5_000] * 5
            assert {each.stream_id for each in asked} == {RESPONSES}
            assert len({each.session_id for each in asked}) <= 3
            took_s = wire.of(ResponseSetup)[-1].at_s - start_s
            assert 10 * took_s - 2 <= len(asked) <= 10 * took_s + 2
            suppressed = [
                each.value for each in asking.counters if each.label.startswith("Setups not el")
            ]
            assert suppressed == [1_000 - len(asked)]

    simulate(story)
