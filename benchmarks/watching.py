"""What it costs to wait for memory that another process writes, and how soon the loop knows.

For each idle strategy: the share of one core that this process uses while one word is armed and
nobody writes it, and the time from a store in another process to the callback on the loop, half of
all stores being quicker (p50). The other process stores after a silence, during which it sleeps.

    python -m benchmarks.watching --loop uvloop --seconds 10 --rounds 500
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop

from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
from aeron_async.idle_strategy import IdleStrategy, format_idle_strategy, parse_idle_strategy
from aeron_async.watcher import Watcher
from benchmarks.machine import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTH: Final = 4096
ROUND: Final = 0
STORED_AT_NS: Final = 128
SETTLING_S: Final = 2.0
"""Before the processor time is taken: the longest naps begin after a second of silence."""
STRATEGIES: Final = (
    ("spin", ""),
    ("yield", ""),
    ("sleep-ns", "50us"),
    ("sleep-ns", "1ms"),
    ("backoff", "10-20-1us-1ms"),
    ("backoff", "10-20-50us-1ms"),
)
SILENCES_US: Final = (300, 10_000)


def shared_words(path: str) -> tuple[Mapping, AtomicBuffer]:
    """Map the file that both processes share."""
    fd = os.open(path, os.O_RDWR)
    try:
        mapping = Mapping(fd, LENGTH)
    finally:
        os.close(fd)
    return mapping, AtomicBuffer(mapping)


def write(path: str) -> None:
    """Store once for each line on standard input, which says after how many microseconds."""
    _, shared = shared_words(path)
    for line in sys.stdin:
        time.sleep(int(line) / 1e6)
        shared.store_release_64(STORED_AT_NS, time.monotonic_ns())
        shared.fetch_add_64(ROUND, 1)


async def idle_share(strategy: IdleStrategy, seconds: float, *, is_armed: bool) -> float:
    """Return the share of one core that this process uses while nothing happens."""
    memory = bytearray(8)
    with Watcher(asyncio.get_running_loop(), strategy) as watcher:
        word = watcher.add(memory, 0, 64, lambda: None)
        if is_armed:
            word.arm(0)
        await asyncio.sleep(SETTLING_S)
        started, started_cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - started_cpu) / (time.monotonic() - started)


async def delays_us(strategy: IdleStrategy, silence_us: int, rounds: int) -> Sequence[float]:
    """Return how long each store took to reach the loop, in microseconds, sorted."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.truncate(file.name, LENGTH)
        mapping, shared = shared_words(file.name)
        command = [sys.executable, "-m", "benchmarks.watching", "--write", file.name]
        writer = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE)
        assert writer.stdin is not None
        rung = asyncio.Event()
        found: list[float] = []

        def on_store() -> None:
            found.append((time.monotonic_ns() - shared.load_acquire_64(STORED_AT_NS)) / 1_000)
            rung.set()

        try:
            with Watcher(asyncio.get_running_loop(), strategy) as watcher:
                word = watcher.add(mapping, ROUND, 64, on_store)
                for number in range(rounds):
                    word.arm(number)
                    writer.stdin.write(b"%d\n" % silence_us)
                    await rung.wait()
                    rung.clear()
        finally:
            writer.stdin.close()
            await writer.wait()
    # The first one waits for the other process to start.
    return sorted(found[1:])


async def measure(seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Return the figures of every strategy."""
    found: dict[str, dict[str, float]] = {}
    for name, values in STRATEGIES:
        strategy = parse_idle_strategy(name, values)
        figures = {"idle": await idle_share(strategy, seconds, is_armed=True)}
        for silence_us in SILENCES_US:
            delays = await delays_us(strategy, silence_us, rounds)
            figures[f"p50 after {silence_us} us"] = statistics.median(delays)
            figures[f"p99 after {silence_us} us"] = delays[len(delays) * 99 // 100]
        found[" ".join(format_idle_strategy(strategy)).strip()] = figures
    unarmed = await idle_share(parse_idle_strategy("spin"), seconds, is_armed=False)
    found["any, no word armed"] = {"idle": unarmed}
    return found


def table(found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    silences = [f"{silence_us / 1_000:g} ms" for silence_us in SILENCES_US]
    heads = ["idle strategy", "CPU when idle", *(f"p50 after {each}" for each in silences)]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for name, figures in found.items():
        cells = [f"`{name}`", f"{figures['idle']:.2%}"]
        for silence_us in SILENCES_US:
            delay_us = figures.get(f"p50 after {silence_us} us")
            cells.append("" if delay_us is None else f"{delay_us:.0f} us")
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    parser.add_argument("--seconds", type=float, default=10, help="length of each idle run")
    parser.add_argument("--rounds", type=int, default=500, help="stores for each delay")
    parser.add_argument("--json", action="store_true", help="print JSON, and not Markdown")
    parser.add_argument("--write", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(arguments.write)
        return
    run: Any = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    facts = {"loop": arguments.loop, **machine()}
    found = run(measure(arguments.seconds, arguments.rounds))
    if arguments.json:
        print(json.dumps({**facts, "strategies": found}))
    else:
        print(*(f"{name}: {value}" for name, value in facts.items()), "", sep="\n")
        print(*table(found), sep="\n")


if __name__ == "__main__":
    main()
