"""The plots of the report: rates over time, latencies by percentile, gaps over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from aeron_async.spark.pipeline.report.drawing import Axis, Plot, linear_ticks, log_ticks
from aeron_async.spark.pipeline.report.words import format_amount, format_ns
from aeron_async.text import utc_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.spark.pipeline.histogram import Histogram
    from aeron_async.spark.pipeline.report.findings import Findings
    from aeron_async.spark.pipeline.runs import Gap

__all__ = ["PERCENTILES", "gap_plot", "latency_plot", "rate_plot"]

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
    # The first and the last would be cut off.
    ticks = [(each, utc_time(int(each), per_second=1, pattern=pattern)) for each in places[1:-1]]
    return Axis(low, high, ticks)


def rate_plot(findings: Findings, *, is_bytes: bool) -> str:
    """Return messages, or bytes, a second over time, a line for each stream."""
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
    """Return how far to the right a percentile lies: one more for every nine."""
    return -math.log10(1 - percent / 100)


def latency_plot(latencies: dict[str, Histogram]) -> str:
    """Return latencies by percentile, both axes by powers of ten."""
    drawn = {name: each for name, each in latencies.items() if each.count}
    most = max(each.count for each in drawn.values())
    # Beyond this there is less than one message.
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


def gap_plot(gaps: Sequence[Gap], names: Sequence[str], kinds: Sequence[str]) -> str:
    """Return gaps over time, a row for each recording, a colour for each kind.

    Args:
        gaps: Those whose time is known.
        names: Of the rows; a gap's is `recording N`.
        kinds: In the order of their colours.
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


def span_of(gap: Gap) -> tuple[float, float]:
    """Return from when to when something is missing, in seconds."""
    known = [each for each in (gap.before_ns, gap.after_ns) if each is not None]
    return min(known) / NS_PER_SECOND, max(known) / NS_PER_SECOND
