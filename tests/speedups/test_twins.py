"""Both twins do the same, with valid terms and with hostile ones."""

from __future__ import annotations

from array import array
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.appender import ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.rebuilder import insert
from tests.logbuffer.logs import MTU_LENGTH, NO_LIMIT, TERM_LENGTH, make_log, read_all
from tests.twins import IN_PYTHON, TWINS, compiled_twins, needs_compiled, pure_twins

WORD_BYTES = st.binary(min_size=32, max_size=2_048).map(lambda data: data[: len(data) & ~31])
LENGTHS = st.lists(st.sampled_from([0, 1, 32, 100, 100, 100, 700, 1_376]), max_size=60)


LONG_LENGTHS = st.lists(st.sampled_from([0, 1, 100, 1_376, 1_377, 3_000, 8_192]), max_size=12)


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


@needs_compiled
@pytest.mark.skipif(WHY_PURE is not None, reason=str(WHY_PURE))
def test_what_is_compiled_is_what_the_package_uses() -> None:
    compiled = compiled_twins()
    for name, twins in IN_PYTHON.items():
        module = import_module(f"aeron_async.{name}")
        assert [
            each for each in twins if getattr(module, each) is not getattr(compiled, each)
        ] == []


def filled(lengths: list[int]) -> Any:
    log = make_log()
    appender = ExclusiveAppender(log)
    for number, length in enumerate(lengths):
        appender.offer(bytes([number % 255 + 1]) * length, limit=NO_LIMIT)
    return log


# Scanning.


def scan_batch(twin: Any, *where: Any, limit: int, **options: int) -> tuple[int, int, int]:
    """Return the first batch: its length, that of its datagrams, and the padding behind."""
    segments = array("i", (0, 0))
    scanned = twin.scan_batches(
        *where, segments, limit=limit, batch_length=limit, cost=1, **options
    )
    total, count, padding, cost = scanned
    assert (total, count) == (segments[0], bool(total))
    assert cost == (5 + total // segments[1] if total else 0)
    return total, segments[1], padding


def run_of(twin: Any, lengths: list[int], **changes: int) -> tuple[int, int, int]:
    log = filled(lengths)
    options = {"limit": TERM_LENGTH, "mtu_length": MTU_LENGTH, "max_count": 64} | changes
    return scan_batch(twin, log.terms[0], log.term_words[0], 0, **options)


def test_messages_of_one_size_give_one_long_batch(twin: Any) -> None:
    assert run_of(twin, [100] * 100) == (16_000, 1_280, 0)
    assert run_of(twin, [100] * 100, max_count=3) == (3_840, 1_280, 0)
    assert run_of(twin, [100] * 100, limit=2_000) == (1_280 + 640, 1_280, 0)
    assert run_of(twin, [100] * 100, limit=159) == (0, 0, 0)
    assert run_of(twin, [100] * 100, max_count=1) == (1_280, 1_280, 0)


def test_the_last_datagram_of_a_batch_may_be_shorter_and_ends_it(twin: Any) -> None:
    assert run_of(twin, [1_376] * 9 + [100] * 9) == (9 * 1_408 + 1_280, 1_408, 0)
    assert run_of(twin, [100] * 9) == (9 * 160, 1_280, 0)
    assert run_of(twin, [100]) == (160, 160, 0)
    assert run_of(twin, []) == (0, 0, 0)


def test_mixed_sizes_are_cut_where_batches_get_longer_for_few_datagrams_more(twin: Any) -> None:
    # Full datagrams are 1376 or 1408 bytes long, and seldom equal: 46 of 1344 need 44 full ones.
    total, segment, padding = run_of(twin, [0, 0, 0, 32, 32] * 290)
    assert (total, segment, padding) == (48 * 1_344, 1_344, 0)


def test_padding_travels_as_its_header_at_the_end_of_a_batch(twin: Any) -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 1_024)
    appender = ExclusiveAppender(log)
    appender.offer(bytes(100), limit=NO_LIMIT)
    assert appender.append_padding(400, limit=NO_LIMIT) > 0
    where = log.terms[0], log.term_words[0], TERM_LENGTH - 1_024
    assert scan_batch(twin, *where, limit=9_999, mtu_length=MTU_LENGTH, max_count=64) == (
        192, 192, 416,
    )  # fmt: skip


def test_a_batch_ends_with_the_padding_behind_whole_datagrams(twin: Any) -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 4 * 1_408)
    appender = ExclusiveAppender(log)
    for _ in range(3):
        appender.offer(bytes(1_376), limit=NO_LIMIT)
    assert appender.append_padding(1_376, limit=NO_LIMIT) > 0
    where = log.terms[0], log.term_words[0], TERM_LENGTH - 4 * 1_408
    found = scan_batch(twin, *where, limit=9_999, mtu_length=MTU_LENGTH, max_count=64)
    assert found == (3 * 1_408 + 32, 1_408, 1_376)


@needs_compiled
@given(lengths=LENGTHS, limit=st.integers(0, 20_000), max_count=st.integers(1, 64))
def test_batches_are_the_same_for_both_and_end_with_frames(
    lengths: list[int], limit: int, max_count: int
) -> None:
    changes = {"limit": limit, "max_count": max_count}
    found = run_of(pure_twins(), lengths, **changes)
    assert found == run_of(compiled_twins(), lengths, **changes)
    total, segment, _ = found
    ends, end = {0}, 0
    for length in lengths:
        end += (length + 63) & -32
        ends.add(end)
    assert total <= limit
    assert segment <= MTU_LENGTH
    assert {min(start, total) for start in range(0, total + segment, segment or 1)} <= ends


@needs_compiled
@given(garbage=WORD_BYTES, offset=st.integers(0, 40).map(lambda slot: slot * 32))
def test_a_term_full_of_anything_is_scanned_alike(garbage: bytes, offset: int) -> None:
    log = make_log()
    log.terms[0][: len(garbage)] = garbage
    at = log.terms[0], log.term_words[0], offset
    other = compiled_twins()
    for limit in (0, 32, 1_408):
        assert pure_twins().scan_for_send(*at, limit=limit) == other.scan_for_send(*at, limit=limit)
    options = {"limit": 60_000, "mtu_length": MTU_LENGTH, "max_count": 64}
    assert scan_batch(pure_twins(), *at, **options) == scan_batch(other, *at, **options)
    assert pure_twins().skip_whole(at[1], offset, 2_048) == other.skip_whole(at[1], offset, 2_048)
    for limit in (-33, -32, 0, 32, 33, 2_047, 2_048, 2_080, TERM_LENGTH, 2**62):
        found = [each.scan_for_gap(at[1], offset, limit=limit) for each in (pure_twins(), other)]
        assert found[0] == found[1]


# Placing.


def place_batch(twin: Any, data: memoryview, segment: int, *where: Any, limit: int) -> int:
    segments = array("i", (len(data), segment))
    placed: int = twin.place_batches(data, segments, 0, 0, *where, limit=limit)
    return placed


def place(twin: Any, data: bytes, segment: int, *, at: int = 0, limit: int = 65_536) -> Any:
    log = make_log()
    placed = place_batch(
        twin, memoryview(data), segment, log.terms[0], log.term_words[0], at, limit=limit
    )
    return log, placed


def test_a_batch_is_placed_as_if_each_datagram_had_come_alone(twin: Any) -> None:
    data = bytes(filled([100] * 80).terms[0][: 80 * 160])
    log, placed = place(twin, data, 1_280)
    assert placed == 80 * 160
    assert read_all(log) == read_all(filled([100] * 80))
    assert bytes(log.terms[0][: 80 * 160]) == data


def test_no_more_is_placed_than_the_limit_allows(twin: Any) -> None:
    data = bytes(filled([100] * 80).terms[0][: 80 * 160])
    assert place(twin, data, 1_280, limit=1_279)[1] == 0
    log, placed = place(twin, data, 1_280, limit=2 * 1_280 + 31)
    assert placed in {1_280, 2_560}
    assert read_all(log) == read_all(filled([100] * 80))[: placed // 160]


@pytest.mark.parametrize("column", range(6))
def test_what_does_not_follow_is_left_to_the_long_way(twin: Any, column: int) -> None:
    data = bytearray(filled([100] * 32).terms[0][: 32 * 160])
    # In the last frame of the third datagram; in the second word the byte that is the version.
    at = 24 * 160 - 160 + column * 4
    if column in {3, 4, 5}:
        at = 2 * 1_280 + column * 4
    data[at] ^= 0x60
    log, placed = place(twin, bytes(data), 1_280)
    assert placed <= (2 if column != 1 or twin is pure_twins() else 4) * 1_280
    assert read_all(log) == read_all(filled([100] * 32))[: placed // 160] or column == 1


def test_what_is_there_already_ends_a_batch(twin: Any) -> None:
    data = bytes(filled([100] * 32).terms[0][: 32 * 160])
    log = make_log()
    where = log.terms[0], log.term_words[0]
    assert insert(*where, 2_560, memoryview(data)[2_560:3_840])
    placed = place_batch(twin, memoryview(data), 1_280, *where, 0, limit=65_536)
    assert placed in {1_280, 2_560}
    assert not place_batch(twin, memoryview(data)[2_560:], 1_280, *where, 2_560, limit=65_536)


@pytest.mark.parametrize(
    ("segment", "at", "limit"),
    [(0, 0, 65_536), (31, 0, 65_536), (1_280, 16, 65_536), (1_280, -32, 65_536), (1_280, 0, -1),
     (1_280, 65_536, 65_536), (1_281, 0, 65_536), (1_280, 64_512, 65_536)],
)  # fmt: skip
def test_a_place_that_is_none_gets_nothing(twin: Any, segment: int, at: int, limit: int) -> None:
    data = bytes(filled([100] * 32).terms[0][: 32 * 160])
    assert place(twin, data, segment, at=at, limit=limit)[1] == 0


def test_padding_and_heartbeats_are_left_to_the_long_way(twin: Any) -> None:
    data = bytearray(filled([100] * 16).terms[0][: 16 * 160])
    data[6:8] = b"\0\0"
    assert place(twin, bytes(data), 1_280)[1] == 0
    assert place(twin, bytes(64), 32)[1] == 0


@needs_compiled
@given(data=WORD_BYTES, segment=st.integers(32, 512), lengths=LENGTHS, flips=st.binary(max_size=6))
def test_whatever_is_placed_is_what_placing_one_by_one_would_have_placed(
    data: bytes, segment: int, lengths: list[int], flips: bytes
) -> None:
    source = filled(lengths).terms[0]
    damaged = bytearray(source[: 64 * 160])
    for number, flip in enumerate(flips):
        damaged[(flip * 97 + number * 641) % len(damaged)] ^= flip
    for batch, cut in ((data, segment), (bytes(damaged), 160), (bytes(damaged), 1_280)):
        log, placed = place(pure_twins(), batch, cut)
        other, further = place(compiled_twins(), batch, cut)
        assert placed <= further
        single = make_log()
        for start in range(0, further, cut):
            assert insert(
                single.terms[0],
                single.term_words[0],
                start,
                memoryview(batch)[start : min(start + cut, further)],
            )
        assert other.terms[0] == single.terms[0]
        assert log.terms[0][:placed] == single.terms[0][:placed]
        assert not any(log.terms[0][placed:])


# Reading.


@needs_compiled
@given(
    garbage=WORD_BYTES,
    lengths=LONG_LENGTHS,
    limit=st.integers(0, 70),
    end=st.integers(0, 30_000),
    longest=st.sampled_from([0, 1_376, 3_000, 8_192]),
)
def test_messages_are_read_alike(
    garbage: bytes, lengths: list[int], limit: int, end: int, longest: int
) -> None:
    for log in (filled(lengths), make_log()):
        if not lengths:
            log.terms[0][: len(garbage)] = garbage
        where = log.terms[0], log.term_words[0], log.term_longs[0]
        first: list[Any] = []
        second: list[Any] = []
        image: Any = SimpleNamespace(session_id=7, stream_id=8)
        for out, each in ((first, pure_twins()), (second, compiled_twins())):
            how = 0, end, 1 << 40, limit, out
            behind = each.read_whole(*where, *how, longest=longest)
            assert behind == each.read_whole(*where, *how, image, longest)
            out.append(behind)
        count = len(first) // 2
        assert first[:count] == second[:count]
        assert first[-1] == second[-1]
        assert [(m.data, m.position, m.reserved_value) for m in second[count:-1]] == first[:count]


def test_a_message_says_what_it_is(twin: Any) -> None:
    image: Any = SimpleNamespace(session_id=7, stream_id=8)
    found = twin.Message(b"hello", 64, -3, image)
    assert (found.data, found.position, found.reserved_value) == (b"hello", 64, -3)
    assert (found.session_id, found.stream_id, found.image) == (7, 8, image)
    assert bytes(found) == b"hello"
    assert len(found) == 5
    assert repr(found) == "<Message of 5 bytes at position 64, session 7, stream 8>"


# Appending.


@needs_compiled
@given(
    messages=st.lists(
        st.tuples(st.integers(0, 5_000), st.integers(-(2**63), 2**63 - 1)), max_size=80
    ),
    is_exclusive=st.booleans(),
)
def test_messages_are_appended_alike(
    messages: list[tuple[int, int]], *, is_exclusive: bool
) -> None:
    kind = ExclusiveAppender if is_exclusive else SharedAppender
    logs = make_log(), make_log()
    fast, slow = (kind(log) for log in logs)
    slow.detach()
    for number, (length, reserved_value) in enumerate(messages):
        data = bytes([number]) * length
        limit = 300_000
        for _ in range(2):
            results = [
                each.offer(data, limit=limit, reserved_value=reserved_value)
                for each in (fast, slow)
            ]
            assert results[0] == results[1]
        assert fast.position == slow.position
    first, second = logs
    for index in range(3):
        assert first.terms[index] == second.terms[index]
    assert bytes(first.metadata.block) == bytes(second.metadata.block)


@pytest.mark.parametrize("is_detached", [False, True])
def test_what_cannot_be_appended_is_refused_the_same_way(*, is_detached: bool) -> None:
    appender = ExclusiveAppender(make_log())
    if is_detached:
        appender.detach()
    odd: Any = "text"
    with pytest.raises(TypeError, match="encode it"):
        appender.offer(odd, limit=NO_LIMIT)
    with pytest.raises(ConfigurationError, match="64 bits"):
        appender.offer(b"", limit=NO_LIMIT, reserved_value=2**63)
    assert appender.position == 0
    assert appender.offer(bytearray(b"abc"), limit=NO_LIMIT) == 64
    assert appender.offer(memoryview(b"a.b.c.")[::2], limit=NO_LIMIT) == 128
    assert appender.offer(b"abc", limit=64) == -1


def test_memory_that_the_kernel_let_go_can_be_given_back() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    appender.offer(b"abc", limit=NO_LIMIT)
    appender.detach()
    appender.detach()
    log.close()
    with pytest.raises(ValueError, match="released"):
        log.terms[0][0]


# Atomics.


@pytest.mark.parametrize(("code", "size"), [("i", 32), ("q", 64)])
def test_words_are_loaded_stored_added_to_and_swapped(twin: Any, code: str, size: int) -> None:
    words = memoryview(bytearray(32)).cast("i" if code == "i" else "q")
    load, store, add, swap = (
        getattr(twin, f"{name}_{size}")
        for name in ("load_acquire", "store_release", "fetch_add", "compare_and_swap")
    )
    store(words, 1, -5)
    assert load(words, 1) == words[1] == -5
    assert add(words, 1, 7) == -5
    assert words[1] == 2
    assert swap(words, 1, 2, 11)
    assert not swap(words, 1, 2, 12)
    assert words[1] == 11
    store(words, 0, 2 ** (size - 1) - 1)
    assert add(words, 0, 1) == 2 ** (size - 1) - 1
    assert load(words, 0) == -(2 ** (size - 1))
    for index in (-1, len(words)):
        with pytest.raises(IndexError, match="no word"):
            load(words, index)
    with pytest.raises(TypeError, match="items of"):
        load(memoryview(bytearray(32)), 0)
    with pytest.raises(TypeError):
        store(words.toreadonly(), 0, 1)
    assert twin.IS_ATOMIC is (twin is not pure_twins())


# Cleaning.


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 256), (8, 9), (64, 128), (255, 256), (128, 64)]
)
def test_a_range_is_filled_with_zeros_and_nothing_else(twin: Any, start: int, end: int) -> None:
    term = memoryview(bytearray(b"x" * 256))
    twin.zero(term, start, end)
    length = max(0, end - start)
    assert bytes(term) == b"x" * start + bytes(length) + b"x" * (256 - start - length)


def test_a_range_longer_than_a_step_is_filled(twin: Any) -> None:
    term = memoryview(bytearray(b"x" * 200_000))
    twin.zero(term, 1, 199_999)
    assert bytes(term) == b"x" + bytes(199_998) + b"x"
