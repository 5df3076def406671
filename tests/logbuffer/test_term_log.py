from __future__ import annotations

import ctypes
import mmap
import struct

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from tests.logbuffer.logs import NO_LIMIT, SESSION_ID, STREAM_ID, TERM_LENGTH, make_log, make_spec


def test_a_log_with_large_pages_has_its_metadata_at_the_end() -> None:
    length = file_length(term_length=TERM_LENGTH, page_size=2 * 1024 * 1024)
    assert length == 2_097_152
    buffer = bytearray(length)
    log = LogBuffers.create(make_spec(page_size=2 * 1024 * 1024), buffer)
    assert struct.unpack_from("<i", buffer, 2_093_056 + 276) == (TERM_LENGTH,)
    log.terms[2][-1] = 7
    assert buffer[3 * TERM_LENGTH - 1] == 7
    log.close()


def test_a_log_that_exists_is_found_from_its_end() -> None:
    buffer = bytearray(file_length(term_length=TERM_LENGTH, page_size=65_536))
    first = LogBuffers.create(make_spec(page_size=65_536), buffer)
    ExclusiveAppender(first).offer(b"hello", limit=NO_LIMIT)
    second = LogBuffers.map(buffer)
    assert (second.term_length, second.mtu_length, second.position_bits) == (TERM_LENGTH, 1408, 16)
    assert (second.session_id, second.stream_id) == (SESSION_ID, STREAM_ID)
    assert bytes(second.terms[0][32:37]) == b"hello"
    assert second.term_words[0][0] == 37
    assert second.metadata.tail(0) == first.metadata.tail(0)


@pytest.mark.parametrize(
    ("offset", "value", "told"),
    [
        (276, 65_535, "term length"),
        (276, 131_072, "must be 397312 bytes long"),
        (280, 0, "page size"),
        (280, 1 << 20, "must be 1048576 bytes long"),
        (272, 33, "mtu"),
        (496, 3 << 8, "type 3"),
    ],
)
def test_a_malformed_log_is_refused_and_let_go(offset: int, value: int, told: str) -> None:
    length = file_length(term_length=TERM_LENGTH, page_size=4096)
    with mmap.mmap(-1, length) as buffer:
        LogBuffers.create(make_spec(), buffer).close()
        buffer[length - 4096 + offset : length - 4092 + offset] = struct.pack("<i", value)
        with pytest.raises(ConfigurationError, match=told):
            LogBuffers.map(buffer)
        # Nothing holds on to the mapping, or closing it would fail.


def test_a_buffer_too_short_for_metadata_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="4095 bytes must hold 4096"):
        LogBuffers.map(bytearray(4095))


def test_a_buffer_of_another_length_than_the_spec_needs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be 200704 bytes long"):
        LogBuffers.create(make_spec(), bytearray(200_705))


def test_closing_gives_everything_back_and_may_be_repeated() -> None:
    log = make_log()
    owned = log._owned
    assert isinstance(owned, mmap.mmap)
    log.close()
    log.close()
    assert log.is_closed
    assert owned.closed
    with pytest.raises(ValueError, match="released"):
        log.terms[0][0]
    with pytest.raises(ValueError, match="released"):
        _ = log.metadata.is_connected


def test_closing_leaves_the_buffer_of_another_to_its_owner() -> None:
    with mmap.mmap(-1, file_length(term_length=TERM_LENGTH, page_size=4096)) as buffer:
        log = LogBuffers.create(make_spec(), buffer)
        log.close()
        assert not buffer.closed


def test_a_view_still_held_survives_the_closing_of_its_log() -> None:
    log = make_log()
    held = log.terms[0][:4]
    array = ctypes.c_char.from_buffer(log.terms[1])
    held[:] = b"data"
    log.close()
    assert bytes(held) == b"data"
    assert array.value == b"\0"


def test_a_log_of_gibibyte_terms_costs_only_the_pages_it_touches() -> None:
    term_length = 1 << 30
    log = make_log(
        term_length=term_length,
        initial_term_id=-1,
        start_term_id=1,
        start_term_offset=term_length - 64,
    )
    appender = ExclusiveAppender(log)
    assert appender.position == 3 * term_length - 64
    assert appender.offer(b"x" * 32, limit=NO_LIMIT) == 3 * term_length
    assert bytes(log.terms[2][-32:]) == b"x" * 32
    assert bytes(log._base[3 * term_length - 1 : 3 * term_length]) == b"x"
    log.close()
