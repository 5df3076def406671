"""What errors of calls say."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async import rpc
from aeron_async.errors import ConfigurationError, WrongLoopError
from aeron_async.testing import simulate
from tests.rpc.test_calls import MDC, SERVICE, UDP, make_server, pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.testing import World


def test_a_method_that_there_is_not_is_named() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            with pytest.raises(rpc.CallFailedError) as caught:
                await client.call("ecko")
            assert str(caught.value) == "ecko: 'numbers' has no such method"

    simulate(story, seed=1)


def test_a_name_is_given_once() -> None:
    server = make_server()
    with pytest.raises(ConfigurationError, match="there is a method 'echo' already: give another"):
        server.unary(lambda request: request, name="echo")


def none() -> bytes:
    return b""


async def three(request: bytes, call: rpc.ServerCall, more: int) -> bytes:
    return request + bytes(more)


async def keyword(request: bytes, *, more: int) -> bytes:
    return request + bytes(more)


async def no_elements() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize("function", [none, three, keyword])
def test_a_handler_that_cannot_be_called_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{function.__name__}\(.*takes the request"):
        rpc.Server(SERVICE).unary(function)
    with pytest.raises(ConfigurationError, match=r"no_elements\(\)"):
        rpc.Server(SERVICE).server_streaming(no_elements)


def one(request: bytes) -> bytes:
    return request


def two(request: bytes, call: object) -> bytes:
    return request + type(call).__name__.encode()


def with_more(request: bytes, call: object, more: int = 1) -> bytes:
    return two(request, call)


def any_number(*given: bytes) -> bytes:
    return given[0]


def test_a_handler_takes_the_request_and_may_take_the_call() -> None:
    server = rpc.Server(SERVICE)
    for each in (one, two, with_more, any_number):
        server.unary(each)

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            server.serve(bob, UDP),
            rpc.Client(bob, UDP, SERVICE) as client,
        ):
            assert await client.call("one", b"1") == b"1"
            assert await client.call("two", b"2") == b"2ServerCall"
            assert await client.call("with_more", b"3") == b"3ServerCall"
            assert await client.call("any_number", b"4") == b"4"

    simulate(story, seed=1)


@pytest.mark.parametrize(
    ("at_server", "at_client", "text"),
    [
        (UDP, MDC, "rejected the stream .*its URI must be that of the server, with its control-mo"),
        (MDC, UDP, "requests arrive there, and no answer comes: give both ends the same URI"),
    ],
)
def test_ends_with_other_control_modes_are_told_so(
    at_server: str, at_client: str, text: str
) -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            make_server().serve(bob, at_server),
            rpc.Client(alice, at_client, SERVICE) as client,
        ):
            for _ in range(2):
                with pytest.raises(rpc.NoServerError, match=text):
                    await client.call("echo")
            with pytest.raises(rpc.NoServerError, match=text):
                await client.wait_connected(0.5)

    simulate(story, seed=1)


async def test_a_client_in_another_loop_than_its_aeron_is_refused_at_once() -> None:
    errors: list[BaseException] = []

    async def elsewhere() -> None:
        client = rpc.Client(aeron, "aeron:ipc", SERVICE)
        with pytest.raises(WrongLoopError) as caught:
            client.open()
        errors.append(caught.value)

    async with aa.Aeron.connect() as aeron:
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join, 30)
    assert "give each loop, and each thread, an Aeron of its own" in str(errors[0])


def test_a_lost_server_is_one_line_in_the_words_of_calls() -> None:
    async def story(world: World) -> None:
        server, client_host = world.host("bob"), world.host("alice")
        async with client_host.aeron() as alice, rpc.Client(alice, UDP, SERVICE) as client:
            driver = server.aeron()
            bob = await driver.__aenter__()
            serving = make_server().serve(bob, UDP)
            await serving.__aenter__()
            await client.wait_connected(5)
            with capture_logs() as lines:
                world.partition(server)
                await asyncio.sleep(30)
            warnings = [each for each in lines if each["log_level"] == "warning"]
            mine = [each for each in warnings if "20121" in str(each.get("channel", UDP))]
            assert [each["event"] for each in mine] == ["call_link_lost"]
            assert mine[0]["service"] == SERVICE
            world.heal()
            await serving.__aexit__(None, None, None)
            await driver.__aexit__(None, None, None)

    simulate(story, seed=1)


def test_a_stream_whose_deadline_passes_says_how_to_go_on() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client), client.stream("count", b"1000") as numbers:
            await asyncio.sleep(6)
            with pytest.raises(rpc.CallTimeoutError) as caught:
                [each async for each in numbers]
            assert str(caught.value) == (
                "count: the stream was not over in time; "
                "raise timeout, or give None to a stream that goes on"
            )

    simulate(story, seed=1)
