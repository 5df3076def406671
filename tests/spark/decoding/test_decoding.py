from __future__ import annotations

import json
import struct
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding import decode_batch, decoded_schema, decoder_of


def rows_of(spec: str, messages: list[bytes]) -> list[dict[str, Any]]:
    payload = pa.array([b"before", *messages, b"after"], pa.binary())[1:-1]
    decoded = decode_batch(pa.record_batch({"payload": payload}), decoder_of(spec))
    decoded.validate(full=True)
    found: list[dict[str, Any]] = decoded.to_pylist()
    return found


def test_a_struct_is_read_in_either_order_of_bytes() -> None:
    spec = "a:b,b:B,c:h,d:H,e:i,f:I,2x,g:q,h:Q,i:f,j:d,k:?,l:4s"
    values = (-1, 255, -2, 65_535, -3, 2**32 - 1, -4, 2**63 - 1, 0.5, 0.25, True, b"ab")
    for order in "<>":
        message = struct.pack(f"{order}bBhHiI2xqQfd?4s", *values)
        (row,) = rows_of(f"struct:{order}{spec}", [message + b"more"])
        assert list(row.values()) == [*values[:-1], "ab", None]
        assert list(row) == [*"abcdefghijkl", "decode_error"]


def test_a_struct_that_is_too_short_is_null_and_says_so() -> None:
    rows = rows_of("struct:a:i,b:2s", [struct.pack("<i2s", 7, b"xy"), b"12345", b"", b"1"])
    assert rows[0] == {"a": 7, "b": "xy", "decode_error": None}
    for row, length in zip(rows[1:], (5, 0, 1), strict=True):
        reason = f"message of {length} bytes is shorter than its 6 bytes of fields"
        assert row == {"a": None, "b": None, "decode_error": reason}
    assert rows_of("struct:a:i", []) == []


def test_a_struct_whose_bytes_mean_nothing_is_null_and_says_so() -> None:
    rows = rows_of("struct:a:Q,b:2s", [struct.pack("<Q2s", 2**63, b"xy"), b"12345678\xffy"])
    assert [row["decode_error"] for row in rows] == ["a is no int64", "b is no string"]
    assert rows[0]["a"] is None
    assert rows[0]["b"] == "xy"
    assert rows[1]["b"] is None


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("", "'' is no field"),
        ("<", "'' is no field"),
        ("a:z", "'a:z' is no field; write name:format"),
        ("a:2i", "2i is several fields; name each"),
        ("i", "'i' has no name; write name:i"),
        ("a:i,a:i", "has two fields a"),
        ("a:0s", "0 is not 1 to 65536 bytes"),
        ("a:65537s", "65537 is not 1 to 65536 bytes"),
        ("4x", "has no field"),
    ],
)
def test_a_struct_spec_that_cannot_be_meant_is_refused(spec: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        decoder_of(f"struct:{spec}")


SPEC = "a int, b bigint, c double, d string, e boolean"
RIGHT: dict[str, Any] = {"a": -5, "b": 2**40, "c": 1.5, "d": "ü", "e": True}


def test_maps_are_read_and_what_is_not_there_is_null() -> None:
    none = dict.fromkeys(RIGHT)
    expected = [
        RIGHT | {"decode_error": None},
        none | {"decode_error": None},
        none | {"c": 3.0, "decode_error": None},
    ]
    maps: list[dict[str, Any]] = [RIGHT | {"more": [1, {"x": 2}]}, {}, {"c": 3, "d": None}]
    assert rows_of(f"json:{SPEC}", [json.dumps(each).encode() for each in maps]) == expected
    assert rows_of(f"msgpack:{SPEC}", [msgpack.packb(each) for each in maps]) == expected
    assert rows_of("msgpack:x binary", [msgpack.packb({"x": b"\xff"})]) == [
        {"x": b"\xff", "decode_error": None}
    ]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b'{"a": 1', "no JSON: Expecting ',' delimiter: line 1 column 8 (char 7)"),
        (b"\xff", "no JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start"),
        (b"[1]", "JSON of a list, not of a map"),
        (b'{"a": 2147483648}', "a is no int: 2147483648"),
        (b'{"a": true}', "a is no int: True"),
        (b'{"b": 9223372036854775808}', "b is no bigint: 9223372036854775808"),
        (b'{"b": 1.0}', "b is no bigint: 1.0"),
        (b'{"c": "1"}', "c is no double: '1'"),
        (b'{"d": 1}', "d is no string: 1"),
        (b'{"d": "\\ud800"}', "d is no string: '\\ud800'"),
        (b'{"e": 1}', "e is no boolean: 1"),
    ],
)  # fmt: skip
def test_a_map_that_is_wrong_is_null_and_says_so(message: bytes, error: str) -> None:
    right = json.dumps(RIGHT).encode()
    before, wrong, after = rows_of(f"json:{SPEC}", [right, message, right])
    assert before == after == RIGHT | {"decode_error": None}
    assert wrong["decode_error"].startswith(error)
    assert wrong == dict.fromkeys(RIGHT) | {"decode_error": wrong["decode_error"]}


def test_maps_nested_too_deeply_cost_only_their_row() -> None:
    (row,) = rows_of("json:a int", [b"[" * 200_000])
    assert row == {"a": None, "decode_error": "no JSON: nested too deeply"}
    (row,) = rows_of("msgpack:a int", [b"\x91" * 200_000])
    assert row["decode_error"].startswith("no MessagePack: ")


def test_a_whole_number_that_no_double_has_is_the_nearest_one() -> None:
    (row,) = rows_of("json:a double", [b'{"a": 9007199254740993}'])
    assert row == {"a": 9_007_199_254_740_992.0, "decode_error": None}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("json:a", "'a' is no field; write name type"),
        ("json:a int,", "'' is no field"),
        ("json:a decimal", "the type one of boolean int bigint double string binary"),
        ("msgpack:a int, a int", "MessagePack spec 'a int, a int' names a field twice"),
        ("avro:x", "decoder 'avro:x' is none: write struct:, sbe:, json: or msgpack:"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(spec: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        decoder_of(spec)


def test_without_its_package_msgpack_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    with pytest.raises(ConfigurationError, match="pip install msgpack"):
        decoder_of("msgpack:a int")


def test_other_columns_stay_as_they_are() -> None:
    schema = pa.schema([("position", pa.int64()), ("payload", pa.binary()), ("b", pa.int32())])
    decoder = decoder_of("struct:a:i")
    assert decoded_schema(schema, decoder).names == ["position", "b", "a", "decode_error"]
    with pytest.raises(ConfigurationError, match="no payload to decode"):
        decoded_schema(pa.schema([("position", pa.int64())]), decoder)
    with pytest.raises(ConfigurationError, match="fields b have the names of columns"):
        decoded_schema(schema, decoder_of("struct:B:i"))
