"""Static window congestion control: always the same window.

Source: Aeron `StaticWindowCongestionControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from aeron_async.driver.core.congestion_control.base import CongestionControl

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import (
        CongestionControlParams,
        TrackRebuild,
    )

__all__ = ["StaticWindowCongestionControl"]


class StaticWindowCongestionControl(CongestionControl):
    """A window that neither loss nor delay can change.

    Args:
        window_length: In bytes; already bounded by half a term.
    """

    follows_rebuild: ClassVar = False

    def __init__(self, *, window_length: int) -> None:
        self._window_length = window_length

    @classmethod
    def of(cls, params: CongestionControlParams) -> Self:
        """Return the strategy of a new image."""
        return cls(window_length=params.window_length)

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
