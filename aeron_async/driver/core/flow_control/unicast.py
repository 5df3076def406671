"""Unicast flow control: the one receiver sets the pace.

Source: Aeron `UnicastFlowControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control.base import max_retransmission_length

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["UnicastFlowControl"]


class UnicastFlowControl:
    """The limit is the furthest edge any status message gave: consumption plus window.

    It never goes back; what a receiver can no longer hold, its over-run rule refuses.

    Args:
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may bring.
    """

    def __init__(self, *, retransmit_receiver_window_multiple: int) -> None:
        self._multiple = retransmit_receiver_window_multiple
        self._receiver_id: int | None = None

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        del now_ns
        self._receiver_id = sm.receiver_id
        return max(sender_limit, position + sm.receiver_window)

    def on_trigger_send_setup(self, sm: StatusMessage, *, now_ns: int) -> None:
        """Do nothing: a lone receiver that joins needs no guard."""

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Do nothing: a lone receiver that joins needs no guard."""

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Return the limit unchanged."""
        del sender_position, now_ns
        return sender_limit

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Do nothing: the publication forgets the receiver by itself."""

    def has_required_receivers(self) -> bool:
        """Return True: one receiver is enough, and the publication counts it."""
        return True

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
        return (
            None
            if self._receiver_id is None
            else f"{self._receiver_id & 0xFFFF_FFFF_FFFF_FFFF:#018x}"
        )
