r"""How long a door holds up its event loop while tools watch it.

A process with a door, and statistics of many streams, turns its loop as fast as it can, while
watchers in other processes read. Prints the longest turns as JSON: by processor time of the thread,
which others on the machine do not change, and by the clock; and what one snapshot takes to encode.

    python -m benchmarks.door --watchers 1 --seconds 8 --loop uvloop
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from aeron_async.door import DoorClient, StatsDoor
from aeron_async.stats_json import json_pieces
from tests.snapshots import stats_of_many

INTERVAL_S = 1.0
KEPT = 5
ROUNDS = 5
START_CHECKS = 3_000


async def read(path: str, count: int) -> None:
    """Watch a door, as a tool does."""
    async with DoorClient(path) as door:
        async for _ in door.watch(INTERVAL_S):
            count -= 1
            if count == 0:
                break


async def turn(seconds: float) -> dict[str, object]:
    """Turn the loop for a time, and return the longest turns in microseconds."""
    worked, passed, turns = [0] * KEPT, [0] * KEPT, 0
    end_ns = time.perf_counter_ns() + round(seconds * 1e9)
    now_ns, used_ns = time.perf_counter_ns(), time.thread_time_ns()
    while now_ns < end_ns:
        await asyncio.sleep(0)
        before_ns, before_used_ns = now_ns, used_ns
        now_ns, used_ns = time.perf_counter_ns(), time.thread_time_ns()
        heapq.heappushpop(passed, now_ns - before_ns)
        heapq.heappushpop(worked, used_ns - before_used_ns)
        turns += 1
    return {
        "turns": turns,
        "longest_turns_us": [each // 1_000 for each in sorted(worked)],
        "longest_turns_by_the_clock_us": [each // 1_000 for each in sorted(passed)],
    }


def encode(streams: int) -> dict[str, object]:
    """Return what it takes to encode a snapshot, the median of a few."""
    times: list[int] = []
    longest: list[int] = []
    pieces: list[bytes] = []
    for _ in range(ROUNDS):
        stats = stats_of_many(streams)
        each_ns, pieces = [], []
        before_ns = time.thread_time_ns()
        for piece in json_pieces(stats):
            pieces.append(piece)
            now_ns = time.thread_time_ns()
            each_ns.append(now_ns - before_ns)
            before_ns = now_ns
        times.append(sum(each_ns))
        longest.append(max(each_ns))
    return {
        "bytes": sum(map(len, pieces)),
        "pieces": len(pieces),
        "encode_us": median(times) // 1_000,
        "longest_piece_us": median(longest) // 1_000,
    }


async def measure(watchers: int, streams: int, seconds: float) -> dict[str, object]:
    """Return the longest turns of a loop with a door, while it is watched."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "door"))
        async with StatsDoor(
            path, lambda: stats_of_many(streams), version="0", pid=os.getpid()
        ) as door:
            count = str(int(seconds / INTERVAL_S) + 2)
            program = [sys.executable, "-m", "benchmarks.door", "--read", path, "--count", count]
            readers = [await asyncio.create_subprocess_exec(*program) for _ in range(watchers)]
            for _ in range(START_CHECKS):
                if door.client_count == watchers:
                    break
                await asyncio.sleep(0.01)
            else:
                message = f"only {door.client_count} of {watchers} watchers have come"
                raise RuntimeError(message)
            gc.collect()
            gc.freeze()
            figures = await turn(seconds)
            for each in readers:
                await each.wait()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--watchers", type=int, default=1)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    parser.add_argument("--read", help="be a watcher of this door")
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    run = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    if arguments.read:
        run(read(arguments.read, arguments.count))
        return
    encoded = encode(arguments.streams)
    turned = run(measure(arguments.watchers, arguments.streams, arguments.seconds))
    print(json.dumps({"loop": arguments.loop, "watchers": arguments.watchers, **encoded, **turned}))


if __name__ == "__main__":
    main()
