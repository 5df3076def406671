"""The interface of congestion control.

Congestion control chooses the window that status messages advertise. It affects flow control only
through those messages.

Source: Aeron `CongestionControl`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from aeron_async.clock import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.stream_counters import StreamCounterType

__all__ = [
    "CongestionControl",
    "TrackRebuild",
]


class TrackRebuild(NamedTuple):
    """The result of one scan of an image over its log; positions in bytes."""

    consumption_position: int
    last_sm_position: int
    hwm_position: int
    rebuild_position_before: int
    rebuild_position: int
    loss_found: bool


class CongestionControl(Protocol):
    """The receiver window of one image, in bytes.

    A strategy inherits from this class and implements the window; by default it measures no round
    trips and shows no counters.
    """

    counter_types: ClassVar[tuple[StreamCounterType, ...]] = ()
    """Counters that the image allocates for its strategy, in addition to its own."""
    follows_rebuild: ClassVar[bool] = True
    """Whether `on_track_rebuild` must be called each time anything arrives.

    If False, it is still called whenever data is missing, due, or was consumed.
    """

    @abstractmethod
    def initial_window_length(self) -> int:
        """Return the window to advertise first."""
        ...

    @abstractmethod
    def max_window_length(self) -> int:
        """Return the largest window this strategy will ever advertise."""
        ...

    @abstractmethod
    def on_track_rebuild(self, track: TrackRebuild, *, now_ns: int) -> tuple[int, bool]:
        """Return the window now, and whether a status message must be sent at once."""
        ...

    def bind(self, counters: Sequence[Counter]) -> None:
        """Store the counters that were allocated, in the order of `counter_types`."""
        del counters

    def should_measure_rtt(self, now_ns: int) -> bool:
        """Return whether a round-trip measurement should be sent now."""
        del now_ns
        return False

    def on_rttm_sent(self, now_ns: int) -> None:
        """Record that a round-trip measurement was sent."""
        del now_ns

    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a round-trip measurement."""
        del rtt_ns, now_ns

    def rtt_deadline_ns(self) -> int:
        """Return when `should_measure_rtt` must be called again."""
        return NEVER_NS
