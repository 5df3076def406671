"""Max flow control: the fastest receiver of a group sets the pace.

Source: Aeron `MaxMulticastFlowControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control.base import (
    DEFAULT_GROUP_MULTIPLE,
    FlowControl,
    format_receiver_id,
    max_retransmission_length,
)

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["MaxMulticastFlowControl"]


class MaxMulticastFlowControl(FlowControl):
    """The limit is the furthest edge any receiver gave: consumption plus window.

    Slow receivers are run over: they lose data, ask for it again, and lose the image in the end
    if they never catch up.

    Args:
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may bring.
    """

    def __init__(
        self, *, retransmit_receiver_window_multiple: int = DEFAULT_GROUP_MULTIPLE
    ) -> None:
        self._multiple = retransmit_receiver_window_multiple
        self._pace_setter: int | None = None

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        del now_ns
        edge = position + sm.receiver_window
        if edge > sender_limit:
            self._pace_setter = sm.receiver_id
        return max(sender_limit, edge)

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=self._multiple,
        )

    def slowest_receiver(self) -> str | None:
        """Return the id of the receiver that last moved the limit; the slower ones do not count."""
        return None if self._pace_setter is None else format_receiver_id(self._pace_setter)
