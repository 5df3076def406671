"""Add counters of an application to the driver's table, where every process of the host reads them.

A service that embeds its driver does the same with `Aeron.connect()`; only it can read them then.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aeron_async as aa

ORDERS = 5000
STARTS = 5001


async def work(directory: Path) -> None:
    """Count orders for as long as the service runs, and its starts for as long as the driver."""
    async with aa.Aeron.connect(directory=directory) as aeron:
        starts = await aeron.add_static_counter(STARTS, "starts of billing", registration_id=1)
        starts.increment()
        async with aeron.add_counter(ORDERS, "orders of billing", key=b"billing") as orders:
            orders.increment()
            orders.increment(4)
            await show(directory)


async def show(directory: Path) -> None:
    """Print the counters, as `aeron-async stat` or AeronStat would."""
    async with aa.Aeron.connect(directory=directory) as aeron:
        for record in aeron.counters:
            if record.type_id in {ORDERS, STARTS}:
                print(record.label, record.value)


async def main() -> None:
    """Start a driver in a folder of its own, and the service twice."""
    with tempfile.TemporaryDirectory() as parent:
        context = aa.DriverContext(aeron_directory=str(Path(parent, "aeron")))
        async with aa.MediaDriver.launch(context):
            await work(Path(parent, "aeron"))
            await work(Path(parent, "aeron"))


asyncio.run(main())
