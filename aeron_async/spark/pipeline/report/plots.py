"""Parts of plots, as inline SVG: axes, lines, areas, bars and marks.

Colours are class names; the page's style assigns them values for light and for dark mode. Every
part has a title, which a browser shows beside the pointer without a script.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Final, final

from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "COLOURS",
    "Axis",
    "Plot",
    "duration_axis",
    "format_amount",
    "format_bytes",
    "format_ns",
    "format_share",
    "linear_ticks",
    "small_bars",
    "time_axis",
]

AMOUNTS: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIMES: Final = (
    (86_400e9, "d"),
    (3_600e9, "h"),
    (60e9, "min"),
    (1e9, "s"),
    (1e6, "ms"),
    (1e3, "\N{GREEK SMALL LETTER MU}s"),
)
DURATIONS: Final = (
    *(10.0**each for each in range(11)),
    *(60e9 * each for each in (1, 10, 60, 600)),
    *(86_400e9 * each for each in (1, 10, 100, 1_000, 10_000, 100_000)),
)
"""Round times in nanoseconds, about a decade from each other."""


def escape(text: str) -> str:
    """Escape untrusted text: no markup, and no characters that hide or reverse others."""
    return html.escape(printable(text))


def format_amount(value: float, unit: str) -> str:
    """Return an amount such as `1.5 kB/s`, in powers of ten."""
    for scale, prefix in AMOUNTS:
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_bytes(value: float) -> str:
    """Return a length such as `1.5 kB`."""
    return format_amount(value, "B")


def format_ns(value: float) -> str:
    """Return a time such as `850 ns`, `12.3 μs` or `1.5 min`; one below zero has a minus."""
    if value < 0:
        return f"-{format_ns(-value)}"
    for scale, unit in TIMES:
        if value >= scale:
            # Three digits, and no exponent for many days.
            return (
                f"{value / scale:.3g} {unit}"
                if value < 1_000 * scale
                else f"{value / scale:,.0f} {unit}"
            )
    return f"{value:.0f} ns"


def format_share(part: float, whole: float) -> str:
    """Return a part in percent; one that is not all is never shown as all, or as nothing."""
    if not whole:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.01:  # noqa: PLR2004 - what two digits can show
        return "< 0.01 %"
    if 99.99 < percent < 100:  # noqa: PLR2004 - as above
        return "> 99.99 %"
    return f"{percent:.4g} %"


WIDTH: Final = 880
HEIGHT: Final = 220
LEFT: Final = 84
RIGHT: Final = 16
TOP: Final = 12
BOTTOM: Final = 30
COLOURS: Final = 8
"""Number of colours; a ninth line has the first colour again."""
TIME_TICKS: Final = 8
"""Upper limit on the labels of an axis of time."""
DAY: Final = 86_400
YEAR: Final = 366 * DAY
TICK_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800)
TICK_STEPS_OF_DAYS: Final = (0.25, 0.5, 1, 2, 7, 14, 28, 56)
SHAPES: Final = (
    "M0 -4.5A4.5 4.5 0 1 0 0 4.5A4.5 4.5 0 1 0 0 -4.5Z",
    "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
    "M-4 -4H4V4H-4Z",
    "M0 -5L5 4H-5Z",
)
"""Circle, diamond, square and triangle, so that marks differ by more than their colour."""


@final
class Axis:
    """Axis of a plot: maps values to places from 0 to 1, and has labelled ticks.

    Args:
        low: Value at the beginning.
        high: Value at the end.
        ticks: Values and their labels.
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
        self._least = low
        self._low = scale(low)
        self._length = (scale(high) - self._low) or 1.0
        self.ticks: list[tuple[float, str]] = [
            (value, text) for value, text in ticks if low <= value <= high
        ]

    def place(self, value: float) -> float:
        """Return the place of a value; a value outside the axis is at its edge."""
        inside = max(value, self._least)
        return min((self._scale(inside) - self._low) / self._length, 1.0)


def linear_ticks(high: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return about five round values from 0 to at least the highest."""
    if high <= 0:
        return [(0.0, text(0.0)), (1.0, text(1.0))]
    raw = high / 4
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * each for each in (1, 2, 5, 10) if base * each >= raw)
    return [(index * step, text(index * step)) for index in range(math.ceil(high / step) + 1)]


def duration_axis(low: float, high: float) -> Axis:
    """Return a logarithmic axis of times in nanoseconds, which begins and ends with round ones."""
    below = max((each for each in DURATIONS if each <= low), default=DURATIONS[0])
    above = min((each for each in DURATIONS if each >= high), default=DURATIONS[-1])
    if above <= below:
        above = next((each for each in DURATIONS if each > below), 10 * below)
    ticks = [(each, format_ns(each)) for each in DURATIONS]
    return Axis(below, above, ticks, math.log10)


def time_axis(low: float, high: float) -> Axis:
    """Return an axis of seconds since 1970, in UTC, with labels at round times."""
    high = max(high, low + 1)
    length = high - low
    steps = (*TICK_STEPS, *(int(DAY * each) for each in TICK_STEPS_OF_DAYS))
    step = next((each for each in steps if length / each <= TIME_TICKS), 0)
    step = step or math.ceil(length / TIME_TICKS / DAY) * DAY
    if step >= DAY:
        pattern = "%d %b %Y" if length > YEAR else "%d %b"
    else:
        pattern = "%H:%M:%S" if step % 60 else "%H:%M"
        pattern = f"%d %b {pattern}" if length > DAY else pattern
    places = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
    # A label at the edge would be cut off.
    margin = length / 40
    ticks = [
        (float(each), utc_time(each, per_second=1, pattern=pattern))
        for each in places
        if low + margin <= each <= high - margin
    ]
    return Axis(low, high, ticks)


@final
class Plot:
    """One plot.

    Args:
        label: What it shows, for screen readers.
        x: Horizontal axis.
        y: Vertical axis.
        height: Height in pixels.
    """

    def __init__(self, label: str, x: Axis, y: Axis, height: int = HEIGHT) -> None:
        self._label = label
        self._x = x
        self._y = y
        self._height = height
        self._parts: list[str] = []

    def across(self, value: float) -> float:
        """Return the horizontal place of a value, in pixels from the left."""
        return LEFT + self._x.place(value) * (WIDTH - LEFT - RIGHT)

    def down(self, value: float) -> float:
        """Return the vertical place of a value, in pixels from the top."""
        return self._height - BOTTOM - self._y.place(value) * (self._height - TOP - BOTTOM)

    def line(
        self, points: Sequence[tuple[float, float]], colour: int, title: str, style: str = ""
    ) -> None:
        """Draw a line through points; a single point is a dot."""
        if len(points) == 1:
            self.mark(*points[0], colour, title)
        elif points:
            self._parts.append(
                f'<path class="line c{colour % COLOURS} {style}" d="M{self._path(points)}">'
                f"<title>{escape(title)}</title></path>"
            )

    def area(
        self,
        lower: Sequence[tuple[float, float]],
        upper: Sequence[tuple[float, float]],
        colour: int,
        title: str,
    ) -> None:
        """Fill what is between two lines with the same horizontal places."""
        if len(upper) > 1:
            there_and_back = self._path([*upper, *reversed(lower)])
            self._parts.append(
                f'<path class="area c{colour % COLOURS}" d="M{there_and_back}Z">'
                f"<title>{escape(title)}</title></path>"
            )

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        return "L".join(f"{self.across(x):.1f} {self.down(y):.1f}" for x, y in points)

    def mark(
        self, x: float, y: float, colour: int, title: str, *, shape: int = 0, size: float = 0.8
    ) -> None:
        """Draw a dot, or another shape."""
        self._parts.append(
            f'<path class="dot c{colour % COLOURS}" d="{SHAPES[shape % len(SHAPES)]}" '
            f'transform="translate({self.across(x):.1f} {self.down(y):.1f}) scale({size:.2f})">'
            f"<title>{escape(title)}</title></path>"
        )

    def column(
        self, span: tuple[float, float], low: float, high: float, colour: int, title: str
    ) -> None:
        """Draw a vertical bar between two horizontal and two vertical values."""
        left, top = self.across(span[0]), self.down(high)
        width = max(self.across(span[1]) - left, 1.5)
        height = max(self.down(low) - top, 1.0)
        self._parts.append(
            f'<rect class="column c{colour % COLOURS}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}"><title>{escape(title)}</title></rect>'
        )

    def strip(self, start: float, end: float, title: str) -> None:
        """Lay a strip without colour over the plot, which tells what is below the pointer."""
        left = self.across(start)
        width = max(self.across(end) - left, 0.5)
        self._parts.append(
            f'<rect class="strip" x="{left:.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{self._height - TOP - BOTTOM}"><title>{escape(title)}</title></rect>'
        )

    def svg(self) -> str:
        """Return the SVG."""
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


def small_bars(counts: Sequence[int], label: str) -> str:
    """Return a few bars without axes, as high as a line of text."""
    most = max(counts)
    width = 8
    bars = "".join(
        f'<rect class="column c0" x="{index * width}" y="{20 - 18 * count / most:.1f}" '
        f'width="{width - 1}" height="{18 * count / most + 1:.1f}"/>'
        for index, count in enumerate(counts)
        if count
    )
    whole = len(counts) * width
    return (
        f'<svg class="small" viewBox="0 0 {whole} 22" width="{whole}" height="22" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>{bars}</svg>'
    )
