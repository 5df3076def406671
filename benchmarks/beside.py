"""Question: is this checkout as fast as another one?

`python -m benchmarks beside ../before` runs the scenarios of this program in both checkouts by
turns, a run of each a round, and prints the medians beside each other. Both use the Python that
runs this program; each uses its own package and its own compiled parts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measuring import Metric, Series, ratio
from benchmarks.results import figure, metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main", "table"]

HERE: Final = Path(__file__).resolve().parent.parent
ONLY: Final = "throughput-100,throughput-10k,same-loop,round-trip,idle"
Runs = dict[tuple[str, str], list[dict[str, float]]]
"""The runs of one checkout, by scenario and contender."""


def measure(tree: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run every scenario once in a checkout, and return what it reports.

    Raises:
        subprocess.CalledProcessError: The benchmarks of that checkout failed.
    """
    command = [sys.executable, "-m", "benchmarks", "--json", "--runs", "1"]
    command += ["--only", options.only, "--seconds", str(options.seconds)]
    command += ["--contenders", options.contenders]
    environ = os.environ | {"PYTHONPATH": str(tree)}
    found = subprocess.run(  # noqa: S603 - a Python of ours, and arguments that were checked
        command, cwd=tree, env=environ, check=True, stdout=subprocess.PIPE
    )
    report: dict[str, Any] = json.loads(found.stdout)
    return report


def note(runs: Runs, metrics: dict[str, list[Metric]], report: dict[str, Any]) -> None:
    """Keep the runs of a report with those before."""
    for name, results in report["scenarios"].items():
        metrics[name] = metrics_of(results)
        for contender, found in results["contenders"].items():
            runs.setdefault((name, contender), []).extend(found["runs"])


def table(before: Runs, now: Runs, metrics: dict[str, list[Metric]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown: medians, their ratio, and that of each round."""
    yield "| scenario | contender | metric | before | now | now, times better | rounds |"
    yield "|---|---|---|---|---|---|---|"
    for (name, contender), old_runs in before.items():
        new_runs = now.get((name, contender), [])
        for metric in metrics[name]:
            pairs = [
                (old[metric.name], new[metric.name])
                for old, new in zip(old_runs, new_runs, strict=False)
                if metric.name in old and metric.name in new
            ]
            old_series = Series.of([old for old, _ in pairs])
            new_series = Series.of([new for _, new in pairs])
            if old_series is None or new_series is None:
                continue
            times = ratio(metric, new_series.median, old_series.median)
            rounds = [each for old, new in pairs if (each := ratio(metric, new, old)) is not None]
            middle = f"{statistics.median(rounds):.3f}" if rounds else "-"
            yield (
                f"| {name} | {contender} | {metric.unit} | {figure(old_series.median)} "
                f"| {figure(new_series.median)} | {'-' if times is None else f'{times:.3f}'} "
                f"| {middle} |"
            )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks beside", description=__doc__)
    parser.add_argument("tree", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", default=ONLY, help="scenarios by the start of their names, a,b")
    parser.add_argument(
        "--contenders", default="only the first", help="names by their start; `ours` is all"
    )
    parser.add_argument("--rounds", type=int, default=9, help="runs in each checkout")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both by turns, and print the table."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    before: Runs = {}
    now: Runs = {}
    metrics: dict[str, list[Metric]] = {}
    for number in range(options.rounds):
        # The one that begins changes, so that what one leaves behind hits both alike.
        sides = [(options.tree.resolve(), before), (HERE, now)]
        for tree, runs in sides if number % 2 == 0 else reversed(sides):
            note(runs, metrics, measure(tree, options))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print("\n".join(table(before, now, metrics)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
