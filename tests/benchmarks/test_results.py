from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.plot import page, svg
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


def test_a_ratio_is_the_same_on_a_machine_of_half_the_speed() -> None:
    before = {"made-up": results(ours=runs((100, 10), (120, 12)), zmq=runs((50, 20)))}
    now = {"made-up": results(ours=runs((50, 20), (60, 24)), zmq=runs((25, 40)))}
    assert all(each.is_regression for each in changes(before, now))
    found = list(changes(before, now, are_ratios=True))
    assert [(each.contender, each.metric, each.before, each.ratio) for each in found] == [
        ("ours / zmq", "messages_per_s", 2.2, 1),
        ("ours / zmq", "p50_us", 0.55, 1),
    ]
    assert not any(each.is_regression for each in found)


@pytest.mark.parametrize(
    ("now", "is_regression"),
    [
        (((200, 10), (210, 10)), True),  # faster than before, but not as much as the floor
        (((200, 10), (450, 10)), False),  # one run stood beside the floor as before
        (((380, 10), (390, 10)), False),  # within the tolerance
    ],
)
def test_a_regression_of_a_ratio_is_worse_in_the_median_and_in_every_run(
    now: tuple[tuple[float, float], ...],
    is_regression: bool,  # noqa: FBT001 - a row of the table
) -> None:
    before = {"made-up": results(ours=runs((100, 10)), floor_bare=runs((1_000, 5), (1_100, 5)))}
    after = {"made-up": results(ours=runs(*now), floor_bare=runs((4_000, 5), (4_400, 5)))}
    rate, delay = changes(before, after, are_ratios=True)
    assert rate.contender == "ours / floor bare"
    assert (rate.is_regression, delay.is_regression) == (is_regression, False)


def test_ratios_are_of_ours_to_what_is_not_ours_and_is_in_both() -> None:
    before: dict[str, Any] = {
        "gone": results(ours=runs((1, 1)), zmq=runs((1, 1))),
        "ours alone": results(ours=runs((1, 1)), ours_pure=runs((1, 1))),
        "both": results(ours=runs((4, 1)), ours_pure=runs((2, 1)), zmq=runs((1, 0)), nats=[]),
    }
    now = {
        "ours alone": results(ours=runs((1, 1)), ours_pure=runs((1, 1))),
        "both": results(
            ours=runs((2, 1)), ours_pure=runs((2, 1)), zmq=runs((1, 0)), nats=runs((1, 1))
        ),
    }
    found = changes(before, now, are_ratios=True)
    assert [(each.scenario, each.contender, each.metric, each.ratio) for each in found] == [
        ("both", "ours / zmq", "messages_per_s", 0.5),
        ("both", "ours pure / zmq", "messages_per_s", 1),
    ]


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


def test_the_page_is_well_formed_and_needs_no_other_file() -> None:
    found = results(ours=runs((100, 1)), nats=[], **{"a<b": runs((50, 2))})
    found["contenders"]["nats"]["absent"] = "no <server>"
    text = page(report(fast=found))
    head, _, rest = text.partition("\n")
    assert head == "<!DOCTYPE html>"
    root = ET.fromstring(rest.replace('<meta charset="utf-8">', ""))  # noqa: S314 - made above
    assert [each.text for each in root.iter("h2")] == ["fast"]
    cells = ["".join(each.itertext()) for each in root.iter("td")]
    assert cells[:3] == ["2", "ours", "100 (100 to 100)"]
    assert "a<b" in cells
    assert [each.text for each in root.iter("p")][1:] == ["How fast?", "nats: no <server>"]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}svg"))) == 1
    assert not any("src" in each.attrib or "href" in each.attrib for each in root.iter())


def test_a_report_survives_json() -> None:
    again = json.loads(json.dumps(report(made_up=WELL)))
    assert markdown(again) == markdown(report(made_up=WELL))
    assert again["scenarios"]["made_up"]["metrics"] == METRICS
