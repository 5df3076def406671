"""The sender of a log that other processes write: honest frames leave, forged ones never."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core import shared_logs
from aeron_async.driver.core.data_sender import StreamSender
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.shared_logs import (
    CheckedIpcPublication,
    CheckedNetworkPublication,
    CheckedStreamSender,
)
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ProtocolError
from aeron_async.logbuffer import scanner
from tests.driver.test_stream_sender import Rig
from tests.logbuffer.logs import TERM_LENGTH

TURNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from((32, 64, 704, 1_376, 1_408)), max_size=30),
        st.sampled_from((0, 100, 1_408, 5_000, TERM_LENGTH)),
        st.booleans(),
    ),
    max_size=12,
)


@given(TURNS)
def test_honest_frames_leave_as_without_checks(
    turns: list[tuple[list[int], int, bool]],
) -> None:
    rigs = Rig(), Rig(sender_type=CheckedStreamSender)
    for lengths, window, is_fast in turns:
        results = []
        for rig in rigs:
            rig.offer(*lengths)
            rig.sender.set_limit(rig.sender.position + window)
            send = rig.sender.send_data_fast if is_fast else rig.sender.send_data
            result = send(7)
            results.append((result, rig.outbox.take(), rig.sender.position, rig.blocked_count))
        assert results[0] == results[1]


@given(st.lists(st.sampled_from((32, 64, 704, 1_376, 1_408)), max_size=120), st.integers(1, 64))
def test_what_is_checked_in_parts_leaves_in_order(lengths: list[int], slots: int) -> None:
    whole, parted = Rig(burst_limit=100), Rig(burst_limit=100, sender_type=CheckedStreamSender)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_logs, "CHECKED_LENGTH_MAX", slots * 1_408)
        for rig in (whole, parted):
            rig.offer(*lengths)
            rig.sender.set_limit(TERM_LENGTH * 2)
            deadline_ns = 7
            while deadline_ns == 7:
                deadline_ns = rig.sender.send_data(7)
            assert rig.sender.limit == TERM_LENGTH * 2
        assert whole.sender.position == parted.sender.position
        assert b"".join(whole.outbox.take()) == b"".join(parted.outbox.take())
        assert whole.blocked_count == parted.blocked_count == 0


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize(("word", "value"), [(0, 31), (2, 32), (3, 0), (4, 0), (5, 0)])
def test_nothing_of_a_burst_with_a_forged_frame_leaves(
    word: int,
    value: int,
    is_fast: bool,  # noqa: FBT001 - one meaning
) -> None:
    rig = Rig(sender_type=CheckedStreamSender)
    rig.offer(64, 64)
    rig.log.term_words[0][16 + word] = value
    rig.sender.set_limit(TERM_LENGTH)
    with pytest.raises(ProtocolError):
        (rig.sender.send_data_fast if is_fast else rig.sender.send_data)(7)
    assert rig.outbox.take() == []
    assert rig.sender.position == 0


@pytest.mark.parametrize("is_fast", [False, True])
def test_a_frame_that_is_committed_just_after_the_look_is_sent_with_the_next_burst(
    monkeypatch: pytest.MonkeyPatch,
    is_fast: bool,  # noqa: FBT001 - one meaning
) -> None:
    rig = Rig(sender_type=CheckedStreamSender)
    rig.offer(64, 64)
    words = rig.log.term_words[0]
    words[16] = 0
    look: Any = scanner.skip_own

    def commit_after(*place: Any, **stream: int) -> Any:
        found = look(*place, **stream)
        words[16] = 64
        return found

    monkeypatch.setattr(shared_logs, "skip_own", commit_after)
    rig.sender.set_limit(TERM_LENGTH)
    send = rig.sender.send_data_fast if is_fast else rig.sender.send_data
    send(7)
    send(7)
    assert b"".join(rig.outbox.take()) == bytes(rig.log.terms[0][:128])


def test_a_frame_that_was_changed_since_is_not_resent() -> None:
    rig = Rig(sender_type=CheckedStreamSender)
    rig.offer(64, 704, 64)
    rig.send(TERM_LENGTH)
    assert rig.sender.resend(64, 704) == 704
    rig.sender.send_resends(lambda _: 0)
    (resent,) = rig.outbox.take()
    assert len(resent) == 704
    rig.log.term_words[0][16 + 3] ^= 1
    assert rig.sender.resend(64, 704) == 0
    rig.sender.send_resends(lambda _: 0)
    assert rig.outbox.take() == []
    assert rig.counts[DriverCounterId.NAKS_REJECTED] == 1
    assert rig.counts[SystemCounterId.RETRANSMITS_SENT] == 1


def test_no_part_of_a_stream_has_a_table_of_its_own_for_its_attributes() -> None:
    """See `SubscribablePublication`: such a table is 2 kB of each stream."""
    for kind in (
        NetworkPublication,
        IpcPublication,
        CheckedNetworkPublication,
        CheckedIpcPublication,
        StreamSender,
        CheckedStreamSender,
    ):
        assert not kind.__dictoffset__, kind
