"""A server of responses restarts: our client follows an official one, an official client none."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import aeron_async as aa
from tests.interop.exchange import offer_data, take_data
from tests.interop.official import TERM_LENGTH, official_driver
from tests.interop.ours import count_of, our_client
from tests.interop.programs import wait_until
from tests.interop.test_responses import (
    REQUEST_STREAM_ID,
    RESPONSE_STREAM_ID,
    answer,
    ask,
    request_channel,
    response_channel,
)

if TYPE_CHECKING:
    from tests.interop.libaeron import OfficialClient
    from tests.interop.official import OfficialDriver

__all__ = ["request_channel", "response_channel"]


async def test_our_client_follows_an_official_server_that_restarts(
    request_channel: str,
    response_channel: str,
) -> None:
    """With an official server, whose driver ends with it."""
    where = ("-c", request_channel, "-s", REQUEST_STREAM_ID)
    back = ("-d", response_channel, "-r", RESPONSE_STREAM_ID)
    async with our_client() as aeron:
        requests, responses = await ask(aeron, request_channel, response_channel)
        sessions = []
        for life in range(3):
            async with (
                official_driver() as driver,
                driver.run("response_server", *where, *back) as server,
            ):
                await server.wait_for("channel status")
                async with asyncio.timeout(5):
                    # The sample drops its answer when nobody is there yet to hear it.
                    while True:
                        await offer_data(requests, b"life %d" % life)
                        try:
                            async with asyncio.timeout(0.2):
                                heard = await take_data(responses)
                        except TimeoutError:
                            continue
                        assert heard == b"responding to message: life %d" % life
                        break
                sessions.append(responses.images[-1].session_id)
                await server.interrupt()
        assert len(set(sessions)) == 3


async def test_an_official_client_does_not_follow_our_server(
    official: OfficialDriver,
    client: OfficialClient,
    request_channel: str,
    response_channel: str,
) -> None:
    """Aeron-io/aeron#1686; where this fails, the page on compatibility is out of date."""
    del official
    asked, heard = await ask(client, request_channel, response_channel)
    for life in range(2):
        async with our_client() as aeron:
            requests = await aeron.add_subscription(request_channel, REQUEST_STREAM_ID)
            await requests.wait_connected(timeout=10)
            answering = await answer(aeron, response_channel, requests)
            if life:
                await offer_data(asked, b"again")
                assert await take_data(requests) == b"again"
                await asyncio.sleep(1)
                assert not answering.is_connected
            else:
                await offer_data(answering, b"once")
                assert await take_data(heard) == b"once"
        await wait_until(lambda: not asked.is_connected, "the end of our server")


async def test_an_official_publisher_takes_our_refusal_for_a_strangers(
    official: OfficialDriver, client: OfficialClient, channel: str
) -> None:
    """Its driver hears errors only of receivers that it knows."""
    context = aa.DriverContext(term_buffer_length=TERM_LENGTH, max_images_per_stream=1)
    async with AsyncExitStack() as stack:
        aeron = await stack.enter_async_context(aa.Aeron.connect(context=context))
        await aeron.add_subscription(channel, 1)
        first = await client.add_exclusive_publication(channel, 1)
        await first.wait_connected()
        second = await client.add_exclusive_publication(channel, 1)
        await wait_until(lambda: count_of(aeron, "Error Frames sent") > 0, "a refusal")
        heard = (await official.counters())["Error Frames received"]
        assert heard > 0
        assert first.is_connected
        assert not second.is_connected
        assert client.error_frames == []
