"""Packed structs: values, columns, and what is refused."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.codecs import StructCodec
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from tests.codecs.columns import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    **{
        code: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for code, bits in zip("bhiq", (8, 16, 32, 64), strict=True)
    },
    **{
        code: st.integers(0, 2**bits - 1)
        for code, bits in zip("BHIQ", (8, 16, 32, 64), strict=True)
    },
    "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
}
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=2)


@st.composite
def specs(draw: st.DrawFn) -> tuple[str, list[st.SearchStrategy[Any]]]:
    """Return a spec, and the strategy of each field."""
    parts, values = [], []
    for number in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            parts.append(f"{draw(st.integers(1, 5))}x")
        if draw(st.booleans()):
            parts.append(f"f{number}:8s")
            values.append(TEXTS)
        else:
            code = draw(st.sampled_from([*NUMBERS]))
            parts.append(f"f{number}:{code}")
            values.append(NUMBERS[code])
    return draw(st.sampled_from("<>")) + ",".join(parts), values


@given(specs(), st.data())
def test_values_survive_a_round_trip_and_are_those_of_columns(
    spec: tuple[str, list[st.SearchStrategy[Any]]], data: st.DataObject
) -> None:
    codec = StructCodec(spec[0])
    values = [
        codec.type(*[data.draw(each) for each in spec[1]])
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    messages = [codec.encode(value) for value in values]
    assert {len(message) for message in messages} == {codec.length}
    assert [codec.decode(message) for message in messages] == values
    assert [codec.decode(memoryview(message)) for message in messages] == values
    rows = columns_of(codec, messages)
    assert rows == [(value._asdict(), None) for value in values]
    longer = [messages[0] + b"more", *messages]
    assert columns_of(codec, longer) == [rows[0], *rows]
    assert codec.decode(longer[0]) == values[0]
    with pytest.raises(DecodeError, match="is shorter than its"):
        codec.decode(messages[0][:-1])


def test_every_truncation_is_refused_by_both_ways() -> None:
    codec = StructCodec("<price:d,symbol:8s,size:I")
    message = codec.encode(codec.type(1.5, "AERN", 7))
    for length in range(len(message)):
        error = f"message of {length} bytes is shorter than its 20 bytes of fields"
        with pytest.raises(DecodeError, match=error):
            codec.decode(message[:length])
        assert columns_of(codec, [message[:length], message])[0][1] == error


class Quote(NamedTuple):
    price: float
    symbol: bytes


def test_a_class_of_ones_own_is_made() -> None:
    codec = StructCodec("<price:d,symbol:8s", into=Quote, raw_bytes=True)
    message = codec.encode(Quote(1.5, b"AERN"))
    assert codec.decode(message) == Quote(1.5, b"AERN\0\0\0\0")
    assert columns_of(codec, [message]) == [({"price": 1.5, "symbol": b"AERN\0\0\0\0"}, None)]


def test_it_writes_into_a_buffer() -> None:
    codec = StructCodec("<a:i,b:4s")
    buffer = bytearray(12)
    assert codec.encode_into(codec.type(7, "xy"), buffer, 3) == 8
    assert buffer == b"\0\0\0\x07\0\0\0xy\0\0\0"
    with pytest.raises(EncodeError):
        codec.encode_into(codec.type(7, "xy"), buffer, 5)


def test_a_text_ends_at_its_first_zero_and_must_be_utf8() -> None:
    codec = StructCodec("<symbol:8s,size:i")
    pack = struct.Struct("<8si").pack
    messages = [pack(b"AB\0CD", 1), pack(b"ABCDEFGH", 2), pack(b"\xff", 3)]
    assert [codec.decode(each).symbol for each in messages[:2]] == ["AB", "ABCDEFGH"]
    with pytest.raises(DecodeError, match="no UTF-8"):
        codec.decode(messages[2])
    rows = columns_of(codec, messages)
    assert [row["symbol"] for row, _ in rows] == ["AB", "ABCDEFGH", None]
    assert [error for _, error in rows] == [None, None, "symbol is no string"]


@pytest.mark.parametrize(
    "value", [("A" * 9, 1), ("A\0B", 1), (None, 1), ("A", 2**31), ("A", "x"), ("A",), 7],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        StructCodec("<symbol:8s,size:i").encode(value)


@pytest.mark.parametrize(
    "spec", ["", "<", "a:i,a:i", "a:2i", "a:P", "i", "a:0s", "a:65537s", "_a:i", "a:i;b:i", "4x"]
)
def test_a_spec_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(ConfigurationError):
        StructCodec(spec)


def test_a_field_may_be_named_like_a_keyword() -> None:
    codec = StructCodec("<from:i,class:i")
    assert codec.decode(codec.encode(codec.type(from_=1, class_=2))) == (1, 2)


def test_it_has_the_types_of_numpy_and_arrow() -> None:
    np = pytest.importorskip("numpy")
    codec = StructCodec(">a:H,2x,b:?,symbol:4s,c:d")
    message = codec.encode(codec.type(7, True, "AB", 1.5))
    array = np.frombuffer(message * 2, codec.dtype)
    assert array.tolist() == [(7, True, b"AB", 1.5)] * 2
    assert str(codec.arrow_schema) == "a: uint16\nb: bool\nsymbol: string\nc: double"


@pytest.mark.parametrize("ask", [lambda codec: codec.columns(), lambda codec: codec.dtype])
def test_columns_need_an_extra(ask: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415 - what is imported is the subject

    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "aeron_async.codecs.columns", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'aeron-async\[columns\]'"):
        ask(StructCodec("<a:i"))


@pytest.mark.parametrize("value", [(1, 2), (b"a", 1.0, 2.0, 3), 5, None, ("x", "y", 2)])
def test_what_cannot_be_encoded_is_told_the_fields(value: Any) -> None:
    for spec in ("<symbol:8s,bid:d,ask:d", "<symbol:d,bid:d,ask:d"):
        with pytest.raises(EncodeError, match=r": a value has the fields symbol, bid, ask$"):
            StructCodec(spec).encode(value)
