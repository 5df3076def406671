"""What was aimed at is compared with what was reached, and with the right contender."""

from __future__ import annotations

from typing import Any

from benchmarks.goals import GOALS, goal_lines, reached
from benchmarks.measuring import Metric
from benchmarks.scenarios import Settings, scenarios


def results(metric: Metric, **rates: float) -> dict[str, Any]:
    shape = {"name": metric.name, "unit": metric.unit, "is_more_better": metric.is_more_better}
    return {
        "question": "",
        "metrics": [shape],
        "contenders": {
            name.replace("_", " "): {"runs": [{metric.name: rate}], "failures": []}
            for name, rate in rates.items()
        },
    }


def report(**found: Any) -> dict[str, Any]:
    return {"scenarios": {name.replace("_", "-"): each for name, each in found.items()}}


def test_every_goal_is_of_a_scenario_a_metric_and_contenders_that_there_are() -> None:
    known = {each.name: each for each in scenarios(Settings())}
    for goal in GOALS:
        scenario = known[goal.scenario]
        names = [each.name for each in scenario.contenders]
        assert goal.metric in {each.name for each in scenario.metrics}
        assert goal.contender in names
        begin, _, end = goal.beside.partition(" * ")
        assert any(name.startswith(begin) and name.endswith(end) for name in names)


def test_the_best_official_driver_counts() -> None:
    rate = Metric("messages_per_s", "messages/s")
    found = results(rate, ours=4e6, aeronmd_shared_samples=5e5, aeronmd_dedicated_samples=1e6)
    first, samples = reached(report(throughput_100_mtu1408=found))
    assert (first.value, first.is_met) == (4e6, False)
    assert (samples.value, samples.is_met) == (4, True)


def test_latency_is_better_when_it_is_less() -> None:
    metric = Metric("p50_us", "p50", is_more_better=False)
    found = results(metric, ours=130)
    found["contenders"]["floor: bare uvloop echo"] = {"runs": [{"p50_us": 100}], "failures": []}
    slow = Metric("p99_us", "p99", is_more_better=False)
    found["metrics"].append({"name": slow.name, "unit": "", "is_more_better": False})
    (only,) = reached(report(round_trip=found))
    assert (only.value, only.is_met) == (1.3, True)
    assert any("| 1.3 x | 1.3 x | met |" in line for line in goal_lines(report(round_trip=found)))


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert goal_lines(report()) == []
    rate = Metric("messages_per_s", "messages/s")
    assert goal_lines(report(loss=results(rate, somebody=1.0))) == []
