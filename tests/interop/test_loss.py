"""What is lost on the way is asked for and sent again, whoever asks and whoever sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.messages import NumberedMessages, take_numbered
from tests.interop.official import official_driver
from tests.interop.ours import count_of, our_client
from tests.interop.relay import lossy_relay

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from tests.interop.official import OfficialDriver

STREAM_ID: Final = 1001
COUNT: Final = 20_000
LONGEST: Final = 2_000
LOSS_RATE: Final = 0.05
TERM_LENGTH: Final = 256 * 1024
"""A lost status message may cost a whole interval of 200 ms, so windows must not be too small."""
# Bits of the official loss generator's mask, by frame type.
PAD_AND_DATA: Final = 1 << 0 | 1 << 1
NAK_AND_SM: Final = 1 << 2 | 1 << 3


def losing(*, rate: float, mask: int) -> dict[str, str]:
    """Let an official driver lose what it receives."""
    return {
        "UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
        "UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": f"rate={rate}|seed=10|recv-msg-mask={mask:#x}",
    }


def at(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


def sending(channel: str) -> str:
    """The channel as its publication names it."""
    return f"{channel}|term-length={TERM_LENGTH}"


async def test_we_resend_what_an_official_receiver_has_lost(channel: str) -> None:
    messages = NumberedMessages(0, LONGEST)
    async with (
        official_driver(**losing(rate=LOSS_RATE, mask=PAD_AND_DATA)) as official,
        our_client() as aeron,
        official.run("checked_subscriber", channel, STREAM_ID, COUNT, 0, LONGEST) as subscriber,
    ):
        await subscriber.wait_for_error("SUBSCRIBED")
        publication = await aeron.add_publication(sending(channel), STREAM_ID)
        await publication.offer_many((messages[number] for number in range(COUNT)), timeout=20)
        assert await subscriber.wait(timeout=30) == 0
        assert subscriber.stdout.lines[-1].startswith(f"OK {COUNT} ")
        assert count_of(aeron, "NAKs received") > COUNT * LOSS_RATE / 2
        assert count_of(aeron, "Retransmits sent") > COUNT * LOSS_RATE / 2
        assert count_of(aeron, "Invalid packets") == 0


async def test_we_survive_an_official_sender_that_hears_a_tenth_less_of_us(channel: str) -> None:
    async with (
        official_driver(**losing(rate=0.1, mask=NAK_AND_SM)) as official,
        our_client() as aeron,
    ):
        await check_official_publisher(official, aeron, channel, channel)


async def test_an_official_sender_resends_what_we_have_lost(
    official: OfficialDriver, aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    port, endpoint_port = unused_udp_port_factory(), unused_udp_port_factory()
    async with lossy_relay(port, endpoint_port, rate=LOSS_RATE, seed=7) as (near, far):
        await check_official_publisher(official, aeron, at(port), at(endpoint_port))
    counters = await official.counters()
    assert counters["Retransmits sent"] > COUNT * LOSS_RATE / 2
    assert near.lost_count > COUNT * LOSS_RATE
    assert far.lost_count > 0
    assert count_of(aeron, "NAKs sent") > COUNT * LOSS_RATE / 2
    assert count_of(aeron, "Invalid packets") == 0


async def test_we_resend_what_the_wire_has_lost(
    official: OfficialDriver, unused_udp_port_factory: Callable[[], int]
) -> None:
    messages = NumberedMessages(0, LONGEST)
    port, endpoint_port = unused_udp_port_factory(), unused_udp_port_factory()
    async with (
        lossy_relay(port, endpoint_port, rate=LOSS_RATE, seed=8) as (near, far),
        our_client() as aeron,
        official.run(
            "checked_subscriber", at(endpoint_port), STREAM_ID, COUNT, 0, LONGEST
        ) as subscriber,
    ):
        await subscriber.wait_for_error("SUBSCRIBED")
        publication = await aeron.add_publication(sending(at(port)), STREAM_ID)
        await publication.offer_many((messages[number] for number in range(COUNT)), timeout=20)
        assert await subscriber.wait(timeout=30) == 0
        assert subscriber.stdout.lines[-1].startswith(f"OK {COUNT} ")
        assert near.lost_count > COUNT * LOSS_RATE
        assert far.lost_count > 0
        assert count_of(aeron, "Retransmits sent") > COUNT * LOSS_RATE / 2


async def check_official_publisher(
    official: OfficialDriver, aeron: aa.Aeron, channel: str, subscribed_channel: str
) -> None:
    """Take every message of a run, and see the publisher end well."""
    subscription = await aeron.add_subscription(subscribed_channel, STREAM_ID)
    async with official.run(
        "checked_publisher", sending(channel), STREAM_ID, COUNT, 0, LONGEST
    ) as publisher:
        await take_numbered(subscription, NumberedMessages(0, LONGEST), COUNT)
        await subscription.aclose()
        assert await publisher.wait(timeout=30) == 0
