"""How much a micro-batch reads."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.spark.admission import Limit, TriggerDelay, UnreadRange, admit

TERM = 65_536


@attrs.define
class Messages:
    """Where messages end, by recording; counts how often it was asked."""

    ends: dict[int, list[int]]
    asked: int = 0

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        self.asked += 1
        found = [each for each in self.ends[recording_id] if start < each <= limit]
        return found[-1] if found else start

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        self.asked += 1
        return min((each for each in self.ends[recording_id] if each > start), default=end)

    def readable_end(self, recording_id: int, start: int, end: int) -> int:
        return self.last_end(recording_id, start, end)

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> tuple[int, int]:
        self.asked += 1
        ends = [each for each in self.ends[recording_id] if start < each <= end]
        return (ends[rows - 1], rows) if rows <= len(ends) else (end, len(ends))


def filled(length: int, size: int) -> list[int]:
    """Return where messages of one size end, none across the end of a term."""
    ends = [end for end in range(size, length + 1, size) if end // TERM == (end - size) // TERM]
    return sorted({*ends, *range(TERM, length + 1, TERM)})


def waiting(*lengths: int) -> dict[int, UnreadRange]:
    return {number: UnreadRange(0, length, TERM) for number, length in enumerate(lengths)}


def test_without_a_limit_everything_is_read() -> None:
    messages = Messages({0: filled(640, 64), 1: [], 2: filled(TERM, 320)})
    assert admit(waiting(640, 0, TERM), Limit(), messages) == {0: 640, 2: TERM}


def test_the_first_ones_are_read_until_the_limit_is_reached() -> None:
    messages = Messages({0: filled(3_200, 32), 1: filled(8_000, 320), 2: filled(320, 32)})
    found = admit(waiting(3_200, 8_000, 320), Limit(max_bytes=4_000), messages)
    assert found == {0: 3_200, 1: 640}


def test_the_order_is_that_in_which_they_are_given() -> None:
    messages = Messages({0: filled(3_200, 32), 1: filled(3_200, 32)})
    given_ = dict(reversed(waiting(3_200, 3_200).items()))
    assert admit(given_, Limit(max_bytes=3_264), messages) == {1: 3_200, 0: 64}


def test_a_limit_that_holds_no_message_is_one_message() -> None:
    messages = Messages({0: filled(64_000, 6_400), 1: filled(640, 320)})
    assert admit(waiting(64_000, 640), Limit(max_bytes=1), messages) == {0: 6_400}


def test_a_part_of_a_message_keeps_nobody_from_being_read() -> None:
    messages = Messages({0: [], 1: filled(3_200, 32)})
    for limit in (Limit(max_bytes=64), Limit(max_rows=2), Limit(max_bytes=10_000)):
        assert admit(waiting(6_400, 3_200), limit, messages)[1] >= 64


def test_a_message_that_does_not_fit_behind_others_waits() -> None:
    messages = Messages({0: filled(640, 32), 1: filled(64_000, 6_400), 2: filled(640, 32)})
    assert admit(waiting(640, 64_000, 640), Limit(max_bytes=1_280), messages) == {0: 640}


def test_a_recording_with_nothing_waiting_gets_nothing() -> None:
    messages = Messages({0: filled(3_200, 32), 1: []})
    assert admit(waiting(3_200, 0), Limit(max_bytes=64), messages) == {0: 64}
    assert admit(waiting(3_200, 0), Limit(max_rows=3), messages) == {0: 96}


def test_a_limit_of_more_than_a_term_ends_where_one_begins_without_a_look_at_the_disk() -> None:
    messages = Messages({})
    found = admit(waiting(10 * TERM), Limit(max_bytes=3 * TERM + 100), messages)
    assert found == {0: 3 * TERM}
    assert not messages.asked


def test_a_limit_of_more_than_a_term_from_within_one_is_never_more_than_it_is() -> None:
    each = {0: UnreadRange(TERM // 2, 10 * TERM, TERM)}
    assert admit(each, Limit(max_bytes=TERM + 64), Messages({})) == {0: TERM}


def test_ten_thousand_that_wait_are_not_looked_at() -> None:
    messages = Messages({0: filled(TERM, 32), 1: []})
    found = admit(waiting(*[TERM] * 10_000), Limit(max_bytes=TERM + 64), messages)
    assert found == {0: TERM}
    assert messages.asked <= 3


def test_rows_of_the_first_ones_are_read() -> None:
    messages = Messages({0: filled(96, 32), 1: filled(320, 32), 2: filled(320, 32)})
    found = admit(waiting(96, 320, 320), Limit(max_rows=10), messages)
    assert found == {0: 96, 1: 7 * 32}


def test_fewer_rows_than_the_limit_are_all_read() -> None:
    assert admit(waiting(320), Limit(max_rows=100), Messages({0: filled(320, 32)})) == {0: 320}


SIZES = st.integers(1, 300).map(lambda each: each * 32)
LENGTHS = st.integers(0, 6 * TERM // 32).map(lambda each: each * 32)


@given(st.lists(st.tuples(LENGTHS, SIZES), min_size=1, max_size=5), st.integers(1, 8 * TERM))
def test_ends_are_of_messages_and_only_the_first_message_exceeds_the_limit(
    recordings: list[tuple[int, int]], max_bytes: int
) -> None:
    messages = Messages({n: filled(length, size) for n, (length, size) in enumerate(recordings)})
    given_ = waiting(*(messages.ends[n][-1] if messages.ends[n] else 0 for n in messages.ends))
    found = admit(given_, Limit(max_bytes=max_bytes), messages)
    assert all(end in messages.ends[number] for number, end in found.items())
    assert bool(found) == any(messages.ends.values())
    total = sum(found.values())
    assert total <= max_bytes or found == {min(found): messages.ends[min(found)][0]}


@given(LENGTHS, SIZES, st.integers(1, 8 * TERM))
def test_batch_after_batch_comes_to_the_end(length: int, size: int, max_bytes: int) -> None:
    messages = Messages({0: filled(length, size)})
    length = messages.ends[0][-1] if messages.ends[0] else 0
    # About a hundred batches show what thousands would.
    max_bytes = max(max_bytes, length // 100)
    position, batches = 0, 0
    while position < length:
        each = {0: UnreadRange(position, length, TERM)}
        following = admit(each, Limit(max_bytes=max_bytes), messages)[0]
        assert following > position
        position, batches = following, batches + 1
    assert batches <= length // 32 + 1


def test_without_a_minimum_nothing_waits() -> None:
    assert TriggerDelay(None, 1_000).may_read(1, 0)


def test_less_than_the_minimum_waits_no_longer_than_the_delay() -> None:
    delay = TriggerDelay(100, 1_000)
    assert delay.may_read(0, 0)
    assert not delay.may_read(99, 5_000)
    assert not delay.may_read(99, 5_999)
    assert delay.may_read(99, 6_000)
    assert not delay.may_read(99, 6_001)


@pytest.mark.parametrize("now_ms", [0, 10])
def test_as_much_as_the_minimum_is_read_at_once(now_ms: int) -> None:
    delay = TriggerDelay(100, 1_000)
    assert not delay.may_read(1, 0)
    assert delay.may_read(100, now_ms)
