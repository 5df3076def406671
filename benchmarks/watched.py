"""What it costs to be watched: throughput and latency with and without a scraper and a live view.

    python -m benchmarks.watched --streams 100 --rounds 5

One event loop publishes on so many streams and reads them, by turns alone, with company, and
watched. While it is watched, another process fetches its metrics once a second, and a third runs
`aeron-async top` at its door. The company is two processes that take as much of the processors, at
the same pace, and look at nothing: a machine of two cores runs slower for their sake alone.

All programs run from the beginning, and stand still but in their own turns: a round is one turn of
each side, so short that the rest of the machine is the same to all of them. The figures are medians
of the rounds' ratios, watched by alone and watched by company; among them the processor time of the
observed process for a message, and of the silent one, which others on the machine change least;
then the processor time of one snapshot, and how long it stops the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aeron_async as aa
from aeron_async.driver.core.context import DriverContext
from aeron_async.metrics import serve_metrics
from aeron_async.metrics.series import MetricSeries
from aeron_async.metrics.text import write_metrics
from aeron_async.stats_json import Kept, json_pieces

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterator, Mapping

__all__ = ["main"]

Command: TypeAlias = tuple[str, ...]

MESSAGES: Final = [bytes(100)] * 32
CALIBRATION_S: Final = 10
NS_PER_US: Final = 1_000
NS_PER_SECOND: Final = 1_000_000_000
MS_PER_SECOND: Final = 1_000
SCRAPER: Final = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)
"""
COMPANY: Final = """
import sys, time
while True:
    end = time.process_time() + float(sys.argv[1])
    while time.process_time() < end:
        pass
    time.sleep(1)
"""
START_S: Final = 2
"""Seconds until a program that was started is at work; its start is no part of what it costs."""


async def turn(pair: tuple[aa.Publication, aa.Subscription]) -> None:
    """Publish some messages on one stream, and read them."""
    publication, subscription = pair
    await publication.offer_many(MESSAGES)
    for _ in MESSAGES:
        await anext(subscription)


async def measured(
    pairs: list[tuple[aa.Publication, aa.Subscription]], seconds: float
) -> dict[str, float]:
    """Return messages a second, the processor time of one, and the 99th percentile of a turn."""
    times_ns: list[int] = []
    began, began_s = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for pair in pairs:
            before_ns = time.perf_counter_ns()
            await turn(pair)
            times_ns.append(time.perf_counter_ns() - before_ns)
    elapsed, used_s = time.perf_counter() - began, time.process_time() - began_s
    messages = len(times_ns) * len(MESSAGES)
    return {
        "messages_per_s": messages / elapsed,
        "processor_ns_per_message": used_s * NS_PER_SECOND / messages,
        "p99_us": quantiles(times_ns, n=100)[98] / NS_PER_US,
    }


async def silent(seconds: float) -> dict[str, float]:
    """Return the processor time of this process a second while nothing is published."""
    began_s, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - began
    return {"silent_ms_per_s": (time.process_time() - began_s) / elapsed * MS_PER_SECOND}


@asynccontextmanager
async def beside(*commands: Command) -> AsyncIterator[list[Process]]:
    """Run programs beside this one, which are at work when this begins, and end them."""
    nowhere = asyncio.subprocess.DEVNULL
    programs = [
        await asyncio.create_subprocess_exec(sys.executable, *each, stdout=nowhere, stderr=nowhere)
        for each in commands
    ]
    try:
        await asyncio.sleep(START_S)
        yield programs
    finally:
        for each in programs:
            each.kill()
            await each.wait()


def watchers(url: str, door: str) -> list[Command]:
    """Return the commands of two programs that look: one at the metrics, one at the door."""
    return [("-c", SCRAPER, url), ("-m", "aeron_async", "top", "--door", door, "--json")]


def used_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def appetite(commands: list[Command], seconds: float) -> list[float]:
    """Return the processor time that each program uses in a second."""
    async with beside(*commands) as programs:
        before = [used_s(each.pid) for each in programs]
        await asyncio.sleep(seconds)
        return [
            (used_s(each.pid) - began) / seconds
            for each, began in zip(programs, before, strict=True)
        ]


@contextmanager
def at_work(programs: Mapping[str, list[Process]], side: str) -> Iterator[None]:
    """Let the programs of one side work, and all others stand still."""
    for name, each in programs.items():
        for program in each:
            program.send_signal(signal.SIGCONT if name == side else signal.SIGSTOP)
    try:
        yield
    finally:
        for program in programs[side]:
            program.send_signal(signal.SIGSTOP)


def ratios(rows: list[dict[str, float]], others: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return the median and the quartiles of the rounds' ratios of each figure."""
    found = {}
    for name in rows[0]:
        each = [row[name] / other[name] for row, other in zip(rows, others, strict=True)]
        low, _, high = quantiles(each, n=4) if len(each) > 1 else (each[0],) * 3
        found[name] = [median(each), low, high]
    return found


async def one_turn() -> int:
    """Return how long a turn of the loop takes, in nanoseconds."""
    before_ns = time.perf_counter_ns()
    await asyncio.sleep(0)
    return time.perf_counter_ns() - before_ns


async def look(aeron: aa.Aeron, count: int) -> dict[str, float]:
    """Return the processor time of a snapshot at once, of its metrics, and of its JSON.

    Each is the first in a while, as that of a watcher is: what it reads has left the caches.
    """
    series, kept = MetricSeries(), Kept()
    times: dict[str, list[int]] = {"stats": [], "metrics": [], "json": []}
    for _ in range(count):
        await asyncio.sleep(0.3)
        began_ns = time.thread_time_ns()
        stats = aeron.stats()
        times["stats"].append(time.thread_time_ns() - began_ns)
        began_ns = time.thread_time_ns()
        for text in write_metrics(stats, series):
            text.encode()
        times["metrics"].append(time.thread_time_ns() - began_ns)
        began_ns = time.thread_time_ns()
        for _piece in json_pieces(stats, kept):
            pass
        times["json"].append(time.thread_time_ns() - began_ns)
    return {f"{name}_processor_us": median(each) / NS_PER_US for name, each in times.items()}


async def stall(aeron: aa.Aeron, count: int) -> dict[str, float]:
    """Return how long a snapshot takes at once, and the longest turn while one is gathered.

    What the driver does in such a time anyhow is beside it: the longest turn of as many turns.
    """
    at_once, turns, quiet = [], [], []
    for _ in range(count):
        before_ns = time.perf_counter_ns()
        aeron.stats()
        at_once.append(time.perf_counter_ns() - before_ns)
        await asyncio.sleep(0.05)
    for _ in range(count):
        gathering, longest_ns = asyncio.ensure_future(aeron.gather_stats()), 0
        began_ns = time.perf_counter_ns()
        while not gathering.done():
            longest_ns = max(longest_ns, await one_turn())
        turns.append(longest_ns)
        took_ns = time.perf_counter_ns() - began_ns
        await asyncio.sleep(0.05)
        began_ns, longest_ns = time.perf_counter_ns(), 0
        while time.perf_counter_ns() - began_ns < took_ns:
            longest_ns = max(longest_ns, await one_turn())
        quiet.append(longest_ns)
        await asyncio.sleep(0.05)
    return {
        **await look(aeron, count),
        "stats_us": median(at_once) / NS_PER_US,
        "gather_stats_longest_turn_us": median(turns) / NS_PER_US,
        "longest_turn_without_us": median(quiet) / NS_PER_US,
    }


async def measure(stream_count: int, rounds: int, seconds: float, port: int) -> dict[str, Any]:
    """Return the figures of each round, and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        door = str(Path(folder) / "door")
        context = DriverContext(stats_socket=door, term_buffer_length=1 << 17)
        async with aa.Aeron.connect(context=context) as aeron:
            channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
            pairs = []
            for stream_id in range(stream_count):
                subscription = await aeron.add_subscription(channel, stream_id)
                publication = await aeron.add_publication(channel, stream_id)
                pairs.append((publication, subscription))
            await measured(pairs, seconds)
            found: dict[str, list[dict[str, float]]] = {"alone": [], "company": [], "watched": []}
            async with serve_metrics(aeron.gather_stats) as server:
                looking = watchers(f"http://127.0.0.1:{server.port}/metrics", door)
                used = await appetite(looking, CALIBRATION_S)
                # Each works and then sleeps for a second: so much of a second and of its work.
                company: list[Command] = [("-c", COMPANY, str(each / (1 - each))) for each in used]
                async with beside(*company) as idle, beside(*looking) as lookers:
                    programs: dict[str, list[Process]] = {"company": idle, "watched": lookers}
                    programs["alone"] = []
                    for _ in range(rounds):
                        for side, rows in found.items():
                            with at_work(programs, side):
                                rows.append(await measured(pairs, seconds) | await silent(seconds))
            medians = {
                side: {name: median(each[name] for each in rows) for name in rows[0]}
                for side, rows in found.items()
            }
            return {
                "streams": stream_count,
                "watchers_processor_s_per_s": used,
                "rounds": found,
                "medians": medians,
                "ratios": {
                    f"watched_by_{side}": ratios(found["watched"], found[side])
                    for side in ("alone", "company")
                },
                "snapshot": await stall(aeron, 20),
            }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "20661")))
    given = parser.parse_args()
    figures = asyncio.run(measure(given.streams, given.rounds, given.seconds, given.port))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
