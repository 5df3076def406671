"""Both twins follow a chain of frames equally far, and stop at the same foreign frame."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archive.disk.streams import FrameSource, described
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

WHERE = {"term_offset": 0, "term_id": 7, "stream_id": 10, "term_length": 65_536}


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_a_chain_ends_where_what_counts_does(twin: Any) -> None:
    block, padding = FrameSource(described(), 3).block()
    words = memoryview(bytearray(block)).cast("i")
    whole = twin.scan_chain(words, len(block), **WHERE)
    assert whole == (len(block), padding)
    assert twin.scan_chain(words, 1 << 40, **WHERE) == whole
    assert twin.scan_chain(words, len(block) - 1, **WHERE)[0] < len(block)
    for limit in (-1, 0, 31):
        assert twin.scan_chain(words, limit, **WHERE) == (0, 0)


def test_a_frame_that_claims_to_go_on_beyond_its_term_is_none(twin: Any) -> None:
    words = memoryview(bytearray(64)).cast("i")
    words[0], words[1], words[4], words[5] = 64, 1 << 16, WHERE["stream_id"], WHERE["term_id"]
    assert twin.scan_chain(words, 64, **WHERE) == (64, 0)
    words[2] = 65_504
    assert twin.scan_chain(words, 64, **WHERE | {"term_offset": 65_504}) == (0, 0)


def test_padding_ends_a_chain_and_counts_as_its_header(twin: Any) -> None:
    words = memoryview(bytearray(128)).cast("i")
    for offset, length, kind in ((0, 64, 1 << 16), (64, 960, 0)):
        header = (length, kind, offset, 0, WHERE["stream_id"], WHERE["term_id"])
        words[offset >> 2 : (offset >> 2) + 6] = memoryview(array("i", header))
    where = WHERE | {"term_offset": 0}
    assert twin.scan_chain(words, 128, **where | {"term_length": 1_024}) == (96, 928)
    assert twin.scan_chain(words, 128, **where | {"term_length": 992}) == (64, 0)


@needs_compiled
@given(
    seed=st.integers(0, 1_000),
    damage=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=4),
    limit=st.integers(-10, 20_000),
    term_offset=st.sampled_from([0, 0, 0, 32, 65_504, -32, 1 << 40]),
)
def test_both_stop_at_the_same_place(
    seed: int, damage: list[tuple[int, int]], limit: int, term_offset: int
) -> None:
    data = bytearray(FrameSource(described(), seed).block()[0])
    for at, value in damage:
        data[at % len(data)] = value
    words = memoryview(data).cast("i")
    where = WHERE | {"term_offset": term_offset}
    found = [twin.scan_chain(words, limit, **where) for twin in (pure_twins(), compiled_twins())]
    assert found[0] == found[1]


OWN = {"session_id": 3, "stream_id": 10, "term_id": 7, "mtu_length": 160}
OWN_TERM_LENGTH = 1024


def own_term(lengths: list[int], *, padding: int = 0) -> memoryview:
    """Return a term with data frames of some lengths, and padding behind them."""
    words = memoryview(bytearray(OWN_TERM_LENGTH)).cast("i")
    offset = 0
    for kind, length in [(1 << 16, each) for each in lengths] + [(0, padding)]:
        if length and offset + length <= OWN_TERM_LENGTH:
            header = (length, kind, offset, OWN["session_id"], OWN["stream_id"], OWN["term_id"])
            for index, value in enumerate(header):
                words[(offset >> 2) + index] = value
            offset += (length + 31) & -32
    return words


def test_frames_are_followed_up_to_a_limit(twin: Any) -> None:
    words = own_term([32, 100, 160], padding=OWN_TERM_LENGTH - 320)
    found = [twin.skip_own(words, 0, limit, **OWN) for limit in (0, 1, 32, 33, 160, 161, 320, 321)]
    ends = [0, 32, 32, 160, 160, 320, 320, OWN_TERM_LENGTH]
    assert found == [(end, False) for end in ends]
    assert twin.skip_own(words, 160, 1 << 40, **OWN) == (OWN_TERM_LENGTH, False)
    assert twin.skip_own(own_term([32, 100]), 0, 1 << 40, **OWN) == (160, False)


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 31),
        (0, 161),
        (0, -64),
        (0, 0),
        (0, 2**31 - 1),
        *((1, value) for value in (0x1_0001, 0x1_0080, 2 << 16, -1 << 16)),
        *((index, value) for index in (2, 3, 4, 5) for value in (-1, 0)),
    ],
)
def test_a_frame_that_the_stream_cannot_have_is_not_followed(
    twin: Any, index: int, value: int
) -> None:
    words = own_term([64, 64, 64])
    words[(64 >> 2) + index] = value
    # What is not committed may still become a frame of the stream.
    is_wrong = words[64 >> 2] > 0
    assert twin.skip_own(words, 0, OWN_TERM_LENGTH, **OWN) == (64, is_wrong)
    assert twin.skip_own(words, 0, 64, **OWN) == (64, False)


def test_padding_ends_with_the_term(twin: Any) -> None:
    words = own_term([], padding=OWN_TERM_LENGTH)
    assert twin.skip_own(words, 0, 32, **OWN) == (OWN_TERM_LENGTH, False)
    words[0] += 1
    assert twin.skip_own(words, 0, 32, **OWN) == (0, True)


@needs_compiled
@given(
    lengths=st.lists(st.integers(32, 200), max_size=12),
    padding=st.integers(0, OWN_TERM_LENGTH),
    damage=st.lists(st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)), max_size=3),
    offset=st.integers(0, OWN_TERM_LENGTH // 32).map(lambda slot: 32 * slot),
    limit=st.integers(-10, 2 * OWN_TERM_LENGTH),
)
def test_both_follow_the_frames_of_a_stream_equally_far(
    lengths: list[int], padding: int, damage: list[tuple[int, int]], offset: int, limit: int
) -> None:
    words = own_term(lengths, padding=padding)
    for at, value in damage:
        words[at] = value
    found = [
        twin.skip_own(words, offset, limit, **OWN) for twin in (pure_twins(), compiled_twins())
    ]
    assert found[0] == found[1]
