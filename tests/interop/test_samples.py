"""The official sample programs, whose messages a person can read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.official import OfficialDriver

STREAM_ID: Final = 1001
COUNT: Final = 100_000
MESSAGE_LINE: Final = re.compile(
    r"Message to stream (\d+) from session (-?\d+) \((\d+) bytes\) <<(.*)>>"
)


async def test_an_official_subscriber_prints_every_message_of_ours(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    short = [f"message {number}" for number in range(COUNT)]
    fragmented = [f"{number:06d}" * (number % 1365 + 1) for number in range(3_000)]
    async with official.run("basic_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber:
        await subscriber.wait_for("channel status")
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer_many((text.encode() for text in short + fragmented), timeout=20)
        session_id = publication.session_id
        await publication.aclose()
        await subscriber.wait_for("Unavailable image")
        assert await subscriber.interrupt() == 0
    printed = [
        match.groups() for line in subscriber.stdout.lines if (match := MESSAGE_LINE.match(line))
    ]
    assert len(printed) == len(short) + len(fragmented)
    assert printed == [
        (str(STREAM_ID), str(session_id), str(len(text)), text) for text in short + fragmented
    ]


@pytest.mark.parametrize(("count", "length"), [(COUNT, 100), (20_000, 4_000)])
async def test_we_get_everything_of_the_streaming_publisher(
    official: OfficialDriver, aeron: aa.Aeron, channel: str, count: int, length: int
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    async with official.run(
        "streaming_publisher", "-c", channel, "-s", STREAM_ID, "-L", length, "-m", count
    ) as publisher:
        number = 0
        async for message in subscription:
            assert message.data == number.to_bytes(8, "little").ljust(length, b"\0")
            number += 1
            if number == count:
                break
        await subscription.aclose()
        assert await publisher.interrupt() == 0


async def test_we_get_the_greetings_of_the_basic_publisher(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    async with official.run(
        "basic_publisher", "-c", channel, "-s", STREAM_ID, "-m", 4, "-l", "0s"
    ) as publisher:
        # What it offers before it is connected is gone: that is how the sample is.
        message = await anext(subscription)
        first = int(message.data.removeprefix(b"Hello World! "))
        for number in range(first + 1, 4):
            message = await anext(subscription)
            assert message.data == b"Hello World! %d" % number
        await publisher.wait_for("yay!")
        await publisher.wait(timeout=20)
