"""HTML page of a report: findings in words, tables and plots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aeron_async.spark.pipeline.report.findings import read_findings
from aeron_async.spark.pipeline.report.plots import (
    COLOURS,
    PERCENTILES,
    escape,
    format_amount,
    format_ns,
    gap_plot,
    latency_plot,
    rate_plot,
)
from aeron_async.text import utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.spark.pipeline.lake import Lake
    from aeron_async.spark.pipeline.report.findings import Findings, Session

__all__ = [
    "STYLE",
    "render_report",
]

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #d9dee7;
  --paper: #ffffff; --card: #f6f8fb; --c0: #2563eb; --c1: #d9480f; --c2: #2b8a3e; --c3: #9c36b5;
  --c4: #0b7285; --c5: #c2255c; --c6: #867400; --c7: #5f3dc4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf2; --soft: #9aa5b8; --line: #333c4d;
  --paper: #12161d; --card: #1a202a; --c0: #6ea8fe; --c1: #ff922b; --c2: #69db7c; --c3: #da77f2;
  --c4: #3bc9db; --c5: #f783ac; --c6: #ffe066; --c7: #b197fc; } }
body { margin: 0 auto; max-width: 940px; padding: 24px 20px 60px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 16px; min-width: 110px; }
.card b { display: block; font-size: 20px; } .card span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
td.text, th.text { text-align: left; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .side { text-anchor: end; } svg .below { text-anchor: middle; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .bar { fill: var(--soft); opacity: .5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 14px; height: 3px; margin-right: 6px;
  vertical-align: middle; }
""" + "".join(
    f"svg .line.c{each} {{ stroke: var(--c{each}); }} svg .dot.c{each} {{ fill: var(--c{each}); }}"
    f" .legend .c{each} {{ background: var(--c{each}); }}\n"
    for each in range(8)
)


LISTED_GAPS: Final = 50
LISTED_SESSIONS: Final = 500
DRAWN_RECORDINGS: Final = 40
TEXT: Final = ' class="text"'
NO_TIMES: Final = (
    "The messages carry no time: give `pipeline run` --timestamp-from, so that rates and gaps "
    "have one."
)


def render_report(lake: Lake, now_ms: int) -> str:
    """Return the page about a lake.

    Args:
        lake: Lake with gold tables.
        now_ms: Time shown on the page, in milliseconds since 1970.

    Raises:
        ConfigurationError: The folder is no lake, or nothing was ingested.
    """
    findings = read_findings(lake)
    title = f"Recordings in {lake.root.name}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(str(lake.root))}, drawn {moment(now_ms)}</p>",
        cards(findings),
        throughput(findings),
        latencies(findings),
        gaps(findings),
        streams(findings),
        sessions(findings.sessions),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def moment(epoch_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return utc_time(epoch_ms, per_second=1_000, pattern="%Y-%m-%d %H:%M:%S UTC")


def cards(findings: Findings) -> str:
    """Return cards with the most important numbers."""
    messages = sum(each.messages for each in findings.streams)
    length = sum(each.bytes for each in findings.streams)
    shown = (
        (f"{len(findings.streams):,}", "streams"),
        (f"{len(findings.sessions):,}", "recordings"),
        (f"{messages:,}", "messages"),
        (format_amount(length, "B"), "of payload"),
        (f"{findings.inner_gaps:,}", "gaps"),
    )
    inner = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{name}</span></div>'
        for value, name in shown
    )
    return f'<div class="cards">{inner}</div>'


def throughput(findings: Findings) -> str:
    """Return the section with rates over time."""
    if not findings.rates:
        return f"<h2>Throughput</h2><p>{escape(NO_TIMES)}</p>"
    step = "second" if findings.step == 1 else f"{findings.step:,} seconds"
    return (
        f"<h2>Throughput</h2><p>Means of every {step}, in UTC.</p>"
        + legend([f"stream {each}" for each in findings.rates])
        + rate_plot(findings, is_bytes=False)
        + rate_plot(findings, is_bytes=True)
    )


def latencies(findings: Findings) -> str:
    """Return the section with latencies by percentile, as a plot and as a table."""
    measured = {name: each for name, each in findings.latencies.items() if each.count}
    if not findings.latencies:
        return "<h2>Latency</h2><p>None was asked for: see --latency of `pipeline run`.</p>"
    rows = [
        [
            name,
            f"{each.count:,}",
            *(format_ns(each.percentile(percent)) for percent in PERCENTILES),
            format_ns(each.largest),
            f"{each.negative_count:,}",
        ]
        for name, each in findings.latencies.items()
    ]
    heads = ["between", "messages", *(f"{each} %" for each in PERCENTILES), "most", "below 0"]
    drawn = legend(list(measured)) + latency_plot(measured) if measured else ""
    return (
        "<h2>Latency</h2><p>Counted in bins no wider than 1/128 of what is in them; what is below "
        "zero, by clocks that disagree, is counted apart.</p>" + drawn + table(heads, rows, {0})
    )


def gaps(findings: Findings) -> str:
    """Return the section with the gaps, as a plot and as a table."""
    if not findings.gaps:
        return "<h2>Gaps</h2><p>None was found.</p>"
    counts = Counter(gap.kind for gap in findings.gaps)
    kinds = sorted(counts)
    timed = [gap for gap in findings.gaps if (gap.before_ns, gap.after_ns) != (None, None)]
    ids = sorted({gap.recording_id for gap in timed})[:DRAWN_RECORDINGS]
    drawn = ""
    if ids:
        shown = [gap for gap in timed if gap.recording_id in ids]
        drawn = gap_plot(shown, [f"recording {each}" for each in ids], kinds)
    rows = [
        [
            gap.kind,
            f"{gap.recording_id}",
            f"{gap.stream_id}",
            gap.name or "positions",
            f"{gap.position:,}",
            f"{gap.missing:,}",
            time_of(gap.after_ns),
        ]
        for gap in findings.gaps[:LISTED_GAPS]
    ]
    heads = ["kind", "recording", "stream", "of", "behind position", "missing", "until"]
    more = len(findings.gaps) - len(rows)
    rest = f"<p>And {more:,} more, in gold/gaps.</p>" if more else ""
    return (
        "<h2>Gaps</h2><p>sequence: numbers left out; backwards: numbers again or out of order; "
        "padding: bytes lost, or never sent, in mid term; missing: whole terms.</p>"
        + legend([f"{kind} ({counts[kind]:,})" for kind in kinds])
        + drawn
        + table(heads, rows, {0, 3})
        + rest
    )


def time_of(epoch_ns: int | None) -> str:
    """Return a date and time in UTC, to the microsecond."""
    if epoch_ns is None:
        return ""
    return utc_time(epoch_ns, per_second=1_000_000_000, pattern="%Y-%m-%d %H:%M:%S.%f")


def streams(findings: Findings) -> str:
    """Return the table of streams."""
    rows = [
        [
            f"{each.stream_id}",
            each.channel,
            f"{each.recordings:,}",
            f"{each.messages:,}",
            format_amount(each.bytes, "B"),
            f"{each.gaps:,}",
        ]
        for each in findings.streams
    ]
    heads = ["stream", "channel", "recordings", "messages", "payload", "gaps"]
    return "<h2>Streams</h2>" + table(heads, rows, {1})


def sessions(found: Sequence[Session]) -> str:
    """Return the table of recordings."""
    rows = [session_row(each) for each in found[:LISTED_SESSIONS]]
    heads = [
        *("recording", "session", "stream", "source", "began", "from", "to", "messages"),
        *("payload", "seconds", "rate", "throughput"),
    ]
    more = len(found) - len(rows)
    rest = f"<p>And {more:,} more, in gold/runs.</p>" if more else ""
    return "<h2>Sessions</h2>" + table(heads, rows, {3, 4}) + rest


def session_row(session: Session) -> list[str]:
    """Return the table cells of one recording."""
    run, recording, seconds = session.run, session.recording, session.seconds
    return [
        f"{run.recording_id}",
        f"{run.session_id}",
        f"{run.stream_id}",
        recording["source_identity"],
        moment(recording["start_timestamp_ms"]),
        f"{run.first_position:,}",
        f"{run.end_position:,}",
        f"{run.messages:,}",
        format_amount(run.bytes, "B"),
        f"{seconds:,.1f}" if seconds else "",
        format_amount(run.messages / seconds, "msg/s") if seconds else "",
        format_amount(run.bytes / seconds, "B/s") if seconds else "",
    ]


def legend(names: Iterable[str]) -> str:
    """Return the legend of a plot."""
    inner = "".join(
        f'<span><i class="c{index % COLOURS}"></i>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<div class="legend">{inner}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], texts: set[int]) -> str:
    """Return a table; the columns in `texts` hold text, the others numbers."""

    def cells(tag: str, row: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{TEXT if index in texts else ''}>{escape(str(cell))}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
