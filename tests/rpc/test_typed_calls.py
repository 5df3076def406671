"""Calls of values, by codecs at both ends."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.codecs import StructCodec, codec
from aeron_async.errors import ConfigurationError, DecodeError
from aeron_async.testing import simulate
from tests.rpc.test_calls import SERVICE, UDP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from aeron_async.testing import World

TEXT = codec(str.encode, bytes.decode)
NUMBER = codec(lambda number: [b"%d" % number, b""], int)
POINT = StructCodec("<x:d,y:d")
ran: list[Any] = []
server = rpc.Server(SERVICE)


@server.unary(request=TEXT, response=NUMBER)
def length(text: str) -> int:
    ran.append(text)
    return len(text)


@server.unary(request=TEXT, response=NUMBER)
async def length_later(text: str, call: rpc.ServerCall) -> int:
    ran.append(text)
    assert call.method == "length_later"
    return len(text)


@server.unary(request=POINT, response=POINT)
async def mirrored(point: Any) -> Any:
    return POINT.type(point.y, point.x)


@server.unary(response=NUMBER)
def wrong(_: bytes) -> Any:
    return "no number"


@server.server_streaming(request=NUMBER, response=NUMBER)
async def count(limit: int) -> AsyncIterator[int]:
    for number in range(limit):
        yield number


@server.client_streaming(request=NUMBER, response=TEXT)
async def total(numbers: AsyncIterator[int]) -> str:
    return str(sum([each async for each in numbers]))


@server.bidirectional(request=TEXT, response=TEXT)
async def upper(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    async for each in texts:
        yield each.upper()


@asynccontextmanager
async def opened(world: World) -> AsyncGenerator[tuple[rpc.Serving, rpc.Client], None]:
    async with (
        world.host("bob").aeron() as bob,
        world.host("alice").aeron() as alice,
        server.serve(bob, UDP) as serving,
        rpc.Client(alice, UDP, SERVICE) as client,
    ):
        await client.wait_connected(5)
        yield serving, client


def test_values_go_both_ways_in_calls_of_every_kind() -> None:
    async def story(world: World) -> None:
        async with opened(world) as (_, client):
            for name in ("length", "length_later"):
                call = client.method(name, request=TEXT, response=NUMBER)
                assert await call("déjà vu", timeout=1) == 7
                assert await call("x" * 200_000) == 200_000
            mirror = client.method("mirrored", request=POINT, response=POINT)
            assert await mirror(POINT.type(1.0, 2.0)) == POINT.type(2.0, 1.0)
            counting = client.method("count", request=NUMBER, response=NUMBER)
            async with counting.stream(5) as numbers:
                assert [each async for each in numbers] == [0, 1, 2, 3, 4]
            async with client.method("total", request=NUMBER, response=TEXT).stream() as adding:
                for number in range(4):
                    await adding.send(number)
                assert await adding.reply() == "6"
            async with client.method("upper", request=TEXT, response=TEXT).stream() as texts:
                await texts.send("é")
                assert await anext(texts) == "É"
                await texts.end()
                assert [each async for each in texts] == []

    simulate(story, seed=1)


def test_what_the_server_cannot_decode_is_an_invalid_argument_and_does_not_run() -> None:
    async def story(world: World) -> None:
        async with opened(world) as (serving, client):
            ran.clear()
            for name in ("length", "length_later"):
                with pytest.raises(rpc.CallFailedError) as caught:
                    await client.call(name, b"\xff secret")
                assert caught.value.status is rpc.Status.INVALID_ARGUMENT
                assert caught.value.error_type == "UnicodeDecodeError"
                assert "secret" not in str(caught.value)
            async with client.stream("total") as adding:
                await adding.send(b"no number")
                with pytest.raises(rpc.CallFailedError) as caught:
                    await adding.reply()
            assert caught.value.status is rpc.Status.INVALID_ARGUMENT
            assert ran == []
            assert serving.counts.failed == {"INVALID_ARGUMENT": 3}
            # What a handler returns is its own mistake.
            with pytest.raises(rpc.CallFailedError) as caught:
                await client.call("wrong")
            assert caught.value.status is rpc.Status.UNKNOWN
            assert caught.value.error_type == "TypeError"

    simulate(story, seed=1)


def test_what_the_client_cannot_decode_or_encode_is_raised() -> None:
    async def story(world: World) -> None:
        async with opened(world) as (serving, client):
            lengths = client.method("length", request=TEXT, response=POINT)
            with pytest.raises(DecodeError, match="length: the answer") as caught:
                await lengths("abc")
            assert caught.value.__cause__ is not None
            before = serving.counts.calls
            with pytest.raises(TypeError):
                await client.method("length", request=TEXT)(5)
            assert serving.counts.calls == before
            for not_codec in ("utf-8", object()):
                with pytest.raises(ConfigurationError):
                    client.method("length", request=not_codec)  # type: ignore[arg-type]
                with pytest.raises(ConfigurationError):
                    server.unary(length, name="other", request=not_codec)  # type: ignore[call-overload]

    simulate(story, seed=1)
