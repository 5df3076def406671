"""Plots of a report, as inline SVG.

Colours are class names; the page's style assigns them values for light and for dark mode.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Final, final

from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aeron_async.spark.pipeline.histogram import Histogram
    from aeron_async.spark.pipeline.report.findings import Findings
    from aeron_async.spark.pipeline.runs import RecordedGap

__all__ = [
    "COLOURS",
    "PERCENTILES",
    "Axis",
    "Plot",
    "format_amount",
    "format_ns",
    "gap_plot",
    "latency_plot",
    "linear_ticks",
    "log_ticks",
    "rate_plot",
]

AMOUNTS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIMES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "\N{GREEK SMALL LETTER MU}s"))


def escape(text: str) -> str:
    """Escape untrusted text: no markup, and no characters that hide or reverse others."""
    return html.escape(printable(text))


def format_amount(value: float, unit: str) -> str:
    """Return an amount such as `1.5 kB/s`, in powers of ten."""
    for scale, prefix in AMOUNTS:
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_ns(value: float) -> str:
    """Return a time such as `850 ns`, `12.3 μs` or `1.23 ms`."""
    for scale, unit in TIMES:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} ns"


WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 76
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 34
COLOURS: Final = 8
"""Number of colours; a ninth line has the first colour again."""


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
        self._low = scale(low)
        self._length = (scale(high) - self._low) or 1.0
        self.ticks: list[tuple[float, str]] = [
            (value, text) for value, text in ticks if low <= value <= high
        ]

    def place(self, value: float) -> float:
        """Return the place of a value; a value outside the axis is at its edge."""
        return min(max((self._scale(value) - self._low) / self._length, 0.0), 1.0)


def linear_ticks(high: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return about five round values from 0 to at least the highest."""
    if high <= 0:
        return [(0.0, text(0.0)), (1.0, text(1.0))]
    raw = high / 4
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * each for each in (1, 2, 5, 10) if base * each >= raw)
    return [(index * step, text(index * step)) for index in range(math.ceil(high / step) + 1)]


def log_ticks(low: float, high: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return powers of ten around values, which must be greater than 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [(10.0**each, text(10.0**each)) for each in range(first, max(last, first + 1) + 1)]


@final
class Plot:
    """One plot.

    Args:
        label: What it shows, for screen readers.
        x: Horizontal axis.
        y: Vertical axis.
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

    def line(self, points: Sequence[tuple[float, float]], colour: int, title: str) -> None:
        """Draw a line through points; a single point is a dot."""
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
        """Draw a thin horizontal bar between two values."""
        left = self.across(start)
        width = max(self.across(end) - left, 1.0)
        self._parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{self.down(y) - 2:.1f}" width="{width:.1f}" '
            f'height="4"><title>{escape(title)}</title></rect>'
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


PERCENTILES: Final = ("50", "75", "90", "99", "99.9", "99.99", "99.999")
NS_PER_SECOND: Final = 1_000_000_000
TIME_TICKS: Final = 6
ROW_HEIGHT: Final = 26
DAY: Final = 86_400
POINTS_PER_DECADE: Final = 24
MOST_MARKS: Final = 5_000


def time_axis(low: float, high: float) -> Axis:
    """Return an axis of seconds since 1970, in UTC."""
    high = max(high, low + 1)
    pattern = "%d %b %H:%M" if high - low > DAY else "%H:%M:%S"
    places = [low + (high - low) * index / TIME_TICKS for index in range(TIME_TICKS + 1)]
    # Labels of the first and the last tick would be cut off.
    ticks = [(each, utc_time(int(each), per_second=1, pattern=pattern)) for each in places[1:-1]]
    return Axis(low, high, ticks)


def rate_plot(findings: Findings, *, is_bytes: bool) -> str:
    """Plot messages or bytes per second over time, with a line for each stream."""
    column, unit = (2, "B/s") if is_bytes else (1, "msg/s")
    lines = {
        stream_id: [(point[0], point[column]) for point in points]
        for stream_id, points in findings.rates.items()
    }
    times = [x for points in lines.values() for x, _ in points]
    ticks = linear_ticks(
        max(y for points in lines.values() for _, y in points), lambda v: format_amount(v, unit)
    )
    side = Axis(0, ticks[-1][0], ticks)
    plot = Plot(f"{unit} over time", time_axis(min(times), max(times)), side)
    for colour, (stream_id, points) in enumerate(lines.items()):
        plot.line(points, colour, f"stream {stream_id}")
    return plot.svg()


def nines(percent: float) -> float:
    """Return the horizontal place of a percentile: the number of its nines."""
    return -math.log10(1 - percent / 100)


def latency_plot(latencies: dict[str, Histogram]) -> str:
    """Plot latencies by percentile, with logarithmic axes."""
    drawn = {name: each for name, each in latencies.items() if each.count}
    most = max(each.count for each in drawn.values())
    # Further right there is less than one message.
    right = max(math.log10(most), 1.0)
    low = max(min(each.percentile(0) for each in drawn.values()), 1)
    high = max(*(each.largest for each in drawn.values()), low + 1)
    ticks = log_ticks(low, high, format_ns)
    side = Axis(ticks[0][0], ticks[-1][0], ticks, math.log10)
    below = Axis(0, right, [(nines(float(each)), f"{each} %") for each in PERCENTILES])
    plot = Plot("latency by percentile", below, side)
    for colour, (name, histogram) in enumerate(drawn.items()):
        end = min(math.log10(histogram.count) if histogram.count > 1 else 0.0, right)
        count = max(int(end * POINTS_PER_DECADE), 1)
        places = [end * index / count for index in range(count + 1)]
        points = [(x, max(histogram.percentile(100 - 100 * 10**-x), 1)) for x in places]
        plot.line(points, colour, name)
    return plot.svg()


def gap_plot(gaps: Sequence[RecordedGap], names: Sequence[str], kinds: Sequence[str]) -> str:
    """Plot gaps over time, with a row for each recording and a colour for each kind.

    Args:
        gaps: Gaps with known times.
        names: Names of the rows; a gap belongs to row `recording N`.
        kinds: Kinds in the order of their colours.
    """
    spans = [(gap, span_of(gap)) for gap in gaps[:MOST_MARKS]]
    low = min(start for _, (start, _) in spans)
    high = max(end for _, (_, end) in spans)
    count = len(names)
    rows = {name: count - index for index, name in enumerate(names)}
    side = Axis(0, count + 1, [(place, name) for name, place in rows.items()])
    plot = Plot("gaps over time", time_axis(low, high), side, 60 + ROW_HEIGHT * (count + 1))
    for gap, (start, end) in spans:
        row = rows[f"recording {gap.recording_id}"]
        title = f"{gap.kind}: {gap.missing:,} missing at position {gap.position:,}"
        plot.bar(start, end, row, title)
        plot.mark(end, row, kinds.index(gap.kind), title)
    return plot.svg()


def span_of(gap: RecordedGap) -> tuple[float, float]:
    """Return the time span of a gap, in seconds."""
    known = [each for each in (gap.before_ns, gap.after_ns) if each is not None]
    return min(known) / NS_PER_SECOND, max(known) / NS_PER_SECOND
