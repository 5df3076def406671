"""Messages of the control protocol: as the official archive and its client wrote them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.control.messages import (
    CATALOG_REQUESTS,
    CODEC,
    PROTOCOL_VERSION,
    STREAM_REQUESTS,
    AuthConnectRequest,
    ControlResponse,
    KeepAliveRequest,
    ListRecordingsRequest,
    Ping,
    RecordingSignalMessage,
    ReplayRequest,
    StartRecordingRequest,
    major_of,
    version_text,
)
from aeron_async.archive.control.sbe import HEADER, Layout, SbeMessage
from aeron_async.errors import ConfigurationError, ProtocolError
from tests.archive.golden import facts

KINDS: tuple[type[SbeMessage], ...] = (
    *STREAM_REQUESTS,
    *CATALOG_REQUESTS,
    ControlResponse,
    Ping,
    RecordingSignalMessage,
)


@cache
def golden() -> list[dict[str, Any]]:
    return list(facts().get("20-archive-control", {}).get("control_messages", []))


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_every_official_message_is_read_and_written_byte_for_byte() -> None:
    for fact in golden():
        data = bytes.fromhex(fact["hex"])
        message = CODEC.decode(data)
        assert fact["template_id"] == message.TEMPLATE
        assert CODEC.encode(message) + bytes(fact["trailing_bytes"]) == data


def test_every_official_message_has_the_fields_that_its_facts_state() -> None:
    for fact in golden():
        message = CODEC.decode(bytes.fromhex(fact["hex"]))
        for name, value in fact["fields"].items():
            found = getattr(message, snake(name))
            if isinstance(found, bytes):
                found = found.hex()
            elif isinstance(found, int) and isinstance(value, str):
                value = int(value.split()[0])  # noqa: PLW2901 - the fact names what it means
            assert found == value, (fact["message"], name)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_beginning_of_a_message_is_read_as_a_whole_one(kind: type[SbeMessage]) -> None:
    layout = Layout(kind)
    values = dict.fromkeys(layout.numbers, 7)
    texts = {name: "abc" if code == "text" else b"abc" for name, code in layout.texts}
    message = kind(**values, **texts)
    data = CODEC.encode(message)
    assert CODEC.decode(data) == message
    for length in range(len(data)):
        try:
            shorter = CODEC.decode(data[:length])
        except ProtocolError:
            continue
        # Only what an older version did not have yet may be missing.
        changed = {name for name in texts if getattr(shorter, name) != texts[name]}
        assert changed <= set(layout.defaults)


def test_an_old_client_has_shorter_blocks_and_fewer_texts() -> None:
    replay = ReplayRequest(
        control_session_id=1,
        correlation_id=2,
        recording_id=3,
        position=4,
        length=5,
        replay_stream_id=6,
        file_io_max_length=7,
        replay_token=8,
        replay_channel="aeron:ipc",
    )
    data = CODEC.encode(replay)
    old = HEADER.pack(44, ReplayRequest.TEMPLATE, 101, 6) + data[8:52] + data[64:]
    assert CODEC.decode(old) == attrs.evolve(replay, file_io_max_length=-1, replay_token=-1)
    connect = AuthConnectRequest(
        correlation_id=1, response_stream_id=2, version=3, response_channel="aeron:ipc"
    )
    assert CODEC.decode(CODEC.encode(connect)[:-4]) == connect


def test_a_newer_client_has_longer_blocks() -> None:
    data = CODEC.encode(KeepAliveRequest(control_session_id=1, correlation_id=2))
    newer = HEADER.pack(24, KeepAliveRequest.TEMPLATE, 101, 99) + data[8:] + bytes(8)
    assert CODEC.decode(newer) == KeepAliveRequest(control_session_id=1, correlation_id=2)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "0 bytes, shorter than its header"),
        (HEADER.pack(16, 61, 100, 14) + bytes(16), "expected schemaId=101, actual=100"),
        (HEADER.pack(16, 99, 101, 14) + bytes(16), "unknown template 99"),
        (HEADER.pack(65535, 61, 101, 14) + bytes(16), "a block of 65535 bytes in 24"),
        (HEADER.pack(8, 61, 101, 14) + bytes(16), "a block of 8 bytes lacks correlation_id"),
        (HEADER.pack(20, 5, 101, 14) + bytes(22), "end before the length of channel"),
        (HEADER.pack(20, 5, 101, 14) + bytes(20) + b"\xff" * 4, "4294967295 bytes where 0 are"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(data: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(complaint)):
        CODEC.decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(body: bytes) -> None:
    for kind in KINDS:
        data = HEADER.pack(len(body) % 70, kind.TEMPLATE, 101, 14) + body
        try:
            message = CODEC.decode(data)
        except ProtocolError:
            continue
        assert CODEC.decode(CODEC.encode(message)) == message


def test_a_number_that_does_not_fit_is_refused() -> None:
    request = ListRecordingsRequest(
        control_session_id=1, correlation_id=2, from_recording_id=0, record_count=1 << 31
    )
    with pytest.raises(ConfigurationError, match="does not fit"):
        CODEC.encode(request)


def test_what_is_no_ascii_is_written_as_a_question_mark() -> None:
    request = StartRecordingRequest(
        control_session_id=1, correlation_id=2, stream_id=3, source_location=0, channel="aeron:é"
    )
    written = CODEC.decode(CODEC.encode(request))
    assert isinstance(written, StartRecordingRequest)
    assert written.channel == "aeron:?"


def test_versions_are_three_numbers() -> None:
    assert version_text(PROTOCOL_VERSION) == "1.12.0"
    assert major_of(PROTOCOL_VERSION) == 1
