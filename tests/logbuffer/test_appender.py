"""What shared and exclusive publications do alike."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, TypeAlias

import pytest

from aeron_async.errors import ConfigurationError, MessageTooLongError
from aeron_async.logbuffer.appender import AppendResult, Claim, ExclusiveAppender, SharedAppender
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    MAX_PAYLOAD,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    header,
    make_log,
    read_all,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aeron_async.logbuffer.log_buffers import LogBuffers

AppenderClass: TypeAlias = type[SharedAppender] | type[ExclusiveAppender]


@pytest.fixture(params=[SharedAppender, ExclusiveAppender], ids=["shared", "exclusive"])
def appender_class(request: pytest.FixtureRequest) -> AppenderClass:
    chosen: AppenderClass = request.param
    return chosen


def fill(log: LogBuffers, appender: SharedAppender | ExclusiveAppender, remaining: int) -> None:
    """Append until exactly `remaining` bytes of the term are left."""
    while (left := TERM_LENGTH - appender.position % TERM_LENGTH) > remaining:
        length = min(left - remaining, 1408) - 32
        assert appender.offer(b"f" * length, limit=NO_LIMIT) > 0


def test_the_first_frame_is_the_official_one(appender_class: AppenderClass) -> None:
    log = make_log()
    assert appender_class(log).offer(b"Hello World! 0", limit=NO_LIMIT) == 64
    assert bytes(log.terms[0][:46]) == bytes.fromhex(
        "2e000000 00c00100 00000000 58699e0b e9030000 987e856e 00000000 00000000"
        "48656c6c6f20576f726c64212030"
    )


def test_five_frames_leave_the_official_tails(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    for number in range(5):
        appender.offer(f"Hello World! {number}".encode(), limit=NO_LIMIT)
    assert bytes(log.metadata.block[:28]) == bytes.fromhex(
        "40010000 987e856e  00000000 967e856e  00000000 977e856e  00000000"
    )
    assert appender.position == 320


def test_the_position_limit_alone_decides_who_may_start(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    assert appender.offer(b"", limit=0) == AppendResult.NOT_CONNECTED
    log.metadata.is_connected = 1
    assert appender.offer(b"", limit=0) == AppendResult.BACK_PRESSURED
    assert appender.try_claim(8, limit=0) == AppendResult.BACK_PRESSURED
    # One that starts just before the limit may reach far beyond it.
    assert appender.offer(b"", limit=32) == 32
    assert appender.offer(b"x" * 5000, limit=64) == 32 + 3 * 1408 + 928
    assert appender.offer(b"", limit=appender.position) == AppendResult.BACK_PRESSURED


def test_an_empty_message_is_a_bare_header(appender_class: AppenderClass) -> None:
    log = make_log()
    assert appender_class(log).offer(b"", limit=NO_LIMIT) == 32
    assert header(log, 0) == (32, 0, 0xC0, 1, 0, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, 0)
    assert read_all(log) == [b""]


def test_a_long_message_is_cut_into_fragments(appender_class: AppenderClass) -> None:
    log = make_log()
    message = bytes(range(256)) * 12
    position = appender_class(log).offer(message, limit=NO_LIMIT, reserved_value=-9)
    assert position == 2 * 1408 + 352
    ids = (SESSION_ID, STREAM_ID, INITIAL_TERM_ID, -9)
    assert header(log, 0) == (1408, 0, 0x80, 1, 0, *ids)
    assert header(log, 1408) == (1408, 0, 0x00, 1, 1408, *ids)
    assert header(log, 2816) == (32 + 320, 0, 0x40, 1, 2816, *ids)
    assert read_all(log) == [message]


def test_a_message_of_whole_fragments_has_no_short_last_one(
    appender_class: AppenderClass,
) -> None:
    log = make_log()
    assert appender_class(log).offer(b"z" * (2 * MAX_PAYLOAD), limit=NO_LIMIT) == 2816
    assert header(log, 1408)[:4] == (1408, 0, 0x40, 1)
    assert header(log, 2816)[0] == 0


def test_a_message_that_fills_its_term_needs_no_padding(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    fill(log, appender, 64)
    assert appender.offer(b"x" * 32, limit=NO_LIMIT) == TERM_LENGTH
    assert appender.position == TERM_LENGTH
    assert appender.offer(b"next", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert header(log, TERM_LENGTH - 64)[3] == 1
    assert appender.position == TERM_LENGTH
    assert appender.offer(b"next", limit=NO_LIMIT) == TERM_LENGTH + 64
    assert header(log, 0, partition=1)[4:8] == (0, SESSION_ID, STREAM_ID, INITIAL_TERM_ID + 1)
    assert read_all(log)[-2:] == [b"x" * 32, b"next"]


def test_room_of_one_header_becomes_a_bare_padding_frame(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    fill(log, appender, 32)
    assert appender.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    ids = (SESSION_ID, STREAM_ID, INITIAL_TERM_ID, 0)
    assert header(log, TERM_LENGTH - 32) == (32, 0, 0xC0, 0, TERM_LENGTH - 32, *ids)


def test_the_padding_at_the_end_of_a_term_is_the_official_one(
    appender_class: AppenderClass,
) -> None:
    log = make_log()
    appender = appender_class(log)
    fill(log, appender, 672)
    assert appender.offer(b"x" * 700, limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert bytes(log.terms[0][64_864:64_896]) == bytes.fromhex(
        "a0020000 00c00000 60fd0000 58699e0b e9030000 987e856e 00000000 00000000"
    )
    # The offset of the refused message stays in the tail, beyond the term.
    assert log.metadata.tail(0) & 0xFFFF_FFFF == TERM_LENGTH - 672 + 736
    assert log.metadata.active_term_count == 1


@pytest.mark.parametrize("initial_term_id", [2**31 - 2, -(2**31), -2, 0])
def test_rotation_goes_on_across_the_wrap_of_term_ids(
    appender_class: AppenderClass, initial_term_id: int
) -> None:
    log = make_log(initial_term_id=initial_term_id)
    appender = appender_class(log)
    positions = []
    for _ in range(20):
        result = appender.offer(b"m" * 8000, limit=NO_LIMIT)
        if result == AppendResult.ADMIN_ACTION:
            result = appender.offer(b"m" * 8000, limit=NO_LIMIT)
        positions.append(result)
    assert positions == sorted(set(positions))
    assert appender.position == positions[-1]
    assert log.metadata.active_term_count == 2
    wrapped = (initial_term_id + 2 + 2**31) % 2**32 - 2**31
    assert header(log, 0, partition=2)[7] == wrapped
    assert log.metadata.tail(2) >> 32 == wrapped
    assert read_all(log) == [b"m" * 8000] * 20


def test_the_last_position_of_a_stream_is_its_end(appender_class: AppenderClass) -> None:
    log = make_log(initial_term_id=5, start_term_id=4 - 2**31, start_term_offset=TERM_LENGTH - 128)
    appender = appender_class(log)
    last = TERM_LENGTH << 31
    assert appender.max_position == last
    assert appender.position == last - 128
    # Refused for want of room, but at the very end that is not what matters.
    assert appender.offer(b"x" * 96, limit=0) == AppendResult.MAX_POSITION_EXCEEDED
    assert appender.offer(b"x" * 32, limit=0) == AppendResult.NOT_CONNECTED
    assert appender.offer(b"x" * 32, limit=NO_LIMIT) == last - 64
    for _ in range(3):
        assert appender.offer(b"x" * 64, limit=NO_LIMIT) == AppendResult.MAX_POSITION_EXCEEDED
        assert appender.position == last
    assert header(log, TERM_LENGTH - 64, partition=(2**31 - 1) % 3)[:4] == (64, 0, 0xC0, 0)
    assert appender.offer(b"", limit=last) == AppendResult.MAX_POSITION_EXCEEDED


def test_any_buffer_is_taken_for_its_bytes(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    numbers = array.array("q", [1, -2])
    appender.offer(bytearray(b"array"), limit=NO_LIMIT)
    appender.offer(memoryview(b"a view")[2:], limit=NO_LIMIT)
    appender.offer(numbers, limit=NO_LIMIT)
    appender.offer(memoryview(b""), limit=NO_LIMIT)
    appender.offer(bytearray(2000), limit=NO_LIMIT)
    expected = [b"array", b"view", numbers.tobytes(), b"", bytes(2000)]
    assert read_all(log) == expected


def test_what_is_no_buffer_leaves_the_log_alone(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    with pytest.raises(TypeError):
        appender.offer("text", limit=NO_LIMIT)  # type: ignore[arg-type]
    assert appender.position == 0
    appender.offer(memoryview(b"e.v.e.r.y.")[::2], limit=NO_LIMIT)
    assert read_all(log) == [b"every"]


def test_several_buffers_make_one_message(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    parts: list[Buffer] = [b"head", bytearray(1500), memoryview(b"tail")]
    appender.offer_vector(parts, limit=NO_LIMIT, reserved_value=3)
    appender.offer_vector([], limit=NO_LIMIT)
    assert read_all(log) == [b"head" + bytes(1500) + b"tail", b""]
    assert header(log, 0)[8] == 3


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (8193, "message of 8193 bytes is longer than 8192 bytes.*set term-length=131072"),
        (16_777_216, "set term-length=134217728"),
        (16_777_217, "no term length allows more than 16777216 bytes"),
    ],
)
def test_a_message_too_long_is_told_what_would_help(
    appender_class: AppenderClass, length: int, told: str
) -> None:
    appender = appender_class(make_log())
    with pytest.raises(MessageTooLongError, match=told):
        appender.offer(bytes(length), limit=NO_LIMIT)
    assert appender.position == 0
    assert appender.offer(bytes(8192), limit=NO_LIMIT) > 0


@pytest.mark.parametrize("reserved_value", [2**63, -(2**63) - 1])
def test_a_reserved_value_of_more_than_64_bits_is_refused_before_the_log_is_touched(
    appender_class: AppenderClass, reserved_value: int
) -> None:
    appender = appender_class(make_log())
    with pytest.raises(ConfigurationError, match="reserved_value"):
        appender.offer(b"", limit=NO_LIMIT, reserved_value=reserved_value)
    assert appender.position == 0


def test_a_claim_longer_than_a_frame_is_refused(appender_class: AppenderClass) -> None:
    appender = appender_class(make_log())
    with pytest.raises(MessageTooLongError, match=r"claim of 1377 bytes.*1376"):
        appender.try_claim(1377, limit=NO_LIMIT)
    with pytest.raises(ConfigurationError, match="0 or more bytes"):
        appender.try_claim(-1, limit=NO_LIMIT)
    assert isinstance(appender.try_claim(1376, limit=NO_LIMIT), Claim)


def test_a_claim_goes_on_in_the_next_term(appender_class: AppenderClass) -> None:
    log = make_log()
    appender = appender_class(log)
    fill(log, appender, 32)
    assert appender.try_claim(1, limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    claim = appender.try_claim(1, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    assert claim.position == TERM_LENGTH + 64
    claim.data[:] = b"!"
    claim.commit()
    assert read_all(log)[-1] == b"!"
