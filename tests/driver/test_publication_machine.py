"""Anything that may happen to a publication, in any order: what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import Claim
from aeron_async.logbuffer.position import framed_length, max_message_length
from aeron_async.logbuffer.reader import TermReader
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import HEARTBEAT, check_data
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import FrameType, StatusMessageFlags
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    SECOND,
    SOURCE,
    eliciting_message,
    nak,
    position_of,
    status_message,
)
from tests.driver.ipc_rig import UNTETHERED
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import MTU_LENGTH, SESSION_ID, STREAM_ID, TERM_LENGTH

ORDER = list(PublicationState)
RECEIVERS = st.sampled_from([1, 2])
SPIES = st.sampled_from([1, 2])
PADDING_MAX = TERM_LENGTH


class PublicationMachine(RuleBasedStateMachine):
    """A publication, its publishers, and whoever speaks to it."""

    @initialize(
        is_exclusive=st.booleans(), is_unicast=st.booleans(), do_spies_connect=st.booleans()
    )
    def begin(self, is_exclusive: bool, is_unicast: bool, do_spies_connect: bool) -> None:  # noqa: FBT001 - drawn
        self.rig = PublicationRig(
            is_exclusive=is_exclusive,
            is_unicast=is_unicast,
            has_group_semantics=not is_unicast,
            spies_simulate_connection=do_spies_connect,
            spec=UNTETHERED,
        )
        self.publication = self.rig.publication
        self.dispatcher = ControlPacketDispatcher(
            self.rig.counts.system, lambda _: None, lambda *_: None
        )
        self.dispatcher.add(self.publication)
        self.now_ns = 0
        self.limit = 0
        self.was_connected = False
        self.edge = 0
        self.rank = 0
        self.claims: list[Claim] = []

    def active(self) -> bool:
        return self.publication.state is PublicationState.ACTIVE

    @precondition(lambda self: self.active())
    @rule(length=st.integers(0, max_message_length(TERM_LENGTH)))
    def offer(self, length: int) -> None:
        before = self.publication.producer_position
        result = self.rig.offer(bytes(length))
        if result > 0:
            assert before < self.publication.publisher_limit
            end = before + framed_length(length, max_payload_length=MTU_LENGTH - 32)
            assert result in {end, (before | TERM_LENGTH - 1) + 1 + end - before}

    @precondition(lambda self: self.active())
    @rule(length=st.integers(0, MTU_LENGTH - 32), is_committed=st.booleans())
    def claim(self, length: int, is_committed: bool) -> None:  # noqa: FBT001 - drawn
        claim = self.rig.appender.try_claim(length, limit=self.publication.publisher_limit)
        if isinstance(claim, Claim):
            self.claims.append(claim)
            if is_committed:
                self.claims.pop().commit()

    @rule()
    def commit_claims(self) -> None:
        while self.claims:
            self.claims.pop().commit()

    @rule(length=st.sampled_from([32, 1_000, 1_376, 5_000, 8_192]), count=st.integers(1, 80))
    def stream(self, length: int, count: int) -> None:
        """Let data flow to a receiver that keeps up."""
        for _ in range(count):
            if self.active():
                self.rig.offer(bytes(length))
            self.poll(0)
            self.hear_that_all_is_consumed(1)
            self.poll(0)

    @rule(step_ns=st.sampled_from([0, 1, 1 * MS, 11 * MS, 100 * MS, 1 * SECOND, 6 * SECOND]))
    def poll(self, step_ns: int) -> None:
        self.now_ns += step_ns
        is_simulated = self.publication._is_simulated
        assert self.publication.poll(self.now_ns) >= 0
        if is_simulated:
            # What the spies read counts as sent, up to a limit that goes with it.
            self.edge = self.publication.sender_limit
        self.look_at_what_was_sent()

    @rule(is_full=st.booleans())
    def fill_socket(self, is_full: bool) -> None:  # noqa: FBT001 - drawn
        self.rig.outbox.is_full = is_full

    @rule(
        receiver_id=RECEIVERS,
        offset=st.integers(-HALF_TERM // 32 - 2, HALF_TERM // 32 + 2),
        window=st.integers(0, HALF_TERM),
        flags=st.sampled_from([0, 0, 0, 0x40]),
    )
    def hear(self, receiver_id: int, offset: int, window: int, flags: int) -> None:
        position = self.publication.sender_position + 32 * offset
        if position < 0:
            return
        # The goodbye of a stranger says nothing.
        is_heard = not flags or receiver_id in self.publication._receivers._last_heard_ns
        rejected = self.rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED]
        self.dispatcher.on_datagram(
            memoryview(
                status_message(
                    self.rig.log,
                    position,
                    receiver_id=receiver_id,
                    receiver_window=window,
                    flags=StatusMessageFlags(flags),
                ).encode()
            ),
            SOURCE,
            self.now_ns,
        )
        is_taken = rejected == self.rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED]
        assert is_taken or abs(32 * offset) > HALF_TERM
        if is_taken and is_heard:
            self.edge = max(self.edge, min(position, self.publication.sender_position) + window)

    @rule(receiver_id=RECEIVERS)
    def hear_that_all_is_consumed(self, receiver_id: int) -> None:
        self.hear(receiver_id, 0, HALF_TERM, 0)

    @rule()
    def be_asked_for_a_setup(self) -> None:
        self.publication.on_status_message(eliciting_message(self.rig.log), self.now_ns)

    @rule(back=st.integers(0, TERM_LENGTH // 32), length=st.integers(0, TERM_LENGTH))
    def hear_nak(self, back: int, length: int) -> None:
        position = max(0, self.publication.sender_position - 32 * back)
        self.dispatcher.on_datagram(memoryview(nak(position, length).encode()), SOURCE, self.now_ns)
        self.look_at_what_was_sent()

    @rule(receiver_id=RECEIVERS)
    def hear_error(self, receiver_id: int) -> None:
        error = ErrorFrame(
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            receiver_id=receiver_id,
            error_code=13,
            message=b"",
        )
        self.dispatcher.on_datagram(memoryview(error.encode()), SOURCE, self.now_ns)

    @precondition(lambda self: self.active())
    @rule()
    def release(self) -> None:
        self.publication.release(self.now_ns)

    @precondition(lambda self: self.active())
    @rule(is_meant=st.integers(0, 15).map(lambda drawn: drawn == 0))
    def revoke(self, is_meant: bool) -> None:  # noqa: FBT001 - drawn
        if is_meant:
            self.publication.revoke(self.now_ns)
            assert not self.publication.is_connected
            assert len(self.publication.subscribers) == 0

    @rule(spy_id=SPIES, is_tether=st.sampled_from([True, True, False]))
    def spy(self, spy_id: int, is_tether: bool) -> None:  # noqa: FBT001 - drawn
        ids = [each.subscription_id for each in self.publication.subscribers]
        if spy_id not in ids and self.publication.is_accepting_subscriptions:
            position = self.rig.spy(spy_id, is_tether=is_tether)
            assert position.get() == self.publication.sender_position
            self.poll(0)

    @rule(spy_id=SPIES)
    def stop_spying(self, spy_id: int) -> None:
        subscriber = self.publication.remove_subscriber(spy_id)
        if subscriber is not None:
            subscriber.position.close()
            self.poll(0)

    @rule()
    def let_spies_read(self) -> None:
        for subscriber in self.publication.subscribers:
            if subscriber.is_active:
                reader = TermReader(self.rig.log, subscriber.position.get())
                reader.read_messages(
                    [], limit=1_000, limit_position=self.publication.rebuild_position
                )
                subscriber.position.set(reader.position)
        self.poll(0)

    @rule()
    def skip_linger(self) -> None:
        self.publication.skip_linger()

    def look_at_what_was_sent(self) -> None:
        for datagram in self.rig.outbox.take():
            assert len(datagram) <= MTU_LENGTH
            header = datagram[6]
            if header == FrameType.SETUP:
                continue
            length = check_data(
                datagram, initial_term_id=self.rig.log.initial_term_id, term_length=TERM_LENGTH
            )
            first = DataHeader.decode(datagram)
            position = position_of(first.term_id, first.term_offset, self.rig.log)
            assert length >= HEARTBEAT
            assert position + length <= self.publication.sender_position
            assert not first.is_end_of_stream or self.publication.is_end_of_stream

    @invariant()
    def the_sender_stays_behind_its_limit_and_the_publishers(self) -> None:
        publication = self.publication
        assert publication.sender_position <= publication.producer_position
        assert publication.sender_limit == self.edge
        assert publication.sender_position <= max(self.edge, 0) + PADDING_MAX
        assert self.rig.counters.sender_position.get() == publication.sender_position
        assert self.rig.counters.sender_limit.get() == publication.sender_limit

    @invariant()
    def the_publisher_limit_falls_only_with_the_connection(self) -> None:
        publication = self.publication
        limit = publication.publisher_limit
        assert self.rig.counters.publisher_limit.get() == limit
        if not self.active():
            return
        slowest = publication.subscribers.join_position(publication.sender_position)
        if publication.is_connected:
            assert limit <= max(self.limit, slowest + HALF_TERM)
        assert limit <= publication.sender_position + HALF_TERM
        if publication.is_connected and self.was_connected:
            assert limit >= self.limit
        if not publication.is_connected:
            assert limit <= publication.sender_position
        self.limit, self.was_connected = limit, publication.is_connected
        assert self.rig.log.metadata.is_connected == publication.is_connected

    @invariant()
    def nothing_may_be_written_that_is_not_clean(self) -> None:
        log, start = self.rig.log, self.publication.producer_position
        end = max(start, self.publication.publisher_limit) + 1_024
        for position in range(start, end, 32):
            words = log.term_words[(position // TERM_LENGTH) % 3]
            assert words[(position & TERM_LENGTH - 1) >> 2] == 0

    @invariant()
    def it_never_goes_back_in_life(self) -> None:
        rank = ORDER.index(self.publication.state)
        assert rank >= self.rank
        self.rank = rank


PublicationMachine.TestCase.settings = settings(stateful_step_count=60)
TestPublication = pytest.mark.untraced(PublicationMachine.TestCase)
