"""NAKs that a publication refuses, and what it says when one comes again and again.

An honest receiver asks from where one of the publication's frames begins. One that goes on asking
from elsewhere was sent something that is not of the publication, and its stream stands still.

Source: Aeron has none; it answers such NAKs with whatever lies there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.logs import LogBudget

__all__ = ["RefusedNaks"]

REPEATS_MIN: Final = 8
"""So many NAKs for one place are no accident."""
LOG_INTERVAL_NS: Final = 1_000_000_000
REMEDY: Final = (
    "the receiver was sent frames that are not of this publication, and cannot go on where they "
    "lie: look for forged frames, or for another publisher of this session; a receiver of this "
    "software ends its image after image_gap_timeout_ns, and joins again"
)

log = get_logger(__name__)


class RefusedNaks:
    """Remembers the place that was refused last, and how often.

    Args:
        log_buffers: Name the stream.
        log_budget: For its log lines, which peers can cause; None is without limit.
    """

    __slots__ = ("_count", "_is_news", "_log", "_logged_ns", "_peer_log", "_position")

    def __init__(self, log_buffers: LogBuffers, log_budget: LogBudget | None = None) -> None:
        self._peer_log = within(log_budget, log)
        self._log = log_buffers
        self._position = -1
        self._count = 0
        self._is_news = False
        self._logged_ns = -LOG_INTERVAL_NS

    def on_refused(self, position: int) -> None:
        """Take note of a NAK from where no frame begins, in bytes of the stream."""
        if position != self._position:
            self._position = position
            self._count = 0
        self._count += 1
        self._is_news = self._count >= REPEATS_MIN

    def tell(self, source: Address | None, now_ns: int) -> None:
        """Log what was just refused once too often, at most once a second.

        Args:
            source: Where the NAK came from.
            now_ns: The time now.
        """
        if not self._is_news:
            return
        self._is_news = False
        if now_ns < self._logged_ns + LOG_INTERVAL_NS:
            return
        self._logged_ns = now_ns
        self._peer_log.warning(
            "naks_refused",
            source=source,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            position=self._position,
            count=self._count,
            reason="no frame begins there",
            remedy=REMEDY,
        )
