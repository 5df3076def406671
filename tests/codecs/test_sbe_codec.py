"""SBE: golden messages, round trips, versions, damage, and the same values as in columns."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.codecs import SbeSchema
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from tests.codecs.columns import columns_of
from tests.spark.decoding.test_sbe import Quote

SCHEMA = Path(__file__).parents[1] / "spark/decoding/quotes.xml"
QUOTES = SbeSchema.from_file(SCHEMA)
QUOTE = QUOTES.codec("Quote")
BEAT = QUOTES.codec("Heartbeat")
CONSTANTS = {"currency": "EUR", "kind": "SHUT"}


def plain(value: Any) -> Any:
    """Return a value without named tuples, as a row of columns has it."""
    if hasattr(value, "_asdict"):
        kind = type(value)
        names = [n for n in dir(kind) if n[0] != "_" and n not in {"count", "index"}]
        constants = {n: getattr(kind, n) for n in names if isinstance(getattr(kind, n), str | int)}
        return {name: plain(each) for name, each in (value._asdict() | constants).items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def golden(quote: Quote) -> bytes:
    """Return a message as a writer that fills gaps with zeros writes it."""
    head = quote.encode()
    return head[:8] + head[8:56].rstrip(b"\xee").ljust(48, b"\0") + head[56:]


GOLDEN = [
    Quote(),
    Quote(fills=((1, 2), (-3, 2**32 - 1)), side=b"S", state=2, venue=b""),
    Quote(orders=((9, (1, 2, 3), b"me"), (8, (), b""), (7, (255,), b"you")), state=255),
    Quote(size=-(2**31), ratio=math.nan, text=b"", blob=b"", symbol=b"", state=77, side=b"?"),
]


@pytest.mark.parametrize("quote", GOLDEN, ids=range(len(GOLDEN)))
def test_golden_messages_are_read_and_written_byte_by_byte(quote: Quote) -> None:
    message = golden(quote)
    value = QUOTE.decode(message)
    assert plain(value) == quote.row()
    assert QUOTE.decode(memoryview(message)) == value
    assert QUOTE.encode(value) == message
    buffer = bytearray(len(message) + 5)
    assert QUOTE.encode_into(value, buffer, 3) == len(message)
    assert buffer[3:-2] == message
    with pytest.raises(EncodeError):
        QUOTE.encode_into(value, buffer, 6)


def test_constants_are_attributes_of_the_type() -> None:
    assert (QUOTE.type.currency, QUOTE.types["price"].exponent) == ("EUR", -4)
    assert [*QUOTE.types] == ["price", "fills", "orders", "orders.parts"]
    assert (QUOTE.length, BEAT.length) == (None, 16)


@st.composite
def quotes(draw: st.DrawFn) -> Any:
    """Return a value of the type of quotes."""
    text = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)
    int64 = st.integers(-(2**63), 2**63 - 1)
    types = QUOTE.types
    parts = st.lists(st.builds(types["orders.parts"], st.integers(0, 255)), max_size=3)
    return QUOTE.type(
        sequence=draw(st.integers(0, 2**64 - 1)),
        symbol=draw(text),
        price=types["price"](draw(int64)),
        side=draw(st.sampled_from(["BUY", "SELL", "63"])),
        state=draw(st.sampled_from(["OPEN", "SHUT", "9", None])),
        conditions=draw(st.integers(0, 255)),
        venue=draw(st.sampled_from(["XETR", "A", None])),
        levels=tuple(draw(st.tuples(*[st.integers(-(2**15), 2**15 - 1)] * 3))),
        key=draw(st.binary(min_size=4, max_size=4)),
        size=draw(st.none() | st.integers(-(2**31) + 1, 2**31 - 1)),
        ratio=draw(st.none() | st.floats(allow_nan=False)),
        fills=draw(
            st.lists(
                st.builds(types["fills"], st.integers(-9, 9), st.integers(0, 2**32 - 1)), max_size=3
            )
        ),
        orders=draw(st.lists(st.builds(types["orders"], int64, parts, text), max_size=3)),
        text=draw(st.text(st.characters(codec="utf-8"), max_size=9)),
        blob=draw(st.binary(max_size=9)),
    )


@given(st.lists(quotes(), min_size=1, max_size=3))
def test_values_survive_a_round_trip_and_are_those_of_columns(values: list[Any]) -> None:
    messages = [QUOTE.encode(value) for value in values]
    assert [QUOTE.decode(message) for message in messages] == values
    assert columns_of(QUOTE, messages) == [(plain(value), None) for value in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_flat_messages_are_read_as_columns_by_the_short_way(numbers: list[int]) -> None:
    messages = [BEAT.encode(BEAT.type(number)) for number in numbers]
    assert columns_of(BEAT, messages) == [({"at": number}, None) for number in numbers]


def outcome(message: bytes) -> tuple[Any, str | None]:
    """Return what one by one makes of a message, in the words of columns."""
    try:
        return plain(QUOTE.decode(message)), None
    except DecodeError as error:
        return dict.fromkeys(Quote().row()), str(error)


def same(message: bytes) -> None:
    """Check that one by one and columns agree: on the values, or that there are none."""
    found, error = outcome(message)
    ((row, reason),) = columns_of(QUOTE, [message])
    assert (error is None) == (reason is None), (error, reason)
    if error is None:
        # NaN is what an optional float has for null.
        assert row == found | {n: row[n] for n in ("ratio",) if row[n] != row[n]}


def test_every_truncation_is_refused_by_both_ways() -> None:
    message = GOLDEN[2].encode()
    for length in range(len(message)):
        with pytest.raises(DecodeError):
            QUOTE.decode(message[:length])
        same(message[:length])


def test_both_ways_agree_on_damaged_messages() -> None:
    rng = random.Random(5)
    good = GOLDEN[2].encode()
    for _ in range(200):
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        same(bytes(damaged[: rng.randrange(len(damaged) + 1)]))
        same(bytes(damaged))


@pytest.mark.parametrize(("version", "length"), [(0, 52), (1, 52), (2, 48), (1, 60), (3, 100)])
def test_both_ways_agree_on_other_versions(version: int, length: int) -> None:
    quote = Quote(fills=((5, 6),), orders=((1, (2,), b"x"),))
    message = quote.encode(version=version, block_length=length)
    same(message)
    value = QUOTE.decode(message)
    assert (value.ratio is None) == (version < 2 or length < 60)
    assert (value.orders is None) == (version < 1)
    assert (value.size is None) == (length < 52)
    if version >= 2:
        QUOTE.encode(value)


@pytest.mark.parametrize("count", [0xFFFF, 1])
@pytest.mark.parametrize("length", [0, 1, 0xFFFF])
def test_no_length_in_a_payload_decides_an_allocation(count: int, length: int) -> None:
    message = Quote().encode()[:68] + struct.pack("<HH", length, count)
    with pytest.raises(DecodeError, match="group fills is longer than its message"):
        QUOTE.decode(message)


def test_entries_without_bytes_are_refused() -> None:
    message = Quote().encode()[:68] + struct.pack("<HH", 0, 5) + bytes(100)
    with pytest.raises(DecodeError, match="group fills has entries of 0 bytes, fewer than 4"):
        QUOTE.decode(message)
    same(message)
    empty = Quote().encode()[:68] + struct.pack("<HH", 0, 0) + Quote().encode()[72:]
    assert QUOTE.decode(empty).fills == []
    same(empty)


def test_entries_that_had_no_field_in_an_older_version_are_read() -> None:
    text, field = SCHEMA.read_text(), '<field name="id" id="31" type="int64"'
    assert field + "/>" in text
    older = SbeSchema(text.replace(field + "/>", "")).codec("Quote")
    newer = SbeSchema(text.replace(field, field + ' sinceVersion="2"')).codec("Quote")
    entry, part = older.types["orders"], older.types["orders.parts"]
    orders = [entry(parts=[part(1), part(2)], owner="me"), entry(parts=[], owner="you")]
    message = older.encode(older.decode(Quote(orders=()).encode(version=1))._replace(orders=orders))
    read = newer.decode(message).orders
    assert [(each.id, len(each.parts), each.owner) for each in read] == [
        (None, 2, "me"),
        (None, 0, "you"),
    ]
    ((row, reason),) = columns_of(newer, [message])
    assert reason is None
    assert row["orders"] == plain(read)


def test_a_group_of_a_newer_writer_has_longer_entries() -> None:
    message = Quote().encode()
    entries = struct.pack("<HH", 10, 2) + struct.pack("<iIH", 1, 2, 99) * 2
    value = QUOTE.decode(message[:68] + entries + message[72:])
    assert value.fills == [(1, 2), (1, 2)]
    older = struct.pack("<HH", 4, 1) + struct.pack("<i", 1)
    assert QUOTE.decode(message[:68] + older + message[72:]).fills == [(1, None)]


def test_other_schemas_and_templates_are_refused() -> None:
    with pytest.raises(DecodeError, match="schema 9, not 7"):
        BEAT.decode(struct.pack("<HHHHq", 8, 2, 9, 2, 1))
    with pytest.raises(DecodeError, match=r"template 2, not 1 \(Quote\)"):
        QUOTE.decode(struct.pack("<HHHHq", 8, 2, 7, 2, 1))


def test_one_codec_has_several_messages() -> None:
    both = QUOTES.codecs()
    beat = both.types["Heartbeat"](7)
    quote = both.decode(golden(Quote()))
    assert [both.decode(both.encode(each)) for each in (beat, quote)] == [beat, quote]
    with pytest.raises(EncodeError, match="a tuple is none of Quote, Heartbeat"):
        both.encode((7,))
    with pytest.raises(DecodeError, match=r"template 3 is none of 1 \(Quote\), 2 \(Heartbeat\)"):
        both.decode(struct.pack("<HHHH", 0, 3, 7, 0))
    with pytest.raises(DecodeError, match="shorter than its header"):
        both.decode(b"1234567")


ENTRY, ORDER, PART = (QUOTE.types[each] for each in ("fills", "orders", "orders.parts"))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"sequence": -1}, "Quote.sequence=-1: "),
        ({"sequence": None}, "Quote.sequence=None: "),
        ({"symbol": "123456789"}, "Quote.symbol='123456789': "),
        ({"symbol": None}, "Quote.symbol=None: "),
        ({"side": "BYE"}, "Quote.side='BYE': "),
        ({"side": None}, "Quote.side=None: "),
        ({"levels": (1, 2)}, "Quote.levels=(1, 2): "),
        ({"levels": 5}, "Quote.levels=5: "),
        ({"key": b"123"}, "Quote.key=b'123': "),
        ({"price": 7}, "Quote.price=7 has not the fields mantissa: "),
        ({"price": QUOTE.types["price"]("1\n")}, "Quote.price=price(mantissa="),
        ({"fills": [(1, 2)]}, "Quote.fills[0]: (1, 2) has not the fields size, at: "),
        ({"fills": [ENTRY(1, 2), ENTRY(1, -2)]}, "Quote.fills[1].at=-2: "),
        ({"fills": 5}, "Quote.fills: "),
        ({"fills": [ENTRY(1, 2)] * 65_536}, "Quote.fills: 65536 entries: "),
        ({"orders": [ORDER(1, [PART(1), PART(256)], "")]}, "Quote.orders[0].parts[1].part=256: "),
        ({"text": "x" * 65_536}, "Quote.text: 65536 characters or bytes: "),
        ({"blob": 7}, "Quote.blob=7: "),
        ({"blob": 0}, "Quote.blob=0: "),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_value_that_does_not_fit_is_refused_and_its_part_named(
    changes: dict[str, Any], where: str
) -> None:
    value = QUOTE.decode(golden(Quote()))
    sizes = set()
    for _ in range(3):
        with pytest.raises(EncodeError) as caught:
            QUOTE.encode(value._replace(**changes))
        assert str(caught.value).startswith(where), caught.value
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
        sizes.add(len(QUOTE._block.scope.names))
    # Values that are refused again and again do not fill the memory.
    assert len(sizes) == 1


def test_a_buffer_that_is_too_short_is_told_by_its_length() -> None:
    with pytest.raises(EncodeError, match=r"Heartbeat: .*at least 16 bytes"):
        BEAT.encode_into(BEAT.type(3), bytearray(9), 0)
    with pytest.raises(EncodeError, match=r"Heartbeat\.at='3': "):
        BEAT.encode_into(BEAT.type("3"), bytearray(16), 0)


def test_a_class_of_ones_own_is_made() -> None:
    codec = QUOTES.codec("Heartbeat", into=complex)
    assert codec.decode(BEAT.encode(BEAT.type(3))) == 3 + 0j


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('name="Heartbeat"', 'name="Heartbeat" blockLength="4"', "blockLength 4 is less than"),
        ('name="Heartbeat"', 'name="Heartbeat" blockLength="16777217"', "longer than 16777216"),
        ('name="at"', 'name="at" offset="99999999999999999999999"', "which is no number"),
        ('name="at"', 'name="a); import os; ("', "cannot be the name of an attribute"),
        ('name="at"', 'name="__class__"', "cannot be the name of an attribute"),
        ('id="2"', 'id="70000"', "do not fit the message header"),
    ],
)
def test_a_schema_that_no_codec_can_have_is_refused(old: str, new: str, error: str) -> None:
    head, message = SCHEMA.read_text().split('  <sbe:message name="Heart')
    text = head + '  <sbe:message name="Heart' + message.replace(old, new)
    if old not in message and old == 'name="Heartbeat"':
        text = head + f"  <sbe:message {new}" + message.removeprefix('beat"')
    with pytest.raises(ConfigurationError, match=error):
        SbeSchema.from_xml(text).codec("Heartbeat")


def test_a_block_length_of_the_schema_is_written_and_big_endian_too() -> None:
    text = SCHEMA.read_text().replace(
        '<sbe:message name="Heartbeat"', '<sbe:message name="Heartbeat" blockLength="12"'
    )
    codec = SbeSchema.from_xml(text.replace("littleEndian", "bigEndian")).codec("Heartbeat")
    message = struct.pack(">HHHHq4x", 12, 2, 7, 2, 5)
    assert codec.encode(codec.type(5)) == message
    assert codec.decode(message) == (5,)
    assert codec.length == 20


def test_what_a_codec_of_the_official_tool_has_written_is_read_and_written_alike() -> None:
    folder = Path(__file__).parent
    lines = (folder / "car.hex").read_text().splitlines()
    message = bytes.fromhex("".join(line for line in lines if not line.startswith("#")))
    codec = SbeSchema.from_file(folder / "car.xml").codec("Vehicle")
    car = codec.decode(message)
    assert (car.number, car.built, car.isThere, car.kind) == (1234, 2013, "yes", "A")
    assert (car.counts, car.plate, car.options) == ((1, 2, 3, 4), "abcdef", 6)
    assert (car.cheaper, car.motor.limit, car.motor.burns) == ("C", 9000, "Petrol")
    assert car.motor == (2000, 4, "123", 35, "yes", ("gas", 200))
    assert car.usages[0] == (30, struct.unpack("f", struct.pack("f", 35.9))[0], "Urban Cycle")
    assert [entry.octane for entry in car.fuels] == [95, 99]
    assert [each.speed for each in car.fuels[1].sprints] == [30, 60, 100]
    assert car[-3:] == ("Honda", "Civic VTi", "abcdef")
    assert codec.encode(car) == message
    assert columns_of(codec, [message]) == [(plain(car), None)]


ODD = """<messageSchema id="7" version="3" headerType="head"><types>
<composite name="head"><type name="version" primitiveType="uint8"/>
<type name="schemaId" primitiveType="uint8"/><type name="templateId" primitiveType="uint8"/>
<type name="blockLength" primitiveType="uint16" offset="4"/></composite>
<type name="Ticks" primitiveType="float" length="2" presence="optional"/>
<type name="Part" primitiveType="float" presence="optional" nullValue="0.1"/>
<enum name="Wide" encodingType="uint16"><validValue name="one">1</validValue></enum>
<composite name="Inner"><type name="deep" primitiveType="int8"/></composite>
<composite name="Pair"><type name="left" primitiveType="int8"/><ref name="inner" type="Inner"/>
</composite></types>
<message name="Odd" id="1"><field name="class" id="1" type="Ticks"/>
<field name="part" id="2" type="Part"/><field name="wide" id="3" type="Wide"/>
<field name="pair" id="4" type="Pair"/>
<field name="code" id="5" type="char" presence="optional" sinceVersion="2"/>
</message></messageSchema>"""


def test_a_header_and_types_that_are_unusual_are_read_and_written() -> None:
    codec = SbeSchema.from_xml(ODD).codec()
    pair = codec.types["pair"](3, codec.types["pair.inner"](4))
    values = [
        codec.type((1.5, None), 2.5, "one", pair, "x"),
        codec.type((0.5, 1.0), None, "9", pair),
    ]
    messages = [codec.encode(value) for value in values]
    head = struct.pack("<BBBxH", 3, 7, 1, 17)
    assert messages[0][:14] == head + struct.pack("<ff", 1.5, math.nan)
    assert messages[1][14:] == struct.pack("<fHbbc", 0.1, 9, 3, 4, b"\0")
    assert [codec.decode(message) for message in messages] == values
    rows = columns_of(codec, messages)
    for value, (row, error) in zip(values, rows, strict=True):
        found = plain(value)
        assert row == found | {"class": found.pop("class_")}
        assert error is None
    older = struct.pack("<BBBxH", 1, 7, 1, 17) + messages[0][6:]
    assert codec.decode(older).code is None
    assert columns_of(codec, [older])[0][0]["code"] is None
    with pytest.raises(EncodeError):
        codec.encode_into(values[0], bytearray(22))
    buffer = bytearray(23)
    assert codec.encode_into(values[0], buffer) == 23
    assert buffer == messages[0]


def test_entries_of_all_groups_of_a_message_are_bounded() -> None:
    orders = ((9, (1, 2, 3), b"me"), (8, (), b""))
    message = Quote(fills=((1, 2), (-3, 4)), orders=orders).encode()
    value = QUOTES.codec("Quote", max_entries=7).decode(message)
    assert value == QUOTE.decode(message)
    for limit, name in ((1, "fills"), (3, "orders"), (6, "parts")):
        codec = QUOTES.codec("Quote", max_entries=limit)
        with pytest.raises(DecodeError, match=f"group {name} .* more than {limit}; raise max_ent"):
            codec.decode(message)
        # Each message begins anew.
        assert codec.decode(Quote(fills=(), orders=()).encode()).fills == []
        ((row, error),) = columns_of(codec, [message])
        assert (row["fills"], error) == (plain(value)["fills"], None)
    union = QUOTES.codecs(max_entries=6)
    with pytest.raises(DecodeError, match="raise max_entries"):
        union.decode(message)
    with pytest.raises(ConfigurationError, match="max_entries=0"):
        QUOTES.codec("Quote", max_entries=0)


def test_as_many_entries_as_the_usual_group_can_have_are_decoded() -> None:
    fills = struct.pack("<HH", 4, 65_535) + bytes(4 * 65_535)
    message = Quote().encode()
    assert len(QUOTE.decode(message[:68] + fills + message[72:]).fills) == 65_535
