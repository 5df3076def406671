"""Market data: a second replica of the exchange, which reads the log and publishes what changes.

It applies the commands of the log by the same rules as the engine, so it has the same books without
asking for them; its digests prove it. What changes goes to a group by multicast. Late readers join
by snapshots on a stream of their own, and readers that want only the best prices have a third one.
Each trade is also appended to a log of trades, once, whatever is killed: the number of a trade is
its sequence there, so a new process knows which ones it has.

Invariant: a change is published after it is recorded, and in the order of the log.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import aeron_async as aa
from aeron_async import rpc
from examples.exchange.feed import MarketBook
from examples.exchange.matching import Exchange
from examples.exchange.messages import (
    LEVEL,
    PROGRESS,
    QUOTE,
    TRADE,
    FullBook,
    decode_command,
    decode_market,
    encode_full_book,
)
from examples.exchange.wiring import (
    CHANGES_STREAM,
    COMMANDS_STREAM,
    QUOTES_STREAM,
    SERVICE,
    SNAPSHOTS_STREAM,
    TRADES_STREAM,
    Wiring,
    as_program,
)

if TYPE_CHECKING:
    from aeron_async.archive.durable.consumer import Consumer
    from aeron_async.archive.durable.producer import Producer
    from examples.exchange.matching import Effects

__all__ = ["Market"]

SNAPSHOT_S: Final = 0.25
"""Seconds between two snapshots: half of it is what a late reader waits for on average."""
BEAT_S: Final = 0.5
ENGINE_PATIENCE_S: Final = 30.0


class Market:
    """Publishes what the commands of the log lead to.

    Args:
        trades: Appends to the log of trades.

    Attributes:
        exchange: The replica.
    """

    def __init__(self, trades: Producer) -> None:
        self.exchange = Exchange()
        self._trades = trades
        self._book = MarketBook()
        self._server: aa.SnapshotServer[FullBook] | None = None
        self._quotes: aa.Publication | None = None

    async def open(self, aeron: aa.Aeron, channel: str, stack: AsyncExitStack) -> None:
        """Begin to publish; before, commands are applied without telling anyone."""
        # A spy counts as a reader, so that changes pass although no one else is there.
        changes = await stack.enter_async_context(
            aeron.add_exclusive_publication(f"{channel}|ssc=true", CHANGES_STREAM)
        )
        spy = await stack.enter_async_context(
            aeron.add_subscription(f"aeron-spy:{channel}", CHANGES_STREAM)
        )
        spy.on_message(lambda _: None)
        snapshots = await stack.enter_async_context(
            aeron.add_exclusive_publication(channel, SNAPSHOTS_STREAM)
        )
        self._quotes = await stack.enter_async_context(
            aeron.add_exclusive_publication(channel, QUOTES_STREAM)
        )
        self._server = server = aa.SnapshotServer(
            changes,
            apply=lambda change: self._book.apply(decode_market(change)),
            dump=self._book.full,
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for work in (
            server.loop(snapshots, interval=SNAPSHOT_S, encode=encode_full_book),
            self._beat(server),
        ):
            stack.callback(tasks.create_task(work).cancel)

    async def _beat(self, server: aa.SnapshotServer[FullBook]) -> None:
        """Repeat the last checkpoint: readers learn of a new publisher by its first message."""
        while True:
            await asyncio.sleep(BEAT_S)
            await server.publish(PROGRESS.encode(self.exchange.checkpoint))

    async def follow(self, log: Consumer, *, until: int | None = None) -> None:
        """Apply what the log has, up to a command, or for ever."""
        if until == 0:
            return
        async for batch in log.batches():
            for record in batch.records:
                assert record.sequence is not None, "no one else publishes on this stream"
                before = self.exchange.checkpoint
                effects = self.exchange.apply(record.sequence, decode_command(record.data))
                await self._tell(effects, is_checkpoint=before is not self.exchange.checkpoint)
            if until is not None and self.exchange.sequence >= until:
                return

    async def _tell(self, effects: Effects, *, is_checkpoint: bool) -> None:
        for trade in effects.trades:
            # After a restart the first ones are in the log already.
            if trade.number > self._trades.last_sequence:
                sequence = await self._trades.append(TRADE.encode(trade))
                assert sequence == trade.number, f"trade {trade.number} is record {sequence}"
        server = self._server
        if server is None:
            for made in effects.trades:
                self._book.apply(made)
            for changed in effects.levels:
                self._book.apply(changed)
            self._book.apply(self.exchange.checkpoint)
            return
        for trade in effects.trades:
            await server.publish(TRADE.encode(trade))
        for level in effects.levels:
            await server.publish(LEVEL.encode(level))
        if is_checkpoint:
            await server.publish(PROGRESS.encode(self.exchange.checkpoint))
        if effects.levels and self._quotes is not None:
            # The newest one is all that matters: without room, the next one will do.
            quote = self.exchange.quote(effects.levels[0].symbol)
            self._quotes.try_offer(QUOTE.encode(quote))


async def recorded_so_far(aeron: aa.Aeron, wiring: Wiring) -> int:
    """Ask the engine for the number of its last checkpoint: those behind are told as changes."""
    async with rpc.Client(
        aeron, wiring.engine, SERVICE, name="market", connect_timeout=ENGINE_PATIENCE_S
    ) as client:
        answer = await client.call("progress", idempotent=True, timeout=ENGINE_PATIENCE_S)
    return PROGRESS.decode(answer).sequence


async def main(wiring: Wiring) -> None:
    """Read what is recorded in silence, then publish whatever comes."""
    async with (
        wiring.client("market") as aeron,
        wiring.log(aeron, wiring.commands, COMMANDS_STREAM) as commands,
        wiring.log(aeron, wiring.trades, TRADES_STREAM) as trades,
        trades.produce("market") as producer,
        AsyncExitStack() as stack,
    ):
        market = Market(producer)
        until = await recorded_so_far(aeron, wiring)
        consumer = await stack.enter_async_context(commands.consume())
        await market.follow(consumer, until=until)
        await market.open(aeron, wiring.market, stack)
        print("ready", flush=True)
        await market.follow(consumer)


if __name__ == "__main__":
    as_program("market", main)
