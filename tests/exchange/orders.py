"""Commands for the exchange of the examples, one by one and at random."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from examples.exchange.messages import CancelOrder, Command, NewOrder

if TYPE_CHECKING:
    from examples.exchange.messages import Kind, Side

NUMBERS = count(1)
"""Client order ids, which are never used again."""


def limit(
    side: Side, price: int, quantity: int, account: str = "ann", symbol: str = "AERN"
) -> NewOrder:
    return NewOrder(account, next(NUMBERS), 0, symbol, side, "LIMIT", price, quantity)


def market(side: Side, quantity: int, account: str = "ann", symbol: str = "AERN") -> NewOrder:
    return NewOrder(account, next(NUMBERS), 0, symbol, side, "MARKET", 0, quantity)


def cancel(order_id: int, account: str = "ann") -> CancelOrder:
    return CancelOrder(account, next(NUMBERS), 0, order_id)


def ordered(
    account: str, number: int, symbol: str, side: Side, kind: Kind, price: int, quantity: int
) -> NewOrder:
    return NewOrder(account, number, 7 * number, symbol, side, kind, price, quantity)


ACCOUNTS = st.sampled_from(["ann", "bob", "cid"])
ORDERS: st.SearchStrategy[Command] = st.builds(
    ordered,
    ACCOUNTS,
    st.integers(1, 60),
    st.sampled_from(["AERN", "BOLT", "none"]),
    st.sampled_from(["BUY", "SELL"]),
    st.sampled_from(["LIMIT", "LIMIT", "LIMIT", "MARKET"]),
    st.integers(-1, 8),
    st.integers(0, 9),
)
CANCELS: st.SearchStrategy[Command] = st.builds(
    CancelOrder, ACCOUNTS, st.integers(1, 60), st.just(0), st.integers(0, 40)
)
COMMANDS = st.lists(st.one_of(ORDERS, ORDERS, CANCELS), max_size=60)
