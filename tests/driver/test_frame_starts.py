"""Where a NAK may begin: at frames, not at what looks like them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.data_sender import FrameBoundaryIndex
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.protocol.data import DataHeader
from tests.driver.fakes import MS, nak, place
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    make_log,
)

REJECTED = DriverCounterId.NAKS_REJECTED


def imitation(position: int, length: int) -> bytes:
    """Return a payload of one 32-byte gap, then what looks like a frame at `position`."""
    term_id, term_offset = place(position)
    return DataHeader(
        frame_length=length,
        term_offset=term_offset,
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        term_id=term_id,
    ).encode()


class Stream:
    """A publication that sends, to a receiver that keeps up, and remembers its frames."""

    def __init__(self, **spec: Any) -> None:
        self.rig = PublicationRig(spec=spec)
        self.rig.connect(0)
        self.starts: set[int] = set()
        self.padding_ends: set[int] = set()

    @property
    def position(self) -> int:
        return self.rig.publication.sender_position

    def send(self, *lengths: int) -> None:
        """Offer messages that take so many bytes of the stream each, and send them together."""
        for length in lengths:
            before = self.rig.publication.producer_position
            end = self.rig.offer(bytes(length - 32))
            assert end > 0
            self.starts |= {before, end - length}
        self.flush()

    def flush(self) -> None:
        while self.rig.publication.sender_position < self.rig.publication.producer_position:
            self.rig.publication.poll(0)
            self.rig.hear(self.position, 0)
        self.rig.outbox.take()

    def is_answered(self, position: int, now_ns: int, length: int = 1_408) -> bool:
        """Return whether a NAK from there brings a datagram that begins there."""
        self.rig.hear_nak(nak(position, length, self.rig.log.initial_term_id), now_ns)
        sent = self.rig.outbox.take()
        if not sent:
            return False
        header = DataHeader.decode(sent[0])
        assert header.term_offset == position % TERM_LENGTH
        return True


def test_a_nak_at_any_frame_is_answered_and_one_at_any_other_place_is_counted() -> None:
    stream = Stream()
    stream.send(*[256] * 40)
    stream.send(96, 64, 1_408, 32, 1_024)
    asked = 0
    for position in range(0, stream.position, 32):
        asked += 1
        is_start = position in stream.starts
        assert stream.is_answered(position, asked * 11 * MS) is is_start, position
    assert stream.rig.counts[REJECTED] == asked - len(stream.starts)


def test_payload_that_looks_like_a_frame_is_not_sent_as_one() -> None:
    stream = Stream()
    stream.send(256)
    stream.rig.offer(imitation(288, 128) + bytes(96))
    stream.flush()
    assert not stream.is_answered(288, 0)
    assert stream.rig.counts[REJECTED] == 1
    assert stream.is_answered(256, 0)


def test_frames_are_known_in_the_term_of_their_position_only() -> None:
    stream = Stream()
    while stream.position < 2 * TERM_LENGTH + 8_192:
        stream.send(1_024)
    now_ns = 0
    for position in (2 * TERM_LENGTH + 4_096, 2 * TERM_LENGTH, 2 * TERM_LENGTH - 1_024):
        now_ns += 11 * MS
        assert stream.is_answered(position, now_ns), position
    assert not stream.is_answered(TERM_LENGTH, now_ns), "the log does not hold it any more"
    assert not stream.is_answered(2 * TERM_LENGTH + 16_384, now_ns), "nothing was sent there"
    assert not stream.is_answered(0, now_ns)
    assert stream.rig.counts[REJECTED] == 3


def test_a_nak_before_the_first_term_is_rejected() -> None:
    stream = Stream()
    stream.send(1_024)
    term = nak(0, 64, INITIAL_TERM_ID)
    for distance in (1, 2, 2**30):
        stream.rig.hear_nak(
            type(term)(
                session_id=SESSION_ID,
                stream_id=STREAM_ID,
                term_id=INITIAL_TERM_ID - distance,
                term_offset=0,
                length=64,
            ),
            0,
        )
    assert stream.rig.outbox.take() == []
    assert stream.rig.counts[REJECTED] == 3


def test_frames_behind_long_padding_are_known_and_the_padding_is_no_frame_inside() -> None:
    stream = Stream()
    stream.send(512)
    appender = stream.rig.appender
    assert isinstance(appender, ExclusiveAppender)
    for _ in range(2):
        appender.append_padding(8_320, limit=NO_LIMIT)
    stream.flush()
    behind = stream.position
    stream.send(64, 64)
    assert stream.is_answered(behind, 11 * MS, 64)
    assert stream.is_answered(behind + 64, 22 * MS, 64)
    assert stream.is_answered(512, 33 * MS, 64)
    assert not stream.is_answered(8_192, 44 * MS)
    assert not stream.is_answered(8_512, 44 * MS)
    assert stream.rig.counts[REJECTED] == 2


@pytest.mark.parametrize("mtu_length", [64, 1_408, 8_192, 65_504])
def test_frames_are_known_whatever_the_mtu(mtu_length: int) -> None:
    stream = Stream(mtu_length=mtu_length)
    for _ in range(8):
        stream.send(32, 64, 4_096 if mtu_length >= 4_096 else 64)
    for number, position in enumerate(sorted(stream.starts)):
        assert stream.is_answered(position, number * 11 * MS, 4_096), position


def test_a_stream_that_starts_within_a_term_knows_nothing_before_its_start() -> None:
    stream = Stream(start_term_id=INITIAL_TERM_ID, start_term_offset=8_256)
    stream.send(64, 64)
    assert stream.is_answered(8_256, 0, 64)
    assert stream.is_answered(8_320, 0, 64)
    assert not stream.is_answered(0, 0)
    assert not stream.is_answered(8_192, 0)


def test_a_hole_before_the_place_is_not_walked_over() -> None:
    log = make_log(log_type=LogType.EXCLUSIVE_PUBLICATION)
    appender = ExclusiveAppender(log)
    for _ in range(4):
        appender.offer(bytes(32), limit=NO_LIMIT)
    starts = FrameBoundaryIndex(log, 0)
    assert starts.is_start(128)
    log.term_words[0][64 >> 2] = 0
    assert not starts.is_start(128)
    assert starts.is_start(64), "the sender position bounds what is sent, not this"


def test_a_frame_that_is_far_from_all_that_was_sent_is_not_known() -> None:
    log = make_log(log_type=LogType.EXCLUSIVE_PUBLICATION)
    appender = ExclusiveAppender(log)
    for _ in range(32):
        appender.offer(bytes(992), limit=NO_LIMIT)
    starts = FrameBoundaryIndex(log, 0)
    assert starts.is_start(4_096)
    assert not starts.is_start(8_192)
    starts.mark(8_192)
    assert starts.is_start(8_192)


@given(
    st.lists(
        st.lists(st.sampled_from([32, 64, 96, 1_024, 1_376, 1_408]), min_size=1, max_size=8),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_every_frame_of_the_resend_window_is_known(batches: list[list[int]], terms: int) -> None:
    stream = Stream()
    while stream.position < terms * TERM_LENGTH:
        stream.send(1_024)
    for batch in batches:
        stream.send(*batch)
    bottom = max(0, stream.position - TERM_LENGTH // 2 - TERM_LENGTH // 8)
    known = stream.rig.publication._sender._frame_starts
    for position in range(bottom + 31 & -32, stream.position, 32):
        assert known.is_start(position) is (position in stream.starts), position
