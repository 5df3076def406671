"""Response channels: whoever asks is answered alone, ours by theirs and theirs by ours."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.exchange import exchange, offer_data, take_data

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from tests.interop.exchange import AnyPublication, AnySubscription
    from tests.interop.libaeron import OfficialClient
    from tests.interop.official import OfficialDriver

REQUEST_STREAM_ID: Final = 10_000
RESPONSE_STREAM_ID: Final = 10_001


@pytest.fixture
def request_channel(unused_udp_port_factory: Callable[[], int]) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"


@pytest.fixture
def response_channel(unused_udp_port_factory: Callable[[], int]) -> str:
    return f"aeron:udp?control=127.0.0.1:{unused_udp_port_factory()}"


async def test_the_official_response_server_answers_us(
    official: OfficialDriver, aeron: aa.Aeron, request_channel: str, response_channel: str
) -> None:
    where = ("-c", request_channel, "-s", REQUEST_STREAM_ID)
    back = ("-d", response_channel, "-r", RESPONSE_STREAM_ID)
    async with official.run("response_server", *where, *back) as server:
        await server.wait_for("channel status")
        asking = [await ask(aeron, request_channel, response_channel) for _ in range(2)]
        for _, responses in asking:
            # The sample drops its answer when nobody is there yet to hear it.
            await responses.wait_connected(timeout=10)
        for number in range(100):
            for asker, (requests, _) in enumerate(asking):
                await offer_data(requests, b"%d asks %d" % (asker, number))
            for asker, (_, responses) in enumerate(asking):
                heard = await take_data(responses)
                assert heard == b"responding to message: %d asks %d" % (asker, number)
        for requests, _ in asking:
            requests.close()
        assert await server.interrupt() == 0


async def test_we_answer_the_official_response_client(
    official: OfficialDriver, aeron: aa.Aeron, request_channel: str, response_channel: str
) -> None:
    requests = await aeron.add_subscription(request_channel, REQUEST_STREAM_ID)
    where = ("-c", request_channel, "-s", REQUEST_STREAM_ID)
    back = ("-d", response_channel, "-r", RESPONSE_STREAM_ID)
    async with official.run("response_client", *where, *back, "-m", 5) as client:
        await requests.wait_connected(timeout=10)
        responses = await answer(aeron, response_channel, requests)
        # It asks once a second, and prints the answer when it asks again.
        for _ in range(3):
            await offer_data(responses, b"answer to " + await take_data(requests))
        await client.wait(timeout=20)
    printed = re.findall(r"<<answer to Hello World! (\d+)>>", "\n".join(client.stdout.lines))
    assert [int(each) - int(printed[0]) for each in printed] == [0, 1, 2]


async def test_many_official_requests_are_answered_by_us_one_by_one(
    client: OfficialClient, aeron: aa.Aeron, request_channel: str, response_channel: str
) -> None:
    requests = await aeron.add_subscription(request_channel, REQUEST_STREAM_ID)
    asked, heard = await ask(client, request_channel, response_channel)
    await requests.wait_connected(timeout=10)
    answering = await answer(aeron, response_channel, requests)
    await check_conversation(asked, requests, answering, heard)


async def test_many_requests_of_ours_are_answered_by_an_official_server(
    client: OfficialClient, aeron: aa.Aeron, request_channel: str, response_channel: str
) -> None:
    requests = await client.add_subscription(request_channel, REQUEST_STREAM_ID)
    asked, heard = await ask(aeron, request_channel, response_channel)
    await requests.wait_connected(timeout=10)
    answering = await answer(client, response_channel, requests)
    await check_conversation(asked, requests, answering, heard)


async def check_conversation(
    asked: AnyPublication,
    requests: AnySubscription,
    answering: AnyPublication,
    heard: AnySubscription,
) -> None:
    """Both ways at once, every byte."""
    async with asyncio.TaskGroup() as group:
        group.create_task(exchange(asked, [requests]))
        group.create_task(exchange(answering, [heard]))
    assert heard.images[0].session_id == answering.session_id
    assert len(heard.images) == 1


async def ask(
    asker: aa.Aeron | OfficialClient, request_channel: str, response_channel: str
) -> tuple[AnyPublication, AnySubscription]:
    """Make what asks, and what hears the answers."""
    responses = await asker.add_subscription(
        f"{response_channel}|control-mode=response", RESPONSE_STREAM_ID
    )
    channel = f"{request_channel}|response-correlation-id={responses.registration_id}"
    return await asker.add_publication(channel, REQUEST_STREAM_ID), responses


async def answer(
    answerer: aa.Aeron | OfficialClient, response_channel: str, requests: AnySubscription
) -> AnyPublication:
    """Make what answers the one that asks."""
    (image,) = requests.images
    mode = f"control-mode=response|response-correlation-id={image.correlation_id}"
    return await answerer.add_publication(f"{response_channel}|{mode}", RESPONSE_STREAM_ID)
