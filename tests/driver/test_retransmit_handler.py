"""Answering NAKs: at once or later, once, and not again for a while."""

from __future__ import annotations

from typing import Any

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.retransmit_handler import RESEND_BUDGET_LENGTH, RetransmitHandler
from tests.driver.fakes import MS, Counts

LINGER_NS = 10 * MS


class Rig:
    def __init__(self, **changes: Any) -> None:
        self.resent: list[tuple[int, int, int]] = []
        self.overflow = Counts().new()
        self.suppressed = Counts().new()
        fields: dict[str, Any] = {
            "delay_ns": 0,
            "linger_ns": LINGER_NS,
            "max_resend": 3,
            "has_group_semantics": False,
            "overflow": self.overflow,
            "suppressed": self.suppressed,
        }
        self.handler = RetransmitHandler(self.resend, **(fields | changes))

    def resend(self, term_id: int, term_offset: int, length: int) -> None:
        self.resent.append((term_id, term_offset, length))

    def nak(self, term_offset: int, length: int, now_ns: int, term_id: int = 1) -> bool:
        """Return whether the NAK was answered at once."""
        before = len(self.resent)
        self.handler.on_nak(term_id=term_id, term_offset=term_offset, length=length, now_ns=now_ns)
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


def test_unicast_gives_its_one_slot_to_another_range_at_once() -> None:
    rig = Rig()
    assert rig.nak(0, 32, 0)
    assert rig.nak(1_024, 32, 1)
    # The first range was forgotten with its slot.
    assert rig.nak(0, 32, 2)
    assert rig.overflow.get() == 0


def test_unicast_forgets_a_delayed_range_that_another_takes_over() -> None:
    rig = Rig(delay_ns=5)
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
    rig = Rig(has_group_semantics=True, max_resend=1)
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


def test_all_naks_of_one_linger_together_bring_no_more_than_the_budget() -> None:
    rig = Rig()
    share = RESEND_BUDGET_LENGTH // 2 - 32
    for number in range(64):
        rig.nak(0, share, number, term_id=number)
    assert [length for _, _, length in rig.resent] == [share, share, 64]
    assert rig.suppressed.get() == 62
    assert rig.nak(0, share, LINGER_NS)
    assert rig.suppressed.get() == 62
