"""Answering NAKs: at once or later, once, and not again for a while."""

from __future__ import annotations

from typing import Any

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import RetransmitBudget
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.core.round_trip import RoundTrip
from tests.driver.fakes import MS, Counts
from tests.logbuffer.logs import TERM_LENGTH

LINGER_NS = 10 * MS
KIB = 1024


class Rig:
    def __init__(self, context: DriverContext | None = None, **changes: Any) -> None:
        self.resent: list[tuple[int, int, int]] = []
        self.resendable_length = 2**31
        self.overflow = Counts().new()
        self.suppressed = Counts().new()
        fields: dict[str, Any] = {
            "delay_ns": 0,
            "linger_ns": LINGER_NS,
            "max_ranges": 3,
            "has_group_semantics": False,
            "overflow": self.overflow,
            "suppressed": self.suppressed,
        }
        self.budget = RetransmitBudget(context or DriverContext(), mtu_length=1_408, position=0)
        self.handler = RetransmitHandler(self.resend, self.budget, **(fields | changes))

    def resend(self, position: int, length: int) -> int:
        self.resent.append((*divmod(position, TERM_LENGTH), length))
        return min(length, self.resendable_length)

    def nak(self, term_offset: int, length: int, now_ns: int, term_id: int = 1) -> bool:
        """Return whether the NAK was answered at once."""
        before = len(self.resent)
        self.handler.on_nak(
            position=term_id * TERM_LENGTH + term_offset,
            length=length,
            sender_position=0,
            now_ns=now_ns,
        )
        return len(self.resent) > before


def test_a_nak_is_answered_at_once_and_repeats_are_not_for_ten_milliseconds() -> None:
    rig = Rig()
    assert rig.nak(64, 128, 0)
    assert rig.resent == [(1, 64, 128)]
    assert not rig.nak(64, 128, 4 * MS)
    assert not rig.nak(64, 128, LINGER_NS - 1)
    assert rig.nak(64, 128, LINGER_NS)


def test_a_repeat_that_is_ignored_does_not_prolong_the_silence() -> None:
    rig = Rig()
    rig.nak(64, 128, 0)
    rig.nak(64, 128, 9 * MS)
    assert rig.nak(64, 128, 10 * MS)


def test_only_the_start_of_a_nak_decides_whether_it_is_being_answered() -> None:
    for offset, is_answered in ((32, True), (64, False), (96, False), (160, False), (192, True)):
        rig = Rig()
        rig.nak(64, 128, 0)
        assert rig.nak(offset, 512, 1) is is_answered, offset


def test_the_same_offset_of_another_term_is_another_range() -> None:
    rig = Rig()
    rig.nak(64, 128, 0)
    assert rig.nak(64, 128, 1, term_id=2)


def test_unicast_answers_every_other_range_at_once_and_forgets_only_the_oldest() -> None:
    rig = Rig()
    assert [rig.nak(offset, 32, 0) for offset in (0, 32, 64, 96)] == [True] * 4
    assert [rig.nak(offset, 32, 1) for offset in (96, 64, 32)] == [False] * 3
    assert rig.nak(0, 32, 2), "its place was taken"
    assert rig.nak(32, 32, 3), "now its place was taken"
    assert rig.overflow.get() == 0


def test_a_storm_of_naks_for_many_ranges_brings_each_once_in_a_linger() -> None:
    rig = Rig(max_ranges=16)
    for number in range(1_000):
        rig.nak(32 * (number % 16), 32, number)
    assert len(rig.resent) == 16


def test_unicast_forgets_the_oldest_delayed_range_for_a_new_one() -> None:
    rig = Rig(delay_ns=5, max_ranges=1)
    rig.nak(0, 32, 0)
    rig.nak(1_024, 64, 1)
    assert rig.handler.poll(6) == NEVER_NS
    assert rig.resent == [(1, 1_024, 64)]


def test_a_group_has_several_slots_and_counts_what_finds_none() -> None:
    rig = Rig(has_group_semantics=True)
    assert [rig.nak(offset, 32, 0) for offset in (0, 32, 64, 96)] == [True, True, True, False]
    assert rig.overflow.get() == 1
    assert not rig.nak(0, 32, 1)
    assert rig.overflow.get() == 1, "a range that is being answered is no overflow"
    assert rig.nak(96, 32, LINGER_NS)


def test_a_group_of_one_slot_still_drops_what_unicast_would_take_over() -> None:
    rig = Rig(has_group_semantics=True, max_ranges=1)
    assert rig.nak(0, 32, 0)
    assert not rig.nak(1_024, 32, 1)
    assert rig.overflow.get() == 1


def test_a_delay_holds_the_answer_back_and_then_lingers() -> None:
    rig = Rig(delay_ns=7 * MS, has_group_semantics=True)
    assert not rig.nak(0, 32, 0)
    assert not rig.nak(32, 32, 1 * MS)
    assert not rig.nak(0, 32, 2 * MS)
    assert rig.handler.poll(3 * MS) == 7 * MS
    assert rig.handler.poll(7 * MS) == 8 * MS
    assert rig.resent == [(1, 0, 32)]
    assert rig.handler.poll(8 * MS) == NEVER_NS
    assert rig.resent == [(1, 0, 32), (1, 32, 32)]
    rig.nak(0, 32, 16 * MS)
    assert rig.handler.poll(16 * MS) == NEVER_NS
    rig.nak(0, 32, 17 * MS)
    assert rig.handler.poll(17 * MS) == 24 * MS


def test_a_nak_for_nothing_is_ignored() -> None:
    rig = Rig()
    assert not rig.nak(0, 0, 0)
    assert not rig.nak(0, -32, 0)
    assert rig.nak(0, 32, 0)


def test_a_nak_that_comes_when_its_delayed_answer_is_due_gets_one_answer() -> None:
    rig = Rig(delay_ns=5)
    rig.nak(0, 32, 0)
    assert rig.nak(0, 32, 5)
    assert rig.resent == [(1, 0, 32)]
    assert rig.handler.poll(6) == NEVER_NS


def test_a_range_of_which_nothing_could_be_sent_is_neither_held_nor_paid_for() -> None:
    rig = Rig(DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0))
    rig.resendable_length = 0
    for now_ns in range(10):
        rig.nak(0, 64 * KIB, now_ns)
    assert rig.resent == [(1, 0, 64 * KIB)] * 10
    assert rig.suppressed.get() == 0


def test_only_what_was_really_sent_is_held_and_paid_for() -> None:
    rig = Rig(DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0))
    rig.resendable_length = 1_024
    rig.nak(0, 8_192, 0)
    assert not rig.nak(992, 32, 1)
    assert rig.nak(1_024, 64 * KIB, 2)
    assert rig.resent[-1] == (1, 1_024, 63 * KIB)


def test_padding_that_passes_the_end_is_paid_for_as_it_was_granted() -> None:
    rig = Rig(DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0))
    rig.handler._resend = lambda *_: 2**20
    rig.nak(0, 32, 0)
    assert rig.budget.take(2**20, sender_position=0, now_ns=0) == 64 * KIB - 32


def test_what_the_budget_does_not_grant_is_counted() -> None:
    rig = Rig(DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0))
    for number in range(8):
        rig.nak(0, 40 * KIB, number, term_id=number)
    assert [length for _, _, length in rig.resent] == [40 * KIB, 24 * KIB]
    assert rig.suppressed.get() == 7


def test_a_delayed_answer_that_is_displaced_is_not_paid_for() -> None:
    rig = Rig(
        DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0),
        delay_ns=5,
        max_ranges=1,
    )
    rig.nak(0, 32 * KIB, 0)
    rig.nak(32 * KIB, 32 * KIB, 0, term_id=2)
    rig.nak(0, 32 * KIB, 0, term_id=3)
    rig.handler.poll(10)
    assert rig.resent == [(3, 0, 32 * KIB)]


def test_a_delayed_answer_is_paid_for_when_it_is_promised() -> None:
    rig = Rig(
        DriverContext(max_retransmit_burst_length=64 * KIB, max_retransmit_base_count=0),
        delay_ns=5,
    )
    rig.nak(0, 64 * KIB, 0)
    rig.nak(0, 32, 1, term_id=2)
    rig.handler.poll(10)
    assert rig.resent == [(1, 0, 64 * KIB)]
    assert rig.suppressed.get() == 1


def test_on_unicast_a_linger_is_no_longer_than_a_resend_takes() -> None:
    round_trip = RoundTrip()
    rig = Rig(round_trip=round_trip)
    assert rig.nak(0, 64, 0)
    assert not rig.nak(0, 64, LINGER_NS - 1), "nothing is known yet"
    measure(round_trip, MS)
    assert rig.nak(0, 64, 100 * MS)
    assert not rig.nak(0, 64, 101 * MS - 1)
    assert rig.nak(0, 64, 102 * MS)


def test_a_group_lingers_for_the_configured_time_whatever_one_receiver_takes() -> None:
    round_trip = RoundTrip()
    measure(round_trip, MS)
    rig = Rig(round_trip=round_trip, has_group_semantics=True)
    assert rig.nak(0, 64, 100 * MS)
    assert not rig.nak(0, 64, 100 * MS + LINGER_NS - 1)
    assert rig.nak(0, 64, 100 * MS + LINGER_NS)


def test_a_short_linger_ends_behind_a_long_one() -> None:
    round_trip = RoundTrip()
    rig = Rig(round_trip=round_trip)
    assert rig.nak(0, 64, 0)
    measure(round_trip, MS)
    assert rig.nak(64, 64, MS)
    assert rig.nak(64, 64, 3 * MS)
    assert not rig.nak(0, 64, 3 * MS)


def test_a_range_whose_linger_is_over_makes_room_before_one_whose_linger_lasts() -> None:
    round_trip = RoundTrip()
    rig = Rig(round_trip=round_trip, max_ranges=16)
    assert rig.nak(0, 64, 0)
    measure(round_trip, MS)
    for index in range(1, 16):
        assert rig.nak(64 * index, 64, MS)
    assert rig.nak(64 * 16, 64, 8 * MS)
    assert not rig.nak(0, 64, 9 * MS)


def test_no_linger_is_longer_than_configured() -> None:
    round_trip = RoundTrip()
    measure(round_trip, 8 * MS)
    round_trip.on_sent(2_000_000, 1_000 * MS)
    round_trip.on_nak(2_000_001, 3_000_000, 1_100 * MS)
    rig = Rig(round_trip=round_trip)
    assert rig.nak(0, 64, 2_000 * MS)
    assert rig.nak(0, 64, 2_000 * MS + LINGER_NS)


def measure(round_trip: RoundTrip, took_ns: int) -> None:
    """Let NAKs come this long after what they answer was sent."""
    round_trip.on_nak(1, 1, 0)
    for index in range(1, 100):
        round_trip.on_sent(1_000 * index, index * MS)
        round_trip.on_nak(1_000 * index + 1, 1_000 * index + 1, index * MS + took_ns)
