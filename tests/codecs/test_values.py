"""Codecs of libraries, pairs of functions, and envelopes."""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from aeron_async import codecs
from aeron_async.codecs import (
    JsonCodec,
    MsgpackCodec,
    ProtobufCodec,
    StructCodec,
    Traced,
    codec,
    enveloped,
)
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from aeron_async.trace_context import TraceContext
from tests.codecs.columns import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Trade(msgspec.Struct):
    symbol: str
    price: float
    tags: list[str] = []


TRADES = st.builds(Trade, st.text(), st.floats(allow_nan=False, allow_infinity=False))
CONTEXT = TraceContext(bytes(range(1, 17)), bytes(range(1, 9)), 1)
NUMBER = StructCodec("<number:q")


@given(TRADES, st.sampled_from([JsonCodec, MsgpackCodec]))
def test_trades_survive_a_round_trip(trade: Trade, kind: Any) -> None:
    made = kind(Trade)
    message = made.encode(trade)
    assert made.decode(message) == made.decode(memoryview(message)) == trade
    for length in range(len(message)):
        with pytest.raises(msgspec.DecodeError):
            made.decode(message[:length])


@pytest.mark.parametrize("kind", [JsonCodec, MsgpackCodec])
def test_what_is_of_another_type_is_refused(kind: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        kind(Trade).decode(kind(dict).encode({"symbol": 1, "price": 2}))
    assert kind(dict).decode(kind(dict).encode({"a": [1, None]})) == {"a": [1, None]}
    with pytest.raises(ConfigurationError, match="msgspec cannot decode into"):
        kind(msgspec.Meta(gt=1))


@pytest.mark.parametrize(
    "hostile", [b"[" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_hostile_payloads_raise(hostile: bytes) -> None:
    for kind in (JsonCodec, MsgpackCodec):
        made: Any = kind(list)
        with pytest.raises((msgspec.DecodeError, RecursionError)):
            made.decode(hostile)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_protobuf_survives_a_round_trip(seconds: int, nanos: int) -> None:
    made = ProtobufCodec(Timestamp)
    value = Timestamp(seconds=seconds, nanos=nanos)
    assert made.decode(made.encode(value)) == made.decode(memoryview(made.encode(value))) == value


def test_protobuf_refuses_what_is_none() -> None:
    made: Any = ProtobufCodec(Timestamp)
    with pytest.raises(DecodeError, match="no Timestamp"):
        made.decode(b"\x08")
    with pytest.raises(EncodeError, match="a str is no Timestamp"):
        made.encode("now")
    kinds: tuple[Any, ...] = (str, 7)
    for kind in kinds:
        with pytest.raises(ConfigurationError, match="is no message of Protocol Buffers"):
            ProtobufCodec(kind)


def test_two_functions_are_a_codec() -> None:
    made: Any = codec(lambda value: json.dumps(value).encode(), json.loads)
    assert made.decode(bytes(made.encode([1, "a"]))) == [1, "a"]
    with pytest.raises(ConfigurationError, match="decode=7 must be a function"):
        codec(str.encode, 7)  # type: ignore[arg-type]


async def later(_value: object) -> bytes:
    return b""


def test_a_codec_is_no_coroutine() -> None:
    with pytest.raises(ConfigurationError, match="encode is an `async def`"):
        codec(later, bytes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("msgspec", lambda: JsonCodec(dict)),
        ("msgspec", lambda: MsgpackCodec(dict)),
        ("google.protobuf.message", lambda: ProtobufCodec(Timestamp)),
    ],
)
def test_an_extra_that_is_not_installed_is_named(
    package: str, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigurationError, match=r"pip install 'aeron-async\[(msgspec|protobuf)\]'"
    ):
        make()


def test_an_envelope_says_schema_and_version() -> None:
    made: Any = enveloped(NUMBER, schema_id=7, version=2, template_id=3)
    message = made.encode((5,))
    assert message == struct.pack("<HHHHq", 0, 3, 7, 2, 5)
    assert made.decode(bytes(message)) == made.decode(memoryview(bytes(message))) == (5,)


def pieces(texts: Any) -> Any:
    return type(texts)(text.encode() for text in texts)


@pytest.mark.parametrize("parts", [["a", "b"], ("a", "b")])
def test_an_envelope_goes_before_a_message_of_several_buffers(parts: Any) -> None:
    texts: Any = enveloped(codec(pieces, bytes), schema_id=1)
    assert b"".join(texts.encode(parts)) == struct.pack("<HHHH", 0, 0, 1, 0) + b"ab"
    views: Any = enveloped(codec(bytearray, bytes), schema_id=1)
    assert b"".join(views.encode(b"ab"))[8:] == b"ab"


HEAD = struct.Struct("<HHHH")
REFUSED = [
    (b"1234567", "shorter than its envelope"),
    (HEAD.pack(0, 0, 6, 2) + bytes(8), "schema 6, not 7"),
    (HEAD.pack(0, 1, 7, 2) + bytes(8), "template 1, not 0"),
    (HEAD.pack(0, 0, 7, 0) + bytes(8), "version 0 is not 1 to 3"),
    (HEAD.pack(0, 0, 7, 4) + bytes(8), "version 4 is not 1 to 3"),
    (HEAD.pack(9, 0, 7, 2) + bytes(8), "envelope of 17 bytes is longer than its message, 16"),
    (HEAD.pack(0, 0, 7, 2) + bytes(7), "is shorter than its 8 bytes of fields"),
]


@pytest.mark.parametrize(("message", "error"), REFUSED)
def test_an_envelope_that_says_something_else_is_refused(message: bytes, error: str) -> None:
    made: Any = enveloped(NUMBER, schema_id=7, version=2, oldest_version=1, newest_version=3)
    with pytest.raises(DecodeError, match=error):
        made.decode(message)
    good = bytes(made.encode((5,)))
    for messages in ([message] * 3, [good, message, good], [good, good + b"x", message]):
        for row, reason in columns_of(made, messages):
            assert reason is None or error in reason
            assert reason is not None or row == {"number": 5}
        assert [reason is None for _, reason in columns_of(made, messages)] == [
            each != message for each in messages
        ]


def test_versions_and_longer_envelopes_are_read() -> None:
    made: Any = enveloped(NUMBER, schema_id=7, version=2)
    others = [
        HEAD.pack(length, 0, 7, version) + bytes(length) + NUMBER.encode((5,))
        for length, version in ((0, 0), (26, 9), (30, 2))
    ]
    assert [made.decode(each) for each in others] == [(5,)] * 3
    assert columns_of(made, others) == [({"number": 5}, None)] * 3


def test_a_trace_context_travels_in_the_envelope() -> None:
    made: Any = enveloped(NUMBER, schema_id=7, with_trace=True)
    traced = Traced((5,), CONTEXT)
    message = bytes(made.encode(traced))
    assert message == HEAD.pack(26, 0, 7, 0) + CONTEXT.to_bytes() + NUMBER.encode((5,))
    assert made.decode(message) == traced
    nothing = Traced((5,), None)
    assert made.decode(bytes(made.encode(nothing))) == nothing
    # One end of the stream may do without.
    untraced: Any = enveloped(NUMBER, schema_id=7)
    assert untraced.decode(message) == (5,)
    assert made.decode(bytes(untraced.encode((5,)))) == nothing
    assert columns_of(made, [message]) == [({"number": 5}, None)]
    with pytest.raises(EncodeError, match="a tuple is no Traced"):
        made.encode((5,))


@pytest.mark.parametrize(
    "numbers",
    [{"schema_id": -1}, {"schema_id": 65_536}, {"schema_id": 1, "version": True},
     {"schema_id": 1, "oldest_version": 3, "newest_version": 2}],
)  # fmt: skip
def test_numbers_beyond_the_envelope_are_refused(numbers: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a whole number"):
        enveloped(NUMBER, **numbers)


def test_what_is_no_codec_has_no_envelope_and_others_no_columns() -> None:
    nothing: Any = 7
    with pytest.raises(ConfigurationError, match="has the methods encode and decode"):
        enveloped(nothing, schema_id=1)
    with pytest.raises(ConfigurationError, match="PairCodec makes no columns"):
        enveloped(codec(bytes, bytes), schema_id=1).columns()


def test_the_package_shows_its_names_and_no_other() -> None:
    assert sorted(codecs.__all__) == dir(codecs)
    assert [name for name in codecs.__all__ if not hasattr(codecs, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = codecs.nothing


def test_protobuf_says_that_a_required_field_is_missing() -> None:
    from google.protobuf.descriptor_pb2 import UninterpretedOption  # noqa: PLC0415 - needs proto2

    made = ProtobufCodec(UninterpretedOption.NamePart)
    with pytest.raises(EncodeError, match="missing required fields"):
        made.encode(UninterpretedOption.NamePart())


def test_columns_of_an_envelope_that_is_all_wrong_are_null() -> None:
    made = enveloped(NUMBER, schema_id=7)
    wrong = bytes(made.encode((5,)))[:2] + b"\x01" + bytes(13)  # type: ignore[arg-type]
    rows = columns_of(made, [wrong, wrong])
    assert rows == [({"number": None}, "schema 0, not 7")] * 2
