"""Drive a target with changed inputs of the corpus, and without a look at coverage.

    python -m tests.fuzz.blind TARGET --runs 100000 --seed 7

Where Atheris has no wheel this is the fuzzer; where it has one, this goes five times faster, for
nothing is rewritten. The same seed gives the same inputs. What fails is left in `build/fuzz`, as by
`tests.fuzz.run`.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import signal
import sys
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Final

import structlog

from tests.fuzz.run import CORPUS, LENGTHS, LONGEST_SCRIPT, TIMEOUT_S, WORK
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

INTERESTING: Final = (0, 1, 31, 32, 33, 127, 128, 255, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31)
MOST_CHANGES: Final = 8
KEPT: Final = 4_096


def main() -> int:
    """Run one target in this process."""
    parser = argparse.ArgumentParser(description="Fuzz a target from its corpus, blindly.")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    inputs = Inputs(options.target, Random(options.seed))
    signal.signal(signal.SIGVTALRM, give_up)
    started = perf_counter()
    for count in range(options.runs):
        data = inputs.following()
        if not holds(TARGETS[options.target], data):
            path = WORK / f"{options.target}-crash-{hashlib.sha256(data).hexdigest()[:16]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"input {count} failed: {path}", flush=True)
            return 1
    rate = options.runs / (perf_counter() - started)
    print(f"{options.target:16} {options.runs:>12,} runs {rate:>9,.0f} /s  clean", flush=True)
    return 0


def give_up(_signal: int, _frame: object) -> None:
    """Interrupt an input that takes too long."""
    message = f"an input took more than {TIMEOUT_S} s"
    raise TimeoutError(message)


def holds(target: Callable[[bytes], None], data: bytes) -> bool:
    """Tell whether an input does what it should, in time; say why if it does not."""
    signal.setitimer(signal.ITIMER_VIRTUAL, TIMEOUT_S)
    try:
        target(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return True


class Inputs:
    """Inputs made of those that were once worth keeping."""

    def __init__(self, target: str, rng: Random) -> None:
        self._rng = rng
        self._longest = LENGTHS.get(target, LONGEST_SCRIPT)
        self._pool = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))] or [b"\0"]

    def following(self) -> bytes:
        """Return another input; some are kept to be changed again."""
        rng = self._rng
        data = bytearray(rng.choice(self._pool))
        for _ in range(rng.randint(1, MOST_CHANGES)):
            self._change(data)
        made = bytes(data[: self._longest])
        if rng.random() < 1 / 64:
            if len(self._pool) < KEPT:
                self._pool.append(made)
            else:
                self._pool[rng.randrange(KEPT)] = made
        return made

    def _change(self, data: bytearray) -> None:
        rng = self._rng
        at = rng.randint(0, len(data))
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                data[at : at + rng.randint(1, 16)] = b""
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 32))
            case 3:
                length = rng.choice((1, 2, 4, 8))
                value = rng.choice(INTERESTING) * rng.choice((1, -1)) % (1 << 8 * length)
                data[at : at + length] = value.to_bytes(length, rng.choice(("little", "big")))
            case 4:
                other = rng.choice(self._pool)
                start = rng.randint(0, len(other))
                data[at:] = other[start:]
            case 5:
                length = rng.randint(1, 64)
                data[at:at] = data[at : at + length]
            case _:
                bit = 1 << rng.randrange(8)
                data[at : at + 1] = bytes(each ^ bit for each in data[at : at + 1])


if __name__ == "__main__":
    sys.exit(main())
