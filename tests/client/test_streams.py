"""Publications and subscriptions as anyio streams, under plain asyncio and under `anyio.run`."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from anyio.abc import ObjectReceiveStream, ObjectSendStream, ObjectStream
from anyio.streams.stapled import StapledObjectStream

import aeron_async as aa
from aeron_async import codecs
from tests.drivers import both_drivers

pytestmark = both_drivers

STREAM_ID = 1001


async def test_they_are_streams(
    publication: aa.Publication, subscription: aa.Subscription, aeron: aa.Aeron, channel: str
) -> None:
    exclusive = await aeron.add_exclusive_publication(channel, STREAM_ID)
    assert isinstance(publication, ObjectSendStream)
    assert isinstance(exclusive, ObjectSendStream)
    assert isinstance(subscription, ObjectReceiveStream)


async def test_what_is_sent_is_received(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.send(b"whole")
    await publication.send([b"in ", b"parts"])
    assert [(await subscription.receive()).data for _ in range(2)] == [b"whole", b"in parts"]


async def test_a_subscription_is_iterated_as_ever(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.send(b"one")
    async for message in subscription:
        assert message.data == b"one"
        subscription.close()


async def test_it_knows_itself(publication: aa.Publication, subscription: aa.Subscription) -> None:
    assert publication.extra(aa.AeronAttribute.channel) == publication.channel
    assert publication.extra(aa.AeronAttribute.stream_id) == STREAM_ID
    assert publication.extra(aa.AeronAttribute.session_id) == publication.session_id
    assert publication.extra(aa.AeronAttribute.local_address) == publication.local_address
    assert subscription.extra(aa.AeronAttribute.channel) == subscription.channel
    assert subscription.extra(aa.AeronAttribute.stream_id) == STREAM_ID
    assert subscription.extra(aa.AeronAttribute.local_address) == subscription.local_address
    with pytest.raises(anyio.TypedAttributeLookupError):
        subscription.extra(aa.AeronAttribute.session_id)


async def test_what_this_side_closed_is_closed(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.aclose()
    with pytest.raises(anyio.ClosedResourceError, match="is closed") as caught:
        await publication.send(b"x")
    assert isinstance(caught.value.__cause__, aa.ClosedError)
    await subscription.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await subscription.receive()


async def test_who_waits_when_it_closes_is_told(aeron: aa.Aeron, channel: str) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID)
    sending = asyncio.create_task(publication.send(b"nobody there"))
    subscription = await aeron.add_subscription(channel + "|session-id=1", STREAM_ID)
    receiving = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    publication.close()
    subscription.close()
    with pytest.raises(anyio.ClosedResourceError):
        await sending
    with pytest.raises(anyio.ClosedResourceError, match="this program closed it"):
        await receiving


async def test_a_driver_that_failed_breaks_its_streams(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    failure = aa.DriverError("an agent failed")
    image = aa.ImageStream(await image_of(subscription))
    receiving = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    publication._on_driver_closed(failure)
    subscription._on_driver_closed(failure)
    for broken in (receiving, subscription.receive(), image.receive(), publication.send(b"x")):
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await broken
        assert isinstance(caught.value.__cause__, aa.ClosedError)
        assert caught.value.__cause__.__cause__ is failure


async def test_nobody_to_hear_breaks_a_stream_that_would_not_wait(
    aeron: aa.Aeron, channel: str
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID, on_disconnected="raise")
    with pytest.raises(anyio.BrokenResourceError, match="no subscriber"):
        await publication.send(b"x")


async def test_the_last_position_breaks_a_stream(aeron: aa.Aeron, channel: str) -> None:
    end = "|term-length=64k|init-term-id=0|term-id=2147483647|term-offset=65472"
    await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel + end, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await publication.send(b"x")
    with pytest.raises(anyio.BrokenResourceError, match="it ends at"):
        await publication.send(b"x")


async def test_what_is_wrong_with_an_item_is_said_as_ever(publication: aa.Publication) -> None:
    with pytest.raises(aa.MessageTooLongError):
        await publication.send(bytes(publication.max_message_length + 1))


async def test_a_second_receiver_is_told_that_the_stream_is_busy(
    subscription: aa.Subscription,
) -> None:
    receiving = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(anyio.BusyResourceError):
        await subscription.receive()
    subscription.close()
    with pytest.raises(anyio.ClosedResourceError):
        await receiving


QUOTE = codecs.codec(str.encode, bytes.decode)


async def image_of(subscription: aa.Subscription) -> aa.Image:
    await subscription.wait_connected(timeout=5)
    return subscription.images[0]


async def test_the_stream_of_an_image_ends_with_its_publication(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    image = await image_of(subscription)
    stream = aa.ImageStream(image)
    assert stream.extra(aa.AeronAttribute.session_id) == publication.session_id
    assert stream.extra(aa.AeronAttribute.stream_id) == STREAM_ID
    for word in (b"one", b"two"):
        await publication.send(word)
    await publication.aclose()
    assert [message.data async for message in stream] == [b"one", b"two"]
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    assert not subscription.is_closed
    await subscription.aclose()
    with pytest.raises(anyio.ClosedResourceError, match="this program closed it"):
        await stream.receive()


async def test_an_image_that_does_not_end_well_breaks_its_stream(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    image = await image_of(subscription)
    receiving = asyncio.create_task(aa.ImageStream(image).receive())
    await asyncio.sleep(0)
    publication.revoke()
    with pytest.raises(anyio.BrokenResourceError, match="REVOKED at position 0"):
        await receiving


async def test_closing_the_stream_of_an_image_ends_its_receiver_and_nothing_else(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    stream = aa.ImageStream(await image_of(subscription))
    receiving = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    with pytest.raises(anyio.BusyResourceError):
        await stream.receive()
    with pytest.raises(anyio.BusyResourceError):
        await subscription.receive()
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await receiving
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
    await publication.send(b"for the subscription")
    assert (await subscription.receive()).data == b"for the subscription"


@pytest.mark.parametrize("kind", ["subscription", "typed", "image"])
async def test_a_receive_that_is_cancelled_loses_nothing(
    kind: str, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    image = await image_of(subscription)
    streams: dict[str, ObjectReceiveStream[Any]] = {
        "subscription": subscription,
        "typed": subscription.typed(QUOTE),
        "image": aa.ImageStream(image),
    }
    stream, found, cancelled = streams[kind], [], 0
    for number in range(60):
        with anyio.CancelScope() as scope:
            # Sooner or later than the message.
            for _ in range(number % 7):
                await asyncio.sleep(0)
            publication.try_offer(b"%d" % number)
            asyncio.get_running_loop().call_soon(scope.cancel)
            found.append(await stream.receive())
        cancelled += scope.cancelled_caught
    assert cancelled
    with anyio.fail_after(5):
        while len(found) < 60:
            found.append(await stream.receive())
    texts = [each if isinstance(each, str) else each.data.decode() for each in found]
    assert texts == [str(number) for number in range(60)]


async def test_two_typed_streams_are_one_stream_of_anyio(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    both: StapledObjectStream[str] = StapledObjectStream(
        publication.typed(QUOTE), subscription.typed(QUOTE)
    )
    assert isinstance(both, ObjectStream)
    await both.send("ACME")
    assert await both.receive() == "ACME"
    assert both.extra(aa.AeronAttribute.session_id) == publication.session_id
    receiving = asyncio.create_task(both.receive())
    await asyncio.sleep(0)
    with pytest.raises(anyio.BusyResourceError):
        await both.receive()
    await both.send_eof()
    await both.send_eof()
    with pytest.raises(anyio.ClosedResourceError):
        await both.send("late")
    await both.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await receiving
    with pytest.raises(anyio.ClosedResourceError):
        await both.receive()


async def test_what_is_closed_by_force_is_closed(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.send(b"nobody reads this")
    for stream in (publication.typed(QUOTE), subscription.typed(QUOTE)):
        await anyio.aclose_forcefully(stream)
    assert publication.is_closed
    assert subscription.is_closed


def test_without_a_loop_of_asyncio_it_says_what_is_missing() -> None:
    """As under trio, which runs coroutines and has no loop of asyncio."""
    for opening in (aa.Aeron.connect(), aa.MediaDriver.launch()):
        with pytest.raises(aa.WrongLoopError, match="under trio it cannot run"):
            opening.__aenter__().send(None)


async def echo(channel: str, back: str) -> list[bytes]:
    """Send through two streams as one anyio stream, with a server in a task group."""
    async with aa.Aeron.connect() as aeron, anyio.create_task_group() as group:
        asked = await aeron.add_subscription(channel, STREAM_ID)
        answers = await aeron.add_publication(back, STREAM_ID)

        async def serve() -> None:
            async for message in asked:
                await answers.send(message.data.upper())

        group.start_soon(serve)
        heard = await aeron.add_subscription(back, STREAM_ID)
        stapled: StapledObjectStream[Any] = StapledObjectStream(
            await aeron.add_publication(channel, STREAM_ID), heard
        )
        found = []
        for word in (b"one", b"two"):
            await stapled.send(word)
            found.append((await stapled.receive()).data)
        with anyio.move_on_after(0.01) as scope:
            await stapled.receive()
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stapled.send(b"never sent")
        assert scope.cancelled_caught
        await stapled.aclose()
        asked.close()
    return found


@pytest.mark.parametrize("is_uvloop", [False, True])
def test_they_work_in_anyio_programs(unused_udp_port_factory: Any, *, is_uvloop: bool) -> None:
    channel, back = [f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in "ab"]
    found = anyio.run(
        echo, channel, back, backend="asyncio", backend_options={"use_uvloop": is_uvloop}
    )
    assert found == [b"ONE", b"TWO"]
