"""Streams in blocks: how they are made, halved, joined and forgotten."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.stream_blocks import BLOCK, SLOW, Roster, StreamBlock


class Plain:
    """A stream that can be referred to."""


class Block(StreamBlock[list[Any]]):
    """A block whose streams are slow to take if they say so."""

    def _look_up(self) -> None:
        pass

    def _look_at_rare(self) -> None:
        self._is_simple = not any(getattr(each, "is_slow", False) for each in self.streams)

    def _take(self, taken: list[Any], _now_ns: int, _values: memoryview) -> None:
        taken += self.streams


def take(roster: Roster[Any, list[Any]]) -> list[Any]:
    """Return what all blocks take."""
    taken: list[Any] = []
    for block in roster.blocks:
        block.take(taken, 0, memoryview(b""))
    return taken


def test_streams_are_taken_in_order_in_blocks_that_stay() -> None:
    roster: Roster[Any, list[Any]] = Roster(Block)
    streams = [Plain() for _ in range(2 * BLOCK + 1)]
    roster.renew(streams)

    assert take(roster) == streams
    assert [len(each.streams) for each in roster.blocks] == [BLOCK, BLOCK, 1]
    before = roster.blocks
    streams.append(Plain())
    roster.renew(streams)
    assert roster.blocks[:3] == before
    assert take(roster) == streams


def test_a_stream_that_is_removed_is_forgotten_with_its_block() -> None:
    roster: Roster[Any, list[Any]] = Roster(Block)
    streams = [Plain() for _ in range(2 * BLOCK)]
    roster.renew(streams)
    first, second = roster.blocks

    roster.forget(streams[5])
    roster.forget(Plain())

    assert (roster.is_stale, first.is_whole, second.is_whole) == (True, False, True)
    assert len(roster) == BLOCK
    del streams[5]
    roster.renew(streams)
    assert not roster.is_stale
    assert take(roster) == streams
    assert second in roster.blocks


def test_what_is_slow_to_take_is_taken_in_small_blocks() -> None:
    roster: Roster[Any, list[Any]] = Roster(Block)
    streams = [Plain() for _ in range(4 * BLOCK)]
    roster.renew(streams)

    # What was never taken has to be looked up.
    roster.halve()
    assert {len(each.streams) for each in roster.blocks} == {BLOCK // SLOW}
    assert take(roster) == streams
    roster.join()
    assert {len(each.streams) for each in roster.blocks} == {BLOCK}
    assert take(roster) == streams
    roster.halve()
    assert {len(each.streams) for each in roster.blocks} == {BLOCK}
    streams[0].is_slow = True  # type: ignore[attr-defined] # a stream that turns slow
    for block in roster.blocks:
        block._rare_number = -1  # as after any rare change
    take(roster)
    roster.halve()
    roster.join()
    sizes = [len(each.streams) for each in roster.blocks]
    assert sizes == [BLOCK // SLOW] * SLOW + [BLOCK] * 3
    assert take(roster) == streams


def test_one_stream_is_never_halved() -> None:
    roster: Roster[Any, list[Any]] = Roster(Block)
    roster.renew([Plain()])
    roster.halve()
    roster.join()
    assert len(roster.blocks) == 1


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 300)),
            st.tuples(st.just("remove"), st.integers(0, 1_000)),
            st.tuples(st.sampled_from(["take", "halve", "join"]), st.just(0)),
        ),
        max_size=40,
    )
)
def test_whatever_happens_each_stream_is_in_one_block(steps: list[tuple[str, int]]) -> None:
    roster: Roster[Any, list[Any]] = Roster(Block)
    streams: list[Plain] = []
    for step, number in steps:
        if step == "add":
            streams += [Plain() for _ in range(number)]
        elif step == "remove":
            if streams:
                roster.forget(streams.pop(number % len(streams)))
        elif step == "take":
            roster.renew(streams)
            assert take(roster) == streams
        else:
            roster.renew(streams)
            getattr(roster, step)()
            assert [each for block in roster.blocks for each in block.streams] == streams
        assert all(0 < len(block.streams) <= BLOCK for block in roster.blocks)
        assert all(block.is_whole for block in roster.blocks)
