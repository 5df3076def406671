"""What becomes of calls that run when their server closes, and of handlers that go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async import rpc
from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing import simulate
from tests.rpc.test_calls import MDC, UDP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.testing import World

CHANNELS = pytest.mark.parametrize(
    "channel", [UDP, MDC, "aeron:ipc"], ids=["response", "mdc", "ipc"]
)


def make_server(seconds: float, *, heeds: bool = True) -> rpc.Server:
    server = rpc.Server("orders")
    runs: list[bool] = []

    @server.unary
    async def place(request: bytes, call: rpc.ServerCall) -> bytes:
        runs.append(call.is_repeated)
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if heeds:
                    raise
        return b"%d" % len(runs) + request

    @server.server_streaming
    async def listing(_request: bytes) -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.sleep(seconds)
        yield b"2"

    @server.unary
    async def tidies(_request: bytes) -> bytes:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)
        return b"tidied"

    return server


@CHANNELS
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_call_that_grace_cuts_short_is_lost_or_sent_again(
    channel: str,
    idempotent: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, channel, "orders") as client:
            server = make_server(3)
            async with server.serve(bob, channel, grace=0.5):
                await client.wait_connected(5)
                call = asyncio.ensure_future(
                    client.call("place", b"!", timeout=30, idempotent=idempotent)
                )
                await asyncio.sleep(0.1)
            if not idempotent:
                with pytest.raises(rpc.CallLostError, match="the server closed while it ran; it"):
                    await call
                assert client.counts.lost == 1
                return
            async with server.serve(bob, channel):
                assert await call == b"2!"
            assert (client.counts.repeated, client.counts.lost) == (1, 0)

    simulate(story, seed=1)


def test_a_stream_that_grace_cuts_short_is_lost() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, UDP, "orders") as client:
            serving = make_server(60).serve(bob, UDP, grace=0.5)
            await serving.__aenter__()
            async with client.stream("listing", b"") as lines:
                assert await anext(lines) == b"1"
                await serving.__aexit__(None, None, None)
                with pytest.raises(rpc.CallLostError, match="the server closed while it ran"):
                    await anext(lines)

    simulate(story, seed=1)


def test_a_call_is_answered_as_late_as_grace_allows() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, UDP, "orders") as client:
            async with make_server(150).serve(bob, UDP, grace=200):
                await client.wait_connected(5)
                call = asyncio.ensure_future(client.call("place", b"!", timeout=None))
                await asyncio.sleep(0.1)
            assert await call == b"1!"
            assert client.counts.lost == 0

    simulate(story, seed=1)


def test_a_handler_that_answers_when_it_is_cancelled_is_heard() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, UDP, "orders") as client:
            async with make_server(60).serve(bob, UDP, grace=0.5):
                await client.wait_connected(5)
                call = asyncio.ensure_future(client.call("tidies", timeout=30))
                await asyncio.sleep(0.1)
            assert await call == b"tidied"

    simulate(story, seed=1)


@CHANNELS
def test_a_handler_that_goes_on_is_named_and_its_client_answered(channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, channel, "orders") as client:
            with capture_logs() as lines:
                calls: list[asyncio.Future[Any]] = []
                async with make_server(25, heeds=False).serve(bob, channel, grace=0.5) as serving:
                    await client.wait_connected(5)
                    calls += [
                        asyncio.ensure_future(client.call("place", timeout=None)) for _ in range(3)
                    ]
                    await asyncio.sleep(0.1)
                    began_ns = world.now_ns
                    for call in calls:
                        call.add_done_callback(lambda _: ended.append(world.now_ns - began_ns))
                    ended: list[int] = []
                took_ns = world.now_ns - began_ns
            assert all(isinstance(each.exception(), rpc.CallLostError) for each in calls)
            assert max(ended) < 1_000_000_000
            assert 24_000_000_000 < took_ns < 26_000_000_000
            warnings = [each for each in lines if each["event"] == "call_handlers_go_on"]
            assert [(each["methods"], each["count"]) for each in warnings] == [(["place"], 3)] * 3
            assert [round(each["seconds"]) for each in warnings] == [1, 11, 21]
            assert serving.counts.failed == {"UNAVAILABLE": 3}
            assert serving.counts.under_way == 0

    simulate(story, seed=1)


@pytest.mark.parametrize("seconds", [0, 5])
def test_a_handler_that_never_ends_holds_up_no_server_for_ever(seconds: float) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, rpc.Client(bob, UDP, "orders") as client:
            with capture_logs() as lines:
                serving = make_server(60, heeds=False).serve(
                    bob, UDP, grace=0.5, cancel_grace=seconds
                )
                async with serving as opened:
                    await client.wait_connected(5)
                    call = asyncio.ensure_future(client.call("place", timeout=None))
                    await asyncio.sleep(0.1)
                    began_ns = world.now_ns
                assert world.now_ns - began_ns < (seconds + 2) * NS_PER_SECOND
            with pytest.raises(rpc.CallLostError):
                await call
            left = [each for each in lines if each["event"] == "call_handlers_left"]
            assert [(each["methods"], each["count"]) for each in left] == [(["place"], 1)]
            # Its place is free, and what it comes to is of no interest any more.
            async with make_server(0).serve(bob, UDP):
                await client.wait_connected(10)
                assert await client.call("place", b"!", timeout=10) == b"1!"
            assert opened.counts.under_way == 1
            await asyncio.sleep(60)
            assert opened.counts.under_way == 0

    simulate(story, seed=1)


@pytest.mark.parametrize("method", ["waits", "at_once", "with_call"])
@pytest.mark.parametrize("keep_results", [0, 9])
def test_a_handler_whose_own_wait_was_cancelled_has_failed(method: str, keep_results: int) -> None:
    server = rpc.Server("orders")
    runs: list[bytes] = []

    @server.unary
    async def waits(request: bytes) -> bytes:
        runs.append(request)
        other = asyncio.ensure_future(asyncio.sleep(1))
        other.cancel()
        await other
        return request

    @server.unary
    def at_once(request: bytes) -> bytes:
        runs.append(request)
        raise asyncio.CancelledError

    @server.unary
    def with_call(request: bytes, _call: rpc.ServerCall) -> bytes:
        return at_once(request)

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            server.serve(bob, UDP, keep_results=keep_results) as serving,
            rpc.Client(bob, UDP, "orders") as client,
        ):
            await client.wait_connected(5)
            with capture_logs() as logs:
                for idempotent in (False, True):
                    with pytest.raises(rpc.CallFailedError, match="raised CancelledError"):
                        await client.call(method, b"", idempotent=idempotent)
            assert len(runs) == 2, "the server did not close: nothing is sent again"
            assert [each["event"] for each in logs] == 2 * ["call_handler_failed"]
            assert serving.counts.failed == {"UNKNOWN": 2}
            assert serving.counts.results_kept == (1 if keep_results else 0)
            assert (client.counts.failed, client.counts.repeated, client.counts.lost) == (2, 0, 0)

    simulate(story, seed=1)


# Its Aeron is closed, or the driver has gone.


@pytest.mark.parametrize("gone", ["client", "driver"])
def test_a_server_whose_aeron_is_closed_ends_with_the_reason(gone: str) -> None:
    async def story(world: World) -> None:
        server = make_server(60)
        ended: list[str] = []
        async with (
            world.host("bob").driver() as driver,
            aa.Aeron.connect(driver) as aeron,
            world.host("alice").aeron() as alice,
            rpc.Client(alice, UDP, "orders") as client,
        ):

            async def serve() -> None:
                try:
                    async with server.serve(aeron, UDP) as serving:
                        watched.append(asyncio.ensure_future(serving.wait_closed()))
                        await asyncio.Event().wait()
                finally:
                    ended.append("with what it had to do at its end")

            watched: list[asyncio.Future[None]] = []
            running = asyncio.ensure_future(serve())
            await client.wait_connected(5)
            with capture_logs() as lines:
                await (aeron if gone == "client" else driver).aclose()
                with pytest.raises(aa.ClosedError, match=r"'orders' is served no more at .*closed"):
                    await running
                with pytest.raises(aa.ClosedError, match="'orders' is served no more"):
                    await watched[0]
            assert len(ended) == 1
            assert not running.cancelled()
            lost = [each for each in lines if each["event"] == "call_server_lost"]
            assert [(each["service"], each["log_level"]) for each in lost] == [("orders", "error")]
            assert "closed" in lost[0]["reason"]
            assert [each for each in lines if each["event"] == "call_client_rejected"] == []

    simulate(story, seed=1)


def test_a_server_whose_aeron_is_closed_waits_for_no_calls() -> None:
    async def story(world: World) -> None:
        server = rpc.Server("orders")
        began = asyncio.Event()

        @server.unary
        async def sleep(_: bytes) -> bytes:
            began.set()
            await asyncio.sleep(3_600)
            raise AssertionError

        async with (
            world.host("bob").driver() as driver,
            aa.Aeron.connect(driver) as aeron,
            world.host("alice").aeron() as alice,
        ):

            async def serve() -> None:
                async with server.serve(aeron, UDP, grace=600):
                    await began.wait()

            running = asyncio.ensure_future(serve())
            async with rpc.Client(alice, UDP, "orders") as client:
                call = asyncio.ensure_future(client.call("sleep", timeout=None))
                await began.wait()
                await world.sleep(1)
                assert not running.done()
                before_ns = world.now_ns
                await aeron.aclose()
                with pytest.raises(aa.ClosedError, match="'orders' is served no more"):
                    await running
                assert world.now_ns - before_ns < 10 * NS_PER_SECOND
                call.cancel()

    simulate(story, seed=1)


@pytest.mark.parametrize("grace", [0, 1])
def test_a_server_ends_though_the_streams_to_its_clients_have_ended(grace: float) -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            rpc.Client(alice, UDP, "orders") as one,
            rpc.Client(alice, UDP, "orders") as two,
        ):
            async with make_server(1).serve(bob, UDP, grace=grace) as serving:
                for each in (one, two):
                    await each.wait_connected(5)
                for session in serving._sessions.values():
                    session.publication.close()
            assert serving.counts.clients == 0
            async with make_server(1).serve(bob, UDP):
                pass

    simulate(story, seed=1)


def test_a_server_that_is_closed_is_not_lost() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            with capture_logs() as lines:
                async with make_server(1).serve(bob, UDP) as serving:
                    waiting = asyncio.ensure_future(serving.wait_closed())
                    await world.sleep(0.5)
                    assert not waiting.done()
                await waiting
            assert [each for each in lines if each["log_level"] in {"error", "warning"}] == []

    simulate(story, seed=1)


def test_a_server_whose_task_is_cancelled_while_its_aeron_closes_is_cancelled() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").driver() as driver, aa.Aeron.connect(driver) as aeron:

            async def serve() -> None:
                async with make_server(1).serve(aeron, UDP):
                    await asyncio.Event().wait()

            running = asyncio.ensure_future(serve())
            await world.sleep(0.5)
            await aeron.aclose()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    simulate(story, seed=1)
