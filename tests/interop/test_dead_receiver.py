"""The slowest receiver of a group dies without a word: the stream goes on when its time is up."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from tests.drivers import embedded
from tests.interop.exchange import STREAM_ID, exchange, offer, take
from tests.interop.libaeron import official_client
from tests.interop.official import official_driver
from tests.interop.ours import our_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aeron_async as aa
    from tests.interop.exchange import AnyPublication, AnySubscription
    from tests.interop.libaeron import OfficialClient

TIMEOUT_S: Final = 2.0
SM_INTERVAL_S: Final = 0.2
LATE_S: Final = 1.5
"""The C driver looks when it is idle; a machine under load may be late."""
MORE_THAN_A_WINDOW: Final = range(100)


def sending(port: int) -> str:
    return f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|fc=min,t:{TIMEOUT_S:.0f}s,g:/1"


def receiving(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:0|control=127.0.0.1:{port}|control-mode=dynamic"


async def test_we_go_on_when_an_official_receiver_has_been_dead_for_its_timeout(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await aeron.add_publication(sending(unused_udp_port), STREAM_ID)
    left = await client.add_subscription(receiving(unused_udp_port), STREAM_ID)
    async with official_driver() as doomed, official_client(doomed) as its_client:
        dying = await its_client.add_subscription(receiving(unused_udp_port), STREAM_ID)

        async def kill() -> None:
            doomed.process.process.kill()
            await doomed.process.wait(timeout=5)

        await check_death(publication, left, dying, kill)


async def test_an_official_publication_goes_on_when_we_have_been_dead_for_its_timeout(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await client.add_publication(sending(unused_udp_port), STREAM_ID)
    left = await aeron.add_subscription(receiving(unused_udp_port), STREAM_ID)
    async with our_client() as doomed:
        dying = await doomed.add_subscription(receiving(unused_udp_port), STREAM_ID)
        await check_death(publication, left, dying, embedded(doomed).abort)


async def check_death(
    publication: AnyPublication,
    left: AnySubscription,
    dying: AnySubscription,
    kill: Callable[[], Awaitable[None]],
) -> None:
    """Time how long the stream stands still: from the last status message of the dead."""
    # One of the two is enough to connect the publication: the other would miss the beginning.
    for subscription in (left, dying):
        await subscription.wait_connected()
    await exchange(publication, [left, dying])
    await kill()
    killed = perf_counter()
    stood_still_until = 0.0
    async with asyncio.TaskGroup() as group:
        group.create_task(take(left, MORE_THAN_A_WINDOW))
        for number in MORE_THAN_A_WINDOW:
            begun = perf_counter()
            await offer(publication, number)
            if perf_counter() - begun > TIMEOUT_S / 2:
                stood_still_until = perf_counter() - killed
    assert TIMEOUT_S - SM_INTERVAL_S < stood_still_until < TIMEOUT_S + LATE_S
