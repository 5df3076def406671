"""The page about metrics names each of them as the table does."""

from __future__ import annotations

import attrs

from aeron_async.metrics.definitions import CALL_LABELS, METRICS, REFUSED, MetricKind, MetricSource
from aeron_async.metrics.endpoint import ServerLimits
from tests.examples.pages import DOCS, rows, section

PAGE = DOCS / "howto" / "metrics.md"


def test_the_page_names_every_metric_with_its_type_labels_and_help() -> None:
    expected = []
    others = {
        MetricSource.RECORDINGS,
        MetricSource.ARCHIVE,
        MetricSource.CALLS,
        MetricSource.DRIVER,
        MetricSource.PAGE,
    }
    for metric in METRICS:
        is_of_streams = metric.source not in others
        labels = ["stream"] * is_of_streams
        labels += [f"`{each}`" for each in CALL_LABELS] * (metric.source is MetricSource.CALLS)
        labels += [f"`{metric.label}`"] * bool(metric.label)
        otel = f"`{metric.otel_name}`" if metric is not REFUSED else ""
        if metric.kind is MetricKind.HISTOGRAM:
            otel = f"`{metric.otel_name}.count`, `{metric.otel_name}.sum`"
        kind = metric.kind.value
        expected.append([f"`{metric.name}`", kind, " ".join(labels), otel, metric.help])
    assert rows(section(PAGE, "Names")) == expected


def test_the_page_names_every_limit_of_the_server() -> None:
    limits = ServerLimits()
    shown = {row[0].split("`")[1]: row[1] for row in rows(section(PAGE, "Serve them"))}
    assert {name: shown[name] for name in attrs.asdict(limits) if name in shown} == {
        "connections": f"{limits.connections}",
        "request_bytes": f"{limits.request_bytes // 1_024} KiB",
        "request_s": f"{limits.request_s:g} s",
        "answer_s": f"{limits.answer_s:g} s",
        "leftover_s": f"{limits.leftover_s:g} s",
    }
