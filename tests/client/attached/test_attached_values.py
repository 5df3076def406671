"""What a client makes of values that another process wrote: any bytes, and no surprise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.client.attached_streams import local_address, source_of
from aeron_async.counters import (
    MAX_KEY_LENGTH,
    METADATA_LENGTH,
    VALUE_LENGTH,
    CountersManager,
    CountersReader,
)
from aeron_async.driver.core.stream_counters import LocalAddressType, StreamCounterType, StreamKey
from aeron_async.errors import ProtocolError
from aeron_async.protocol.control_protocol import (
    RESPONSES,
    PublicationErrorResponse,
    command_of,
    response_of,
)

if TYPE_CHECKING:
    from aeron_async.counters import CounterRecord

CHANNEL_STATUS_ID = 5
ANY_64 = st.integers(-(2**63), 2**63 - 1)
ANY_32 = st.integers(-(2**31), 2**31 - 1)


def counters_with(key: bytes) -> CountersReader:
    """Return counters of which one has this key, as the type of a local address."""
    values, metadata = bytearray(8 * VALUE_LENGTH), bytearray(8 * METADATA_LENGTH)
    manager = CountersManager(values, metadata, free_to_reuse_timeout_ms=0, epoch_ms=lambda: 0)
    manager.allocate(LocalAddressType.SEND.type_id, key, "an address")
    return CountersReader(values, metadata)


@given(
    length=st.integers(0, 2**32 - 1), text=st.binary(max_size=MAX_KEY_LENGTH - 8), channel=ANY_32
)
def test_the_key_of_an_address_may_be_any_bytes(length: int, text: bytes, channel: int) -> None:
    head = channel.to_bytes(4, "little", signed=True) + length.to_bytes(4, "little")
    found = local_address(counters_with(head + text), CHANNEL_STATUS_ID)
    assert found.isprintable()
    if channel != CHANNEL_STATUS_ID:
        assert found == ""


@pytest.mark.parametrize(
    ("length", "text", "found"),
    [
        (14, b"127.0.0.1:9999", "127.0.0.1:9999"),
        (9, b"127.0.0.1:9999", "127.0.0.1"),
        (12, b"a:1\n\x1b[31mred", "a:1\\n\\x1b[31mred"),
    ],
)
def test_an_address_is_shown_without_control_characters(
    length: int, text: bytes, found: str
) -> None:
    key = CHANNEL_STATUS_ID.to_bytes(4, "little") + length.to_bytes(4, "little") + text
    assert local_address(counters_with(key), CHANNEL_STATUS_ID) == found


@given(key=st.binary(min_size=MAX_KEY_LENGTH, max_size=MAX_KEY_LENGTH), type_id=ANY_32)
def test_the_key_of_a_stream_may_be_any_bytes(key: bytes, type_id: int) -> None:
    for kind in (type_id, StreamCounterType.SENDER_POSITION.type_id):
        record = cast("CounterRecord", SimpleNamespace(type_id=kind, key=key))
        found = StreamKey.decode(record)
        assert found is None or len(found.channel) <= MAX_KEY_LENGTH


@given(address_type=ANY_32, port=ANY_32, packed=st.binary(min_size=16, max_size=16), other=ANY_64)
def test_the_source_of_an_error_may_be_any_bytes(
    address_type: int, port: int, packed: bytes, other: int
) -> None:
    for kind in (address_type, 0, 1, 2):
        answer = PublicationErrorResponse(
            registration_id=other,
            destination_registration_id=other,
            session_id=port,
            stream_id=port,
            receiver_id=other,
            group_tag=other,
            address_type=kind,
            source_port=port,
            source_address=packed,
            code=port,
            message=b"",
        )
        source = source_of(answer)
        assert source is None or len(source) < 64


@given(type_id=st.one_of(ANY_32, st.sampled_from(sorted(RESPONSES))), body=st.binary(max_size=200))
def test_a_message_may_be_any_bytes(type_id: int, body: bytes) -> None:
    for decode in cast("tuple[Any, ...]", (response_of, command_of)):
        try:
            decode(type_id, body)
        except ProtocolError as error:
            assert len(str(error)) < 1_000  # noqa: PT017 - any other error fails the test
