"""A hundred thousand messages of every length that fits, checked byte by byte, each way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.messages import NumberedMessages, take_numbered

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.official import OfficialDriver

STREAM_ID: Final = 1001
COUNT: Final = 100_000
LONGEST: Final = 8192
"""An eighth of a term: six datagrams."""


async def test_an_official_subscriber_gets_every_byte_of_ours(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    messages = NumberedMessages(0, LONGEST)
    async with official.run(
        "checked_subscriber", channel, STREAM_ID, COUNT, 0, LONGEST, "--timeout", 60
    ) as subscriber:
        await subscriber.wait_for_error("SUBSCRIBED")
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer_many((messages[number] for number in range(COUNT)), timeout=20)
        assert await subscriber.wait(timeout=20) == 0
        assert subscriber.stdout.lines[-1].startswith(f"OK {COUNT} ")


async def test_we_get_every_byte_of_an_official_publisher(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    async with official.run(
        "checked_publisher", channel, STREAM_ID, COUNT, 0, LONGEST, "--timeout", 60
    ) as publisher:
        await take_numbered(subscription, NumberedMessages(0, LONGEST), COUNT)
        await subscription.aclose()
        assert await publisher.wait(timeout=20) == 0
