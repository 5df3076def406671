"""A hundred thousand messages there and back: our echo to their ping, and theirs to ours."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.messages import NumberedMessages
from tests.interop.official import OfficialDriver, official_driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aeron_async as aa

PING_STREAM_ID: Final = 1002
PONG_STREAM_ID: Final = 1003
COUNT: Final = 100_000
IN_FLIGHT: Final = 16
TOTAL_COUNT: Final = re.compile(r"#\[Max\s+=.*Total count\s+=\s+(\d+)\]")


@pytest.fixture
async def official() -> AsyncIterator[OfficialDriver]:
    """A driver that sleeps but shortly: a hundred thousand sleeps add up."""
    async with official_driver(idle_sleep="20us") as driver:
        yield driver


@pytest.fixture
def channels(unused_udp_port_factory: Callable[[], int]) -> tuple[str, str]:
    ping, pong = (f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in range(2))
    return ping, pong


def where(channels: tuple[str, str]) -> tuple[object, ...]:
    """Both streams, as both sample programs want to be told."""
    ping_channel, pong_channel = channels
    return "-c", ping_channel, "-s", PING_STREAM_ID, "-C", pong_channel, "-S", PONG_STREAM_ID


@asynccontextmanager
async def echo(aeron: aa.Aeron, channels: tuple[str, str]) -> AsyncIterator[None]:
    """Send whatever comes on one stream back on the other."""
    ping_channel, pong_channel = channels
    pings = await aeron.add_subscription(ping_channel, PING_STREAM_ID)
    pongs = await aeron.add_exclusive_publication(pong_channel, PONG_STREAM_ID)

    async def run() -> None:
        async for message in pings:
            await pongs.offer(message.data)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("count", "length"), [(COUNT, 32), (COUNT, 2_000)])
async def test_an_official_ping_gets_every_pong_of_ours(
    official: OfficialDriver, aeron: aa.Aeron, channels: tuple[str, str], count: int, length: int
) -> None:
    arguments = ("-m", count, "-L", length, "-w", 100)
    async with (
        echo(aeron, channels),
        official.run("cping", *where(channels), *arguments) as ping,
    ):
        assert await ping.wait(timeout=180) == 0
    (total,) = (match[1] for line in ping.stdout.lines if (match := TOTAL_COUNT.match(line)))
    assert int(total) == count


async def test_we_get_every_official_pong_to_our_ping(
    official: OfficialDriver, aeron: aa.Aeron, channels: tuple[str, str]
) -> None:
    ping_channel, pong_channel = channels
    messages = NumberedMessages(8, 2_000)
    pongs = await aeron.add_subscription(pong_channel, PONG_STREAM_ID)
    pings = await aeron.add_exclusive_publication(ping_channel, PING_STREAM_ID)
    arguments = {"-c": ping_channel, "-s": PING_STREAM_ID, "-C": pong_channel, "-S": PONG_STREAM_ID}
    async with official.run(
        "cpong", *(each for pair in arguments.items() for each in pair)
    ) as pong:
        await pings.wait_connected(timeout=20)
        await pongs.wait_connected(timeout=20)
        for number in range(IN_FLIGHT):
            await pings.offer(messages[number])
        for number in range(COUNT):
            messages.check(number, (await anext(pongs)).data)
            if number + IN_FLIGHT < COUNT:
                await pings.offer(messages[number + IN_FLIGHT])
        assert await pong.interrupt() == 0
