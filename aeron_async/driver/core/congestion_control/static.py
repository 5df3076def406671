"""Static window congestion control: always the same window.

Source: Aeron `StaticWindowCongestionControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.loss_detector import NEVER_NS

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import TrackRebuild

__all__ = ["StaticWindowCongestionControl"]


class StaticWindowCongestionControl:
    """A window that neither loss nor delay can change.

    Args:
        window_length: In bytes; already bounded by half a term.
    """

    def __init__(self, *, window_length: int) -> None:
        self._window_length = window_length

    def initial_window_length(self) -> int:
        """Return the window."""
        return self._window_length

    def max_window_length(self) -> int:
        """Return the window."""
        return self._window_length

    def on_track_rebuild(self, track: TrackRebuild, *, now_ns: int) -> tuple[int, bool]:
        """Return the window; a status message is never forced."""
        del track, now_ns
        return self._window_length, False

    def should_measure_rtt(self, now_ns: int) -> bool:
        """Return False: the round trip does not matter here."""
        del now_ns
        return False

    def on_rttm_sent(self, now_ns: int) -> None:
        """Do nothing: none is ever sent."""

    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Do nothing: the round trip does not matter here."""

    def rtt_deadline_ns(self) -> int:
        """Return the end of time."""
        return NEVER_NS
