"""HTML page of a report: what a lake has, as words, tables and plots.

The page is the template `templates/report.html.j2`; this module prepares the values that it shows.

Invariant: every value passes `printable` and then Jinja's autoescape. Channels, names and sources
come from strangers; only the plots, which escape their own texts, are inserted as markup.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aeron_async.spark.pipeline.report.findings import read_findings
from aeron_async.spark.pipeline.report.plots import (
    COLOURS,
    PERCENTILES,
    format_amount,
    format_ns,
    gap_plot,
    latency_plot,
    rate_plot,
)
from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.report.findings import Findings

__all__ = ["render_report"]

LISTED_GAPS: Final = 50
LISTED_SESSIONS: Final = 500
DRAWN_RECORDINGS: Final = 40


def render_report(lake: Lake, now_ms: int) -> str:
    """Return the page about a lake.

    Args:
        lake: Lake with gold tables.
        now_ms: Time shown on the page, in milliseconds since 1970.

    Raises:
        ConfigurationError: The folder is no lake, or nothing was ingested.
    """
    findings = read_findings(lake)
    measured = {name: each for name, each in findings.latencies.items() if each.count}
    counts = Counter(gap.kind for gap in findings.gaps)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=f"Recordings in {lake.root.name}",
            root=lake.root,
            now_ms=now_ms,
            findings=findings,
            cards=list(cards(findings)),
            stream_names=[f"stream {each}" for each in findings.rates],
            rate_plots=list(rate_plots(findings)),
            measured=list(measured),
            latency_plot=markup(latency_plot(measured)) if measured else None,
            gap_kinds=[f"{kind} ({counts[kind]:,})" for kind in sorted(counts)],
            gap_plot=plot_of_gaps(findings, sorted(counts)),
            listed_gaps=LISTED_GAPS,
            listed_sessions=LISTED_SESSIONS,
            percentiles=PERCENTILES,
            colours=COLOURS,
        )
    )


@cache
def environment() -> Environment:
    """Return the environment of the templates, which escapes every value."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=PackageLoader("aeron_async.spark.pipeline.report"),
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        amount=format_amount, grouped="{:,}".format, moment=moment, ns=format_ns, time=time_of
    )
    return made


def shown(value: object) -> str:
    """Return a value without characters that hide or reverse others; markup stays as it is."""
    return value if isinstance(value, Markup) else printable(value)


def markup(svg: str) -> Markup:
    """Return a plot as markup: it has escaped the texts that it shows."""
    return Markup(svg)  # noqa: S704 - `Plot` escapes every text


def moment(epoch_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return utc_time(epoch_ms, per_second=1_000, pattern="%Y-%m-%d %H:%M:%S UTC")


def time_of(epoch_ns: int | None) -> str:
    """Return a date and time in UTC, to the microsecond."""
    if epoch_ns is None:
        return ""
    return utc_time(epoch_ns, per_second=1_000_000_000, pattern="%Y-%m-%d %H:%M:%S.%f")


def cards(findings: Findings) -> Iterator[tuple[str, str]]:
    """Yield the most important numbers, and what they count."""
    yield f"{len(findings.streams):,}", "streams"
    yield f"{len(findings.sessions):,}", "recordings"
    yield f"{sum(each.messages for each in findings.streams):,}", "messages"
    yield format_amount(sum(each.bytes for each in findings.streams), "B"), "of payload"
    yield f"{findings.inner_gaps:,}", "gaps"


def rate_plots(findings: Findings) -> Iterator[Markup]:
    """Yield plots of messages and of bytes over time, if messages have times."""
    if findings.rates:
        yield markup(rate_plot(findings, is_bytes=False))
        yield markup(rate_plot(findings, is_bytes=True))


def plot_of_gaps(findings: Findings, kinds: list[str]) -> Markup:
    """Return a plot of the gaps with known times; empty markup if there are none."""
    timed = [gap for gap in findings.gaps if (gap.before_ns, gap.after_ns) != (None, None)]
    ids = sorted({gap.recording_id for gap in timed})[:DRAWN_RECORDINGS]
    if not ids:
        return Markup()
    drawn = [gap for gap in timed if gap.recording_id in ids]
    return markup(gap_plot(drawn, [f"recording {each}" for each in ids], kinds))
