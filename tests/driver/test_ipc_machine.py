"""Anything that may happen to an IPC publication, in any order: what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_async.driver.core.publication import PublicationState
from aeron_async.logbuffer.appender import Claim
from aeron_async.logbuffer.position import max_message_length
from tests.driver.fakes import HALF_TERM, MS, SECOND
from tests.driver.ipc_rig import IpcRig
from tests.logbuffer.logs import MTU_LENGTH, TERM_LENGTH

ORDER = list(PublicationState)
RARELY = st.integers(0, 15).map(lambda drawn: drawn == 15)
SUBSCRIPTIONS = st.sampled_from([1, 2, 3])
LONGEST = max_message_length(TERM_LENGTH)


class IpcMachine(RuleBasedStateMachine):
    """A publication within one driver, its publishers and its subscribers."""

    @initialize(is_exclusive=st.booleans(), window=st.sampled_from([4_096, HALF_TERM]))
    def begin(self, is_exclusive: bool, window: int) -> None:  # noqa: FBT001 - drawn
        self.window = window
        self.rig = IpcRig(is_exclusive=is_exclusive, publication_window_length=window)
        self.publication = self.rig.publication
        self.now_ns = 0
        self.consumer = 0
        self.rank = 0
        self.claims: list[Claim] = []
        self.rig.subscribe(1)

    def active(self) -> bool:
        return self.publication.state is PublicationState.ACTIVE

    @precondition(lambda self: self.active())
    @rule(length=st.integers(0, LONGEST), count=st.integers(1, 20))
    def offer(self, length: int, count: int) -> None:
        for _ in range(count):
            before, limit = self.publication.producer_position, self.rig.limit
            assert (self.rig.offer(bytes(length)) > 0) == (before < limit)
        self.publication.poll(self.now_ns)

    @precondition(lambda self: self.active())
    @rule(length=st.integers(0, MTU_LENGTH - 32))
    def claim(self, length: int) -> None:
        claim = self.rig.appender.try_claim(length, limit=self.rig.limit)
        if isinstance(claim, Claim):
            self.claims.append(claim)

    @precondition(lambda self: self.active())
    @rule()
    def commit_claims(self) -> None:
        while self.claims:
            self.claims.pop().commit()
        self.publication.poll(self.now_ns)

    @rule(
        subscription_id=SUBSCRIPTIONS,
        is_tether=st.sampled_from([True, True, False]),
        is_rejoin=st.booleans(),
    )
    def subscribe(self, subscription_id: int, is_tether: bool, is_rejoin: bool) -> None:  # noqa: FBT001 - drawn
        ids = [each.subscription_id for each in self.publication.subscribers]
        if subscription_id not in ids and self.publication.is_accepting_subscriptions:
            working = self.publication.subscribers.consumed()
            reader = self.rig.subscribe(subscription_id, is_tether=is_tether, is_rejoin=is_rejoin)
            assert reader.position == min([self.consumer, *working])
            self.publication.poll(self.now_ns)

    @rule(subscription_id=SUBSCRIPTIONS)
    def unsubscribe(self, subscription_id: int) -> None:
        if subscription_id in self.rig.readers:
            self.rig.unsubscribe(subscription_id)
            self.publication.poll(self.now_ns)

    @rule(subscription_id=SUBSCRIPTIONS, limit=st.sampled_from([1, 3, 10_000]))
    def read(self, subscription_id: int, limit: int) -> None:
        reader = self.rig.readers.get(subscription_id)
        if reader is not None:
            before = reader.reader.position
            reader.read(limit)
            assert reader.reader.position >= before
            if self.rig.was_woken():
                self.publication.poll(self.now_ns)

    @precondition(lambda self: self.active())
    @rule(length=st.sampled_from([0, 1_000, 5_000, LONGEST]), count=st.integers(1, 80))
    def stream(self, length: int, count: int) -> None:
        """Let data flow to subscribers that keep up."""
        for _ in range(count):
            self.rig.offer(bytes(length))
            for reader in self.rig.readers.values():
                reader.read()
            self.publication.poll(self.now_ns)

    @rule(step_ns=st.sampled_from([0, 1, 1 * MS, 1 * SECOND, 3 * SECOND, 11 * SECOND, 16 * SECOND]))
    def poll(self, step_ns: int) -> None:
        self.now_ns += step_ns
        assert self.publication.poll(self.now_ns) >= 0
        if self.claims and step_ns > 10 * SECOND:
            self.claims.clear()

    @rule(is_meant=RARELY)
    def reject(self, is_meant: bool) -> None:  # noqa: FBT001 - drawn
        if not is_meant:
            return
        self.publication.reject("because", self.now_ns)
        self.publication.poll(self.now_ns)
        assert not self.publication.subscribers.has_working

    @precondition(lambda self: self.active())
    @rule(is_meant=RARELY, is_revoked=st.booleans())
    def release(self, is_meant: bool, is_revoked: bool) -> None:  # noqa: FBT001 - drawn
        if not is_meant:
            return
        self.claims.clear()
        if is_revoked:
            self.publication.revoke(self.now_ns)
            assert self.rig.state() is PublicationState.DONE
        else:
            self.publication.release(self.now_ns)
        assert self.rig.log.metadata.end_of_stream_position == self.publication.producer_position

    @invariant()
    def nobody_is_lapped(self) -> None:
        for position in self.publication.subscribers.consumed():
            assert position <= self.publication.producer_position
            assert self.publication.producer_position <= position + TERM_LENGTH
            if self.active():
                assert self.rig.limit <= position + self.window

    @invariant()
    def the_consumer_position_only_grows(self) -> None:
        assert self.publication.consumer_position >= self.consumer
        self.consumer = self.publication.consumer_position

    @invariant()
    def it_is_connected_while_somebody_counts(self) -> None:
        if self.active():
            assert self.rig.is_connected() == self.publication.subscribers.has_working

    @invariant()
    def nothing_may_be_written_that_is_not_clean(self) -> None:
        log, start = self.rig.log, self.publication.producer_position
        if not self.active():
            return
        for position in range(start, max(start, self.rig.limit + LONGEST + 32), 32):
            words = log.term_words[(position // TERM_LENGTH) % 3]
            assert words[(position & TERM_LENGTH - 1) >> 2] == 0

    @invariant()
    def it_never_goes_back_in_life(self) -> None:
        rank = ORDER.index(self.publication.state)
        assert rank >= self.rank
        self.rank = rank


IpcMachine.TestCase.settings = settings(stateful_step_count=60)
TestIpcPublication = pytest.mark.untraced(IpcMachine.TestCase)
