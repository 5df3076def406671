"""The results as a plot, and as one page with it.

Bars of medians with their ranges are SVG with nothing but text; the page in HTML needs no other
file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from benchmarks.reporting import figure, remarks, table
from benchmarks.results import metrics_of, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.results import Results, Row

__all__ = ["page", "svg"]

WIDTH: Final = 860
LABEL_WIDTH: Final = 250
BAR_WIDTH: Final = 420
LINE_HEIGHT: Final = 22
BAR_HEIGHT: Final = 14
MARGIN: Final = 16
COLOURS: Final = (("ours", "#2a6fdb"), ("floor", "#9aa0a6"), ("", "#d98a2b"))

STYLE: Final = """
body { font-family: sans-serif; margin: 2em auto; max-width: 70em; }
table { border-collapse: collapse; }
td, th { border: 1px solid #ccc; padding: 0.2em 0.6em; text-align: left; }
"""


def page(report: Mapping[str, Any]) -> str:
    """Return one page in HTML: the machine, the plot, and a table for each scenario."""
    facts = [
        f"<tr><th>{cell(name)}</th><td>{cell(value)}</td></tr>"
        for name, value in report["machine"].items()
    ]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>aeron_async: benchmarks</title>',
        f"<style>{STYLE}</style></head><body>",
        "<h1>Benchmarks of aeron_async</h1>",
        f"<p><code>{cell(report['command'])}</code></p>",
        *("<table>", *facts, "</table>"),
        svg(report),
    ]
    for name, results in report["scenarios"].items():
        parts += [f"<h2>{cell(name)}</h2>", f"<p>{cell(results['question'])}</p>", "<table>"]
        for number, texts in enumerate(table(results)):
            tag = "td" if number else "th"
            parts.append(f"<tr>{''.join(f'<{tag}>{cell(text)}</{tag}>' for text in texts)}</tr>")
        parts.append("</table>")
        parts += [f"<p>{cell(text)}</p>" for text in remarks(results)]
    return "\n".join([*parts, "</body></html>", ""])


def cell(value: object) -> str:
    """Return a value as text of a page."""
    return escape(str(value))


def svg(report: Mapping[str, Any]) -> str:
    """Return one picture: a group of bars for the first metric of each scenario."""
    parts: list[str] = []
    top = MARGIN
    for name, results in report["scenarios"].items():
        top = _group(parts, name, results, top)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
        f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{WIDTH}" height="{top}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def _group(parts: list[str], name: str, results: Results, top: int) -> int:
    """Add the bars of a scenario, and return where the next begins."""
    metric = metrics_of(results)[0]
    drawn = [row for row in rows(results, metric) if row.series is not None]
    if not drawn:
        return top
    # What no stream can reach would leave a hair of every other bar.
    streams = [row for row in drawn if not row.contender.startswith("floor")] or drawn
    most = max(row.series.high for row in streams if row.series is not None) or 1.0
    better = "more" if metric.is_more_better else "less"
    title = escape(f"{name}: {metric.unit}, {better} is better")
    top += LINE_HEIGHT
    parts.append(f'<text x="{MARGIN}" y="{top - 7}" font-weight="bold">{title}</text>')
    for row in drawn:
        parts += _bar(row, BAR_WIDTH / most, top)
        top += LINE_HEIGHT
    return top + MARGIN


def _bar(row: Row, scale: float, top: int) -> list[str]:
    series = row.series
    assert series is not None, "only what has been measured is drawn"
    colour = next(colour for start, colour in COLOURS if row.contender.startswith(start))
    low, length, high = (
        min(BAR_WIDTH, value * scale) for value in (series.low, series.median, series.high)
    )
    middle, right = top + BAR_HEIGHT / 2, LABEL_WIDTH + high + 8
    low, high = LABEL_WIDTH + low, LABEL_WIDTH + high
    cut = ", cut short" if series.median * scale > BAR_WIDTH else ""
    label, value = escape(row.contender), escape(figure(series.median) + cut)
    box = f'width="{length:.1f}" height="{BAR_HEIGHT}"'
    return [
        f'<text x="{LABEL_WIDTH - 8}" y="{middle + 4}" text-anchor="end">{label}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top}" {box} fill="{colour}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="black"/>',
        f'<text x="{right:.1f}" y="{middle + 4}">{value}</text>',
    ]
