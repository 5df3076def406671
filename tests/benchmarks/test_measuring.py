from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aeron_async.cli.bench_processes import BenchError
from benchmarks.measuring import Contender, Metric, Scenario, Series, measure_all, ratio

if TYPE_CHECKING:
    import pytest

MORE = Metric("rate", "messages/s")
LESS = Metric("delay", "μs", is_more_better=False)


def test_a_series_is_its_middle_and_its_ends() -> None:
    assert Series.of([]) is None
    assert Series.of([3.0, 1.0, 2.0]) == Series(median=2.0, low=1.0, high=3.0)


def test_a_ratio_is_above_one_where_ours_is_better() -> None:
    assert ratio(MORE, 4.0, 2.0) == 2.0
    assert ratio(LESS, 2.0, 4.0) == 2.0
    assert ratio(MORE, 4.0, 0.0) is None
    assert ratio(LESS, 0.0, 4.0) is None


def scenario(log: list[str], *failing: str) -> Scenario:
    async def measure(name: str) -> dict[str, float]:
        log.append(name)
        if name in failing:
            message = "a message was lost"
            raise BenchError(message)
        return {"rate": float(len(log))}

    return Scenario(
        name="made-up",
        question="Which?",
        metrics=(MORE, LESS),
        contenders=(
            Contender(name="a", measure=partial(measure, "a")),
            Contender(name="b", measure=partial(measure, "b")),
            Contender(name="c", measure=partial(measure, "c"), why_absent="not installed"),
        ),
    )


async def test_contenders_are_measured_by_turns() -> None:
    log: list[str] = []
    said: list[str] = []
    found = await measure_all(scenario(log), 3, say=said.append)
    assert log == ["a", "b"] * 3
    assert found["contenders"]["a"]["runs"] == [{"rate": 1.0}, {"rate": 3.0}, {"rate": 5.0}]
    assert found["contenders"]["c"] == {"runs": [], "failures": [], "absent": "not installed"}
    assert said[0] == "made-up 1/3 a: 1 messages/s"


async def test_a_run_that_fails_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    found = await measure_all(scenario(log, "a"), 2)
    assert found["contenders"]["a"] == {"runs": [], "failures": ["a message was lost"] * 2}
    assert len(found["contenders"]["b"]["runs"]) == 2
    assert "a message was lost" in capsys.readouterr().err
