"""`aeron-spy:`: subscriptions to what this driver itself sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.client.local import STREAM_ID, labels, publications, take, until
from tests.drivers import MEMORY, caught_up, contradiction, embedded_only, stream_counter_count

if TYPE_CHECKING:
    from collections.abc import Callable


def spied(channel: str) -> str:
    return f"aeron-spy:{channel}"


# What is spied upon.


@embedded_only(MEMORY)
async def test_a_spy_reads_what_is_sent_and_its_image_is_the_log_of_the_publication(
    aeron: aa.Aeron, channel: str
) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    receiver = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(b"to whom it may concern", timeout=5)
    assert await take(spy, 1) == await take(receiver, 1) == [b"to whom it may concern"]
    (image,) = spy.images
    (core,) = publications(aeron)
    assert image._log is core.log
    assert image.image_id == core.registration_id
    assert image.source_identity == "aeron:ipc"
    assert receiver.images[0].source_identity == publication.local_address.replace(
        "0.0.0.0", "127.0.0.1"
    )


async def test_a_spy_attaches_to_publications_that_are_there_and_to_later_ones(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_exclusive_publication(f"{channel}|session-id=1", STREAM_ID)
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    assert [image.session_id for image in spy.images] == [1]
    await aeron.add_exclusive_publication(f"{channel}|session-id=2", STREAM_ID)
    await aeron.add_exclusive_publication(f"{channel}|session-id=3", STREAM_ID + 1)
    await until(lambda: len(spy.images) == 2)
    assert [image.session_id for image in spy.images] == [1, 2]


async def test_a_spy_may_want_one_session(aeron: aa.Aeron, channel: str) -> None:
    await aeron.add_exclusive_publication(f"{channel}|session-id=1", STREAM_ID)
    await aeron.add_exclusive_publication(f"{channel}|session-id=2", STREAM_ID)
    spy = await aeron.add_subscription(f"{spied(channel)}|session-id=2", STREAM_ID)
    assert [image.session_id for image in spy.images] == [2]


async def test_a_spy_of_another_channel_sees_nothing(aeron: aa.Aeron, channel: str) -> None:
    await aeron.add_publication(channel, STREAM_ID)
    # A name is not the number it stands for: identities are compared as they are written.
    other = await aeron.add_subscription(
        spied(channel.replace("127.0.0.1", "localhost")), STREAM_ID
    )
    assert other.images == ()


async def test_a_channel_tag_is_enough_and_leaves_the_session_out_of_account(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(f"{channel}|tags=9|session-id=1", STREAM_ID)
    by_tag = await aeron.add_subscription("aeron-spy:aeron:udp?tags=9|session-id=4", STREAM_ID)
    assert [image.session_id for image in by_tag.images] == [1]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("control=127.0.0.1:{}|control-mode=dynamic", None),
        ("control=127.0.0.1:{}|control-mode=manual", None),
        ("control-mode=manual|tags=5", "tags=5"),
        ("endpoint=239.20.90.1:{}|interface=127.0.0.1", None),
        ("endpoint=127.0.0.1:{}|interface=127.0.0.1", None),
        ("endpoint=127.0.0.1:{0}|control=127.0.0.1:0|tags=6", "tags=6"),
    ],
)
async def test_a_channel_of_any_mode_may_be_spied_upon(
    aeron: aa.Aeron, unused_udp_port: int, written: str, read: str | None
) -> None:
    written = f"aeron:udp?{written.format(unused_udp_port)}"
    read = written if read is None else f"aeron:udp?{read}"
    publication = await aeron.add_publication(f"{written}|ssc=true", STREAM_ID)
    spy = await aeron.add_subscription(spied(read), STREAM_ID)
    await publication.offer(b"seen", timeout=5)
    assert await take(spy, 1) == [b"seen"]


async def test_a_publication_cannot_be_a_spy(aeron: aa.Aeron, channel: str) -> None:
    with pytest.raises(aa.ChannelUriError, match="for subscriptions"):
        await aeron.add_publication(spied(channel), STREAM_ID)
    with pytest.raises(aa.ChannelUriError, match="subscribe to aeron:ipc"):
        await aeron.add_subscription("aeron-spy:aeron:ipc", STREAM_ID)


async def test_a_spy_has_one_counter_and_no_socket(aeron: aa.Aeron, channel: str) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    assert labels(aeron, "rcv-channel", "sub-pos") == []
    publication = await aeron.add_publication(f"{channel}|ssc=true", STREAM_ID)
    (label,) = labels(aeron, "sub-pos")
    assert label.endswith(f"{publication.session_id} {STREAM_ID} {spied(channel)} @0")
    await spy.aclose()
    await caught_up(aeron)
    assert labels(aeron, "sub-pos") == []


# Who is connected.


async def test_spies_alone_connect_a_publication_only_if_its_channel_says_so(
    aeron: aa.Aeron, channel: str
) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    plain = await aeron.add_exclusive_publication(channel, STREAM_ID)
    simulating = await aeron.add_exclusive_publication(f"{channel}|ssc=true", STREAM_ID)
    await simulating.wait_connected(timeout=5)
    assert plain.try_offer(b"nobody") is aa.OfferOutcome.NOT_CONNECTED
    await simulating.offer(b"a spy", timeout=5)
    assert await take(spy, 1) == [b"a spy"]
    await spy.aclose()
    await until(lambda: not simulating.is_connected)
    assert simulating.try_offer(b"nobody") is aa.OfferOutcome.NOT_CONNECTED


async def test_the_driver_may_say_so_for_all_channels(channel: str) -> None:
    context = aa.DriverContext(term_buffer_length=64 * 1024, spies_simulate_connection=True)
    async with aa.Aeron.connect(context=context) as aeron:
        spy = await aeron.add_subscription(spied(channel), STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        messages = [bytes(1_000)] * 300
        offering = asyncio.create_task(publication.offer_many(messages))
        assert await take(spy, 300) == messages
        await offering
        await publication.drain(timeout=5)


async def test_shared_publications_agree_on_whether_spies_connect_them(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(f"{channel}|ssc=true", STREAM_ID)
    with pytest.raises(contradiction(aeron), match="ssc=False differs"):
        await aeron.add_publication(f"{channel}|ssc=false", STREAM_ID)


async def test_a_spy_holds_the_publisher_back_like_any_reader(
    aeron: aa.Aeron, channel: str
) -> None:
    receiver = await aeron.add_subscription(channel, STREAM_ID)
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    read_all = asyncio.create_task(discard(receiver))
    await publication.wait_connected(timeout=5)
    with pytest.raises(aa.OfferTimeoutError):
        await publication.offer_many((bytes(1_000) for _ in range(100)), timeout=0.05)
    held = publication.position
    assert held <= 32 * 1024 + 1_056
    count = held // 1_056
    waiting = asyncio.create_task(publication.offer(b"room", timeout=5))
    await take(spy, count // 2)
    assert await waiting > held
    read_all.cancel()


async def discard(subscription: aa.Subscription) -> None:
    async for _ in subscription:
        pass


# The end.


async def test_a_spy_reads_to_the_end_of_a_closed_publication_and_then_loses_it(
    aeron: aa.Aeron, channel: str
) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|ssc=true|linger=0", STREAM_ID)
    await publication.offer(b"last words", timeout=5)
    await publication.aclose()
    (image,) = spy.images
    assert await take(spy, 1) == [b"last words"]
    await until(lambda: not spy.images)
    assert image.is_end_of_stream
    await until(lambda: not publications(aeron))


async def test_a_revoked_publication_takes_its_spies_along(aeron: aa.Aeron, channel: str) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    publication = await aeron.add_exclusive_publication(f"{channel}|ssc=true", STREAM_ID)
    await publication.offer(b"never read", timeout=5)
    await publication.aclose(revoke=True)
    await caught_up(aeron)
    assert spy.images == ()
    assert labels(aeron, "sub-pos") == []


async def test_the_image_of_a_spy_cannot_be_rejected(aeron: aa.Aeron, channel: str) -> None:
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|ssc=true", STREAM_ID)
    await until(lambda: spy.images)
    with pytest.raises(aa.RegistrationError, match="a spy reads it"):
        await spy.images[0].reject("no reason")
    assert publication.is_connected


@pytest.mark.parametrize("order", ["spy first", "publication first", "driver first"])
async def test_spies_and_what_they_spy_upon_close_in_any_order(
    context: aa.DriverContext, channel: str, order: str
) -> None:
    driver = aa.MediaDriver.launch(context)
    await driver.start()
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    before = stream_counter_count(driver)
    spy = await aeron.add_subscription(spied(channel), STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|ssc=true|linger=0", STREAM_ID)
    await publication.offer(bytes(1_000), timeout=5)
    closers: dict[str, Callable[[], object]] = {
        "spy": spy.close,
        "publication": publication.close,
    }
    if order == "driver first":
        await driver.aclose()
    else:
        first = order.partition(" ")[0]
        closers.pop(first)()
        for closer in closers.values():
            closer()
        await until(lambda: not publications(aeron))
    await aeron.aclose()
    await driver.aclose()
    assert stream_counter_count(driver) == before
