"""Min and tagged flow control against a plain model of the reference, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aeron_async.driver.core.flow_control import (
    GroupFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.status_message import StatusMessage

TIMEOUT_NS = 100
TAG = 5
NO_GUARD = 2**63 - 1

IDS = st.integers(1, 4)
TAGS = st.sampled_from([None, TAG, TAG + 1])


class Model:
    """The algorithm as it is written down: a list of receivers, walked through every time."""

    def __init__(self, *, is_tagged: bool, min_size: int) -> None:
        self.is_tagged = is_tagged
        self.min_size = min_size
        self.receivers: list[dict[str, Any]] = []
        self.setup_limit = -1
        self.setup_ns = 0
        self.is_triggered = False

    def matches(self, tag: int | None) -> bool:
        return not self.is_tagged or tag == TAG

    def guard(self, now_ns: int) -> int:
        if self.setup_limit != -1 and self.setup_ns + TIMEOUT_NS - now_ns < 0:
            self.setup_limit = -1
        return NO_GUARD if self.setup_limit == -1 else self.setup_limit

    def on_status_message(
        self,
        receiver_id: int,
        position: int,
        window: int,
        tag: int | None,
        limit: int,
        now_ns: int,
        *,
        is_goodbye: bool,
    ) -> int:
        lowest = self.guard(now_ns)
        is_known = False
        for each in self.receivers:
            if self.matches(tag) and each["id"] == receiver_id:
                each.update(edge=position + window, heard_ns=now_ns, is_leaving=is_goodbye)
                is_known = True
            lowest = min(lowest, each["edge"])
        is_near = not self.receivers or position + window >= lowest - window
        if not is_known and not is_goodbye and self.matches(tag) and is_near:
            self.receivers.append(
                {
                    "id": receiver_id,
                    "edge": position + window,
                    "heard_ns": now_ns,
                    "is_leaving": False,
                }
            )
            lowest = min(lowest, position + window)
            self.setup_limit = -1
        if len(self.receivers) < self.min_size:
            return limit
        if not self.receivers:
            return max(limit, position + window)
        return max(limit, lowest)

    def on_idle(self, limit: int, now_ns: int) -> int:
        lowest = self.guard(now_ns)
        kept = []
        for each in self.receivers:
            if each["is_leaving"] or each["heard_ns"] + TIMEOUT_NS - now_ns < 0:
                continue
            kept.append(each)
            lowest = min(lowest, each["edge"])
        self.receivers = kept
        return limit if not kept or len(kept) < self.min_size else lowest


class GroupMachine(RuleBasedStateMachine):
    """Feeds a strategy and the model the same; the limits must agree, and nobody be run over."""

    @initialize(is_tagged=st.booleans(), min_size=st.integers(0, 3))
    def begin(self, is_tagged: bool, min_size: int) -> None:  # noqa: FBT001  hypothesis gives it
        self.model = Model(is_tagged=is_tagged, min_size=min_size)
        options = {"receiver_timeout_ns": TIMEOUT_NS, "group_min_size": min_size}
        self.flow_control: GroupFlowControl = (
            TaggedMulticastFlowControl(group_tag=TAG, **options)
            if is_tagged
            else MinMulticastFlowControl(**options)
        )
        self.now_ns = 0
        self.limit = 0

    @rule(
        receiver_id=IDS,
        position=st.integers(0, 40),
        window=st.integers(0, 20),
        tag=TAGS,
        is_goodbye=st.booleans(),
    )
    def hear(
        self,
        receiver_id: int,
        position: int,
        window: int,
        tag: int | None,
        is_goodbye: bool,  # noqa: FBT001  hypothesis gives it
    ) -> None:
        sm = StatusMessage(
            session_id=1,
            stream_id=1,
            receiver_id=receiver_id,
            receiver_window=window,
            group_tag=tag,
            flags=StatusMessageFlags.END_OF_STREAM if is_goodbye else StatusMessageFlags(0),
        )
        limit = self.flow_control.on_status_message(
            sm, position=position, sender_limit=self.limit, now_ns=self.now_ns
        )
        assert limit == self.model.on_status_message(
            receiver_id, position, window, tag, self.limit, self.now_ns, is_goodbye=is_goodbye
        )
        assert limit >= self.limit, "only an idle cycle may move it back"
        self.check_nobody_is_run_over(limit)
        self.limit = limit

    @rule()
    def rest(self) -> None:
        limit = self.flow_control.on_idle(
            sender_limit=self.limit, sender_position=0, now_ns=self.now_ns
        )
        assert limit == self.model.on_idle(self.limit, self.now_ns)
        self.check_nobody_is_run_over(limit)
        self.limit = limit
        assert self.flow_control.deadline_ns() > self.now_ns, "an idle cycle does all that is due"

    @rule(receiver_id=IDS, tag=TAGS)
    def ask_for_setup(self, receiver_id: int, tag: int | None) -> None:
        flags = StatusMessageFlags.SEND_SETUP
        sm = StatusMessage(
            session_id=1, stream_id=1, receiver_id=receiver_id, group_tag=tag, flags=flags
        )
        self.flow_control.on_trigger_send_setup(sm, now_ns=self.now_ns)
        is_member = any(each["id"] == receiver_id for each in self.model.receivers)
        self.model.is_triggered |= not is_member and self.model.matches(tag)

    @rule()
    def send_setup(self) -> None:
        self.flow_control.on_setup(sender_limit=self.limit, now_ns=self.now_ns)
        if self.model.is_triggered and self.model.receivers:
            self.model.setup_limit = self.limit
            self.model.setup_ns = self.now_ns
        self.model.is_triggered = False

    @rule(receiver_id=IDS, tag=TAGS)
    def reject(self, receiver_id: int, tag: int | None) -> None:
        self.flow_control.on_error(receiver_id=receiver_id, group_tag=tag, now_ns=self.now_ns)
        for each in self.model.receivers:
            each["is_leaving"] |= each["id"] == receiver_id

    @rule(elapsed_ns=st.sampled_from([1, 30, 99, 100, 101]))
    def wait(self, elapsed_ns: int) -> None:
        self.now_ns += elapsed_ns

    @invariant()
    def the_same_receivers_are_tracked(self) -> None:
        assert self.flow_control.receiver_count() == len(self.model.receivers)
        assert self.flow_control.has_required_receivers() == (
            len(self.model.receivers) >= self.model.min_size
        )

    @invariant()
    def it_wakes_no_later_than_something_is_due(self) -> None:
        due_ns = [
            0 if each["is_leaving"] else each["heard_ns"] + TIMEOUT_NS + 1
            for each in self.model.receivers
        ]
        if due_ns:
            assert self.flow_control.deadline_ns() <= min(due_ns)

    def check_nobody_is_run_over(self, limit: int) -> None:
        if limit > self.limit:
            assert all(limit <= each["edge"] for each in self.model.receivers)


TestGroup = pytest.mark.untraced(GroupMachine.TestCase)
