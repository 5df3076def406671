"""`python -m benchmarks`: how fast we are, beside others and beside what the machine can do.

Every scenario runs its contenders by turns, so that noise hits all alike; medians, ranges and
ratios are printed as Markdown, or written as a page with a plot. `--saved` does the same with an
earlier result. `python -m benchmarks profile` says where the time goes; the other programs of this
folder are started by their names too: `python -m benchmarks recovery --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks import profiling
from benchmarks.machine import machine
from benchmarks.measuring import Scenario, measure_all
from benchmarks.plot import page, svg
from benchmarks.reporting import change_lines, markdown
from benchmarks.results import TOLERANCE, changes
from benchmarks.scenarios import Settings, scenarios

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["chosen", "main", "parse"]

PROGRAMS: Final = (
    "beside",
    "group_scale",
    "hostile",
    "idle",
    "lake_open",
    "many_recordings",
    "path_cost",
    "recovery",
    "same_loop",
    "scanners",
    "soak",
    "spark_scan",
    "watching",
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="scenarios by the start of their names, a,b")
    parser.add_argument(
        "--contenders", default="", help="the same for contenders; the first one always runs"
    )
    parser.add_argument("--list", action="store_true", help="name scenarios and contenders")
    parser.add_argument("--runs", type=positive(int), default=5, help="runs of each contender")
    parser.add_argument("--seconds", type=positive(float), default=2.0, help="length of each run")
    parser.add_argument("--window", default="2m", help="window of every receiver")
    parser.add_argument("--term-length", default="4m", help="term length of every publication")
    parser.add_argument("--seed", type=int, default=1, help="seed of the losses")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="write everything as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write the tables")
    parser.add_argument("--svg", type=Path, metavar="FILE.svg", help="write the plot")
    parser.add_argument(
        "--page", type=Path, metavar="FILE.html", help="write one page with plot and tables"
    )
    parser.add_argument(
        "--saved", type=Path, metavar="FILE.json", help="read what --save wrote; measure nothing"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE.json", help="print regressions; exit with 1 if any"
    )
    parser.add_argument(
        "--ratios",
        action="store_true",
        help="compare ours as multiples of floors and peers, which hold between machines",
    )
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="share that is noise")
    parser.add_argument("--json", action="store_true", help="print JSON, and not Markdown")
    return parser.parse_args(arguments)


def positive(kind: type[float]) -> Any:
    """Return what reads a number above 0."""

    def read(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            message = f"{text} must be more than 0"
            raise argparse.ArgumentTypeError(message)
        return value

    return read


def chosen(found: Sequence[Scenario], only: str, contenders: str) -> list[Scenario]:
    """Return what is asked for; everything where nothing is."""
    scenario_names = tuple(filter(None, only.split(",")))
    contender_names = tuple(filter(None, contenders.split(",")))
    picked = [
        scenario
        for scenario in found
        if not scenario_names or scenario.name.startswith(scenario_names)
    ]
    if not contender_names:
        return picked
    return [
        attrs.evolve(
            scenario,
            contenders=(
                scenario.contenders[0],
                *(
                    each
                    for each in scenario.contenders[1:]
                    if each.name.startswith(contender_names)
                ),
            ),
        )
        for scenario in picked
    ]


async def measure(picked: Sequence[Scenario], options: argparse.Namespace) -> dict[str, Any]:
    """Run everything that was picked, and return the report."""
    command = shlex.join(["python", "-m", "benchmarks", *options.arguments])
    report: dict[str, Any] = {"machine": machine(), "command": command, "scenarios": {}}
    for scenario in picked:
        report["scenarios"][scenario.name] = await measure_all(scenario, options.runs)
    return report


def run(options: argparse.Namespace) -> int:
    """Measure or read, print and write; return 1 where something has become slower."""
    # Read first: a baseline that cannot be read is told of before an hour has passed.
    baseline = json.loads(options.compare.read_text()) if options.compare else None
    if options.saved is not None:
        report = json.loads(options.saved.read_text())
    else:
        picked = pick(options)
        if not picked:
            return 2
        if options.list:
            show(picked)
            return 0
        report = asyncio.run(measure(picked, options))
    print(json.dumps(report) if options.json else markdown(report))
    for path, text in (
        (options.save, json.dumps(report, indent=1) + "\n"),
        (options.markdown, markdown(report)),
        (options.svg, svg(report)),
        (options.page, page(report)),
    ):
        if path is not None:
            path.write_text(text)
    return 0 if baseline is None else compare(baseline, report, options)


def pick(options: argparse.Namespace) -> list[Scenario]:
    """Return the scenarios that are asked for; say which there are where none is."""
    settings = Settings(
        seconds=options.seconds,
        window=options.window,
        term_length=options.term_length,
        seed=options.seed,
    )
    picked = chosen(scenarios(settings), options.only, options.contenders)
    if not picked:
        names = ", ".join(scenario.name for scenario in scenarios(settings))
        print(f"no scenario {options.only!r}; there are {names}", file=sys.stderr)
    return picked


def show(picked: Sequence[Scenario]) -> None:
    """Print scenarios and contenders."""
    for scenario in picked:
        print(f"{scenario.name}: {scenario.question}")
        for contender in scenario.contenders:
            absent = f" (absent: {contender.why_absent})" if contender.why_absent else ""
            print(f"    {contender.name}{absent}")


def compare(
    baseline: Mapping[str, Any], report: Mapping[str, Any], options: argparse.Namespace
) -> int:
    """Print what has changed since a baseline; return 1 for a regression, 2 for no figure."""
    found = list(
        changes(
            baseline["scenarios"],
            report["scenarios"],
            tolerance=options.tolerance,
            are_ratios=options.ratios,
        )
    )
    if not found:
        what = "ratio" if options.ratios else "figure"
        print(f"no {what} is both in {options.compare} and in this run", file=sys.stderr)
        return 2
    print("\n".join(change_lines(found)), file=sys.stderr)
    return int(any(change.is_regression for change in found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the programs, or the scenarios."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["profile"]:
        return profiling.main(words[1:])
    if words and words[0] in PROGRAMS:
        sys.argv = words
        runpy.run_module(f"benchmarks.{words[0]}", run_name="__main__")
        return 0
    options = parse(words)
    options.arguments = words
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
