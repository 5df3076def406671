"""Calls of every kind, over every channel, in virtual time."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.metrics import MetricsText
from aeron_async.stats import Stats
from aeron_async.testing import Conditions, simulate
from aeron_async.trace_context import TraceContext
from tests.metrics.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from aeron_async.testing import World

UDP = "aeron:udp?endpoint=bob:20121|control=bob:20122"
MDC = UDP + "|control-mode=dynamic"
CHANNELS = {"response": UDP, "mdc": MDC, "ipc": "aeron:ipc", "small": UDP + "|term-length=64k"}
SERVICE = "numbers"


def make_server() -> rpc.Server:  # noqa: C901 - many small handlers
    server = rpc.Server(SERVICE)

    @server.unary
    def echo(request: bytes) -> bytes:
        return request

    @server.unary
    async def later(request: bytes) -> bytes:
        await asyncio.sleep(0.01)
        return request

    @server.unary
    async def never(request: bytes) -> bytes:
        await asyncio.Event().wait()
        return request

    @server.unary
    def secret(request: bytes) -> bytes:
        raise ValueError(request.decode())

    @server.unary
    async def refuse(request: bytes) -> bytes:
        raise rpc.CallFailedError(
            request.decode(), status=rpc.Status.NOT_FOUND, retry_after_ms=7, error_type="Mine"
        )

    @server.unary
    async def describe(request: bytes, call: rpc.ServerCall) -> bytes:
        trace = call.trace and call.trace.span_id.hex()
        left = call.time_left
        return f"{call.caller.name} {left is not None and left > 0} {trace}".encode()

    @server.server_streaming
    async def count(request: bytes) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    @server.client_streaming
    async def total(elements: AsyncIterator[bytes]) -> bytes:
        return b"%d" % sum([int(each) async for each in elements])

    @server.bidirectional
    async def upper(elements: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for each in elements:
            yield each.upper()

    return server


@asynccontextmanager
async def pair(
    world: World, channel: str = UDP, **options: Any
) -> AsyncGenerator[tuple[rpc.Serving, rpc.Client], None]:
    """Open a server at bob and a client at alice; both at bob over IPC."""
    async with world.host("bob").aeron() as bob:
        serving = make_server().serve(bob, channel)
        if channel == "aeron:ipc":
            async with serving as open_one, rpc.Client(bob, channel, SERVICE, **options) as client:
                yield open_one, client
            return
        async with (
            world.host("alice").aeron() as alice,
            serving as open_one,
            rpc.Client(alice, channel, SERVICE, **options) as client,
        ):
            yield open_one, client


def run(story: Callable[[World], Awaitable[Any]], seed: int = 1) -> None:
    simulate(story, seed=seed)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_each_kind_of_call_is_answered(channel: str) -> None:
    async def story(world: World) -> None:
        async with pair(world, channel) as (serving, client):
            assert await client.call("echo", b"one") == b"one"
            assert await client.call("later", b"two") == b"two"
            assert await client.call("echo") == b""
            async with client.stream("count", b"1000") as numbers:
                assert [int(each) async for each in numbers] == list(range(1_000))
            async with client.stream("total") as sum_of:
                for number in range(300):
                    await sum_of.send(b"%d" % number)
                assert await sum_of.reply() == b"%d" % sum(range(300))
            async with client.stream("upper") as words:
                for word in (b"a", b"b"):
                    await words.send(word)
                    assert await anext(words) == word.upper()
                await words.end()
                assert [each async for each in words] == []
            assert client.counts.under_way == serving.counts.under_way == 0
            assert serving.counts.malformed == client.counts.malformed == 0

    run(story)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize("method", ["echo", "later"])
def test_a_long_payload_goes_in_pieces_both_ways(channel: str, method: str) -> None:
    async def story(world: World) -> None:
        payload = bytes(range(256)) * 4_000
        async with pair(world, channel) as (serving, client):
            assert await client.call(method, payload) == payload
            async with client.stream("upper") as words:
                await words.send(b"ab" * 100_000)
                assert await anext(words) == b"AB" * 100_000
            assert serving.counts.malformed == client.counts.malformed == 0

    run(story)


def test_what_a_handler_raises_is_told_without_its_text() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            with pytest.raises(rpc.CallFailedError) as caught:
                await client.call("secret", b"password")
            assert caught.value.status is rpc.Status.UNKNOWN
            assert caught.value.error_type == "ValueError"
            assert "password" not in str(caught.value)
            with pytest.raises(rpc.CallFailedError) as caught:
                await client.call("refuse", b"no such number")
            assert caught.value.status is rpc.Status.NOT_FOUND
            assert caught.value.retry_after_ms == 7
            assert caught.value.error_type == "Mine"
            assert "no such number" in str(caught.value)
            with pytest.raises(rpc.CallFailedError) as caught:
                await client.call("unknown")
            assert caught.value.status is rpc.Status.UNIMPLEMENTED
            assert serving.counts.failed == {"UNKNOWN": 1, "NOT_FOUND": 1, "UNIMPLEMENTED": 1}
            assert client.counts.failed == 3

    run(story)


def test_a_handler_sees_its_caller_deadline_and_trace() -> None:
    async def story(world: World) -> None:
        async with pair(world, name="desk\x1b[2J") as (_, client):
            trace = TraceContext(bytes(range(1, 17)), bytes(range(1, 9)), 1)
            answer = (await client.call("describe", trace=trace)).decode()
            assert answer.startswith("desk")
            assert "\x1b" not in answer
            assert answer.endswith("True 0102030405060708")
            assert (await client.call("describe", timeout=None)).decode().endswith("False None")

    run(story)


def test_a_deadline_ends_the_call_and_its_handler() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            began_ns = world.now_ns
            with pytest.raises(rpc.CallTimeoutError) as caught:
                await client.call("never", timeout=0.5)
            assert caught.value.was_sent
            assert 500_000_000 <= world.now_ns - began_ns < 530_000_000
            await world.sleep(0.1)
            assert client.counts.under_way == serving.counts.under_way == 0

    run(story)


def test_cancelling_a_call_cancels_its_handler() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            task = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            assert serving.counts.under_way == 1
            task.cancel()
            await world.sleep(0.1)
            assert task.cancelled()
            assert serving.counts.under_way == client.counts.under_way == 0
            assert serving.counts.cancelled == client.counts.cancelled == 1

    run(story)


def test_leaving_a_stream_ends_its_handler() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            async with client.stream("count", b"1000000") as numbers:
                assert await anext(numbers) == b"0"
            await world.sleep(0.2)
            assert serving.counts.under_way == client.counts.under_way == 0
            with pytest.raises(rpc.CallFailedError):
                await anext(numbers)

    run(story)


def test_no_server_is_told_after_the_connect_timeout_and_then_at_once() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice, rpc.Client(alice, UDP, SERVICE) as client:
            began_ns = world.now_ns
            with pytest.raises(rpc.NoServerError):
                await client.call("echo")
            assert 0.99e9 <= world.now_ns - began_ns <= 1.1e9
            began_ns = world.now_ns
            with pytest.raises(rpc.NoServerError):
                await client.call("echo")
            assert world.now_ns == began_ns
            with pytest.raises(rpc.NoServerError):
                await client.wait_connected(2)
            assert client.counts.not_sent == 2

    run(story)


@pytest.mark.parametrize("is_crash", [True, False], ids=["crash", "stop"])
def test_a_server_that_restarts_is_found_again_and_lost_calls_are_told(is_crash: bool) -> None:  # noqa: FBT001
    async def story(world: World) -> None:
        bob = world.host("bob")
        ready = asyncio.Event()

        async def service(host: Any) -> None:
            async with host.aeron() as aeron, make_server().serve(aeron, UDP):
                ready.set()
                await asyncio.Event().wait()

        bob.start(service)
        async with world.host("alice").aeron() as alice, rpc.Client(alice, UDP, SERVICE) as client:
            await client.wait_connected(5)
            assert await client.call("echo", b"1") == b"1"
            lost = asyncio.ensure_future(client.call("never", timeout=None))
            again = asyncio.ensure_future(client.call("never", timeout=8, idempotent=True))
            await world.sleep(0.1)
            began_ns = world.now_ns
            await (bob.crash() if is_crash else bob.stop())
            with pytest.raises(rpc.RpcError) as caught:
                await lost
            assert isinstance(caught.value, rpc.CallLostError | rpc.CallFailedError)
            # After three seconds of silence where it was killed; at once where it said so.
            took_ns = world.now_ns - began_ns
            assert took_ns < 1.5e9 or (is_crash and 2.5e9 < took_ns <= 3.01e9), took_ns
            ready.clear()
            if is_crash:
                await bob.restart()
            else:
                bob.start(service)
            await ready.wait()
            began_ns = world.now_ns
            await client.wait_connected(12)
            assert await client.call("echo", b"2") == b"2"
            assert world.now_ns - began_ns < 4e9
            again.cancel()
            assert client.counts.under_way <= 1

    run(story)


def test_draining_refuses_new_calls_and_waits_for_those_that_run() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            running = asyncio.ensure_future(client.call("later", b"x"))
            await world.sleep(0.005)
            draining = asyncio.ensure_future(serving.drain(5))
            refused = asyncio.ensure_future(client.call("echo", timeout=3))
            began_ns = world.now_ns
            with pytest.raises(rpc.NoServerError, match="takes no new calls"):
                await refused
            with pytest.raises(rpc.NoServerError, match="takes no new calls"):
                await client.call("echo", timeout=3)
            assert world.now_ns - began_ns < 5e6
            assert await running == b"x"
            await draining
            with pytest.raises(rpc.NoServerError):
                await client.call("echo", timeout=3)
            assert serving.counts.under_way == 0

    run(story)


def test_closing_the_client_fails_what_is_under_way_and_frees_the_server() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            tasks = [asyncio.ensure_future(client.call("never")) for _ in range(5)]
            await world.sleep(0.1)
            await client.aclose()
            assert all(
                isinstance(each, ClosedError)
                for each in await asyncio.gather(*tasks, return_exceptions=True)
            )
            with pytest.raises(ClosedError):
                await client.call("echo")
            await world.sleep(0.1)
            assert serving.counts.under_way == 0
            await world.sleep(5)
            assert serving.counts.clients == 0

    run(story)


def test_more_calls_than_the_server_allows_wait_and_more_than_the_queue_fail() -> None:
    async def story(world: World) -> None:
        async with pair(world, calls_at_once=4, queue_limit=6) as (serving, client):
            await client.wait_connected(5)
            tasks = [asyncio.ensure_future(client.call("later", b"%d" % n)) for n in range(12)]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert answers[:10] == [b"%d" % n for n in range(10)]
            assert all(isinstance(each, rpc.CallNotSentError) for each in answers[10:])
            assert serving.counts.calls == 10

    run(story)


def test_a_slow_stream_holds_up_no_other_call() -> None:
    async def story(world: World) -> None:
        async with (
            pair(world) as (serving, client),
            client.stream("count", b"100000") as numbers,
        ):
            assert await anext(numbers) == b"0"
            await world.sleep(1)
            began_ns = world.now_ns
            assert await client.call("echo", b"x") == b"x"
            assert world.now_ns - began_ns < 10_000_000
            # Credit, not memory: the handler waits for the reader.
            assert serving.counts.under_way == 1
            assert client.counts.malformed == 0

    run(story)


@pytest.mark.parametrize("seed", range(int(os.environ.get("AERON_ASYNC_RPC_WORLDS", "12"))))
def test_nothing_runs_twice_and_nothing_stays_in_a_lossy_world_with_partitions(seed: int) -> None:
    ran: dict[bytes, int] = {}
    server = rpc.Server(SERVICE)

    @server.unary
    async def book(request: bytes) -> bytes:
        ran[request] = ran.get(request, 0) + 1
        await asyncio.sleep((request[0] % 7) / 100)
        return request

    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with bob.aeron() as served, server.serve(served, UDP) as serving:
            world.set_conditions(Conditions(loss=0.2))
            async with alice.aeron() as aeron, rpc.Client(aeron, UDP, SERVICE) as client:
                outcomes: list[object] = []

                async def caller(name: int) -> None:
                    for number in range(15):
                        request = b"%d/%d" % (name, number)
                        try:
                            answer = await client.call("book", request, timeout=1.5)
                        except rpc.RpcError as error:
                            outcomes.append(error)
                            # Without a server a call fails at once; these are to see it again.
                            await asyncio.sleep(0.5)
                            await client.wait_connected(30)
                        else:
                            assert answer == request
                            outcomes.append(None)
                        await asyncio.sleep(0.05)

                await client.wait_connected(30)
                tasks = [asyncio.ensure_future(caller(name)) for name in range(6)]
                await world.sleep(0.7)
                with world.partitioned(bob):
                    await world.sleep(2.5 + seed % 3)
                before = len(outcomes)
                tasks[0].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert None in outcomes[before:]
                await client.wait_connected(30)
                assert await client.call("book", b"0/again", timeout=30) == b"0/again"
                await world.sleep(3)
                assert client.counts.under_way == serving.counts.under_way == 0
                assert client.counts.queued == 0
                assert max(ran.values()) == 1

    run(story, seed)


@pytest.mark.parametrize("seed", range(4))
def test_the_maps_are_empty_after_random_cancels(seed: int) -> None:
    async def story(world: World) -> None:
        async with pair(world, calls_at_once=200) as (serving, client):
            await client.wait_connected(5)
            for start in range(0, 2_500, 100):
                tasks = [
                    asyncio.ensure_future(client.call(("echo", "later", "never")[n % 3], b"x"))
                    for n in range(start, start + 100)
                ]
                for place, task in enumerate(tasks):
                    if place % 10 == seed:
                        await world.sleep(0.001)
                    if place % 3 or place % 2:
                        task.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await world.sleep(2)
            assert client.counts.under_way == client.counts.queued == 0
            assert serving.counts.under_way == 0
            assert client._links[0].room == client._links[0].calls_limit
            # All places are free again, at both ends.
            still = [client.call("later", b"still") for _ in range(client._links[0].calls_limit)]
            assert set(await asyncio.gather(*still)) == {b"still"}

    run(story, seed)


def test_several_servers_share_the_calls_and_a_key_stays_with_one() -> None:
    async def story(world: World) -> None:
        channels = [f"aeron:udp?endpoint={each}:20121|control={each}:20122" for each in ("x", "y")]
        seen: dict[str, list[bytes]] = {}

        def server_at(name: str) -> rpc.Server:
            server = rpc.Server(SERVICE)
            seen[name] = []

            @server.unary
            def note(request: bytes) -> bytes:
                seen[name].append(request)
                return name.encode()

            return server

        async with (
            world.host("x").aeron() as first,
            world.host("y").aeron() as second,
            world.host("alice").aeron() as alice,
            server_at("x").serve(first, channels[0]),
            server_at("y").serve(second, channels[1]),
            rpc.Client(alice, channels, SERVICE) as client,
        ):
            await client.wait_connected(5)
            await world.sleep(1)
            for number in range(50):
                await client.call("note", b"%d" % number)
            assert all(len(each) > 5 for each in seen.values())
            keyed = {
                await client.call("note", key=f"k{n % 5}") + b"%d" % (n % 5) for n in range(50)
            }
            assert len(keyed) == 5
            answered = client.counts.answered
            assert set(await client.call_all("note")) == {b"x", b"y"}
            assert client.counts.answered == answered + 2
            refused = await client.call_all("missing")
            assert [type(each) for each in refused] == [rpc.CallFailedError] * 2
            assert client.counts.failed == 2
            asking = asyncio.ensure_future(client.call_all("note"))
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (client.counts.cancelled, client.counts.under_way) == (2, 0)

    run(story)


@pytest.mark.parametrize(
    "channel",
    [
        "aeron:udp?endpoint=bob:1",
        "aeron:udp?control=bob:1|control-mode=dynamic",
        "aeron:udp?endpoint=bob:1|control=bob:2|control-mode=manual",
        "aeron-spy:aeron:udp?endpoint=bob:1|control=bob:2",
        "aeron:ipc?control-mode=dynamic",
    ],
)
def test_a_channel_that_calls_cannot_use_is_refused(channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice:
            with pytest.raises(ConfigurationError):
                rpc.Client(alice, channel, SERVICE)

    run(story)


def test_a_handler_of_the_wrong_kind_is_refused() -> None:
    server = rpc.Server(SERVICE)

    def plain(_: bytes) -> bytes:
        return b""

    async def waits(_: bytes) -> bytes:
        return b""

    async def yields(_: bytes) -> AsyncIterator[bytes]:
        yield b""

    for register, function in (
        (server.unary, yields),
        (server.server_streaming, waits),
        (server.client_streaming, plain),
        (server.bidirectional, plain),
    ):
        with pytest.raises(ConfigurationError):
            register(function)
    server.unary(plain)
    with pytest.raises(ConfigurationError):
        server.unary(waits, name="plain")


def test_the_statistics_of_methods_become_metrics() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            for _ in range(3):
                await client.call("echo")
            await client.call("later")
            for method in ("refuse", "missing"):
                with pytest.raises(rpc.CallFailedError):
                    await client.call(method, b"x")
            left = asyncio.ensure_future(client.call("never"))
            cancelled = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            cancelled.cancel()
            await world.sleep(0.1)
            rows = {each.method: each for each in serving.stats()}
            assert rows["echo"].outcomes == {"answered": 3, "repeated": 0, "cancelled": 0}
            assert rows["later"].handler_ns >= 10_000_000
            assert rows["refuse"].outcomes["NOT_FOUND"] == 1
            assert rows["never"].under_way == rows["never"].outcomes["cancelled"] == 1
            assert rows["(unknown)"].outcomes == {"UNIMPLEMENTED": 1}
            stats = snapshot().with_calls(serving.stats())
            assert Stats.from_dict(stats.to_dict()).calls == stats.calls
            page = MetricsText().render(stats)
            names = f'service="{SERVICE}",method="echo"'
            assert f'aeron_calls_total{{{names},outcome="answered"}} 3' in page
            assert f'aeron_calls_under_way{{service="{SERVICE}",method="never"}} 1' in page
            left.cancel()

    run(story)
