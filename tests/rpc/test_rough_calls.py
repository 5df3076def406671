"""Calls when there is no room, when links are lost in the middle, and when a peer cheats."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async import rpc
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.rpc.envelope import CallFlag, Template, head, method_id
from aeron_async.rpc.outbox import Outbox
from aeron_async.tasks import TaskOwner
from aeron_async.testing import simulate
from tests.rpc.test_calls import SERVICE, UDP, make_server, pair
from tests.rpc.test_flows import Narrow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from aeron_async.testing import World
    from aeron_async.testing.host import Host

BOTH = [f"aeron:udp?endpoint={each}:20121|control={each}:20122" for each in ("x", "y")]


@asynccontextmanager
async def pair_of(
    world: World, server: rpc.Server, **options: Any
) -> AsyncGenerator[tuple[rpc.Serving, rpc.Client], None]:
    async with (
        world.host("bob").aeron() as bob,
        world.host("alice").aeron() as alice,
        server.serve(bob, UDP, **options) as serving,
        rpc.Client(alice, UDP, SERVICE, timeout=None) as client,
    ):
        await client.wait_connected(5)
        yield serving, client


def long_waits(lines: Any) -> list[str]:
    return [line["operation"] for line in lines if line["event"] == "wait_lasted_long"]


def test_a_server_without_clients_is_no_reason_to_warn() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, make_server().serve(bob, UDP):
            with capture_logs() as lines:
                await world.sleep(30)
            assert long_waits(lines) == []

    simulate(story, seed=1)


def test_a_client_without_a_server_warns_once() -> None:
    async def story(world: World) -> None:
        world.host("bob")
        async with world.host("alice").aeron() as alice, rpc.Client(alice, UDP, SERVICE):
            with capture_logs() as lines:
                await world.sleep(30)
            assert long_waits(lines) == ["wait_connected"]

    simulate(story, seed=1)


def test_more_than_fits_into_the_outbox_waits_and_is_answered() -> None:
    async def story(world: World) -> None:
        async with pair(world, timeout=None) as (_, client):
            request = b"x" * 60_000
            answers = await asyncio.gather(*(client.call("echo", request) for _ in range(100)))
            assert answers == [request] * 100

    simulate(story, seed=1)


def test_leaving_a_stream_of_a_lost_link_ends_no_other_call() -> None:
    async def story(world: World) -> None:
        async with pair(world, timeout=None) as (_, client):
            async with client.stream("count", b"1000000") as numbers:
                await anext(numbers)
                client._links[0]._break("the test says so")
                await world.sleep(0.1)
                await client.wait_connected(5)
                other = asyncio.ensure_future(client.call("later", b"x"))
                await asyncio.sleep(0)
            assert await asyncio.wait_for(other, 30) == b"x"

    simulate(story, seed=1)


async def serve_at(host: Host, channel: str) -> None:
    """Serve until the host crashes."""
    async with host.aeron() as aeron, make_server().serve(aeron, channel):
        await asyncio.Event().wait()


def test_calls_of_a_lost_server_go_to_another_and_new_ones_do_not_wait_behind() -> None:
    async def story(world: World) -> None:
        world.host("x").start(lambda host: serve_at(host, BOTH[0]))
        async with (
            world.host("y").aeron() as second,
            world.host("alice").aeron() as alice,
            make_server().serve(second, BOTH[1]),
            rpc.Client(alice, BOTH, SERVICE, ping_interval=0.2) as client,
        ):
            await world.sleep(1)
            tasks = [
                asyncio.ensure_future(client.call("later", b"i", idempotent=True, timeout=9))
                for _ in range(40)
            ]
            await world.sleep(0.001)
            await world.host("x").crash()
            assert await asyncio.gather(*tasks) == [b"i"] * 40
            assert await client.call("echo", b"new", timeout=1) == b"new"

    simulate(story, seed=1)


def test_a_long_answer_to_a_stream_is_whole() -> None:
    server = rpc.Server(SERVICE)

    @server.client_streaming
    async def long(elements: AsyncIterator[bytes]) -> bytes:
        return b"x" * 200_000 + b"".join([each async for each in elements])

    async def story(world: World) -> None:
        async with pair_of(world, server) as (_, client), client.stream("long") as stream:
            await stream.send(b"end")
            answer = await stream.reply()
            assert (len(answer), answer[-4:]) == (200_003, b"xend")

    simulate(story, seed=1)


def test_a_send_that_is_cut_short_ends_its_call() -> None:
    taken: list[bytes] = []
    server = rpc.Server(SERVICE)

    @server.client_streaming
    async def slow(elements: AsyncIterator[bytes]) -> bytes:
        await asyncio.sleep(1)
        taken.extend([each async for each in elements])
        return b""

    async def story(world: World) -> None:
        async with pair_of(world, server) as (_, client):
            async with client.stream("slow") as stream:
                for _ in range(15):
                    await stream.send(b"p" * 65_536)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await stream.send(b"a" * 300_000)
                with pytest.raises(rpc.CallFailedError):
                    await stream.send(b"b")
            await world.sleep(5)
            assert set(taken) <= {b"p" * 65_536}

    simulate(story, seed=1)


def test_a_stream_that_began_is_lost_and_not_unsent() -> None:
    server = rpc.Server(SERVICE)

    @server.client_streaming
    async def takes(elements: AsyncIterator[bytes]) -> bytes:
        async for _ in elements:
            pass
        return b""

    async def story(world: World) -> None:
        async with (
            pair_of(world, server, window_bytes=16 << 20) as (_, client),
            client.stream("takes") as stream,
        ):
            await stream.send(b"a")
            await world.sleep(0.1)

            async def send_on() -> None:
                while True:
                    await stream.send(b"z" * 60_000)

            with world.partitioned(world.host("bob")), pytest.raises(rpc.CallLostError):
                await send_on()

    simulate(story, seed=1)


def test_a_flood_of_calls_runs_no_more_than_the_limits() -> None:
    server = rpc.Server(SERVICE)

    @server.unary
    def big(_: bytes) -> bytes:
        return b"x" * 200_000

    async def story(world: World) -> None:
        async with pair_of(world, server, calls_at_once=4, calls_limit=8) as (serving, client):
            link: Any = client._links[0]
            link._subscription.on_message(lambda _: None)
            number = method_id(SERVICE, "big")
            for call_id in range(1, 1_001):
                frame = head(Template.CALL, call_id, number=number, flags=CallFlag.LAST)
                await link._publication.offer(frame, timeout=5)
            await world.sleep(0.5)
            assert serving.counts.under_way <= 4

    simulate(story, seed=1)


def test_a_call_that_comes_again_ends_the_client_for_good() -> None:
    ran: list[bytes] = []
    server = rpc.Server(SERVICE)

    @server.unary
    def note(request: bytes) -> bytes:
        ran.append(request)
        return b""

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            server.serve(bob, UDP) as serving,
        ):
            stream = await alice.add_exclusive_publication("aeron:udp?endpoint=bob:20121", 1001)
            await world.sleep(1)
            number = method_id(SERVICE, "note")
            for call_id in (5, 5, 5, 6):
                frame = head(Template.CALL, call_id, number=number, flags=CallFlag.LAST)
                await stream.offer(frame + b"%d" % call_id, timeout=5)
            await world.sleep(0.5)
            assert ran == [b"5"]
            assert serving.counts.refused_clients == 1

    simulate(story, seed=1)


def test_errors_are_told_though_the_outbox_is_full() -> None:
    server = rpc.Server(SERVICE)

    @server.unary
    async def bad(_: bytes) -> bytes:
        await asyncio.sleep(0.2)
        reason = "no"
        raise rpc.CallFailedError(reason)

    async def story(world: World) -> None:
        async with pair_of(world, server) as (serving, client):
            session: Any = next(iter(serving._sessions.values()))
            packed = serving._instance_packed()
            tasks = [asyncio.ensure_future(client.call("bad")) for _ in range(50)]
            await world.sleep(0.1)
            with world.partitioned(world.host("bob")):
                for length in (60_000, 0):
                    pong = session.frame(Template.PONG, 0, b"y" * length, extensions=packed)
                    while session.post(pong):
                        pass
                await world.sleep(0.3)
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in done} == {rpc.CallFailedError}

    simulate(story, seed=1)


def test_an_idempotent_call_is_tried_for_as_long_as_its_deadline_allows() -> None:
    async def story(world: World) -> None:
        world.host("bob").start(lambda host: serve_at(host, UDP))
        async with (
            world.host("alice").aeron() as alice,
            rpc.Client(alice, UDP, SERVICE) as client,
        ):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("never", idempotent=True, timeout=20))
            await world.sleep(0.1)
            await world.host("bob").crash()
            began_ns = world.now_ns
            with pytest.raises(rpc.CallTimeoutError) as caught:
                await call
            assert caught.value.was_sent
            assert world.now_ns - began_ns > 19e9

    simulate(story, seed=1)


def test_a_client_whose_closing_was_cancelled_is_closed() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("never", timeout=None))
            await world.sleep(0.1)
            closing = asyncio.ensure_future(client.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(ClosedError):
                await call
            await client.aclose()

    simulate(story, seed=1)


async def test_everybody_who_waits_for_a_place_is_woken() -> None:
    narrow = Narrow()
    async with TaskOwner() as owner:
        outbox = Outbox(owner, lambda _: None, limit_bytes=100, patience_s=5)
        outbox.attach(narrow)
        tasks = [asyncio.ensure_future(outbox.put(bytes(100))) for _ in range(5)]
        await asyncio.sleep(0)
        for _ in range(10):
            narrow.room.release()
        assert await asyncio.wait_for(asyncio.gather(*tasks), 5) == [True] * 5
        assert len(narrow.sent) == 5


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e11, "1", True])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            with pytest.raises(ConfigurationError):
                await client.call("echo", timeout=timeout)

    simulate(story, seed=1)


@pytest.mark.parametrize("answer", ["text", None, 5])
def test_what_is_no_bytes_is_an_error_of_the_handler(answer: Any) -> None:
    server = rpc.Server(SERVICE)

    @server.unary
    def plain(_: bytes) -> Any:
        return answer

    @server.unary
    async def waits(_: bytes) -> Any:
        return answer

    async def story(world: World) -> None:
        async with pair_of(world, server) as (_, client):
            for name in ("plain", "waits"):
                with pytest.raises(rpc.CallFailedError) as caught:
                    await client.call(name)
                assert caught.value.error_type == "TypeError"

    simulate(story, seed=1)
