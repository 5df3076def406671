"""Sending a range of the log again, as far as the log still holds it."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.data_sender import resend_range
from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.position import max_message_length
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.header import FrameType
from tests.driver.fakes import HALF_TERM, Outbox, place
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, NO_LIMIT, TERM_LENGTH, make_log

FRAME = 128


class Log:
    """A log filled with frames of 128 bytes up to a position, where its sender is."""

    def __init__(self, position: int, initial_term_id: int = INITIAL_TERM_ID) -> None:
        self.log = make_log(log_type=LogType.EXCLUSIVE_PUBLICATION, initial_term_id=initial_term_id)
        self.appender = ExclusiveAppender(self.log)
        self.outbox = Outbox()
        self.position = position
        while self.appender.position < position:
            self.appender.offer(bytes(FRAME - 32), limit=NO_LIMIT)

    def resend(self, position: int, length: int) -> list[tuple[int, int]]:
        """Resend, and return place and length of each datagram."""
        self.length = resend_range(
            self.log,
            self.outbox.send,
            sender_position=self.position,
            position=position,
            length=length,
        )
        return [
            (DataHeader.decode(datagram).term_offset, len(datagram))
            for datagram in self.outbox.take()
        ]


def test_a_range_is_packed_into_datagrams_of_whole_frames_up_to_the_mtu() -> None:
    log = Log(8_192)
    assert log.resend(1_280, 1_664) == [(1_280, 1_408), (2_688, 256)]
    assert log.length == 1_664


def test_the_last_datagram_holds_only_whole_frames_of_the_range() -> None:
    log = Log(8_192)
    assert log.resend(0, 3 * FRAME - 32) == [(0, 2 * FRAME)]
    assert log.length == 2 * FRAME


@pytest.mark.parametrize("length", [32, 96, FRAME - 1])
def test_a_range_shorter_than_its_first_frame_brings_nothing(length: int) -> None:
    log = Log(8_192)
    assert log.resend(0, length) == []
    assert log.length == 0


@pytest.mark.parametrize(
    ("distance", "is_held"),
    [
        (0, False),
        (-FRAME, True),
        (FRAME, False),
        (-HALF_TERM - max_message_length(TERM_LENGTH), True),
        (-HALF_TERM - max_message_length(TERM_LENGTH) - FRAME, False),
    ],
)
def test_the_resend_window_is_half_a_term_and_a_message_long(distance: int, is_held: bool) -> None:  # noqa: FBT001 - a table of cases
    log = Log(2 * TERM_LENGTH - HALF_TERM)
    assert bool(log.resend(log.position + distance, FRAME)) is is_held


def test_padding_is_sent_again_as_its_bare_header_and_counts_in_full() -> None:
    log = Log(TERM_LENGTH - FRAME)
    log.appender.offer(bytes(1_000), limit=NO_LIMIT)
    log.position = TERM_LENGTH
    assert log.resend(TERM_LENGTH - 2 * FRAME, 2 * FRAME) == [(TERM_LENGTH - 2 * FRAME, FRAME + 32)]
    assert log.length == 2 * FRAME
    log.outbox.sent.clear()
    assert log.resend(TERM_LENGTH - FRAME, FRAME) == [(TERM_LENGTH - FRAME, 32)]
    assert log.length == FRAME


def test_padding_longer_than_what_is_left_of_the_range_ends_it() -> None:
    log = Log(4_096)
    log.appender.append_padding(2_000, limit=NO_LIMIT)
    log.appender.offer(bytes(96), limit=NO_LIMIT)
    log.position = log.appender.position
    assert log.resend(4_096 - FRAME, FRAME + 64) == [(4_096 - FRAME, FRAME + 32)]
    assert log.length == FRAME + 2_048


def test_a_range_never_leaves_its_term() -> None:
    log = Log(TERM_LENGTH + 8_192)
    assert log.resend(TERM_LENGTH - FRAME, 8_192) == [(TERM_LENGTH - FRAME, FRAME)]


def test_what_was_appended_and_not_sent_yet_is_not_resent() -> None:
    log = Log(8_192)
    log.position = 4 * FRAME
    assert log.resend(2 * FRAME, 1_024) == [(2 * FRAME, 2 * FRAME)]
    assert log.length == 2 * FRAME


def test_resending_stops_at_a_hole() -> None:
    log = Log(8_192)
    log.log.term_words[0][4 * FRAME >> 2] = 0
    assert log.resend(2 * FRAME, 1_024) == [(2 * FRAME, 2 * FRAME)]
    assert log.resend(4 * FRAME, 1_024) == []


def test_resending_stops_when_a_datagram_cannot_leave() -> None:
    log = Log(8_192)
    log.outbox.is_full = True
    assert log.resend(0, 4_096) == []
    assert log.length == 0


def test_term_ids_that_wrap_are_resent_like_others() -> None:
    log = Log(TERM_LENGTH + 1_024, initial_term_id=2**31 - 1)
    log.position = TERM_LENGTH + 1_024
    assert log.resend(TERM_LENGTH, MTU_LENGTH)[0] == (0, 1_024)
    term_id, _ = place(TERM_LENGTH, 2**31 - 1)
    assert term_id == -(2**31)


def test_a_resent_datagram_is_the_one_that_was_sent() -> None:
    log = Log(1_024)
    log.resend(0, FRAME)
    resend_range(
        log.log,
        log.outbox.send,
        sender_position=1_024,
        position=FRAME,
        length=FRAME,
    )
    assert log.outbox.sent == [bytes(log.log.terms[0][FRAME : 2 * FRAME])]
    assert DataHeader.decode(log.outbox.sent[0]).frame_type is FrameType.DATA
