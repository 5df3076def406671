"""Services in a world, without the plugin for pytest: `simulate` and a story."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.errors import ConfigurationError, NoServerError
from aeron_async.testing import Market, Tick, simulate
from aeron_async.testing.services import durable_log, rpc_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.testing import World


def test_a_service_is_served_again_after_each_restart() -> None:
    service = rpc.Server("echo")
    service.unary(lambda request: request, name="echo")

    async def story(world: World) -> None:
        async with rpc_pair(world, service, connect_timeout=30) as client:
            for _ in range(3):
                assert await client.call("echo", b"x", timeout=60) == b"x"
                await world.host("server").restart()
                # A server that ends says so, and calls fail until it is back.
                await client.wait_connected(60)

    simulate(story)


def test_a_server_that_cannot_be_reached_is_told() -> None:
    async def story(world: World) -> None:
        world.host("client")
        world.partition(world.host("server"))
        with pytest.raises(NoServerError, match="within 30 s"):
            async with rpc_pair(world, rpc.Server("echo")):
                pytest.fail("it is cut off")

    simulate(story)


def test_a_log_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    async def story(world: World) -> int:
        async with durable_log(world, tmp_path) as log, log.produce("shop") as producer:
            await producer.append(b"an order", durable=True)
            return producer.last_sequence

    assert [simulate(story), simulate(story, seed=1)] == [1, 2]


def test_a_market_tells_every_subscriber_the_same() -> None:
    async def story(world: World) -> list[Tick]:
        async with aclosing(Market(world)) as market:
            readers = [await market.subscribe(name) for name in ("desk", "screen")]
            await (await market.subscribe("one that leaves before it begins")).aclose()
            market.start(count=100, rate=100, symbols=["ACME", "INIT"])
            told = [
                [tick async for tick in limited(aiter(reader.typed(Tick)), 100)]
                for reader in readers
            ]
            await market.wait_over()
            await world.host("tape").restart()
            await world.sleep(1)
            assert told == [market.sent] * 2
            assert market.latest["ACME"] == [x for x in market.sent if x.symbol == "ACME"][-1]
            assert 0.9e9 < world.now_ns < 3e9
            with pytest.raises(ConfigurationError, match="starts once"):
                market.start()
            return market.sent

    assert simulate(story, seed=1) == simulate(story, seed=1) != simulate(story, seed=2)


async def limited(values: AsyncIterator[Tick], count: int) -> AsyncIterator[Tick]:
    """Yield so many values."""
    for _ in range(count):
        yield await anext(values)


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 1_000_001}, {"rate": 0.0}, {"symbols": []}]
)
def test_a_market_refuses_what_it_cannot_do(wrong: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Market(world).start(**wrong)

    simulate(story)


def test_a_tick_survives_its_text() -> None:
    tick = Tick(7, "ACME", 100.25)
    assert tick.encode() == b"7 ACME 100.25"
    assert Tick.decode(memoryview(tick.encode())) == tick
    with pytest.raises(ValueError, match="not enough values"):
        Tick.decode(b"7")
