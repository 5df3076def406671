"""A receiver window that grows while its readers take it fast.

A window must hold what arrives while a status message travels and both ends take their turns. So
whenever the readers take a whole window within `TURN_NS`, it is doubled, up to a limit: it holds
what they take in that time, at least. A slow reader leaves the window small, so that no more than
that time lies between what is sent and what it takes. A round trip that is longer than that leaves
it small, too: nothing tells it from a slow reader.

When the system has dropped datagrams because the receive buffer was full, the window is halved. It
may grow beyond that again only after `PATIENCE_NS`, and once in that time.

Differs: Aeron has a static window, of 128 KiB by default. A sender sees no difference: each status
message says how long the window is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Self

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.congestion_control.base import CongestionControl
from aeron_async.driver.core.stream_counters import StreamCounterType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.congestion_control.base import TrackRebuild
    from aeron_async.driver.core.suppliers import CongestionControlParams

__all__ = [
    "AUTO_WINDOW_MAX_LENGTH",
    "BUFFER_SHARE",
    "WISHED_RCVBUF_LENGTH",
    "AutoWindowCongestionControl",
    "longest_window",
]

AUTO_WINDOW_MAX_LENGTH: Final = 2 * 1024 * 1024
"""A longer window than this has brought nothing in any measurement."""
BUFFER_SHARE: Final = 2
"""The receive buffer also holds what belongs to a datagram beside its data."""
WISHED_RCVBUF_LENGTH: Final = BUFFER_SHARE * AUTO_WINDOW_MAX_LENGTH
"""The receive buffer with which a window can grow to that."""
QUARTER: Final = 4
"""The part of the window that readers take before a status message is due."""
TURN_NS: Final = 50 * NS_PER_MS
PATIENCE_NS: Final = 10 * NS_PER_SECOND


def longest_window(term_length: int, granted_rcvbuf_length: int) -> int:
    """Return how long a window can grow, in bytes.

    Args:
        term_length: Term length of the stream, in bytes.
        granted_rcvbuf_length: Length of the socket's receive buffer, in bytes; 0 if unknown.
    """
    limit = min(AUTO_WINDOW_MAX_LENGTH, term_length // 2)
    return min(limit, granted_rcvbuf_length // BUFFER_SHARE) if granted_rcvbuf_length else limit


class AutoWindowCongestionControl(CongestionControl):
    """The window of one image, from how fast its readers take what arrives.

    Args:
        initial_window_length: The first and the least window, in bytes.
        max_window_length: The longest window, in bytes.
        drop_count: Returns how many datagrams the system has dropped so far, for any image of the
            same sockets.
        now_ns: The time now.
    """

    counter_types: ClassVar[tuple[StreamCounterType, ...]] = (StreamCounterType.AUTO_WINDOW,)
    follows_rebuild: ClassVar[bool] = False

    def __init__(
        self,
        *,
        initial_window_length: int,
        max_window_length: int,
        drop_count: Callable[[], int] = lambda: 0,
        now_ns: int,
    ) -> None:
        self._initial_window_length = self._window_length = initial_window_length
        self._max_window_length = max(initial_window_length, max_window_length)
        self._ceiling = self._max_window_length
        self._drop_count = drop_count
        self._seen_drop_count = drop_count()
        self._raise_ns = self._turn_ns = now_ns
        self._turn_position: int | None = None
        self._counter: Counter | None = None

    @classmethod
    def of(cls, params: CongestionControlParams) -> Self:
        """Return the strategy of a new image."""
        granted_length = params.granted_rcvbuf_length or params.window_length
        return cls(
            initial_window_length=min(params.window_length, granted_length),
            max_window_length=longest_window(params.term_length, params.granted_rcvbuf_length),
            drop_count=params.drop_count,
            now_ns=params.now_ns,
        )

    def bind(self, counters: Sequence[Counter]) -> None:
        """Set up the counter of the window, in bytes."""
        (self._counter,) = counters
        self._counter.set(self._window_length)

    def initial_window_length(self) -> int:
        """Return the first window."""
        return self._initial_window_length

    def max_window_length(self) -> int:
        """Return the longest window that it may grow to."""
        return self._max_window_length

    def on_track_rebuild(self, track: TrackRebuild, *, now_ns: int) -> tuple[int, bool]:
        """Return the window now; a status message is never forced.

        It changes only with a status message that is due because a part of it was taken.
        """
        position = track.consumption_position
        if position - track.last_sm_position <= self._window_length // QUARTER:
            return self._window_length, False
        if self._drop_count() != self._seen_drop_count:
            self._on_dropped(now_ns)
        start = self._turn_position
        if start is None or now_ns > self._turn_ns + TURN_NS:
            self._begin_turn(position, now_ns)
        elif position - start >= self._window_length:
            self._begin_turn(position, now_ns)
            self._grow(now_ns)
        return self._window_length, False

    def _begin_turn(self, position: int, now_ns: int) -> None:
        self._turn_position, self._turn_ns = position, now_ns

    def _grow(self, now_ns: int) -> None:
        if self._ceiling < self._max_window_length and now_ns >= self._raise_ns:
            self._ceiling = min(2 * self._ceiling, self._max_window_length)
            self._raise_ns = now_ns + PATIENCE_NS
        self._set_window(min(2 * self._window_length, self._ceiling))

    def _on_dropped(self, now_ns: int) -> None:
        self._seen_drop_count = self._drop_count()
        self._set_window(max(self._initial_window_length, self._window_length // 2))
        self._ceiling, self._raise_ns = self._window_length, now_ns + PATIENCE_NS

    def _set_window(self, length: int) -> None:
        if length != self._window_length:
            self._window_length = length
            if self._counter is not None:
                self._counter.set(length)
