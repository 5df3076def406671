"""A server answers each client on a stream of its own: nobody else hears those answers."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

REQUESTS = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition("=")[2]
CONTROL = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122").rpartition("=")[2]


async def serve(aeron: aa.Aeron) -> None:
    """Answer in capitals, each client on a publication that only its requests can name."""
    answers: dict[aa.Image, aa.Publication] = {}

    def on_gone(image: aa.Image) -> None:
        if image in answers:
            answers.pop(image).close()

    requests = await aeron.add_subscription(
        aa.Channel.udp(REQUESTS), stream_id=1001, on_unavailable_image=on_gone
    )
    async for request in requests:
        image = request.image
        if image not in answers:
            channel = aa.Channel.response(CONTROL, correlation_id=image.correlation_id)
            answers[image] = await aeron.add_exclusive_publication(channel, stream_id=1002)
        await answers[image].offer(request.data.upper())


async def ask(aeron: aa.Aeron, name: str) -> list[str]:
    """Ask two things, and return all that was answered."""
    responses = aa.Channel.response(CONTROL, endpoint="127.0.0.1:0")
    async with await aeron.add_subscription(responses, stream_id=1002) as answers:
        channel = aa.Channel.udp(REQUESTS, response_correlation_id=answers.registration_id)
        async with await aeron.add_exclusive_publication(channel, stream_id=1001) as requests:
            for number in (1, 2):
                await requests.offer(f"{name} {number}".encode())
            return [(await anext(answers)).data.decode() for _ in range(2)]


async def main() -> None:
    """Let two clients ask at once."""
    async with aa.Aeron.connect() as aeron, aa.Aeron.connect() as server:
        serving = asyncio.create_task(serve(server))
        for answered in await asyncio.gather(ask(aeron, "bob"), ask(aeron, "carol")):
            print(*answered, sep=", ")
        await server.aclose()
        await serving


asyncio.run(main())
