"""HTML page of a report: what a lake has, as words, tables and plots.

The page is the template `templates/report.html.j2`; this module prepares the values that it shows.
It is one file without a script, and asks for nothing from elsewhere.

Invariant: every value passes `printable` and then Jinja's autoescape. Channels, names and sources
come from strangers; only the plots, which escape their own texts, are inserted as markup.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aeron_async.spark.pipeline.report.drawings import (
    PERCENTILES,
    few,
    file_bars,
    gap_plot,
    lag_plot,
    latency_plot,
    latency_time_plot,
    length_plot,
    quarantine_plot,
    rate_plot,
    stream_name,
)
from aeron_async.spark.pipeline.report.findings import read_findings
from aeron_async.spark.pipeline.report.gaps import LISTED_GAPS
from aeron_async.spark.pipeline.report.plots import (
    COLOURS,
    format_amount,
    format_bytes,
    format_ns,
    format_share,
)
from aeron_async.spark.pipeline.report.reading import EVERYTHING
from aeron_async.spark.pipeline.runs import GapKind
from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.report.findings import Findings
    from aeron_async.spark.pipeline.report.reading import ReportRange

__all__ = ["Report", "render_report"]

LISTED: Final = 20
"""Rows of a table that are shown at once; more are folded, or only counted."""
TOO_WIDE: Final = 1_000_000_000
LISTED_SESSIONS: Final = 500
LISTED_STREAMS: Final = 200
MOST_LATENCIES: Final = 8
"""Latencies that are drawn; the table has all."""
KINDS: Final = (GapKind.SEQUENCE, GapKind.BACKWARDS, GapKind.PADDING, GapKind.MISSING)
"""In the order of their colours and shapes."""
SECONDS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@attrs.frozen
class Report:
    """A page, and whether there was something to show.

    Attributes:
        page: The page as HTML.
        is_empty: Whether the range has no messages.
    """

    page: str
    is_empty: bool


@attrs.frozen
class Card:
    """An important number."""

    value: str
    name: str
    section: str
    is_bad: bool = False
    exact: str = ""


def render_report(lake: Lake, now_ms: int, shown: ReportRange = EVERYTHING) -> Report:
    """Return the page about a lake.

    Args:
        lake: Lake with gold tables.
        now_ms: Time shown on the page, in milliseconds since 1970.
        shown: Range of time, and streams.

    Raises:
        ConfigurationError: The folder is no lake, or nothing was ingested.
    """
    findings = read_findings(lake, shown)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            title=f"Recordings in {lake.root.name}",
            root=lake.root,
            now_ms=now_ms,
            found=findings,
            range_text=range_text(shown),
            extent_text=extent_text(findings),
            cards=list(cards(findings)),
            percentiles=PERCENTILES,
            colours=COLOURS,
            listed=LISTED,
            listed_gaps=LISTED_GAPS,
            listed_sessions=LISTED_SESSIONS,
            listed_streams=LISTED_STREAMS,
            **drawn(findings),
        )
    )
    return Report(page, findings.is_empty)


@cache
def environment() -> Environment:
    """Return the environment of the templates, which escapes every value."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=PackageLoader("aeron_async.spark.pipeline.report"),
        finalize=shown_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        amount=format_amount,
        size=format_bytes,
        grouped="{:,}".format,
        moment=moment,
        second=second_of,
        ns=format_ns,
        time=time_of,
        duration=duration,
        bars=lambda files: markup(file_bars(files)),
    )
    made.globals.update(share=format_share)
    return made


def shown_text(value: object) -> str:
    """Return a value without characters that hide or reverse others; markup stays as it is."""
    return value if isinstance(value, Markup) else printable(value)


def markup(svg: str) -> Markup:
    """Return a plot as markup: it has escaped the texts that it shows."""
    return Markup(svg)  # noqa: S704 - `Plot` escapes every text


def moment(epoch_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return utc_time(epoch_ms, per_second=1_000, pattern="%Y-%m-%d %H:%M:%S UTC")


def second_of(epoch_ms: int) -> str:
    """Return the same where it is known that it is UTC."""
    return utc_time(epoch_ms, per_second=1_000)


def minute_of(epoch_s: int) -> str:
    """Return a time in UTC, to the minute."""
    return utc_time(epoch_s, per_second=1, pattern="%Y-%m-%d %H:%M UTC")


def time_of(epoch_ns: int | None) -> str:
    """Return a date and time in UTC, to the microsecond."""
    if epoch_ns is None:
        return ""
    return utc_time(epoch_ns, per_second=1_000_000_000, pattern="%Y-%m-%d %H:%M:%S.%f")


def duration(seconds: int) -> str:
    """Return a step of time, such as `minute` or `5 minutes`."""
    length, unit = next(each for each in SECONDS if seconds % each[0] == 0)
    return unit if seconds == length else f"{seconds // length:,} {unit}s"


def range_text(shown: ReportRange) -> str:
    """Return a range in words; empty for everything."""
    words = []
    if shown.since_s is not None:
        words.append(f"from {minute_of(shown.since_s)}")
    if shown.until_s is not None:
        words.append(f"until {minute_of(shown.until_s)}")
    if shown.streams:
        name = "stream" if len(shown.streams) == 1 else "streams"
        words.append(f"of {name} {', '.join(map(str, shown.streams))}")
    return " ".join(words)


def extent_text(findings: Findings) -> str:
    """Return the time of all messages of the lake in words; empty if it is not known."""
    if findings.extent is None:
        return ""
    low_s, high_s = findings.extent
    return f"from {minute_of(low_s)} until {minute_of(high_s)}"


def cards(findings: Findings) -> Iterator[Card]:
    """Yield the most important numbers."""
    decoding, lags = findings.decoding, findings.lags
    yield count_card(findings.messages, "messages", "throughput")
    yield Card(format_bytes(findings.bytes), "of payload", "lengths")
    streams = len({each.stream_id for each in findings.streams})
    recordings = len(findings.sessions)
    yield count_card(streams, "stream" if streams == 1 else "streams", "streams")
    yield count_card(recordings, "recording" if recordings == 1 else "recordings", "sessions")
    gaps = findings.gap_count
    yield count_card(gaps, "gap" if gaps == 1 else "gaps", "gaps", is_bad=gaps > 0)
    if decoding.decoded or decoding.put_aside:
        yield count_card(decoding.decoded, "decoded", "decoding")
        aside = decoding.put_aside
        yield count_card(aside, "in quarantine", "decoding", is_bad=aside > 0)
    if lags.last_ns is not None:
        yield Card(format_ns(lags.last_ns), "lag of the last batch", "lag")
    stored = sum(each.bytes for each in findings.files)
    yield Card(format_bytes(stored), "in files", "files")


def count_card(count: int, name: str, section: str, *, is_bad: bool = False) -> Card:
    """Return the card of a count, which is shortened if it has more than nine digits."""
    exact = f"{count:,}"
    value = exact if count < TOO_WIDE else format_amount(count, "")
    return Card(value, name, section, is_bad, exact)


def drawn(findings: Findings) -> dict[str, Any]:
    """Return the plots, and the names in their legends; an empty one has nothing to show."""
    totals = {
        stream_id: sum(point[1] for point in points) for stream_id, points in findings.rates.items()
    }
    groups = groups_of(totals)
    rates = [
        markup(rate_plot(findings, groups, is_bytes=is_bytes))
        for is_bytes in (False, True)
        if groups
    ]
    lengths = {key: each for key, each in findings.lengths.items() if each.count}
    length_groups = groups_of({key: each.count for key, each in lengths.items()})
    measured = {name: each for name, each in findings.latencies.items() if each.count}
    few_measured = dict(list(measured.items())[:MOST_LATENCIES])
    counts: Counter[str] = Counter()
    for each in findings.gaps.summaries:
        counts[each.kind] += each.count
    kinds = [*KINDS, *sorted(set(counts) - set(KINDS))]
    steps, aside = findings.minutes, findings.decoding.quarantined
    return {
        "rate_names": [stream_name(group) for group in groups],
        "rate_plots": rates,
        "length_names": [stream_name(group) for group in length_groups],
        "length_plot": markup(length_plot(lengths, length_groups)) if lengths else Markup(),
        "latency_names": list(few_measured),
        "latency_plot": markup(latency_plot(few_measured)) if few_measured else Markup(),
        "latency_times": [
            (name, markup(latency_time_plot(steps, name, findings.latency_times[name], colour)))
            for colour, name in enumerate(few_measured)
            if steps is not None and name in findings.latency_times
        ],
        "quarantine_plot": markup(quarantine_plot(steps, aside)) if steps and aside else Markup(),
        "lag_plot": markup(lag_plot(findings)) if findings.lags.newest else Markup(),
        "gap_names": [
            (number, f"{kind} ({counts[kind]:,})")
            for number, kind in enumerate(kinds)
            if counts[kind]
        ],
        "gap_plot": (
            markup(gap_plot(steps, findings.gaps, kinds))
            if steps is not None and findings.gaps.marks
            else Markup()
        ),
        "reasons": sorted(
            (
                (stream_id, reason, count)
                for (stream_id, reason), count in findings.decoding.reasons.items()
            ),
            key=lambda each: (-each[2], each[0], each[1]),
        ),
    }


def groups_of(totals: dict[int, float]) -> list[list[int]]:
    """Return the streams of each line of a plot."""
    own, others = few(totals)
    return [[each] for each in own] + ([others] if others else [])
