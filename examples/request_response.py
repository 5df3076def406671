"""Two clients ask one server, and each hears its own answers only."""

from __future__ import annotations

import asyncio

from response_server import CONTROL, REQUESTS, serve

import aeron_async as aa


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
    """Let one client tell something that wants no answer, and then two at once ask."""
    async with aa.Aeron.connect() as aeron, aa.Aeron.connect() as server:
        serving = asyncio.create_task(serve(server))
        async with await aeron.add_publication(aa.Channel.udp(REQUESTS), stream_id=1001) as plain:
            await plain.offer(b"no answer, please")
        for answered in await asyncio.gather(ask(aeron, "bob"), ask(aeron, "carol")):
            print(*answered, sep=", ")
        await server.aclose()
        await serving


asyncio.run(main())
