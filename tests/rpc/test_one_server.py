"""One server at a channel and stream: a second one is refused, and a client notices two."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from unittest.mock import Mock, patch

import attrs
import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async import rpc
from aeron_async._speedups import WHY_PURE
from aeron_async.clock import NS_PER_SECOND
from aeron_async.counters import CountersManager
from aeron_async.errors import ConfigurationError, RegistrationError
from aeron_async.health import not_ready
from aeron_async.metrics import MetricsText
from aeron_async.rpc.service_claim import (
    CLAIM_TYPE_ID,
    CLAIMING,
    SERVING,
    SILENT_MOST_NS,
    claim_service,
)
from aeron_async.rpc.wiring import Wiring
from aeron_async.testing import simulate
from tests.rpc.test_calls import MDC, UDP

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.counters import CounterRecord
    from aeron_async.rpc.serving import Serving
    from aeron_async.testing import World
    from aeron_async.testing.host import Host

CHANNELS = pytest.mark.parametrize(
    "channel", [UDP, MDC, "aeron:ipc"], ids=["response", "mdc", "ipc"]
)

needs_directory = pytest.mark.skipif(
    WHY_PURE is not None, reason=f"an Aeron directory needs compiled code, and {WHY_PURE}"
)
CLAIM_KEY = (1_001).to_bytes(4, "little") + (1_002).to_bytes(4, "little") + b"aeron:ipc"


def make_server(service: str = "orders") -> rpc.Server:
    server = rpc.Server(service)

    @server.unary
    def who(request: bytes) -> bytes:
        return service.encode() + request

    return server


@CHANNELS
def test_a_second_server_of_a_driver_is_refused(channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, make_server().serve(bob, channel):
            with pytest.raises(ConfigurationError) as caught:
                async with make_server("trades\x1b[2J").serve(bob, channel):
                    raise AssertionError
            text = str(caught.value)
            assert text.startswith(r"'trades\\x1b[2J' cannot be served at ")
            assert f"{channel} with stream_id=1001: 'rpc-server: orders 1001 " in text
            assert "stream_id=1003" in text
            async with (
                make_server("trades").serve(bob, channel, stream_id=1_003),
                rpc.Client(bob, channel, "orders") as orders,
                rpc.Client(bob, channel, "trades", stream_id=1_003) as trades,
            ):
                assert await orders.call("who", b"1") == b"orders1"
                assert await trades.call("who", b"2") == b"trades2"

    simulate(story, seed=1)


@CHANNELS
def test_a_place_is_free_again_when_its_server_ends(channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            for _ in range(3):
                async with make_server().serve(bob, channel):
                    assert len(list(bob.counters.ids_of(CLAIM_TYPE_ID))) == 1
                await asyncio.sleep(0.01)
                assert not list(bob.counters.ids_of(CLAIM_TYPE_ID))

    simulate(story, seed=1)


def test_another_name_of_an_address_is_no_way_around() -> None:
    async def story(world: World) -> None:
        bob = world.host("bob")
        same = UDP.replace("endpoint=bob", f"endpoint={bob.address}")
        async with bob.aeron() as aeron, make_server().serve(aeron, UDP):
            with pytest.raises(RegistrationError, match="Address already in use"):
                await make_server().serve(aeron, same).__aenter__()
            other = UDP.replace("20121", "20131").replace("20122", "20132")
            async with make_server().serve(aeron, other):
                pass

    simulate(story, seed=1)


@pytest.mark.parametrize(("channel", "is_refused"), [(UDP, False), ("aeron:ipc", True)])
def test_requests_and_answers_of_two_services_meet_over_ipc_only(
    channel: str,
    is_refused: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, make_server().serve(bob, channel):
            second = make_server("trades").serve(bob, channel, stream_id=1_002)
            if is_refused:
                with pytest.raises(ConfigurationError, match="stream_id=1004 here"):
                    await second.__aenter__()
                return
            async with second, rpc.Client(bob, channel, "trades", stream_id=1_002) as client:
                assert await client.call("who", b"1") == b"trades1"

    simulate(story, seed=1)


@pytest.mark.parametrize("count", [2, 5])
def test_of_servers_that_begin_together_one_serves(count: int) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            done = asyncio.Event()

            async def serve() -> bool:
                try:
                    async with make_server().serve(bob, UDP):
                        await done.wait()
                except ConfigurationError:
                    return False
                return True

            tasks = [asyncio.ensure_future(serve()) for _ in range(count)]
            await asyncio.sleep(2)
            done.set()
            assert sorted(await asyncio.gather(*tasks)) == [False] * (count - 1) + [True]

    simulate(story, seed=1)


def test_a_claim_gives_way_to_an_older_one_and_waits_for_a_newer_one() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            wiring = Wiring("aeron:ipc", 1_001, None)
            older = await bob.add_counter(CLAIM_TYPE_ID, "older", CLAIM_KEY)
            with pytest.raises(ConfigurationError, match="'older' has it"):
                await claim_service(bob, "orders", wiring, "", on_wait=list)
            older.close()
            for fate in (SERVING, CLAIMING, None):
                claim = asyncio.ensure_future(
                    claim_service(bob, "orders", wiring, "", on_wait=list)
                )
                await asyncio.sleep(0)
                newer = await bob.add_counter(CLAIM_TYPE_ID, "newer", CLAIM_KEY)
                if not claim.done():
                    newer.set(fate or CLAIMING)
                    if fate is None:
                        newer.close()
                await asyncio.wait([claim])
                if claim.exception() is None:
                    claim.result().close()
                else:
                    assert "'newer' has it" in str(claim.exception())
                newer.close()

    simulate(story, seed=1)


@needs_directory
@pytest.mark.parametrize("media", ["udp", "ipc"])
async def test_a_second_process_at_one_driver_is_refused(
    tmp_path: Path, unused_udp_port: int, media: str
) -> None:
    context = aa.DriverContext(
        aeron_directory=str(tmp_path / "aeron"),
        counters_buffer_length=1 << 20,
        close_linger_timeout_ns=0,
    )
    udp = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|control=127.0.0.1:0"
    channel = "aeron:ipc" if media == "ipc" else udp
    async with aa.MediaDriver.launch(context) as driver:
        one = aa.Aeron.connect(directory=driver.context.aeron_directory, context=context)
        two = aa.Aeron.connect(directory=driver.context.aeron_directory, context=context)
        async with one, two:
            async with make_server().serve(one, channel):
                with pytest.raises(ConfigurationError, match="'rpc-server: orders 1001 aeron:"):
                    await make_server().serve(two, channel).__aenter__()
                assert not_ready(two.stats()) == []
            async with make_server().serve(two, channel):
                pass


SERVE = """
import asyncio, sys
import aeron_async as aa
from aeron_async import rpc

async def main():
    async with aa.Aeron.connect(directory=sys.argv[1]) as aeron:
        async with rpc.Server("orders").serve(aeron, "aeron:ipc"):
            print("up", flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@needs_directory
async def test_the_claim_of_a_killed_server_is_waited_for(tmp_path: Path) -> None:
    context = aa.DriverContext(
        aeron_directory=str(tmp_path / "aeron"),
        counters_buffer_length=1 << 20,
        # On a slow machine no client is forgotten but the one of which the test says so.
        client_liveness_timeout_ns=600 * NS_PER_SECOND,
        publication_unblock_timeout_ns=900 * NS_PER_SECOND,
        close_linger_timeout_ns=0,
    )
    async with aa.MediaDriver.launch(context) as driver:
        directory = str(driver.context.aeron_directory)
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVE, directory, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert killed.stdout is not None
            assert await killed.stdout.readline() == b"up\n"
        finally:
            killed.kill()
            await killed.wait()
        adapter = driver.conductor.adapter
        assert adapter is not None
        [silent] = adapter._clients.values()
        async with aa.Aeron.connect(directory=directory, context=context) as aeron:
            waits: list[tuple[str, str, str]] = []

            def on_warning(event: str, *, service: str, server: str, holder: str) -> None:
                waits.append((event, service, server))
                assert holder == "rpc-server: orders 1001 aeron:ipc"
                silent._heard_ns -= 2 * context.client_liveness_timeout_ns

            with patch("aeron_async.rpc.service_claim.log", Mock(warning=on_warning)):
                async with (
                    make_server("trades").serve(aeron, "aeron:ipc"),
                    rpc.Client(aeron, "aeron:ipc", "trades", connect_timeout=60) as client,
                ):
                    assert await client.call("who", b"!", timeout=60) == b"trades!"
            assert waits == [("call_server_waits", "trades", "aeron:ipc")]


@needs_directory
async def test_a_client_whose_driver_has_gone_says_so(tmp_path: Path) -> None:
    context = aa.DriverContext(aeron_directory=str(tmp_path / "aeron"), close_linger_timeout_ns=0)
    async with aa.MediaDriver.launch(context) as driver:
        aeron = aa.Aeron.connect(directory=driver.context.aeron_directory, context=context)
        async with aeron, rpc.Client(aeron, "aeron:ipc", "orders", connect_timeout=60) as client:
            call = asyncio.ensure_future(client.call("who", timeout=None))
            await asyncio.sleep(0)
            await driver.aclose()
            with pytest.raises(
                rpc.NoServerError, match=r"its Aeron is closed \(.* driver was closed"
            ):
                await call


def test_a_claim_without_a_sign_of_life_is_not_waited_for_without_end() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").driver() as driver,
            aa.Aeron.connect(driver) as bob,
            aa.Aeron.connect(driver) as other,
        ):
            claim = await other.add_counter(CLAIM_TYPE_ID, "silent", CLAIM_KEY)
            claim.set(SERVING)
            stands_still = attrs.evolve(bob.counters.record(claim.id), value=1)
            with patch.object(CountersManager, "find", lambda *_, **__: stands_still):
                began_ns, wiring = world.now_ns, Wiring("aeron:ipc", 1_001, None)
                with pytest.raises(ConfigurationError, match="'silent' has it"):
                    await claim_service(bob, "orders", wiring, "", on_wait=list)
            assert world.now_ns - began_ns >= SILENT_MOST_NS

    simulate(story, seed=1)


# A server without clients is ready.


@CHANNELS
@pytest.mark.parametrize("alias", ["", "alias=mine"])
def test_a_server_that_waits_for_its_first_client_is_ready(channel: str, alias: str) -> None:
    uri = channel + ("?" if "?" not in channel else "|") + alias if alias else channel

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, make_server().serve(bob, uri):
            await asyncio.sleep(1)
            assert not_ready(bob.stats()) == []
            assert not_ready(bob.stats(), expect=[1_001]) != []
            labels = 'alias="rpc-server/mine"' if alias else 'alias="rpc-server"'
            images = [
                each
                for each in MetricsText().render(bob.stats()).splitlines()
                if each.startswith("aeron_images{")
            ]
            assert len(images) == 1
            assert labels in images[0]
            async with rpc.Client(bob, uri, "orders") as client:
                assert await client.call("who", b"1") == b"orders1"
                assert not_ready(bob.stats()) == []
            other = await bob.add_subscription("aeron:ipc?alias=rpc-servers", 7)
            assert len(not_ready(bob.stats())) == 1
            other.close()

    simulate(story, seed=1)


# What a client notices.


async def serve_unseen(stack: AsyncExitStack, bob: aa.Aeron, service: str) -> Serving:
    """Open a server whose claim no other server sees."""
    serving = await stack.enter_async_context(make_server(service).serve(bob, "aeron:ipc"))
    serving._claim.close()
    await asyncio.sleep(0.01)
    return serving


def test_a_client_that_two_servers_answer_calls_neither() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, AsyncExitStack() as stack:
            one, two = [await serve_unseen(stack, bob, "orders") for _ in range(2)]
            with capture_logs() as lines:
                async with rpc.Client(bob, "aeron:ipc", "orders") as client:
                    await asyncio.sleep(5)
                    for _ in range(20):
                        with pytest.raises(rpc.NoServerError, match="two servers answer"):
                            await client.call("who")
                        await asyncio.sleep(0.3)
                    assert one.counts.calls == two.counts.calls == 0
                    assert not client.is_connected
                    await two.aclose()
                    await client.wait_connected(10)
                    assert await client.call("who", b"!") == b"orders!"
            refusals = [each for each in lines if each["event"] == "call_link_refused"]
            assert [each["service"] for each in refusals] == ["orders"]

    simulate(story, seed=1)


@pytest.mark.parametrize("gives_way", [True, False])
def test_a_claim_that_waits_for_a_silent_one_is_patient_with_a_newer_one(
    gives_way: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").driver() as driver,
            aa.Aeron.connect(driver) as bob,
            aa.Aeron.connect(driver) as dead,
            aa.Aeron.connect(driver) as late,
        ):
            silent = await dead.add_counter(CLAIM_TYPE_ID, "silent", CLAIM_KEY)
            silent.set(SERVING)
            record = bob.counters.record(silent.id)

            def beat(_: object, *, registration_id: int, **__: object) -> CounterRecord:
                is_dead = registration_id == record.owner_id
                return attrs.evolve(record, value=1 if is_dead else world.now_ns)

            with patch.object(CountersManager, "find", beat):
                wiring = Wiring("aeron:ipc", 1_001, None)
                claim = asyncio.ensure_future(
                    claim_service(bob, "orders", wiring, "", on_wait=list)
                )
                await world.sleep(5)
                newer = await late.add_counter(CLAIM_TYPE_ID, "newer", CLAIM_KEY)
                await world.sleep(0.8)
                if gives_way:
                    newer.close()
                await world.sleep(2)
                assert claim.done() is not gives_way
                silent.close()
                if gives_way:
                    (await claim).close()
                else:
                    with pytest.raises(ConfigurationError, match="'newer' has it"):
                        await claim

    simulate(story, seed=1)


def test_a_server_that_waits_runs_no_call_of_that_time() -> None:
    ran: list[bytes] = []
    server = rpc.Server("orders")

    @server.unary
    def place(request: bytes) -> bytes:
        ran.append(request)
        return request

    async def story(world: World) -> None:
        async with (
            world.host("bob").driver() as driver,
            aa.Aeron.connect(driver) as bob,
            aa.Aeron.connect(driver) as alice,
            server.serve(alice, "aeron:ipc") as killed,
            rpc.Client(bob, "aeron:ipc", "orders", ping_interval=5) as client,
        ):
            await client.wait_connected(5)
            assert await client.call("place", b"first") == b"first"
            assert killed._subscription is not None
            killed._subscription.on_message(lambda _: None)
            stands_still = attrs.evolve(bob.counters.record(killed._claim.id), value=1)

            async def serve_again() -> None:
                async with server.serve(bob, "aeron:ipc"):
                    await client.wait_connected(30)
                    assert await client.call("place", b"last", timeout=30) == b"last"

            with patch.object(CountersManager, "find", lambda *_, **__: stands_still):
                again = asyncio.ensure_future(serve_again())
                await world.sleep(0.1)
                with pytest.raises(rpc.CallTimeoutError):
                    await client.call("place", b"late", timeout=1)
                await world.sleep(5)
                killed._claim.close()
                await again
            assert ran == [b"first", b"last"]

    simulate(story, seed=1)


@pytest.mark.parametrize("channel", [UDP, MDC], ids=["response", "mdc"])
def test_a_server_that_was_killed_and_is_back_is_not_taken_for_two(channel: str) -> None:
    async def serve(host: Host) -> None:
        async with host.aeron() as bob, make_server().serve(bob, channel):
            await asyncio.get_running_loop().create_future()

    async def story(world: World) -> None:
        bob = world.host("bob")
        bob.start(serve)
        async with (
            world.host("alice").aeron() as alice,
            rpc.Client(alice, channel, "orders") as client,
        ):
            await client.wait_connected(5)
            with capture_logs() as lines:
                await bob.crash()
                await world.sleep(0.2)
                await bob.restart()
                outcomes: list[bytes | type[Exception]] = []
                for _ in range(60):
                    await world.sleep(0.05)
                    try:
                        outcomes.append(await client.call("who", b"!", timeout=2))
                    except rpc.RpcError as error:
                        outcomes.append(type(error))
            assert outcomes[-1] == b"orders!"
            assert [each for each in outcomes if each != b"orders!"] == [rpc.CallLostError]
            events = [each["event"] for each in lines]
            assert "call_link_refused" not in events
            assert events.count("call_link_lost") == 1
            assert client.counts.links_lost == 1

    simulate(story, seed=3)


def test_a_client_says_that_it_looks_whether_a_server_is_the_only_one() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            rpc.Client(bob, "aeron:ipc", "orders", connect_timeout=0.3) as client,
        ):
            client._links[0]._is_crowded = True
            async with make_server().serve(bob, "aeron:ipc"):
                with pytest.raises(rpc.NoServerError, match="is the only one is not known"):
                    await client.call("who")
                await client.wait_connected(0.3)
                assert await client.call("who", b"!") == b"orders!"

    simulate(story, seed=1)


@pytest.mark.parametrize("channel", [UDP, MDC, "aeron:ipc"], ids=["response", "mdc", "ipc"])
def test_a_client_of_another_service_learns_so_at_once(channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, make_server("orders\n").serve(bob, channel):
            with capture_logs() as lines:
                async with rpc.Client(bob, channel, "order", connect_timeout=60) as client:
                    began_ns = world.now_ns
                    with pytest.raises(rpc.NoServerError) as caught:
                        await client.call("who", timeout=None)
                    assert str(caught.value) == (
                        f"who: no server of 'order' at {channel} stream_id=1001: "
                        r"this is 'orders\n', not 'order'"
                    )
                    with pytest.raises(rpc.NoServerError, match="not 'order'"):
                        await client.wait_connected()
                    assert world.now_ns - began_ns < 2_000_000_000
                    await asyncio.sleep(10)
            assert sum(each["event"] == "call_link_refused" for each in lines) == 1

    simulate(story, seed=1)


def test_a_timeout_of_wait_connected_names_its_own_limit() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("alice").aeron() as alice,
            rpc.Client(alice, UDP, "orders") as client,
        ):
            with pytest.raises(rpc.NoServerError) as caught:
                await client.wait_connected(0.5)
            assert str(caught.value) == (
                f"no server of 'orders' at {UDP} stream_id=1001 within 0.5 s; "
                "raise the timeout of wait_connected to wait"
            )

    simulate(story, seed=1)
