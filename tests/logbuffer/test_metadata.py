from __future__ import annotations

import struct

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.log_buffers import initialise
from aeron_async.logbuffer.metadata import LogMetadata, LogType
from aeron_async.logbuffer.position import pack_tail
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, make_spec

# Offset, code and name of each field, as the official layout has them.
FIELDS = [
    (24, "i", "active_term_count"),
    (128, "q", "end_of_stream_position"),
    (136, "i", "is_connected"),
    (140, "i", "active_transport_count"),
    (256, "q", "correlation_id"),
    (264, "i", "initial_term_id"),
    (268, "i", "default_frame_header_length"),
    (272, "i", "mtu_length"),
    (276, "i", "term_length"),
    (280, "i", "page_size"),
    (284, "i", "publication_window_length"),
    (288, "i", "receiver_window_length"),
    (292, "i", "socket_sndbuf_length"),
    (296, "i", "os_default_socket_sndbuf_length"),
    (300, "i", "os_max_socket_sndbuf_length"),
    (304, "i", "socket_rcvbuf_length"),
    (308, "i", "os_default_socket_rcvbuf_length"),
    (312, "i", "os_max_socket_rcvbuf_length"),
    (316, "i", "max_resend"),
    (332, "i", "session_id"),
    (336, "i", "stream_id"),
    (448, "q", "entity_tag"),
    (456, "q", "response_correlation_id"),
    (464, "q", "linger_timeout_ns"),
    (472, "q", "untethered_window_limit_timeout_ns"),
    (480, "q", "untethered_resting_timeout_ns"),
    (488, "B", "is_group"),
    (489, "B", "is_response"),
    (490, "B", "rejoin"),
    (491, "B", "reliable"),
    (492, "B", "sparse"),
    (493, "B", "signal_eos"),
    (494, "B", "spies_simulate_connection"),
    (495, "B", "tether"),
    (496, "B", "is_publication_revoked"),
    (497, "B", "log_type"),
    (500, "q", "untethered_linger_timeout_ns"),
]


def empty() -> tuple[bytearray, LogMetadata]:
    block = bytearray(4096)
    return block, LogMetadata(memoryview(block))


@pytest.mark.parametrize(("offset", "code", "name"), FIELDS, ids=[name for _, _, name in FIELDS])
def test_every_field_lies_where_aeron_has_it(offset: int, code: str, name: str) -> None:
    block, metadata = empty()
    value = 1 if code == "B" else -2
    setattr(metadata, name, value)
    assert getattr(metadata, name) == value
    expected = bytearray(4096)
    struct.pack_into(f"<{code}", expected, offset, value)
    assert block == expected


def test_every_field_is_named_on_the_class_too() -> None:
    assert all(getattr(LogMetadata, name) is not None for _, _, name in FIELDS)


def test_a_block_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="4095"):
        LogMetadata(memoryview(bytearray(4095)))


def test_a_fresh_log_begins_at_its_initial_term() -> None:
    block, metadata = empty()
    initialise(metadata, make_spec())
    # The golden bytes of the official driver, before its first five frames of 64 bytes.
    assert block[:28] == bytes.fromhex(
        "00000000987e856e 00000000967e856e 00000000977e856e 00000000"
    )
    assert metadata.default_frame_header == bytes.fromhex(
        "00000000 00c00100 00000000 58699e0b e9030000 987e856e 0000000000000000"
    )
    assert (metadata.session_id, metadata.stream_id) == (SESSION_ID, STREAM_ID)
    assert metadata.default_frame_header_length == 32
    assert metadata.end_of_stream_position == 2**63 - 1
    assert metadata.is_connected == metadata.active_transport_count == 0
    assert not metadata.is_publication_revoked
    assert metadata.log_type is LogType.CONCURRENT_PUBLICATION
    assert metadata.entity_tag == metadata.response_correlation_id == -1


def test_a_log_that_starts_later_has_the_tails_of_the_official_example() -> None:
    _, metadata = empty()
    initialise(metadata, make_spec(initial_term_id=-5, start_term_id=-3, start_term_offset=4096))
    assert [metadata.tail(i) for i in range(3)] == [
        pack_tail(-5, 0),
        pack_tail(-4, 0),
        pack_tail(-3, 4096),
    ]
    assert metadata.active_term_count == 2


def test_the_first_term_ids_wrap_downwards() -> None:
    _, metadata = empty()
    initialise(metadata, make_spec(initial_term_id=-(2**31)))
    assert [metadata.tail(i) >> 32 for i in range(3)] == [-(2**31), 2**31 - 2, 2**31 - 1]


def test_an_image_keeps_no_tails() -> None:
    block, metadata = empty()
    spec = make_spec(
        log_type=LogType.IMAGE, start_term_id=INITIAL_TERM_ID + 4, start_term_offset=64
    )
    initialise(metadata, spec)
    assert block[:28] == bytes(28)
    assert metadata.entity_tag == metadata.response_correlation_id == 0


def test_settings_are_carried_over() -> None:
    _, metadata = empty()
    names = {name for _, _, name in FIELDS}
    spec = make_spec(
        correlation_id=2**40,
        publication_window_length=1,
        receiver_window_length=2,
        max_resend=16,
        linger_timeout_ns=5 * 10**9,
        untethered_linger_timeout_ns=10**9,
        is_group=True,
        tether=True,
        page_size=8192,
    )
    initialise(metadata, spec)
    for name in names:
        if hasattr(spec, name):
            assert getattr(metadata, name) == getattr(spec, name), name
