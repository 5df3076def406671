from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pytest

from aeron_async.codecs.columns import WIDENED
from aeron_async.codecs.sbe_columns import SbeColumns
from aeron_async.codecs.sbe_schema import SbeSchema
from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding import decode_batch, decoder_of
from aeron_async.spark.decoding.decoder import CodecDecoder

if TYPE_CHECKING:
    from aeron_async.codecs.layout import MessageSchema

SCHEMA = Path(__file__).parent / "quotes.xml"


def sbe_decoder(message: MessageSchema) -> CodecDecoder:
    return CodecDecoder(SbeColumns(message, WIDENED))


QUOTE = sbe_decoder(SbeSchema.from_file(SCHEMA).message("Quote"))
BLOCK_LENGTH = 60


def group(entries: list[bytes], block_length: int) -> bytes:
    return struct.pack("<HH", block_length, len(entries)) + b"".join(entries)


def var_text(data: bytes) -> bytes:
    return struct.pack("<H", len(data)) + data


@attrs.frozen
class Quote:
    """One message as values, and as an encoder for that very schema writes it."""

    sequence: int = 1
    symbol: bytes = b"AERN"
    mantissa: int = 123_4500
    side: bytes = b"B"
    state: int = 1
    conditions: int = 3
    venue: bytes = b"XETR"
    levels: tuple[int, int, int] = (-1, 0, 1)
    key: bytes = b"\x00\x01\x02\xff"
    size: int = 42
    ratio: float = 0.5
    fills: tuple[tuple[int, int], ...] = ()
    orders: tuple[tuple[int, tuple[int, ...], bytes], ...] = ()
    text: bytes = "größer".encode()
    blob: bytes = b"\x00\xff"

    def block(self) -> bytes:
        head = struct.pack(
            "<Q8sq1sBB4s3h4s", self.sequence, self.symbol, self.mantissa, self.side, self.state,
            self.conditions, self.venue, *self.levels, self.key,
        )  # fmt: skip
        return head.ljust(48, b"\xee") + struct.pack("<id", self.size, self.ratio)

    def encode(self, *, version: int = 2, block_length: int = BLOCK_LENGTH) -> bytes:
        orders = [
            struct.pack("<q", number) + group([bytes([p]) for p in parts], 1) + var_text(owner)
            for number, parts, owner in self.orders
        ]
        rest = group([struct.pack("<iI", *fill) for fill in self.fills], 8)
        if version >= 1:
            rest += group(orders, 8)
        rest += var_text(self.text)
        if version >= 2:
            rest += struct.pack("<I", len(self.blob)) + self.blob
        block = self.block().ljust(block_length, b"\xdd")[:block_length]
        return struct.pack("<HHHH", block_length, 1, 7, version) + block + rest

    def row(self) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "symbol": self.symbol.rstrip(b"\x00").decode(),
            "price": {"mantissa": self.mantissa, "exponent": -4},
            "side": {b"B": "BUY", b"S": "SELL"}.get(self.side, str(self.side[0])),
            "state": {1: "OPEN", 2: "SHUT", 255: None}.get(self.state, str(self.state)),
            "conditions": self.conditions,
            "venue": self.venue.decode() or None,
            "levels": list(self.levels),
            "key": self.key,
            "currency": "EUR",
            "kind": "SHUT",
            "size": None if self.size == -(2**31) else self.size,
            "ratio": None if math.isnan(self.ratio) else self.ratio,
            "fills": [{"size": size, "at": at} for size, at in self.fills],
            "orders": [
                {"id": number, "parts": [{"part": p} for p in parts], "owner": owner.decode()}
                for number, parts, owner in self.orders
            ],
            "text": self.text.decode(),
            "blob": self.blob,
        }


def rows_of(messages: list[bytes], decoder: CodecDecoder = QUOTE) -> list[dict[str, Any]]:
    batch = pa.record_batch(
        {"position": range(len(messages)), "payload": pa.array(messages, "binary")}
    )
    decoded = decode_batch(batch, decoder)
    decoded.validate(full=True)
    found: list[dict[str, Any]] = decoded.to_pylist()
    return found


def right(quote: Quote) -> dict[str, Any]:
    return quote.row() | {"decode_error": None}


def test_every_kind_of_field_is_read() -> None:
    quotes = [
        Quote(),
        Quote(fills=((1, 2), (-3, 2**32 - 1)), side=b"S", state=2, venue=b""),
        Quote(orders=((9, (1, 2, 3), b"me"), (8, (), b""), (7, (255,), b"you")), state=255),
        Quote(size=-(2**31), ratio=math.nan, text=b"", blob=b"", symbol=b"", state=77, side=b"?"),
    ]
    rows = rows_of([quote.encode() for quote in quotes])
    assert rows == [{"position": n} | right(quote) for n, quote in enumerate(quotes)]


def test_many_messages_of_random_values_are_read_as_they_were_written() -> None:
    rng = random.Random(7)
    quotes = [
        Quote(
            sequence=rng.randrange(2**63),
            symbol=rng.choice([b"A", b"ABCDEFGH", b""]),
            mantissa=rng.randrange(-(2**63), 2**63),
            fills=tuple((rng.randrange(99), n) for n in range(rng.randrange(4))),
            orders=tuple(
                (n, tuple(range(rng.randrange(4))), b"o" * rng.randrange(4))
                for n in range(rng.randrange(4))
            ),
            text=b"t" * rng.randrange(50),
            blob=rng.randbytes(rng.randrange(50)),
        )
        for _ in range(300)
    ]
    rows = rows_of([quote.encode() for quote in quotes])
    assert rows == [{"position": n} | right(quote) for n, quote in enumerate(quotes)]


def test_what_an_older_message_has_not_is_null_and_costs_it_nothing() -> None:
    quote = Quote(fills=((5, 6),), orders=((1, (2,), b"x"),))
    first, second, short = rows_of(
        [
            quote.encode(version=0, block_length=52),
            quote.encode(version=1, block_length=52),
            quote.encode(version=2, block_length=48),
        ]
    )
    older = right(quote) | {"ratio": None, "blob": None}
    assert first == {"position": 0} | older | {"orders": None}
    assert second == {"position": 1} | older
    assert short == {"position": 2} | right(quote) | {"ratio": None, "size": None}


def test_what_a_newer_message_has_more_is_passed_over() -> None:
    quote = Quote(fills=((5, 6),))
    assert rows_of([quote.encode(version=2, block_length=100)]) == [{"position": 0} | right(quote)]


def test_other_messages_of_the_schema_are_left_out() -> None:
    beat = struct.pack("<HHHHq", 8, 2, 7, 0, 123)
    quote = Quote()
    assert rows_of([beat, quote.encode(), beat]) == [{"position": 1} | right(quote)]
    beats = sbe_decoder(SbeSchema.from_file(SCHEMA).message("Heartbeat"))
    assert [row["at"] for row in rows_of([beat, quote.encode()], beats)] == [123]
    assert rows_of([beat]) == []
    assert rows_of([]) == []


def blank(error: str) -> dict[str, Any]:
    return dict.fromkeys(Quote().row()) | {"decode_error": error}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"", "the message is shorter than its header"),
        (b"1234567", "the message is shorter than its header"),
        (struct.pack("<HHHH", 60, 1, 9, 2) + bytes(99), "schema 9, not 7"),
        (struct.pack("<HHHH", 60, 1, 7, 2) + bytes(59), "a block is longer than its message"),
        (
            struct.pack("<HHHH", 60, 1, 7, 2) + bytes(61),
            "the message ends within a header of a group or of data",
        ),
        (
            struct.pack("<HHHH", 60, 1, 7, 2) + bytes(60) + struct.pack("<HH", 8, 65_535),
            "group fills is longer than its message",
        ),
        (
            struct.pack("<HHHH", 60, 1, 7, 2) + bytes(60) + struct.pack("<HH", 0, 65_535),
            "group fills is longer than its message",
        ),
        (Quote().encode()[:-1], "data blob is longer than its message"),
        (
            Quote(orders=((1, (1,), b"x"),), text=b"", blob=b"").encode()[:-7],
            "data owner is longer than its message",
        ),
        (Quote(text=b"\xff").encode(), "text is no text in UTF-8"),
        (Quote(symbol=b"\xff").encode(), "symbol is no string"),
    ],
    ids=range(11),
)
def test_a_message_that_is_wrong_is_null_says_why_and_spoils_no_other(
    message: bytes, error: str
) -> None:
    quote = Quote(fills=((1, 2),))
    before, wrong, after = rows_of([quote.encode(), message, quote.encode()])
    assert before == {"position": 0} | right(quote)
    assert wrong == {"position": 1} | blank(error)
    assert after == {"position": 2} | right(quote)


def test_random_damage_never_raises_and_never_spoils_a_neighbour() -> None:
    rng = random.Random(11)
    good = Quote(orders=((9, (1, 2), b"me"), (8, (), b"")), fills=((1, 2),))
    messages = []
    for _ in range(400):
        damaged = bytearray(good.encode())
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        messages += [bytes(damaged[: rng.randrange(len(damaged) + 1)]), good.encode()]
    rows = rows_of(messages)
    assert [row for row in rows if row["position"] % 2] == [
        {"position": n} | right(good) for n in range(1, 800, 2)
    ]


def test_a_number_too_large_for_the_lake_is_an_error_of_its_row() -> None:
    (row,) = rows_of([Quote(sequence=2**63).encode()])
    assert row == {"position": 0} | blank("sequence is no int64")


def test_a_big_endian_schema_is_read_so() -> None:
    text = SCHEMA.read_text().replace("littleEndian", "bigEndian")
    decoder = sbe_decoder(SbeSchema(text).message("Heartbeat"))
    (row,) = rows_of([struct.pack(">HHHHq", 8, 2, 7, 0, 123)], decoder)
    assert row["at"] == 123


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("</sbe:messageSchema>", "", "is no XML"),
        ("sbe:messageSchema", "sbe:schema", "begins with <schema>"),
        ('id="7"', 'id="x"', "'x', which is no number"),
        ('id="7"', "", "has no id"),
        ("littleEndian", "middleEndian", "has byteOrder 'middleEndian'"),
        ("<types>", '<!DOCTYPE d [<!ENTITY a "b">]><types>', "declares entities"),
        ("<types>", '<xi:include xmlns:xi="x" href="y"/><types>', "includes another file"),
        ('name="templateId" primitiveType="uint16"', 'name="x" primitiveType="uint16"',
         "messageHeader: has no number templateId"),
        ('type="Decimal"', 'type="Nothing"', "Quote.price: type 'Nothing' is not declared"),
        ('primitiveType="int64"', 'primitiveType="int128"', "primitiveType 'int128' is none of"),
        ('offset="48"', 'offset="3"', "Quote.size: offset 3 is within the field before it"),
        ('valueRef="State.SHUT"', 'valueRef="State.GONE"', "names no value of an enumeration"),
        (">-4<", ">x<", "'x' is no int8"),
        (">S</validValue>", ">SS</validValue>", "validValue 'SS' is not one character"),
        ('encodingType="uint8"', 'encodingType="double"', "is no whole number and no char"),
        ('name="levels"', 'name="symbol"', "Quote has two members symbol"),
        ('length="8"', 'length="0"', "length 0 is not 1 to 65535"),
        ('length="3" presence="constant">EUR', 'length="2" presence="constant">EUR',
         "constant 'EUR' is longer than 2 characters"),
        ('dimensionType="groupSizeEncoding"', 'dimensionType="Side"', "Side: is no composite"),
        ('<data name="text" id="40" type="varText"/>',
         '<data name="text" id="40" type="varText"/><field name="l" id="4" type="int8"/>',
         "fields come first, then groups, then data"),
        ('<type name="mantissa" primitiveType="int64"/>',
         '<ref name="mantissa" type="Decimal"/>', "nest deeper than 16, or contain themselves"),
        ('name="exponent" primitiveType="int8"', 'name="exponent" offset="2" primitiveType="int8"',
         "is within what comes before it"),
        ('id="33" type="uint8"/>', 'id="33" type="uint8" sinceVersion="2"/>',
         "Quote.orders.parts: an entry of the group takes no bytes"),
        ('<field name="part" id="33" type="uint8"/>', "",
         "Quote.orders.parts: an entry of the group takes no bytes"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_meant_is_refused(old: str, new: str, error: str) -> None:
    text = SCHEMA.read_text()
    assert old in text
    with pytest.raises(ConfigurationError, match=error.replace("(", "\\(")):
        SbeSchema(text.replace(old, new)).message("Quote")


def test_a_message_is_named_where_there_are_several(tmp_path: Path) -> None:
    schema = SbeSchema.from_file(SCHEMA)
    assert schema.message_names == ["Quote", "Heartbeat"]
    with pytest.raises(ConfigurationError, match="more than one message; name one of: Quote, Hea"):
        schema.message()
    with pytest.raises(ConfigurationError, match="no message Trade; name one of: Quote, Heartbeat"):
        schema.message("Trade")
    assert decoder_of(f"sbe:{SCHEMA}#Heartbeat").fields == [pa.field("at", pa.int64())]
    with pytest.raises(ConfigurationError, match="cannot be read"):
        SbeSchema.from_file(tmp_path / "none.xml")
    one = tmp_path / "one.xml"
    text = SCHEMA.read_text()
    one.write_text(text[: text.index('  <sbe:message name="Heart')] + "</sbe:messageSchema>")
    assert SbeSchema.from_file(one).message().name == "Quote"


def test_a_schema_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    long = tmp_path / "long.xml"
    with long.open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    with pytest.raises(ConfigurationError, match="longer than 16777216 bytes"):
        SbeSchema.from_file(long)
