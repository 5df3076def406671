"""The duty cycle of an Aeron client in Java or C, and the same without one."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
STREAM_ID = 1001
FRAGMENT_LIMIT = 10


def on_fragment(buffer: memoryview, header: aa.FragmentHeader) -> None:
    """Do what a FragmentHandler does; the view ends with the call."""
    print(f"position {header.position}: {bytes(buffer)!r}")


async def idle() -> None:
    """Do what an idle strategy does: the driver is in the same loop, and needs its turns."""
    await asyncio.sleep(0.001)


async def main() -> None:
    """Offer and poll, then await both."""
    # MediaDriver.launchEmbedded(), and Aeron.connect() with its directory.
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
        publication = await aeron.add_publication(CHANNEL, STREAM_ID)

        # while (publication.offer(buffer) < 0) idleStrategy.idle();
        # The outcome is NOT_CONNECTED or BACK_PRESSURED here; ADMIN_ACTION never comes out.
        while isinstance(publication.try_offer(b"by a cycle"), aa.OfferOutcome):
            await idle()
        while not subscription.poll(on_fragment, FRAGMENT_LIMIT):
            await idle()

        # Here the loop sleeps until there is room, or a message; fragments are assembled.
        position = await publication.offer(b"by waiting", timeout=10)
        message = await anext(subscription)
        print(f"position {message.position} of {position}: {message.data!r}")


asyncio.run(main())
