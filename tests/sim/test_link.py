"""One direction between two hosts: delay, queue, order, and who decides what is lost."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.testing.fates import Conditions, Fate, Link, ScriptedFates
from aeron_async.testing.trace import Verdict

DATAGRAM = bytes(1_000)


def make_link(conditions: Conditions | None = None) -> Link:
    return Link(Random(1), Conditions(delay_ns=100) if conditions is None else conditions)


def test_what_is_sent_arrives_after_the_delay() -> None:
    assert make_link().carry(b"a", 5) == (Verdict.SENT, [(105, b"a")])


def test_a_link_that_is_down_carries_nothing() -> None:
    link = make_link()
    link.is_up = False
    assert link.carry(b"a", 0) == (Verdict.PARTITIONED, [])
    link.is_up = True
    assert link.carry(b"a", 0)[0] is Verdict.SENT


def test_what_is_longer_than_the_mtu_vanishes() -> None:
    link = make_link(Conditions(mtu_length=1_000))
    assert link.carry(DATAGRAM, 0)[0] is Verdict.SENT
    assert link.carry(DATAGRAM + b"x", 0) == (Verdict.TOO_LONG, [])


def test_bandwidth_spaces_datagrams() -> None:
    link = make_link(Conditions(delay_ns=0, bandwidth=8_000_000))
    arrivals = [link.carry(DATAGRAM, 0)[1][0][0] for _ in range(3)]
    assert arrivals == [NS_PER_MS, 2 * NS_PER_MS, 3 * NS_PER_MS]
    assert link.carry(DATAGRAM, 10 * NS_PER_MS)[1][0][0] == 11 * NS_PER_MS


def test_a_full_queue_drops_until_something_has_left() -> None:
    link = make_link(Conditions(delay_ns=0, bandwidth=8_000_000, queue_limit=2))
    verdicts = [link.carry(DATAGRAM, now_ns)[0] for now_ns in (0, 0, 0, NS_PER_MS, NS_PER_MS)]
    sent, full = Verdict.SENT, Verdict.QUEUE_FULL
    assert verdicts == [sent, sent, full, sent, full]


def test_a_fault_may_pick_its_victims() -> None:
    link = make_link()
    link.is_lost = b"b".__eq__
    assert [link.carry(each, 0)[0] for each in (b"a", b"b")] == [Verdict.SENT, Verdict.LOST]


def test_a_script_takes_the_place_of_the_dice() -> None:
    link = make_link()
    script = ScriptedFates([Fate.DROP, Fate.DUPLICATE], delay_ns=50)
    link.set_conditions(Conditions(delay_ns=10, loss=1.0), script)
    assert link.carry(b"a", 0) == (Verdict.LOST, [])
    assert link.carry(b"b", 0) == (Verdict.SENT, [(10, b"b"), (60, b"b")])
    assert link.conditions.loss == 1.0


@given(
    gaps_ns=st.lists(st.integers(0, NS_PER_MS), max_size=50),
    jitter_ns=st.integers(1, NS_PER_SECOND),
    changed_delay_ns=st.integers(0, NS_PER_SECOND),
)
def test_jitter_and_better_conditions_reorder_nothing(
    gaps_ns: list[int], jitter_ns: int, changed_delay_ns: int
) -> None:
    link = make_link(Conditions(delay_ns=NS_PER_MS, jitter_ns=jitter_ns))
    now_ns, arrivals = 0, []
    for number, gap_ns in enumerate(gaps_ns):
        now_ns += gap_ns
        if number == 25:
            link.set_conditions(Conditions(delay_ns=changed_delay_ns))
        ((arrival_ns, _),) = link.carry(b"a", now_ns)[1]
        arrivals.append(arrival_ns)
    assert arrivals == sorted(arrivals)
