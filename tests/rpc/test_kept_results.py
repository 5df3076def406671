"""Results that a server keeps: a call that is sent again does not run again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async import rpc
from aeron_async.errors import ConfigurationError
from aeron_async.rpc.kept_results import OVERHEAD, KeptResults
from aeron_async.testing import Conditions, simulate
from tests.rpc.test_calls import SERVICE, UDP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aeron_async.rpc.serving import Serving
    from aeron_async.testing import World


@given(
    lengths=st.lists(st.integers(0, 600), max_size=60),
    limit=st.integers(1, 8),
    limit_bytes=st.integers(1, 3_000),
)
def test_never_more_is_kept_than_the_limits(
    lengths: list[int], limit: int, limit_bytes: int
) -> None:
    async def main() -> None:
        kept = KeptResults(limit, limit_bytes)
        for number, length in enumerate(lengths):
            key = b"%d" % number
            kept.finish(kept.begin(key, 10), bytes(length), number)
            assert len(kept) <= limit
            assert kept.length <= limit_bytes
            newest = kept.find(key, number)
            assert (newest is None) == (length + OVERHEAD > limit_bytes)
            if newest is not None:
                assert newest.answer() == bytes(length)
                assert kept.find(key, number + 19) is newest
        now_ns = len(lengths) + 20
        for number in range(len(lengths)):
            assert kept.find(b"%d" % number, now_ns) is None
        assert (len(kept), kept.length) == (0, 0)

    asyncio.run(main())


@asynccontextmanager
async def kept_pair(
    world: World, server: rpc.Server
) -> AsyncGenerator[tuple[Serving, rpc.Client], None]:
    async with (
        world.host("bob").aeron() as bob,
        world.host("alice").aeron() as alice,
        server.serve(bob, UDP, keep_results=10) as serving,
        rpc.Client(alice, UDP, SERVICE) as client,
    ):
        await client.wait_connected(5)
        yield serving, client


@pytest.mark.parametrize("seed", range(6))
def test_an_idempotent_call_runs_once_though_its_link_is_lost(seed: int) -> None:
    ran: dict[bytes, int] = {}
    server = rpc.Server(SERVICE)

    @server.unary
    async def book(request: bytes) -> bytes:
        ran[request] = ran.get(request, 0) + 1
        await asyncio.sleep(0.05 * (request[-1] % 5))
        if request.endswith(b"7"):
            raise rpc.CallFailedError("no", status=rpc.Status.NOT_FOUND)  # noqa: EM101
        return request * 2

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            server.serve(bob, UDP, keep_results=1_000) as serving,
            rpc.Client(alice, UDP, SERVICE, timeout=20, ping_interval=0.2) as client,
        ):
            world.set_conditions(Conditions(loss=0.05))
            await client.wait_connected(10)
            requests = [b"%d" % number for number in range(60)]
            outcomes: dict[bytes, Any] = {}

            async def call(request: bytes) -> None:
                await asyncio.sleep(0.03 * int(request))
                try:
                    outcomes[request] = await client.call("book", request, idempotent=True)
                except rpc.CallFailedError as error:
                    outcomes[request] = error.status

            tasks = [asyncio.ensure_future(call(each)) for each in requests]
            for pause in (0.3, 0.8):
                await world.sleep(pause + seed / 50)
                link: Any = client._links[0]
                link._break("the test says so")
            await asyncio.gather(*tasks)
            for request in requests:
                wanted: Any = rpc.Status.NOT_FOUND if request.endswith(b"7") else request * 2
                assert outcomes[request] == wanted
            assert max(ran.values()) == 1
            assert client.counts.repeated > 0
            assert serving.counts.repeated > 0
            assert serving.counts.under_way == 0
            assert serving.counts.results_kept > 40

    simulate(story, seed=seed)


def test_a_call_whose_client_is_gone_ends_by_its_deadline() -> None:
    ended: list[str] = []
    server = rpc.Server(SERVICE)

    @server.unary
    async def long(request: bytes) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.decode())
        return b""

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            server.serve(bob, UDP, keep_results=10) as serving,
        ):
            async with rpc.Client(alice, UDP, SERVICE) as client:
                await client.wait_connected(5)
                left = asyncio.ensure_future(client.call("long", b"left", timeout=3))
                idempotent = asyncio.ensure_future(
                    client.call("long", b"kept", timeout=3, idempotent=True)
                )
                await world.sleep(0.1)
                session = next(iter(serving._sessions.values()))
                serving._on_image_gone(session.image)
                await world.sleep(0.1)
                assert ended == ["left"]
                await world.sleep(4)
                assert ended == ["left", "kept"]
                await asyncio.gather(left, idempotent, return_exceptions=True)
            assert serving.counts.under_way == 0

    simulate(story, seed=1)


def test_what_has_expired_makes_room_first_and_is_not_counted() -> None:
    async def main() -> None:
        kept = KeptResults(8, 10_000)
        for number in range(4):
            kept.finish(kept.begin(b"%d" % number, 10), b"", number)
        kept.finish(kept.begin(b"new", 10), b"", 22)
        assert (len(kept), kept.dropped) == (2, 0)
        assert kept.find(b"3", 22) is not None

    asyncio.run(main())


def test_a_kept_error_holds_nothing_of_its_handler() -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []
    server = rpc.Server(SERVICE)

    @server.unary
    async def refuse(_: bytes) -> bytes:
        large = Large()
        held.append(weakref.ref(large))
        raise rpc.CallFailedError(
            "x" * 70_000, status=rpc.Status.NOT_FOUND, error_type="Mine", retry_after_ms=7
        )

    async def story(world: World) -> None:
        async with kept_pair(world, server) as (serving, client):
            keys = []
            for _ in range(2):
                with pytest.raises(rpc.CallFailedError) as caught:
                    await client.call("refuse", idempotent=True)
                assert caught.value.status is rpc.Status.NOT_FOUND
                assert (caught.value.error_type, caught.value.retry_after_ms) == ("Mine", 7)
                keys.append(str(caught.value))
                del caught
                # The second call counts as an attempt of the first.
                link = client._links[0]
                link._next_id = 1
                session = next(iter(serving._sessions.values()))
                session.highest_id = 0
            assert keys[0] == keys[1]
            assert serving.counts.repeated == 1
            assert len(held) == 1
            gc.collect()
            assert held[0]() is None
            assert serving._kept.length < 1_000

    simulate(story, seed=1)


def test_an_attempt_that_waits_for_one_that_is_ended_runs() -> None:
    calls: list[Any] = []
    server = rpc.Server(SERVICE)

    @server.unary
    async def slow(request: bytes, call: Any) -> bytes:
        calls.append(call)
        await asyncio.sleep(3)
        return request

    async def story(world: World) -> None:
        async with kept_pair(world, server) as (serving, client):
            task = asyncio.ensure_future(client.call("slow", b"x", idempotent=True, timeout=20))
            await world.sleep(0.5)
            link: Any = client._links[0]
            link._break("the test says so")
            await world.sleep(1)
            assert len(calls) == 1
            assert serving.counts.under_way == 2
            calls[0].end(rpc.Status.CANCELLED)
            assert await task == b"x"
            assert [each.is_repeated for each in calls] == [False, True]
            counts = serving.counts
            assert (counts.under_way, counts.repeated, counts.results_kept) == (0, 0, 1)

    simulate(story, seed=1)


def test_a_call_that_cannot_be_known_again_is_refused_where_results_are_kept() -> None:
    server = rpc.Server(SERVICE)
    ran: list[bytes] = []
    server.unary(ran.append, name="run")

    async def story(world: World) -> None:
        async with kept_pair(world, server) as (serving, client):
            session = next(iter(serving._sessions.values()))
            session.instance = b""
            with pytest.raises(rpc.CallFailedError, match="HELLO") as caught:
                await client.call("run", idempotent=True)
            assert caught.value.is_never_begun
            assert caught.value.status is rpc.Status.FAILED_PRECONDITION
            assert ran == []
            assert serving.counts.under_way == 0

    simulate(story, seed=1)


def test_a_call_without_a_deadline_whose_client_is_gone_has_a_minute() -> None:
    ended: list[float] = []
    server = rpc.Server(SERVICE)

    async def story(world: World) -> None:
        @server.unary
        async def long(_: bytes) -> bytes:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(world.now_ns / 1e9)
            return b""

        async with kept_pair(world, server) as (serving, client):
            task = asyncio.ensure_future(client.call("long", idempotent=True, timeout=None))
            await world.sleep(0.1)
            session = next(iter(serving._sessions.values()))
            left = world.now_ns / 1e9
            serving._on_image_gone(session.image)
            task.cancel()
            await world.sleep(59)
            assert ended == []
            await world.sleep(2)
            assert ended == [pytest.approx(left + 60, abs=0.1)]
            assert serving.counts.under_way == 0

    simulate(story, seed=1)


def test_a_long_answer_ends_with_its_client_because_its_result_is_kept() -> None:
    server = rpc.Server(SERVICE)

    @server.unary
    async def long(_: bytes) -> bytes:
        return bytes(3_000_000)

    async def story(world: World) -> None:
        async with kept_pair(world, server) as (serving, client):
            task = asyncio.ensure_future(client.call("long", idempotent=True, timeout=None))
            while not serving.counts.results_kept:
                await asyncio.sleep(0)
            assert serving.counts.under_way == 1
            session = next(iter(serving._sessions.values()))
            serving._on_image_gone(session.image)
            await world.sleep(0.01)
            assert serving.counts.under_way == 0
            task.cancel()

    simulate(story, seed=1)


@pytest.mark.parametrize("options", [{"keep_results": -1}, {"keep_results_bytes": 0}])
def test_limits_that_are_none_are_refused(options: dict[str, int]) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            with pytest.raises(ConfigurationError):
                await rpc.Server(SERVICE).serve(bob, UDP, **options).__aenter__()

    simulate(story, seed=1)
