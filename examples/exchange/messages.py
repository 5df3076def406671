"""Messages of the exchange: values, and their bytes by the SBE schema `messages.xml`.

Prices are in cents and quantities in pieces, both integers; times are nanoseconds since 1970.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from aeron_async.codecs import SbeSchema
from aeron_async.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ACK",
    "CANCEL_ORDER",
    "COMMANDS",
    "FILL",
    "LEVEL",
    "NEW_ORDER",
    "PROGRESS",
    "QUOTE",
    "SCHEMA_FILE",
    "TRADE",
    "Ack",
    "CancelOrder",
    "Command",
    "Fill",
    "FullBook",
    "Kind",
    "Level",
    "NewOrder",
    "Progress",
    "Quote",
    "Reason",
    "Side",
    "Status",
    "Trade",
    "all_changes",
    "decode_command",
    "decode_full_book",
    "decode_market",
    "decode_quote",
    "encode_command",
    "encode_full_book",
]

Side: TypeAlias = Literal["BUY", "SELL"]
Kind: TypeAlias = Literal["LIMIT", "MARKET"]
Status: TypeAlias = Literal["RESTING", "FILLED", "CANCELLED", "REJECTED"]
Reason: TypeAlias = Literal[
    "NONE",
    "UNKNOWN_SYMBOL",
    "BAD_PRICE",
    "BAD_QUANTITY",
    "UNKNOWN_ORDER",
    "TOO_MANY_ORDERS",
    "TOO_MANY_ACCOUNTS",
    "TOO_MANY_LEVELS",
    "ID_TOO_OLD",
]
T = TypeVar("T")


class NewOrder(NamedTuple):
    """A command: buy or sell; the price of a market order is 0."""

    account: str
    client_order_id: int
    time_ns: int
    symbol: str
    side: Side
    kind: Kind
    price: int
    quantity: int


class CancelOrder(NamedTuple):
    """A command: take an order of this account out of the book."""

    account: str
    client_order_id: int
    time_ns: int
    order_id: int


Command: TypeAlias = NewOrder | CancelOrder


class Ack(NamedTuple):
    """The answer to a command; it is recorded by then. The three times are parts of its way."""

    client_order_id: int
    order_id: int
    sequence: int
    status: Status
    reason: Reason
    filled: int
    remaining: int
    is_repeated: int = 0
    queued_ns: int = 0
    recorded_ns: int = 0
    matched_ns: int = 0


class Fill(NamedTuple):
    """One side of a trade, for its account: `number` counts them all."""

    number: int
    account: str
    order_id: int
    symbol: str
    side: Side
    price: int
    quantity: int
    remaining: int


class Level(NamedTuple):
    """All that rests at one price has changed; a quantity of 0 ends the level."""

    symbol: str
    side: Side
    price: int
    quantity: int
    orders: int


class Trade(NamedTuple):
    """A trade: `number` counts those of all symbols, `taker` is the side that came last."""

    number: int
    time_ns: int
    symbol: str
    taker: Side
    price: int
    quantity: int


class Quote(NamedTuple):
    """The best prices of a symbol, 0 where there is none, and the last price."""

    symbol: str
    bid: int
    bid_quantity: int
    ask: int
    ask_quantity: int
    last: int


class Progress(NamedTuple):
    """How far a replica has read the log, how many trades that made, and a digest of its state."""

    sequence: int
    trade_count: int
    digest: int


class FullBook(NamedTuple):
    """The whole state of market data: the last checkpoint, all levels, and the latest trades."""

    progress: Progress
    levels: list[Level]
    trades: list[Trade]


SCHEMA_FILE: Final = Path(__file__).parent / "messages.xml"
SCHEMA: Final = SbeSchema.from_file(SCHEMA_FILE)
TEMPLATE_ID: Final = slice(2, 4)
"""Where the header of a message has the number of its template."""

NEW_ORDER: Final = SCHEMA.codec("NewOrder", into=NewOrder)
CANCEL_ORDER: Final = SCHEMA.codec("CancelOrder", into=CancelOrder)
ACK: Final = SCHEMA.codec("Ack", into=Ack)
FILL: Final = SCHEMA.codec("Fill", into=Fill)
LEVEL: Final = SCHEMA.codec("Level", into=Level)
TRADE: Final = SCHEMA.codec("Trade", into=Trade)
QUOTE: Final = SCHEMA.codec("Quote", into=Quote)
PROGRESS: Final = SCHEMA.codec("Progress", into=Progress)
FULL_BOOK: Final = SCHEMA.codec("FullBook")
COMMANDS: Final[dict[int, Any]] = {1: NEW_ORDER, 2: CANCEL_ORDER}
MARKET: Final[dict[int, Any]] = {5: LEVEL, 6: TRADE, 9: PROGRESS}
QUOTES: Final[dict[int, Any]] = {7: QUOTE}
CHOICES: Final = {
    "side": frozenset(get_args(Side)),
    "taker": frozenset(get_args(Side)),
    "kind": frozenset(get_args(Kind)),
}


def encode_command(command: Command) -> bytes:
    """Return the message of a command."""
    if isinstance(command, NewOrder):
        return NEW_ORDER.encode(command)
    return CANCEL_ORDER.encode(command)


def decode_command(data: bytes) -> Command:
    """Return a command.

    Raises:
        DecodeError: The bytes are none.
    """
    command: Command = _decode(COMMANDS, data)
    return command


def decode_market(data: bytes) -> Level | Trade | Progress:
    """Return a change that market data tells.

    Raises:
        DecodeError: The bytes are none.
    """
    change: Level | Trade | Progress = _decode(MARKET, data)
    return change


def decode_quote(data: bytes) -> Quote:
    """Return the best prices of a symbol.

    Raises:
        DecodeError: The bytes are none.
    """
    quote: Quote = _decode(QUOTES, data)
    return quote


def encode_full_book(full: FullBook) -> bytes:
    """Return the message of a snapshot."""
    return FULL_BOOK.encode(FULL_BOOK.type(*full.progress, full.levels, full.trades))


def decode_full_book(data: bytes) -> FullBook:
    """Return a snapshot.

    Raises:
        DecodeError: The bytes are none.
    """
    *progress, levels, trades = FULL_BOOK.decode(data)
    return FullBook(
        _checked(Progress(*progress)),
        [_checked(Level(*each)) for each in levels],
        [_checked(Trade(*each)) for each in trades],
    )


def all_changes(full: FullBook) -> Iterator[Level | Trade | Progress]:
    """Iterate over what a snapshot has, trades in their order."""
    yield full.progress
    yield from full.levels
    yield from sorted(full.trades)


def _decode(codecs: dict[int, Any], data: bytes) -> Any:
    number = int.from_bytes(data[TEMPLATE_ID], "little")
    if number not in codecs:
        names = ", ".join(each.name for each in codecs.values())
        message = f"{len(data)} bytes with template {number} are none of {names}"
        raise DecodeError(message)
    return _checked(codecs[number].decode(data))


def _checked(value: T) -> T:
    """Return a message whose fields all have a value that the schema names.

    The codec takes more: SBE has a value for "nothing", and a later version may name new choices. A
    command with one of these must not reach the log, for every replay would stumble over it.

    Raises:
        DecodeError: A field is empty, or has a choice that nobody knows here.
    """
    fields: Any = value
    for name, given in zip(fields._fields, fields, strict=True):
        if given is None or (name in CHOICES and given not in CHOICES[name]):
            message = f"{type(value).__name__}: {name}={given!r} is no value of it"
            raise DecodeError(message)
    return value
