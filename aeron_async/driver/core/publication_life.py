"""Where one publication is in its life, and when it moves on.

The table of states says what may follow what; here is when it does.

Source: Aeron `NetworkPublication.onTimeEvent`, `IpcPublication.onTimeEvent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication_state import (
    PublicationEvent,
    PublicationState,
    next_state,
)
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.logs import LogBudget

__all__ = ["PublicationLife"]

log = get_logger(__name__)


class PublicationLife:
    """The states of one publication.

    Args:
        log_buffers: Name the publication in the log, as does its channel.
        channel: The channel as its first client wrote it.
        linger_timeout_ns: How long it lingers for whoever has not said goodbye.
        log_budget: For its log lines, where a peer has asked for it; None is without limit.

    Attributes:
        state: Where it is.
    """

    __slots__ = (
        "_channel",
        "_linger_deadline_ns",
        "_linger_timeout_ns",
        "_peer_log",
        "_session_id",
        "_stream_id",
        "state",
    )

    def __init__(
        self,
        log_buffers: LogBuffers,
        channel: str,
        *,
        linger_timeout_ns: int,
        log_budget: LogBudget | None = None,
    ) -> None:
        self._peer_log = within(log_budget, log)
        self.state = PublicationState.ACTIVE
        self._channel = channel
        self._session_id = log_buffers.session_id
        self._stream_id = log_buffers.stream_id
        self._linger_timeout_ns = linger_timeout_ns
        self._linger_deadline_ns = NEVER_NS

    @property
    def is_active(self) -> bool:
        """Return whether clients may offer."""
        return self.state is PublicationState.ACTIVE

    def release(self, position: int) -> None:
        """Let an active publication drain."""
        self._set_state(PublicationEvent.RELEASED, position)

    def linger(self, event: PublicationEvent, position: int, now_ns: int) -> None:
        """Let a publication linger that is drained or revoked.

        Args:
            event: `DRAINED` or `REVOKED`.
            position: Up to where it was sent, in bytes; for the log.
            now_ns: The time now.
        """
        self._set_state(event, position)
        self._linger_deadline_ns = now_ns + self._linger_timeout_ns

    def leave(self, position: int, now_ns: int, *, is_over: bool) -> int:
        """End a linger that is over, or has lasted long enough; return the next deadline."""
        if not is_over and now_ns < self._linger_deadline_ns:
            return self._linger_deadline_ns
        self._set_state(PublicationEvent.LINGERED, position)
        return NEVER_NS

    def has_lingered(self, now_ns: int, *, for_ns: int) -> bool:
        """Return whether it has lingered for so long, while this driver was running."""
        return now_ns >= self._linger_deadline_ns - self._linger_timeout_ns + for_ns

    def fail(self, position: int) -> None:
        """Be done at once, whatever was to come."""
        self._set_state(PublicationEvent.FAILED, position)

    def forgive(self, late_ns: int, now_ns: int) -> None:
        """Let the linger last as much longer as this driver was not running."""
        if self._linger_deadline_ns != NEVER_NS:
            latest_ns = now_ns + self._linger_timeout_ns
            self._linger_deadline_ns = min(self._linger_deadline_ns + late_ns, latest_ns)

    def _set_state(self, event: PublicationEvent, position: int) -> None:
        before, self.state = self.state, next_state(self.state, event)
        self._peer_log.info(
            "publication_state_changed",
            before=before.name,
            after=self.state.name,
            channel=self._channel,
            session_id=self._session_id,
            stream_id=self._stream_id,
            position=position,
        )
