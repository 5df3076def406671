"""A call of the wrong kind raises, and is never answered with nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async import rpc
from tests.rpc.test_calls import CHANNELS, pair, run

if TYPE_CHECKING:
    from aeron_async.testing import World

STREAMS = "the server streams its answer: use client.stream, and async for"
ONCE = "the server answers once: use client.call, or await reply"


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize(
    "request_", [b"0", b"3", b"3" + bytes(100_000)], ids=["none", "few", "long"]
)
def test_call_of_a_method_that_streams_raises(channel: str, request_: bytes) -> None:
    method = "upper" if len(request_) > 1 else "count"

    async def story(world: World) -> None:
        async with pair(world, channel) as (serving, client):
            with pytest.raises(rpc.CallFailedError, match=STREAMS) as caught:
                await client.call(method, request_)
            assert str(caught.value).startswith(f"{method}: ")
            assert caught.value.status is rpc.Status.UNIMPLEMENTED
            assert await client.call("echo", b"1") == b"1"
            await world.sleep(0.1)
            assert client.counts.under_way == serving.counts.under_way == 0
            assert client.counts.failed == 1

    run(story)


@pytest.mark.parametrize("method", ["echo", "later", "total"])
def test_elements_of_a_method_that_answers_once_raise(method: str) -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            async with client.stream(method, b"3") as stream:
                with pytest.raises(rpc.CallFailedError, match=ONCE):
                    await anext(stream)
                assert await stream.reply() == b"3"
            async with client.stream(method) as stream:
                await stream.send(b"3")
                await stream.end()
                with pytest.raises(rpc.CallFailedError, match=ONCE):
                    await anext(stream)

    run(story)


def test_the_answer_of_a_method_that_streams_raises_also_when_it_is_long() -> None:
    async def story(world: World) -> None:
        async with pair(world, timeout=None) as (serving, client):
            # More than a window: nobody takes an element.
            async with client.stream("count", b"1000") as numbers:
                with pytest.raises(rpc.CallFailedError, match=STREAMS):
                    await numbers.reply()
            async with client.stream("count", b"2") as numbers:
                assert await anext(numbers) == b"0"
                with pytest.raises(rpc.CallFailedError, match=STREAMS):
                    await numbers.reply()
                assert await anext(numbers) == b"1"
            async with client.stream("count", b"0") as numbers:
                assert [each async for each in numbers] == []
            await world.sleep(0.1)
            assert client.counts.under_way == serving.counts.under_way == 0

    run(story)
