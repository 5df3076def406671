from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.appender import AppendResult, Claim, ExclusiveAppender
from aeron_async.logbuffer.reader import TermReader
from tests.logbuffer.logs import NO_LIMIT, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers


class Collector:
    """A fragment handler that keeps what it was given, and fails where it is told to."""

    def __init__(self, *, fail_at: int = -1) -> None:
        self.fragments: list[tuple[bytes, int, int, int]] = []
        self.fail_at = fail_at

    def __call__(self, data: memoryview, position: int, flags: int, reserved_value: int) -> None:
        if len(self.fragments) == self.fail_at:
            self.fail_at = -1
            raise RuntimeError(bytes(data))
        self.fragments.append((bytes(data), position, flags, reserved_value))


def read(reader: TermReader, limit: int = 100, limit_position: int | None = None) -> list[bytes]:
    out: list[tuple[bytes, int, int]] = []
    assert reader.read_messages(out, limit=limit, limit_position=limit_position) == len(out)
    return [data for data, _, _ in out]


def frame(payload: bytes, *, flags: int = 0xC0, frame_type: int = 1, length: int = -1) -> bytes:
    """Return a frame as a peer could send it, aligned."""
    if length < 0:
        length = len(payload) + 32
    head = struct.pack("<iBBHiiiiq", length, 0, flags, frame_type, 0, 0, 0, 0, 0)
    return head + payload + bytes(-len(payload) % 32)


def term_of(*frames: bytes, offset: int = 0) -> LogBuffers:
    log = make_log()
    data = b"".join(frames)
    log.terms[0][offset : offset + len(data)] = data
    return log


def test_messages_come_with_their_positions_and_reserved_values() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"one", limit=NO_LIMIT, reserved_value=-1)
    appender.offer(b"x" * 2000, limit=NO_LIMIT, reserved_value=2)
    out = [(b"kept", 0, 0)]
    reader = TermReader(log, 0)
    assert reader.read_messages(out, limit=10) == 2
    assert out == [(b"kept", 0, 0), (b"one", 64, -1), (b"x" * 2000, 64 + 1408 + 672, 2)]
    assert reader.position == appender.position
    assert reader.read_messages(out, limit=10) == 0


def test_no_more_messages_are_read_than_asked_for() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    for length in (1, 2000, 3, 3000):
        appender.offer(bytes(length), limit=NO_LIMIT)
    reader = TermReader(log, 0)
    assert read(reader, 0) == []
    assert reader.position == 0
    assert [len(data) for data in read(reader, 1)] == [1]
    assert reader.position == 64
    assert [len(data) for data in read(reader, 1)] == [2000]
    assert [len(data) for data in read(reader, 5)] == [3, 3000]


def test_padding_is_stepped_over_and_costs_no_limit() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.append_padding(100, limit=NO_LIMIT)
    appender.offer(b"a", limit=NO_LIMIT)
    appender.append_padding(0, limit=NO_LIMIT)
    reader = TermReader(log, 0)
    out: list[tuple[bytes, int, int]] = []
    assert reader.read_messages(out, limit=2) == 1
    # The message ends before the padding behind it, the reader stands after it.
    assert out == [(b"a", 224, 0)]
    assert reader.position == 256
    collector = Collector()
    assert TermReader(log, 0).poll(collector, fragment_limit=1) == 1
    assert collector.fragments == [(b"a", 224, 0xC0, 0)]


def test_a_handler_cannot_write_into_the_log() -> None:
    log = make_log()
    ExclusiveAppender(log).offer(b"here", limit=NO_LIMIT)

    def write(payload: memoryview, *_: int) -> None:
        payload[:] = b"gone"

    with pytest.raises(TypeError, match="read-only"):
        TermReader(log, 0).poll(write, fragment_limit=1)
    assert read(TermReader(log, 0), 1)[0] == b"here"


def test_one_call_reads_in_one_term() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 128)
    appender = ExclusiveAppender(log)
    appender.offer(b"old", limit=NO_LIMIT)
    assert appender.offer(b"n" * 100, limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    appender.offer(b"n" * 100, limit=NO_LIMIT)
    reader = TermReader(log, TERM_LENGTH - 128)
    assert read(reader) == [b"old"]
    assert reader.position == TERM_LENGTH
    assert read(reader) == [b"n" * 100]
    polled = TermReader(log, TERM_LENGTH - 128)
    collector = Collector()
    assert [polled.poll(collector, fragment_limit=9) for _ in range(3)] == [1, 1, 0]
    assert polled.position == TERM_LENGTH + 160


@pytest.mark.parametrize("limit_position", [0, -64, 63])
def test_nothing_is_read_beyond_the_limit_position(limit_position: int) -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"x", limit=NO_LIMIT)
    reader = TermReader(log, 0)
    assert read(reader, limit_position=limit_position) == []
    collector = Collector()
    assert reader.poll(collector, fragment_limit=9, limit_position=limit_position) == 0
    assert reader.position == 0
    assert read(reader, limit_position=64) == [b"x"]


def test_a_message_may_arrive_in_several_reads() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"abc" * 1200, limit=NO_LIMIT)
    appender.offer(b"next", limit=NO_LIMIT)
    reader = TermReader(log, 0)
    assert read(reader, limit_position=1408) == []
    assert reader.position == 1408
    assert read(reader, limit_position=2816) == []
    assert read(reader, limit_position=10 * TERM_LENGTH) == [b"abc" * 1200, b"next"]
    assert reader.discarded_fragments == 0


def test_what_is_not_yet_whole_behind_other_messages_is_left_for_the_next_read() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"first", limit=NO_LIMIT)
    appender.offer(b"abc" * 1200, limit=NO_LIMIT)
    reader = TermReader(log, 0)
    assert read(reader, limit_position=64 + 2816) == [b"first"]
    assert reader.position == 64
    assert read(reader, limit_position=64 + 1408) == []
    assert reader.position == 64 + 1408
    assert read(reader) == [b"abc" * 1200]
    assert reader.discarded_fragments == 0


def test_a_claim_in_the_middle_holds_back_what_comes_after() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    claim = appender.try_claim(3, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    appender.offer(b"after", limit=NO_LIMIT)
    reader = TermReader(log, 0)
    collector = Collector()
    assert read(reader) == []
    assert reader.poll(collector, fragment_limit=9) == 0
    claim.abort()
    assert read(reader) == [b"after"]
    assert reader.position == 128


def test_raw_fragments_show_their_flags() -> None:
    log = make_log()
    ExclusiveAppender(log).offer(b"x" * 3000, limit=NO_LIMIT, reserved_value=5)
    collector = Collector()
    reader = TermReader(log, 0)
    assert reader.poll(collector, fragment_limit=2) == 2
    assert reader.position == 2816
    assert reader.poll(collector, fragment_limit=2) == 1
    assert collector.fragments == [
        (b"x" * 1376, 1408, 0x80, 5),
        (b"x" * 1376, 2816, 0x00, 5),
        (b"x" * 248, 3104, 0x40, 5),
    ]


def test_a_handler_that_raises_loses_only_its_own_fragment() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    for data in (b"0", b"1", b"2"):
        appender.offer(data, limit=NO_LIMIT)
    collector = Collector(fail_at=1)
    reader = TermReader(log, 0)
    with pytest.raises(RuntimeError, match="1"):
        reader.poll(collector, fragment_limit=10)
    assert reader.position == 128
    assert reader.poll(collector, fragment_limit=10) == 1
    assert [data for data, *_ in collector.fragments] == [b"0", b"2"]


def test_a_reader_joins_in_the_middle_of_a_term() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"missed", limit=NO_LIMIT)
    joined = appender.position
    appender.offer(b"seen", limit=NO_LIMIT)
    assert read(TermReader(log, joined)) == [b"seen"]


def test_a_reader_that_joins_in_the_middle_of_a_message_drops_its_rest() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"x" * 4000, limit=NO_LIMIT)
    appender.offer(b"y" * 2000, limit=NO_LIMIT)
    reader = TermReader(log, 1408)
    assert read(reader) == [b"y" * 2000]
    assert reader.discarded_fragments == 2


def test_padding_over_a_lost_fragment_drops_the_message() -> None:
    log = term_of(
        frame(b"a" * 32, flags=0x80),
        frame(b"", frame_type=0),
        frame(b"b" * 32, flags=0x00),
        frame(b"c" * 32, flags=0x40),
        frame(b"whole"),
    )
    reader = TermReader(log, 0)
    assert read(reader) == [b"whole"]
    assert reader.discarded_fragments == 3


def test_a_new_beginning_drops_the_message_before_it() -> None:
    log = term_of(
        frame(b"a" * 32, flags=0x80),
        frame(b"b" * 32, flags=0x80),
        frame(b"c" * 32, flags=0x40),
    )
    reader = TermReader(log, 0)
    assert read(reader) == [b"b" * 32 + b"c" * 32]
    assert reader.discarded_fragments == 1


def test_a_whole_message_in_between_drops_the_fragments_around_it() -> None:
    log = term_of(frame(b"a" * 32, flags=0x80), frame(b"whole"), frame(b"c" * 32, flags=0x40))
    reader = TermReader(log, 0)
    assert read(reader) == [b"whole"]
    assert reader.discarded_fragments == 2


def test_a_message_does_not_go_on_in_the_next_term() -> None:
    log = term_of(frame(b"a" * 32, flags=0x80), offset=TERM_LENGTH - 64)
    log.terms[1][:64] = frame(b"b" * 32, flags=0x40)
    reader = TermReader(log, TERM_LENGTH - 64)
    assert read(reader) == []
    assert read(reader) == []
    assert reader.position == TERM_LENGTH + 64
    assert reader.discarded_fragments == 2


def test_a_message_without_end_is_dropped_at_the_longest_length() -> None:
    middles = [frame(b"m" * 1376, flags=0x00)] * 5
    log = term_of(
        frame(b"b" * 1376, flags=0x80), *middles, frame(b"e" * 32, flags=0x40), frame(b"whole")
    )
    reader = TermReader(log, 0)
    assert read(reader) == [b"whole"]
    # Six of 1376 bytes pass 8192, and the last belongs to nothing any more.
    assert reader.discarded_fragments == 7
    assert len(reader._assembler._message) == 0


def test_a_message_of_exactly_the_longest_length_is_kept() -> None:
    log = make_log()
    ExclusiveAppender(log).offer(b"x" * 8192, limit=NO_LIMIT)
    assert read(TermReader(log, 0)) == [b"x" * 8192]


def test_further_flags_do_not_hide_a_whole_message() -> None:
    assert read(TermReader(term_of(frame(b"eos", flags=0xE0)), 0)) == [b"eos"]


def test_lengths_shorter_than_a_header_do_not_stop_the_reader() -> None:
    log = term_of(frame(b"", length=1), frame(b"whole"))
    assert read(TermReader(log, 0)) == [b"", b"whole"]


@pytest.mark.parametrize("flags", [0xC0, 0x80])
@pytest.mark.parametrize("frame_type", [0, 1])
def test_a_frame_that_claims_to_leave_its_term_is_skipped(flags: int, frame_type: int) -> None:
    start = TERM_LENGTH - 128
    log = term_of(
        frame(b"whole"),
        frame(b"", flags=flags, frame_type=frame_type, length=2**31 - 1),
        offset=start,
    )
    for limit_position in (None, TERM_LENGTH, 2 * TERM_LENGTH):
        reader = TermReader(log, start)
        assert read(reader, limit_position=limit_position) == [b"whole"]
        assert (reader.position, reader.discarded_fragments) == (TERM_LENGTH, 1)
    polled = TermReader(log, start)
    assert polled.poll(Collector(), fragment_limit=9) == 1
    assert (polled.position, polled.discarded_fragments) == (TERM_LENGTH, 1)
    held = TermReader(log, start)
    assert read(held, limit_position=TERM_LENGTH - 32) == [b"whole"]
    assert held.position == TERM_LENGTH - 64


def test_the_position_may_skip_forward_within_its_term() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    for data in (b"0", b"1", b"2"):
        appender.offer(data, limit=NO_LIMIT)
    reader = TermReader(log, 0)
    reader.position = 128
    assert read(reader) == [b"2"]
    reader.position = TERM_LENGTH
    assert reader.position == TERM_LENGTH


@pytest.mark.parametrize("position", [0, 32, 65, TERM_LENGTH + 32])
def test_the_position_may_not_move_anywhere_else(position: int) -> None:
    reader = TermReader(make_log(), 64)
    with pytest.raises(ConfigurationError, match=f"position {position} must be"):
        reader.position = position
    assert reader.position == 64
