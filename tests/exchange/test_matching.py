"""The rules of the exchange: what an order trades with, and what any commands leave true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import DecodeError
from examples.exchange import matching
from examples.exchange.book import LEVELS_MOST
from examples.exchange.matching import Effects, Exchange
from examples.exchange.messages import (
    ACK,
    CancelOrder,
    NewOrder,
    decode_command,
    decode_full_book,
    encode_command,
    encode_full_book,
)
from examples.exchange.messages import COMMANDS as CODECS
from tests.exchange.orders import COMMANDS, cancel, limit, market

if TYPE_CHECKING:
    from examples.exchange.messages import Command


def applied(*commands: Command) -> tuple[Exchange, list[Effects]]:
    exchange = Exchange()
    return exchange, [
        exchange.apply(number, command) for number, command in enumerate(commands, start=1)
    ]


def depth(exchange: Exchange, symbol: str = "AERN") -> list[tuple[str, int, int]]:
    levels = exchange.books[symbol].all_levels()
    return [(each.side, each.price, each.quantity) for each in levels]


def test_the_best_price_trades_first_and_at_its_own_price() -> None:
    exchange, effects = applied(
        limit("SELL", 102, 5), limit("SELL", 101, 5), limit("BUY", 103, 7, account="bob")
    )
    assert [(each.price, each.quantity) for each in effects[-1].trades] == [(101, 5), (102, 2)]
    assert effects[-1].ack.status == "FILLED"
    assert depth(exchange) == [("SELL", 102, 3)]
    assert exchange.books["AERN"].last == 102


def test_of_one_price_the_oldest_order_trades_first() -> None:
    first, second = limit("BUY", 100, 5), limit("BUY", 100, 5, account="bob")
    _, effects = applied(first, second, limit("SELL", 100, 6, account="cid"))
    fills = [(each.account, each.quantity, each.remaining) for each in effects[-1].fills]
    assert fills == [("ann", 5, 0), ("cid", 5, 1), ("bob", 1, 4), ("cid", 1, 0)]


def test_what_a_limit_order_does_not_find_rests() -> None:
    exchange, effects = applied(limit("SELL", 101, 5), limit("BUY", 101, 8, account="bob"))
    ack = effects[-1].ack
    assert (ack.status, ack.filled, ack.remaining) == ("RESTING", 5, 3)
    assert depth(exchange) == [("BUY", 101, 3)]
    levels = [(each.side, each.quantity) for each in effects[-1].levels]
    assert levels == [("SELL", 0), ("BUY", 3)]


def test_what_a_market_order_does_not_find_is_cancelled() -> None:
    exchange, effects = applied(limit("SELL", 101, 5), market("BUY", 8, account="bob"))
    ack = effects[-1].ack
    assert (ack.status, ack.filled, ack.remaining) == ("CANCELLED", 5, 3)
    assert depth(exchange) == []


def test_an_order_is_cancelled_by_its_account_only() -> None:
    exchange, effects = applied(
        limit("BUY", 100, 5), cancel(1, account="bob"), cancel(1), cancel(1)
    )
    reasons = [(each.ack.status, each.ack.reason) for each in effects[1:]]
    assert reasons == [
        ("REJECTED", "UNKNOWN_ORDER"),
        ("CANCELLED", "NONE"),
        ("REJECTED", "UNKNOWN_ORDER"),
    ]
    assert depth(exchange) == []


def test_a_repeated_command_has_its_answer_again_and_changes_nothing() -> None:
    order = limit("BUY", 100, 5)
    exchange, effects = applied(order, order)
    assert effects[1].ack == effects[0].ack._replace(is_repeated=1)
    assert effects[1].levels == []
    assert depth(exchange) == [("BUY", 100, 5)]


def test_an_answer_that_is_no_longer_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ANSWERS_KEPT", 2)
    first = limit("BUY", 100, 5)
    exchange, effects = applied(first, limit("BUY", 101, 5), limit("BUY", 102, 5), first)
    assert effects[-1].ack.reason == "ID_TOO_OLD"
    assert len(depth(exchange)) == 3


def test_what_cannot_be_traded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ACCOUNTS_MOST", 1)
    monkeypatch.setattr(matching, "ORDERS_MOST", 1)
    refused = [
        limit("BUY", 100, 5, symbol="none"),
        limit("BUY", 0, 5),
        limit("BUY", matching.PRICE_MOST + 1, 5),
        limit("BUY", 100, 0),
        market("BUY", matching.QUANTITY_MOST + 1),
        limit("BUY", 100, 5),
        limit("BUY", 101, 5),
        limit("BUY", 101, 5, account="bob"),
    ]
    exchange, effects = applied(*refused)
    assert [each.ack.reason for each in effects] == [
        "UNKNOWN_SYMBOL",
        "BAD_PRICE",
        "BAD_PRICE",
        "BAD_QUANTITY",
        "BAD_QUANTITY",
        "NONE",
        "TOO_MANY_ORDERS",
        "TOO_MANY_ACCOUNTS",
    ]
    assert depth(exchange) == [("BUY", 100, 5)]


def test_a_side_has_a_limit_of_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ORDERS_MOST", LEVELS_MOST + 1)
    commands = [limit("BUY", price + 1, 1) for price in range(LEVELS_MOST)]
    exchange, effects = applied(*commands, limit("BUY", LEVELS_MOST + 1, 1), limit("BUY", 5, 1))
    assert effects[-2].ack.reason == "TOO_MANY_LEVELS"
    assert effects[-1].ack.status == "RESTING"
    # The state that late readers get fits one message.
    assert len(encode_full_book(exchange.full_book())) < 40 * LEVELS_MOST


@given(COMMANDS)
def test_nothing_is_made_or_lost_and_the_book_is_never_crossed(commands: list[Command]) -> None:
    exchange = Exchange()
    ordered = gone = traded = 0
    for number, command in enumerate(commands, start=1):
        effects = exchange.apply(number, command)
        ack = effects.ack
        traded += sum(each.quantity for each in effects.trades)
        assert sum(each.quantity for each in effects.fills) == 2 * sum(
            each.quantity for each in effects.trades
        )
        if not ack.is_repeated and ack.status != "REJECTED":
            if isinstance(command, NewOrder):
                ordered += command.quantity
                assert ack.filled + ack.remaining == command.quantity
                assert ack.filled == sum(each.quantity for each in effects.trades)
            gone += ack.remaining if ack.status == "CANCELLED" else 0
        for book in exchange.books.values():
            bid, ask = book.sides["BUY"].best, book.sides["SELL"].best
            assert bid is None or ask is None or bid.price < ask.price
            for side in book.sides.values():
                assert side.keys == sorted(side.levels)
                for level in side:
                    assert level.quantity == sum(each.remaining for each in level.orders.values())
                    assert min(each.remaining for each in level.orders.values()) > 0
                    # By time, and the ids are given in the order of time.
                    assert list(level.orders) == sorted(level.orders)
    resting = sum(
        order.remaining for book in exchange.books.values() for order in book.all_orders()
    )
    assert ordered == resting + gone + 2 * traded


@given(COMMANDS)
def test_a_replay_of_the_recorded_bytes_gives_the_same_state(commands: list[Command]) -> None:
    first, second = Exchange(), Exchange()
    for number, command in enumerate(commands, start=1):
        codec = CODECS[1 if isinstance(command, NewOrder) else 2]
        replayed = decode_command(codec.encode(command))
        assert replayed == command
        effects = first.apply(number, command)
        assert effects == second.apply(number, replayed)
        assert ACK.decode(ACK.encode(effects.ack)) == effects.ack
        assert first.digest() == second.digest()
    full = first.full_book()
    assert decode_full_book(encode_full_book(full)) == full


@given(COMMANDS)
def test_changes_of_levels_lead_to_the_same_levels(commands: list[Command]) -> None:
    exchange, kept = Exchange(), {}
    for number, command in enumerate(commands, start=1):
        for each in exchange.apply(number, command).levels:
            kept[each.symbol, each.side, each.price] = each
    remaining = {key: each for key, each in kept.items() if each.quantity}
    assert remaining == {
        (each.symbol, each.side, each.price): each for each in exchange.full_book().levels
    }


@given(COMMANDS)
def test_any_difference_in_the_log_is_seen_in_the_digest(commands: list[Command]) -> None:
    first, second = Exchange(), Exchange()
    for number, command in enumerate(commands, start=1):
        first.apply(number, command)
        second.apply(number, command)
    first.apply(len(commands) + 1, limit("BUY", 1, 5, account="dan"))
    second.apply(len(commands) + 1, limit("BUY", 1, 6, account="dan"))
    assert first.digest() != second.digest()


def test_a_message_of_another_kind_is_no_command() -> None:
    ack = ACK.encode(Exchange().apply(1, CancelOrder("ann", 1, 0, 1)).ack)
    for data in (b"", b"\x01", ack):
        try:
            decode_command(data)
        except ValueError as error:
            assert "none of NewOrder, CancelOrder" in str(error)  # noqa: PT017
        else:
            raise AssertionError(data)


WORDS = st.sampled_from([b"", b"\x00", b"\x03", b"\xff", b"\xff" * 8, bytes(7) + b"\x80", b"\x80"])


@given(st.booleans(), st.lists(st.tuples(st.integers(8, 80), WORDS), max_size=3))
def test_a_command_that_is_taken_can_be_recorded_and_applied(
    is_order: bool,  # noqa: FBT001 - hypothesis gives it by place
    changes: list[tuple[int, bytes]],
) -> None:
    """Whatever a caller sends: one that a replay stumbles over would end every later engine."""
    command = limit("BUY", 1, 5) if is_order else cancel(1)
    data = bytearray(encode_command(command))
    for at, word in changes:
        data[at : at + len(word)] = word
    try:
        taken = decode_command(bytes(data))
    except DecodeError:
        return
    exchange, _ = applied(limit("SELL", 1, 1), limit("BUY", 1, 2))
    exchange.apply(3, decode_command(encode_command(taken._replace(time_ns=5))))


def test_a_value_that_nobody_knows_is_no_command() -> None:
    data = encode_command(limit("BUY", 1, 5))
    side, kind = 48, 49
    for at, other in ((side, b"\x07"), (side, b"\xff"), (kind, b"\x00")):
        with pytest.raises(DecodeError, match="is no value of it"):
            decode_command(data[:at] + other + data[at + 1 :])
    with pytest.raises(DecodeError, match="price=None is no value of it"):
        decode_command(b"\x2a\0" + data[2 : kind + 1])
