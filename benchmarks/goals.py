"""What was aimed at, and how much of it a run has reached.

A goal is a figure, or a ratio to another contender of the same run; of several official drivers the
best one counts, for its programs of either kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.results import figure, metrics_of, series_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.measuring import Metric
    from benchmarks.results import Results

__all__ = ["GOALS", "Goal", "Reached", "goal_lines", "reached"]

SAMPLES: Final = "aeronmd * samples"
POLITE: Final = "aeronmd * polite"


@attrs.frozen(kw_only=True)
class Goal:
    """One figure to be reached.

    Attributes:
        scenario: Where it is measured.
        metric: Which figure.
        limit: At least, or at most where less is better; with `beside`, how many times as good.
        contender: Whose figure it is.
        beside: Whom it is compared with; alone when empty. The best of those that match.
        is_inverse: Whether the ratio is how many times worse at most.
    """

    scenario: str
    metric: str
    limit: float
    contender: str = "ours"
    beside: str = ""
    is_inverse: bool = False


@attrs.frozen(kw_only=True)
class Reached:
    """What a run came to.

    Attributes:
        goal: What was aimed at.
        value: The median, or the ratio.
        is_met: Whether that is enough.
    """

    goal: Goal
    value: float
    is_met: bool


SMALL: Final = "throughput-100-mtu1408"
JUMBO: Final = "throughput-100-mtu8192"
LONG: Final = "throughput-10k-mtu1408"
LONG_JUMBO: Final = "throughput-10k-mtu8192"
RATE: Final = "messages_per_s"
LAG: Final = "lag_p99_ms"
READ: Final = "ours, read and not recorded"
RECORDED: Final = (
    "ours, recorded in memory",
    "ours, recorded and read, in memory",
    "ours, recorded on disk",
    "ours, recorded and read, on disk",
)
SHARED: Final = (
    Goal(scenario="ipc-100", metric=RATE, limit=6e6, contender="ours, exclusive"),
    Goal(scenario="ipc-lists", metric=RATE, limit=15e6, contender="ours, exclusive"),
    Goal(scenario="ipc-arrow", metric=RATE, limit=40e6, contender="ours, exclusive"),
    *(
        Goal(
            scenario="udp-shared",
            metric=RATE,
            limit=0.8,
            contender=contender,
            beside="ours, embedded",
        )
        for contender in ("ours, a driver for each", "ours, one driver for both")
    ),
    *(
        Goal(scenario="ipc-round-trip", metric="p50_us", limit=limit, contender=contender)
        for contender, limit in (
            ("ours, spinning", 20),
            ("ours, at once", 40),
            ("ours, after 10 ms", 500),
            ("ours, after 100 ms", 500),
        )
    ),
    *(
        Goal(scenario="shared-idle", metric=metric, limit=limit, contender=contender)
        for contender, limit in (("ours", 0.1), ("ours, beside an official subscriber", 1))
        for metric in ("driver_percent", "client_percent")
    ),
    Goal(scenario="shared-memory", metric="rss_mb", limit=60),
)
LISTS: Final = "ours, lists"
ARROW: Final = "ours, Arrow"
FLOOR: Final = "floor: bare datagrams in batches"
ECHO: Final = "floor: bare uvloop echo"
LOSSLESS: Final = "ours, nothing lost"
IDLE_LIMITS: Final = {
    ("idle", "ours, 1 stream"): 0.4,
    ("idle-streams", "ours, 1000 streams"): 10,
    ("idle-streams", "ours, 10000 streams"): 80,
}
GOALS: Final = (
    Goal(scenario=SMALL, metric=RATE, limit=5e6),
    Goal(scenario=SMALL, metric=RATE, limit=1.5e6, contender="ours, pure Python"),
    Goal(scenario=SMALL, metric=RATE, limit=4, beside=SAMPLES),
    Goal(scenario=SMALL, metric=RATE, limit=1.5, beside=POLITE),
    Goal(scenario=SMALL, metric=RATE, limit=2.5, beside="pyzmq, blocking"),
    Goal(scenario=SMALL, metric=RATE, limit=40, beside="pyzmq, asyncio"),
    Goal(scenario=SMALL, metric=RATE, limit=15e6, contender=LISTS),
    Goal(scenario=SMALL, metric=RATE, limit=5, contender=LISTS, beside=POLITE),
    Goal(scenario=SMALL, metric=RATE, limit=100, contender=LISTS, beside="pyzmq, asyncio"),
    Goal(scenario=SMALL, metric=RATE, limit=1 / 3, contender=LISTS, beside=FLOOR),
    Goal(scenario=SMALL, metric=RATE, limit=20e6, contender=ARROW),
    Goal(scenario=JUMBO, metric=RATE, limit=1, beside=SAMPLES),
    Goal(scenario=JUMBO, metric=RATE, limit=1, beside=POLITE),
    Goal(scenario=JUMBO, metric=RATE, limit=3, contender=LISTS, beside=POLITE),
    Goal(scenario=LONG, metric="mb_per_s", limit=1_000),
    Goal(scenario=LONG, metric="mb_per_s", limit=5, beside=SAMPLES),
    Goal(scenario=LONG, metric="mb_per_s", limit=5, beside=POLITE),
    Goal(scenario=LONG, metric="mb_per_s", limit=1.3, beside="pyzmq, blocking"),
    Goal(scenario=LONG_JUMBO, metric="mb_per_s", limit=2, beside="pyzmq, blocking"),
    *(
        Goal(
            scenario="round-trip",
            metric=metric,
            limit=limit,
            contender=contender,
            beside=ECHO,
            is_inverse=True,
        )
        for metric, limit, contender in (
            ("p50_us", 1.3, "ours"),
            ("p50_us", 1.1, "ours, on_message"),
            ("p99_us", 1.5, "ours"),
        )
    ),
    Goal(scenario="same-loop", metric=RATE, limit=4e6),
    Goal(scenario="same-loop", metric=RATE, limit=25e6, contender=LISTS),
    *(
        Goal(scenario=scenario, metric=f"{side}_percent", limit=limit, contender=contender)
        for (scenario, contender), limit in IDLE_LIMITS.items()
        for side in ("publisher", "subscriber")
    ),
    *(
        Goal(scenario="loss", metric=RATE, limit=limit, contender=contender, beside=LOSSLESS)
        for contender, limit in (("ours, 1 % lost", 0.9), ("ours, 5 % lost", 0.6))
    ),
    *(
        goal
        for scenario in ("recording-100", "recording-10k")
        for contender in RECORDED
        for goal in (
            Goal(scenario=scenario, metric=RATE, limit=0.8, contender=contender, beside=READ),
            Goal(scenario=scenario, metric=LAG, limit=20, contender=contender),
        )
    ),
    Goal(scenario="replay-100", metric=RATE, limit=1.5e6, contender="ours, in memory"),
    Goal(scenario="replay-100", metric=RATE, limit=1.5e6, contender="ours, on disk"),
    Goal(scenario="replay-100", metric=LAG, limit=20, contender="ours, on disk"),
    Goal(scenario="replays-10", metric=LAG, limit=20, contender="ours, in memory"),
    Goal(scenario="replays-10", metric=LAG, limit=20, contender="ours, on disk"),
    *SHARED,
)


def reached(report: Mapping[str, Any]) -> Iterator[Reached]:
    """Yield what a report says of each goal; nothing of those that it did not measure."""
    for goal in GOALS:
        results = report["scenarios"].get(goal.scenario)
        if results is None:
            continue
        metric = next(each for each in metrics_of(results) if each.name == goal.metric)
        mine = best(results, goal.contender, metric)
        if mine is None:
            continue
        if not goal.beside:
            is_met = mine >= goal.limit if metric.is_more_better else mine <= goal.limit
            yield Reached(goal=goal, value=mine, is_met=is_met)
            continue
        theirs = best(results, goal.beside, metric)
        if not theirs or not mine:
            continue
        value = mine / theirs if metric.is_more_better or goal.is_inverse else theirs / mine
        is_met = value <= goal.limit if goal.is_inverse else value >= goal.limit
        yield Reached(goal=goal, value=value, is_met=is_met)


def best(results: Results, pattern: str, metric: Metric) -> float | None:
    """Return the best median of the contenders that a pattern names; None without any."""
    begin, _, end = pattern.partition(" * ")
    names = [
        name
        for name in results["contenders"]
        if name == pattern or (end and name.startswith(begin) and name.endswith(end))
    ]
    found = [series_of(results, name, metric) for name in names]
    medians = [series.median for series in found if series is not None]
    if not medians:
        return None
    return max(medians) if metric.is_more_better else min(medians)


def goal_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a table of what was aimed at and what was reached; nothing where nothing was."""
    found = list(reached(report))
    if not found:
        return []
    lines = ["### Goals", "", "| goal | aimed at | reached | |", "|---|---|---|---|"]
    for each in found:
        goal = each.goal
        beside = f", beside {goal.beside}" if goal.beside else ""
        unit = " x" if goal.beside else ""
        lines.append(
            f"| `{goal.scenario}`, {goal.contender}, {goal.metric}{beside} "
            f"| {figure(goal.limit)}{unit} | {figure(each.value)}{unit} "
            f"| {'met' if each.is_met else 'missed'} |"
        )
    return [*lines, ""]
