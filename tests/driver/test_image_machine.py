"""Any datagrams in any order, and readers at any pace: what an image must always hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.image_watch import WIDER_STEPS
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.rebuilder import is_hole
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import (
    CONTEXT,
    EOS,
    HALF_TERM,
    MS,
    SECOND,
    data,
    heartbeat,
    pad,
    payload,
    position_of,
)
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import TERM_LENGTH

ORDER = list(ImageState)
LENGTHS = (32, 64, 96, 320, 1_024, 1_408)
STREAM_LENGTH = 6 * TERM_LENGTH


def make_stream(seed: int) -> list[tuple[int, bytes, bytes | None]]:
    """Return position, datagram and payload of every frame of a long stream."""
    source = random.Random(seed)
    stream: list[tuple[int, bytes, bytes | None]] = []
    position = 0
    while position < STREAM_LENGTH:
        length = source.choice(LENGTHS)
        rest = TERM_LENGTH - position % TERM_LENGTH
        if length > rest:
            stream.append((position, pad(position, rest), None))
            position += rest
        else:
            stream.append((position, data(position, length), payload(position, length)))
            position += length
    return stream


STREAMS = [make_stream(seed) for seed in range(4)]


class ImageMachine(RuleBasedStateMachine):
    """An image, a network without mercy, and two readers."""

    @initialize(which=st.integers(0, len(STREAMS) - 1), is_reliable=st.booleans())
    def begin(self, which: int, is_reliable: bool) -> None:  # noqa: FBT001 - drawn
        self.stream = STREAMS[which]
        self.index = {position: at for at, (position, _, _) in enumerate(self.stream)}
        self.rig = ImageRig(subscribers=2, is_reliable=is_reliable)
        self.image = self.rig.image
        self.is_reliable = is_reliable
        self.now_ns = 0
        self.rank = self.rebuilt = 0
        self.last_sm = 0
        self.read_count = [0, 0]
        self.messages = [message for _, _, message in self.stream if message is not None]

    def next_frame(self) -> int:
        """Return which frame of the stream is the first that is missing."""
        return self.index.get(self.image.rebuild_position, len(self.stream) - 1)

    def feed(self, datagram: bytes) -> None:
        """Let a datagram in by the door, as the dispatcher does."""
        view = memoryview(datagram)
        if frame_type(view) not in {FrameType.DATA, FrameType.PAD}:
            return
        fields = DATA_HEADER.unpack_from(view)
        self.image.insert_packet(
            view,
            self.rig.connection(),
            term_id=fields[7],
            term_offset=fields[4],
            now_ns=self.now_ns,
        )

    @rule(count=st.integers(1, 60))
    def feed_in_order(self, count: int) -> None:
        start = self.next_frame()
        for _, datagram, _ in self.stream[start : start + count]:
            self.feed(datagram)

    @rule(steps=st.lists(st.integers(-20, 60), max_size=20))
    def feed_anything(self, steps: list[int]) -> None:
        start = self.next_frame()
        for step in steps:
            self.feed(self.stream[max(0, min(start + step, len(self.stream) - 1))][1])

    @rule(step=st.integers(0, 30), count=st.integers(2, 6))
    def feed_packed(self, step: int, count: int) -> None:
        start = min(self.next_frame() + step, len(self.stream) - 1)
        frames = self.stream[start : start + count]
        term = frames[0][0] // TERM_LENGTH
        packed = b""
        for position, datagram, message in frames:
            if position // TERM_LENGTH == term:
                packed += datagram
            if message is None:
                break
        self.feed(packed)

    @rule(
        step=st.integers(-20, 60),
        changes=st.lists(st.tuples(st.integers(0, 63), st.integers(0, 255)), min_size=1),
    )
    def feed_mutated(self, step: int, changes: list[tuple[int, int]]) -> None:
        start = max(0, min(self.next_frame() + step, len(self.stream) - 1))
        mutated = bytearray(self.stream[start][1])
        for index, value in changes:
            # Whatever the header could say; ours to refuse, or to place where it says.
            mutated[index % 12] = value
        before = [bytes(term) for term in self.rig.log.terms]
        hwm = self.image.hwm_position
        invalid = self.rig[SystemCounterId.INVALID_PACKETS]
        self.feed(bytes(mutated))
        if self.rig[SystemCounterId.INVALID_PACKETS] != invalid:
            assert [bytes(term) for term in self.rig.log.terms] == before
        # A forgery that was placed is taken back, so that what is read stays the stream.
        for term, old in zip(self.rig.log.terms, before, strict=True):
            term[:] = old
        self.image.hwm_position = hwm

    @rule(offset=st.integers(-2 * TERM_LENGTH // 32, TERM_LENGTH // 32))
    def feed_heartbeat(self, offset: int) -> None:
        position = self.image.rebuild_position + 32 * offset
        # A sender's heartbeat says where it is: at the start of a frame.
        if position in self.index:
            self.feed(heartbeat(position))

    @rule(step=st.integers(0, 40))
    def feed_heartbeat_ahead(self, step: int) -> None:
        at = min(self.next_frame() + step, len(self.stream) - 1)
        self.feed(heartbeat(self.stream[at][0]))

    @precondition(lambda self: self.image.rebuild_position > TERM_LENGTH)
    @rule()
    def end_the_stream(self) -> None:
        self.feed(heartbeat(self.image.hwm_position, EOS))

    @rule(step_ns=st.sampled_from([0, 1_000, 100_000, 1 * MS, 200 * MS, 200 * MS, 3 * SECOND]))
    def poll(self, step_ns: int) -> None:
        self.now_ns += step_ns
        assert self.image.poll(self.now_ns) >= 0
        for datagram in self.rig.outbox.take():
            if datagram[6] == FrameType.SM:
                self.look_at_status_message(StatusMessage.decode(datagram))
            else:
                self.look_at_nak(Nak.decode(datagram))

    def look_at_status_message(self, sm: StatusMessage) -> None:
        if sm.is_setup_elicit:
            # It says nothing of a position.
            return
        position = position_of(sm.consumption_term_id, sm.consumption_term_offset, self.rig.log)
        assert self.last_sm <= position
        assert position <= min((counter.get() for _, counter in self.rig.readers), default=2**62)
        assert sm.receiver_window == HALF_TERM
        self.last_sm = position

    def look_at_nak(self, nak: Nak) -> None:
        position = position_of(nak.term_id, nak.term_offset, self.rig.log)
        assert self.is_reliable
        assert 0 < nak.length <= TERM_LENGTH - nak.term_offset
        words = self.rig.log.term_words[position // TERM_LENGTH % PARTITION_COUNT]
        is_gap = is_hole(words, nak.term_offset, nak.term_offset + nak.length)
        is_gap = is_gap and position + nak.length <= self.image.hwm_position
        if position < self.image.rebuild_position or not is_gap:
            # A question about what is there: something contradicts it, or nobody fills the gap.
            is_gap_old = self.now_ns >= CONTEXT.image_gap_timeout_ns // WIDER_STEPS
            assert self.rig[DriverCounterId.FRAME_CONFLICTS] or is_gap_old

    @rule(which=st.integers(0, 1), limit=st.integers(1, 200))
    def read(self, which: int, limit: int) -> None:
        # Once an image is out of sight its dispatcher and its readers have let go of it.
        if self.image.state in {ImageState.LINGER, ImageState.DONE}:
            return
        found = self.rig.read(which, limit=limit)
        start = self.read_count[which]
        if self.is_reliable:
            assert found == self.messages[start : start + len(found)]
            self.read_count[which] += len(found)
        else:
            for message in found:
                self.read_count[which] = self.messages.index(message, self.read_count[which]) + 1

    @rule(count=st.integers(1, 20))
    def flow(self, count: int) -> None:
        """Let the stream flow to readers that keep up."""
        for _ in range(count):
            self.feed_in_order(20)
            self.poll(0)
            self.read(0, 200)
            self.read(1, 200)
            self.poll(0)

    @invariant()
    def positions_keep_their_order(self) -> None:
        image = self.image
        assert image.rebuild_position <= image.hwm_position
        # What was last told, or would have been if the source had not been silent for too long.
        last_sm = image._feedback.last_sm_position
        assert self.last_sm <= last_sm
        assert image.hwm_position <= last_sm + HALF_TERM
        assert image.rebuild_position >= self.rebuilt
        assert self.rig.counters.receiver_position.get() == image.rebuild_position
        self.rebuilt = image.rebuild_position

    @invariant()
    def it_never_goes_back_in_life(self) -> None:
        rank = ORDER.index(self.image.state)
        # But for an end that was none: there the publisher has gone on.
        has_gone_on = self.rank == 1 and self.rig[DriverCounterId.STREAM_ENDS_WITHDRAWN] > 0
        assert rank >= self.rank or has_gone_on
        self.rank = rank


ImageMachine.TestCase.settings = settings(stateful_step_count=60)
TestImage = pytest.mark.untraced(ImageMachine.TestCase)
