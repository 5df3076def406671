"""How full the datagrams of a stream are, beside greedy packing: what Aeron does."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.scanner import scan_for_send
from tests.driver.test_stream_sender import Rig
from tests.logbuffer.logs import NO_LIMIT, make_log
from tests.twins import IS_BUILT, TWINS, compiled_twins, pure_twins

TERM_LENGTH = 1 << 20
MTU_LENGTH = 1_408

BOTH = [pure_twins(), compiled_twins()] if IS_BUILT else [pure_twins()]

MIXES = st.one_of(
    st.lists(st.integers(0, 1_376), min_size=1, max_size=40),
    st.lists(st.sampled_from([0, 1, 32, 40, 100, 600]), min_size=1, max_size=12),
)


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def filled(lengths: list[int]) -> tuple[Any, int]:
    """Return a log with messages of these lengths, and where they end."""
    log = make_log(term_length=TERM_LENGTH)
    appender = ExclusiveAppender(log)
    for length in lengths:
        appender.offer(bytes(length), limit=NO_LIMIT)
    return log, appender.position


def greedy(log: Any, end: int) -> list[int]:
    """Return the lengths of the datagrams that each take all that fits."""
    lengths: list[int] = []
    while (start := sum(lengths)) < end:
        limit = min(end - start, MTU_LENGTH)
        lengths.append(scan_for_send(log.terms[0], log.term_words[0], start, limit=limit)[0])
    return lengths


def datagrams(twin: Any, log: Any, end: int, *, max_count: int = 64) -> list[int]:
    """Return the lengths of the datagrams that the sender would send."""
    lengths: list[int] = []
    segments = array("i", bytes(8 * 64))
    position = 0
    while position < end:
        total, count, _, _ = twin.scan_batches(
            log.terms[0], log.term_words[0], position, segments, limit=end - position,
            mtu_length=MTU_LENGTH, batch_length=65_504, max_count=max_count, cost=256,
        )  # fmt: skip
        start = 0
        for run_end, segment in zip(
            segments[: 2 * count : 2], segments[1 : 2 * count : 2], strict=True
        ):
            while start < run_end:
                lengths.append(min(segment, run_end - start))
                start += lengths[-1]
        position += total
    return lengths


SEED = random.Random(20)
NAMED = {
    "uniform 100": ([100] * 6_000, 750, 750),
    "random 20-300": ([SEED.randint(20, 300) for _ in range(4_000)], 621, 621),
    "alternating 600 and 40": ([600, 40] * 1_000, 667, 667),
    "short ones that are seldom equal": ([0, 0, 0, 32, 32] * 4_000, 640, 667),
}


@pytest.mark.parametrize("name", NAMED)
def test_of_these_streams_so_many_datagrams_are_made(twin: Any, name: str) -> None:
    """With shorter datagrams, batches were longer and datagrams up to 50 % more."""
    lengths, greedy_count, our_count = NAMED[name]
    log, end = filled(lengths)
    assert len(greedy(log, end)) == greedy_count
    assert len(datagrams(twin, log, end)) == our_count
    assert our_count <= 1.05 * greedy_count


@given(mix=MIXES, repeats=st.integers(1, 40))
def test_never_more_than_a_twentieth_more_than_greedy_packing(mix: list[int], repeats: int) -> None:
    """The same for any mix of lengths, and both twins make the same datagrams."""
    repeats = min(repeats, 900_000 // sum((length + 63) & -32 for length in mix))
    log, end = filled(mix * repeats)
    expected = greedy(log, end)
    found = [datagrams(each, log, end) for each in BOTH]
    assert all(each == found[0] for each in found)
    assert sum(found[0]) == end
    assert 20 * len(found[0]) <= 21 * len(expected)


@given(mix=MIXES, repeats=st.integers(1, 40))
def test_without_batching_every_datagram_is_as_full_as_can_be(mix: list[int], repeats: int) -> None:
    """Where no datagrams leave together, longer batches gain nothing."""
    log, end = filled(mix * min(repeats, 20))
    for each in BOTH:
        assert datagrams(each, log, end, max_count=1) == greedy(log, end)


@pytest.mark.parametrize("is_batching", [True, False])
def test_a_publication_knows_whether_datagrams_leave_together(*, is_batching: bool) -> None:
    """The setting reaches the sender."""
    rig = Rig(burst_limit=64, is_batching=is_batching)
    rig.offer(*[32, 32, 32, 64, 64] * 280)
    lengths = rig.send(limit=280 * 256)
    assert (lengths[:3] == [1_344] * 3) is is_batching


def test_padding_travels_as_its_header_where_there_is_room_for_that(twin: Any) -> None:
    log = make_log(term_length=TERM_LENGTH)
    term, words = log.terms[0], log.term_words[0]
    # A message, padding of a header alone, a message, and longer padding.
    for at, length, kind in ((0, 33, 1), (64, 32, 0), (96, 33, 1), (160, 128, 0)):
        words[at >> 2] = length
        words[(at >> 2) + 1] = kind << 16 | 0xC0 << 8
    assert twin.scan_for_send(term, words, 0, limit=1_408) == (192, 96)
    assert twin.scan_for_send(term, words, 0, limit=191) == (160, 0), "no room for a header"
    assert twin.scan_for_send(term, words, 64, limit=32) == (32, 0)
    assert twin.scan_for_send(term, words, 0, limit=64) == (64, 0)
