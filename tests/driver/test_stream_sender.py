"""What leaves for the receivers: SETUP, datagrams, heartbeats, and what holds them back."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.data_sender import SEND_RETRY_NS, StreamSender
from aeron_async.driver.core.stream_counters import PublicationCounters
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.protocol.data import DataHeader
from tests.driver.fakes import MS, Counts, Outbox, make_params
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    MTU_LENGTH,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    make_log,
)

NEVER_NS = 2**63 - 1


class Rig:
    def __init__(
        self,
        *,
        burst_limit: int = 4,
        spec: dict[str, Any] | None = None,
        sender_type: type[StreamSender] = StreamSender,
        **params: Any,
    ) -> None:
        self.log = make_log(log_type=LogType.EXCLUSIVE_PUBLICATION, **(spec or {}))
        self.counts = Counts()
        self.outbox = Outbox()
        self.counters = PublicationCounters.allocate(
            self.counts.manager,
            registration_id=1,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel="aeron:udp?endpoint=localhost:40123",
            client_id=1,
            is_exclusive=True,
        )
        self.sender = sender_type(
            self.log,
            params=make_params(self.log, **params),
            counters=self.counters,
            system_counters=self.counts.system,
            outbox=self.outbox,
            burst_limit=burst_limit,
            now_ns=0,
        )
        self.appender = ExclusiveAppender(self.log)

    def offer(self, *lengths: int) -> None:
        """Append frames of these lengths, header included."""
        for length in lengths:
            if self.appender.offer(bytes(length - 32), limit=NO_LIMIT) == -3:
                self.appender.offer(bytes(length - 32), limit=NO_LIMIT)

    def send(self, limit: int | None = None, now_ns: int = 0) -> list[int]:
        """Send a burst, and return the lengths of the datagrams."""
        if limit is not None:
            self.sender.set_limit(limit)
        self.deadline_ns = self.sender.send_data(now_ns)
        assert self.counters.sender_position.get() == self.sender.position
        assert self.counters.sender_limit.get() == self.sender.limit
        return [len(datagram) for datagram in self.outbox.take()]

    @property
    def blocked_count(self) -> int:
        count = self.counters.back_pressure_events.get()
        assert self.counts[SystemCounterId.SENDER_FLOW_CONTROL_LIMITS] == count
        return count


def test_frames_are_packed_up_to_the_mtu_and_never_cut() -> None:
    rig = Rig()
    rig.offer(704, 704, 32, 1_376, 1_408, 64)
    assert rig.send(TERM_LENGTH) == [1_408, 1_408, 1_408, 64]
    assert rig.sender.position == 4_288
    assert rig.counts[SystemCounterId.BYTES_SENT] == 4_288


def test_a_burst_ends_at_its_limit_and_asks_for_another_turn() -> None:
    # Batches of two, each ended by a datagram that is shorter, count as six datagrams: eleven of
    # them fill a burst of the cost of 64.
    rig = Rig(burst_limit=1)
    rig.offer(*[1_408, 704] * 12)
    assert rig.send(TERM_LENGTH, now_ns=5) == [1_408, 704] * 11
    assert rig.deadline_ns == 5
    assert rig.send(now_ns=6) == [1_408, 704]
    assert rig.deadline_ns == NEVER_NS


def test_data_leaves_only_up_to_the_limit() -> None:
    rig = Rig()
    rig.offer(320, 320, 320)
    assert rig.send(0) == []
    assert rig.send(319) == []
    assert rig.send(700) == [640]
    assert rig.send(959) == []
    assert rig.send(960) == [320]


def test_padding_counts_as_a_header_against_the_limit_and_in_full_in_the_position() -> None:
    rig = Rig()
    rig.offer(*[1_408] * 46)
    assert rig.appender.position == 64_768
    rig.offer(1_000)
    while rig.send(64_768 + 32):
        pass
    assert rig.sender.position == TERM_LENGTH
    assert rig.sender.position > rig.sender.limit
    assert rig.send() == []
    assert rig.send(TERM_LENGTH + 1_024) == [1_024]


def test_padding_before_the_longest_message_is_longer_than_a_datagram_and_leaves_as_a_header() -> (
    None
):
    rig = Rig(burst_limit=100)
    rig.offer(*[1_408] * 42)
    rig.send(TERM_LENGTH * 2)
    # 6 400 bytes are left of the term, and the longest message needs more.
    assert rig.appender.offer(bytes(TERM_LENGTH // 8), limit=NO_LIMIT) == -3
    assert rig.send() == [32]
    assert rig.sender.position == TERM_LENGTH


def test_the_datagram_of_a_term_end_holds_frames_and_one_bare_padding_header() -> None:
    rig = Rig(burst_limit=100)
    rig.offer(*[1_024] * 63, 512)
    rig.send(TERM_LENGTH * 2)
    rig.offer(128, 1_024)
    assert rig.send() == [128 + 32, 1_024]
    assert rig.counts[SystemCounterId.BYTES_SENT] == 63 * 1_024 + 512 + 160 + 1_024


def test_the_sender_goes_on_in_the_next_term_with_its_next_datagram() -> None:
    rig = Rig(burst_limit=100)
    rig.offer(*[1_024] * 65)
    lengths = rig.send(TERM_LENGTH * 2)
    assert sum(lengths) == 65 * 1_024
    assert set(lengths) == {1_024}
    assert rig.sender.position == TERM_LENGTH + 1_024


def test_a_frame_that_is_not_committed_holds_back_what_follows() -> None:
    rig = Rig()
    rig.offer(64, 64, 64)
    rig.log.term_words[0][64 >> 2] = -64
    assert rig.send(TERM_LENGTH) == [64]
    assert rig.blocked_count == 0
    rig.log.term_words[0][64 >> 2] = 64
    assert rig.send() == [128]


def test_a_used_up_window_is_counted_once_until_data_leaves_again() -> None:
    rig = Rig()
    rig.offer(320, 320, 320)
    rig.send(0)
    assert rig.blocked_count == 0, "nothing has been sent yet: nothing is held back"
    assert rig.send(640) == [640]
    assert rig.blocked_count == 1
    rig.send()
    rig.send()
    assert rig.blocked_count == 1
    assert rig.send(960) == [320]
    assert rig.blocked_count == 2


def test_a_frame_that_does_not_fit_the_window_is_counted_like_a_used_up_window() -> None:
    rig = Rig()
    rig.offer(320, 320)
    assert rig.send(639) == [320]
    assert rig.blocked_count == 1
    assert rig.send(600) == []
    assert rig.blocked_count == 1


def test_a_used_up_window_counts_as_the_same_one_until_something_could_leave() -> None:
    rig = Rig()
    rig.offer(320, 320, 320)
    assert rig.send(320) == [320]
    assert rig.blocked_count == 1
    rig.outbox.is_full = True
    assert rig.send(640) == []
    rig.outbox.is_full = False
    assert rig.send(320) == []
    assert rig.blocked_count == 1, "nothing has left since"
    assert rig.send(640) == [320]
    assert rig.blocked_count == 2


def test_a_window_that_was_used_up_by_what_left_alone_is_counted() -> None:
    rig = Rig()
    rig.offer(320)
    assert rig.send(320) == [320]
    assert rig.blocked_count == 1
    rig.sender.set_limit(4_096)
    rig.offer(320)
    assert rig.sender.send_data_fast(1)
    assert rig.blocked_count == 1
    rig.send(640)
    assert rig.blocked_count == 2


def test_a_window_that_is_open_is_not_counted() -> None:
    rig = Rig()
    rig.offer(320)
    assert rig.send(4_096) == [320]
    rig.send()
    assert rig.blocked_count == 0


def test_the_window_that_a_burst_ends_in_is_counted_when_the_next_turn_finds_it_closed() -> None:
    rig = Rig(burst_limit=1)
    rig.offer(*[1_024] * 63)
    rig.send(63 * 1_024)
    assert rig.deadline_ns == 0
    rig.send()
    assert rig.blocked_count == 1


def test_what_cannot_leave_stays_and_is_tried_again() -> None:
    rig = Rig()
    rig.offer(1_408, 1_408)
    rig.outbox.is_full = True
    assert rig.send(TERM_LENGTH, now_ns=7 * MS) == []
    assert rig.deadline_ns == 7 * MS + SEND_RETRY_NS
    assert rig.sender.position == 0
    assert rig.sender.heartbeat_deadline_ns == 0, "the time of the last heartbeat stays too"
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1
    assert rig.counts[SystemCounterId.BYTES_SENT] == 0
    rig.outbox.is_full = False
    assert rig.send(now_ns=8 * MS) == [1_408, 1_408]
    assert rig.sender.heartbeat_deadline_ns == 108 * MS


def test_a_setup_says_where_the_stream_is_to_the_byte() -> None:
    rig = Rig(spec={"session_id": 0x01020304, "stream_id": 1_001, "initial_term_id": -2}, ttl=4)
    rig.offer(*[1_408] * 46, 1_000, 1_000)
    while rig.send(2**40):
        pass
    rig.sender.send_setup(50 * MS, rig.sender.position)
    assert rig.sender.setup_deadline_ns == 150 * MS
    assert rig.outbox.take() == [
        bytes.fromhex(
            "28000000 00 00 0500"  # frame length 40, version, flags, type
            "00080000"  # term offset 2 048
            "04030201 e9030000"  # session id, stream id
            "feffffff ffffffff"  # initial term id -2, active term id -1
            "00000100 80050000 04000000"  # term length, mtu, ttl
        )
    ]


def test_a_setup_of_a_group_says_so() -> None:
    rig = Rig(has_group_semantics=True)
    rig.sender.send_setup(0, rig.sender.position)
    assert rig.outbox.take()[0][5] == 0x40


def test_the_first_setup_is_due_at_once_and_every_next_after_an_interval() -> None:
    rig = Rig()
    assert rig.sender.setup_deadline_ns == 0
    rig.sender.send_setup(3, rig.sender.position)
    assert rig.sender.setup_deadline_ns == 3 + 100 * MS


def test_a_setup_that_cannot_leave_is_counted_and_not_hurried() -> None:
    rig = Rig()
    rig.outbox.is_full = True
    rig.sender.send_setup(3, rig.sender.position)
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1
    assert rig.sender.setup_deadline_ns == 3 + 100 * MS


@pytest.mark.parametrize(
    ("is_end_of_stream", "signal_eos", "flags"),
    [(False, True, 0xC0), (True, True, 0xE0), (True, False, 0xC0)],
)
def test_a_heartbeat_is_a_bare_header_of_length_zero(
    is_end_of_stream: bool,  # noqa: FBT001 - a table of cases
    signal_eos: bool,  # noqa: FBT001 - likewise
    flags: int,
) -> None:
    rig = Rig(signal_eos=signal_eos)
    rig.offer(320)
    rig.send(TERM_LENGTH)
    rig.sender.send_heartbeat(9, is_end_of_stream=is_end_of_stream)
    (sent,) = rig.outbox.take()
    assert len(sent) == 32
    assert sent[:8] == bytes([0, 0, 0, 0, 0, flags, 1, 0])
    header = DataHeader.decode(sent)
    assert (header.term_id, header.term_offset) == (INITIAL_TERM_ID, 320)
    assert (header.session_id, header.stream_id, header.reserved_value) == (
        SESSION_ID,
        STREAM_ID,
        0,
    )
    assert rig.counts[SystemCounterId.HEARTBEATS_SENT] == 1
    assert rig.counts[SystemCounterId.BYTES_SENT] == 352
    assert rig.sender.heartbeat_deadline_ns == 9 + 100 * MS


def test_the_heartbeat_behind_a_full_term_stands_at_the_start_of_the_next() -> None:
    rig = Rig(burst_limit=100)
    rig.offer(*[1_024] * 64)
    rig.send(TERM_LENGTH * 2)
    assert rig.sender.position == TERM_LENGTH
    rig.sender.send_heartbeat(9, is_end_of_stream=False)
    header = DataHeader.decode(rig.outbox.take()[-1])
    assert (header.frame_length, header.term_id, header.term_offset) == (0, INITIAL_TERM_ID + 1, 0)


def test_a_heartbeat_that_cannot_leave_is_counted_and_not_hurried() -> None:
    rig = Rig()
    rig.outbox.is_full = True
    rig.sender.send_heartbeat(9, is_end_of_stream=False)
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1
    assert rig.counts[SystemCounterId.HEARTBEATS_SENT] == 1
    assert rig.counts[SystemCounterId.BYTES_SENT] == 0
    assert rig.sender.heartbeat_deadline_ns == 9 + 100 * MS


def test_what_is_resent_is_counted_apart_and_moves_nothing() -> None:
    rig = Rig()
    rig.offer(1_408, 1_408)
    rig.send(TERM_LENGTH)
    rig.sender.resend(0, MTU_LENGTH)
    rig.sender.send_resends(lambda _: 0)
    assert [len(datagram) for datagram in rig.outbox.take()] == [1_408]
    rig.sender.send_resends(lambda _: 0)
    assert rig.outbox.take() == []
    assert rig.counts[SystemCounterId.RETRANSMITS_SENT] == 1
    assert rig.counts[SystemCounterId.RETRANSMITTED_BYTES] == 1_408
    assert rig.counts[SystemCounterId.BYTES_SENT] == 2_816
    assert rig.sender.position == 2_816


def test_a_resend_that_brings_nothing_is_not_counted() -> None:
    rig = Rig()
    rig.sender.resend(0, MTU_LENGTH)
    assert rig.counts[SystemCounterId.RETRANSMITS_SENT] == 0


def test_a_stream_may_start_anywhere() -> None:
    rig = Rig(spec={"start_term_id": INITIAL_TERM_ID + 2, "start_term_offset": 64})
    assert rig.sender.position == rig.sender.limit == 2 * TERM_LENGTH + 64
    assert rig.counters.sender_limit.get() == rig.sender.limit
    rig.offer(320)
    assert rig.send(2 * TERM_LENGTH + 4_096) == [320]


def test_the_default_burst_is_aerons() -> None:
    assert DriverContext().network_publication_max_messages_per_send == 4
