"""Subscribers that may be left behind, and streams that are not repaired."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.interop.exchange import COUNT, STREAM_ID, exchange, offer_data, receive_more, take_data
from tests.interop.messages import NumberedMessages
from tests.interop.ours import count_of
from tests.interop.programs import wait_until
from tests.interop.relay import lossy_relay

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from tests.interop.exchange import AnyPublication, AnySubscription
    from tests.interop.libaeron import OfficialClient

TIMEOUT_MS: Final = 1_200
"""Of every step on the way to being left behind; the C driver wants more than a second."""
ENOUGH: Final = range(100)
"""For several windows, and over before the one left behind is back."""
BACK_S: Final = 10.0
TIMEOUTS: Final = "".join(
    f"|untethered-{step}-timeout={TIMEOUT_MS}ms" for step in ("window-limit", "linger", "resting")
)
"""For every subscription: the oldest decides."""
SHORT: Final = NumberedMessages(8, 1_000)
LOSS_RATE: Final = 0.05


async def test_an_official_subscriber_that_is_not_tethered_is_left_behind_by_our_stream(
    client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    reading = await client.add_subscription(channel + TIMEOUTS, STREAM_ID)
    slow = await client.add_subscription(f"{channel}{TIMEOUTS}|tether=false", STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await exchange(publication, [reading, slow])
    await exchange(publication, [reading], ENOUGH)
    await wait_until(lambda: slow.unavailable != [], "left behind", timeout=BACK_S)
    await wait_until(lambda: len(slow.available) == 2, "back", timeout=BACK_S)
    assert slow.available[1].join_position == publication.position
    assert reading.unavailable == []
    await exchange(publication, [reading, slow])


async def test_we_are_left_behind_by_an_official_stream_when_we_are_not_tethered(
    client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    reading = await aeron.add_subscription(channel + TIMEOUTS, STREAM_ID)
    slow = await aeron.add_subscription(f"{channel}{TIMEOUTS}|tether=false", STREAM_ID)
    publication = await client.add_publication(channel, STREAM_ID)
    await exchange(publication, [reading, slow])
    (image,) = slow.images
    await exchange(publication, [reading], ENOUGH)
    # That the last message has been taken shows when the next is asked for.
    assert receive_more(reading) == 0
    await wait_until(lambda: image.is_closed, "left behind", timeout=BACK_S)
    await slow.wait_connected(timeout=BACK_S)
    assert slow.images[0].join_position == publication.position
    await exchange(publication, [reading, slow])
    assert len(reading.images) == 1


async def test_an_official_unreliable_subscriber_asks_us_for_nothing_that_is_lost(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    port, endpoint_port = unused_udp_port_factory(), unused_udp_port_factory()
    async with lossy_relay(port, endpoint_port, rate=LOSS_RATE, seed=9):
        subscription = await client.add_subscription(unreliable(endpoint_port), STREAM_ID)
        publication = await aeron.add_publication(sending(port), STREAM_ID)
        await check_that_some_are_missing(publication, subscription)
        assert count_of(aeron, "NAKs received") == 0
        assert client.counters()["Loss gap fills"] > 0
        await publication.aclose()


async def test_we_ask_an_official_publisher_for_nothing_when_we_are_unreliable(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    port, endpoint_port = unused_udp_port_factory(), unused_udp_port_factory()
    async with lossy_relay(port, endpoint_port, rate=LOSS_RATE, seed=9):
        subscription = await aeron.add_subscription(unreliable(endpoint_port), STREAM_ID)
        publication = await client.add_publication(sending(port), STREAM_ID)
        await check_that_some_are_missing(publication, subscription)
        assert client.counters()["NAKs received"] == 0
        assert count_of(aeron, "NAKs sent") == 0
        assert count_of(aeron, "Loss gap fills") > 0


def sending(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=256k|linger=200ms"


def unreliable(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}|reliable=false"


async def check_that_some_are_missing(
    publication: AnyPublication, subscription: AnySubscription
) -> None:
    """Messages come whole and in order, most of them, and without end."""
    taken: list[int] = []

    async def read() -> None:
        while not taken or taken[-1] < COUNT:
            data = await take_data(subscription)
            taken.append(int.from_bytes(data[:4], "little"))
            SHORT.check(taken[-1], data)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        number = 0
        while not reader.done():
            await offer_data(publication, SHORT[number])
            number += 1
    assert taken == sorted(set(taken))
    assert COUNT / 2 < len(taken) < COUNT
