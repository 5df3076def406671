"""Who is there to take what a publication sends, and how far that lets its publishers go.

Invariant: the publisher limit follows the slowest of the sender and the spies, and falls back to
what was sent when nobody is connected.

Source: Aeron `NetworkPublication.updatePublisherPositionAndLimit`, `hasSubscribers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.publisher_window import PublisherWindow
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.publication_params import PublicationParams
    from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
    from aeron_async.driver.core.subscriber_positions import SubscriberPositions
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.logs import LogBudget

__all__ = ["PublicationConnection"]

TRIGGER_SHIFT: Final = 3
"""Spies that have read an eighth of the window let the limit rise."""

log = get_logger(__name__)


class PublicationConnection:
    """The connection of one network publication.

    Args:
        log_buffers: The terms it is written to.
        channel: The channel as its first client wrote it; for the log.
        params: Its window, and whether spies alone connect it.
        limit: Shows the publisher limit.
        receivers: Those on the network.
        spies: Those in this driver.
        flow_control: Says whether the receivers it requires are there.
        position: Where the stream starts, in bytes.
        log_budget: For its log lines, which peers can cause; None is without limit.

    Attributes:
        is_connected: Whether offers are taken.
    """

    def __init__(
        self,
        log_buffers: LogBuffers,
        *,
        channel: str,
        params: PublicationParams,
        limit: Counter,
        receivers: ReceiverLiveness,
        spies: SubscriberPositions,
        flow_control: FlowControl,
        position: int,
        log_budget: LogBudget | None = None,
    ) -> None:
        self.is_connected = False
        self._log = log_buffers
        self._peer_log = within(log_budget, log)
        self._channel = channel
        self._receivers = receivers
        self._spies = spies
        self._flow_control = flow_control
        self._do_spies_connect = params.spies_simulate_connection
        self._window_length = params.publication_window_length
        self._window = PublisherWindow(
            log_buffers, limit, window_length=self._window_length, position=position
        )
        self._told_position = position

    @property
    def publisher_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes."""
        return self._window.limit

    @property
    def is_simulated(self) -> bool:
        """Return whether spies stand in for receivers that are not there."""
        return self._do_spies_connect and self._spies.has_working and not len(self._receivers)

    @property
    def consumption_trigger(self) -> int:
        """Return the position beyond which the progress of a spy may let the limit rise."""
        window_length = self._window_length
        return self._window.limit - window_length + (window_length >> TRIGGER_SHIFT)

    def update(self, sender_position: int) -> bool:
        """Follow receivers, spies and sender; return whether the publishers should know."""
        has_receivers = len(self._receivers) > 0 and self._flow_control.has_required_receivers()
        has_spies = self._do_spies_connect and self._spies.has_working
        is_changed = self._set_connected(sender_position, is_connected=has_receivers or has_spies)
        if sender_position != self._told_position:
            self._told_position = sender_position
            is_changed = True
        if not self.is_connected:
            self._window.retract(sender_position)
            return is_changed
        slowest = self._spies.join_position(sender_position)
        return self._window.advance(slowest) or is_changed

    def close(self, producer_position: int) -> None:
        """Let nothing be appended any more."""
        self._window.close(producer_position)

    def disconnect(self, sender_position: int) -> None:
        """Let nobody be connected any more: the stream was revoked."""
        self._set_connected(sender_position, is_connected=False)

    def _set_connected(self, sender_position: int, *, is_connected: bool) -> bool:
        if is_connected == self.is_connected:
            return False
        self.is_connected = is_connected
        self._log.metadata.is_connected = is_connected
        self._peer_log.info(
            "publication_connection_changed",
            is_connected=is_connected,
            channel=self._channel,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            position=sender_position,
        )
        return True
