from __future__ import annotations

import struct

import pytest

from aeron_async.errors import ConfigurationError, MessageTooLongError
from aeron_async.logbuffer.appender import AppendResult, ExclusiveAppender
from aeron_async.logbuffer.position import pack_tail
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    header,
    make_log,
    read_all,
)


def make_block(offset: int, *payloads: bytes, term_id: int = INITIAL_TERM_ID) -> bytes:
    block = bytearray()
    for payload in payloads:
        frame = struct.pack(
            "<iBBHiiiiq",
            len(payload) + 32, 0, 0xC0, 1, offset + len(block), SESSION_ID, STREAM_ID, term_id, 0,
        )  # fmt: skip
        block += frame + payload
        block += bytes(-len(block) % 32)
    return bytes(block)


def test_it_goes_on_where_the_log_stands() -> None:
    log = make_log(start_term_id=INITIAL_TERM_ID + 4, start_term_offset=96)
    appender = ExclusiveAppender(log)
    assert appender.position == 4 * TERM_LENGTH + 96
    assert appender.offer(b"x", limit=NO_LIMIT) == 4 * TERM_LENGTH + 160
    assert header(log, 96, partition=1)[4:8] == (96, SESSION_ID, STREAM_ID, INITIAL_TERM_ID + 4)


def test_it_starts_even_at_the_end_of_a_term() -> None:
    log = make_log(start_term_offset=TERM_LENGTH)
    appender = ExclusiveAppender(log)
    assert appender.position == TERM_LENGTH
    assert appender.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert appender.offer(b"x", limit=NO_LIMIT) == TERM_LENGTH + 64


def test_padding_is_one_frame_with_nothing_in_it() -> None:
    log = make_log()
    log.terms[0][32:256] = b"\xff" * 224
    appender = ExclusiveAppender(log)
    assert appender.append_padding(100, limit=NO_LIMIT) == 160
    assert header(log, 0)[:5] == (132, 0, 0xC0, 0, 0)
    assert bytes(log.terms[0][32:160]) == bytes(128)
    assert log.metadata.tail(0) == pack_tail(INITIAL_TERM_ID, 160)
    assert read_all(log) == []


def test_padding_keeps_the_rules_of_an_offer() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 64)
    appender = ExclusiveAppender(log)
    assert appender.append_padding(100, limit=0) == AppendResult.NOT_CONNECTED
    assert appender.append_padding(100, limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert appender.append_padding(0, limit=NO_LIMIT) == TERM_LENGTH + 32
    with pytest.raises(ConfigurationError, match="0 or more bytes"):
        appender.append_padding(-1, limit=NO_LIMIT)


def test_padding_longer_than_any_message_with_its_headers_is_refused() -> None:
    appender = ExclusiveAppender(make_log())
    longest = 5 * 1408 + 1344
    assert appender.append_padding(longest, limit=NO_LIMIT) > 0
    with pytest.raises(MessageTooLongError, match=f"padding of {longest + 1} bytes"):
        appender.append_padding(longest + 1, limit=NO_LIMIT)


def test_a_block_of_frames_is_taken_as_it_is() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"first", limit=NO_LIMIT)
    block = make_block(64, b"second", b"", b"x" * 1000)
    assert appender.offer_block(bytearray(block), limit=NO_LIMIT) == 64 + len(block)
    assert bytes(log.terms[0][64 : 64 + len(block)]) == block
    assert log.metadata.tail(0) == pack_tail(INITIAL_TERM_ID, 64 + len(block))
    assert read_all(log) == [b"first", b"second", b"", b"x" * 1000]
    assert appender.offer(b"after", limit=NO_LIMIT) == 64 + len(block) + 64


def test_a_block_is_refused_at_the_limit() -> None:
    appender = ExclusiveAppender(make_log())
    assert appender.offer_block(make_block(0, b""), limit=0) == AppendResult.NOT_CONNECTED


def test_a_block_at_the_end_of_a_term_rotates_first() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 64)
    appender = ExclusiveAppender(log)
    appender.offer(b"x" * 32, limit=NO_LIMIT)
    block = make_block(0, b"next", term_id=INITIAL_TERM_ID + 1)
    assert appender.offer_block(block, limit=NO_LIMIT) == TERM_LENGTH + 64
    assert log.metadata.active_term_count == 1
    assert bytes(log.terms[1][:64]) == block


def test_a_block_may_fill_the_term_but_not_more() -> None:
    appender = ExclusiveAppender(make_log(start_term_offset=TERM_LENGTH - 64))
    with pytest.raises(ConfigurationError, match="the 64 bytes left"):
        appender.offer_block(make_block(TERM_LENGTH - 64, b"", b"", b""), limit=NO_LIMIT)
    block = make_block(TERM_LENGTH - 64, b"", b"")
    assert appender.offer_block(block, limit=NO_LIMIT) == TERM_LENGTH


def test_there_is_no_block_behind_the_last_term() -> None:
    log = make_log(initial_term_id=0, start_term_id=2**31 - 1, start_term_offset=TERM_LENGTH)
    appender = ExclusiveAppender(log)
    block = make_block(0, b"", term_id=-(2**31))
    result = appender.offer_block(block, limit=NO_LIMIT)
    assert result == AppendResult.MAX_POSITION_EXCEEDED


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_block_of_broken_frames_is_refused(length: int) -> None:
    appender = ExclusiveAppender(make_log())
    with pytest.raises(ConfigurationError, match=f"block of {length} bytes"):
        appender.offer_block(make_block(0, b"x" * 40)[:length], limit=NO_LIMIT)


@pytest.mark.parametrize("at", [6, 8, 12, 16, 20])
def test_a_block_made_for_another_place_is_refused(at: int) -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    block = bytearray(make_block(0, b"payload"))
    block[at] ^= 1
    with pytest.raises(ConfigurationError, match="must be type 1"):
        appender.offer_block(block, limit=NO_LIMIT)
    assert appender.position == 0
    assert log.term_words[0][0] == 0


def test_what_an_offer_would_refuse_is_refused_before_it_waits() -> None:
    appender = ExclusiveAppender(make_log())
    appender.check_offer([b"ab", bytearray(3)], 1)
    with pytest.raises(MessageTooLongError):
        appender.check_offer([bytes(TERM_LENGTH), b"x"], 0)
    with pytest.raises(ConfigurationError):
        appender.check_offer([b"x"], 1 << 63)
    assert appender.position == 0
