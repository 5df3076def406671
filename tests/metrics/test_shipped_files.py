"""The dashboard and the alert rules fit the metrics, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.metrics.__main__ import FILES, main, shipped
from aeron_async.metrics.definitions import METRICS, MetricKind
from aeron_async.metrics.text import MetricsText
from aeron_async.stats import LOSS_CAUSES
from tests.examples.pages import ROOT, bare, rows, section
from tests.metrics.shipped import (
    TARGET_LABELS,
    Rule,
    dashboard,
    expressions,
    faults,
    filled,
    labels_by_series,
    rules,
)
from tests.metrics.snapshots import everything, samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = [
    "Is it me?",
    "Streams in trouble",
    "Losses by cause",
    "Back pressure",
    "Lag",
    "Driver",
    "Budgets",
    "Archive",
    "Calls",
]
TARGET = {"job": "feed", "instance": "a:9464"}
STREAM = {"stream": "1001", "channel": "aeron:ipc"}


def targets(node: Any) -> Iterator[Any]:
    """Yield whatever in the dashboard names a data source."""
    if isinstance(node, dict):
        if "datasource" in node:
            yield node["datasource"]
        for each in node.values():
            yield from targets(each)
    elif isinstance(node, list):
        for each in node:
            yield from targets(each)


# What they name.


@pytest.mark.parametrize("expression", expressions())
def test_the_dashboard_asks_only_for_what_there_is(expression: str) -> None:
    assert faults(expression) == []
    assert set(re.findall(r"\$\w+", expression)) <= {
        "$__rate_interval",
        *(f"${each['name']}" for each in dashboard()["templating"]["list"]),
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.alert)
def test_an_alert_looks_only_at_what_there_is(rule: Rule) -> None:
    assert faults(rule.expr) == []
    assert rule.severity in {"warning", "critical"}
    assert re.fullmatch(r"[1-9]\d*[sm]", rule.wait)
    named = set(re.findall(r"\$labels\.(\w+)", rule.summary + rule.runbook_url))
    (first, *_) = re.findall(r"\baeron_\w+", rule.expr)
    assert named <= labels_by_series()[first]


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("aeron_lag_seconds > 1", "there is no metric aeron_lag_seconds"),
        ('aeron_connected{by="x"}', 'aeron_connected has no label of by="x"'),
        ("aeron_images{stream=1}", "aeron_images has no label of stream=1"),
        ("sum by (cause) (aeron_connected)", "nothing here has the label cause"),
    ],
)
def test_what_there_is_not_would_be_found(expression: str, fault: str) -> None:
    assert faults(expression) == [fault]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(expressions())
    missing = [each.name for each in METRICS if each.name not in shown]
    assert missing == []


def test_a_page_has_no_labels_that_the_definitions_lack() -> None:
    page = MetricsText(info={"kernel": "6.18", "loop": "uvloop"}).render(everything(), now_ns=2)
    known = labels_by_series()
    for name, labels in samples(page):
        assert {label for label, _ in labels} <= known[name] - TARGET_LABELS, name


def test_counters_are_only_asked_for_their_rates() -> None:
    counters = {each.name for each in METRICS if each.kind is MetricKind.COUNTER}
    for expression in expressions():
        for name in counters & set(re.findall(r"aeron_\w+", expression)):
            assert re.search(rf"\b(rate|increase)\({name}\b", expression), expression


# The dashboard.


def test_the_dashboard_is_what_grafana_imports() -> None:
    board = dashboard()
    assert (board["schemaVersion"], board["uid"], board["id"]) == (39, "aeron-async", None)
    assert "apiVersion" not in board
    (source,) = board["__inputs"]
    assert (source["name"], source["type"], source["pluginId"]) == (
        "DS_PROMETHEUS",
        "datasource",
        "prometheus",
    )
    assert {json.dumps(each) for each in targets(board)} == {
        json.dumps({"type": "prometheus", "uid": "${DS_PROMETHEUS}"})
    }
    kinds = {each["type"] for each in board["panels"]} - {"row"}
    assert kinds == {each["id"] for each in board["__requires"] if each["type"] == "panel"}
    assert [each["title"] for each in board["panels"] if each["type"] == "row"] == ROWS


def test_panels_lie_side_by_side_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] == "row" or panel["description"], panel["title"]
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        names = [each["refId"] for each in panel.get("targets", ())]
        assert len(set(names)) == len(names)


# The alert rules.


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    return {each.lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.alert)
def test_every_alert_leads_to_a_section_of_a_page(rule: Rule) -> None:
    page, _, anchor = rule.runbook_url.partition("#")
    for cause in LOSS_CAUSES:
        assert anchor.replace("{{ $labels.cause }}", cause) in anchors(page)


def test_every_cause_of_losses_has_an_alert() -> None:
    causes = [
        cause
        for rule in rules()
        if rule.runbook_url.endswith("{{ $labels.cause }}")
        for cause in set(re.findall(r'cause=~"([^"]*)"', rule.expr))
    ]
    assert sorted(each for found in causes for each in found.split("|")) == sorted(LOSS_CAUSES)


def test_the_page_names_every_alert() -> None:
    page = ROOT / "docs" / "howto" / "metrics.md"
    shown = [(bare(row[0]), row[1]) for row in rows(section(page, "A dashboard and alerts"))]
    assert shown == [(each.alert, each.severity) for each in rules()]


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on PATH: apt-get install prometheus")
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "alerts.yml"
    assert main(["alerts", str(path)]) == 0
    assert f"{len(rules())} rules found" in run(promtool, "check", "rules", str(path))


def series(metric: str, values: str, **labels: str) -> dict[str, str]:
    inner = ",".join(f'{name}="{value}"' for name, value in (TARGET | labels).items())
    return {"series": f"{metric}{{{inner}}}", "values": values}


def lags(late: str) -> list[dict[str, str]]:
    """Return a histogram with 100 wake-ups in each 15 s, of which `late` take half a second."""
    name = "aeron_driver_loop_lag_seconds_bucket"
    return [
        series(name, f"0+{100 - int(late)}x80", le="0.016777216"),
        series(name, "0+100x80", le="0.536870912"),
        series(name, "0+100x80", le="+Inf"),
    ]


LOSSES = "aeron_image_loss_events_total"
BLOCKED = "aeron_publication_blocked_seconds_total"
BACKLOG = "aeron_publication_backlog_bytes"
SENT = "aeron_publication_sent_bytes_total"
DROPS = "aeron_driver_socket_drops_total"
# For each alert: series that fire it after ten minutes, and some that do not. Steps are of 15 s.
FIRES = {
    "AeronSubscriberSlow": [series("aeron_subscription_lag_seconds", "6x80", **STREAM)],
    "AeronDataLost": [series(LOSSES, "_x30 1x50", cause="left_behind", **STREAM)],
    "AeronLosses": [series(LOSSES, "0+30x80", cause="gap", **STREAM)],
    "AeronFramesRefused": [series(LOSSES, "0+3x80", cause="forged", **STREAM)],
    "AeronPublicationBlocked": [
        series(BLOCKED, "0+9x80", by="sender_limit", **STREAM),
        series("aeron_publications", "1x80", **STREAM),
    ],
    # A hundred thousand bytes are sent in a second.
    "AeronPublicationBacklog": [
        series(BACKLOG, "600000x80", **STREAM),
        series(SENT, "0+1500000x80", **STREAM),
    ],
    "AeronLoopBlocked": lags("5"),
    "AeronStatisticsOld": [series("aeron_snapshot_age_seconds", "6x80")],
    "AeronNotConnected": [series("aeron_connected", "0x80", **STREAM)],
    "AeronNoImage": [series("aeron_images", "0x80", **STREAM)],
    "AeronBudgetNearlyFull": [
        series("aeron_driver_budget_used_ratio", "0.95x80", budget="image_log_bytes")
    ],
    "AeronSocketDrops": [series(DROPS, "0+1x80", reason="socket_full")],
}
QUIET = {
    # It was behind, and is not any more; it is behind for too short a time.
    "AeronSubscriberSlow": ["6x30 0x50", "0x38 6x42"],
    # The loss is old; there was none; what is repaired is not lost.
    "AeronDataLost": ["1x80", "0x80"],
    "AeronLosses": ["0+3x80", "5000x80"],
    "AeronFramesRefused": ["0+1x80", "5000x80"],
    "AeronPublicationBlocked": ["0+6x80", "5000x80"],
    "AeronPublicationBacklog": ["400000x80", "600000x30 0x50", "0x38 600000x42"],
    "AeronStatisticsOld": ["4x80"],
    "AeronNotConnected": ["1x80", "0x38 1x42"],
    "AeronNoImage": ["1x80", "0x38 2x42"],
    "AeronBudgetNearlyFull": ["0.89x80"],
    "AeronSocketDrops": ["7x80"],
}


def fires_test(alert: str, given: list[dict[str, str]], labels: dict[str, str] | None) -> Any:
    """Return a test of promtool: whether an alert fires after ten minutes."""
    inner = ",".join(f'{name}="{value}"' for name, value in (labels or {}).items())
    expected = [
        {"labels": f'ALERTS{{alertname="{alert}",alertstate="firing",{inner}}}', "value": 1}
    ]
    return {
        "interval": "15s",
        "input_series": given,
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}',
                "eval_time": "10m",
                "exp_samples": expected if labels else [],
            }
        ],
    }


def labels_of(rule: Rule, given: list[dict[str, str]]) -> dict[str, str]:
    """Return the labels that an alert of these series has."""
    found = dict(re.findall(r'(\w+)="([^"]*)"', given[0]["series"]))
    found.pop("le", None)
    return {**found, "severity": rule.severity}


def blocked_tests(rule: Rule) -> Iterator[Any]:
    """Yield tests of publications that are summed, and of one that has no subscriber."""
    other = {"stream": "other", "channel": "other"}
    for by, waits, labels, count, fires in (
        ("not_connected", "0+15x80", STREAM, 1, False),
        # Two have waited for 60 % of the time together, and then each.
        ("sender_limit", "0+9x80", STREAM, 2, False),
        ("sender_limit", "0+18x80", STREAM, 2, True),
        # The publications of "other" are not the same ones everywhere.
        ("sender_limit", "0+9x80", other, 2, True),
        ("sender_limit", "0+9x80", other, 0, True),
        ("sender_limit", "0+6x80", other, 0, False),
    ):
        given = [series(BLOCKED, waits, by=by, **labels)]
        if count:
            given.append(series("aeron_publications", f"{count}x80", **labels))
        yield fires_test(rule.alert, given, labels_of(rule, given) if fires else None)


def backlog_tests(rule: Rule) -> Iterator[Any]:
    """Yield tests of publications of which nothing is sent."""
    for backlog, connected, fires in (
        ("9000x80", "1x80", True),
        # A source that does not know whether there is a subscriber.
        ("9000x80", "", True),
        ("9000x80", "0x80", False),
        # A reader of IPC has a message in hand.
        ("1024x80", "1x80", False),
    ):
        given = [series(BACKLOG, backlog, **STREAM), series(SENT, "7x80", **STREAM)]
        if connected:
            given.append(series("aeron_connected", connected, **STREAM))
        yield fires_test(rule.alert, given, labels_of(rule, given) if fires else None)


def test_every_alert_fires_when_it_should_and_not_otherwise(promtool: str, tmp_path: Path) -> None:
    by_name = {each.alert: each for each in rules()}
    assert FIRES.keys() == by_name.keys()
    tests = []
    for alert, given in FIRES.items():
        tests.append(fires_test(alert, given, labels_of(by_name[alert], given)))
        quiet = [[{**given[0], "values": values}, *given[1:]] for values in QUIET.get(alert, [])]
        if alert == "AeronLoopBlocked":
            quiet = [lags("0")]
        assert quiet
        tests += [fires_test(alert, each, None) for each in quiet]
    # The other causes, and each only by its own rule.
    repaired = [series(LOSSES, "0+30x80", cause="socket_drop", **STREAM)]
    tests += [
        fires_test("AeronDataLost", repaired, None),
        fires_test("AeronLosses", repaired, labels_of(by_name["AeronLosses"], repaired)),
    ]
    tests += blocked_tests(by_name["AeronPublicationBlocked"])
    tests += backlog_tests(by_name["AeronPublicationBacklog"])
    (tmp_path / FILES["alerts"]).write_text(shipped("alerts"))
    # JSON is YAML.
    path = tmp_path / "tests.yml"
    path.write_text(
        json.dumps({"rule_files": [FILES["alerts"]], "evaluation_interval": "15s", "tests": tests})
    )
    assert "SUCCESS" in run(promtool, "test", "rules", str(path))


@pytest.mark.parametrize(
    ("name", "given", "summary", "section_name"),
    [
        (
            "AeronDataLost",
            FIRES["AeronDataLost"],
            (
                "Stream 1001 on a:9464 went on without data that its subscriber has not seen "
                "(left_behind)."
            ),
            "loss-by-left_behind",
        ),
        (
            "AeronPublicationBacklog",
            FIRES["AeronPublicationBacklog"],
            (
                "Stream 1001 on a:9464 has a backlog of 585.9kiB, which is more than 5 s of what "
                "it sends."
            ),
            "a-backlog",
        ),
        (
            "AeronPublicationBlocked",
            FIRES["AeronPublicationBlocked"],
            (
                "Offers to stream 1001 on a:9464 wait 60% of the time (sender_limit), on average "
                "over its publications."
            ),
            "back-pressure",
        ),
        (
            "AeronPublicationBlocked",
            [series(BLOCKED, "0+30x80", by="sender_limit", stream="other", channel="other")],
            (
                "Offers to stream other on a:9464 wait 200% of the time (sender_limit), all its "
                "publications together."
            ),
            "back-pressure",
        ),
    ],
    ids=["lost", "backlog", "blocked", "blocked others"],
)
def test_an_alert_says_what_it_is_about(
    promtool: str,
    tmp_path: Path,
    name: str,
    given: list[dict[str, str]],
    summary: str,
    section_name: str,
) -> None:
    (tmp_path / FILES["alerts"]).write_text(shipped("alerts", "https://docs.example/aeron"))
    (rule,) = (each for each in rules() if each.alert == name)
    alert = {
        "exp_labels": labels_of(rule, given),
        "exp_annotations": {
            "summary": summary,
            "runbook_url": f"https://docs.example/aeron/howto/troubles.html#{section_name}",
        },
    }
    case = {
        "interval": "15s",
        "input_series": given,
        "alert_rule_test": [{"eval_time": "10m", "alertname": name, "exp_alerts": [alert]}],
    }
    path = tmp_path / "tests.yml"
    path.write_text(
        json.dumps({"rule_files": [FILES["alerts"]], "evaluation_interval": "15s", "tests": [case]})
    )
    assert "SUCCESS" in run(promtool, "test", "rules", str(path))


# The command.


@pytest.mark.parametrize("what", FILES)
def test_the_command_prints_a_file_or_writes_it(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([what]) == 0
    assert capsys.readouterr().out == shipped(what)
    path = tmp_path / "copy"
    assert main([what, str(path)]) == 0
    assert path.read_text() == shipped(what)
    assert main([what, str(tmp_path / "absent" / "copy")]) == 1
    assert "absent" in capsys.readouterr().err


def test_links_lead_to_the_site_that_is_named() -> None:
    text = shipped("alerts", "https://docs.example/aeron/")
    assert "docs/howto" not in text
    assert "runbook_url: https://docs.example/aeron/howto/troubles.html#back-pressure\n" in text


def test_the_filled_expressions_have_no_variables_left() -> None:
    assert [each for each in expressions() if "$" in filled(each)] == []
