"""What was found, read back from its JSON: series, ratios to the first contender, regressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.measuring import Metric, Series, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Change", "Row", "changes", "figure", "metrics_of", "rows", "series_of"]

Results = dict[str, Any]
"""Of one scenario, as `measure_all` returns it."""
TOLERANCE: Final = 0.1
OURS: Final = "ours"


@attrs.frozen(kw_only=True)
class Row:
    """One contender and one metric.

    Attributes:
        contender: Its name.
        series: None where it has no run.
        ratio: How many times better the first contender is.
        remark: Why there is no series, or how many runs failed.
    """

    contender: str
    series: Series | None
    ratio: float | None
    remark: str


@attrs.frozen(kw_only=True)
class Change:
    """How a figure of ours compares with the one of a baseline.

    Attributes:
        contender: Ours; with that beside which it stands, where ratios are compared.
        ratio: How many times better it is now; below 1 is worse.
        is_regression: Whether it is worse by more than the tolerance, in every run.
    """

    scenario: str
    contender: str
    metric: str
    before: float
    now: float
    ratio: float
    is_regression: bool


def figure(value: float) -> str:
    """Return a number with three figures that matter: `1,230,000`, `12.3`, `0.00123`."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"  # noqa: PLR2004 - three figures


def metrics_of(results: Results) -> list[Metric]:
    """Return the metrics of a scenario."""
    return [Metric(**metric) for metric in results["metrics"]]


def series_of(results: Results, contender: str, metric: Metric) -> Series | None:
    """Return what the runs of a contender came to; None where there is none."""
    runs = results["contenders"].get(contender, {}).get("runs", [])
    return Series.of([run[metric.name] for run in runs if metric.name in run])


def rows(results: Results, metric: Metric) -> Iterator[Row]:
    """Yield the contenders of a scenario, compared with the first that has a figure."""
    first: Series | None = None
    for name, found in results["contenders"].items():
        series = series_of(results, name, metric)
        remark = found.get("absent", "")
        if found["failures"]:
            remark = f"{len(found['failures'])} runs failed: {found['failures'][-1]}"
        first = first or series
        compared = None
        if series is not None and first is not None:
            compared = ratio(metric, first.median, series.median)
        yield Row(contender=name, series=series, ratio=compared, remark=remark)


def changes(
    before: Mapping[str, Results],
    now: Mapping[str, Results],
    *,
    tolerance: float = TOLERANCE,
    are_ratios: bool = False,
) -> Iterator[Change]:
    """Yield how every figure of ours that both have has changed.

    A regression is worse by more than the tolerance in the median, and worse than the median of
    the baseline in every run: one bad run is the machine's.

    Args:
        before: Scenarios of the baseline.
        now: Scenarios of this run.
        tolerance: Share that is noise.
        are_ratios: Whether figures are compared as multiples of those of the floors and peers of
            the same run, which holds between machines; where all contenders are ours, nothing is.
    """
    read = _multiples if are_ratios else _figures
    for name in before.keys() & now.keys():
        for metric in metrics_of(now[name]):
            old, new = read(before[name], metric), read(now[name], metric)
            for contender in [each for each in new if each in old]:
                change = _change(metric, old[contender], new[contender], tolerance)
                if change is None:
                    continue
                times, is_regression = change
                yield Change(
                    scenario=name,
                    contender=contender,
                    metric=metric.name,
                    before=old[contender].median,
                    now=new[contender].median,
                    ratio=times,
                    is_regression=is_regression,
                )


def _change(
    metric: Metric, old: Series, new: Series, tolerance: float
) -> tuple[float, bool] | None:
    """Return how many times better it is now, and whether it has regressed."""
    times = ratio(metric, new.median, old.median)
    best_times = ratio(metric, new.high if metric.is_more_better else new.low, old.median)
    if times is None:
        return None
    return times, times < 1 - tolerance and best_times is not None and best_times < 1


def _figures(results: Results, metric: Metric) -> dict[str, Series]:
    """Return the series of ours."""
    return {
        name: series
        for name, series in _all_series(results, metric).items()
        if name.startswith(OURS)
    }


def _multiples(results: Results, metric: Metric) -> dict[str, Series]:
    """Return the series of ours as multiples of the median of each contender that is not ours."""
    found = _all_series(results, metric)
    return {
        f"{name} / {other}": Series(
            median=mine.median / theirs.median,
            low=mine.low / theirs.median,
            high=mine.high / theirs.median,
        )
        for name, mine in found.items()
        if name.startswith(OURS)
        for other, theirs in found.items()
        if not other.startswith(OURS) and theirs.median
    }


def _all_series(results: Results, metric: Metric) -> dict[str, Series]:
    found = {name: series_of(results, name, metric) for name in results["contenders"]}
    return {name: series for name, series in found.items() if series is not None}
