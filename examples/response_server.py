"""A server that answers each client on a stream of its own, and that no client can stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import aeron_async as aa

REQUESTS = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition("=")[2]
CONTROL = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122").rpartition("=")[2]
CLIENT_LIMIT, PATIENCE_S = 20, 1.0


async def serve(aeron: aa.Aeron) -> None:
    """Answer in capitals, each client on a publication that only its requests can name."""
    # None for a client that nothing is answered to.
    answers: dict[aa.Image, aa.Publication | None] = {}

    def on_gone(image: aa.Image) -> None:
        if (publication := answers.pop(image, None)) is not None:
            publication.close()

    requests = await aeron.add_subscription(
        aa.Channel.udp(REQUESTS), stream_id=1001, on_unavailable_image=on_gone
    )
    async for request in requests:
        image, answer = request.image, request.data.upper()
        try:
            if image not in answers:
                if len(answers) >= CLIENT_LIMIT:
                    await image.reject(f"{CLIENT_LIMIT} clients are served already")
                    continue
                channel = aa.Channel.response(CONTROL, correlation_id=image.correlation_id)
                answers[image] = await aeron.add_exclusive_publication(channel, stream_id=1002)
            if (publication := answers[image]) is not None:
                await publication.offer(answer, timeout=PATIENCE_S)
        except aa.AeronError as error:
            # It wants no answers, does not take them, has gone, or asked for one that is too long.
            print(f"from here on nothing is answered to {image.source_identity}: {error}")
            on_gone(image)
            answers[image] = None
        if image.is_closed:  # It left while it was being answered.
            on_gone(image)


async def main() -> None:
    """Serve until Ctrl-C."""
    async with aa.Aeron.connect() as aeron:
        await serve(aeron)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
