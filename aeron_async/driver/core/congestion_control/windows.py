"""Aeron's two congestion control strategies: a static window, and CUBIC.

Between losses the CUBIC window follows a cubic curve of the time since the last loss: steep at
first, flat around the window at which the loss occurred, then steeper again.

    w(t) = C * (t - k)^3 + w_max        k = cbrt(w_max * B / C)

Windows are counted in MTUs of the sender. The curve of a new image starts as if the largest window
had just met a loss; the first window is ten MTUs at most.

Source: Aeron `StaticWindowCongestionControl`, `CubicCongestionControl`,
`aeron_congestion_control.c`; RFC 8312.
"""

from __future__ import annotations

from math import cbrt
from typing import TYPE_CHECKING, ClassVar, Final, Self

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.congestion_control.auto_window import AutoWindowCongestionControl
from aeron_async.driver.core.congestion_control.base import CongestionControl
from aeron_async.driver.core.stream_counters import StreamCounterType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.congestion_control.base import TrackRebuild
    from aeron_async.driver.core.suppliers import CongestionControlParams

__all__ = [
    "MIN_RTT_WAKE_UP_NS",
    "PLAIN_WINDOWS",
    "CubicCongestionControl",
    "StaticWindowCongestionControl",
]


class StaticWindowCongestionControl(CongestionControl):
    """A window that neither loss nor delay changes.

    Args:
        window_length: In bytes; at most half a term.
    """

    follows_rebuild: ClassVar[bool] = False

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


PLAIN_WINDOWS: Final = frozenset({StaticWindowCongestionControl, AutoWindowCongestionControl})
"""Strategies that need no poll while a stream is silent; what is derived from them might."""

SCALE: Final = 0.4
DECREASE: Final = 0.2
INITIAL_CWND: Final = 10
RTT_TIMEOUT_MULTIPLE: Final = 4
MIN_RTT_WAKE_UP_NS: Final = 20_000_000
"""An idle image is not woken more often than this to measure a round trip."""

_SECOND_NS: Final = 1_000_000_000


class CubicCongestionControl(CongestionControl):
    """The window of one image, from losses and time.

    Differs: Aeron updates the window every 100 us; here every poll of the image does, which happens
    on data, on a reader's progress, and at the latest for the next status message. The window needs
    no wake-up to open: it is a function of the time since the loss, so a late update misses
    nothing. And it is never closed: a sender always has at least one MTU of it, and when a reader
    has read that, a status message is sent.

    Args:
        max_window_length: The most that the image may advertise, in bytes; an MTU at least.
        mtu_length: MTU of the sender, in bytes.
        initial_rtt_ns: The round trip until one is measured, and the time between two updates.
        is_measuring_rtt: Whether round trips are measured.
        is_tcp_mode: Whether the window never falls behind what TCP would have.
        now_ns: The time now.
    """

    counter_types: ClassVar[tuple[StreamCounterType, ...]] = (
        StreamCounterType.CUBIC_RTT,
        StreamCounterType.CUBIC_WINDOW,
    )

    def __init__(
        self,
        *,
        max_window_length: int,
        mtu_length: int,
        initial_rtt_ns: int,
        is_measuring_rtt: bool = False,
        is_tcp_mode: bool = False,
        now_ns: int,
    ) -> None:
        self._max_window_length = max_window_length
        self._mtu_length = mtu_length
        self._initial_rtt_ns = initial_rtt_ns
        self._is_measuring_rtt = is_measuring_rtt
        self._is_tcp_mode = is_tcp_mode
        self._max_cwnd = max_window_length // mtu_length
        self._cwnd = min(INITIAL_CWND, self._max_cwnd)
        self._initial_window_length = self._cwnd * mtu_length
        self._w_max = self._max_cwnd
        self._k = cbrt(self._w_max * DECREASE / SCALE)
        self._rtt_ns = initial_rtt_ns
        self._rtt_timeout_ns = initial_rtt_ns * RTT_TIMEOUT_MULTIPLE
        self._last_loss_ns = self._last_update_ns = now_ns
        # The first measurement is due at once.
        self._last_rtt_ns = now_ns - self._rtt_timeout_ns - 1
        self._rtt_counter: Counter | None = None
        self._window_counter: Counter | None = None

    @classmethod
    def of(cls, params: CongestionControlParams) -> Self:
        """Return the strategy of a new image."""
        context = params.context
        return cls(
            max_window_length=params.window_length,
            mtu_length=params.mtu_length,
            initial_rtt_ns=context.cubic_congestion_control_initial_rtt_ns,
            is_measuring_rtt=context.cubic_congestion_control_measure_rtt,
            is_tcp_mode=context.cubic_congestion_control_tcp_mode,
            now_ns=params.now_ns,
        )

    def bind(self, counters: Sequence[Counter]) -> None:
        """Set up the counters: round trip in nanoseconds, 0 until measured, and window in bytes."""
        self._rtt_counter, self._window_counter = counters
        self._window_counter.set(self._initial_window_length)

    def initial_window_length(self) -> int:
        """Return the first window: ten MTUs, or the largest window if that is less."""
        return self._initial_window_length

    def max_window_length(self) -> int:
        """Return the most that the image may advertise, whether whole MTUs or not."""
        return self._max_window_length

    def on_track_rebuild(self, track: TrackRebuild, *, now_ns: int) -> tuple[int, bool]:
        """Return the window now, and whether a status message must be sent at once."""
        is_forced = False
        if track.loss_found:
            is_forced = True
            self._w_max = self._cwnd
            self._k = cbrt(self._w_max * DECREASE / SCALE)
            self._set_cwnd(max(1, int(self._cwnd * (1.0 - DECREASE))))
            self._last_loss_ns = now_ns
        elif self._cwnd < self._max_cwnd and now_ns - self._last_update_ns > self._initial_rtt_ns:
            self._set_cwnd(self._grown_cwnd((now_ns - self._last_loss_ns) / _SECOND_NS))
            self._last_update_ns = now_ns
        elif self._cwnd == 1 and track.consumption_position > track.last_sm_position:
            # The sender is blocked until it gets this status message.
            is_forced = True
        return self._cwnd * self._mtu_length, is_forced

    def should_measure_rtt(self, now_ns: int) -> bool:
        """Return whether the last measurement was sent or answered four round trips ago."""
        return self._is_measuring_rtt and now_ns - self._last_rtt_ns > self._rtt_timeout_ns

    def on_rttm_sent(self, now_ns: int) -> None:
        """Record that a measurement was sent; it may never be answered."""
        self._last_rtt_ns = now_ns

    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a measurement."""
        self._last_rtt_ns = now_ns
        self._rtt_ns = rtt_ns
        self._rtt_timeout_ns = max(rtt_ns, self._initial_rtt_ns) * RTT_TIMEOUT_MULTIPLE
        if self._rtt_counter is not None:
            self._rtt_counter.set(rtt_ns)

    def rtt_deadline_ns(self) -> int:
        """Return when a measurement is due, if that is worth a wake-up.

        Differs: Aeron measures every 400 us where round trips are short. A busy image does as well;
        an idle one is woken every 20 ms at most.
        """
        if not self._is_measuring_rtt:
            return NEVER_NS
        return self._last_rtt_ns + max(self._rtt_timeout_ns + 1, MIN_RTT_WAKE_UP_NS)

    def _grown_cwnd(self, elapsed_s: float) -> int:
        """Return the window on the curve at a time since the last loss.

        Differs: in TCP mode Aeron lets short round trips increase the window beyond its maximum,
        and no sender accepts a window of more than half a term.
        """
        behind_s = elapsed_s - self._k
        cwnd = self._w_max + int(SCALE * behind_s * behind_s * behind_s)
        if self._is_tcp_mode and cwnd < self._w_max:
            # On one host a round trip can be measured as 0.
            round_trips = elapsed_s * _SECOND_NS / max(1, self._rtt_ns)
            gain = 3.0 * DECREASE / (2.0 - DECREASE)
            cwnd = max(cwnd, int(self._w_max * (1.0 - DECREASE) + gain * round_trips))
        return min(self._max_cwnd, cwnd)

    def _set_cwnd(self, cwnd: int) -> None:
        if cwnd != self._cwnd:
            self._cwnd = cwnd
            if self._window_counter is not None:
                self._window_counter.set(cwnd * self._mtu_length)
