"""Plots as inline SVG: a frame, axes with few words, and what is drawn inside.

Colours are names of classes, which the page's style gives values, for light and for dark.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from aeron_async.spark.pipeline.report.words import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["COLOURS", "Axis", "Plot", "linear_ticks", "log_ticks"]

WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 76
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 34
COLOURS: Final = 8
"""So many colours there are; a ninth line has the first again."""


@final
class Axis:
    """Where a value lies, from 0 to 1, and what is written at some of them.

    Args:
        low: Value at the beginning.
        high: At the end.
        ticks: Values with what is written there.
        scale: Applied to values first, such as `math.log10`.
    """

    def __init__(
        self,
        low: float,
        high: float,
        ticks: Iterable[tuple[float, str]],
        scale: Callable[[float], float] = float,
    ) -> None:
        self._scale = scale
        self._low = scale(low)
        self._length = (scale(high) - self._low) or 1.0
        self.ticks = [(value, text) for value, text in ticks if low <= value <= high]

    def place(self, value: float) -> float:
        """Return where a value lies; what is outside lies at the edge."""
        return min(max((self._scale(value) - self._low) / self._length, 0.0), 1.0)


def linear_ticks(high: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return round values from 0 up to beyond the highest, five or so."""
    if high <= 0:
        return [(0.0, text(0.0)), (1.0, text(1.0))]
    raw = high / 4
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * each for each in (1, 2, 5, 10) if base * each >= raw)
    return [(index * step, text(index * step)) for index in range(math.ceil(high / step) + 1)]


def log_ticks(low: float, high: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return powers of ten around values, which are above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [(10.0**each, text(10.0**each)) for each in range(first, max(last, first + 1) + 1)]


@final
class Plot:
    """One picture.

    Args:
        label: What it shows, for those who do not see it.
        x: The axis below.
        y: The axis at the side.
    """

    def __init__(self, label: str, x: Axis, y: Axis, height: int = HEIGHT) -> None:
        self._label = label
        self._x = x
        self._y = y
        self._height = height
        self._parts: list[str] = []

    def across(self, value: float) -> float:
        """Return where a value lies on the picture, from its left."""
        return LEFT + self._x.place(value) * (WIDTH - LEFT - RIGHT)

    def down(self, value: float) -> float:
        """Return where a value lies, from the top."""
        return self._height - BOTTOM - self._y.place(value) * (self._height - TOP - BOTTOM)

    def line(self, points: Sequence[tuple[float, float]], colour: int, title: str) -> None:
        """Draw a line through points; one point alone is a dot."""
        places = [(self.across(x), self.down(y)) for x, y in points]
        name = f"c{colour % COLOURS}"
        if len(places) == 1:
            self.mark(*points[0], colour, title)
        elif places:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            self._parts.append(
                f'<path class="line {name}" d="{path}"><title>{escape(title)}</title></path>'
            )

    def mark(self, x: float, y: float, colour: int, title: str) -> None:
        """Draw a dot."""
        self._parts.append(
            f'<circle class="dot c{colour % COLOURS}" cx="{self.across(x):.1f}" '
            f'cy="{self.down(y):.1f}" r="3.5"><title>{escape(title)}</title></circle>'
        )

    def bar(self, start: float, end: float, y: float, title: str) -> None:
        """Draw a thin bar from one value to another."""
        left = self.across(start)
        width = max(self.across(end) - left, 1.0)
        self._parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{self.down(y) - 2:.1f}" width="{width:.1f}" '
            f'height="4"><title>{escape(title)}</title></rect>'
        )

    def svg(self) -> str:
        """Return the picture."""
        right, floor = WIDTH - RIGHT, self._height - BOTTOM
        grid = []
        for value, text in self._y.ticks:
            y = self.down(value)
            grid.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            grid.append(f'<text class="side" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(text)}</text>')
        for value, text in self._x.ticks:
            x = self.across(value)
            grid.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>')
            grid.append(f'<text class="below" x="{x:.1f}" y="{floor + 18}">{escape(text)}</text>')
        return (
            f'<svg viewBox="0 0 {WIDTH} {self._height}" role="img" '
            f'aria-label="{escape(self._label)}">{"".join(grid)}{"".join(self._parts)}</svg>'
        )
