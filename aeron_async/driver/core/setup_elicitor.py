"""Asks a control address for SETUPs, unbidden: how a receiver finds a publication to many.

A subscription with an explicit control address says once a second that it is there, and does so
with a status message that names no stream. That makes it a destination, and keeps it one.

Source: Aeron `ReceiveChannelEndpoint.sendSetupElicitingStatusMessage`,
`aeron_driver_receiver_add_pending_setup`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.context import PENDING_SETUP_TIMEOUT_NS
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.status_message import StatusMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import ReceiveDestination

__all__ = ["SetupElicitor", "eliciting_status_message"]

ANY_SESSION_ID = 0
ANY_STREAM_ID = 0


def eliciting_status_message(
    *, session_id: int, stream_id: int, receiver_id: int, group_tag: int | None
) -> bytes:
    """Return the status message that asks for the SETUP of a stream; 0 and 0 ask for all."""
    return StatusMessage(
        flags=StatusMessageFlags.SEND_SETUP,
        session_id=session_id,
        stream_id=stream_id,
        consumption_term_id=0,
        consumption_term_offset=0,
        receiver_window=0,
        receiver_id=receiver_id,
        group_tag=group_tag,
    ).encode()


class SetupElicitor:
    """Asks by way of one destination.

    Args:
        destination: Where the control address is.
        receiver_id: Names this end to senders.
        group_tag: Carried by every status message, or None.
        is_wanted: Says whether any stream is subscribed to.
        short_sends: Counts what could not leave.
    """

    def __init__(
        self,
        destination: ReceiveDestination,
        *,
        receiver_id: int,
        group_tag: int | None,
        is_wanted: Callable[[], bool],
        short_sends: Counter,
    ) -> None:
        self._destination = destination
        self._receiver_id = receiver_id
        self._group_tag = group_tag
        self._is_wanted = is_wanted
        self._short_sends = short_sends
        self._deadline_ns = 0

    def poll(self, now_ns: int) -> int:
        """Ask for all streams when that is due, and return when it is due again."""
        if not self._is_wanted():
            return NEVER_NS
        if now_ns >= self._deadline_ns:
            self._deadline_ns = now_ns + PENDING_SETUP_TIMEOUT_NS
            self.elicit(stream_id=ANY_STREAM_ID, session_id=ANY_SESSION_ID)
        return self._deadline_ns

    def elicit(self, *, stream_id: int, session_id: int) -> None:
        """Ask for one stream, now."""
        address = self._destination.control_address
        frame = eliciting_status_message(
            session_id=session_id,
            stream_id=stream_id,
            receiver_id=self._receiver_id,
            group_tag=self._group_tag,
        )
        if address is not None and not self._destination.send_to(frame, address):
            self._short_sends.increment()
