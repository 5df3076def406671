"""Streams of values: one by one, in batches and as columns; what cannot be decoded stops nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aeron_async as aa
from aeron_async.codecs import JsonCodec, StructCodec, codec, enveloped
from aeron_async.testing.world import simulate
from tests.client.local import IPC, STREAM_ID, until
from tests.drivers import both_drivers
from tests.logs import captured_logs

if TYPE_CHECKING:
    from aeron_async.testing.world import World

QUOTE = StructCodec("<number:q,symbol:4s")
BAD = b"bad"


def quote(number: int) -> Any:
    return QUOTE.type(number, "AERN")


async def stream(
    aeron: aa.Aeron, **options: Any
) -> tuple[aa.TypedPublication[Any], aa.TypedSubscription[Any]]:
    """Return both ends of a typed stream."""
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    return publication.typed(QUOTE), subscription.typed(QUOTE, **options)


async def offer_all(publication: aa.TypedPublication[Any], *numbers: int | None) -> None:
    """Offer values; None is a message that cannot be decoded."""
    for number in numbers:
        if number is None:
            await publication.publication.offer(BAD, timeout=5)
        else:
            await publication.offer(quote(number), reserved_value=number, timeout=5)


@both_drivers
async def test_values_arrive_by_every_way(aeron: aa.Aeron) -> None:
    publication, subscription = await stream(aeron)
    assert await publication.offer(quote(0), timeout=5) == 64
    assert publication.try_offer(quote(1), reserved_value=1) == 128
    assert await publication.offer_many(map(quote, range(2, 6)), timeout=5) == 64 * 6
    await publication.send(quote(6))
    assert await anext(subscription) == quote(0)
    assert await subscription.receive() == quote(1)
    async for value in subscription:
        assert value == quote(2)
        break
    async for message, value in subscription.with_messages():
        assert (message.position, value) == (256, quote(3))
        break
    async with subscription.batches(2) as batches:
        batch = await anext(batches)
        assert batch.values == [quote(4), quote(5)]
        assert batch.values is batch.values
        assert [(m.position, v) for m, v in batch.with_messages()] == [
            (320, quote(4)),
            (384, quote(5)),
        ]
        batches.take()
        with pytest.raises(aa.ClosedError):
            _ = batch.to_arrow()
    assert await anext(subscription) == quote(6)
    assert subscription.extra(aa.AeronAttribute.stream_id) == STREAM_ID
    assert publication.extra(aa.AeronAttribute.stream_id) == STREAM_ID


async def test_a_value_that_cannot_be_encoded_is_not_offered(aeron: aa.Aeron) -> None:
    publication, _ = await stream(aeron)
    value = quote(2**63)
    with pytest.raises(aa.EncodeError):
        await publication.offer(value)
    with pytest.raises(aa.EncodeError):
        publication.try_offer(value)
    with pytest.raises(aa.EncodeError):
        await publication.send(value)
    with pytest.raises(aa.EncodeError):
        await publication.offer_many([quote(1), value])
    assert publication.publication.position == 0


@pytest.mark.parametrize("way", ["anext", "receive", "with_messages", "batches", "to_arrow"])
async def test_what_cannot_be_decoded_is_counted_and_skipped(aeron: aa.Aeron, way: str) -> None:
    publication, subscription = await stream(aeron)
    await offer_all(publication, None, 1, None, None, 2, 3, None)
    found: list[int] = []
    if way in {"batches", "to_arrow"}:
        batch = await anext(subscription.batches())
        assert len(batch) == 7
        if way == "batches":
            found = [value.number for value in batch.values]
            assert [message.reserved_value for message, _ in batch.with_messages()] == found
        else:
            table = batch.to_arrow(positions=True)
            assert table.column("position").to_pylist() == [128, 320, 384]
            found = table.column("number").to_pylist()
            assert batch.to_arrow().column_names == ["number", "symbol"]
        assert [value.number for value in batch.values] == found
        assert subscription.undecodable_count == 4
    elif way == "with_messages":
        async for message, value in subscription.with_messages():
            assert message.reserved_value == value.number
            found.append(value.number)
            if len(found) == 3:
                break
    else:
        ask = subscription.receive if way == "receive" else subscription.__anext__
        found = [(await ask()).number for _ in range(3)]
    assert found == [1, 2, 3]
    assert subscription.undecodable_count in {3, 4}


@pytest.mark.parametrize("way", ["anext", "receive", "with_messages", "batches", "to_arrow"])
async def test_a_handler_gets_what_cannot_be_decoded_and_may_end(aeron: aa.Aeron, way: str) -> None:
    seen: list[tuple[int, bytes, str]] = []

    def refuse(message: aa.Message, error: Exception) -> None:
        seen.append((message.position, message.data, str(error)))
        if len(seen) == 2:
            raise LookupError

    publication, subscription = await stream(aeron, on_undecodable=refuse)
    await offer_all(publication, None, 1, None, 2)
    if way in {"batches", "to_arrow"}:
        batches = subscription.batches()
        batch = await anext(batches)
        with pytest.raises(LookupError):
            _ = batch.values if way == "batches" else batch.to_arrow()
        # The good ones are still there, and the bad ones are not passed on again.
        assert batch.values == [quote(1), quote(2)]
        assert batch.to_arrow().column("number").to_pylist() == [1, 2]
    elif way == "with_messages":
        pairs = subscription.with_messages()
        assert (await anext(pairs))[1] == quote(1)
        with pytest.raises(LookupError):
            await anext(pairs)
        assert await anext(subscription) == quote(2)
    else:
        ask = subscription.receive if way == "receive" else subscription.__anext__
        assert await ask() == quote(1)
        with pytest.raises(LookupError):
            await ask()
        assert await ask() == quote(2)
    error = "message of 3 bytes is shorter than its 12 bytes of fields"
    assert seen == [(64, BAD, error), (192, BAD, error)]
    assert subscription.undecodable_count == 2


def test_one_line_a_second_is_logged_without_the_payload() -> None:
    async def main(world: World) -> list[Any]:
        async with world.host("here").aeron() as aeron:
            publication, subscription = await stream(aeron)
            json = subscription.subscription.typed(JsonCodec(dict))
            with captured_logs() as lines:
                await offer_all(publication, *[None] * 5, 1)
                await anext(subscription)
                await asyncio.sleep(1.0)
                await offer_all(publication, None, None, 2)
                await anext(subscription)
                await publication.publication.offer(b'{"secret": tru', timeout=5)
                await publication.publication.offer(b"{}", timeout=5)
                assert await anext(json) == {}
            return [line for line in lines if line["event"] == "message_undecodable"]

    first, second, other = simulate(main)
    assert (first["count"], second["count"], other["count"]) == (1, 5, 1)
    assert (first["position"], first["length"]) == (64, 3)
    assert first["error"] == "message of 3 bytes is shorter than its 12 bytes of fields"
    assert other["error"] == "DecodeError"
    assert "secret" not in str([first, second, other])


@both_drivers
async def test_a_wait_that_is_cancelled_loses_nothing(aeron: aa.Aeron) -> None:
    publication, subscription = await stream(aeron)
    for ask in (subscription.__anext__, subscription.receive, subscription.batches().__anext__):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ask()
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await offer_all(publication, 1, 2)
    waiting.cancel()
    found: Any = await asyncio.gather(waiting, return_exceptions=True)
    rest = [(await anext(subscription)).number for _ in range(2 if found != [quote(1)] else 1)]
    assert rest == ([2] if found == [quote(1)] else [1, 2])


async def test_one_task_consumes_and_closing_ends_it(aeron: aa.Aeron) -> None:
    publication, subscription = await stream(aeron)
    waiting = asyncio.create_task(anext(subscription))
    await until(lambda: subscription.subscription._is_waiting)
    with pytest.raises(aa.BusyError):
        aiter(subscription)
    with pytest.raises(aa.BusyError):
        await anext(subscription.with_messages())
    with pytest.raises(anyio.BusyResourceError):
        await subscription.receive()
    await offer_all(publication, 1)
    assert await waiting == quote(1)
    await subscription.aclose()
    assert [value async for value in subscription] == []
    assert [pair async for pair in subscription.with_messages()] == []
    with pytest.raises(anyio.ClosedResourceError):
        await subscription.receive()
    publication.close()
    assert publication.publication.is_closed
    with pytest.raises(aa.ClosedError):
        await publication.offer(quote(1))
    subscription.close()
    await publication.aclose()
    assert "TypedPublication of" in repr(publication)
    assert "TypedSubscription of" in repr(subscription)


async def test_an_offer_times_out_as_the_untyped_one(aeron: aa.Aeron) -> None:
    publication = (await aeron.add_publication(IPC, STREAM_ID)).typed(QUOTE)
    with pytest.raises(aa.OfferTimeoutError):
        await publication.offer(quote(1), timeout=0)
    with pytest.raises(aa.OfferTimeoutError):
        await publication.offer_many([quote(1)], timeout=0)
    assert publication.try_offer(quote(1)) is aa.OfferOutcome.NOT_CONNECTED


async def test_a_batch_whose_body_fails_comes_again(aeron: aa.Aeron) -> None:
    publication, subscription = await stream(aeron)
    await offer_all(publication, 1, 2)
    async with subscription.batches() as batches:
        async for batch in batches:
            assert "TypedBatch of" in repr(batch)
            break
    assert await anext(subscription) == quote(1)


class Stopping:
    """A codec that raises what would end an iteration."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, payload: Any) -> bytes:
        if payload == b"stop":
            raise StopIteration
        if payload == b"halt":
            raise StopAsyncIteration
        return bytes(payload)


@pytest.mark.parametrize("is_batch", [True, False])
async def test_no_exception_of_a_codec_ends_a_stream(aeron: aa.Aeron, is_batch: bool) -> None:  # noqa: FBT001
    subscription = (await aeron.add_subscription(IPC, STREAM_ID)).typed(Stopping())
    publication = (await aeron.add_publication(IPC, STREAM_ID)).typed(Stopping())
    messages = [b"stop", b"a", b"stop", b"halt", b"b", b"stop"]
    await publication.offer_many(messages, timeout=5)
    if is_batch:
        assert (await anext(subscription.batches())).values == [b"a", b"b"]
        assert subscription.undecodable_count == 4
    else:
        assert [await anext(subscription) for _ in range(2)] == [b"a", b"b"]


async def test_an_envelope_of_another_schema_is_undecodable(aeron: aa.Aeron) -> None:
    errors: list[str] = []
    subscription = (await aeron.add_subscription(IPC, STREAM_ID)).typed(
        enveloped(QUOTE, schema_id=1), on_undecodable=lambda _, error: errors.append(str(error))
    )
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.typed(enveloped(QUOTE, schema_id=2)).offer(quote(1), timeout=5)
    await publication.typed(enveloped(QUOTE, schema_id=1)).offer(quote(2), timeout=5)
    assert await anext(subscription) == quote(2)
    assert errors == ["schema 2, not 1"]


async def test_what_is_no_codec_or_handler_is_refused(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    nothing: Any = 7
    with pytest.raises(aa.ConfigurationError, match="codec=7 has no method encode"):
        subscription.typed(nothing)
    with pytest.raises(aa.ConfigurationError, match="on_undecodable"):
        subscription.typed(QUOTE, on_undecodable=nothing)
    texts = subscription.typed(codec(str.encode, bytes.decode))
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.typed(texts.codec).offer("text", timeout=5)
    batch = await anext(texts.batches())
    with pytest.raises(aa.ConfigurationError, match="PairCodec makes no columns"):
        batch.to_arrow()
    assert batch.values == ["text"]
    clash = StructCodec("<position:q")
    subscription.poll(lambda *_: None)
    await publication.typed(clash).offer(clash.type(1), timeout=5)
    batch = await anext(subscription.typed(clash).batches())
    with pytest.raises(aa.ConfigurationError, match="a field is named position too"):
        batch.to_arrow(positions=True)


async def test_any_iterator_over_messages_can_be_typed(aeron: aa.Aeron) -> None:
    publication, subscription = await stream(aeron)
    await offer_all(publication, None, 1)

    class Replayed:
        """What a replay is here."""

        def __aiter__(self) -> Replayed:
            return self

        async def __anext__(self) -> aa.Message:
            message: aa.Message = await anext(subscription.subscription)
            return aa.Message(message.data, message.position, 0, Source())

    class Source:
        session_id = stream_id = 7
        source_identity = "disk"

    typed = aa.TypedSubscription(Replayed(), QUOTE)
    assert await anext(typed) == quote(1)
    assert typed.undecodable_count == 1
    with pytest.raises(aa.ConfigurationError, match="a Replayed has no batches"):
        typed.batches()
