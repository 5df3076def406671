"""Streams to a group: both drivers join, send and keep each other's pace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.exchange import COUNT, FEW, STREAM_ID, exchange

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.libaeron import OfficialClient

GROUP: Final = "224.20.30.39"
OTHER_GROUP: Final = "224.20.30.41"


def group(port: int, *, address: str = GROUP) -> str:
    return f"aeron:udp?endpoint={address}:{port}|interface=127.0.0.1"


async def test_an_official_subscriber_gets_every_byte_that_we_send_to_a_group(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    subscription = await client.add_subscription(group(unused_udp_port), STREAM_ID)
    publication = await aeron.add_publication(group(unused_udp_port), STREAM_ID)
    await exchange(publication, [subscription])
    assert subscription.images[0].session_id == publication.session_id


async def test_we_get_every_byte_that_an_official_publisher_sends_to_a_group(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    subscription = await aeron.add_subscription(group(unused_udp_port), STREAM_ID)
    publication = await client.add_publication(group(unused_udp_port), STREAM_ID)
    await exchange(publication, [subscription])


async def test_ours_and_theirs_in_one_group_keep_the_pace_of_the_slower(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    channel = group(unused_udp_port)
    theirs = await client.add_subscription(channel, STREAM_ID)
    ours = await aeron.add_subscription(channel, STREAM_ID)
    for publication in (
        await aeron.add_publication(f"{channel}|fc=min,g:/2", STREAM_ID),
        await client.add_publication(f"{channel}|fc=min,g:/2", STREAM_ID),
    ):
        await exchange(publication, [theirs, ours])


async def test_an_official_subscriber_that_comes_late_joins_our_group(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    channel = group(unused_udp_port)
    early = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|fc=min", STREAM_ID)
    await exchange(publication, [early])
    position = publication.position
    late = await client.add_subscription(channel, STREAM_ID)
    await late.wait_connected()
    assert late.images[0].join_position == position
    await exchange(publication, [early, late])


async def test_we_come_late_and_join_an_official_group(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    channel = group(unused_udp_port)
    early = await client.add_subscription(channel, STREAM_ID)
    publication = await client.add_publication(f"{channel}|fc=min", STREAM_ID)
    await exchange(publication, [early])
    position = publication.position
    late = await aeron.add_subscription(channel, STREAM_ID)
    await late.wait_connected(timeout=10)
    assert late.images[0].join_position == position
    await exchange(publication, [early, late])


async def test_groups_on_one_port_are_told_apart_by_both(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    channels = [group(unused_udp_port, address=address) for address in (GROUP, OTHER_GROUP)]
    theirs = [await client.add_subscription(channel, STREAM_ID) for channel in channels]
    ours = [await aeron.add_subscription(channel, STREAM_ID) for channel in channels]
    for client_or_aeron in (client, aeron):
        publications = [
            await client_or_aeron.add_exclusive_publication(f"{channel}|fc=min,g:/2", STREAM_ID)
            for channel in channels
        ]
        for numbers in (range(COUNT // 2), FEW):
            for publication, their, our in zip(publications, theirs, ours, strict=True):
                await exchange(publication, [their, our], numbers)
        session_ids = [publication.session_id for publication in publications]
        for session_id, their, our in zip(session_ids, theirs, ours, strict=True):
            assert their.images[-1].session_id == our.images[-1].session_id == session_id
