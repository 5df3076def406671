"""What each control frame says of itself, beyond the fields it carries."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.errors import ErrorCode, ProtocolError
from aeron_async.protocol.datagram import check_error
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import ErrorFlags, RttFlags, SetupFlags, StatusMessageFlags
from aeron_async.protocol.nak import Nak, encode_requests
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage, encode_report

NO_FLAGS = ErrorFlags(0)


def setup(flags: SetupFlags) -> Setup:
    return Setup(
        term_offset=0,
        session_id=1,
        stream_id=2,
        initial_term_id=3,
        active_term_id=3,
        term_length=65536,
        mtu_length=1408,
        flags=flags,
    )


def error(message: bytes, flags: ErrorFlags = NO_FLAGS) -> ErrorFrame:
    return ErrorFrame(
        session_id=1,
        stream_id=2,
        receiver_id=3,
        error_code=ErrorCode.IMAGE_REJECTED,
        message=message,
        flags=flags,
    )


def with_error_length(frame: ErrorFrame, error_length: int) -> bytes:
    datagram = bytearray(frame.encode())
    datagram[36:40] = error_length.to_bytes(4, "little", signed=True)
    return bytes(datagram)


@pytest.mark.parametrize(
    ("flags", "is_group", "is_send_response"),
    [
        (SetupFlags(0), False, False),
        (SetupFlags.GROUP, True, False),
        (SetupFlags.SEND_RESPONSE, False, True),
    ],
)
def test_a_setup_tells_group_and_response(
    flags: SetupFlags, *, is_group: bool, is_send_response: bool
) -> None:
    value = setup(flags)
    assert (value.is_group, value.is_send_response) == (is_group, is_send_response)


def test_a_status_message_without_group_tag_is_36_bytes_and_with_one_44() -> None:
    plain = StatusMessage(session_id=1, stream_id=2, receiver_id=3)
    tagged = StatusMessage(session_id=1, stream_id=2, receiver_id=3, group_tag=0)
    assert (len(plain.encode()), len(tagged.encode())) == (36, 44)
    assert StatusMessage.decode(plain.encode()).group_tag is None
    assert StatusMessage.decode(tagged.encode()).group_tag == 0


@pytest.mark.parametrize("length", [1, 4, 7, 9, 16])
def test_feedback_of_another_length_is_kept_and_is_no_group_tag(length: int) -> None:
    feedback = b"\xff" * length
    sm = StatusMessage(session_id=1, stream_id=2, receiver_id=3, feedback=feedback)
    decoded = StatusMessage.decode(sm.encode())
    assert len(sm.encode()) == 36 + length
    assert decoded.group_tag is None
    assert decoded.feedback == feedback
    assert decoded.encode() == sm.encode()


@pytest.mark.parametrize(("feedback", "group_tag"), [(bytes(4), 1), (bytes(8), None)])
def test_feedback_that_would_be_read_as_a_group_tag_is_refused(
    feedback: bytes, group_tag: int | None
) -> None:
    with pytest.raises(ProtocolError, match="a group tag is the whole of 8 bytes of feedback"):
        StatusMessage(
            session_id=1, stream_id=2, receiver_id=3, group_tag=group_tag, feedback=feedback
        )


def test_a_status_message_of_28_bytes_as_once_specified_is_refused() -> None:
    datagram = bytearray(StatusMessage(session_id=1, stream_id=2, receiver_id=3).encode()[:28])
    datagram[0] = 28
    with pytest.raises(ProtocolError, match="SM datagram of 28 bytes: at least 36 needed"):
        StatusMessage.decode(datagram)


@pytest.mark.parametrize(
    ("flags", "is_setup_elicit", "is_end_of_stream"),
    [
        (StatusMessageFlags(0), False, False),
        (StatusMessageFlags.SEND_SETUP, True, False),
        (StatusMessageFlags.END_OF_STREAM, False, True),
    ],
)
def test_a_status_message_tells_what_it_wants(
    flags: StatusMessageFlags, *, is_setup_elicit: bool, is_end_of_stream: bool
) -> None:
    sm = StatusMessage(session_id=1, stream_id=2, receiver_id=3, flags=flags)
    assert (sm.is_setup_elicit, sm.is_end_of_stream) == (is_setup_elicit, is_end_of_stream)


def test_an_rtt_request_wants_a_reply_and_a_reply_does_not() -> None:
    reply = RttMeasurement(session_id=1, stream_id=2, echo_timestamp_ns=3, receiver_id=0)
    request = RttMeasurement(
        session_id=1, stream_id=2, echo_timestamp_ns=3, receiver_id=0, flags=RttFlags.REPLY
    )
    assert request.is_reply_requested
    assert not reply.is_reply_requested


def test_the_group_tag_of_an_error_is_meant_only_with_its_flag() -> None:
    assert not error(b"").has_group_tag
    assert error(b"").group_tag == -1
    assert error(b"", ErrorFlags.HAS_GROUP_TAG).has_group_tag


@pytest.mark.parametrize("length", [0, 1, 1023])
def test_an_error_carries_up_to_1023_bytes_of_text(length: int) -> None:
    decoded = ErrorFrame.decode(error(b"x" * length).encode())
    assert decoded.frame_length == 40 + length
    assert decoded.error_length == len(decoded.message) == length
    assert check_error(decoded)


def test_an_error_text_of_1024_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="error text of 1024 bytes: at most 1023"):
        error(b"x" * 1024)


@pytest.mark.parametrize("error_length", [-(2**31), -1, 4, 1023, 1024, 2**31 - 1])
def test_an_error_length_the_frame_has_no_room_for_is_seen_and_kept(error_length: int) -> None:
    datagram = with_error_length(error(b"why"), error_length)
    decoded = ErrorFrame.decode(datagram)
    assert not check_error(decoded)
    assert decoded.encode() == datagram


def test_a_frame_longer_than_any_error_text_is_seen_and_kept() -> None:
    datagram = bytearray(error(b"x" * 1023).encode() + b"more")
    datagram[:4] = len(datagram).to_bytes(4, "little")
    oversize = with_error_length(ErrorFrame.decode(datagram), 1027)
    decoded = ErrorFrame.decode(oversize)
    assert len(decoded.message) == 1023
    assert not check_error(decoded)
    assert decoded.encode() == oversize


def test_a_text_shorter_than_the_frame_leaves_the_rest_aside() -> None:
    decoded = ErrorFrame.decode(with_error_length(error(b"why not"), 3))
    assert (decoded.message, decoded.trailing) == (b"why", b" not")
    assert check_error(decoded)


@pytest.mark.parametrize("group_tag", [None, 0, -7, 2**63 - 1])
@pytest.mark.parametrize("flags", [0, 0x40])
def test_a_report_is_the_status_message_it_stands_for(flags: int, group_tag: int | None) -> None:
    fields: dict[str, Any] = {
        "session_id": -1,
        "stream_id": 1_001,
        "consumption_term_id": 5,
        "consumption_term_offset": 96,
        "receiver_window": 131_072,
        "receiver_id": -(2**63),
    }
    sm = StatusMessage(flags=StatusMessageFlags(flags), group_tag=group_tag, **fields)
    assert encode_report(flags=flags, group_tag=group_tag, **fields) == sm.encode()
    assert StatusMessage.decode(sm.encode()) == sm


def test_naks_of_a_term_are_those_that_are_built_one_by_one() -> None:
    ids: dict[str, Any] = {"session_id": -7, "stream_id": 9, "term_id": -(2**31)}
    gaps = [(0, 32), (2**30, 1_376)]
    one_by_one = [Nak(**ids, term_offset=offset, length=length).encode() for offset, length in gaps]
    assert encode_requests(gaps, **ids) == b"".join(one_by_one)
    assert encode_requests([], **ids) == b""
