"""Market data over a network that loses, and is cut: the book of a reader becomes the true one."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs

from aeron_async.archive.durable.records import Record, RecordBatch
from aeron_async.testing import Conditions, simulate
from examples.exchange.book import LEVELS_MOST
from examples.exchange.desk import Desk
from examples.exchange.feed import MarketBook
from examples.exchange.market import Market
from examples.exchange.matching import SYMBOLS, Exchange
from examples.exchange.messages import (
    CancelOrder,
    Command,
    Level,
    NewOrder,
    decode_full_book,
    encode_command,
    encode_full_book,
)
from examples.exchange.wiring import CHANGES_STREAM, SNAPSHOTS_STREAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.testing import World
    from examples.exchange.messages import Side

PUBLISHER = "aeron:udp?control=floor:20130|control-mode=dynamic|term-length=256k"
READER = "aeron:udp?endpoint=screen:20131|control=floor:20130|control-mode=dynamic"
COMMANDS = 600
PAUSE_S = 0.05


@attrs.define
class Trades:
    """A log of trades in memory."""

    last_sequence: int = 0
    records: list[bytes] = attrs.field(factory=list)

    async def append(self, data: bytes) -> int:
        self.records.append(data)
        self.last_sequence += 1
        return self.last_sequence


@attrs.define
class Log:
    """A log of commands that come one by one."""

    commands: list[Command]
    pause_s: float = PAUSE_S

    async def batches(self) -> AsyncIterator[RecordBatch]:
        for number, command in enumerate(self.commands, start=1):
            cursor: Any = None
            yield RecordBatch([Record(encode_command(command), cursor, sequence=number)])
            if self.pause_s:
                await asyncio.sleep(self.pause_s)


def some_commands(count: int) -> list[Command]:
    chance = random.Random(3)
    commands: list[Command] = []
    for number in range(1, count + 1):
        account = chance.choice(["ann", "bob"])
        if chance.random() < 0.2:
            commands.append(CancelOrder(account, number, 0, chance.randrange(1, number + 1)))
            continue
        side: Side = chance.choice(("BUY", "SELL"))
        price = chance.randrange(95, 106)
        symbol = chance.choice(SYMBOLS)
        commands.append(NewOrder(account, number, number, symbol, side, "LIMIT", price, 10))
    return commands


async def follow(world: World, desk: Desk) -> None:
    async with (
        world.host("screen").aeron() as aeron,
        aeron.add_subscription(READER, CHANGES_STREAM) as changes,
        aeron.add_subscription(READER, SNAPSHOTS_STREAM) as snapshots,
    ):
        await desk.follow_market(changes, snapshots)


def test_a_reader_that_misses_much_has_the_same_book_in_the_end() -> None:
    desk, trades = Desk(), Trades()
    truth = Exchange()
    commands = some_commands(COMMANDS)
    for number, command in enumerate(commands, start=1):
        truth.apply(number, command)

    async def publish(world: World) -> None:
        async with world.host("floor").aeron() as aeron, AsyncExitStack() as stack:
            market = Market(trades)  # type: ignore[arg-type]
            await market.open(aeron, PUBLISHER, stack)
            await market.follow(Log(commands))  # type: ignore[arg-type]
            assert market.exchange.digest() == truth.digest()
            await world.sleep(30)

    async def story(world: World) -> None:
        screen = world.host("screen")
        world.host("floor")
        publishing = asyncio.create_task(publish(world))
        # Late: there is a book by then.
        await world.sleep(3)
        following = asyncio.create_task(follow(world, desk))
        await world.sleep(5)
        assert desk.snapshot_count == 1
        # The stream goes on without this reader, for longer than it is waited for.
        with world.partitioned(screen):
            await world.sleep(15)
        await world.sleep(30)
        following.cancel()
        await publishing
        await asyncio.wait([following])

    simulate(story, seed=5, conditions=Conditions(loss=0.05))
    assert desk.snapshot_count > 1
    assert sorted(desk.book.full().levels) == sorted(truth.full_book().levels)
    assert desk.book.progress == truth.checkpoint
    assert len(trades.records) == truth.trade_count


async def test_a_new_process_appends_only_trades_that_are_missing() -> None:
    commands = some_commands(200)
    trades = Trades()
    await Market(trades).follow(Log(commands[:120], pause_s=0))  # type: ignore[arg-type]
    before = list(trades.records)
    assert before
    market = Market(trades)  # type: ignore[arg-type]
    await market.follow(Log(commands, pause_s=0))  # type: ignore[arg-type]
    assert trades.records[: len(before)] == before
    assert len(trades.records) == market.exchange.trade_count > len(before)


def test_a_snapshot_of_a_full_book_is_the_book() -> None:
    exchange = Exchange()
    for number, command in enumerate(some_commands(300), start=1):
        exchange.apply(number, command)
    full = exchange.full_book()
    assert decode_full_book(encode_full_book(full)) == full


def test_a_book_has_no_more_levels_than_a_publisher_can_tell_of() -> None:
    """Anyone in the group may send levels, as many as there are prices."""
    book = MarketBook()
    for price in range(1, LEVELS_MOST + 100):
        book.apply(Level("AERN", "BUY", price, 5, 1))
    book.apply(Level("AERN", "BUY", 7, 6, 1))
    known = book.symbols["AERN"]
    assert len(known.levels) == len(known.prices["BUY"]) == LEVELS_MOST
    assert known.levels["BUY", 7].quantity == 6
    book.apply(Level("AERN", "BUY", 7, 0, 0))
    book.apply(Level("AERN", "BUY", LEVELS_MOST + 50, 5, 1))
    assert len(known.levels) == len(known.prices["BUY"]) == LEVELS_MOST
    assert known.best_first("BUY", 1)[0].price == LEVELS_MOST + 50
