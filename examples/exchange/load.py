"""How fast a running exchange is: orders by calls to the engine, each recorded before it counts.

python -m examples.exchange.load FOLDER [--at-once N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from itertools import count
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, NamedTuple

import aeron_async as aa
from aeron_async import rpc
from examples.exchange.messages import ACK, NewOrder, encode_command
from examples.exchange.wiring import SERVICE, Wiring

if TYPE_CHECKING:
    from examples.exchange.messages import Side

PERCENTILES: Final = (50, 90, 99)


class Way(NamedTuple):
    """The way of one order, in milliseconds: altogether, and three parts of it in the engine."""

    whole: float
    queued: float
    recorded: float
    matched: float


async def measure(wiring: Wiring, at_once: int, seconds: float) -> list[Way]:
    """Send orders that trade with one another; return the way of each."""
    ways: list[Way] = []
    numbers = count(time.time_ns() // 1_000)
    async with aa.Aeron.connect() as aeron, rpc.Client(aeron, wiring.engine, SERVICE) as engine:
        await engine.wait_connected(timeout=10)
        end = time.perf_counter() + seconds

        async def trade(account: str, side: Side) -> None:
            while (began := time.perf_counter()) < end:
                order = NewOrder(
                    account,
                    next(numbers),
                    0,
                    "DYNE",
                    side,
                    "LIMIT",
                    990,
                    10,
                )
                ack = ACK.decode(await engine.call("submit", encode_command(order)))
                assert ack.reason in {"NONE", "TOO_MANY_ORDERS"}, ack
                whole = (time.perf_counter() - began) * 1e3
                parts = (ack.queued_ns / 1e6, ack.recorded_ns / 1e6, ack.matched_ns / 1e6)
                ways.append(Way(whole, *parts))

        async with asyncio.TaskGroup() as group:
            for number in range(at_once):
                side: Side = "BUY" if number % 2 else "SELL"
                group.create_task(trade(f"load-{number}", side))
    return ways


def main() -> None:
    """Print a line."""
    parser = argparse.ArgumentParser(prog="python -m examples.exchange.load", description=__doc__)
    parser.add_argument("folder", help="folder of the exchange")
    parser.add_argument("--at-once", type=int, default=1, help="orders that are under way")
    parser.add_argument("--seconds", type=float, default=3)
    given = parser.parse_args()
    ways = asyncio.run(measure(Wiring.read(given.folder), given.at_once, given.seconds))
    cuts = quantiles((each.whole for each in ways), n=100)
    shown = ", ".join(f"{each} % within {cuts[each - 1]:.1f} ms" for each in PERCENTILES)
    print(f"{given.at_once} at once: {len(ways) / given.seconds:,.0f} orders/s, {shown}")
    queued, recorded, matched = (median(column) for column in list(zip(*ways, strict=True))[1:])
    print(
        f"  queued {queued:.2f} ms, recorded {recorded:.2f} ms, matched {matched:.3f} ms (medians)"
    )


if __name__ == "__main__":
    main()
