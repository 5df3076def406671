"""Writers in several processes: what they append, and what happens between two of their steps."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import MessageTooLongError
from aeron_async.logbuffer import appender as appender_module
from aeron_async.logbuffer import metadata as metadata_module
from aeron_async.logbuffer.appender import AppendResult, Claim, ConcurrentAppender, SharedAppender
from aeron_async.logbuffer.metadata import rotate_log, rotate_shared_log
from aeron_async.logbuffer.position import max_position, pack_tail
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    MAX_PAYLOAD,
    NO_LIMIT,
    TERM_LENGTH,
    header,
    make_log,
    read_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.logbuffer.log_buffers import LogBuffers

LENGTHS = st.lists(
    st.tuples(st.sampled_from((0, 1, 31, 32, 1_000, MAX_PAYLOAD, 3_000, 8_000)), st.booleans()),
    max_size=60,
)


@given(LENGTHS)
def test_alone_it_writes_what_a_writer_of_one_process_writes(
    messages: list[tuple[int, bool]],
) -> None:
    logs = make_log(), make_log()
    writers = SharedAppender(logs[0]), ConcurrentAppender(logs[1])
    for number, (length, is_claimed) in enumerate(messages):
        data = bytes([number]) * length
        results = []
        for writer in writers:
            if is_claimed and length <= MAX_PAYLOAD:
                claim = writer.try_claim(length, limit=NO_LIMIT)
                if isinstance(claim, Claim):
                    claim.data[:] = data
                    claim.commit()
                results.append(claim.position if isinstance(claim, Claim) else claim)
            else:
                results.append(writer.offer(data, limit=NO_LIMIT))
        assert results[0] == results[1]
        assert writers[0].position == writers[1].position
    for one, two in zip(logs[0].terms, logs[1].terms, strict=True):
        assert one == two
    assert logs[0].metadata.block == logs[1].metadata.block


def test_it_is_refused_as_others_are() -> None:
    log = make_log()
    writer = ConcurrentAppender(log)
    assert writer.offer(b"x", limit=0) == AppendResult.NOT_CONNECTED
    log.metadata.is_connected = 1
    assert writer.offer(b"x", limit=0) == AppendResult.BACK_PRESSURED
    assert writer.position == log.metadata.tail(0) & 0xFFFF_FFFF == 0
    with pytest.raises(MessageTooLongError):
        writer.offer(bytes(TERM_LENGTH), limit=NO_LIMIT)
    assert writer.position == 0


def test_the_last_term_is_the_last() -> None:
    log = make_log(start_term_id=INITIAL_TERM_ID + 2**31 - 1 - 2**32, start_term_offset=65_472)
    writer = ConcurrentAppender(log)
    assert writer.position == max_position(TERM_LENGTH) - 64
    for _ in range(3):
        assert writer.offer(b"too long" * 8, limit=NO_LIMIT) == AppendResult.MAX_POSITION_EXCEEDED
    assert log.metadata.active_term_count == 2**31 - 1


def test_a_rotation_that_another_writer_has_begun_is_waited_for() -> None:
    log = make_log()
    writer = ConcurrentAppender(log)
    log.metadata.active_term_count = 1
    before = bytes(log.metadata.block)
    assert writer.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert bytes(log.metadata.block) == before


# Between two steps.


def in_python(log: LogBuffers) -> ConcurrentAppender:
    """Return a writer without its compiled part, whose steps a test can come between."""
    writer = ConcurrentAppender(log)
    writer.detach()
    writer.writer = None
    return writer


class Between:
    """Calls other writers once, right before the next atomic step of a kind."""

    def __init__(self, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self._step = getattr(module, name)
        self._others: Iterator[Callable[[], object]] = iter(())
        patch.setattr(module, name, self)

    def call(self, *others: Callable[[], object]) -> None:
        self._others = iter(others)

    def __call__(self, *args: Any) -> Any:
        other = next(self._others, None)
        if other is not None:
            other()
        return self._step(*args)


def offers(log: LogBuffers, *messages: bytes) -> Callable[[], object]:
    """Return what lets another writer append messages, over rotations."""

    def offer() -> None:
        other = ConcurrentAppender(log)
        for each in messages:
            while other.offer(each, limit=NO_LIMIT) < 0:
                pass

    return offer


def test_a_claim_of_another_between_look_and_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    writer = in_python(log)
    adding = Between(monkeypatch, appender_module, "fetch_add_64")
    adding.call(offers(log, b"other"))
    assert writer.offer(b"mine", limit=NO_LIMIT) == 128
    assert read_all(log) == [b"other", b"mine"]


@pytest.mark.parametrize("left", [0, 32, 64, 96])
def test_a_term_that_another_fills_between_look_and_claim(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 64 - left)
    writer = in_python(log)
    adding = Between(monkeypatch, appender_module, "fetch_add_64")
    # The other one fills the term, and may be the one that rotates it.
    adding.call(offers(log, b"a", b"b"))
    sent = [b"a", b"b"]
    result = writer.offer(b"mine", limit=NO_LIMIT)
    if result == AppendResult.ADMIN_ACTION:
        result = writer.offer(b"mine", limit=NO_LIMIT)
    assert result == writer.position
    assert log.metadata.active_term_count == 1
    assert read_all(log, TERM_LENGTH - 64 - left) == [*sent, b"mine"]


def test_the_one_that_crosses_the_end_pads_and_the_later_one_does_not() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 32)
    first, second = ConcurrentAppender(log), ConcurrentAppender(log)
    log.metadata.set_tail(0, pack_tail(INITIAL_TERM_ID, TERM_LENGTH + 2_432))
    assert second.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert header(log, TERM_LENGTH - 32)[0] == 0
    assert log.metadata.active_term_count == 1
    assert first.offer(b"x", limit=NO_LIMIT) == TERM_LENGTH + 64


def test_a_rotation_of_another_between_look_and_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    swap = Between(monkeypatch, metadata_module, "compare_and_swap_64")

    def other() -> None:
        rotate_log(log.metadata, term_count=0, term_id=INITIAL_TERM_ID)
        offers(log, b"new")()

    swap.call(other)
    rotate_shared_log(log.metadata, term_count=0, term_id=INITIAL_TERM_ID)
    # The claim of the other one in the new term is not undone.
    assert log.metadata.tail(1) == pack_tail(INITIAL_TERM_ID + 1, 64)
    assert log.metadata.active_term_count == 1


@given(LENGTHS)
def test_the_compiled_writer_writes_what_python_does(messages: list[tuple[int, bool]]) -> None:
    logs = make_log(), make_log()
    writers = ConcurrentAppender(logs[0]), in_python(logs[1])
    for number, (length, is_refused) in enumerate(messages):
        limit = writers[0].position if is_refused else NO_LIMIT
        data = bytes([number]) * length
        results = [each.offer(data, limit=limit, reserved_value=number) for each in writers]
        assert results[0] == results[1]
    for one, two in zip(logs[0].terms, logs[1].terms, strict=True):
        assert one == two
    assert logs[0].metadata.block == logs[1].metadata.block


@pytest.mark.parametrize("offset", [8, 31, TERM_LENGTH - 32, TERM_LENGTH, 2**32 - 64])
@pytest.mark.parametrize("term_id", [INITIAL_TERM_ID, INITIAL_TERM_ID + 1, INITIAL_TERM_ID - 5])
def test_a_forged_tail_lets_it_write_nothing_outside_a_term(offset: int, term_id: int) -> None:
    log = make_log()
    log.metadata.set_tail(0, pack_tail(term_id, offset))
    writer = ConcurrentAppender(log).writer
    if writer is None:
        pytest.skip("there is no compiled writer to test")
    assert writer.offer(b"x" * 64, NO_LIMIT, 0) < 0
    assert not any(map(any, log.terms))


def test_both_rotations_are_the_same() -> None:
    one, two = make_log(), make_log()
    for count in range(7):
        rotate_log(one.metadata, term_count=count, term_id=INITIAL_TERM_ID + count)
        rotate_shared_log(two.metadata, term_count=count, term_id=INITIAL_TERM_ID + count)
        # A rotation that is late changes nothing.
        rotate_shared_log(two.metadata, term_count=count, term_id=INITIAL_TERM_ID + count)
        rotate_shared_log(two.metadata, term_count=count - 1, term_id=INITIAL_TERM_ID + count - 1)
        assert one.metadata.block == two.metadata.block
    assert two.metadata.active_term_count == 7


def test_writers_in_threads_lose_nothing_and_keep_their_order() -> None:
    log = make_log(term_length=1 << 20)
    writer_count, message_count = 4, 8_000

    def write(writer_id: int) -> None:
        writer = ConcurrentAppender(log)
        for number in range(message_count):
            data = b"%d %d" % (writer_id, number)
            while writer.offer(data, limit=NO_LIMIT) < 0:
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=write, args=(each,)) for each in range(writer_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    found = [tuple(map(int, each.split())) for each in read_all(log)]
    assert log.metadata.active_term_count == len(found) * 64 // (1 << 20) == 1
    for writer_id in range(writer_count):
        assert [number for who, number in found if who == writer_id] == [*range(message_count)]
