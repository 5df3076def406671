from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.plot import svg
from benchmarks.reporting import change_lines, figure, markdown
from benchmarks.results import changes, metrics_of, rows
from tests.benchmarks.made_up import METRICS, report, results, runs

WELL = results(ours=runs((100, 10), (120, 12), (110, 11)), other=runs((55, 22)))


def test_ratios_are_to_the_first_that_has_a_figure() -> None:
    rate, delay = metrics_of(WELL)
    assert [(row.contender, row.ratio) for row in rows(WELL, rate)] == [("ours", 1), ("other", 2)]
    assert [row.ratio for row in rows(WELL, delay)] == [1, 2]
    without = results(ours=[], other=runs((55, 22)))
    assert [row.ratio for row in rows(without, rate)] == [None, 1]


def test_who_is_absent_or_has_failed_says_why() -> None:
    found = results(ours=runs((1, 1)), zmq=[], nats=[])
    found["contenders"]["zmq"]["absent"] = "not installed"
    found["contenders"]["nats"]["failures"] = ["lost", "late"]
    remarks = [row.remark for row in rows(found, metrics_of(found)[0])]
    assert remarks == ["", "not installed", "2 runs failed: late"]
    text = markdown(report(made_up=found))
    assert "- zmq: not installed" in text
    assert "| zmq |  |  |  |  |" in text


@pytest.mark.parametrize(
    ("now", "is_regression"),
    [
        (((50, 10), (51, 10), (49, 10)), True),
        (((95, 10), (95, 10), (95, 10)), False),  # within the tolerance
        (((50, 10), (51, 10), (130, 10)), False),  # the machine can still do it
    ],
)
def test_a_regression_is_worse_in_the_median_and_in_every_run(
    now: tuple[tuple[float, float], ...],
    is_regression: bool,  # noqa: FBT001 - a row of the table
) -> None:
    before = {"made-up": results(ours=runs((100, 10), (120, 10), (110, 10)))}
    found = list(changes(before, {"made-up": results(ours=runs(*now))}, tolerance=0.2))
    assert [change.is_regression for change in found] == [is_regression, False]


def test_slower_is_worse_where_less_is_better() -> None:
    before = {"made-up": results(ours=runs((100, 10)))}
    (_, delay) = changes(before, {"made-up": results(ours=runs((100, 20)))})
    assert delay.is_regression
    assert delay.ratio == 0.5


def test_only_figures_of_ours_that_both_have_are_compared() -> None:
    before: dict[str, Any] = {
        "gone": results(ours=runs((1, 1))),
        "both": results(ours=runs((0, 0)), ours_pure=[], other=runs((9, 9))),
    }
    now = {
        "new": results(ours=runs((1, 1))),
        "both": results(ours=runs((5, 0)), ours_pure=runs((1, 1)), other=runs((1, 1))),
    }
    assert list(changes(before, now)) == []


def test_what_has_changed_is_told_worst_first() -> None:
    before = {"made-up": results(ours=runs((100, 10)))}
    found = changes(before, {"made-up": results(ours=runs((300, 40)))})
    assert change_lines(found) == [
        "REGRESSION   0.25 x  made-up, ours, p50_us: 10 before, 40 now",
        "ok           3.00 x  made-up, ours, messages_per_s: 100 before, 300 now",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2_291_234, "2,290,000"), (12.345, "12.3"), (99.96, "100"), (0.0012345, "0.00123")],
)
def test_figures_have_three_digits_that_matter(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_table_has_medians_ranges_and_ratios() -> None:
    text = markdown(report(made_up=WELL))
    assert "Machine: cores 2." in text
    assert "Command: `python -m benchmarks`." in text
    head = "| contender | messages/s | ours, times better | p50, μs | ours, times better |"
    assert head in text
    assert "| ours | 110 (100 to 120) | 1 | 11 (10 to 12) | 1 |" in text
    assert "| other | 55 (55 to 55) | 2 | 22 (22 to 22) | 2 |" in text


def test_the_plot_is_well_formed_and_cuts_floors_short() -> None:
    found = results(ours=runs((100, 1)), floor_bare=runs((1_000, 1)), **{"a<b": runs((50, 1))})
    empty = results(ours=[])
    only_floor = results(floor=runs((7, 1)))
    picture = svg(report(fast=found, empty=empty, floor=only_floor))
    root = ET.fromstring(picture)  # noqa: S314 - made a line above
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["fast: messages/s, more is better", "ours", "100"]
    assert "1,000, cut short" in texts
    assert "a<b" in texts
    assert not any("empty" in str(text) for text in texts)
    bars = list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert [bar.get("width") for bar in bars] == ["420.0", "420.0", "210.0", "420.0"]


def test_a_report_survives_json() -> None:
    again = json.loads(json.dumps(report(made_up=WELL)))
    assert markdown(again) == markdown(report(made_up=WELL))
    assert again["scenarios"]["made_up"]["metrics"] == METRICS
