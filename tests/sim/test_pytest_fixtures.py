"""The ready-made fixtures of the plugin for pytest: whole runs of pytest over small files."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aeron_async.testing.services  # noqa: F401 - or each run within this one would import it anew
from tests.sim.runs import Run

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return Run(pytester)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_driver_and_a_pair_of_streams_on_real_sockets(run: Run, mode: str) -> None:
    result = run(
        """
        import aeron_async as aa

        @pytest.mark.asyncio
        async def test_a_message_arrives(aeron, aeron_pair):
            publication, subscription = aeron_pair
            await publication.offer(b"hello", timeout=5)
            assert (await anext(subscription)).data == b"hello"
            assert not type(asyncio.get_running_loop()).__name__.startswith("Virtual")
            # Nobody takes it, and the driver closes at once all the same.
            await publication.offer(b"left", timeout=5)

        @pytest.fixture
        async def own(aeron):
            return aeron

        @pytest.mark.asyncio
        @pytest.mark.aeron(seed=3)
        async def test_sessions_are_those_of_the_seed(aeron):
            publication = await aeron.add_publication("aeron:ipc", 1)
            async with aa.MediaDriver.launch(seed=3) as driver, aa.Aeron.connect(driver) as other:
                again = await other.add_publication("aeron:ipc?term-length=64k", 1)
                assert again.session_id == publication.session_id
        """,
        mode=mode,
    )
    result.assert_outcomes(passed=2)


SERVICE = """
from aeron_async import rpc

orders = rpc.Server("orders")

@orders.unary
async def place(request):
    await asyncio.sleep(0.5)
    return b"placed " + request
"""


def test_a_service_and_its_client_in_a_world(run: Run) -> None:
    result = run(
        SERVICE
        + """
@pytest.mark.aeron(loss=0.1, seed=4)
async def test_it_is_called_through_loss(rpc_pair, world):
    client = await rpc_pair(orders)
    assert [await client.call("place", b"%d" % n, timeout=60) for n in range(20)] == [
        b"placed %d" % n for n in range(20)
    ]
    assert world.now_ns > 10 * 10**9

async def test_it_is_found_again_after_a_restart(rpc_pair, world):
    client = await rpc_pair(orders)
    await world.host("server").restart()
    await client.wait_connected(60)
    assert await client.call("place", b"x", timeout=60) == b"placed x"

async def test_a_server_that_is_cut_off_is_lost(rpc_pair, world, partition):
    client = await rpc_pair(orders)
    call = asyncio.ensure_future(client.call("place", b"x", timeout=60))
    await world.sleep(0.1)
    with partition(world.host("server")):
        with pytest.raises(rpc.CallLostError):
            await call

async def test_two_services_have_two_channels(rpc_pair):
    others = rpc.Server("others")

    @others.unary
    def echo(request):
        return request

    first = await rpc_pair(orders)
    second = await rpc_pair(others, channel="aeron:udp?endpoint=server:7|control=server:8")
    assert await first.call("place", b"x") == b"placed x"
    assert await second.call("echo", b"y") == b"y"

async def test_options_reach_the_client(rpc_pair):
    client = await rpc_pair(orders, timeout=0.1)
    with pytest.raises(rpc.CallTimeoutError):
        await client.call("place", b"x")
"""
    )
    result.assert_outcomes(passed=5)


def test_a_durable_stream_in_a_world(run: Run) -> None:
    result = run(
        """
        async def test_what_was_produced_is_consumed(durable_log):
            async with durable_log.produce("shop") as producer:
                for number in range(20):
                    await producer.append(b"%d" % number)
                assert await producer.flush() == 20
            async with durable_log.consume() as consumer:
                async for batch in consumer.batches():
                    assert batch.records[0].data == b"0"
                    break

        async def test_another_test_has_another_one(durable_log):
            async with durable_log.produce("shop") as producer:
                assert producer.last_sequence == 0
        """
    )
    result.assert_outcomes(passed=2)


def test_market_data_in_a_world(run: Run) -> None:
    result = run(
        """
        import aeron_async as aa
        from aeron_async.testing import Tick

        async def test_a_reader_gets_every_tick(market):
            subscription = await market.subscribe()
            market.start(count=200)
            ticks = [Tick.decode((await anext(subscription)).data) for _ in range(200)]
            await market.wait_over()
            assert ticks == market.sent
            assert {tick.symbol for tick in ticks} == {"ACME", "INIT", "MACE"}
            assert market.latest == {tick.symbol: tick for tick in ticks}

        async def test_a_slow_reader_is_run_over(market, world):
            subscription = await market.subscribe(
                context=aa.DriverContext(over_run_rejoin_interval_ns=10**7)
            )
            market.start(count=4000, rate=2000, encode=lambda tick: tick.encode().ljust(1000))
            reader = subscription.with_gaps()
            async for item in reader:
                if isinstance(item, aa.Gap):
                    break
                await world.sleep(0.05)
            assert item.cause is aa.GapCause.OVER_RUN
            await market.wait_over()

        async def test_it_refuses_what_it_cannot_do(market):
            with pytest.raises(aa.ConfigurationError, match="count"):
                market.start(count=1_000_001)
            with pytest.raises(aa.ConfigurationError, match="rate=0"):
                market.start(rate=0)
            market.start(count=1)
            with pytest.raises(aa.ConfigurationError, match="starts once"):
                market.start()
            await market.wait_over()

        seen = []

        @pytest.mark.parametrize("again", [False, True])
        async def test_the_same_seed_has_the_same_prices(market, again):
            subscription = await market.subscribe("desk")
            market.start(count=50, symbols=["EMCA"])
            await market.wait_over()
            seen.append(market.sent)
            assert seen[0] == market.sent
        """
    )
    result.assert_outcomes(passed=5)


def test_a_test_that_fails_says_its_seed(run: Run) -> None:
    result = run(
        """
        @pytest.mark.aeron(seed=5)
        async def test_it(market):
            assert market.sent
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*run again with --aeron-seed 5"])


def test_real_sockets_and_a_world_are_refused_together(run: Run) -> None:
    result = run(
        """
        async def test_it(world, aeron):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*have real sockets, and a test with a world has none*"])


def test_a_fixture_of_the_user_comes_first(run: Run) -> None:
    result = run(
        """
        @pytest.fixture
        def market():
            return "mine"

        def test_it(market):
            assert market == "mine"
        """
    )
    result.assert_outcomes(passed=1)


def test_who_uses_none_of_them_imports_nothing() -> None:
    code = (
        "import sys, aeron_async.testing.pytest_plugin\n"
        "print([n for n in sys.modules if n.startswith('aeron_async.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['aeron_async.testing', 'aeron_async.testing.pytest_plugin']\n"
