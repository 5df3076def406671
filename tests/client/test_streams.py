"""Publications and subscriptions as anyio streams, under plain asyncio and under `anyio.run`."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.stapled import StapledObjectStream

import aeron_async as aa
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
    with pytest.raises(anyio.EndOfStream):
        await receiving


async def test_a_driver_that_failed_breaks_its_streams(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    failure = aa.DriverError("an agent failed")
    receiving = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    publication._on_driver_closed(failure)
    subscription._on_driver_closed(failure)
    for broken in (receiving, subscription.receive(), publication.send(b"x")):
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
    with pytest.raises(anyio.EndOfStream):
        await receiving


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
