"""Steps of time of a report: as long as needed for a limited number of them."""

from __future__ import annotations

from typing import Any, Final, Self, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.clock import NS_PER_SECOND

__all__ = ["MOST_POINTS", "Steps"]

DAY: Final = 86_400
MOST_POINTS: Final = 400
"""Upper limit on the points of a line; longer times get longer steps."""
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200)


@final
@attrs.frozen
class Steps:
    """Steps of time, which all plots over time share.

    Attributes:
        low_s: First second.
        high_s: Second behind the last one.
        step: Seconds of a step; whole minutes, hours or days have steps that begin with them.
    """

    low_s: int
    high_s: int
    step: int

    @classmethod
    def of(cls, low_s: int, high_s: int, least: int = 1) -> Self:
        """Return so long steps that they are not too many.

        Args:
            low_s: First second.
            high_s: Second behind the last one.
            least: Shortest step in seconds.
        """
        high_s = max(high_s, low_s + 1)
        length = high_s - low_s
        # Up to one step more than that, because the first one begins before the range.
        step = next((each for each in STEPS if -(-length // each) < MOST_POINTS), 0)
        step = step or -(-length // ((MOST_POINTS - 1) * DAY)) * DAY
        return cls(low_s, high_s, max(step, least))

    @property
    def begin_s(self) -> int:
        """Return the second at which the first step begins."""
        return self.low_s // self.step * self.step

    @property
    def count(self) -> int:
        """Return the number of steps."""
        return (self.high_s - 1 - self.begin_s) // self.step + 1

    def start(self, place: int) -> int:
        """Return the second at which a step begins within the range."""
        return max(self.begin_s + place * self.step, self.low_s)

    def end(self, place: int) -> int:
        """Return the second behind a step."""
        return min(self.begin_s + (place + 1) * self.step, self.high_s)

    def seconds(self, place: int) -> int:
        """Return how long a step is; the first and the last one may be shorter."""
        return self.end(place) - self.start(place)

    def place(self, column: Any, unit_ns: int) -> pa.Array:
        """Return the step of each time; times outside belong to the first or the last one.

        Args:
            column: Times as integers since 1970; null for none.
            unit_ns: Their unit in nanoseconds, which divides a second or is whole seconds.
        """
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        absent = whole.is_null().to_numpy(zero_copy_only=False)
        times = whole.fill_null(0).to_numpy(zero_copy_only=False)
        if unit_ns < NS_PER_SECOND:
            places = (times // (NS_PER_SECOND // unit_ns) - self.begin_s) // self.step
        else:
            # Before it is multiplied: a far time in minutes has no 64 bits in seconds.
            unit_s = unit_ns // NS_PER_SECOND
            times = np.clip(times, self.begin_s // unit_s - 1, self.high_s // unit_s + 1)
            places = (times * unit_s - self.begin_s) // self.step
        return pa.array(np.clip(places, 0, self.count - 1), pa.int64(), mask=absent)
