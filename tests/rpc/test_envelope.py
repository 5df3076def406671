"""The envelope to the byte, and what is not one."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aeron_async.rpc
from aeron_async.errors import ConfigurationError, ProtocolError
from aeron_async.rpc.envelope import (
    BLOCK_LENGTH,
    EXTENSIONS_MAX,
    HEAD,
    HEAD_LENGTH,
    SCHEMA_ID,
    VERSION,
    CallFlag,
    Extension,
    Template,
    body_offset,
    extensions_of,
    head,
    method_id,
    pack_extensions,
    text_of,
)

SCHEMA = Path(aeron_async.rpc.__file__).with_name("aeron-async-rpc.xml")


def test_a_call_is_these_bytes() -> None:
    frame = head(
        Template.CALL,
        7,
        amount=1_000_000,
        number=method_id("orders", "place"),
        flags=CallFlag.LAST | CallFlag.IDEMPOTENT,
        extensions=pack_extensions([(Extension.NAME, b"abc")]),
    )
    assert frame.hex(" ", 2) == (
        "1800 0300 5241 0100 0700 0000 0000 0000 4042 0f00 0000 0000 adf1 953e 0300 0800 "
        "0500 0300 6162 6300"
    )


def test_the_number_of_a_method_is_that_of_java() -> None:
    # What java.util.zip.CRC32 makes of the bytes of "orders/place".
    assert method_id("orders", "place") == 0x3E95F1AD


def test_the_schema_for_generators_says_the_same() -> None:
    root = ET.parse(SCHEMA).getroot()  # noqa: S314 - our own file
    assert (int(root.get("id", "")), int(root.get("version", ""))) == (SCHEMA_ID, VERSION)
    messages = {each.get("name", "").upper(): each for each in root if "message" in each.tag}
    assert {name: int(each.get("id", "")) for name, each in messages.items()} == {
        each.name: each.value for each in Template
    }
    width = {"uint64": 8, "uint32": 4, "uint16": 2, "Flags": 2}
    for message in messages.values():
        fields = [(each.get("name"), width[each.get("type", "")]) for each in message]
        assert fields == [
            ("callId", 8),
            ("amount", 8),
            ("number", 4),
            ("flags", 2),
            ("extLength", 2),
        ]
        assert sum(length for _, length in fields) == BLOCK_LENGTH == HEAD_LENGTH - 8
    choices = {
        each.get("name", "").upper().replace("NEVERBEGUN", "NEVER_BEGUN"): 1 << int(each.text or "")
        for each in root.iter("choice")
    }
    assert choices == {each.name: each.value for each in CallFlag}


@given(st.lists(st.tuples(st.integers(1, 65_535), st.binary(max_size=60)), max_size=8))
def test_extensions_come_back(given: list[tuple[int, bytes]]) -> None:
    packed = pack_extensions(given)
    frame = head(Template.HELLO, 0, extensions=packed) + b"body"
    at = body_offset(SCHEMA_ID, BLOCK_LENGTH, len(packed), len(frame))
    assert frame[at:] == b"body"
    assert extensions_of(frame, BLOCK_LENGTH, len(packed)) == dict(given)


def test_a_longer_block_of_a_later_version_is_skipped() -> None:
    frame = HEAD.pack(32, Template.CALL, SCHEMA_ID, 2, 1, 0, 0, 1, 0) + bytes(8) + b"body"
    assert frame[body_offset(SCHEMA_ID, 32, 0, len(frame)) :] == b"body"


@given(st.binary(max_size=120))
def test_no_bytes_are_read_beyond_the_end(data: bytes) -> None:
    padded = data.ljust(HEAD_LENGTH, b"\0")
    block, _, schema, _, _, _, _, _, ext_length = HEAD.unpack_from(padded)
    try:
        at = body_offset(schema, block, ext_length, len(padded))
        found = extensions_of(padded, block, ext_length)
    except ProtocolError:
        return
    assert at <= len(padded)
    assert sum(map(len, found.values())) <= EXTENSIONS_MAX


@pytest.mark.parametrize(
    ("schema", "block", "ext_length", "length"),
    [(1, 24, 0, 32), (SCHEMA_ID, 23, 0, 32), (SCHEMA_ID, 24, 1_025, 2_000), (SCHEMA_ID, 24, 4, 32)],
)
def test_what_announces_more_than_there_is_is_refused(
    schema: int, block: int, ext_length: int, length: int
) -> None:
    with pytest.raises(ProtocolError):
        body_offset(schema, block, ext_length, length)


def test_extensions_that_are_too_long_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        pack_extensions([(1, bytes(1_021))])
    assert len(text_of("é" * 500)) <= 255
