"""The state of the exchange: a function of the commands in its log, and of nothing else.

Each replica that applies the same commands in the same order has the same books, gives the same
answers, and has the same `digest`. So a command must not read a clock, and no setting may change
what it does. A command that was applied is known by its account and `client_order_id`: applied once
more it has the same answer, and changes nothing.

Invariant: what an order has filled and what remains of it add up to what was ordered; each trade
takes the same quantity from both sides.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import attrs

from examples.exchange.book import Book, Order
from examples.exchange.messages import Ack, Fill, FullBook, NewOrder, Progress, Quote, Trade

if TYPE_CHECKING:
    from examples.exchange.book import Match
    from examples.exchange.messages import CancelOrder, Command, Level, Reason, Status

__all__ = [
    "ACCOUNTS_MOST",
    "ANSWERS_KEPT",
    "CHECKPOINT",
    "ORDERS_MOST",
    "PRICE_MOST",
    "QUANTITY_MOST",
    "SYMBOLS",
    "Effects",
    "Exchange",
]

SYMBOLS: Final = ("AERN", "BOLT", "CRUX", "DYNE")
PRICE_MOST: Final = 10_000_000
QUANTITY_MOST: Final = 1_000_000
ACCOUNTS_MOST: Final = 1_024
ORDERS_MOST: Final = 256
"""Most orders of one account that rest at once."""
ANSWERS_KEPT: Final = 1_024
"""How many answers of one account are kept for commands that come again."""
CHECKPOINT: Final = 64
"""Commands between two checkpoints, at which replicas compare their digests."""
TRADES_KEPT: Final = 64
"""How many of the latest trades of a symbol late readers get."""


@attrs.define
class Account:
    """What is known of one account.

    Attributes:
        answers: Its latest answers, by client order id.
        forgotten: Greatest client order id whose answer is not kept any more.
        orders: Its orders that rest, by order id, with their books.
    """

    answers: OrderedDict[int, Ack] = attrs.field(factory=OrderedDict)
    forgotten: int = 0
    orders: dict[int, tuple[Book, Order]] = attrs.field(factory=dict)


@attrs.frozen
class Effects:
    """What a command has led to."""

    ack: Ack
    trades: list[Trade] = attrs.field(factory=list)
    fills: list[Fill] = attrs.field(factory=list)
    levels: list[Level] = attrs.field(factory=list)


class Exchange:
    """All books and accounts.

    Attributes:
        sequence: Number of the last command in the log that was applied.
        trade_count: How many trades there were.
        fill_count: How many sides of trades.
        books: The book of each symbol.
        checkpoint: The digest after the last command whose number is a multiple of 64.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.trade_count = 0
        self.fill_count = 0
        self.books: Final = {symbol: Book(symbol) for symbol in SYMBOLS}
        self.checkpoint = Progress(0, 0, 0)
        self._last_order_id = 0
        self._accounts: dict[str, Account] = {}
        self._tape: dict[str, list[Trade]] = {symbol: [] for symbol in SYMBOLS}

    def apply(self, sequence: int, command: Command) -> Effects:
        """Apply the next command of the log, and return what it has led to.

        Args:
            sequence: Its number in the log: one more than that of the command before.
            command: The command.
        """
        assert sequence == self.sequence + 1, f"command {sequence} comes after {self.sequence}"
        self.sequence = sequence
        effects = self._carry_out(command)
        if sequence % CHECKPOINT == 0:
            self.checkpoint = Progress(sequence, self.trade_count, self.digest())
        return effects

    def _carry_out(self, command: Command) -> Effects:
        account = self._accounts.get(command.account)
        if account is None:
            if len(self._accounts) == ACCOUNTS_MOST:
                return Effects(self._refusal(command, "TOO_MANY_ACCOUNTS"))
            account = self._accounts[command.account] = Account()
        known = account.answers.get(command.client_order_id)
        if known is not None:
            return Effects(known._replace(is_repeated=1))
        if command.client_order_id <= account.forgotten:
            return Effects(self._refusal(command, "ID_TOO_OLD"))
        if isinstance(command, NewOrder):
            effects = self._order(command, account)
        else:
            effects = self._cancel(command, account)
        account.answers[command.client_order_id] = effects.ack
        if len(account.answers) > ANSWERS_KEPT:
            forgotten, _ = account.answers.popitem(last=False)
            account.forgotten = max(account.forgotten, forgotten)
        return effects

    def _refusal(self, command: Command, reason: Reason) -> Ack:
        return Ack(command.client_order_id, 0, self.sequence, "REJECTED", reason, 0, 0)

    def _reason_against(self, command: NewOrder, account: Account) -> Reason:
        """Return why an order is refused; NONE if it is not."""
        book = self.books.get(command.symbol)
        if book is None:
            return "UNKNOWN_SYMBOL"
        if not 0 < command.quantity <= QUANTITY_MOST:
            return "BAD_QUANTITY"
        if command.kind == "MARKET":
            return "NONE"
        if not 0 < command.price <= PRICE_MOST:
            return "BAD_PRICE"
        if len(account.orders) >= ORDERS_MOST:
            return "TOO_MANY_ORDERS"
        return "NONE" if book.has_room(command.side, command.price) else "TOO_MANY_LEVELS"

    def _order(self, command: NewOrder, account: Account) -> Effects:
        reason = self._reason_against(command, account)
        if reason != "NONE":
            return Effects(self._refusal(command, reason))
        book = self.books[command.symbol]
        self._last_order_id += 1
        is_limit = command.kind == "LIMIT"
        order = Order(
            self._last_order_id, command.account, command.side, command.price, command.quantity
        )
        matches = book.match(order, limit=command.price if is_limit else None)
        trades, fills = self._record(command, book, order.order_id, matches)
        status: Status = "FILLED"
        if order.remaining:
            # What a market order does not find is cancelled.
            status = "RESTING" if is_limit else "CANCELLED"
        if status == "RESTING":
            book.rest(order)
            account.orders[order.order_id] = (book, order)
        filled = command.quantity - order.remaining
        ack = self._ack(command, order.order_id, status, filled, order.remaining)
        return Effects(ack, trades, fills, book.take_changes())

    def _record(
        self, command: NewOrder, book: Book, order_id: int, matches: list[Match]
    ) -> tuple[list[Trade], list[Fill]]:
        """Number the trades of an order, and both sides of each; return them."""
        trades: list[Trade] = []
        fills: list[Fill] = []
        left = command.quantity
        symbol, taker = book.symbol, command.side
        for maker, quantity in matches:
            price = maker.price
            left -= quantity
            self.trade_count += 1
            trades.append(Trade(self.trade_count, command.time_ns, symbol, taker, price, quantity))
            # An order trades at most once with another, so `remaining` is what was left then.
            for account, number, side, remaining in (
                (maker.account, maker.order_id, maker.side, maker.remaining),
                (command.account, order_id, taker, left),
            ):
                self.fill_count += 1
                fills.append(
                    Fill(self.fill_count, account, number, symbol, side, price, quantity, remaining)
                )
            if maker.remaining == 0:
                del self._accounts[maker.account].orders[maker.order_id]
        self._tape[symbol] = [*self._tape[symbol], *trades][-TRADES_KEPT:]
        return trades, fills

    def _ack(
        self, command: Command, order_id: int, status: Status, filled: int, remaining: int
    ) -> Ack:
        number, sequence = command.client_order_id, self.sequence
        return Ack(number, order_id, sequence, status, "NONE", filled, remaining)

    def _cancel(self, command: CancelOrder, account: Account) -> Effects:
        found = account.orders.pop(command.order_id, None)
        if found is None:
            return Effects(self._refusal(command, "UNKNOWN_ORDER"))
        book, order = found
        remaining = order.remaining
        book.cancel(order)
        ack = self._ack(command, order.order_id, "CANCELLED", 0, remaining)
        return Effects(ack, levels=book.take_changes())

    def quote(self, symbol: str) -> Quote:
        """Return the best prices of a symbol."""
        book = self.books[symbol]
        bid, ask = book.sides["BUY"].best, book.sides["SELL"].best
        return Quote(
            symbol,
            0 if bid is None else bid.price,
            0 if bid is None else bid.quantity,
            0 if ask is None else ask.price,
            0 if ask is None else ask.quantity,
            book.last,
        )

    def full_book(self) -> FullBook:
        """Return all levels, and the latest trades."""
        levels = [each for book in self.books.values() for each in book.all_levels()]
        trades = [each for tape in self._tape.values() for each in tape]
        return FullBook(self.checkpoint, levels, trades)

    def orders_of(self, account: str) -> list[tuple[str, Order]]:
        """Return the orders of an account that rest, with their symbols."""
        known = self._accounts.get(account)
        if known is None:
            return []
        return [(book.symbol, order) for book, order in known.orders.values()]

    def digest(self) -> int:
        """Return 64 bits of a hash of the whole state: equal for equal states."""
        found = blake2b(digest_size=8)
        counts = (self.sequence, self.trade_count, self.fill_count, self._last_order_id)
        found.update(repr(counts).encode())
        for book in self.books.values():
            found.update(f"{book.symbol} {book.last}".encode())
            for each in book.all_orders():
                found.update(repr(attrs.astuple(each)).encode())
        for name, account in self._accounts.items():
            last = next(reversed(account.answers), 0)
            found.update(repr((name, account.forgotten, len(account.answers), last)).encode())
        return int.from_bytes(found.digest(), "little")
