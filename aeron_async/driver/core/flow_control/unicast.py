"""Unicast flow control: the one receiver sets the pace.

Source: Aeron `UnicastFlowControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control.base import (
    FlowControl,
    format_receiver_id,
    max_retransmission_length,
)

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["UnicastFlowControl"]


class UnicastFlowControl(FlowControl):
    """The limit is the furthest edge any status message gave: consumption plus window.

    It never goes back; what a receiver can no longer hold, its over-run rule refuses. A lone
    receiver needs neither a guard when it joins nor a timeout: the publication counts it.

    Args:
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may bring.

    Attributes:
        receiver_id: Of the receiver heard last, if one was.
    """

    def __init__(self, *, retransmit_receiver_window_multiple: int) -> None:
        self._multiple = retransmit_receiver_window_multiple
        self.receiver_id: int | None = None

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        del now_ns
        self.receiver_id = sm.receiver_id
        return max(sender_limit, position + sm.receiver_window)

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=self._multiple,
        )

    def slowest_receiver(self) -> str | None:
        """Return the id of the receiver heard last."""
        return None if self.receiver_id is None else format_receiver_id(self.receiver_id)
