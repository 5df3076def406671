"""What the gateway knows: the live book, who the engine is, and whose fills are whose.

Between the streams of Aeron and any number of browsers. Nothing here waits for a browser: one that
comes back gets what is now, and what was in between is left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs

import aeron_async as aa
from aeron_async.errors import AeronError, DecodeError, RpcError
from examples.exchange.feed import MarketBook
from examples.exchange.messages import (
    FILL,
    PROGRESS,
    Level,
    Progress,
    decode_full_book,
    decode_market,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async import rpc
    from examples.exchange.messages import Fill, Trade

__all__ = ["Desk", "FillQueue"]

log = logging.getLogger("examples.exchange")

DEPTH: Final = 12
"""Levels of each side that a browser is shown."""
TAPE: Final = 24
FILLS_WAITING_MOST: Final = 256
LISTENERS_MOST: Final = 256
CHECKPOINTS_KEPT: Final = 64
LOOK_S: Final = 0.5
RETRY_S: Final = 0.2


@attrs.define(eq=False)
class FillQueue:
    """The fills of one account that a browser was not sent yet; the oldest go if it is slow.

    Attributes:
        missed_count: How many have gone.
    """

    fills: deque[Fill] = attrs.field(factory=deque)
    missed_count: int = 0
    arrived: asyncio.Event = attrs.field(factory=asyncio.Event)

    def put(self, fill: Fill) -> None:
        """Add a fill."""
        if len(self.fills) == FILLS_WAITING_MOST:
            self.fills.popleft()
            self.missed_count += 1
        self.fills.append(fill)
        self.arrived.set()

    async def take(self) -> list[Fill]:
        """Wait for fills and return all that are there."""
        await self.arrived.wait()
        self.arrived.clear()
        taken = list(self.fills)
        self.fills.clear()
        return taken


class Desk:
    """The state that all browsers share.

    Attributes:
        book: The live book.
        is_engine_up: Whether the engine takes commands.
        engine_losses: How often it was lost.
        undecodable_count: How many messages of market data were none.
        snapshot_count: How many snapshots were needed: one, and another at each gap.
    """

    def __init__(self) -> None:
        self.book = MarketBook()
        self.is_engine_up = False
        self.engine_losses = 0
        self.undecodable_count = 0
        self.snapshot_count = 0
        self._fill_number = 0
        self._changed = {symbol: asyncio.Event() for symbol in self.book.symbols}
        self._screens: dict[str, tuple[int, str]] = {}
        self._listeners: dict[str, list[FillQueue]] = {}
        self._listener_count = 0
        self._checkpoints: dict[str, dict[int, int]] = {"engine": {}, "market": {}}
        self._agreed = 0
        self._differing = 0

    # Market data.

    async def follow_market(self, changes: aa.Subscription, snapshots: aa.Subscription) -> None:
        """Keep the book: by a snapshot, then by each change behind it; again after each gap."""
        while True:
            try:
                async with aa.join_with_snapshot(changes, aa.looped_snapshots(snapshots)) as reader:
                    async for item in reader:
                        self._on_market(item)
            except aa.ClosedError:
                raise
            except AeronError as error:
                # No snapshot joins, for the publisher was away for long; or one is none.
                log.warning("market data begins again: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _on_market(self, item: aa.Snapshot[bytes] | aa.Message) -> None:
        if isinstance(item, aa.Snapshot):
            self.snapshot_count += 1
            self.book.load(decode_full_book(item.data))
            self.on_checkpoint("market", self.book.progress)
            for symbol in self._changed:
                self._announce(symbol)
            return
        try:
            self.on_change(decode_market(item.data))
        except DecodeError:
            # Anyone in the group may send anything.
            self.undecodable_count += 1

    def on_change(self, change: Level | Trade | Progress) -> None:
        """Apply a change, and wake those who show its symbol."""
        self.book.apply(change)
        if isinstance(change, Progress):
            self.on_checkpoint("market", change)
        else:
            self._announce(change.symbol)

    def _announce(self, symbol: str) -> None:
        changed = self._changed.get(symbol)
        if changed is not None:
            self._changed[symbol] = asyncio.Event()
            changed.set()

    async def wait_changed(self, symbol: str, shown: int) -> int:
        """Wait until there is something newer than what is shown; return its version."""
        while self.book.symbols[symbol].version == shown:
            await self._changed[symbol].wait()
        return self.book.symbols[symbol].version

    def screen(self, symbol: str) -> str:
        """Return what a browser shows of a symbol, as JSON: made once, however many show it."""
        book = self.book.symbols[symbol]
        version, text = self._screens.get(symbol, (0, ""))
        if version != book.version:
            shown = {
                "type": "book",
                "symbol": symbol,
                "version": book.version,
                "bids": [pair(each) for each in book.best_first("BUY", DEPTH)],
                "asks": [pair(each) for each in book.best_first("SELL", DEPTH)],
                "trades": [printed(each) for each in list(book.trades)[-TAPE:]],
            }
            text = json.dumps(shown, separators=(",", ":"))
            self._screens[symbol] = (book.version, text)
        return text

    # Fills.

    async def follow_fills(self, engine: rpc.Client) -> None:
        """Hand the fills of the engine to whom they belong; go on when it comes back."""
        while True:
            try:
                request = self._fill_number.to_bytes(8, "little")
                async with engine.stream("fills", request, timeout=None) as fills:
                    async for data in fills:
                        self.on_fill(FILL.decode(data))
            except (RpcError, AeronError) as error:
                log.info("the engine's fills ended: %s", error)
            await asyncio.sleep(RETRY_S)

    def on_fill(self, fill: Fill) -> None:
        """Hand a fill to the browsers of its account."""
        self._fill_number = fill.number
        for each in self._listeners.get(fill.account, ()):
            each.put(fill)

    @contextmanager
    def fills_of(self, account: str) -> Iterator[FillQueue | None]:
        """Collect the fills of an account while the block lasts; None if too many do."""
        if self._listener_count == LISTENERS_MOST:
            yield None
            return
        queue = FillQueue()
        self._listeners.setdefault(account, []).append(queue)
        self._listener_count += 1
        try:
            yield queue
        finally:
            self._listener_count -= 1
            self._listeners[account].remove(queue)
            if not self._listeners[account]:
                del self._listeners[account]

    # The engine, and whether both replicas agree.

    async def watch_engine(self, engine: rpc.Client) -> None:
        """Look twice a second whether the engine is there, and how far it is."""
        while True:
            self.is_engine_up = engine.is_connected
            self.engine_losses = engine.counts.links_lost
            if self.is_engine_up:
                try:
                    answer = await engine.call("progress", timeout=1, idempotent=True)
                    self.on_checkpoint("engine", PROGRESS.decode(answer))
                except RpcError as error:
                    log.info("the engine does not say how far it is: %s", error)
            await asyncio.sleep(LOOK_S)

    def on_checkpoint(self, replica: str, progress: Progress) -> None:
        """Compare a digest with that of the other replica at the same command."""
        mine = self._checkpoints[replica]
        mine[progress.sequence] = progress.digest
        while len(mine) > CHECKPOINTS_KEPT:
            del mine[next(iter(mine))]
        other = self._checkpoints["engine" if replica == "market" else "market"]
        if progress.sequence and progress.sequence in other:
            if other[progress.sequence] == progress.digest:
                self._agreed = max(self._agreed, progress.sequence)
            else:
                self._differing = progress.sequence
                log.error("the replicas differ at command %d", progress.sequence)

    def status(self) -> dict[str, Any]:
        """Return what is said of the exchange itself."""
        return {
            "type": "status",
            "engine": self.is_engine_up,
            "losses": self.engine_losses,
            "agreed": self._agreed,
            "differing": self._differing,
            "snapshots": self.snapshot_count,
            "undecodable": self.undecodable_count,
        }


def pair(level: Level) -> list[int]:
    """Return price, quantity and number of orders."""
    return [level.price, level.quantity, level.orders]


def printed(trade: Trade) -> list[Any]:
    """Return number, time in milliseconds, side of the taker, price and quantity."""
    return [trade.number, trade.time_ns // 1_000_000, trade.taker, trade.price, trade.quantity]
