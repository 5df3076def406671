"""Two cores back to back over a network that drops, doubles and shuffles: all is delivered."""

from __future__ import annotations

import os
import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.image_refusals import start_position
from tests.driver.fakes import MS, SECOND, SOURCE, US
from tests.driver.rigs import DispatcherRig, ImageRig, PublicationRig
from tests.logbuffer.logs import STREAM_ID

if TYPE_CHECKING:
    from aeron_async.driver.core.network_publication import NetworkPublication

GROUPS = 8
# `make long` takes more of them. Each group has one at least: none would pass.
SEEDS = max(GROUPS, int(os.environ.get("AERON_ASYNC_LINK_SEEDS", "64")))
LIMIT_NS = 120 * SECOND


class Link:
    """A publication and a receive endpoint, and what is under way between them.

    Time jumps to the next thing that happens, as an event loop's does: nobody is polled but for
    what arrives, what is offered or read, and the deadline that was asked for.
    """

    def __init__(self, seed: int, *, is_exclusive: bool = True, spec: dict[str, Any]) -> None:
        self.random = random.Random(seed)
        self.drop = self.random.choice([0.0, 0.05, 0.3])
        self.duplicate = self.random.choice([0.0, 0.1])
        self.jitter_ns = self.random.choice([0, 200 * US, 5 * MS])
        self.now_ns = 0
        self.events: list[tuple[int, int, bool, bytes]] = []
        self.sequence = 0
        self.sender = PublicationRig(is_exclusive=is_exclusive, spec=spec)
        self.spec = spec
        self.receiver = DispatcherRig()
        self.receiver.on_create_image = self.on_create_image  # type: ignore[method-assign]
        self.receiver.dispatcher.add_subscription(STREAM_ID, None)
        self.image: ImageRig | None = None
        self.control = ControlPacketDispatcher(
            self.sender.counts.system, self.on_sender_activity, lambda *_: None
        )
        self.control.add(self.sender.publication)
        self.received: list[bytes] = []
        self.sender_ns = self.receiver_ns = 0

    def on_create_image(self, setup: Any, source: Any, destination: Any) -> None:
        self.image = ImageRig(
            now_ns=self.now_ns,
            join_position=start_position(setup),
            spec=self.spec,
            outbox=destination,
        )
        self.receiver.dispatcher.add_image(self.image.image)

    def on_sender_activity(self, publication: NetworkPublication) -> None:
        self.sender_ns = self.now_ns

    def transmit(self, datagrams: list[bytes], *, is_data: bool) -> None:
        for datagram in datagrams:
            copies = 1 + (self.random.random() < self.duplicate)
            for _ in range(copies):
                if self.random.random() < self.drop:
                    continue
                delay_ns = 20 * US + self.random.randint(0, self.jitter_ns)
                self.sequence += 1
                heappush(self.events, (self.now_ns + delay_ns, self.sequence, is_data, datagram))

    def step(self) -> None:
        """Do whatever comes next."""
        arrival_ns = self.events[0][0] if self.events else 2**63
        self.now_ns = max(self.now_ns, min(arrival_ns, self.sender_ns, self.receiver_ns))
        while self.events and self.events[0][0] <= self.now_ns:
            _, _, is_data, datagram = heappop(self.events)
            if is_data:
                self.receiver.feed(datagram, self.now_ns)
                self.receiver_ns = self.now_ns
            else:
                self.control.on_datagram(memoryview(datagram), SOURCE, self.now_ns)
        if self.sender_ns <= self.now_ns:
            self.sender_ns = self.sender.publication.poll(self.now_ns)
        if self.receiver_ns <= self.now_ns:
            self.receiver_ns = 2**63 if self.image is None else self.receive(self.image)
        self.transmit(self.sender.outbox.take(), is_data=True)
        self.transmit(self.receiver.outbox.take(), is_data=False)

    def receive(self, image: ImageRig) -> int:
        deadline_ns = image.image.poll(self.now_ns)
        self.received += image.read(limit=self.random.randint(1, 64))
        assert image.image.rebuild_position <= image.image.hwm_position
        if image.readers[0][0].position < image.image.rebuild_position:
            return self.now_ns + 50 * US
        if image.readers[0][1].get() > image.image.consumption_trigger:
            return image.image.poll(self.now_ns)
        return deadline_ns

    def offer(self, message: bytes) -> bool:
        if self.sender.offer(message) < 0:
            return False
        self.sender_ns = self.now_ns
        return True

    def close(self) -> None:
        self.sender.publication.release(self.now_ns)
        self.sender_ns = self.now_ns


@pytest.mark.parametrize("group", range(GROUPS))
def test_everything_is_delivered_once_and_in_order_however_bad_the_network(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        spec = {"initial_term_id": 2**31 - 2} if seed % 3 == 0 else {}
        link = Link(seed, is_exclusive=seed % 2 == 0, spec=spec)
        lengths = link.random.choice([(0, 200), (0, 8_000), (1_300, 1_500)])
        messages = [
            link.random.randbytes(link.random.randint(*lengths))
            for _ in range(link.random.randint(50, 150))
        ]
        waiting = messages[::-1]
        while len(link.received) < len(messages):
            while waiting and link.offer(waiting[-1]):
                waiting.pop()
            link.step()
            assert link.now_ns < LIMIT_NS, f"seed {seed}: {len(link.received)} of {len(messages)}"
        assert link.received == messages, f"seed {seed}"
        publication = link.sender.publication
        assert link.image is not None
        assert publication.sender_position == link.image.image.rebuild_position
        link.close()
        while publication.state is not PublicationState.DONE:
            link.step()
            assert link.now_ns < LIMIT_NS + 30 * SECOND, f"seed {seed}"
        assert link.image.image.state in {
            ImageState.ACTIVE,
            ImageState.DRAINING,
            ImageState.LINGER,
        }
        assert publication.is_end_of_stream
        for counts in (link.sender.counts, link.receiver.counts, link.image.counts):
            assert counts[SystemCounterId.INVALID_PACKETS] == 0


def test_on_a_perfect_network_nothing_is_asked_for_twice() -> None:
    link = Link(0, spec={})
    link.drop = link.duplicate = 0.0
    link.jitter_ns = 0
    sent = 0
    while len(link.received) < 500:
        while sent < 500 and link.offer(bytes(992)):
            sent += 1
        link.step()
    assert link.image is not None
    assert link.image[SystemCounterId.NAK_MESSAGES_SENT] == 0
    assert link.sender.counts[SystemCounterId.RETRANSMITS_SENT] == 0
    assert link.image[SystemCounterId.FLOW_CONTROL_UNDER_RUNS] == 0
    # Half a megabyte through terms of 64 KiB, without ever waiting for a timer.
    assert link.now_ns < 90 * MS
