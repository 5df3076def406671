from __future__ import annotations

from aeron_async.driver.core.session_states import PendingSetups


def test_no_more_are_waited_for_than_there_may_be_until_the_oldest_expires() -> None:
    pending = PendingSetups(limit=2, timeout_ns=10)
    assert pending.try_add(1, 1, 0)
    assert pending.try_add(1, 2, 5)
    assert not pending.try_add(2, 1, 9)
    assert pending.try_add(2, 1, 10)
    assert not pending.try_add(1, 1, 14)
    assert len(pending) == 2


def test_one_that_has_come_makes_room() -> None:
    pending = PendingSetups(limit=1, timeout_ns=10)
    assert pending.try_add(1, 1, 0)
    pending.remove(1, 1)
    pending.remove(1, 1)
    assert pending.try_add(1, 2, 0)


def test_one_that_is_asked_again_expires_last() -> None:
    pending = PendingSetups(limit=3, timeout_ns=10)
    for session_id, now_ns in ((1, 0), (2, 5), (1, 7)):
        assert pending.try_add(1, session_id, now_ns)
    assert len(pending) == 2
    assert pending.try_add(1, 3, 15)
    assert len(pending) == 2, "the second has expired, the first has not"
