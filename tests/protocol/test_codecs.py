"""What holds of every frame: it survives a round trip, and nothing shorter is taken for it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ProtocolError
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import ControlFrame, DataFrame
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.protocol.strategies import (
    Codec,
    any_data_headers,
    control_frames,
    data_frames,
    pad_frames,
)

CODECS: list[type[Codec]] = [
    Setup,
    StatusMessage,
    Nak,
    RttMeasurement,
    ErrorFrame,
    ResponseSetup,
    DataHeader,
    DataFrame,
]
# The smallest legal value of each, every field at a value that no other field has.
SAMPLES: list[Codec] = [
    Setup(
        term_offset=1,
        session_id=2,
        stream_id=3,
        initial_term_id=4,
        active_term_id=5,
        term_length=6,
        mtu_length=7,
    ),
    StatusMessage(session_id=1, stream_id=2, receiver_id=3),
    StatusMessage(session_id=1, stream_id=2, receiver_id=3, group_tag=4),
    Nak(session_id=1, stream_id=2, term_id=3, term_offset=4, length=5),
    RttMeasurement(session_id=1, stream_id=2, echo_timestamp_ns=3, receiver_id=4),
    ErrorFrame(session_id=1, stream_id=2, receiver_id=3, error_code=13, message=b"why"),
    ResponseSetup(session_id=1, stream_id=2, response_session_id=3),
    DataHeader(frame_length=40, term_offset=32, session_id=1, stream_id=2, term_id=3),
]
SAMPLE_NAMES = [type(sample).__name__ for sample in SAMPLES]


@given(control_frames | any_data_headers | data_frames() | pad_frames())
def test_every_legal_frame_survives_a_round_trip(frame: Codec) -> None:
    encoded = frame.encode()
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        decoded = type(frame).decode(buffer)
        assert decoded == frame
        assert decoded.encode() == encoded


@given(control_frames)
def test_the_frame_length_is_what_is_encoded(frame: ControlFrame) -> None:
    encoded = frame.encode()
    assert len(encoded) == frame.frame_length
    assert int.from_bytes(encoded[:4], "little") == frame.frame_length


@given(control_frames, st.binary(max_size=40))
def test_bytes_after_a_control_frame_are_not_part_of_it(frame: ControlFrame, rest: bytes) -> None:
    assert type(frame).decode(frame.encode() + rest) == frame


@given(control_frames | data_frames(), st.data())
def test_every_truncation_is_refused(frame: Codec, data: st.DataObject) -> None:
    encoded = frame.encode()
    length = data.draw(st.integers(min_value=0, max_value=len(encoded) - 1))
    with pytest.raises(ProtocolError):
        type(frame).decode(encoded[:length])


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_NAMES)
def test_not_one_byte_may_be_missing(sample: Codec) -> None:
    encoded = sample.encode()
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError):
            type(sample).decode(encoded[:length])


@pytest.mark.parametrize("codec", CODECS)
@given(datagram=st.binary(max_size=128))
def test_random_bytes_give_a_value_or_a_protocol_error(codec: type[Codec], datagram: bytes) -> None:
    try:
        frame = codec.decode(datagram)
    except ProtocolError:
        return
    assert datagram.startswith(frame.encode())


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_NAMES)
@given(data=st.data())
def test_damaged_frames_give_a_value_or_a_protocol_error(
    sample: Codec, data: st.DataObject
) -> None:
    datagram = bytearray(sample.encode())
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        index = data.draw(st.integers(min_value=0, max_value=len(datagram) - 1))
        datagram[index] = data.draw(st.integers(min_value=0, max_value=255))
    try:
        frame = type(sample).decode(datagram)
    except ProtocolError:
        return
    assert datagram.startswith(frame.encode())


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_NAMES)
@pytest.mark.parametrize("version", [1, 255])
def test_another_version_is_refused(sample: Codec, version: int) -> None:
    datagram = bytearray(sample.encode())
    datagram[4] = version
    with pytest.raises(ProtocolError, match=f"version {version}: only 0"):
        type(sample).decode(datagram)


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_NAMES)
def test_another_type_is_refused(sample: Codec) -> None:
    datagram = bytearray(sample.encode())
    datagram[6:8] = b"\x07\x00"
    with pytest.raises(ProtocolError, match="type 0x0007"):
        type(sample).decode(datagram)


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_NAMES)
def test_a_field_the_wire_cannot_carry_is_refused_with_its_limits(sample: Codec) -> None:
    changed: Any = attrs.evolve
    with pytest.raises(ProtocolError, match=r"session_id is 2147483648: .*\.\.2147483647"):
        changed(sample, session_id=2**31)
    with pytest.raises(ProtocolError, match=r"stream_id is -2147483649: must be within -214748364"):
        changed(sample, stream_id=-(2**31) - 1)
    for flags in (-1, 256):
        with pytest.raises(ProtocolError, match=rf"flags is {flags}: must be within 0\.\.255"):
            changed(sample, flags=flags)


@pytest.mark.parametrize("value", [-(2**63), -1, 2**63 - 1])
def test_receiver_ids_and_group_tags_are_signed_and_unaligned(value: int) -> None:
    sm = StatusMessage(session_id=0, stream_id=0, receiver_id=value, group_tag=value)
    assert StatusMessage.decode(sm.encode()) == sm
    assert sm.encode()[28:44] == value.to_bytes(8, "little", signed=True) * 2


def test_a_receiver_id_beyond_sixty_four_bits_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"receiver_id is 9223372036854775808: .*signed 64 bit"):
        StatusMessage(session_id=0, stream_id=0, receiver_id=2**63)
