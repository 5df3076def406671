"""Question: how much processor time does one message cost on each path, here and in a checkout?

Processor time hardly changes when other programs hold the cores, so it shows differences of two
or three parts in a hundred that the rates of a shared machine hide. Each path runs in a process
of its own; the slices of a run are measured one by one, and the cheapest slice counts:

    python -m benchmarks path_cost --beside ../before --rounds 8

`round-trip` is one message there and one back between two drivers, microseconds of processor for
both; `bursts` one message of a burst that is offered over UDP and read before the next one begins,
so that the batches are the same in every run; `udp` and `ipc` one message from `offer` to
`async for` in the same loop, in batches of any size; `offer` and `anext` either half of that alone,
over IPC; `offer-waiting` one offer of 8 KiB that has to wait for room, with what makes the room;
`idle` the share of a core that two connected, silent drivers take.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

import aeron_async as aa

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

__all__ = ["main", "table"]

HERE: Final = Path(__file__).resolve().parent.parent
PROGRAM: Final = Path(__file__).resolve()
STREAM_ID: Final = 1001
CONNECT_TIMEOUT_S: Final = 30
MESSAGE: Final = bytes(100)
SLICES: Final = 6
ROUND_TRIPS: Final = 6_000
MESSAGES: Final = 40_000
BURST: Final = 64
"""Messages of a burst: 8 KiB with their headers, six or seven datagrams."""
BURSTS: Final = 1_000
STEPS: Final = 500
"""Offers, or messages, between two looks at the clock where one half is measured alone."""
WAITS: Final = 4_000
LONGEST: Final = bytes(8_160)
"""A quarter of the window of an IPC stream with terms of 64 KiB, with its header."""
SETTLE_S: Final = 3
IDLE_S: Final = 10
Costs = dict[str, dict[str, list[float]]]
"""What each round found, by path and by checkout."""


async def round_trip() -> float:
    """Return the processor time of a message there and one back, in microseconds."""
    there, back = ("aeron:udp?endpoint=127.0.0.1:20421", "aeron:udp?endpoint=127.0.0.1:20422")
    async with aa.Aeron.connect() as near, aa.Aeron.connect() as far:
        arriving = await far.add_subscription(there, STREAM_ID)
        request = await near.add_exclusive_publication(there, STREAM_ID)
        returning = await near.add_subscription(back, STREAM_ID)
        response = await far.add_exclusive_publication(back, STREAM_ID)
        await request.wait_connected(timeout=CONNECT_TIMEOUT_S)
        await response.wait_connected(timeout=CONNECT_TIMEOUT_S)

        async def answer() -> None:
            async for message in arriving:
                await response.offer(message.data)

        async with asyncio.TaskGroup() as group:
            answering = group.create_task(answer())
            costs = []
            for _ in range(SLICES):
                began_s = time.process_time()
                for _ in range(ROUND_TRIPS):
                    await request.offer(MESSAGE)
                    await anext(returning)
                costs.append((time.process_time() - began_s) / ROUND_TRIPS)
            answering.cancel()
    return min(costs) * 1e6


async def bursts() -> float:
    """Return the processor time of a message in a burst of fixed size, in microseconds."""
    channel = "aeron:udp?endpoint=127.0.0.1:20425"
    async with aa.Aeron.connect() as near, aa.Aeron.connect() as far:
        subscription = await far.add_subscription(channel, STREAM_ID)
        publication = await near.add_exclusive_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)
        costs = []
        for _ in range(SLICES):
            began_s = time.process_time()
            for _ in range(BURSTS):
                for _ in range(BURST):
                    await publication.offer(MESSAGE)
                for _ in range(BURST):
                    await anext(subscription)
            costs.append((time.process_time() - began_s) / (BURSTS * BURST))
    return min(costs) * 1e6


async def one_loop(channel: str) -> float:
    """Return the processor time of a message within one loop, in microseconds."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)

        async def offer() -> None:
            for _ in range(MESSAGES * SLICES):
                await publication.offer(MESSAGE)

        async with asyncio.TaskGroup() as group:
            group.create_task(offer())
            costs = []
            for _ in range(SLICES):
                began_s = time.process_time()
                left = MESSAGES
                async for _ in subscription:
                    left -= 1
                    if not left:
                        break
                costs.append((time.process_time() - began_s) / MESSAGES)
    return min(costs) * 1e6


async def half(*, is_offer: bool) -> float:
    """Return the processor time of an offer alone, or of an `anext` alone, in microseconds."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
        publication = await aeron.add_exclusive_publication("aeron:ipc", STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)
        costs = []
        for _ in range(SLICES):
            cost = 0.0
            for _ in range(MESSAGES // STEPS + 1):
                began_s = time.process_time()
                for _ in range(STEPS):
                    await publication.offer(MESSAGE)
                offered_s = time.process_time()
                for _ in range(STEPS):
                    await anext(subscription)
                cost += offered_s - began_s if is_offer else time.process_time() - offered_s
            costs.append(cost / (STEPS * (MESSAGES // STEPS + 1)))
    return min(costs) * 1e6


async def waiting() -> float:
    """Return the processor time of an offer that waits for a reader, in microseconds."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
        publication = await aeron.add_exclusive_publication("aeron:ipc?term-length=64k", STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)
        while publication.try_offer(LONGEST) is not aa.OfferOutcome.BACK_PRESSURED:
            pass

        async def offer() -> None:
            while True:
                await publication.offer(LONGEST)

        async with asyncio.TaskGroup() as group:
            offering = group.create_task(offer())
            costs = []
            for _ in range(SLICES):
                began_s = time.process_time()
                for _ in range(WAITS):
                    await anext(subscription)
                    # The position moves, and makes room, when the next message is asked for.
                    await asyncio.sleep(0)
                costs.append((time.process_time() - began_s) / WAITS)
            offering.cancel()
    return min(costs) * 1e6


async def idle() -> float:
    """Return what two connected, silent drivers take, in parts of a hundred of one core."""
    channel = "aeron:udp?endpoint=127.0.0.1:20424"
    async with aa.Aeron.connect() as near, aa.Aeron.connect() as far:
        subscription = await far.add_subscription(channel, STREAM_ID)
        publication = await near.add_exclusive_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)

        async def read() -> None:
            async for _ in subscription:
                pass

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            await asyncio.sleep(SETTLE_S)
            began_s = time.process_time()
            await asyncio.sleep(IDLE_S)
            cost = (time.process_time() - began_s) / IDLE_S
            reading.cancel()
    return cost * 100


PATHS: Final[dict[str, tuple[str, Callable[[], Coroutine[None, None, float]]]]] = {
    "round-trip": ("μs of processor", round_trip),
    "bursts": ("μs of processor", bursts),
    "udp": ("μs of processor", lambda: one_loop("aeron:udp?endpoint=127.0.0.1:20423")),
    "ipc": ("μs of processor", lambda: one_loop("aeron:ipc")),
    "offer": ("μs of processor", lambda: half(is_offer=True)),
    "anext": ("μs of processor", lambda: half(is_offer=False)),
    "offer-waiting": ("μs of processor", waiting),
    "idle": ("% of a core", idle),
}


def measure(tree: Path, path: str) -> float:
    """Measure a path once, in a process that imports the package of a checkout.

    Raises:
        subprocess.CalledProcessError: The program failed there.
    """
    command = [sys.executable, str(PROGRAM), "--measure", path]
    environ = os.environ | {"PYTHONPATH": str(tree)}
    found = subprocess.run(  # noqa: S603 - a Python of ours, and arguments that were checked
        command, cwd=tree, env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(found.stdout)


def table(costs: Costs) -> Iterator[str]:
    """Yield the lines of a table in Markdown: the cheapest and the middle run of each checkout.

    The last two columns are what a message costs now as a share of what it cost before, by the
    cheapest runs and by the middle ones: below 1 is better.
    """
    yield "| path | unit | before | now | now / before | before, median | now, median | ratio |"
    yield "|---|---|---|---|---|---|---|---|"
    for path, sides in costs.items():
        unit = PATHS[path][0]
        before, now = sides["before"], sides["now"]
        least, least_now = min(before), min(now)
        middle, middle_now = statistics.median(before), statistics.median(now)
        yield (
            f"| {path} | {unit} | {least:.3f} | {least_now:.3f} | {least_now / least:.3f} "
            f"| {middle:.3f} | {middle_now:.3f} | {middle_now / middle:.3f} |"
        )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks path_cost", description=__doc__)
    parser.add_argument("--beside", type=Path, default=HERE, help="the checkout before")
    parser.add_argument("--only", default=",".join(PATHS), help="paths: a,b")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each path in each checkout")
    parser.add_argument("--measure", choices=PATHS, help="one run here; prints the cost alone")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each path in both checkouts by turns, and print the table."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.measure:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(PATHS[options.measure][1]()))
        return 0
    costs: Costs = {}
    for path in options.only.split(","):
        found: dict[str, list[float]] = {"before": [], "now": []}
        for number in range(options.rounds):
            sides = [("before", options.beside.resolve()), ("now", HERE)]
            for side, tree in sides if number % 2 == 0 else reversed(sides):
                found[side].append(measure(tree, path))
        costs[path] = found
        print(f"{path}: {found}", file=sys.stderr, flush=True)
    print("\n".join(table(costs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
