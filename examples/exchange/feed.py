"""A book that is kept by market data: by a snapshot, and by each change behind it.

Both ends keep one: the publisher to make snapshots of it, a reader to show it. A change tells what
is now, and not what is different, so applied twice it does no harm.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

from examples.exchange.book import LEVELS_MOST
from examples.exchange.matching import SYMBOLS, TRADES_KEPT
from examples.exchange.messages import FullBook, Level, Progress, Trade, all_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.exchange.messages import Side

__all__ = ["MarketBook", "SymbolBook"]


@attrs.define
class SymbolBook:
    """What is known of one symbol.

    Attributes:
        levels: Levels by side and price; those without a quantity are not kept.
        prices: Prices of each side, in order.
        trades: The latest trades, the newest last.
        version: Grows with each change.
    """

    levels: dict[tuple[Side, int], Level] = attrs.field(factory=dict)
    prices: dict[Side, list[int]] = attrs.field(factory=lambda: {"BUY": [], "SELL": []})
    trades: deque[Trade] = attrs.field(factory=lambda: deque(maxlen=TRADES_KEPT))
    version: int = 0

    def best_first(self, side: Side, count: int) -> list[Level]:
        """Return the best levels of a side."""
        prices = self.prices[side]
        nearest = prices[-count:][::-1] if side == "BUY" else prices[:count]
        return [self.levels[side, price] for price in nearest]


class MarketBook:
    """The books of all symbols.

    Attributes:
        symbols: What is known of each symbol.
        progress: The last checkpoint of the publisher's replica.
        last_trade: Number of the last trade.
    """

    def __init__(self) -> None:
        self.symbols: Final[dict[str, SymbolBook]] = {}
        self.progress = Progress(0, 0, 0)
        self.last_trade = 0
        self.load(FullBook(self.progress, [], []))

    def load(self, full: FullBook) -> None:
        """Replace all that is known by a snapshot."""
        versions = {symbol: each.version for symbol, each in self.symbols.items()}
        for symbol in SYMBOLS:
            # A version never comes again: a reader compares it with the one that it has shown.
            self.symbols[symbol] = SymbolBook(version=versions.get(symbol, 0) + 1)
        self.last_trade = 0
        for each in all_changes(full):
            self.apply(each)

    def apply(self, change: Level | Trade | Progress) -> None:
        """Apply a change; one that names no symbol of this exchange is left out."""
        if isinstance(change, Progress):
            self.progress = change
            return
        book = self.symbols.get(change.symbol)
        if book is None:
            return
        book.version += 1
        if isinstance(change, Trade):
            if change.number > self.last_trade:
                self.last_trade = change.number
                book.trades.append(change)
            return
        self._set_level(book, change)

    def _set_level(self, book: SymbolBook, level: Level) -> None:
        key, prices = (level.side, level.price), book.prices[level.side]
        is_known = key in book.levels
        if level.quantity:
            if not is_known:
                if len(prices) == LEVELS_MOST:
                    # No book has more: it comes from someone else in the group.
                    return
                insort(prices, level.price)
            book.levels[key] = level
        elif is_known:
            del book.levels[key]
            del prices[bisect_left(prices, level.price)]

    def full(self) -> FullBook:
        """Return all that is known, for a snapshot."""
        return FullBook(self.progress, list(self._levels()), list(self._trades()))

    def _levels(self) -> Iterator[Level]:
        for book in self.symbols.values():
            yield from book.levels.values()

    def _trades(self) -> Iterator[Trade]:
        for book in self.symbols.values():
            yield from book.trades
