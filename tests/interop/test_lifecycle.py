"""Streams that come and go: joining late, leaving early, ending and beginning again."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from aeron_async.client.image import ImageEventKind
from tests.interop.messages import NumberedMessages
from tests.interop.ours import our_client
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.official import OfficialDriver

STREAM_ID: Final = 1001
WELL_BEFORE_TIMEOUTS_S: Final = 3.0
"""Connections, lingering publications and receivers all time out after 5 seconds."""


async def test_a_subscriber_that_leaves_ends_our_linger_at_once(
    official: OfficialDriver, channel: str
) -> None:
    async with our_client() as aeron:
        publication = await aeron.add_publication(channel, STREAM_ID)
        async with official.run("basic_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber:
            await publication.offer(b"stay", timeout=20)
            await subscriber.wait_for("<<stay>>")
            assert await subscriber.interrupt() == 0
        await wait_until(
            lambda: not publication.is_connected, "gone", timeout=WELL_BEFORE_TIMEOUTS_S
        )
        begin = perf_counter()
    assert perf_counter() - begin < 1


async def test_an_official_subscriber_hears_that_our_publication_has_ended(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    async with official.run("basic_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber:
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer(b"the last word", timeout=20)
        session_id = publication.session_id
        await publication.aclose()
        line = await subscriber.wait_for("Unavailable image", timeout=WELL_BEFORE_TIMEOUTS_S)
        assert line.endswith(f"sessionId={session_id}")
        assert any("<<the last word>>" in printed for printed in subscriber.stdout.lines)


async def test_an_official_subscriber_that_comes_late_joins_where_our_stream_is(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID)
    for greeting in (b"to the first", b"to the second", b"to the third"):
        # Once it has been connected a publication sends a SETUP only to those who ask.
        async with official.run("basic_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber:
            await publication.offer(greeting, timeout=20)
            await subscriber.wait_for(f"<<{greeting.decode()}>>", timeout=5)
            assert await subscriber.interrupt() == 0
        assert sum("Message to stream" in line for line in subscriber.stdout.lines) == 1
        await wait_until(
            lambda: not publication.is_connected, "gone", timeout=WELL_BEFORE_TIMEOUTS_S
        )


async def test_an_official_publisher_hears_that_our_subscription_has_left(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    async with official.run("basic_publisher", "-c", channel, "-s", STREAM_ID) as publisher:
        await anext(subscription)
        assert not any("not connected" in line for line in publisher.stdout.lines[3:])
        await subscription.aclose()
        await publisher.wait_for("No active subscribers", timeout=WELL_BEFORE_TIMEOUTS_S)
        await publisher.interrupt()


async def test_our_subscription_that_comes_late_joins_where_an_official_stream_is(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    messages = NumberedMessages(8, 1_000)
    following = 0
    async with official.run(
        "checked_publisher", channel, STREAM_ID, 100_000, 8, 1_000
    ) as publisher:
        for turn in range(3):
            subscription = await aeron.add_subscription(channel, STREAM_ID)
            first = await anext(subscription)
            number = int.from_bytes(first.data[:4], "little")
            assert number >= following
            messages.check(number, first.data)
            assert (first.image.join_position > 0) is (turn > 0)
            for following in range(number + 1, number + 1_000):
                messages.check(following, (await anext(subscription)).data)
            await subscription.aclose()
        await publisher.interrupt()


async def test_an_official_publisher_that_comes_back_is_a_new_image(
    official: OfficialDriver, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    events = subscription.image_events()
    session_ids = set()
    for _ in range(2):
        async with official.run(
            "streaming_publisher", "-c", channel, "-s", STREAM_ID, "-L", 64, "-m", 500
        ) as publisher:
            kind, image = await anext(events)
            assert kind is ImageEventKind.AVAILABLE
            for number in range(500):
                message = await anext(subscription)
                assert message.image is image
                assert message.data == number.to_bytes(8, "little").ljust(64, b"\0")
            assert await publisher.wait(timeout=20) == 0
        # The next message is awaited, so that the last one counts as taken.
        assert subscription.poll(lambda *_: None) == 0
        kind, ended = await anext(events)
        assert kind is ImageEventKind.UNAVAILABLE
        assert ended is image
        assert image.is_end_of_stream
        session_ids.add(image.session_id)
    assert len(session_ids) == 2
    assert subscription.images == ()
