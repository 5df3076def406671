"""Whole journeys: appended, cut into datagrams, shuffled, put back, read; and cleaned behind."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_async.logbuffer.appender import AppendResult, Claim, ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.log_buffers import clean_to
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.position import partition_index
from aeron_async.logbuffer.reader import TermReader
from aeron_async.logbuffer.rebuilder import insert, scan_for_gap
from aeron_async.logbuffer.scanner import scan_for_send
from tests.logbuffer.logs import MTU_LENGTH, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers

MESSAGE_LENGTHS = st.one_of(st.integers(0, 200), st.integers(1300, 2900), st.integers(0, 8192))


def append(
    appender: SharedAppender | ExclusiveAppender, message: bytes, limit: int, reserved_value: int
) -> int:
    result = appender.offer(message, limit=limit, reserved_value=reserved_value)
    if result == AppendResult.ADMIN_ACTION:
        result = appender.offer(message, limit=limit, reserved_value=reserved_value)
    return result


def datagrams(log: LogBuffers, start: int, end: int) -> list[tuple[int, bytes]]:
    """Return (position, bytes) of each datagram that a sender would send."""
    sent = []
    while start < end:
        index, offset = partition_index(start, bits=log.position_bits), start % log.term_length
        term = log.terms[index]
        available, padding = scan_for_send(term, log.term_words[index], offset, limit=MTU_LENGTH)
        assert available > 0
        sent.append((start, bytes(term[offset : offset + available])))
        start += available + padding
    assert start == end
    return sent


@given(
    lengths=st.lists(MESSAGE_LENGTHS, min_size=1, max_size=60),
    initial_term_id=st.sampled_from([0, -1, 2**31 - 1, 2**31 - 2, -(2**31)]),
    start_offset=st.integers(0, TERM_LENGTH // 32).map(lambda slot: slot * 32),
    seed=st.integers(0, 2**32 - 1),
    shared=st.booleans(),
)
@example(
    lengths=[8192, 5000, 1] * 18, initial_term_id=2**31 - 1, start_offset=64, seed=1, shared=True
)
@example(lengths=[8192, 5000, 1] * 18, initial_term_id=-2, start_offset=0, seed=2, shared=False)
def test_every_message_arrives_once_and_in_order_whatever_happens_to_its_datagrams(
    lengths: list[int], initial_term_id: int, start_offset: int, seed: int, *, shared: bool
) -> None:
    chance = random.Random(seed)
    log = make_log(initial_term_id=initial_term_id, start_term_offset=start_offset)
    image = make_log(initial_term_id=initial_term_id, log_type=LogType.IMAGE)
    appender = SharedAppender(log) if shared else ExclusiveAppender(log)
    reader = TermReader(image, start_offset)
    sent: list[tuple[bytes, int, int]] = []
    received: list[tuple[bytes, int, int]] = []
    position = rebuilt = end = start_offset
    for first in range(0, len(lengths), 6):
        for length in lengths[first : first + 6]:
            message = chance.randbytes(length)
            end = append(appender, message, TERM_LENGTH << 31, len(sent))
            assert end > position
            sent.append((message, end, len(sent)))
        packets = datagrams(log, position, end)
        position = end
        disorder = packets + chance.sample(packets, len(packets) // 2)
        chance.shuffle(disorder)
        arrived = set()
        for at, packet in disorder:
            index, offset = partition_index(at, bits=16), at % TERM_LENGTH
            is_new = insert(image.terms[index], image.term_words[index], offset, memoryview(packet))
            assert is_new is (at not in arrived)
            arrived.add(at)
            rebuilt = rebuild(image, rebuilt, position)
            drain(reader, received, rebuilt)
        assert rebuilt == reader.position == position
        # Both logs are kept clean one term behind, as their drivers would.
        for each in (log, image):
            clean = max(0, position - 2 * TERM_LENGTH) & -TERM_LENGTH
            clean_to(each, clean_position=clean, position=clean + TERM_LENGTH)
    assert received == sent
    assert reader.discarded_fragments == 0


def rebuild(image: LogBuffers, rebuilt: int, high_water_mark: int) -> int:
    while True:
        begin = rebuilt & -TERM_LENGTH
        limit = min(high_water_mark - begin, TERM_LENGTH)
        words = image.term_words[partition_index(rebuilt, bits=16)]
        offset, gap = scan_for_gap(words, rebuilt - begin, limit=limit)
        assert gap % 32 == 0
        if begin + offset == rebuilt or gap or limit < TERM_LENGTH:
            return begin + offset
        rebuilt = begin + offset


def drain(reader: TermReader, received: list[tuple[bytes, int, int]], limit: int) -> None:
    while reader.position < limit:
        before = reader.position
        reader.read_messages(received, limit=3, limit_position=limit)
        assert before < reader.position <= limit


class SharedLog(RuleBasedStateMachine):
    """Several publishers, one reader and the driver's limit and cleaning, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.log = make_log(initial_term_id=2**31 - 2)
        self.writers = [SharedAppender(self.log), SharedAppender(self.log)]
        self.reader = TermReader(self.log, 0)
        self.limit = TERM_LENGTH // 2
        self.clean = 0
        # Payload of each message, or None for an aborted claim; open claims hold their place.
        self.model: list[bytes | Claim | None] = []
        self.received: list[tuple[bytes, int, int]] = []

    @rule(writer=st.integers(0, 1), length=MESSAGE_LENGTHS)
    def offer(self, writer: int, length: int) -> None:
        before = self.writers[0].position
        message = len(self.model).to_bytes(2, "little") * (length // 2)
        result = append(self.writers[writer], message, self.limit, 0)
        if result >= 0:
            assert result == self.writers[1].position > before
            self.model.append(message)
        else:
            assert result == AppendResult.NOT_CONNECTED
            assert self.writers[0].position >= self.limit

    @rule(writer=st.integers(0, 1), length=st.integers(0, 1376))
    def claim(self, writer: int, length: int) -> None:
        claim = self.writers[writer].try_claim(length, limit=self.limit)
        if isinstance(claim, Claim):
            claim.data[:] = b"c" * length
            self.model.append(claim)

    @precondition(lambda self: any(isinstance(item, Claim) for item in self.model))
    @rule(commits=st.booleans())
    def finish_a_claim(self, *, commits: bool) -> None:
        for index, item in enumerate(self.model):
            if isinstance(item, Claim):
                self.model[index] = bytes(item.data) if commits else None
                if commits:
                    item.commit()
                else:
                    item.abort()
                return

    @rule(limit=st.integers(1, 50))
    def read(self, limit: int) -> None:
        before = len(self.received)
        assert self.reader.read_messages(self.received, limit=limit) == len(self.received) - before

    @rule()
    def keep_up(self) -> None:
        """Clean and move the limit as the driver of an IPC publication does."""
        position = self.reader.position
        while self.clean < position:
            self.clean = clean_to(self.log, clean_position=self.clean, position=position)
        self.limit = position + TERM_LENGTH // 2

    @invariant()
    def what_was_read_is_what_was_written(self) -> None:
        written: list[bytes] = []
        for item in self.model:
            if isinstance(item, Claim):
                break
            if item is not None:
                written.append(item)
        read = [data for data, _, _ in self.received]
        assert read == written[: len(read)]
        positions = [position for _, position, _ in self.received]
        assert positions == sorted(set(positions))


TestSharedLog = SharedLog.TestCase
