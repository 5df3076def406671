"""Multi-destination subscriptions: one stream that comes by two ways, or two streams."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from tests.interop.exchange import COUNT, FEW, STREAM_ID, exchange
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from tests.interop.exchange import AnyPublication, AnySubscription
    from tests.interop.libaeron import OfficialClient
    from tests.interop.official import OfficialDriver

MANUAL: Final = "aeron:udp?control-mode=manual"
END_IS_HEARD_S: Final = 0.5
"""Some heartbeats of 100 ms."""
WELL_BEFORE_LIVENESS_S: Final = 5.0
ONE_STREAM: Final = "|session-id=4711|init-term-id=-3|term-id=-3|term-offset=0"


def at(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


async def test_an_official_subscription_merges_our_two_publications_of_one_session(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    channels = [at(unused_udp_port_factory()) for _ in range(2)]
    subscription = await client.add_subscription(MANUAL, STREAM_ID)
    for channel in channels:
        await subscription.add_destination(channel)
    publications: list[AnyPublication] = [
        await aeron.add_exclusive_publication(channel + ONE_STREAM, STREAM_ID)
        for channel in channels
    ]
    await check_merging(publications, subscription)
    publications[1].close()
    await wait_until(
        lambda: subscription.unavailable != [], "ended", timeout=WELL_BEFORE_LIVENESS_S
    )
    assert subscription.unavailable[0].is_end_of_stream


async def test_we_merge_two_official_publications_of_one_session(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    channels = [at(unused_udp_port_factory()) for _ in range(2)]
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    for channel in channels:
        await subscription.add_destination(channel)
    publications: list[AnyPublication] = [
        await client.add_exclusive_publication(channel + ONE_STREAM, STREAM_ID)
        for channel in channels
    ]
    await check_merging(publications, subscription)
    (image,) = subscription.images
    publications[1].close()
    async with asyncio.timeout(WELL_BEFORE_LIVENESS_S):
        assert await anext(image, None) is None
    assert image.is_end_of_stream


async def test_an_official_subscription_takes_our_streams_from_its_destinations(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    channels = [at(unused_udp_port_factory()) for _ in range(2)]
    subscription = await client.add_subscription(MANUAL, STREAM_ID)
    publications: list[AnyPublication] = [
        await aeron.add_exclusive_publication(channel, STREAM_ID) for channel in channels
    ]
    await check_two_streams(publications, subscription, channels)


async def test_we_take_official_streams_from_our_destinations(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    channels = [at(unused_udp_port_factory()) for _ in range(2)]
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    publications: list[AnyPublication] = [
        await client.add_exclusive_publication(channel, STREAM_ID) for channel in channels
    ]
    await check_two_streams(publications, subscription, channels)


async def test_the_official_sample_of_a_destination_prints_our_messages(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    async with official.run("basic_mds_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber:
        publication = await aeron.add_publication(channel, STREAM_ID)
        for number in range(COUNT):
            await publication.offer(b"message %d" % number, timeout=20)
        await subscriber.wait_for(f"<<message {COUNT - 1}>>")
        assert await subscriber.interrupt() == 0
    printed = re.findall(r"<<message (\d+)>>", "\n".join(subscriber.stdout.lines))
    assert printed == [str(number) for number in range(COUNT)]


async def check_merging(publications: list[AnyPublication], subscription: AnySubscription) -> None:
    """One image of both, which goes on when the first of them has ended."""
    first, second = publications
    await exchange(first, [subscription], also=second)
    (image,) = subscription.images
    assert image.session_id == 4711
    first.close()
    # An end that is heard only when the stream has gone on is not taken for one by Aeron either.
    await asyncio.sleep(END_IS_HEARD_S)
    await exchange(second, [subscription])
    assert [each.session_id for each in subscription.images] == [4711]


async def check_two_streams(
    publications: list[AnyPublication], subscription: AnySubscription, channels: list[str]
) -> None:
    """Each destination brings its stream, from when it was added until it is removed."""
    for publication, channel in zip(publications, channels, strict=True):
        assert not publication.is_connected
        await subscription.add_destination(channel)
        await exchange(publication, [subscription], range(COUNT // 4))
    assert {image.session_id for image in subscription.images} == {
        publication.session_id for publication in publications
    }
    first, second = publications
    await subscription.remove_destination(channels[0])
    await exchange(second, [subscription])
    await wait_until(lambda: not first.is_connected, "removed", timeout=10)
    await exchange(second, [subscription], FEW)


async def test_destinations_of_either_side_may_be_groups_and_dynamic_channels_of_the_other(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    for sender, receiver in ((aeron, client), (client, aeron)):
        subscription = await receiver.add_subscription(MANUAL, STREAM_ID)
        group = f"aeron:udp?endpoint=224.20.30.43:{unused_udp_port_factory()}|interface=127.0.0.1"
        dynamic = f"control=127.0.0.1:{unused_udp_port_factory()}|control-mode=dynamic"
        named = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}|{dynamic}"
        for sending, receiving in ((group, group), (f"aeron:udp?{dynamic}", named)):
            publication = await sender.add_exclusive_publication(sending, STREAM_ID)
            await subscription.add_destination(receiving)
            await exchange(publication, [subscription])
        assert len(subscription.images) == 2
