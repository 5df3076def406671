"""Call every function of a compiled module with hostile arguments, in any order.

    python -m tests.fuzz.compiled frames --runs 100000 --seed 7

A call returns, or raises an `Exception`; where it is valid, the twin in Python does the same. That
no call touches memory that is not its own is seen by a sanitizer only: see `tests.fuzz.sanitize`.
The same seed gives the same calls, where no thread takes part.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections import Counter
from importlib import import_module
from random import Random
from time import perf_counter
from typing import Final

from tests.fuzz.calls.unmade import unmade
from tests.fuzz.calls.values import DifferenceError, Values

MODULES: Final = (
    *(
        "appending",
        "arrays",
        "atomics",
        "bells",
        "calling",
        "chains",
        "clocks",
        "conflating",
        "deliveries",
        "frames",
        "gathering",
        "lanes",
    ),
    *("memory", "messages", "paths", "scanning", "silence", "sockets", "spinning", "walks"),
    *("watching", "writing"),
)
EPOCH: Final = 20_000
"""After so many calls all values and objects are made anew."""
UNMADE_SHARE: Final = 16
"""One call of so many is of an object that was not set up."""


def main() -> int:
    """Call the functions of one module, or of all in turn."""
    parser = argparse.ArgumentParser(description="Fuzz the compiled modules by their calls.")
    parser.add_argument("modules", nargs="*", help="which; all if none is named")
    parser.add_argument("--runs", type=int, default=100_000, help="calls for each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print a line for each function")
    options = parser.parse_args()
    for name in options.modules or MODULES:
        started = perf_counter()
        calls, raised = fuzz(name, options.runs, options.seed)
        rate = options.runs / (perf_counter() - started)
        share = raised.total() / max(1, calls.total())
        print(
            f"{name:10} {calls.total():>12,} calls {rate:>9,.0f} /s  {share:4.0%} raised",
            flush=True,
        )
        for each in sorted(calls) if options.each else ():
            print(f"    {each:50} {calls[each]:>12,} {raised[each]:>12,} raised")
    return 0


def fuzz(name: str, runs: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Return how often each function of a module was called, and how often it raised."""
    calls: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    with warnings.catch_warnings():
        # A step that was never awaited warns of that.
        warnings.simplefilter("ignore")
        for epoch in range(0, runs, EPOCH):
            count = min(EPOCH, runs - epoch)
            run_epoch(name, count, Random(f"{name} {seed} {epoch}"), calls, raised)
            # What is left may do something when it is freed, and warn.
            gc.collect()
    return calls, raised


def run_epoch(name: str, runs: int, rng: Random, calls: Counter[str], raised: Counter[str]) -> None:
    """Make values and objects, and call what there is of a module in random order."""
    values = Values(rng)
    found = import_module(f"tests.fuzz.calls.{name}").rounds(values)
    kinds = unmade(import_module(f"aeron_async._speedups.{name}"), values)
    share = max(1, len(kinds) * UNMADE_SHARE // len(found)) if kinds else 1
    rounds = list(found.items()) * share + [("unmade objects", call) for call in kinds.values()]
    for each in rng.choices(range(len(rounds)), k=runs):
        which, call = rounds[each]
        calls[which] += 1
        try:
            call()
        except SystemError as error:
            # The interpreter saw an error without a reason, or a reason without an error.
            message = f"{which}: {error}"
            raise DifferenceError(message) from error
        except (Exception, GeneratorExit):  # noqa: BLE001 - whatever it is, nothing was harmed
            raised[which] += 1


if __name__ == "__main__":
    sys.exit(main())
