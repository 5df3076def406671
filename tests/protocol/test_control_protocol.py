"""Commands and responses of shared memory: official bytes, round trips, and bytes of strangers."""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ProtocolError
from aeron_async.protocol import control_protocol
from aeron_async.protocol.control_protocol import (
    COMMANDS,
    KIND,
    RESPONSES,
    AddCounter,
    AddPublication,
    AddressType,
    AddStaticCounter,
    AddSubscription,
    ClientClose,
    ClientTimeout,
    ControlMessage,
    CounterReady,
    ErrorResponse,
    ImageBuffersReady,
    OperationSucceeded,
    PublicationBuffersReady,
    PublicationErrorResponse,
    RejectImage,
    RemoveDestinationById,
    RemovePublication,
    RemovePublicationFlags,
    SubscriptionReadyResponse,
    TerminateDriver,
    UnavailableImage,
    command_of,
    response_of,
    text_of,
)

KINDS: Final = (*COMMANDS.values(), *RESPONSES.values())
NUMBERS: Final = {
    "q": st.integers(-(2**63), 2**63 - 1),
    "Q": st.integers(0, 2**64 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "H": st.integers(0, 2**16 - 1),
    "16s": st.binary(min_size=16, max_size=16),
    "text": st.binary(max_size=50),
}


def message_of(kind: type[ControlMessage]) -> st.SearchStrategy[ControlMessage]:
    fields = {each.name: NUMBERS[each.metadata[KIND]] for each in attrs.fields(kind)}
    return st.builds(kind, **fields)


MESSAGES: Final = st.sampled_from(KINDS).flatmap(message_of)

# Bodies that official drivers and clients wrote.
GOLDEN: Final = [
    (
        AddSubscription(
            client_id=5, correlation_id=6, stream_id=2002, channel=b"aeron:ipc?term-length=64k"
        ),
        (
            "0500000000000000 0600000000000000 ffffffffffffffff d2070000 19000000"
            "6165726f6e3a6970633f7465726d2d6c656e6774683d36346b"
        ),
    ),
    (
        SubscriptionReadyResponse(correlation_id=6, channel_status_id=-1),
        "0600000000000000 ffffffff",
    ),
    (CounterReady(correlation_id=5, counter_id=49), "0500000000000000 31000000"),
    (OperationSucceeded(correlation_id=9), "0900000000000000"),
    (ClientTimeout(client_id=46), "2e00000000000000"),
    (
        PublicationBuffersReady(
            correlation_id=8,
            registration_id=8,
            session_id=0x0B9E6959,
            stream_id=2002,
            publisher_limit_id=47,
            channel_status_id=-1,
            log_file=b"/d",
        ),
        "0800000000000000 0800000000000000 59699e0b d2070000 2f000000 ffffffff 02000000 2f64",
    ),
    (
        ImageBuffersReady(
            image_id=8,
            session_id=0x0B9E6959,
            stream_id=2002,
            subscription_registration_id=6,
            subscriber_position_id=51,
            log_file=b"/d",
            source_identity=b"aeron:ipc",
        ),
        (
            "0800000000000000 59699e0b d2070000 0600000000000000 33000000 02000000 2f64 0000"
            "09000000 6165726f6e3a697063"
        ),
    ),
    (
        UnavailableImage(
            image_id=8, subscription_registration_id=6, stream_id=2002, channel=b"aeron:ipc"
        ),
        "0800000000000000 0600000000000000 d2070000 09000000 6165726f6e3a697063",
    ),
    (
        PublicationErrorResponse(
            registration_id=0x4000000000000021,
            session_id=0x0B9E6965,
            stream_id=61,
            receiver_id=-1,
            address_type=AddressType.IPV4,
            source_port=0,
            source_address=bytes.fromhex("0100007f").ljust(16, b"\0"),
            code=13,
            message=b"no thanks",
        ),
        (
            "2100000000000040 ffffffffffffffff 65699e0b 3d000000 ffffffffffffffff ffffffffffffffff"
            "0100 0000 0100007f 000000000000000000000000 0d000000 09000000 6e6f207468616e6b73"
        ),
    ),
]


@pytest.mark.parametrize(
    ("message", "body"),
    GOLDEN,
    ids=lambda each: type(each).__name__ if attrs.has(type(each)) else "",
)
def test_official_bodies_are_read_and_written(message: Any, body: str) -> None:
    data = bytes.fromhex(body)
    assert message.encode() == data
    assert type(message).decode(data) == message


def test_every_type_id_has_one_message_and_is_found() -> None:
    assert sorted(COMMANDS) == list(range(0x01, 0x13))
    assert sorted(RESPONSES) == list(range(0x0F01, 0x0F0E))
    assert command_of(0x0B, ClientClose(client_id=1).encode()) == ClientClose(client_id=1)
    assert response_of(0x0F04, bytes(8)) == OperationSucceeded(correlation_id=0)
    # Neither is taken for the other.
    assert command_of(0x0F04, bytes(8)) is None
    assert response_of(0x0B, bytes(16)) is None
    assert command_of(0x13, b"") is None


@given(MESSAGES, st.binary(max_size=9))
def test_what_was_written_is_read_whatever_follows_it(message: Any, behind: bytes) -> None:
    body = message.encode()
    assert type(message).decode(body) == message
    assert type(message).decode(body + behind) == message


@given(MESSAGES)
def test_a_body_that_was_cut_is_refused(message: Any) -> None:
    body = message.encode()
    least = body if not message.LEAST_LENGTH else unpadded(message)
    for length in range(len(least)):
        cut = body[:length]
        if isinstance(message, RemovePublication) and length >= 24:
            assert RemovePublication.decode(cut) == attrs.evolve(message, flags=0)
            continue
        with pytest.raises(ProtocolError, match=r"at least \d+ are needed|where \d+ follow"):
            type(message).decode(cut)


def unpadded(message: Any) -> bytes:
    """Return the body up to the end of its text."""
    (name,) = (each.name for each in attrs.fields(type(message)) if each.metadata[KIND] == "text")
    fixed = type(message).decode(message.encode())
    length = len(getattr(fixed, name))
    start = {RejectImage: 36, PublicationErrorResponse: 68}[type(message)]
    return bytes(message.encode()[: start + length])


@given(st.sampled_from(KINDS), st.binary(max_size=120))
def test_the_bytes_of_a_stranger_are_read_or_refused(kind: Any, body: bytes) -> None:
    try:
        found = kind.decode(body)
    except ProtocolError:
        return
    texts = [each.name for each in attrs.fields(kind) if each.metadata[KIND] == "text"]
    assert sum(len(getattr(found, name)) for name in texts) <= len(body)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 5])
def test_a_length_that_the_body_does_not_hold_is_refused(length: int) -> None:
    body = AddPublication(client_id=1, correlation_id=2, stream_id=3, channel=b"abcd").encode()
    forged = body[:20] + struct.pack("<i", length) + body[24:]
    with pytest.raises(ProtocolError, match=f"channel of {length} bytes, where 4 follow"):
        AddPublication.decode(forged)


@pytest.mark.parametrize("kind", [AddCounter, AddStaticCounter])
@pytest.mark.parametrize("key_length", range(6))
def test_a_label_begins_at_a_multiple_of_four(kind: Any, key_length: int) -> None:
    ids = {"client_id": 1, "correlation_id": 2, "counter_type_id": 1001}
    if kind is AddStaticCounter:
        ids["registration_id"] = 3
    body = kind(**ids, key=b"k" * key_length, label=b"label").encode()
    assert body.index(b"label") % 4 == 0
    assert body[body.index(b"label") - 4] == 5
    # Java sends four more bytes.
    assert kind.decode(body + bytes(4)).label == b"label"


def test_an_old_client_removes_a_publication_without_flags() -> None:
    body = RemovePublication(client_id=1, correlation_id=2, registration_id=3, flags=1).encode()
    assert len(body) == 32
    assert RemovePublication.decode(body).flags & RemovePublicationFlags.REVOKE
    assert RemovePublication.decode(body[:24]) == RemovePublication(
        client_id=1, correlation_id=2, registration_id=3
    )


@pytest.mark.parametrize("length", [0, 3, 4, 5, 1023])
def test_a_short_reason_is_filled_up_for_the_c_driver(length: int) -> None:
    message = RejectImage(
        client_id=1, correlation_id=2, image_id=3, position=4, reason=b"r" * length
    )
    body = message.encode()
    assert len(body) == max(40, 36 + length)
    assert RejectImage.decode(body) == message


@pytest.mark.parametrize(
    "message",
    [
        ClientClose(client_id=2**63),
        ErrorResponse(correlation_id=1, code=2**31, message=b""),
        RemoveDestinationById(
            client_id=1, correlation_id=2, registration_id=3, destination_registration_id=-(2**64)
        ),
    ],
)
def test_a_number_that_does_not_fit_is_refused(message: Any) -> None:
    with pytest.raises(ProtocolError, match=f"{type(message).__name__} cannot be encoded"):
        message.encode()


def test_what_is_no_text_is_escaped() -> None:
    token = TerminateDriver.decode(TerminateDriver(client_id=1, token=b"caf\xc3\xa9 \xff").encode())
    assert text_of(token.token) == "caf\xe9 \\xff"
    assert token.correlation_id == control_protocol.NO_ID


def test_bytes_of_a_wrong_length_are_refused() -> None:
    (rejected,) = (each for each, _ in GOLDEN if isinstance(each, PublicationErrorResponse))
    with pytest.raises(ProtocolError, match="source_address of 20 bytes: it must have 16"):
        attrs.evolve(rejected, source_address=bytes(20))
