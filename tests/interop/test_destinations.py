"""Multi-destination-cast: receivers that come by themselves, and those that are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.exchange import FEW, STREAM_ID, exchange, receive_more
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from tests.interop.exchange import AnyPublication, AnySubscription
    from tests.interop.libaeron import OfficialClient

RECEIVERS_GONE_S: Final = 3.0
"""A receiver that says goodbye is gone at once; without, it takes 5 s."""


def sending(port: int, options: str = "") -> str:
    return f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic{options}"


def receiving(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:0|control=127.0.0.1:{port}|control-mode=dynamic"


def at(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


async def test_official_subscribers_come_to_our_publication_and_leave(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await aeron.add_publication(sending(unused_udp_port, "|fc=min,g:/2"), STREAM_ID)
    subscriptions: list[AnySubscription] = [
        await client.add_subscription(receiving(unused_udp_port), STREAM_ID) for _ in range(2)
    ]
    await check_that_they_leave(publication, subscriptions)


async def test_our_subscriptions_come_to_an_official_publication_and_leave(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await client.add_publication(sending(unused_udp_port, "|fc=min,g:/2"), STREAM_ID)
    subscriptions: list[AnySubscription] = [
        await aeron.add_subscription(receiving(unused_udp_port), STREAM_ID) for _ in range(2)
    ]
    await check_that_they_leave(publication, subscriptions)


async def test_ours_and_theirs_come_late_to_dynamic_publications_of_both(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    for sender in (client, aeron):
        port = unused_udp_port_factory()
        publication = await sender.add_publication(sending(port, "|fc=min"), STREAM_ID)
        early = await aeron.add_subscription(receiving(port), STREAM_ID)
        await exchange(publication, [early])
        position = publication.position
        late = await client.add_subscription(receiving(port), STREAM_ID)
        await late.wait_connected()
        latest = await aeron.add_subscription(receiving(port), STREAM_ID)
        await latest.wait_connected(timeout=10)
        assert late.images[0].join_position == latest.images[0].join_position == position
        await exchange(publication, [early, late, latest])


async def test_our_publication_sends_to_the_destinations_that_it_is_told(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    ports = [unused_udp_port_factory() for _ in range(2)]
    subscriptions: list[AnySubscription] = [
        await client.add_subscription(at(port), STREAM_ID) for port in ports
    ]
    publication = await aeron.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    await check_named_destinations(publication, subscriptions, [at(port) for port in ports])


async def test_an_official_publication_sends_to_us_as_long_as_it_is_told_to(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    ports = [unused_udp_port_factory() for _ in range(2)]
    subscriptions: list[AnySubscription] = [
        await aeron.add_subscription(at(port), STREAM_ID) for port in ports
    ]
    publication = await client.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    await check_named_destinations(publication, subscriptions, [at(port) for port in ports])


async def check_that_they_leave(
    publication: AnyPublication, subscriptions: list[AnySubscription]
) -> None:
    """Two are needed, keep pace and stop the stream as soon as one of them is gone."""
    await exchange(publication, subscriptions)
    subscriptions.pop().close()
    await wait_until(lambda: not publication.is_connected, "one left", timeout=RECEIVERS_GONE_S)
    assert subscriptions[0].is_connected


async def check_named_destinations(
    publication: AnyPublication, subscriptions: list[AnySubscription], channels: list[str]
) -> None:
    """What is sent after a destination was removed comes to the others alone."""
    assert not publication.is_connected
    for channel in channels:
        await publication.add_destination(channel)
    for subscription in subscriptions:
        await subscription.wait_connected(timeout=10)
    await exchange(publication, subscriptions, FEW)
    gone, left = subscriptions
    # That the last message has been taken shows when the next is asked for.
    assert receive_more(gone) == 0
    position = gone.images[0].position
    await publication.remove_destination(channels[0])
    await exchange(publication, [left])
    assert receive_more(gone) == 0
    assert gone.images[0].position == position
