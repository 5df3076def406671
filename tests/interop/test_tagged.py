"""Tagged flow control: a stream flows when as many as it needs are there, and carry the tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.exchange import AnyPublication
    from tests.interop.libaeron import OfficialClient

TAG: Final = 1001
LONG_ENOUGH_S: Final = 0.7
"""Several status messages of 200 ms."""
GONE_S: Final = 3.0


def sending(port: int) -> str:
    return f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|fc=tagged,g:{TAG}/2"


def receiving(port: int, tag: int | None = None) -> str:
    channel = f"aeron:udp?endpoint=127.0.0.1:0|control=127.0.0.1:{port}|control-mode=dynamic"
    return channel if tag is None else f"{channel}|gtag={tag}"


async def test_our_publication_flows_when_two_tagged_official_subscribers_are_there(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await aeron.add_publication(sending(unused_udp_port), STREAM_ID)
    await check_tags(publication, client, unused_udp_port)


async def test_an_official_publication_flows_when_two_of_our_subscriptions_are_tagged(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    publication = await client.add_publication(sending(unused_udp_port), STREAM_ID)
    await check_tags(publication, aeron, unused_udp_port)


async def check_tags(
    publication: AnyPublication, receiver: aa.Aeron | OfficialClient, port: int
) -> None:
    """Connected exactly while two with the tag are there, whoever else is."""
    untagged = await receiver.add_subscription(receiving(port), STREAM_ID)
    await untagged.wait_connected(timeout=10)
    tagged = await receiver.add_subscription(receiving(port, TAG), STREAM_ID)
    await tagged.wait_connected(timeout=10)
    other = await receiver.add_subscription(receiving(port, TAG + 1), STREAM_ID)
    await other.wait_connected(timeout=10)
    await stays_unconnected(publication)
    last = await receiver.add_subscription(receiving(port, TAG), STREAM_ID)
    await publication.wait_connected(timeout=10)
    await exchange(publication, [tagged, last])
    last.close()
    await wait_until(lambda: not publication.is_connected, "one left", timeout=GONE_S)
    await stays_unconnected(publication)
    again = await receiver.add_subscription(receiving(port, TAG), STREAM_ID)
    await publication.wait_connected(timeout=10)
    # The subscription's own client may be the last to hear of it.
    await again.wait_connected(timeout=10)
    await exchange(publication, [tagged, again])


async def stays_unconnected(publication: AnyPublication) -> None:
    """For as long as status messages need to say otherwise."""
    try:
        await wait_until(lambda: publication.is_connected, "", timeout=LONG_ENOUGH_S)
    except AssertionError:
        return
    message = "the publication is connected without two tagged receivers"
    raise AssertionError(message)
