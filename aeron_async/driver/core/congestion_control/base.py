"""What a receiver asks of its congestion control.

Congestion control chooses the window that status messages advertise. It meets flow control only
through those messages.

Source: Aeron `CongestionControl`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["CongestionControl", "TrackRebuild", "receiver_window_length"]


class TrackRebuild(NamedTuple):
    """What an image saw in one pass over its log; positions in bytes."""

    consumption_position: int
    last_sm_position: int
    hwm_position: int
    rebuild_position_before: int
    rebuild_position: int
    loss_found: bool


class CongestionControl(Protocol):
    """The window of one image, in bytes."""

    def initial_window_length(self) -> int:
        """Return the window to advertise first."""
        ...

    def max_window_length(self) -> int:
        """Return the largest window this strategy will ever advertise."""
        ...

    def on_track_rebuild(self, track: TrackRebuild, *, now_ns: int) -> tuple[int, bool]:
        """Return the window now, and whether a status message must leave at once."""
        ...

    def should_measure_rtt(self, now_ns: int) -> bool:
        """Return whether a round-trip measurement should be sent now."""
        ...

    def on_rttm_sent(self, now_ns: int) -> None:
        """Take note that a round-trip measurement was sent."""
        ...

    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a round-trip measurement."""
        ...

    def rtt_deadline_ns(self) -> int:
        """Return when `should_measure_rtt` wants to be asked again."""
        ...


def receiver_window_length(*, configured_length: int, term_length: int) -> int:
    """Return the window a receiver may use: what was configured, at most half a term."""
    return min(configured_length, term_length // 2)
