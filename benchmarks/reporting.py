"""Results as people read them: tables in Markdown, and what has changed since a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.goals import goal_lines
from benchmarks.results import figure, metrics_of, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.results import Change, Results, Row

__all__ = ["change_lines", "figure", "markdown", "remarks", "table"]


def markdown(report: Mapping[str, Any]) -> str:
    """Return everything that was measured, a table for each scenario and metric."""
    machine = "; ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [f"Machine: {machine}.", "", f"Command: `{report['command']}`.", ""]
    for name, results in report["scenarios"].items():
        lines += [f"### {name}", "", str(results["question"]), ""]
        lines += _table(results)
    return "\n".join([*lines, *goal_lines(report)])


def _table(results: Results) -> list[str]:
    heads, *lines = (f"| {' | '.join(texts)} |" for texts in table(results))
    rule = "|---" * (heads.count("|") - 1) + "|"
    said = [f"- {each}" for each in remarks(results)]
    return [heads, rule, *lines, "", *said, *([""] if said else [])]


def table(results: Results) -> list[list[str]]:
    """Return the texts of the table of a scenario, the heads of its columns first."""
    metrics = metrics_of(results)
    columns = [list(rows(results, metric)) for metric in metrics]
    first = next(iter(results["contenders"]), "")
    heads = [head for metric in metrics for head in (metric.unit, f"{first}, times better")]
    return [
        ["contender", *heads],
        *(
            [cells[0].contender, *(text for cell in cells for text in _cells(cell))]
            for cells in zip(*columns, strict=True)
        ),
    ]


def remarks(results: Results) -> list[str]:
    """Return who has no figure, or has failed, and why."""
    found = rows(results, metrics_of(results)[0])
    return [f"{row.contender}: {row.remark}" for row in found if row.remark]


def _cells(row: Row) -> tuple[str, str]:
    series = row.series
    if series is None:
        return "", ""
    text = f"{figure(series.median)} ({figure(series.low)} to {figure(series.high)})"
    return text, "" if row.ratio is None else figure(row.ratio)


def change_lines(found: Iterable[Change]) -> list[str]:
    """Return a line for each figure that both have, the regressions named as such, worst first."""
    return [
        f"{'REGRESSION' if each.is_regression else 'ok':<10} {each.ratio:6.2f} x  "
        f"{each.scenario}, {each.contender}, {each.metric}: "
        f"{figure(each.before)} before, {figure(each.now)} now"
        for each in sorted(found, key=lambda each: (each.ratio, each.scenario, each.contender))
    ]
