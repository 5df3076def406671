"""Our server, then our client, in the place of the official ones on a pair of response channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.header import DataFlags
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.testing.world import simulate
from tests.sim import conversation as talk
from tests.sim.conversation import Conversation, Said

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.testing.world import World

NAME = "12-response-channel"
REQUESTS, RESPONSES = 10_000, 10_001
CLIENT_PORTS = {54448, 39268}
SERVER_PORTS = {24120, 24121}
TERMS = "term-length=64k|session-id={}|init-term-id={}|term-id={}|term-offset=0"


def terms(said: list[Said], stream_id: int) -> str:
    """The parameters that begin a stream as the captured one began."""
    setup = next(
        frame
        for each in said
        if isinstance(frame := next(frames(each.payload)), Setup) and frame.stream_id == stream_id
    )
    initial = setup.initial_term_id
    return TERMS.format(setup.session_id, initial, initial)


def ends_s(said: list[Said]) -> float:
    """When the captured publication was closed, as far as its heartbeats tell."""
    return min(
        each.at_s
        for each in said
        if isinstance(frame := next(frames(each.payload)), DataFrame)
        and frame.header.flags & DataFlags.END_OF_STREAM
    )


def by_port(said: list[Said]) -> list[Said]:
    """The same with the ports only the server has: those of the client are the system's choice."""
    return [
        each._replace(
            destination=(each.destination[0], each.destination[1])
            if each.destination[1] in SERVER_PORTS
            else ("client", 0)
        )
        for each in said
    ]


def check(ours: list[Said], official: list[Said]) -> None:
    assert talk.setups(by_port(ours)) == talk.setups(by_port(official))
    assert talk.data(by_port(ours)) == talk.data(by_port(official))
    assert talk.heartbeats(ours) <= talk.heartbeats(official)
    assert talk.resent(ours) == talk.resent(official) == set()
    assert talk.status_messages(ours) == talk.status_messages(official)
    assert talk.others(ours, ResponseSetup) == talk.others(official, ResponseSetup)
    announced, expected = talk.announcements(by_port(ours)), talk.announcements(by_port(official))
    assert abs(len(announced) - len(expected)) <= 1
    assert {each[1:] for each in announced} == {each[1:] for each in expected}


def test_our_server_answers_as_the_official_one_answered() -> None:
    async def story(world: World) -> None:
        capture = Conversation(world, NAME, lambda packet: packet.source[1] in CLIENT_PORTS)
        official = capture.expected
        await capture.open()
        host = capture.host
        async with host.aeron() as aeron:
            answering: list[aa.ExclusivePublication] = []

            async def answer(image: aa.Image) -> None:
                channel = (
                    "aeron:udp?control=127.0.0.1:24121|control-mode=response"
                    f"|response-correlation-id={image.correlation_id}|{terms(official, RESPONSES)}"
                )
                answering.append(await aeron.add_exclusive_publication(channel, RESPONSES))

            requests = await aeron.add_subscription(
                "aeron:udp?endpoint=127.0.0.1:24120",
                REQUESTS,
                on_available_image=lambda image: host.spawn(answer(image)),
            )
            host.spawn(serve(requests, answering))
            playing = host.spawn(capture.play())
            await capture.until(ends_s(official) - 0.05)
            await answering[0].aclose()
            await playing
            said = list(capture.said)
        check(said, official)
        # The client had left before the stream ended. The official conductor notices that within a
        # second, and until then its publication says that it has ended; ours is gone at once.
        (missing,) = talk.heartbeats(official) - talk.heartbeats(said)
        assert missing[0] & DataFlags.END_OF_STREAM

    simulate(story)


async def serve(requests: aa.Subscription, answering: list[aa.ExclusivePublication]) -> None:
    """Answer whatever comes once somebody hears the answers."""
    async for message in requests:
        if answering and answering[0].is_connected:
            await answering[0].offer(b"responding to message: " + bytes(message.data))


def test_our_client_asks_and_hears_as_the_official_one_did() -> None:
    async def story(world: World) -> None:
        capture = Conversation(world, NAME, lambda packet: packet.source[1] in SERVER_PORTS)
        official = capture.expected
        await capture.open()
        host = capture.host
        await capture.until(official[0].at_s - 0.001)
        async with host.aeron() as aeron:
            answers = await aeron.add_subscription(
                "aeron:udp?control=127.0.0.1:24121|control-mode=response", RESPONSES
            )
            asking = await aeron.add_exclusive_publication(
                "aeron:udp?endpoint=127.0.0.1:24120"
                f"|response-correlation-id={answers.registration_id}|{terms(official, REQUESTS)}",
                REQUESTS,
            )
            for captured, local in ((54448, asking.local_address), (39268, answers.local_address)):
                port = int(local.rpartition(":")[2])
                capture.moved["127.0.0.1", captured] = "127.0.0.1", port
            heard: list[bytes] = []
            host.spawn(hear(answers, heard))
            playing = host.spawn(capture.play())
            for each in official:
                frame = next(frames(each.payload))
                if isinstance(frame, DataFrame) and not frame.header.is_heartbeat:
                    await capture.until(each.at_s)
                    await asking.offer(bytes(frame.payload))
            await capture.until(ends_s(official) - 0.05)
            await asking.aclose()
            await playing
            said = list(capture.said)
        assert len(heard) == 3
        assert all(each.startswith(b"responding to message: ") for each in heard)
        check(said, official)
        assert talk.heartbeats(said) == talk.heartbeats(official)

    simulate(story)


async def hear(answers: aa.Subscription, heard: list[bytes]) -> None:
    heard.extend([bytes(message.data) async for message in answers])
