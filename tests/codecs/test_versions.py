"""Messages of older and newer programs, as `docs/howto/change-messages.md` says of each codec."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.codecs import (
    JsonCodec,
    MsgpackCodec,
    ProtobufCodec,
    SbeSchema,
    StructCodec,
    enveloped,
)
from aeron_async.errors import DecodeError

msgspec = pytest.importorskip("msgspec", reason="pip install 'aeron-async[msgspec]'")

OLD: Any = StructCodec("<price:d,count:i")
NEW: Any = StructCodec("<price:d,count:i,venue:4s")


def test_a_struct_may_grow_at_the_end_and_only_older_readers_read_it() -> None:
    assert OLD.decode(NEW.encode((1.5, 2, "XLON"))) == (1.5, 2)
    with pytest.raises(DecodeError, match="message of 12 bytes is shorter than its 16 bytes"):
        NEW.decode(OLD.encode((1.5, 2)))


def test_an_envelope_says_which_versions_a_reader_takes() -> None:
    one: Any = enveloped(OLD, schema_id=7, version=1)
    two: Any = enveloped(NEW, schema_id=7, version=2)
    assert one.decode(two.encode((1.5, 2, "XLON"))) == (1.5, 2)
    strict: Any = enveloped(OLD, schema_id=7, version=1, newest_version=1)
    with pytest.raises(DecodeError, match="version 2 is not 0 to 1"):
        strict.decode(two.encode((1.5, 2, "XLON")))
    late: Any = enveloped(NEW, schema_id=7, version=2, oldest_version=2)
    with pytest.raises(DecodeError, match="version 1 is not 2 to 65535"):
        late.decode(one.encode((1.5, 2)))


def kinds(**options: Any) -> tuple[Any, Any, Any]:
    """Return a type, one with a new field that has a default, and one with a new field without."""
    base = ("price", float)
    return (
        msgspec.defstruct("Old", [base], **options),
        msgspec.defstruct("New", [base, ("venue", str, "?")], **options),
        msgspec.defstruct("Demanding", [base, ("venue", str)], **options),
    )


@pytest.mark.parametrize(
    ("codec", "options"),
    [(JsonCodec, {}), (MsgpackCodec, {}), (MsgpackCodec, {"array_like": True})],
    ids=["json", "map", "array"],
)
def test_a_field_with_a_default_may_come_and_be_missing(codec: Any, options: Any) -> None:
    old, new, demanding = kinds(**options)
    assert codec(old).decode(codec(new).encode(new(1.0, "XLON"))) == old(1.0)
    assert codec(new).decode(codec(old).encode(old(1.0))) == new(1.0, "?")
    with pytest.raises(msgspec.ValidationError, match=r"missing required field|at least length 2"):
        codec(demanding).decode(codec(old).encode(old(1.0)))


def test_a_reader_may_refuse_fields_that_it_does_not_know() -> None:
    _, new, _ = kinds()
    (strict, _, _) = kinds(forbid_unknown_fields=True)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        JsonCodec(strict).decode(JsonCodec(new).encode(new(1.0, "XLON")))


def test_a_union_refuses_a_kind_that_it_does_not_know() -> None:
    known = msgspec.defstruct("Known", [("x", int)], tag=True)
    other = msgspec.defstruct("Other", [("x", int)], tag=True)
    with pytest.raises(msgspec.ValidationError, match="Other"):
        JsonCodec(known).decode(JsonCodec(other).encode(other(1)))


def protobuf(*fields: str) -> Any:
    """Return a class of Protocol Buffers with these text fields, numbered from 1."""
    pool_module = pytest.importorskip("google.protobuf.descriptor_pool", reason="needs protobuf")
    from google.protobuf import descriptor_pb2, message_factory  # noqa: PLC0415 - an extra

    file = descriptor_pb2.FileDescriptorProto(name="quote.proto", syntax="proto3")
    made = file.message_type.add(name="Quote")
    for number, name in enumerate(fields, 1):
        made.field.add(name=name, number=number, label=1, type=9)
    pool = pool_module.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Quote"))


def test_protobuf_keeps_unknown_fields_and_fills_missing_ones() -> None:
    old, new = protobuf("symbol"), protobuf("symbol", "venue")
    message = ProtobufCodec(new).encode(new(symbol="ACME", venue="XLON"))
    read = ProtobufCodec(old).decode(message)
    assert read.symbol == "ACME"
    assert ProtobufCodec(old).encode(read) == message
    assert ProtobufCodec(new).decode(ProtobufCodec(old).encode(old(symbol="ACME"))).venue == ""


XML = """<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="quotes" id="7"
 version="{version}" byteOrder="littleEndian"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
<enum name="Side" encodingType="uint8"><validValue name="BUY">1</validValue>{side}</enum></types>
<sbe:message name="Quote" id="1"><field name="price" id="1" type="double"/>
<field name="side" id="2" type="Side"/>{field}</sbe:message>{message}</sbe:messageSchema>"""
FIRST = XML.format(version=0, side="", field="", message="")
SECOND = XML.format(
    version=1,
    side='<validValue name="SELL" sinceVersion="1">2</validValue>',
    field='<field name="venue" id="3" type="uint32" sinceVersion="1"/>',
    message='<sbe:message name="Beat" id="2"><field name="at" id="1" type="int64"/></sbe:message>',
)


def test_sbe_reads_older_and_newer_messages() -> None:
    first, second = SbeSchema(FIRST), SbeSchema(SECOND)
    old, new = first.codec("Quote"), second.codec("Quote")
    assert old.decode(new.encode(new.type(1.0, "BUY", 7))) == (1.0, "BUY")
    assert new.decode(old.encode(old.type(1.0, "BUY"))) == (1.0, "BUY", None)
    # A value of an enumeration that the reader does not know is its number, as a text.
    assert old.decode(new.encode(new.type(1.0, "SELL", 7))) == (1.0, "2")
    beat = second.codec("Beat")
    with pytest.raises(DecodeError, match=r"template 2 is none of 1 \(Quote\)"):
        first.codecs().decode(beat.encode(beat.type(1)))
