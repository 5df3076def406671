"""Both twins follow a chain of frames equally far, and stop at the same foreign frame."""

from __future__ import annotations

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
