"""The dashboard and the alert rules, as the tests read them."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from aeron_async.metrics.__main__ import shipped
from aeron_async.metrics.definitions import (
    CALL_LABELS,
    INFO,
    METRICS,
    STREAM_LABELS,
    MetricKind,
    MetricSource,
)

TARGET_LABELS = {"job", "instance"}
"""What Prometheus adds to every series."""
OF_STREAMS = {each for each in MetricSource if each.name not in {"CALLS", "DRIVER", "PAGE"}}
FIELD = re.compile(r"^ +(?:- )?(alert|expr|for|severity|summary|runbook_url): (.+)$", re.MULTILINE)
SELECTOR = re.compile(r"\b(aeron_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right) *\(([^)]*)\)")
MATCHER = re.compile(r'^([a-z_]\w*)(?:=~|!~|!=|=)"[^"]*"$')


class Rule(NamedTuple):
    """One alert rule."""

    alert: str
    expr: str
    wait: str
    severity: str
    summary: str
    runbook_url: str


def rules() -> list[Rule]:
    found = [value for _, value in FIELD.findall(shipped("alerts"))]
    names = [name for name, _ in FIELD.findall(shipped("alerts"))]
    width = len(Rule._fields)
    expected = ["alert", "expr", "for", "severity", "summary", "runbook_url"]
    assert names == expected * (len(names) // width)
    return [Rule(*found[index : index + width]) for index in range(0, len(found), width)]


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(shipped("dashboard"))
    return board


def expressions() -> list[str]:
    """Return every expression of the dashboard, with its variables."""
    return [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]


def filled(expression: str, interval: str = "1m") -> str:
    """Return an expression as Grafana sends it, with everything chosen."""
    text = expression.replace("$__rate_interval", interval)
    return re.sub(r'"\$\w+"', '".*"', text)


def labels_by_series() -> dict[str, set[str]]:
    """Return the labels that each series may have, as the definitions say."""
    found = {}
    for metric in METRICS:
        labels = set(STREAM_LABELS) if metric.source in OF_STREAMS else set[str]()
        labels |= {metric.label} - {""}
        if metric.source is MetricSource.CALLS:
            labels |= set(CALL_LABELS)
        if metric is INFO:
            labels = {"version", "kernel", "loop"}
        if metric.kind is MetricKind.HISTOGRAM:
            found[f"{metric.name}_bucket"] = labels | {"le"} | TARGET_LABELS
            found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels | TARGET_LABELS
        else:
            found[metric.name] = labels | TARGET_LABELS
    return found


def faults(expression: str) -> list[str]:
    """Return which metrics and labels of an expression the definitions do not have."""
    known, found, used = labels_by_series(), [], set[str]()
    for name, matchers in SELECTOR.findall(expression):
        if name not in known:
            found.append(f"there is no metric {name}")
            continue
        used |= known[name]
        for each in filter(None, matchers.split(",")):
            matcher = MATCHER.match(each)
            if matcher is None or matcher[1] not in known[name]:
                found.append(f"{name} has no label of {each}")
    for labels in GROUPING.findall(expression):
        found += [
            f"nothing here has the label {each}"
            for each in labels.replace(" ", "").split(",")
            if each and each not in used
        ]
    return found
