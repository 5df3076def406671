"""What programs may give as a payload, and what is refused."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.codecs import codec
from aeron_async.errors import ConfigurationError
from aeron_async.rpc.envelope import checked
from aeron_async.testing import simulate
from tests.rpc.test_calls import SERVICE, UDP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from aeron_async.testing import World

NUMBERS = array("d", range(20_000))


def test_a_view_counts_in_bytes() -> None:
    assert checked(b"ab", "x") == b"ab"
    assert checked(memoryview(NUMBERS), "x") == NUMBERS.tobytes()
    assert checked(memoryview(b"abcd")[::2], "x") == b"ac"
    for wrong in ("text", 5, [1, 2], None):
        with pytest.raises(TypeError, match=f"x is bytes, not {type(wrong).__name__}"):
            checked(wrong, "x")


def service(handed_on: Any) -> rpc.Server:
    server = rpc.Server(SERVICE)

    @server.unary
    def plain(_: bytes) -> Any:
        return handed_on

    @server.unary
    async def later(_: bytes) -> Any:
        await asyncio.sleep(0)
        return handed_on

    @server.server_streaming
    async def stream(_: bytes) -> AsyncGenerator[Any, None]:
        yield handed_on

    @server.client_streaming
    async def take(elements: AsyncIterator[bytes]) -> bytes:
        return b"".join([each async for each in elements])

    @server.unary
    def echo(request: bytes) -> bytes:
        return request

    return server


@pytest.mark.parametrize("keep_results", [0, 10])
def test_views_travel_whole(keep_results: int) -> None:
    views: list[Any] = [memoryview(NUMBERS), memoryview(b"abcd")[::2], bytearray(b"x")]

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            for view in views:
                async with (
                    service(view).serve(bob, UDP, keep_results=keep_results) as serving,
                    rpc.Client(alice, UDP, SERVICE) as client,
                ):
                    await client.wait_connected(5)
                    for name in ("plain", "later"):
                        assert await client.call(name, idempotent=True) == bytes(view)
                    async with client.stream("stream", b"") as elements:
                        assert [each async for each in elements] == [bytes(view)]
                    assert await client.call("echo", view) == bytes(view)
                    async with client.stream("take") as elements:
                        await elements.send(view)
                        assert await elements.reply() == bytes(view)
                    assert serving.counts.refused_clients == 0

    simulate(story, seed=1)


@pytest.mark.parametrize("wrong", ["text", 5, [1, 2]])
def test_what_is_no_bytes_is_refused_where_it_is_given(wrong: Any) -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            service(wrong).serve(bob, UDP) as serving,
            rpc.Client(alice, UDP, SERVICE) as client,
        ):
            await client.wait_connected(5)
            with pytest.raises(TypeError, match="a request is bytes"):
                await client.call("echo", wrong)
            with pytest.raises(TypeError, match="a request is bytes"):
                await client.call_all("echo", wrong)
            with pytest.raises(TypeError, match="a request is bytes"):
                client.stream("stream", wrong)
            with pytest.raises(TypeError, match="bytes"):
                await client.method("echo", request=codec(lambda x: x, bytes))(wrong)
            assert serving.counts.calls == 0
            async with client.stream("take") as elements:
                with pytest.raises(TypeError, match="an element is bytes"):
                    await elements.send(wrong)
                assert await elements.reply() == b""
            for name in ("plain", "later"):
                with pytest.raises(rpc.CallFailedError, match="TypeError"):
                    await client.call(name)
            async with client.stream("stream", b"") as elements:
                with pytest.raises(rpc.CallFailedError, match="TypeError"):
                    await anext(elements)

    simulate(story, seed=1)


@pytest.mark.parametrize("length", [99, 100, 101, 70_000])
@pytest.mark.parametrize("name", ["plain", "later", "echo"])
def test_no_payload_is_longer_than_the_limit_of_its_receiver(name: str, length: int) -> None:
    payload = bytes(length)
    request = payload if name == "echo" else b""

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            service(payload).serve(bob, UDP, payload_max=100) as serving,
            rpc.Client(alice, UDP, SERVICE, payload_max=100) as client,
            rpc.Client(alice, UDP, SERVICE) as patient,
        ):
            await client.wait_connected(5)
            await patient.wait_connected(5)
            for caller in (client, patient):
                is_refused = length > 100 and (caller is client or name == "echo")
                if is_refused:
                    with pytest.raises(
                        (rpc.CallFailedError, ConfigurationError), match="payload_max"
                    ):
                        await caller.call(name, request)
                else:
                    assert await caller.call(name, request) == payload
            assert client.counts.under_way == serving.counts.under_way == 0
            assert await client.call("echo", b"x") == b"x"

    simulate(story, seed=1)
