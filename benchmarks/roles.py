"""The roles that only the benchmarks have: streams that lose, many idle ones, and those of others.

Started as `python -m benchmarks.roles ROLE PLAN`; see `aeron_async.cli.bench_child`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import psutil

import aeron_async as aa
from aeron_async.cli import bench_child
from aeron_async.cli.bench_child import ROLES, StreamPlan, play, ready, say
from benchmarks import roles_archive, roles_called, roles_peers, roles_shared
from benchmarks.loss import LossyNetwork
from benchmarks.profiling import profiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.cli.bench_child import Role

CHILD: Final = (sys.executable, "-m", "benchmarks.roles")
CONNECT_TIMEOUT_S: Final = 60.0


async def lossy(plan: dict[str, Any]) -> dict[str, float]:
    """Publish or subscribe over a network that loses a share of the datagrams."""
    network = LossyNetwork(plan.pop("loss"), plan.pop("seed"))
    is_publisher = plan.pop("is_publisher")
    driver = aa.MediaDriver.launch(aa.DriverContext(), network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        if is_publisher:
            return await bench_child.publish(aeron, StreamPlan(**plan))
        return await bench_child.subscribe(aeron, StreamPlan(**plan), ready=ready)


async def idle(plan: dict[str, Any]) -> dict[str, float]:
    """Hold streams open and silent, and say what that costs, until the process is ended."""
    channel, seconds, count = plan["channel"], plan["seconds"], plan["streams"]
    context = aa.DriverContext(
        # A stream has eleven counters and a log of 200 KiB; ten thousand are beyond the defaults.
        counters_buffer_length=64 << 20,
        image_log_budget_length=4 << 30,
    )
    async with AsyncExitStack() as stack:
        aeron = await stack.enter_async_context(aa.Aeron.connect(context=context))
        if plan["is_publisher"]:
            publications = [await aeron.add_publication(channel, number) for number in range(count)]
            for publication in publications:
                await publication.wait_connected(CONNECT_TIMEOUT_S)
        else:
            subscriptions = [
                await aeron.add_subscription(channel, number) for number in range(count)
            ]
            ready()
            for subscription in subscriptions:
                await subscription.wait_connected(CONNECT_TIMEOUT_S)
        await asyncio.sleep(plan["settle_s"])
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - started_cpu_s) / (time.perf_counter() - started_s)
        side = "publisher" if plan["is_publisher"] else "subscriber"
        resident = psutil.Process().memory_info().rss / 1e6
        figures = {f"{side}_percent": 100 * share, f"{side}_resident_mb": resident}
        # The other end is still measuring, and is to be connected until it has done.
        say(figures=figures)
        await asyncio.Event().wait()
    return {}


ALL: Final[Mapping[str, Role]] = {
    **ROLES,
    **roles_archive.ROLES,
    **roles_called.ROLES,
    **roles_peers.ROLES,
    **roles_shared.ROLES,
    "lossy": lossy,
    "idle": idle,
}

if __name__ == "__main__":
    sys.exit(profiled(lambda: play(ALL, sys.argv[1:])))
