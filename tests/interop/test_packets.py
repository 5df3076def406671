"""A second reader of what we send: Wireshark's dissector finds nothing wrong with any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.capture import capturing
from tests.interop.messages import NumberedMessages, take_numbered
from tests.interop.official import TERM_LENGTH, official_driver
from tests.interop.ours import our_client
from tests.interop.relay import lossy_relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.official import OfficialDriver

STREAM_ID: Final = 1001
COUNT: Final = 3_000
LONGEST: Final = 8_192
MAX_PAYLOAD: Final = 1408 - 32
LOSS_RATE: Final = 0.01


async def test_wireshark_reads_everything_our_publication_sends(
    tmp_path: Path, unused_udp_port: int
) -> None:
    messages = [NumberedMessages(0, LONGEST)[number] for number in range(COUNT)]
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    loss = {
        "UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
        "UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": f"rate={LOSS_RATE}|seed=3|recv-msg-mask=0x3",
    }
    async with (
        capturing(tmp_path / "publication.pcapng", unused_udp_port) as capture,
        official_driver(**loss) as official,
        our_client() as aeron,
        official.run("checked_subscriber", channel, STREAM_ID, COUNT, 0, LONGEST) as subscriber,
    ):
        await subscriber.wait_for_error("SUBSCRIBED")
        publication = await aeron.add_publication(channel, STREAM_ID)
        position = await publication.offer_many(messages, timeout=20)
        assert await subscriber.wait(timeout=30) == 0
    assert await capture.malformed() == []
    sent = await capture.count_frames(is_from_endpoint=False)
    heard = await capture.count_frames(is_from_endpoint=True)
    fragment_count = sum(max(1, -(-len(data) // MAX_PAYLOAD)) for data in messages)
    assert sent["setup"] >= 1
    assert fragment_count < sent["data"] < fragment_count * (1 + 20 * LOSS_RATE)
    assert sent["pad"] >= position // TERM_LENGTH // 2
    assert heard["sm"] > position // TERM_LENGTH
    assert heard["nak"] > fragment_count * LOSS_RATE / 2
    assert sent["sm"] == sent["nak"] == heard["data"] == heard["setup"] == 0


async def test_wireshark_reads_everything_our_subscription_sends(
    tmp_path: Path, official: OfficialDriver, unused_udp_port_factory: Callable[[], int]
) -> None:
    messages = NumberedMessages(0, LONGEST)
    port, endpoint_port = unused_udp_port_factory(), unused_udp_port_factory()
    async with (
        capturing(tmp_path / "subscription.pcapng", endpoint_port) as capture,
        lossy_relay(port, endpoint_port, rate=LOSS_RATE, seed=3) as (near, _),
        our_client() as aeron,
    ):
        channel = f"aeron:udp?endpoint=127.0.0.1:{endpoint_port}"
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
        async with official.run(
            "checked_publisher", channel, STREAM_ID, COUNT, 0, LONGEST
        ) as publisher:
            await take_numbered(subscription, messages, COUNT)
            position = subscription.images[0].position
            await subscription.aclose()
            assert await publisher.wait(timeout=30) == 0
    assert await capture.malformed() == []
    sent = await capture.count_frames(is_from_endpoint=True)
    assert sent["sm"] > position // TERM_LENGTH
    assert sent["nak"] > near.lost_count / 4
    assert sent.keys() == {"sm", "nak"}
