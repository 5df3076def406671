"""Which receivers are alive, and which session ids are free."""

from __future__ import annotations

from typing import NoReturn

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.receiver_liveness import MAX_RECEIVERS, ReceiverLiveness
from aeron_async.driver.core.stream_params import SessionIds
from tests.driver.fakes import MS, Counts

TIMEOUT_NS = 5_000


@pytest.fixture
def receivers() -> ReceiverLiveness:
    context = DriverContext(publication_connection_timeout_ns=TIMEOUT_NS)
    return ReceiverLiveness(context, Counts().system)


def test_a_receiver_lives_until_it_was_silent_for_longer_than_the_timeout(
    receivers: ReceiverLiveness,
) -> None:
    receivers.on_status_message(1, 100)
    receivers.on_status_message(2, 200)
    receivers.expire(100 + TIMEOUT_NS)
    assert len(receivers) == 2
    receivers.expire(101 + TIMEOUT_NS)
    assert len(receivers) == 1
    assert not receivers.on_goodbye(1)


def test_a_status_message_prolongs_a_life(receivers: ReceiverLiveness) -> None:
    receivers.on_status_message(1, 0)
    receivers.on_status_message(1, 4_000)
    receivers.expire(4_000 + TIMEOUT_NS)
    assert len(receivers) == 1


def test_only_those_at_the_front_of_the_line_are_looked_at_for_silence(
    receivers: ReceiverLiveness,
) -> None:
    class Line(dict[int, int]):
        looked_at = 0

        def __getitem__(self, receiver_id: int) -> int:
            self.looked_at += 1
            return super().__getitem__(receiver_id)

        def items(self) -> NoReturn:
            pytest.fail("all of them were looked at")

    line = receivers._last_heard_ns = Line()
    for receiver_id in range(1_000):
        receivers.on_status_message(receiver_id, receiver_id)
    receivers.expire(TIMEOUT_NS)
    assert line.looked_at == 1
    receivers.expire(3 + TIMEOUT_NS)
    assert (len(receivers), line.looked_at) == (997, 5)
    receivers.expire(1_000 + TIMEOUT_NS)
    assert len(receivers) == 0


def test_a_receiver_that_leaves_is_forgotten_once(receivers: ReceiverLiveness) -> None:
    receivers.on_status_message(-9, 0)
    assert receivers.on_goodbye(-9)
    assert not receivers.on_goodbye(-9)
    assert len(receivers) == 0


def test_the_longest_silent_receiver_makes_way_for_one_too_many(
    receivers: ReceiverLiveness,
) -> None:
    for receiver_id in range(MAX_RECEIVERS):
        receivers.on_status_message(receiver_id, 0)
    receivers.on_status_message(0, 1)
    receivers.on_status_message(-1, 1)
    assert len(receivers) == MAX_RECEIVERS
    assert receivers.on_goodbye(0)
    assert receivers.on_goodbye(-1)
    assert not receivers.on_goodbye(1)
    receivers.expire(1 + TIMEOUT_NS)
    assert len(receivers) == 0


def free(_: int) -> bool:
    return False


def test_session_ids_count_up_from_where_they_start() -> None:
    ids = SessionIds(5_000, reserved_low=-1, reserved_high=1_000)
    assert [ids.take(free) for _ in range(3)] == [5_000, 5_001, 5_002]


@pytest.mark.parametrize("first", [-1, 0, 500, 1_000])
def test_reserved_ids_are_never_given_out(first: int) -> None:
    assert SessionIds(first, reserved_low=-1, reserved_high=1_000).take(free) == 1_001


def test_the_count_jumps_over_the_reserved_range_from_below() -> None:
    ids = SessionIds(-3, reserved_low=-1, reserved_high=1_000)
    assert [ids.take(free) for _ in range(3)] == [-3, -2, 1_001]


def test_the_count_wraps_at_thirty_two_bits() -> None:
    ids = SessionIds(2**31 - 2, reserved_low=-1, reserved_high=1_000)
    assert [ids.take(free) for _ in range(3)] == [2**31 - 2, 2**31 - 1, -(2**31)]
    assert SessionIds(2**31, reserved_low=-1, reserved_high=1_000).take(free) == -(2**31)


def test_a_reserved_range_may_reach_the_last_id() -> None:
    ids = SessionIds(2**31 - 5, reserved_low=2**31 - 4, reserved_high=2**31 - 1)
    assert [ids.take(free) for _ in range(2)] == [2**31 - 5, -(2**31)]


def test_ids_in_use_are_passed_over() -> None:
    ids = SessionIds(5_000, reserved_low=-1, reserved_high=1_000)
    assert ids.take({5_000, 5_001, 5_003}.__contains__) == 5_002
    assert ids.take({5_000, 5_001, 5_003}.__contains__) == 5_004


def test_a_successor_starts_where_the_last_report_was_overdue() -> None:
    """What was sent between two servers was lost, though the publication was connected."""
    receivers = ReceiverLiveness(DriverContext(), Counts().system)
    term_length = 64 * 1024
    assert receivers.note_position(0, 0) == NEVER_NS
    assert receivers.start_position(0, term_length) == 0
    receivers.on_status_message(1, 0)
    receivers.on_status_message(2, 100 * MS)
    # A report comes every 200 ms; half as much again is overdue, and the latest report counts.
    assert receivers.note_position(64, 100 * MS) == 400 * MS
    assert receivers.start_position(64, term_length) == 64
    assert receivers.note_position(128, 400 * MS) == NEVER_NS
    receivers.note_position(256, 500 * MS)
    assert receivers.start_position(256, term_length) == 128
    # Half a term is kept for resends; beyond that nothing is.
    assert receivers.start_position(128 + term_length // 2, term_length) == 128
    assert receivers.start_position(160 + term_length // 2, term_length) == 160 + term_length // 2
    receivers.on_status_message(3, 600 * MS)
    receivers.note_position(512, 600 * MS)
    assert receivers.start_position(512, term_length) == 512
