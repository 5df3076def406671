"""Produce and consume a log with a committed place, as with Kafka, in this process."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aeron_async as aa
from aeron_async.archive import ArchiveContext, DurableStream, FileCursorStore, LocalArchive

ORDERS = 1001


async def consume(log: DurableStream, folder: Path, count: int) -> None:
    """Read some records, and commit: one file of a cursor stands for one group."""
    async with (
        FileCursorStore(folder / "billing.cursor") as store,
        log.consume(start="first", cursor=store) as consumer,
    ):
        taken = 0
        async for record in consumer:
            print(f"record {record.sequence}: {record.data.decode()}")
            taken += 1
            if taken == count:
                await consumer.commit()
                break


async def main() -> None:
    """Produce four orders, and consume them in two lives."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context = ArchiveContext(directory=str(folder / "archive"), low_storage_threshold=0)
        async with (
            aa.Aeron.connect() as aeron,
            LocalArchive.open(aeron, context) as archive,
            DurableStream(archive, aeron, "aeron:ipc", ORDERS) as log,
        ):
            async with log.produce("shop") as producer:
                for number in range(3):
                    await producer.append(b"order %d" % number)
                # acks=all and a flush: it returns when the record is in the recording.
                await producer.append(b"order 3", durable=True)
            await consume(log, folder, 2)
            print("the consumer was restarted")
            await consume(log, folder, 2)


asyncio.run(main())
