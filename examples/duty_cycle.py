"""A program with a duty cycle of its own, in which driver and clients do what is due."""

from __future__ import annotations

import asyncio

import aeron_async as aa

CHANNEL = "aeron:ipc?term-length=64k"
COUNT = 3


class Echo:
    """The work of the program: sends a message when the last one has come back."""

    def __init__(self, publication: aa.Publication, subscription: aa.Subscription) -> None:
        self.publication = publication
        self.subscription = subscription
        self.sent = self.received = 0

    def on_fragment(self, data: memoryview, header: aa.FragmentHeader) -> None:
        """Take what came back."""
        self.received += 1
        print(header.position, bytes(data).decode())

    async def do_work(self) -> None:
        """Do what can be done without waiting; the driver has its turn with it."""
        self.subscription.poll(self.on_fragment)
        if self.sent == self.received:
            position = self.publication.try_offer(f"cycle {self.sent}".encode())
            self.sent += not isinstance(position, aa.OfferOutcome)


async def start(aeron: aa.Aeron) -> Echo:
    """Start the client and its driver in the event loop that the program turns."""
    await aeron.start()
    subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
    return Echo(await aeron.add_publication(CHANNEL, stream_id=1001), subscription)


def main() -> None:
    """Turn the event loop as often as it takes, with other work between two turns."""
    aeron = aa.Aeron.connect()
    loop = asyncio.new_event_loop()
    echo = loop.run_until_complete(start(aeron))
    while echo.received < COUNT:
        # One duty cycle: it reads the sockets, runs the agents if they are due, and never sleeps.
        loop.run_until_complete(echo.do_work())
    loop.run_until_complete(aeron.aclose())
    loop.close()


main()
