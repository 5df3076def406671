"""A program with a duty cycle of its own, which steps driver and clients."""

from __future__ import annotations

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

    def do_work(self) -> None:
        """Do what can be done without waiting."""
        self.subscription.poll(self.on_fragment)
        if self.sent == self.received:
            position = self.publication.try_offer(f"cycle {self.sent}".encode())
            self.sent += not isinstance(position, aa.OfferOutcome)


def main() -> None:
    """Step the driver as often as it takes, with other work between two steps."""
    with aa.MediaDriver.launch(invoker=True) as driver:
        aeron = driver.run(aa.Aeron.connect(driver))
        subscription = driver.run(aeron.add_subscription(CHANNEL, stream_id=1001))
        publication = driver.run(aeron.add_publication(CHANNEL, stream_id=1001))
        echo = Echo(publication, subscription)
        while echo.received < COUNT:
            # One duty cycle: the echo's work, the sockets, the agents that are due. It never waits.
            driver.do_work(echo.do_work)
        driver.run(aeron.aclose())


main()
