from __future__ import annotations

import pytest

from aeron_async.errors import ProtocolError
from aeron_async.protocol.data import DATA_HEADER, DataHeader, encode_heartbeat
from aeron_async.protocol.header import DataFlags, FrameType


def header(*, frame_length: int = 40, frame_type: FrameType = FrameType.DATA) -> DataHeader:
    return DataHeader(
        frame_length=frame_length,
        term_offset=64,
        session_id=-1,
        stream_id=1001,
        term_id=-7,
        frame_type=frame_type,
    )


def test_fields_stand_at_their_offsets() -> None:
    value = DataHeader(
        frame_length=0x01020304,
        term_offset=0x11121314,
        session_id=0x21222324,
        stream_id=0x31323334,
        term_id=0x41424344,
        reserved_value=0x5152535455565758,
        flags=DataFlags.BEGIN_FRAGMENT,
        frame_type=FrameType.PAD,
    )
    assert value.encode().hex(" ", 4) == (
        "04030201 00800000 14131211 24232221 34333231 44434241 58575655 54535251"
    )
    assert DATA_HEADER.size == 32


@pytest.mark.parametrize(
    ("flags", "byte"),
    [
        (DataFlags.UNFRAGMENTED, 0xC0),
        (DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM, 0xE0),
        (DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM | DataFlags.REVOKED, 0xF0),
    ],
)
def test_a_heartbeat_is_a_header_that_carries_only_the_position(
    flags: DataFlags, byte: int
) -> None:
    datagram = encode_heartbeat(
        session_id=-5, stream_id=7, term_id=2**31 - 1, term_offset=96, flags=flags
    )
    assert len(datagram) == 32
    assert datagram[5] == byte
    assert DataHeader.decode(datagram) == DataHeader(
        frame_length=0,
        term_offset=96,
        session_id=-5,
        stream_id=7,
        term_id=2**31 - 1,
        flags=flags,
    )


def test_a_heartbeat_says_nothing_of_the_end_unless_told() -> None:
    datagram = encode_heartbeat(session_id=1, stream_id=1, term_id=1, term_offset=0)
    value = DataHeader.decode(datagram)
    assert value.is_heartbeat
    assert not value.is_end_of_stream
    assert not value.is_revoked


def test_a_revoked_stream_has_ended() -> None:
    flags = DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM | DataFlags.REVOKED
    datagram = encode_heartbeat(session_id=1, stream_id=1, term_id=1, term_offset=0, flags=flags)
    value = DataHeader.decode(datagram)
    assert value.is_end_of_stream
    assert value.is_revoked


def test_an_empty_message_is_no_heartbeat() -> None:
    assert not header(frame_length=32).is_heartbeat


def test_the_header_of_a_long_frame_needs_no_more_than_itself() -> None:
    value = header(frame_length=2**31 - 1, frame_type=FrameType.PAD)
    assert DataHeader.decode(value.encode()) == value


def test_a_negative_frame_length_is_refused() -> None:
    datagram = b"\xff" * 4 + header().encode()[4:]
    with pytest.raises(ProtocolError, match="frame_length is -1"):
        DataHeader.decode(datagram)


def test_a_data_header_of_another_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="type 0x0005: DATA is 0x0001, PAD 0x0000"):
        header(frame_type=FrameType.SETUP)
