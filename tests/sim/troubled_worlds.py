"""Worlds with one trouble each, and what the statistics of the driver that knows it say of it.

Each story has a calm stream beside the troubled one, which no view may blame.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import OfferTimeoutError
from aeron_async.protocol.header import FrameType
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aeron_async as aa
    from aeron_async.stats import Stats
    from aeron_async.testing.world import World

__all__ = ["TROUBLES", "Trouble", "snapshots_of"]

STREAM_ID: Final = 1001
CALM_ID: Final = 7
CHANNEL: Final = "aeron:udp?endpoint=bob:20121|term-length=64k"
CALM: Final = "aeron:udp?endpoint=bob:20122|term-length=64k"
LONG: Final = "aeron:udp?endpoint=bob:20121|term-length=4m|rcv-wnd=32k"
MESSAGE: Final = bytes(100)


@attrs.frozen
class Trouble:
    """What a view of the driver that knows it must say.

    Attributes:
        story: Lives through it; returns the client of that driver.
        kind: The row of the live view: `pub`, `img`, `sub` or `drv`.
        word: Its cause.
        metric: What the line of a metric begins with.
        labels: Parts of its labels.
    """

    story: Callable[[World, Callable[[aa.Aeron], None]], Awaitable[None]]
    kind: str
    word: str
    metric: str
    labels: tuple[str, ...]


def snapshots_of(trouble: Trouble) -> list[Stats]:
    """Return snapshots of the driver that knows the trouble, a second or more apart."""
    taken: list[Stats] = []

    async def story(world: World) -> None:
        await trouble.story(world, lambda aeron: taken.append(aeron.stats()))

    simulate(story, seed=11)
    return taken


async def connected(
    sending: aa.Aeron, receiving: aa.Aeron, channel: str, stream_id: int
) -> tuple[aa.Publication, aa.Subscription]:
    subscription = await receiving.add_subscription(channel, stream_id)
    publication = await sending.add_publication(channel, stream_id)
    await publication.wait_connected(10)
    return publication, subscription


async def read(subscription: aa.Subscription) -> None:
    async for _ in subscription:
        pass


async def slow_reader(world: World, look: Callable[[aa.Aeron], None]) -> None:
    async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
        await connected(alice, bob, CALM, CALM_ID)
        publication, _ = await connected(alice, bob, CHANNEL, STREAM_ID)
        look(alice)
        with suppress(OfferTimeoutError):
            while True:
                await publication.offer(MESSAGE, timeout=1)
        waiting = asyncio.ensure_future(publication.offer(MESSAGE))
        await world.sleep(3)
        look(alice)
        waiting.cancel()


async def slow_reader_behind_a_long_term(world: World, look: Callable[[aa.Aeron], None]) -> None:
    """Publish 400 messages a second to a reader that takes 5 ms for each; no offer waits."""
    async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
        await connected(alice, bob, CALM, CALM_ID)
        publication, subscription = await connected(alice, bob, LONG, STREAM_ID)

        async def read_slowly() -> None:
            async for _ in subscription:
                await world.sleep(0.005)

        reading = asyncio.ensure_future(read_slowly())
        for second in range(6):
            for _ in range(100):
                for _ in range(4):
                    assert isinstance(publication.try_offer(MESSAGE), int)
                await world.sleep(0.01)
            if second > 2:
                look(alice)
        reading.cancel()


async def lossy_link(world: World, look: Callable[[aa.Aeron], None]) -> None:
    alice, bob, carol = (world.host(each) for each in ("alice", "bob", "carol"))
    async with alice.aeron() as sending, bob.aeron() as receiving, carol.aeron() as calm:
        calm_publication, calm_subscription = await connected(calm, receiving, CALM, CALM_ID)
        publication, subscription = await connected(sending, receiving, CHANNEL, STREAM_ID)
        look(receiving)
        world.set_conditions(Conditions(loss=0.02), alice, bob)

        async def publish() -> None:
            for _ in range(1_000):
                await calm_publication.offer(MESSAGE)
                await publication.offer(MESSAGE)
                await world.sleep(0.001)

        tasks = [asyncio.ensure_future(read(each)) for each in (subscription, calm_subscription)]
        await publish()
        await world.sleep(1)
        look(receiving)
        for task in tasks:
            task.cancel()


async def small_socket(world: World, look: Callable[[aa.Aeron], None]) -> None:
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        await connected(sending, receiving, CALM, CALM_ID)
        small = f"{CHANNEL}|so-rcvbuf=8k|rcv-wnd=8k"
        subscription = await receiving.add_subscription(small, STREAM_ID)
        publications = [
            await sending.add_exclusive_publication(CHANNEL, STREAM_ID) for _ in range(2)
        ]
        for publication in publications:
            await publication.wait_connected(10)
        look(receiving)
        bob.pause()
        for _ in range(45):
            for publication in publications:
                publication.try_offer(MESSAGE)
            await world.sleep(0.001)
        bob.resume()
        for publication in publications:
            await publication.offer(b"last")
        left = 2
        async for message in subscription:
            left -= message.data == b"last"
            if not left:
                break
        # Of a message that is still in hand nobody knows that it was consumed.
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await anext(subscription)
        look(receiving)


async def blocked_loop(world: World, look: Callable[[aa.Aeron], None]) -> None:
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        await connected(sending, receiving, CHANNEL, STREAM_ID)
        await world.sleep(1)
        look(receiving)
        await bob.pause_for(3)
        await world.sleep(1)
        look(receiving)


async def forger(world: World, look: Callable[[aa.Aeron], None]) -> None:
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        await connected(sending, receiving, CALM, CALM_ID)
        publication, subscription = await connected(sending, receiving, CHANNEL, STREAM_ID)
        await publication.offer(MESSAGE)
        reading = asyncio.ensure_future(read(subscription))
        await world.sleep(1)
        look(receiving)
        driver: Any = receiving.driver
        frame = bytearray(64)
        for offset, number, length in (
            (0, 64, 4),
            (5, 0xC0, 1),
            (6, int(FrameType.DATA), 2),
            (8, 160, 4),
            (12, publication.session_id, 4),
            (16, STREAM_ID, 4),
            (20, publication.initial_term_id, 4),
        ):
            frame[offset : offset + length] = (number % 2 ** (8 * length)).to_bytes(
                length, "little"
            )
        for endpoint in driver.conductor._subscriptions.endpoints:
            for _ in range(50):
                endpoint.sockets[0].datagram_received(bytes(frame), ("10.0.0.9", 999))
        await world.sleep(1)
        look(receiving)
        reading.cancel()


async def full_budget(world: World, look: Callable[[aa.Aeron], None]) -> None:
    alice, bob = world.host("alice"), world.host("bob")
    context = DriverContext(image_log_budget_length=4 * 65_536)
    async with alice.aeron() as sending, bob.aeron(context) as receiving:
        await connected(sending, receiving, CALM, CALM_ID)
        await world.sleep(1)
        look(receiving)
        await receiving.add_subscription(CHANNEL, STREAM_ID)
        await sending.add_publication(CHANNEL, STREAM_ID)
        await world.sleep(3)
        look(receiving)


STREAM: Final = f'stream="{STREAM_ID}"'
TROUBLES: Final = {
    "slow reader": Trouble(
        slow_reader,
        "pub",
        "sender_limit",
        "aeron_publication_blocked_seconds_total",
        (STREAM, 'by="sender_limit"'),
    ),
    "slow reader behind a long term": Trouble(
        slow_reader_behind_a_long_term,
        "pub",
        "backlog",
        "aeron_publication_backlog_bytes",
        (STREAM,),
    ),
    "2 % loss": Trouble(
        lossy_link, "img", "gap", "aeron_image_lost_bytes_total", (STREAM, 'cause="gap"')
    ),
    "small socket": Trouble(
        small_socket,
        "img",
        "socket_drop",
        "aeron_image_lost_bytes_total",
        (STREAM, 'cause="socket_drop"'),
    ),
    "blocked loop": Trouble(
        blocked_loop, "drv", "loop_lag", 'aeron_driver_loop_lag_seconds_bucket{le="+Inf"', ()
    ),
    "forger": Trouble(
        forger, "img", "forged", "aeron_image_loss_events_total", (STREAM, 'cause="forged"')
    ),
    "full budget": Trouble(
        full_budget,
        "sub",
        "limit",
        "aeron_driver_limit_reached_total",
        ('limit="images_refused"',),
    ),
}
