"""What a client counts: streams like calls, and nothing twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from tests.rpc.test_calls import SERVICE, UDP, pair, run

if TYPE_CHECKING:
    from aeron_async.testing import World


def test_streams_count_like_calls() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            async with client.stream("count", b"3") as numbers:
                assert client.counts.under_way == 1
                assert len([each async for each in numbers]) == 3
            async with client.stream("total") as total:
                await total.send(b"1")
                await total.reply()
            async with client.stream("count", b"1000") as numbers:
                await anext(numbers)
            with pytest.raises(rpc.CallFailedError):
                async with client.stream("nothing", b"") as nothing:
                    await anext(nothing)
            with pytest.raises(rpc.CallTimeoutError):
                async with client.stream("upper", timeout=0.1) as words:
                    await anext(words)
            counts = client.counts
            assert (counts.answered, counts.cancelled, counts.failed) == (2, 1, 1)
            assert (counts.timed_out, counts.under_way) == (1, 0)
            await world.sleep(0.1)
            assert serving.counts.calls == 5

    run(story)


def test_calls_that_are_over_are_not_queued() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("alice").aeron() as alice,
            rpc.Client(alice, UDP, SERVICE, connect_timeout=60) as client,
        ):
            calls = [asyncio.ensure_future(client.call("echo")) for _ in range(5)]
            await asyncio.sleep(0.1)
            assert client.counts.queued == 5
            for each in calls[:3]:
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each
            assert client.counts.queued == 2
            await asyncio.sleep(6)
            assert client.counts.queued == 0
            assert client.counts.timed_out == 2
            await asyncio.gather(*calls, return_exceptions=True)

    run(story)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_answer_for_a_client_that_its_handler_let_go_is_none(kind: str) -> None:
    server = rpc.Server(SERVICE)
    served: list[rpc.Serving] = []

    @server.unary
    def plain(_request: bytes) -> bytes:
        (serving,) = served
        serving._end_session(next(iter(serving._sessions.values())), "it may not call")
        return b"too late"

    @server.unary(name="async")
    async def at_once(request: bytes) -> bytes:
        return plain(request)

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            server.serve(bob, UDP) as serving,
            rpc.Client(alice, UDP, SERVICE) as client,
        ):
            served.append(serving)
            await client.wait_connected(5)
            with pytest.raises(rpc.CallLostError):
                await client.call(kind, b"", timeout=60)
            counts = serving.counts
            assert (counts.calls, counts.answered, counts.cancelled) == (1, 0, 1)
            assert counts.under_way == 0

    run(story)


def test_calls_that_have_ended_keep_no_payload() -> None:
    """Their deadlines are remembered for longer than they are under way."""

    def held(deadlines: Any) -> int:
        entries = [*deadlines._new, *deadlines._heap]
        return sum(length_of(entry[-1]) for entry in entries)

    def length_of(call: Any) -> int:
        answer = getattr(call, "answer", None)
        result = 0
        if isinstance(answer, asyncio.Future) and answer.done() and not answer.cancelled():
            result = 1_000_000 if answer.exception() else len(answer.result())
        flows = [getattr(call, each, None) for each in ("inflow", "parts")]
        waiting = sum(len(each[0]) for flow in flows if flow is not None for each in flow._queue)
        return result + len(getattr(call, "request", b"")) + waiting

    async def story(world: World) -> None:
        async with pair(world, timeout=60) as (serving, client):
            await client.wait_connected(5)
            await asyncio.gather(*(client.call("echo", bytes(30_000)) for _ in range(40)))
            assert len(await client.call("echo", bytes(200_000))) == 200_000
            await asyncio.gather(*(client.call_all("echo", bytes(30_000)) for _ in range(4)))
            with pytest.raises(rpc.CallFailedError):
                await client.call("nothing", bytes(30_000))
            leaving = asyncio.ensure_future(client.call("never", bytes(30_000)))
            await world.sleep(0.1)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            async with client.stream("count", b"1000") as numbers:
                await anext(numbers)
            async with client.stream("total") as total:
                await total.send(b"1")
                answer = await total.reply()
            assert await total.reply() == answer, "it is asked for again"
            async with client.stream("upper") as words:
                for _ in range(8):
                    await words.send(bytes(8_000))
            await world.sleep(0.5)
            assert len(client._deadlines) > 40
            assert held(client._deadlines) == 0
            assert len(serving._deadlines) > 0
            assert held(serving._deadlines) == 0

    run(story)
