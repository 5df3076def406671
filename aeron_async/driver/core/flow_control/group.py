"""Flow control by the members of a group: the slowest member sets the limit.

A receiver is a member from the status message with which it is accepted until it says goodbye,
rejects the stream, or has been silent for the receiver timeout; an idle cycle then removes it.
While a receiver joins, from the SETUP that was sent for it until its first status message, the
limit stays where it was at that SETUP.

Invariant: in `GroupFlowControl` a status message never moves the limit back, only an idle cycle
can. The members are kept in the order in which they were last heard.

Source: Aeron `AbstractMinMulticastFlowControl`, `aeron_min_flow_control.c`,
`MinMulticastFlowControl`, `TaggedMulticastFlowControl`, `PreferredMulticastFlowControl`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.flow_control.base import (
    DEFAULT_GROUP_MULTIPLE,
    FlowControl,
    format_receiver_id,
    max_retransmission_length,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.protocol.status_message import StatusMessage

__all__ = [
    "DEFAULT_GROUP_TAG",
    "DEFAULT_MAX_RECEIVERS",
    "DEFAULT_RECEIVER_TIMEOUT_NS",
    "GroupFlowControl",
    "MinMulticastFlowControl",
    "PreferredMulticastFlowControl",
    "TaggedMulticastFlowControl",
]

DEFAULT_RECEIVER_TIMEOUT_NS: Final = 5_000_000_000
DEFAULT_MAX_RECEIVERS: Final = 1_024
"""Most receivers one publication tracks; the ids come off the wire, so there must be a bound."""


@attrs.define(kw_only=True)
class GroupReceiver:
    """One member; its position in bytes."""

    position: int
    heard_ns: int
    is_leaving: bool = False


class GroupFlowControl(FlowControl):
    """The slowest member sets the limit; a subclass may choose the members, and the limit.

    Args:
        receiver_timeout_ns: How long a silent member still counts.
        group_min_size: Members needed for the publication to be connected and to send.
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may ask for.
        max_receivers: Most members; one more is refused, to keep those that are there.
    """

    def __init__(
        self,
        *,
        receiver_timeout_ns: int = DEFAULT_RECEIVER_TIMEOUT_NS,
        group_min_size: int = 0,
        retransmit_receiver_window_multiple: int = DEFAULT_GROUP_MULTIPLE,
        max_receivers: int = DEFAULT_MAX_RECEIVERS,
    ) -> None:
        self._timeout_ns = receiver_timeout_ns
        self._group_min_size = group_min_size
        self._multiple = retransmit_receiver_window_multiple
        self._max_receivers = max_receivers
        self._receivers: dict[int, GroupReceiver] = {}
        # Kept apart, so that computing the pace need not walk over a thousand objects. The pace is
        # kept until an edge changes: while a stream is idle, status messages change none.
        self._edges: dict[int, int] = {}
        self._pace: int | None = None
        self._leaving_count = 0
        self._refused_count = 0
        self._is_setup_triggered = False
        self._setup_limit: int | None = None
        self._setup_ns = 0

    # For subclasses to override.

    def matches(self, sm: StatusMessage) -> bool:
        """Return whether the sender of a status message is a member of the group."""
        del sm
        return True

    def pace(self, edges: Sequence[int]) -> int:
        """Return the limit that the edges of the members allow; there is at least one.

        It is called when an edge has changed, and must depend on nothing else.
        """
        return min(edges)

    # Events from the publication.

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`.

        A new receiver whose edge is more than its own window behind the group is not accepted, so
        it cannot hold the group back. While there are no members, every receiver's edge counts.
        """
        guard = self._guard(now_ns)
        edge = position + sm.receiver_window
        if self.matches(sm):
            receiver = self._receivers.pop(sm.receiver_id, None)
            if receiver is not None:
                self._receivers[sm.receiver_id] = receiver
                self._set_leaving(receiver, is_leaving=sm.is_end_of_stream)
                receiver.position = max(receiver.position, position)
                receiver.heard_ns = now_ns
                self._set_edge(sm.receiver_id, edge)
            elif not sm.is_end_of_stream and self._is_near(edge, sm.receiver_window, guard):
                self._add(sm.receiver_id, position=position, edge=edge, now_ns=now_ns)
        if not self.has_required_receivers():
            return sender_limit
        if not self._receivers:
            return max(sender_limit, edge)
        return max(sender_limit, self._limit(guard))

    def on_trigger_send_setup(self, sm: StatusMessage, *, now_ns: int) -> None:
        """Record that a receiver asks to join, if it would be a member.

        Differs: in Aeron a member that asks for the SETUP again pins the limit as well, and holds
        the group up until the receiver timeout. Such a member is only verifying its terms.
        """
        del now_ns
        receiver = self._receivers.get(sm.receiver_id)
        # A member that is leaving may be gone by the time the SETUP is sent.
        is_new = (receiver is None or receiver.is_leaving) and self.matches(sm)
        self._is_setup_triggered = self._is_setup_triggered or is_new

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Pin the limit for the receiver for which this SETUP is sent."""
        if self._is_setup_triggered and self._receivers:
            self._setup_limit = sender_limit
            self._setup_ns = now_ns
        self._is_setup_triggered = False

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Remove members that left or timed out, and return the limit of the others."""
        del sender_position
        guard = self._guard(now_ns)
        self._remove_gone(now_ns)
        if not self._receivers or not self.has_required_receivers():
            return sender_limit
        return self._limit(guard)

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Mark a member that rejected the stream as leaving, whatever its tag.

        Differs: the Java driver also requires the tag, and without it waits for the timeout. The
        id alone identifies the member, as in the C driver.
        """
        del group_tag, now_ns
        receiver = self._receivers.get(receiver_id)
        if receiver is not None:
            self._set_leaving(receiver, is_leaving=True)

    # For the publication.

    def deadline_ns(self) -> int:
        """Return when the longest silent member, or the wait for a joining one, times out."""
        if self._leaving_count:
            return 0
        deadline_ns = NEVER_NS
        for receiver in self._receivers.values():
            deadline_ns = receiver.heard_ns + self._timeout_ns + 1
            break
        if self._setup_limit is not None:
            deadline_ns = min(deadline_ns, self._setup_ns + self._timeout_ns + 1)
        return deadline_ns

    def has_required_receivers(self) -> bool:
        """Return whether the group has its minimum size."""
        return len(self._receivers) >= self._group_min_size

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=self._multiple,
        )

    def receiver_count(self) -> int | None:
        """Return how many members are tracked."""
        return len(self._receivers)

    def refused_count(self) -> int:
        """Return how often a member was refused because the group was full."""
        return self._refused_count

    def slowest_receiver(self) -> str | None:
        """Return the id of the member whose edge is the limit."""
        if not self._receivers:
            return None
        edge = self._current_pace()
        # Of several, the longest silent one.
        return next(
            (
                format_receiver_id(receiver_id)
                for receiver_id in self._receivers
                if self._edges[receiver_id] == edge
            ),
            None,
        )

    def _guard(self, now_ns: int) -> int | None:
        """Return the position at which a joining receiver pins the limit; None if there is none."""
        if self._setup_limit is not None and now_ns > self._setup_ns + self._timeout_ns:
            self._setup_limit = None
        return self._setup_limit

    def _limit(self, guard: int | None) -> int:
        limit = self._current_pace()
        return limit if guard is None else min(guard, limit)

    def _current_pace(self) -> int:
        if self._pace is None:
            self._pace = self.pace(list(self._edges.values()))
        return self._pace

    def _set_edge(self, receiver_id: int, edge: int) -> None:
        if self._edges.get(receiver_id) != edge:
            self._edges[receiver_id] = edge
            self._pace = None

    def _is_near(self, edge: int, window_length: int, guard: int | None) -> bool:
        return not self._receivers or edge >= self._limit(guard) - window_length

    def _add(self, receiver_id: int, *, position: int, edge: int, now_ns: int) -> None:
        if len(self._receivers) >= self._max_receivers:
            # Drop members that are gone; forged ids must not drive out live members.
            self._remove_gone(now_ns)
            if len(self._receivers) >= self._max_receivers:
                self._refused_count += 1
                return
        self._receivers[receiver_id] = GroupReceiver(position=position, heard_ns=now_ns)
        self._set_edge(receiver_id, edge)
        self._setup_limit = None

    def _remove_gone(self, now_ns: int) -> None:
        oldest = next(iter(self._receivers.values()), None)
        if oldest is None:
            return
        if not self._leaving_count and now_ns <= oldest.heard_ns + self._timeout_ns:
            return
        self._receivers = {
            receiver_id: receiver
            for receiver_id, receiver in self._receivers.items()
            if not receiver.is_leaving and now_ns <= receiver.heard_ns + self._timeout_ns
        }
        self._edges = {receiver_id: self._edges[receiver_id] for receiver_id in self._receivers}
        self._pace = None
        self._leaving_count = 0

    def _set_leaving(self, receiver: GroupReceiver, *, is_leaving: bool) -> None:
        self._leaving_count += is_leaving - receiver.is_leaving
        receiver.is_leaving = is_leaving


class MinMulticastFlowControl(GroupFlowControl):
    """Every receiver is a member of the group, and the slowest one sets the limit."""


DEFAULT_GROUP_TAG: Final = -1


class TaggedMulticastFlowControl(GroupFlowControl):
    """Members are receivers whose status messages carry the tag; other receivers may lose data.

    Args:
        group_tag: Signed, 64 bits.
        options: As for `GroupFlowControl`.
    """

    def __init__(self, *, group_tag: int = DEFAULT_GROUP_TAG, **options: Any) -> None:
        super().__init__(**options)
        self._group_tag = group_tag

    def matches(self, sm: StatusMessage) -> bool:
        """Return whether a status message carries the tag.

        Differs: feedback of another length is no tag. The Java driver compares the first four bytes
        with its old marker; the C driver records an error each time.
        """
        return sm.group_tag == self._group_tag


class PreferredMulticastFlowControl(TaggedMulticastFlowControl):
    """The old name of `TaggedMulticastFlowControl`. Deprecated: use that class.

    Source: Aeron `PreferredMulticastFlowControl`.
    """

    def __init__(self, **options: Any) -> None:
        warnings.warn(
            "PreferredMulticastFlowControl is deprecated: use TaggedMulticastFlowControl",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(**options)
