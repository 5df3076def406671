"""Batches: messages are made when they are handed out, in Python and compiled."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.logbuffer.appender import ExclusiveAppender
from tests.logbuffer.logs import NO_LIMIT, TERM_LENGTH, make_log
from tests.speedups.test_twins import LENGTHS, WORD_BYTES, filled
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

IMAGE: Any = object()


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def opened(twin: Any, log: Any, offset: int = 0, **changes: int) -> tuple[Any, int]:
    options = {"end": TERM_LENGTH, "begin_position": 0, "limit": 1_000} | changes
    where = log.terms[0], log.term_words[0], log.term_longs[0]
    found: tuple[Any, int] = twin.open_batch(*where, offset, *options.values(), IMAGE)
    return found


def facts(message: Any) -> tuple[Any, ...]:
    return bytes(message.data), message.position, message.reserved_value, message.image is IMAGE


def test_messages_come_in_their_order_and_then_no_more(twin: Any) -> None:
    log = filled([100, 0, 33])
    batch, behind = opened(twin, log, begin_position=TERM_LENGTH * 4)
    assert (batch.left, behind, batch.image is IMAGE) == (3, 160 + 32 + 96, True)
    first = batch.following()
    assert facts(first) == (b"\1" * 100, TERM_LENGTH * 4 + 160, 0, True)
    assert batch.left == 2
    assert [facts(message)[0] for message in batch.rest()] == [b"", b"\3" * 33]
    assert batch.left == 0
    assert batch.following() is None
    assert batch.rest() == []


@pytest.mark.parametrize(
    ("limit", "end", "wanted"), [(2, TERM_LENGTH, 2), (9, 320, 2), (0, 320, 0)]
)
def test_a_batch_has_its_limits(twin: Any, limit: int, end: int, wanted: int) -> None:
    batch, behind = opened(twin, filled([100] * 5), limit=limit, end=end)
    assert (batch.left, behind) == (wanted, wanted * 160)
    assert len(batch.rest()) == wanted


def test_a_fragment_ends_a_batch(twin: Any) -> None:
    log = filled([100, 100, 3_000])
    assert opened(twin, log)[1] == 320
    batch, behind = opened(twin, log, offset=320)
    assert (batch.left, behind) == (0, 320)
    assert batch.following() is None


def test_padding_is_passed_without_a_message(twin: Any) -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"before", limit=NO_LIMIT)
    appender.append_padding(100, limit=NO_LIMIT)
    appender.offer(b"behind", limit=NO_LIMIT)
    batch, behind = opened(twin, log)
    assert batch.left == 2
    assert behind == appender.position
    assert [message.data for message in batch.rest()] == [b"before", b"behind"]


def test_what_is_kept_does_not_change_with_the_log(twin: Any) -> None:
    log = filled([100] * 4)
    batch, _ = opened(twin, log)
    batch.following()
    batch.keep()
    log.terms[0][:640] = bytes(640)
    assert batch.left == 3
    assert [message.data for message in batch.rest()] == [b"\2" * 100, b"\3" * 100, b"\4" * 100]
    batch.keep()
    assert batch.left == 0


@pytest.mark.parametrize("ask", ["payloads", "columns"])
@pytest.mark.parametrize("collection", [1, 2])
def test_a_batch_may_be_kept_by_the_collector_within_a_call(
    twin: Any, ask: str, collection: int
) -> None:
    batch, _ = opened(twin, filled([100] * 4))
    call, count = getattr(batch, ask), 0

    def keep(phase: str, info: dict[str, int]) -> None:
        """Keep as a finaliser would that closes the image, in the middle of what allocates."""
        nonlocal count
        del info
        count += phase == "start"
        if count == collection:
            batch.keep()

    before = gc.get_threshold()
    gc.disable()
    # So that the next list is not one that was freed.
    held: list[list[int]] = [[] for _ in range(200)]
    gc.callbacks.append(keep)
    gc.set_threshold(1, 0, 0)
    gc.enable()
    try:
        found = call()
    finally:
        gc.callbacks.remove(keep)
        gc.set_threshold(*before)
    assert len(held) == 200
    payloads = [bytes([number]) * 100 for number in (1, 2, 3, 4)]
    assert [message.data for message in batch.again().rest()] == payloads
    if ask == "payloads":
        assert found == payloads
    elif found is not None:
        assert (found[0], bytes(found[4])) == (4, b"".join(payloads))


def test_a_batch_of_messages_that_were_made_before(twin: Any) -> None:
    made = [twin.Message(bytes([number]), number, 0, IMAGE) for number in range(3)]
    batch = twin.Batch(made, IMAGE)
    assert batch.left == 3
    assert batch.following() is made[0]
    batch.keep()
    assert batch.rest() == made[1:]
    assert batch.following() is None


@given(garbage=WORD_BYTES, lengths=LENGTHS, limit=st.integers(0, 50), end=st.integers(0, 2_000))
@needs_compiled
def test_batches_are_alike(garbage: bytes, lengths: list[int], limit: int, end: int) -> None:
    log = filled(lengths)
    log.terms[0][len(garbage) :] = bytes(TERM_LENGTH - len(garbage))
    log.terms[0][: len(garbage)] = garbage
    end &= ~31
    found = []
    for twin in (pure_twins(), compiled_twins()):
        batch, behind = opened(twin, log, limit=limit, end=end)
        found.append((batch.left, behind, [facts(message) for message in batch.rest()]))
    assert found[0] == found[1]


def asked(batch: Any) -> tuple[Any, ...]:
    """Return what a batch says of its messages without handing them out."""
    messages = batch.again().rest()
    found = [batch.at(index) for index in reversed(range(batch.left))]
    assert [each and facts(each) for each in reversed(found)] == [
        *map(facts, messages),
        *[None] * (batch.left - len(messages)),
    ]
    payloads = batch.payloads()
    assert payloads == [message.data for message in messages]
    columns = batch.columns()
    if columns is not None:
        count, bounds, positions, values, data = columns
        words = memoryview(bounds).cast("q")
        pieces = [bytes(data[start:end]) for start, end in pairwise(words[: count + 1])]
        assert pieces == payloads
        assert list(memoryview(positions).cast("q")[:count]) == [m.position for m in messages]
        assert list(memoryview(values).cast("q")[:count]) == [m.reserved_value for m in messages]
        assert [length for _, length in batch.places()] == [len(data) for data in payloads]
    else:
        assert batch.places() is None
    return batch.left, [facts(message) for message in messages]


@given(garbage=WORD_BYTES, lengths=LENGTHS, limit=st.integers(0, 50), cut=st.integers(0, 9))
@needs_compiled
def test_what_batches_say_is_alike(
    garbage: bytes, lengths: list[int], limit: int, cut: int
) -> None:
    log = filled(lengths)
    log.terms[0][len(garbage) :] = bytes(TERM_LENGTH - len(garbage))
    log.terms[0][: len(garbage)] = garbage
    found = []
    for twin in (pure_twins(), compiled_twins()):
        batch, behind = opened(twin, log, limit=limit)
        for _ in range(cut):
            batch.following()
        said = asked(batch)
        more, _ = opened(twin, log, behind, limit=limit)
        if batch.left and more.left:
            assert batch.extend(more)
        found.append((said, asked(batch)))
    assert found[0] == found[1]


def test_a_message_is_made_at_its_index(twin: Any) -> None:
    log = filled([100, 0, 33, 1_000])
    batch, behind = opened(twin, log, limit=3, begin_position=TERM_LENGTH * 4)
    last = facts(batch.at(2))
    assert last == (b"\3" * 33, TERM_LENGTH * 4 + 160 + 32 + 96, 0, True)
    assert [facts(batch.at(index))[0] for index in (0, 1)] == [b"\1" * 100, b""]
    assert batch.left == 3
    assert [batch.at(index) for index in (-1, 3, 2**62)] == [None] * 3
    batch.following()
    assert facts(batch.at(1)) == last
    assert batch.extend(opened(twin, log, behind, begin_position=TERM_LENGTH * 4)[0])
    assert facts(batch.at(2))[0] == b"\4" * 1_000
    batch.keep()
    assert facts(batch.at(1)) == last
    batch.rest()
    assert batch.at(0) is None


@needs_compiled
@pytest.mark.parametrize("length", [0, -1, 32, 2**31 - 1, TERM_LENGTH])
def test_frames_that_change_are_not_passed_on_the_way_to_an_index(length: int) -> None:
    log = filled([100] * 4)
    for is_walked in (False, True):
        batch, _ = opened(compiled_twins(), log)
        if is_walked:
            assert facts(batch.at(3))[0] == b"\4" * 100
        log.term_words[0][320 >> 2] = length
        for index in range(4):
            found = batch.at(index)
            assert found is None or len(found.data) <= 100
        log.term_words[0][320 >> 2] = 132


def test_a_batch_is_extended_by_what_follows(twin: Any) -> None:
    log = filled([100] * 4)
    batch, behind = opened(twin, log, limit=2)
    batch.following()
    assert batch.extend(opened(twin, log, behind)[0])
    assert batch.payloads() == [bytes((number,)) * 100 for number in (2, 3, 4)]
    assert asked(batch)[0] == batch.left == 3
    assert [facts(message)[1] for message in batch.rest()] == [320, 480, 640]


@needs_compiled
def test_batches_of_different_places_are_not_put_together() -> None:
    twin = compiled_twins()
    log, other = filled([100] * 4), filled([100] * 4)
    batch, behind = opened(twin, log, limit=2)
    for stranger in (opened(twin, other, behind)[0], opened(twin, log, 160)[0]):
        assert not batch.extend(stranger)
    made = twin.Batch([twin.Message(b"made", 64, 0, IMAGE)], IMAGE)
    assert not batch.extend(made)
    assert not made.extend(batch)
    assert batch.left == 2
    assert batch.extend(opened(twin, log, behind)[0])
    assert len(batch.payloads()) == batch.left == 4


@needs_compiled
def test_a_batch_of_what_are_no_messages_hands_out_nothing() -> None:
    batch = compiled_twins().Batch(["x"], IMAGE)
    for ask in (batch.payloads, batch.following, batch.rest):
        with pytest.raises(TypeError):
            ask()


# What another process may do meanwhile, and what nobody would.


@needs_compiled
@pytest.mark.parametrize("length", [0, -1, 32, 64, 128, 2**31 - 1, TERM_LENGTH])
def test_what_is_copied_stays_within_the_batch(length: int) -> None:
    """With shorter frames there are others behind them, made of payload."""
    log = filled([100] * 4)
    for place in range(0, 640, 32):
        log.term_words[0][place >> 2] = 132
        log.term_words[0][(place >> 2) + 1] = 0x0001_C000
    batch, _ = opened(compiled_twins(), log, end=640)
    for place in range(0, 640, 32):
        log.term_words[0][place >> 2] = length
    assert len(batch.payloads()) <= 4
    count, bounds, positions, values, data = batch.columns()
    assert count <= 4
    assert len(data) <= 512
    assert {len(bounds), len(positions), len(values)} == {40, 32}
    places = batch.places()
    assert len(places) <= 4
    assert all(32 <= start <= start + length <= 640 for start, length in places)


@needs_compiled
@pytest.mark.parametrize("length", [0, -1, 2**31 - 1, TERM_LENGTH])
def test_frames_that_change_under_a_batch_end_it(length: int) -> None:
    log = filled([100] * 4)
    batch, _ = opened(compiled_twins(), log)
    batch.following()
    log.term_words[0][160 >> 2] = length
    assert batch.following() is None
    assert batch.left == 0


@needs_compiled
def test_flags_that_change_under_a_batch_end_it_and_padding_is_passed() -> None:
    log = filled([100] * 4)
    batch, _ = opened(compiled_twins(), log)
    batch.following()
    log.term_words[0][(160 >> 2) + 1] = 0
    log.term_words[0][(480 >> 2) + 1] = 0x0001_8000
    assert batch.following().data == b"\3" * 100
    assert batch.following() is None
    assert batch.left == 0


@needs_compiled
@pytest.mark.parametrize("offset", [-32, 1, 16, TERM_LENGTH + 32, 2**62])
def test_nothing_is_opened_where_no_frame_can_begin(offset: int) -> None:
    batch, behind = opened(compiled_twins(), filled([100] * 4), offset=offset)
    assert (batch.left, behind) == (0, offset)


@needs_compiled
def test_a_batch_holds_the_log_until_it_is_empty() -> None:
    memory = bytearray(TERM_LENGTH)
    log = filled([100] * 2)
    memory[:320] = log.terms[0][:320]
    term: Any = memoryview(memory)
    batch, _ = compiled_twins().open_batch(term, None, None, 0, TERM_LENGTH, 0, 9, IMAGE)
    with pytest.raises(BufferError):
        term.release()
    batch.rest()
    term.release()
    memory.clear()


@needs_compiled
def test_a_batch_is_filled_once() -> None:
    batch = compiled_twins().Batch([], None)
    with pytest.raises(ValueError, match="once"):
        batch.__init__([], None)
    with pytest.raises(TypeError):
        compiled_twins().Batch(None, None)
    messages: list[Any] = ["no message"]
    with pytest.raises(TypeError):
        compiled_twins().Batch(messages, None).following()
    shrunk = [compiled_twins().Message(b"", 0, 0, IMAGE)]
    batch = compiled_twins().Batch(shrunk, IMAGE)
    shrunk.clear()
    assert batch.following() is None
