"""What is due: checked against a model that keeps nothing but a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aeron_async.clock import NEVER_NS
from aeron_async.driver.schedule import QUEUE_SPAN_NS
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.schedule import Schedule

ITEMS = st.sampled_from("abcd")
TIMES = st.one_of(st.integers(0, 40), st.just(NEVER_NS))


class ScheduleMachine(RuleBasedStateMachine):
    """An agent that polls whatever is due and schedules it anew, or not."""

    twins: Callable[[], Any] = staticmethod(pure_twins)

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[str] = self.twins().Schedule()
        self.ready: set[str] = set()
        self.deadlines: dict[str, int] = {}
        self.now_ns = 0

    @rule(item=ITEMS)
    def make_ready(self, item: str) -> None:
        self.schedule.ready(item)
        self.ready.add(item)

    @rule(item=ITEMS, delay_ns=TIMES)
    def set_deadline(self, item: str, delay_ns: int) -> None:
        deadline_ns = min(self.now_ns + delay_ns, NEVER_NS)
        self.schedule.at(item, deadline_ns)
        self.deadlines[item] = deadline_ns

    @rule(item=ITEMS)
    def remove(self, item: str) -> None:
        self.schedule.remove(item)
        self.ready.discard(item)
        self.deadlines.pop(item, None)

    @rule(step_ns=st.integers(0, 30))
    def poll(self, step_ns: int) -> None:
        self.now_ns += step_ns
        due = self.schedule.due(self.now_ns)
        assert len(due) == len(set(due))
        expected = self.ready | {
            item for item, at_ns in self.deadlines.items() if at_ns <= self.now_ns
        }
        # One whose deadline came and was not renewed has been told once; it may not be told again.
        assert self.ready <= set(due) <= expected
        told_before = expected - set(due)
        assert all(self.deadlines[item] <= self.now_ns - step_ns for item in told_before)
        self.ready.clear()
        for item in due:
            self.set_deadline(item, NEVER_NS)

    @rule(step_ns=st.integers(0, 30), limit=st.integers(0, 3), delay_ns=st.integers(0, 40))
    def take_expired(self, step_ns: int, limit: int, delay_ns: int) -> None:
        self.now_ns += step_ns
        expired = self.schedule.expired(self.now_ns, limit)
        assert len(expired) == len(set(expired)) <= limit
        assert not self.ready & set(expired)
        for item in expired:
            assert self.deadlines[item] <= self.now_ns
            deadline_ns = self.now_ns + delay_ns
            self.schedule.settle(item, deadline_ns, self.now_ns)
            if delay_ns:
                self.deadlines[item] = deadline_ns
            else:
                self.ready.add(item)

    @invariant()
    def the_next_deadline_is_never_too_late(self) -> None:
        next_ns = self.schedule.next_deadline_ns()
        if self.ready:
            assert next_ns == 0
        else:
            earliest_ns = min(self.deadlines.values(), default=NEVER_NS)
            assert next_ns <= earliest_ns

    @invariant()
    def it_counts_what_it_knows(self) -> None:
        assert len(self.schedule) == len(self.ready | self.deadlines.keys())


class CompiledScheduleMachine(ScheduleMachine):
    """The same with the compiled schedule."""

    twins = staticmethod(compiled_twins)


TestSchedule = pytest.mark.untraced(ScheduleMachine.TestCase)
TestCompiledSchedule = needs_compiled(pytest.mark.untraced(CompiledScheduleMachine.TestCase))


@pytest.fixture(params=TWINS)
def new_schedule(request: pytest.FixtureRequest) -> Callable[[], Schedule[Any]]:
    new: Callable[[], Schedule[Any]] = request.param().Schedule
    return new


def test_items_are_due_in_the_order_they_became_so(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[str] = new_schedule()
    schedule.at("late", 30)
    schedule.at("early", 10)
    schedule.ready("now")
    assert schedule.next_deadline_ns() == 0
    assert schedule.due(30) == ["now", "early", "late"]
    assert schedule.due(30) == []
    assert schedule.next_deadline_ns() == NEVER_NS


def test_a_deadline_that_moves_later_costs_no_entry_in_the_heap(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[str] = new_schedule()
    for deadline_ns in range(10, 1_000):
        schedule.at("item", deadline_ns)
    assert len(schedule._heap) == 1
    assert schedule.next_deadline_ns() == 10
    assert schedule.due(10) == []
    assert schedule.next_deadline_ns() == 999
    assert schedule.due(999) == ["item"]


def test_deadlines_that_come_in_order_need_no_heap(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[int] = new_schedule()
    interval_ns, step_ns = 100_000_000, 10_000
    schedule.expired(0, 1)
    for item in range(1_000):
        schedule.at(item, interval_ns + item * step_ns)
    for round_ns in range(interval_ns, 10 * interval_ns, interval_ns):
        for item in range(1_000):
            now_ns = round_ns + item * step_ns
            assert schedule.next_deadline_ns() == now_ns
            assert schedule.expired(now_ns, 10) == [item]
            schedule.settle(item, now_ns + interval_ns, now_ns)
    assert not schedule._heap


def test_one_far_deadline_does_not_keep_the_others_from_the_queue(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[str] = new_schedule()
    schedule.expired(0, 1)
    schedule.at("far", 10 * QUEUE_SPAN_NS)
    for item in ("a", "b"):
        schedule.at(item, 5)
    schedule.at("early", 3)
    assert [each[2] for each in schedule._queue] == ["a", "b"]
    assert schedule.expired(5, 10) == ["early", "a", "b"]
    assert schedule.expired(20 * QUEUE_SPAN_NS, 10) == ["far"]


def test_a_deadline_that_moves_earlier_is_kept(new_schedule: Callable[[], Schedule[Any]]) -> None:
    schedule: Schedule[str] = new_schedule()
    schedule.at("item", 100)
    schedule.at("item", 10)
    assert schedule.due(10) == ["item"]
    schedule.at("item", 200)
    assert schedule.due(100) == []
    assert schedule.due(200) == ["item"]


def test_an_item_that_was_removed_is_never_due(new_schedule: Callable[[], Schedule[Any]]) -> None:
    schedule: Schedule[str] = new_schedule()
    schedule.at("item", 10)
    schedule.ready("item")
    schedule.remove("item")
    schedule.remove("item")
    assert schedule.due(100) == []
    assert len(schedule) == 0


def test_an_item_that_came_back_keeps_its_new_deadline(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[str] = new_schedule()
    schedule.at("item", 10)
    schedule.remove("item")
    schedule.at("item", 50)
    assert schedule.due(10) == []
    assert schedule.due(50) == ["item"]


def test_what_is_beyond_the_limit_stays_ready_and_comes_first_next_time(
    new_schedule: Callable[[], Schedule[Any]],
) -> None:
    schedule: Schedule[str] = new_schedule()
    for item in "abc":
        schedule.ready(item)
    assert schedule.due(0, 2) == ["a", "b"]
    assert schedule.next_deadline_ns() == 0
    schedule.ready("a")
    schedule.at("b", 5)
    assert schedule.due(5, 2) == ["c", "a"]
    assert schedule.due(5, 0) == []
    assert schedule.due(5, 2) == ["b"]
    assert schedule.next_deadline_ns() == NEVER_NS


def test_items_need_no_order_of_their_own(new_schedule: Callable[[], Schedule[Any]]) -> None:
    schedule: Schedule[object] = new_schedule()
    one, other = object(), object()
    schedule.at(one, 10)
    schedule.at(other, 10)
    assert schedule.due(10) == [one, other]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["ready", "remove"]), ITEMS),
        st.tuples(st.just("at"), ITEMS, st.sampled_from([5, 10, 10, 50, NEVER_NS])),
        st.tuples(st.just("take"), st.sampled_from([None, 0, 1, 3])),
        st.tuples(st.just("due"), st.integers(0, 60), st.sampled_from([None, 0, 1, 3])),
        st.tuples(st.just("expired"), st.integers(0, 60), st.integers(-1, 4)),
    ),
    max_size=60,
)


@needs_compiled
@pytest.mark.untraced
@given(OPERATIONS, st.sampled_from([0, 1, 40]))
def test_both_schedules_give_the_same_in_the_same_order(
    operations: list[tuple[Any, ...]], delay_ns: int
) -> None:
    both = [twins().Schedule() for twins in (pure_twins, compiled_twins)]
    for name, *arguments in operations:
        pure, compiled = results = [getattr(each, name)(*arguments) for each in both]
        assert pure == compiled
        if name == "expired":
            for each, expired in zip(both, results, strict=True):
                for item in expired:
                    each.settle(item, arguments[0] + delay_ns, arguments[0])
        for fact in (list, len, lambda each: (each.has_ready, each.next_deadline_ns())):
            assert fact(both[0]) == fact(both[1])
        assert sorted(both[0]._heap) == sorted(both[1]._heap)
        assert both[0]._queue == both[1]._queue
