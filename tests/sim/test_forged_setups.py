"""A SETUP is forged before the stream is heard: its image ends loudly, and the true one follows."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.setup import Setup
from aeron_async.testing.trace import Verdict
from aeron_async.testing.world import simulate
from tests.support.victim import Victim

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import aeron_async as aa
    from aeron_async.testing.world import World

STREAM_ID: Final = 1
LENGTH: Final = 992
SECOND: Final = 1_000_000_000
FORGERIES: Final[dict[str, Callable[[Setup], Setup]]] = {
    "half a term": lambda true: attrs.evolve(true, term_length=true.term_length // 2),
    "double terms": lambda true: attrs.evolve(true, term_length=true.term_length * 2),
    "far ahead": lambda true: attrs.evolve(true, active_term_id=true.active_term_id + 1_000),
    "other terms": lambda true: attrs.evolve(
        true,
        initial_term_id=true.initial_term_id + 1_000,
        active_term_id=true.active_term_id + 1_000,
    ),
}
CASES: Final = [
    pytest.param(
        forgery,
        term_length,
        window,
        frame,
        id=f"{forgery}, {term_length}{window}{frame}",
        # The others differ in numbers only.
        marks=() if forgery == "other terms" else pytest.mark.untraced,
    )
    for forgery, term_length, window, frame in (
        ("half a term", "128k", "", ""),
        ("half a term", "128k", "|rcv-wnd=4k", ""),
        ("half a term", "1m", "", ""),
        ("double terms", "128k", "", ""),
        ("double terms", "1m", "", ""),
        ("far ahead", "128k", "", ""),
        ("other terms", "128k", "", ""),
        ("other terms", "128k", "", " and a frame"),
    )
]


class Scene:
    """A publisher whose SETUPs are noted, and a subscriber that keeps what it reads by image."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.setups: list[tuple[Any, Any, Setup]] = []
        self.ends: list[tuple[int, aa.Image]] = []
        self.numbers: dict[aa.Image, list[int]] = {}
        world.network.trace.watch(self.note)

    def note(self, _: int, verdict: Verdict, source: Any, target: Any, datagram: bytes) -> None:
        if verdict is Verdict.SENT and frame_type(datagram) == FrameType.SETUP:
            self.setups.append((source, target, Setup.decode(datagram)))

    def on_end(self, image: aa.Image) -> None:
        self.ends.append((self.world.now_ns, image))

    async def read(self, subscription: aa.Subscription) -> None:
        async for message in subscription:
            if len(message.data) == LENGTH:
                number = int(bytes(message.data[:10]))
                self.numbers.setdefault(message.image, []).append(number)

    async def write(self, publication: aa.Publication) -> None:
        for number in count():
            await publication.offer(b"%010d" % number + bytes(LENGTH - 10), timeout=30)
            await self.world.sleep(0.002)


def first_frame(setup: Setup) -> bytes:
    victim = Victim(
        session_id=setup.session_id,
        stream_id=setup.stream_id,
        initial_term_id=setup.initial_term_id,
        term_length=setup.term_length,
        mtu_length=setup.mtu_length,
        position=0,
    )
    return bytes(victim.data(64, setup.initial_term_id, 0))


@pytest.mark.parametrize(("forgery", "term_length", "window", "frame"), CASES)
def test_the_stream_is_whole_up_to_a_loud_end_and_joined_again_within_six_seconds(
    forgery: str, term_length: str, window: str, frame: str
) -> None:
    """The publisher is connected by the image's status messages: no SETUP comes."""

    async def story(world: World) -> None:
        scene = Scene(world)
        publisher, subscriber = world.host("publisher"), world.host("subscriber")
        endpoint = f"aeron:udp?endpoint={subscriber.address}:21000"
        async with publisher.aeron() as near, subscriber.aeron() as far:
            publication = await near.add_publication(
                f"{endpoint}|term-length={term_length}", STREAM_ID
            )
            await world.sleep(0.56)
            began_ns = world.now_ns
            subscription = await far.add_subscription(
                endpoint + window, STREAM_ID, on_unavailable_image=scene.on_end
            )
            source, target, true = scene.setups[-1]
            forged = FORGERIES[forgery](true)
            subscriber.machine.arrive(None, source, target, forged.encode())
            if frame:
                subscriber.machine.arrive(None, source, target, first_frame(forged))
            tasks = [
                asyncio.create_task(scene.read(subscription)),
                asyncio.create_task(scene.write(publication)),
            ]
            await world.sleep(7)
            ((end_ns, ended),) = scene.ends
            assert end_ns - began_ns < 6 * SECOND
            *_, latest = scene.numbers
            assert latest is not ended
            assert len(scene.numbers[latest]) > 250
            for numbers in scene.numbers.values():
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    simulate(story)
