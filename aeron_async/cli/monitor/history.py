"""The last hour of every stream, in bounded memory.

A stream has two rings: its last points as they came, and the hour in steps of ten seconds, of which
a point has the mean of rates and losses, and the maximum of lags and blocked time.

Invariant: a stream takes at most `POINTS_A_STREAM * BYTES_A_POINT` bytes for points, and there are
at most `STREAMS_MAX` of them; the first ones stay, and what has no room is counted.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.clock import NS_PER_MS
from aeron_async.stats import LOSS_CAUSES, ImageStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aeron_async.cli.top_scene import TopKey, TopRow

__all__ = ["BYTES_A_POINT", "POINTS_A_STREAM", "STREAMS_MAX", "Episode", "History"]

STREAMS_MAX: Final = 1_000
HOUR_S: Final = 3_600
STEP_S: Final = 10
COARSE_POINTS: Final = HOUR_S // STEP_S
FINE_POINTS: Final = 120
POINTS_A_STREAM: Final = COARSE_POINTS + FINE_POINTS
MEANS: Final = ("rate", "naks", *LOSS_CAUSES)
MAXIMA: Final = ("lag", "lag_ms", "blocked")
COLUMNS: Final = MEANS + MAXIMA
BYTES_A_POINT: Final = 8 + 4 * len(COLUMNS)
"""A time, and a number for each column; 29 kB a stream with all points."""
EPISODES_MAX: Final = 50
"""Most episodes of losses that are kept of a stream."""
EPISODE_PAUSE_MS: Final = 30_000
"""Losses with a longer pause between them are two episodes."""
SET_BACK_MS: Final = 60_000
"""A clock that goes back by more begins a new history."""
UNKNOWN: Final = math.nan


@final
class Ring:
    """The newest points: times in milliseconds since 1970, and a number for each column."""

    __slots__ = ("_at", "_capacity", "_times", "_values")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._times = array("d")
        self._values = array("f")
        self._at = 0

    def __len__(self) -> int:
        return len(self._times)

    def append(self, time_ms: float, values: Sequence[float]) -> None:
        """Add a point; the oldest one goes if there is no room."""
        if len(self._times) < self._capacity:
            self._times.append(time_ms)
            self._values.extend(values)
            return
        self._times[self._at] = time_ms
        begin = self._at * len(COLUMNS)
        self._values[begin : begin + len(COLUMNS)] = array("f", values)
        self._at = (self._at + 1) % self._capacity

    def points(self) -> Iterable[tuple[float, array[float]]]:
        """Yield all points, the oldest first."""
        width = len(COLUMNS)
        for place in (*range(self._at, len(self)), *range(self._at)):
            yield self._times[place], self._values[place * width : (place + 1) * width]


@final
@attrs.define
class Episode:
    """Losses of one cause with no long pause between them; times are in ms since 1970."""

    cause: str
    begin_ms: int
    end_ms: int
    count: int
    bytes: int


@final
class StreamHistory:
    """The last hour of one stream."""

    __slots__ = ("_coarse", "_fine", "_losses", "_open", "driver_id", "episodes", "time_ms")

    def __init__(self, driver_id: tuple[int, int | None]) -> None:
        self.driver_id = driver_id
        self.time_ms = 0
        self.episodes: deque[Episode] = deque(maxlen=EPISODES_MAX)
        self._fine = Ring(FINE_POINTS)
        self._coarse = Ring(COARSE_POINTS)
        self._open: list[tuple[float, ...]] = []
        self._losses: dict[str, tuple[int, int]] | None = None

    def add(self, time_ms: int, row: TopRow) -> None:
        """Remember what a row says."""
        lost = self._add_losses(time_ms, row)
        step_ms = STEP_S * 1_000
        if self.time_ms and time_ms // step_ms != self.time_ms // step_ms:
            self._close_step()
        values = (
            known(row.bytes_per_second),
            known(row.naks_per_second),
            *(UNKNOWN if lost is None else lost.get(cause, 0.0) for cause in LOSS_CAUSES),
            known(row.lag_bytes),
            known(None if row.lag_ns is None else row.lag_ns / NS_PER_MS),
            row.blocked if row.blocked_ratio else UNKNOWN,
        )
        self._fine.append(time_ms, values)
        self._open.append(values)
        del self._open[:-FINE_POINTS]
        self.time_ms = time_ms

    def _close_step(self) -> None:
        columns = list(zip(*self._open, strict=True))
        values = [mean_of(column) for column in columns[: len(MEANS)]]
        values += [max_of(column) for column in columns[len(MEANS) :]]
        self._coarse.append(self.time_ms // (STEP_S * 1_000) * STEP_S * 1_000, values)
        self._open.clear()

    def _add_losses(self, time_ms: int, row: TopRow) -> Mapping[str, float] | None:
        """Return the bytes lost a second since the last row, by cause; None if unknown."""
        if not isinstance(row.stats, ImageStats):
            return None
        before, then_ms = self._losses, self.time_ms
        self._losses = {each.cause: (each.count, each.bytes) for each in row.stats.losses}
        if before is None:
            return None
        rates: dict[str, float] = {}
        for cause, (count, length) in self._losses.items():
            was_count, was_length = before.get(cause, (0, 0))
            if cause in LOSS_CAUSES and count > was_count:
                lost = max(0, length - was_length)
                rates[cause] = lost * 1_000 / (time_ms - then_ms)
                self._add_episode(cause, then_ms, time_ms, count - was_count, lost)
        return rates

    def _add_episode(self, cause: str, begin_ms: int, end_ms: int, count: int, lost: int) -> None:
        for each in reversed(self.episodes):
            if each.cause == cause:
                if begin_ms - each.end_ms > EPISODE_PAUSE_MS:
                    break
                each.end_ms = end_ms
                each.count += count
                each.bytes += lost
                return
        self.episodes.append(Episode(cause, begin_ms, end_ms, count, lost))

    def columns(self) -> dict[str, list[float | None]]:
        """Return all points of the last hour by column, the oldest first; None is unknown.

        A cause without losses has no column. Times are in seconds.
        """
        fine = list(self._fine.points())
        begin_ms = fine[0][0] if fine else 0.0
        limit_ms = self.time_ms - HOUR_S * 1_000
        points = [
            each
            for each in self._coarse.points()
            if limit_ms <= each[0] and each[0] + STEP_S * 1_000 <= begin_ms
        ]
        points += fine
        found: dict[str, list[float | None]] = {"time": [time / 1_000 for time, _ in points]}
        for place, name in enumerate(COLUMNS):
            column = [rounded(values[place]) for _, values in points]
            if name not in LOSS_CAUSES or any(column):
                found[name] = column
        return found


@final
class History:
    """The last hour of all streams.

    Attributes:
        left_out_count: Streams of the last round for which there was no room.
    """

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._streams_max = streams_max
        self._streams: dict[TopKey, StreamHistory] = {}
        self.left_out_count = 0

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, rows: Iterable[TopRow], times_ns: Mapping[str, int]) -> None:
        """Remember the rows of one picture; streams that are not in it are forgotten.

        Args:
            rows: All rows of the picture.
            times_ns: The wall-clock time of the last snapshot of each driver, by its name.
        """
        streams = {each.key: each for each in rows if each.key.kind != "drv"}
        for key in self._streams.keys() - streams.keys():
            del self._streams[key]
        self.left_out_count = 0
        for key, row in streams.items():
            found = self._streams.get(key)
            if found is None and len(self._streams) >= self._streams_max:
                self.left_out_count += 1
                continue
            time_ms = times_ns[key.driver] // NS_PER_MS
            driver_id = row.pid, row.started_ns
            # A clock that was set back would leave no room for what comes.
            if (
                found is None
                or found.driver_id != driver_id
                or time_ms < found.time_ms - SET_BACK_MS
            ):
                found = self._streams[key] = StreamHistory(driver_id)
            if time_ms > found.time_ms:
                found.add(time_ms, row)

    def of(self, key: TopKey) -> StreamHistory | None:
        """Return the history of a stream; None if it has none."""
        return self._streams.get(key)


def known(value: float | None) -> float:
    """Return a number, or what stands for none."""
    return UNKNOWN if value is None else float(value)


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of what is known."""
    found = [each for each in values if not math.isnan(each)]
    return sum(found) / len(found) if found else UNKNOWN


def max_of(values: Sequence[float]) -> float:
    """Return the maximum of what is known."""
    return max((each for each in values if not math.isnan(each)), default=UNKNOWN)


def rounded(value: float) -> float | None:
    """Return a number with few digits, for JSON; None if it is unknown."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
