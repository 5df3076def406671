"""Plots of a report, made of its findings."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.spark.pipeline.histogram import lower_bound
from aeron_async.spark.pipeline.report.plots import (
    Axis,
    Plot,
    duration_axis,
    format_amount,
    format_bytes,
    format_ns,
    format_share,
    linear_ticks,
    small_bars,
    time_axis,
)
from aeron_async.text import utc_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aeron_async.spark.pipeline.histogram import Histogram
    from aeron_async.spark.pipeline.report.findings import Findings, LatencyOverTime
    from aeron_async.spark.pipeline.report.gaps import Gaps
    from aeron_async.spark.pipeline.report.steps import Steps
    from aeron_async.spark.pipeline.report.stored import TableFiles

__all__ = [
    "PERCENTILES",
    "few",
    "file_bars",
    "gap_plot",
    "lag_plot",
    "latency_plot",
    "latency_time_plot",
    "length_plot",
    "quarantine_plot",
    "rate_plot",
    "stream_name",
    "time_of_step",
]

PERCENTILES: Final = ("50", "75", "90", "99", "99.9", "99.99", "99.999")
POINTS_PER_DECADE: Final = 24
MOST_LINES: Final = 8
"""Lines of a plot; with more, the last one is the sum of those with the fewest messages."""
ROW_HEIGHT: Final = 26
DRAWN_RECORDINGS: Final = 24
MOST_NINES: Final = 5.2
MOST_MARKS: Final = 3_000
LOW_PLOT: Final = 170
BAD: Final = 1
"""Colour of what should not be there."""


def few(sizes: Mapping[int, float]) -> tuple[list[int], list[int]]:
    """Return the streams that have a colour of their own, and those that share the last one."""
    ordered = sorted(sizes, key=lambda each: (-sizes[each], each))
    if len(ordered) <= MOST_LINES:
        return sorted(ordered), []
    return sorted(ordered[: MOST_LINES - 1]), sorted(ordered[MOST_LINES - 1 :])


def stream_name(streams: Sequence[int]) -> str:
    """Return the name of a line: that of its stream, or how many share it."""
    return f"stream {streams[0]}" if len(streams) == 1 else f"{len(streams):,} other streams"


def time_of_step(steps: Steps, place: int) -> str:
    """Return the beginning of a step, in UTC."""
    return utc_time(steps.start(place), per_second=1, pattern="%Y-%m-%d %H:%M:%S")


def axis_of(steps: Steps) -> Axis:
    """Return the axis of time of a plot."""
    return time_axis(steps.low_s, steps.high_s)


def rate_plot(findings: Findings, groups: Sequence[Sequence[int]], *, is_bytes: bool) -> str:
    """Plot messages or bytes per second over time.

    Args:
        findings: With steps, and rates.
        groups: The streams of each line.
        is_bytes: Which of the two.
    """
    steps = findings.steps
    assert steps is not None
    column, unit = (2, "B/s") if is_bytes else (1, "msg/s")
    lines = [
        [
            sum(findings.rates[stream_id][place][column] for stream_id in group)
            for place in range(steps.count)
        ]
        for group in groups
    ]
    ticks = linear_ticks(max(map(max, lines)), lambda value: format_amount(value, unit))
    plot = Plot(f"{unit} over time", axis_of(steps), Axis(0, ticks[-1][0], ticks))
    names = [stream_name(group) for group in groups]
    # A rate is the mean of its step, so the line has its point in the middle of it.
    middles = [(steps.start(place) + steps.end(place)) / 2 for place in range(steps.count)]
    for colour, (name, values) in enumerate(zip(names, lines, strict=True)):
        points = list(zip(middles, values, strict=True))
        if len(lines) == 1:
            plot.area([(x, 0) for x in middles], points, colour, name)
        plot.line(points, colour, name)
    for place in range(steps.count):
        words = [
            f"{name}: {format_amount(line[place], unit)}"
            for name, line in zip(names, lines, strict=True)
        ]
        title = f"{time_of_step(steps, place)} {', '.join(words)}"
        plot.strip(steps.start(place), steps.end(place), title)
    return plot.svg()


def quarantine_plot(steps: Steps, counts: Mapping[int, int]) -> str:
    """Plot messages in quarantine over time."""
    ticks = linear_ticks(max(counts.values()), lambda value: format_amount(value, ""))
    side = Axis(0, ticks[-1][0], ticks)
    plot = Plot("messages in quarantine over time", axis_of(steps), side, LOW_PLOT)
    for place, count in sorted(counts.items()):
        title = f"{time_of_step(steps, place)} {count:,} in quarantine"
        plot.column((steps.start(place), steps.end(place)), 0, count, BAD, title)
    return plot.svg()


def nines(percent: float) -> float:
    """Return the horizontal place of a percentile: the number of its nines."""
    return -math.log10(1 - percent / 100)


def latency_plot(latencies: Mapping[str, Histogram]) -> str:
    """Plot latencies by percentile, with logarithmic axes."""
    drawn = {name: each for name, each in latencies.items() if each.count}
    most = max(each.count for each in drawn.values())
    # Further right there is less than one message, or no label.
    right = min(max(math.log10(most), 1.0), MOST_NINES)
    low = max(min(each.percentile(0) for each in drawn.values()), 1)
    side = duration_axis(low, max(each.largest for each in drawn.values()))
    below = Axis(0, right, [(nines(float(each)), f"{each} %") for each in PERCENTILES])
    plot = Plot("latency by percentile", below, side)
    for colour, (name, histogram) in enumerate(drawn.items()):
        end = min(math.log10(histogram.count) if histogram.count > 1 else 0.0, right)
        count = max(int(end * POINTS_PER_DECADE), 1)
        places = [end * index / count for index in range(count + 1)]
        points = [(x, max(histogram.percentile(100 - 100 * 10**-x), 1)) for x in places]
        plot.line(points, colour, name)
    return plot.svg()


def latency_time_plot(
    steps: Steps, name: str, points: Sequence[LatencyOverTime], colour: int
) -> str:
    """Plot the median, the 99th percentile and the largest value of a latency over time."""
    low, high = min(each.median for each in points), max(each.largest for each in points)
    side = duration_axis(max(low, 1), max(high, 1))
    plot = Plot(f"{name} over time", axis_of(steps), side, LOW_PLOT)
    middles = [(steps.start(each.place) + steps.end(each.place)) / 2 for each in points]
    medians, highs, most = (
        list(zip(middles, values, strict=True))
        for values in zip(*((each.median, each.high, each.largest) for each in points), strict=True)
    )
    plot.area(medians, highs, colour, "from the median to the 99th percentile")
    plot.line(most, colour, "largest", "faint")
    plot.line(highs, colour, "99 %", "dashed")
    plot.line(medians, colour, "median")
    for each in points:
        title = (
            f"{time_of_step(steps, each.place)} median {format_ns(each.median)}, "
            f"99 % {format_ns(each.high)}, largest {format_ns(each.largest)}"
        )
        plot.strip(steps.start(each.place), steps.end(each.place), title)
    return plot.svg()


def lag_plot(findings: Findings) -> str:
    """Plot between which times the messages of batches have waited."""
    steps, lags = findings.minutes, findings.lags
    assert steps is not None
    places = sorted(lags.newest)
    low, high = min(lags.newest.values()), max(lags.oldest.values())
    side = duration_axis(max(low, 1), max(high, 1))
    plot = Plot("lag of the lake over time", axis_of(steps), side, LOW_PLOT)
    middles = [(steps.start(place) + steps.end(place)) / 2 for place in places]
    newest = [(x, lags.newest[place]) for x, place in zip(middles, places, strict=True)]
    oldest = [(x, lags.oldest[place]) for x, place in zip(middles, places, strict=True)]
    plot.area(newest, oldest, 0, "between the last and the first message of a batch")
    plot.line(oldest, 0, "first message of a batch", "faint")
    plot.line(newest, 0, "last message of a batch")
    for place in places:
        title = (
            f"{time_of_step(steps, place)} last message of a batch "
            f"{format_ns(lags.newest[place])}, first {format_ns(lags.oldest[place])}"
        )
        plot.strip(steps.start(place), steps.end(place), title)
    return plot.svg()


def gap_plot(steps: Steps, gaps: Gaps, kinds: Sequence[str]) -> str:
    """Plot gaps over time, with a row for each recording, and a shape and colour for each kind.

    Args:
        steps: Steps of time.
        gaps: Gaps, some of which have times.
        kinds: Kinds in the order of their colours.
    """
    marks = gaps.marks
    by_recording: Counter[int] = Counter()
    by_kind: Counter[str] = Counter()
    for (recording_id, kind, _), count in marks.items():
        by_recording[recording_id] += count
        by_kind[kind] += count
    ordered = sorted(by_recording, key=lambda each: (-by_recording[each], each))
    shown = sorted(ordered[:DRAWN_RECORDINGS])
    names = [f"recording {each}" for each in shown]
    if len(ordered) > DRAWN_RECORDINGS:
        names.append(f"{len(ordered) - DRAWN_RECORDINGS:,} others")
    rows = {recording_id: len(names) - index for index, recording_id in enumerate(shown)}
    side = Axis(0, len(names) + 1, [(len(names) - index, name) for index, name in enumerate(names)])
    plot = Plot("gaps over time", axis_of(steps), side, 50 + ROW_HEIGHT * (len(names) + 1))
    for gap in gaps.longest:
        assert gap.before_ns is not None
        assert gap.after_ns is not None
        row, colour = rows.get(gap.recording_id, 1), kinds.index(gap.kind)
        length = format_ns(gap.after_ns - gap.before_ns)
        title = f"{names[len(names) - row]}: {gap.kind}, {gap.missing:,} missing, lasted {length}"
        span = gap.before_ns / NS_PER_SECOND, gap.after_ns / NS_PER_SECOND
        plot.column(span, row - 0.2, row + 0.2, colour, title)
    width, sums = 1, added(marks, rows, 1)
    while len(sums) > MOST_MARKS:
        width *= 2
        sums = added(marks, rows, width)
    most = math.log10(max(sums.values()) + 1)
    # Kinds that are rare are drawn last, above the others.
    for (row, kind, place), count in sorted(
        sums.items(), key=lambda each: (-by_kind[each[0][1]], each[0])
    ):
        start, end = steps.start(place * width), steps.end(place * width + width - 1)
        number = kinds.index(kind)
        size = 0.7 + 0.8 * math.log10(count + 1) / most
        title = (
            f"{names[len(names) - row]}: {count:,} of kind {kind} within "
            f"{format_ns((end - start) * 1e9)} from {time_of_step(steps, place * width)}"
        )
        plot.mark((start + end) / 2, row, number, title, shape=number, size=size)
    return plot.svg()


def added(
    marks: Mapping[tuple[int, str, int], int], rows: Mapping[int, int], width: int
) -> Counter[tuple[int, str, int]]:
    """Return the gaps of each row, kind and several steps; recordings without a row share 1."""
    found: Counter[tuple[int, str, int]] = Counter()
    for (recording_id, kind, place), count in marks.items():
        found[rows.get(recording_id, 1), kind, place // width] += count
    return found


def length_plot(lengths: Mapping[int, Histogram], groups: Sequence[Sequence[int]]) -> str:
    """Plot how many messages have which length, with a bar for each power of two."""
    bars: dict[int, list[int]] = defaultdict(lambda: [0] * len(groups))
    for number, group in enumerate(groups):
        for stream_id in group:
            for index, count in lengths[stream_id].bins():
                bars[lower_bound(index).bit_length()][number] += count
    low, high = min(bars), max(bars)
    whole = sum(map(sum, bars.values()))
    ticks = linear_ticks(max(map(sum, bars.values())), lambda value: format_amount(value, ""))
    labels = [(bits + 0.5, shortest(bits)) for bits in range(low, high + 1)]
    below = Axis(low, high + 1, labels)
    plot = Plot("messages by length", below, Axis(0, ticks[-1][0], ticks))
    for bits, counts in sorted(bars.items()):
        floor = 0
        for colour, (group, count) in enumerate(zip(groups, counts, strict=True)):
            if count:
                title = (
                    f"{stream_name(group)}: {count:,} messages ({format_share(count, whole)}) "
                    f"of {between(bits)}"
                )
                plot.column((bits + 0.08, bits + 0.92), floor, floor + count, colour, title)
                floor += count
    return plot.svg()


def shortest(bits: int) -> str:
    """Return the label of a bar: the shortest length with so many bits."""
    value = 1 << (bits - 1) if bits else 0
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= scale:
            return f"{value // scale} {unit}"
    return f"{value} B"


def between(bits: int) -> str:
    """Return the lengths with so many bits."""
    return "0 bytes" if not bits else f"{1 << (bits - 1):,} to {(1 << bits) - 1:,} bytes"


def file_bars(files: TableFiles) -> str:
    """Draw how many files have which length, as small as a word."""
    low, high = min(files.sizes), max(files.sizes)
    words = [
        f"{count:,} from {format_bytes(2 ** (bits - 1))}" for bits, count in files.sizes.items()
    ]
    counts = [files.sizes.get(bits, 0) for bits in range(low, high + 1)]
    return small_bars(counts, f"files by length: {', '.join(words)}")
