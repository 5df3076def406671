"""What one member of a group has lost is sent again to all, and all others ignore it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.libaeron import official_client
from tests.interop.official import official_driver
from tests.interop.ours import count_of, our_client
from tests.interop.test_loss import LOSS_RATE, PAD_AND_DATA, losing

if TYPE_CHECKING:
    from tests.interop.libaeron import OfficialClient


async def test_our_group_gets_what_an_official_member_has_lost(
    client: OfficialClient, unused_udp_port: int
) -> None:
    where = f"control=127.0.0.1:{unused_udp_port}|control-mode=dynamic"
    receiving = f"aeron:udp?endpoint=127.0.0.1:0|{where}"
    async with (
        official_driver(**losing(rate=LOSS_RATE, mask=PAD_AND_DATA)) as lossy,
        official_client(lossy) as unlucky_client,
        our_client() as aeron,
    ):
        unlucky = await unlucky_client.add_subscription(receiving, STREAM_ID)
        lucky = await client.add_subscription(receiving, STREAM_ID)
        ours = await aeron.add_subscription(receiving, STREAM_ID)
        sending = f"aeron:udp?{where}|fc=min,g:/3|term-length=256k"
        publication = await aeron.add_publication(sending, STREAM_ID)
        await exchange(publication, [unlucky, lucky, ours])
        assert count_of(aeron, "Retransmits sent") > 0
        assert count_of(aeron, "NAKs received") > 0
        assert count_of(aeron, "Invalid packets") == 0
        assert count_of(aeron, "NAKs sent") == 0


async def test_we_take_from_an_official_group_what_another_member_has_lost(
    client: OfficialClient, unused_udp_port: int
) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.45:{unused_udp_port}|interface=127.0.0.1"
    async with (
        official_driver(**losing(rate=LOSS_RATE, mask=PAD_AND_DATA)) as lossy,
        official_client(lossy) as unlucky_client,
        our_client() as aeron,
    ):
        unlucky = await unlucky_client.add_subscription(channel, STREAM_ID)
        ours = await aeron.add_subscription(channel, STREAM_ID)
        sending = f"{channel}|fc=min,g:/2|term-length=256k"
        publication = await client.add_publication(sending, STREAM_ID)
        await exchange(publication, [unlucky, ours])
        assert client.counters()["Retransmits sent"] > 0
        assert count_of(aeron, "Invalid packets") == 0
