"""Between a publication's flow control and its sender: the limit, and the counters beside it.

Source: Aeron `NetworkPublication`, `FlowControlReceivers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.system_counters import DriverCounterId

if TYPE_CHECKING:
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.publication_counters import PublicationCounters
    from aeron_async.driver.core.stream_sender import StreamSender
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["SenderPace"]


class SenderPace:
    """Asks flow control for the limit, and shows how many receivers it tracks.

    Args:
        flow_control: Turns status messages into the sender limit.
        sender: Keeps the limit.
        counters: The publication's.
        system_counters: The driver's.
    """

    def __init__(
        self,
        flow_control: FlowControl,
        sender: StreamSender,
        counters: PublicationCounters,
        system_counters: SystemCounters,
    ) -> None:
        self._flow_control = flow_control
        self._sender = sender
        self._receivers = counters.flow_control_receivers
        self._refused = system_counters[DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED]
        self._shown_count = 0
        self._told_refused_count = 0

    def on_status_message(self, sm: StatusMessage, *, position: int, now_ns: int) -> None:
        """Take a status message whose consumption is at `position`."""
        limit = self._flow_control.on_status_message(
            sm, position=position, sender_limit=self._sender.limit, now_ns=now_ns
        )
        self._sender.set_limit(limit)
        self._show()

    def poll(self, now_ns: int, *, is_idle: bool) -> int:
        """Ask for the limit when that is due or nothing was sent, and return when to ask again.

        Differs: Aeron asks in cycles without data alone. It spins, and has a million of those in a
        second; we wake up to send, and who offers steadily would never let the dead time out.
        """
        sender = self._sender
        if is_idle or now_ns >= self._flow_control.deadline_ns():
            was_blocked = sender.limit <= sender.position
            limit = self._flow_control.on_idle(
                sender_limit=sender.limit, sender_position=sender.position, now_ns=now_ns
            )
            sender.set_limit(limit)
            self._show()
            if was_blocked and limit > sender.position:
                return now_ns
        return self._flow_control.deadline_ns()

    def _show(self) -> None:
        refused_count = self._flow_control.refused_count()
        if refused_count != self._told_refused_count:
            self._refused.increment(refused_count - self._told_refused_count)
            self._told_refused_count = refused_count
        count = self._flow_control.receiver_count() or 0
        if self._receivers is not None and count != self._shown_count:
            self._shown_count = count
            self._receivers.set(count)
