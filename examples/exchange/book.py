"""The order book of one symbol: limit orders by price, and within a price by time.

Integers only, and nothing from outside: the same calls lead to the same book, on any machine.

Invariants: the best bid is below the best ask; a level has at least one order, and its quantity is
the sum of theirs; an order that has not traded keeps its place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from examples.exchange.messages import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.exchange.messages import Side

__all__ = ["LEVELS_MOST", "Book", "BookLevel", "Match", "Order", "opposite"]

LEVELS_MOST: Final = 1_000
"""Most prices of one side."""


@attrs.define(eq=False)
class Order:
    """An order; `remaining` is what has not traded yet."""

    order_id: int
    account: str
    side: Side
    price: int
    remaining: int


@attrs.define
class BookLevel:
    """The orders at one price, the oldest first: a dictionary keeps the order of insertion."""

    price: int
    quantity: int = 0
    orders: dict[int, Order] = attrs.field(factory=dict)


class Match(NamedTuple):
    """A part of an incoming order that traded with one that rested, at the price of that one."""

    maker: Order
    quantity: int


def opposite(side: Side) -> Side:
    """Return the side that a side trades with."""
    return "SELL" if side == "BUY" else "BUY"


class BookSide:
    """The bids or the asks; prices are kept in order, the best one last."""

    def __init__(self, side: Side) -> None:
        # Negative asks: so the best price is the greatest one on both sides.
        self.sign = 1 if side == "BUY" else -1
        self.keys: list[int] = []
        self.levels: dict[int, BookLevel] = {}

    @property
    def best(self) -> BookLevel | None:
        """Return the level that trades first."""
        return self.levels[self.keys[-1]] if self.keys else None

    def is_reached_by(self, price: int) -> bool:
        """Return whether an order of the other side with this limit trades with the best level."""
        return bool(self.keys) and self.keys[-1] >= price * self.sign

    def add(self, order: Order) -> BookLevel:
        """Put an order behind those of its price."""
        key = order.price * self.sign
        level = self.levels.get(key)
        if level is None:
            level = self.levels[key] = BookLevel(order.price)
            insort(self.keys, key)
        level.orders[order.order_id] = order
        level.quantity += order.remaining
        return level

    def reduce(self, level: BookLevel, order: Order, quantity: int) -> None:
        """Take a quantity from an order; without a rest the order leaves, and so does the level."""
        order.remaining -= quantity
        level.quantity -= quantity
        if order.remaining == 0:
            del level.orders[order.order_id]
        if not level.orders:
            key = level.price * self.sign
            del self.levels[key]
            del self.keys[bisect_left(self.keys, key)]

    def __iter__(self) -> Iterator[BookLevel]:
        """Iterate over the levels, the best first."""
        return (self.levels[key] for key in reversed(self.keys))


class Book:
    """The book of one symbol.

    Attributes:
        symbol: Its symbol.
        last: Price of the last trade; 0 before the first.
        changed: Prices whose level has changed, by side, since `take_changes`.
    """

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.last = 0
        self.sides: Final[dict[Side, BookSide]] = {"BUY": BookSide("BUY"), "SELL": BookSide("SELL")}
        self.changed: dict[tuple[Side, int], None] = {}

    def has_room(self, side: Side, price: int) -> bool:
        """Return whether an order may rest at a price."""
        found = self.sides[side]
        return len(found.keys) < LEVELS_MOST or price * found.sign in found.levels

    def match(self, order: Order, *, limit: int | None) -> list[Match]:
        """Trade an incoming order as far as possible, the best price and the oldest order first.

        Args:
            order: The order, which is not in the book.
            limit: Worst price that it takes; None for any.
        """
        side = self.sides[opposite(order.side)]
        matches: list[Match] = []
        while order.remaining and (limit is None or side.is_reached_by(limit)):
            level = side.best
            if level is None:
                break
            maker = next(iter(level.orders.values()))
            quantity = min(order.remaining, maker.remaining)
            order.remaining -= quantity
            side.reduce(level, maker, quantity)
            self.changed[maker.side, level.price] = None
            self.last = level.price
            matches.append(Match(maker, quantity))
        return matches

    def rest(self, order: Order) -> None:
        """Put what is left of an order into the book."""
        self.sides[order.side].add(order)
        self.changed[order.side, order.price] = None

    def cancel(self, order: Order) -> None:
        """Take an order out of the book."""
        side = self.sides[order.side]
        side.reduce(side.levels[order.price * side.sign], order, order.remaining)
        self.changed[order.side, order.price] = None

    def take_changes(self) -> list[Level]:
        """Return the levels that have changed since the last call, as they are now."""
        changes = [self.level(side, price) for side, price in self.changed]
        self.changed.clear()
        return changes

    def level(self, side: Side, price: int) -> Level:
        """Return what rests at a price."""
        found = self.sides[side]
        level = found.levels.get(price * found.sign)
        if level is None:
            return Level(self.symbol, side, price, 0, 0)
        return Level(self.symbol, side, price, level.quantity, len(level.orders))

    def all_levels(self) -> Iterator[Level]:
        """Iterate over all levels, the bids first, of each side the best first."""
        for side, found in self.sides.items():
            for level in found:
                yield Level(self.symbol, side, level.price, level.quantity, len(level.orders))

    def all_orders(self) -> Iterator[Order]:
        """Iterate over all orders, in the order in which they would trade."""
        for found in self.sides.values():
            for level in found:
                yield from level.orders.values()
