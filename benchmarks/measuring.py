"""Scenarios and their contenders, measured by turns, so that noise hits all alike."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Self

import attrs

from aeron_async.cli.output import remark
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Contender", "Metric", "Scenario", "Series", "measure_all", "ratio"]


@attrs.frozen
class Metric:
    """A figure that is looked at.

    Attributes:
        name: Under which a run reports it.
        unit: As people read it.
        is_more_better: Whether more of it is better.
    """

    name: str
    unit: str
    is_more_better: bool = True


@attrs.frozen(kw_only=True)
class Contender:
    """A transport that is measured.

    Attributes:
        name: Ours begin with `ours`, floors with `floor`.
        measure: Does one run, and returns its figures.
        why_absent: What is missing here; empty if it can run.
    """

    name: str
    measure: Callable[[], Awaitable[dict[str, float]]]
    why_absent: str = ""


@attrs.frozen(kw_only=True)
class Scenario:
    """A question, and who answers it.

    Attributes:
        name: As it is asked for.
        question: What it is about.
        metrics: The first is the one that is drawn.
        contenders: The first is what the others are compared with.
    """

    name: str
    question: str
    metrics: tuple[Metric, ...]
    contenders: tuple[Contender, ...]


@attrs.frozen(kw_only=True)
class Series:
    """What several runs came to."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return the middle and the ends; None of none."""
        if not values:
            return None
        return cls(median=statistics.median(values), low=min(values), high=max(values))


def ratio(metric: Metric, ours: float, theirs: float) -> float | None:
    """Return how many times better ours is; None where that cannot be said."""
    better, worse = (ours, theirs) if metric.is_more_better else (theirs, ours)
    return better / worse if worse else None


async def measure_all(
    scenario: Scenario, run_count: int, *, say: Callable[[str], object] = remark
) -> dict[str, Any]:
    """Run every contender so often, each in its turn, and return the figures of all.

    A run that fails is reported and counted, and stops no other.
    """
    found: dict[str, dict[str, Any]] = {}
    present = [contender for contender in scenario.contenders if not contender.why_absent]
    for contender in scenario.contenders:
        absent = {"absent": contender.why_absent} if contender.why_absent else {}
        found[contender.name] = {"runs": [], "failures": [], **absent}
    for number in range(run_count):
        for contender in present:
            try:
                figures = await contender.measure()
            except (AeronError, OSError) as error:
                found[contender.name]["failures"].append(str(error))
                say(f"{scenario.name} {number + 1}/{run_count} {contender.name}: {error}")
                continue
            found[contender.name]["runs"].append(figures)
            shown = ", ".join(
                f"{figures[metric.name]:,.4g} {metric.unit}"
                for metric in scenario.metrics
                if metric.name in figures
            )
            say(f"{scenario.name} {number + 1}/{run_count} {contender.name}: {shown}")
    return {
        "question": scenario.question,
        "metrics": [attrs.asdict(metric) for metric in scenario.metrics],
        "contenders": found,
    }
