"""A swarm of random worlds, in which each scenario that fails is made as small as possible.

`python -m tests.support.swarm --seeds 0..1000` runs a thousand of them, on as many processes
as there are processors. Each failure is a line that ends with the command which replays it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing.trace import PcapWriter
from tests.support.draw import draw_scenario
from tests.support.run import run_scenario
from tests.support.scenario import FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.support.run import Outcome

__all__ = ["Failure", "Result", "main", "run_seed", "shrink"]

SEEDS_PER_TASK: Final = 10
FAILURES_SHRUNK_MAX: Final = 20
"""Further failures are told, but not made smaller: so many have one cause."""
PROGRESS_EVERY: Final = 1_000


@attrs.frozen(kw_only=True)
class Failure:
    """A seed that failed.

    Attributes:
        seed: The seed.
        without: Features that were left out.
        what: The promise that was broken.
        always: Features that it was given in any case.
        does_repeat: Whether it failed when it was run again, if it was.
    """

    seed: int
    without: frozenset[str]
    what: str
    always: frozenset[str] = frozenset()
    does_repeat: bool = True

    @property
    def command(self) -> str:
        """Return what replays it."""
        command = f"python -m tests.support.swarm --seeds {self.seed}..{self.seed + 1}"
        if self.always:
            command = f"{command} --with {','.join(sorted(self.always))}"
        return f"{command} --without {','.join(sorted(self.without))}" if self.without else command


@attrs.frozen(kw_only=True)
class Result:
    """What a range of seeds came to.

    Attributes:
        seeds: How many were run.
        failures: Those that failed.
        virtual_ns: Virtual time, all worlds together.
        message_count: Messages received.
        datagram_count: Datagrams delivered.
        features: How many worlds had each feature.
    """

    seeds: int
    failures: tuple[Failure, ...]
    virtual_ns: int
    message_count: int
    datagram_count: int
    features: dict[str, int]


def run_seed(
    seed: int, without: frozenset[str] = frozenset(), always: frozenset[str] = frozenset()
) -> Outcome:
    """Run one seed."""
    return run_scenario(draw_scenario(seed, without=without, always=always))


@contextmanager
def silenced() -> Iterator[None]:
    """Keep the drivers' warnings to themselves: trouble is what a swarm is for."""
    logger = logging.getLogger("aeron_async")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@silenced()
def run_seeds(
    seeds: Sequence[int],
    without: frozenset[str] = frozenset(),
    always: frozenset[str] = frozenset(),
) -> Result:
    """Run some seeds in this process, silently."""
    failures: list[Failure] = []
    features = dict.fromkeys(FEATURES, 0)
    virtual_ns = message_count = datagram_count = 0
    for seed in seeds:
        scenario = draw_scenario(seed, without=without, always=always)
        for feature in scenario.features:
            features[feature] += 1
        outcome = run_scenario(scenario)
        virtual_ns += outcome.virtual_ns
        message_count += outcome.message_count
        datagram_count += outcome.datagram_count
        if outcome.failure:
            failures.append(
                Failure(seed=seed, without=without, what=outcome.failure, always=always)
            )
    return Result(
        seeds=len(seeds),
        failures=tuple(failures),
        virtual_ns=virtual_ns,
        message_count=message_count,
        datagram_count=datagram_count,
        features=features,
    )


def shrink(failure: Failure) -> Failure:
    """Leave out one feature after the other for as long as anything still fails.

    First it is run as it was: a story that is not the same twice cannot be told by its seed.
    """
    always = failure.always
    if not run_seed(failure.seed, failure.without, always).failure:
        return attrs.evolve(failure, does_repeat=False)
    smallest = failure
    features = draw_scenario(failure.seed, without=failure.without, always=always).features
    for feature in sorted(features):
        without = smallest.without | {feature}
        outcome = run_seed(failure.seed, without, always)
        if outcome.failure:
            smallest = attrs.evolve(smallest, without=without, what=outcome.failure)
    return smallest


def write_pcap(failure: Failure, directory: Path) -> Path:
    """Run a failure again, write what happened on its network, and return the file."""
    path = directory / f"swarm-{failure.seed}.pcap"
    with PcapWriter(path) as writer:
        scenario = draw_scenario(failure.seed, without=failure.without, always=failure.always)
        run_scenario(scenario, watcher=writer)
    return path


def collect_rarely() -> None:
    """Let the collector look at what a world made, and at the modules never: a fifth less time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def run_parallel(
    seeds: Sequence[int],
    jobs: int,
    without: frozenset[str],
    always: frozenset[str] = frozenset(),
) -> Iterator[Result]:
    """Run seeds on several processes; results come in the order of the seeds."""
    chunks = [seeds[i : i + SEEDS_PER_TASK] for i in range(0, len(seeds), SEEDS_PER_TASK)]
    if jobs == 1:
        yield from (run_seeds(chunk, without, always) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        yield from pool.map(run_seeds, chunks, [without] * len(chunks), [always] * len(chunks))


@silenced()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code: 0 where nothing failed, 1 otherwise."""
    options = parse(arguments)
    started = perf_counter()
    total: list[Result] = []
    failures: list[Failure] = []
    done = 0
    for result in run_parallel(options.seeds, options.jobs, options.without, options.always):
        total.append(result)
        for failure in result.failures:
            small = failure
            if len(failures) < FAILURES_SHRUNK_MAX and not options.no_shrink:
                small = shrink(failure)
                path = write_pcap(small, options.pcap) if small.does_repeat else "does not repeat"
                print(f"FAILED {small.seed} {small.what} | {path} | {small.command}", flush=True)  # noqa: T201 - a command line
            else:
                print(f"FAILED {small.seed} {small.what} | {small.command}", flush=True)  # noqa: T201 - a command line
            failures.append(small)
        done += result.seeds
        if done % PROGRESS_EVERY == 0:
            print(f"{done} seeds, {len(failures)} failed", flush=True)  # noqa: T201 - a command line
    print(summary(total, perf_counter() - started))  # noqa: T201 - a command line
    return 1 if failures else 0


def summary(results: Iterable[Result], seconds: float) -> str:
    """Return the last line."""
    results = list(results)
    seeds = sum(each.seeds for each in results)
    failed = sum(len(each.failures) for each in results)
    virtual_s = sum(each.virtual_ns for each in results) / NS_PER_SECOND
    messages = sum(each.message_count for each in results)
    datagrams = sum(each.datagram_count for each in results)
    return (
        f"{seeds} seeds, {failed} failed, {virtual_s / 3600:.1f} virtual hours in {seconds:.0f} s, "
        f"{messages} messages, {datagrams} datagrams"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.swarm",
        description="Run random worlds; each failure is printed with the command that replays it.",
    )
    parser.add_argument("--seeds", type=seed_range, required=True, help="A..B, B not included")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--without", type=features, default=frozenset(), help="features left out")
    parser.add_argument(
        "--with", dest="always", type=features, default=frozenset(), help="features for all"
    )
    parser.add_argument("--no-shrink", action="store_true", help="tell failures as they are")
    parser.add_argument("--pcap", type=directory, default=Path(), help="where captures are written")
    return parser.parse_args(arguments)


def seed_range(text: str) -> range:
    """Return the seeds that `A..B` means.

    Raises:
        ArgumentTypeError: It means none.
    """
    first, separator, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) if separator else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        message = f"{text!r} must be A..B with A below B, or one seed"
        raise argparse.ArgumentTypeError(message)
    return seeds


def features(text: str) -> frozenset[str]:
    """Return the features that a comma-separated list names.

    Raises:
        ArgumentTypeError: One of them does not exist.
    """
    names = frozenset(filter(None, text.split(",")))
    if unknown := names - set(FEATURES):
        message = f"no feature {', '.join(sorted(unknown))}; there are {', '.join(FEATURES)}"
        raise argparse.ArgumentTypeError(message)
    return names


def directory(text: str) -> Path:
    """Return a directory, made if need be: better now than after a night's run.

    Raises:
        ArgumentTypeError: It cannot be made.
    """
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the directory {text!r}: {error.strerror}"
        raise argparse.ArgumentTypeError(message) from error
    return path


if __name__ == "__main__":
    sys.exit(main())
