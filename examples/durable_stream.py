"""A log by name: a producer continues it, and a consumer hands it over to a database once."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

import aeron_async as aa
from aeron_async.archive import ArchiveContext, DurableStream, LocalArchive, SqliteCursorStore

ORDERS = 5


async def run(folder: Path) -> None:
    """Append some orders, and hand over those that are new."""
    context = ArchiveContext(directory=str(folder / "archive"), low_storage_threshold=0)
    async with (
        aa.Aeron.connect() as aeron,
        DurableStream(lambda: LocalArchive.open(aeron, context), aeron, "aeron:ipc", 1001) as log,
        SqliteCursorStore(folder / "orders.db", "billing") as store,
    ):
        async with log.produce("shop") as producer:
            print("the log ends with", producer.last_sequence)
            for _ in range(ORDERS):
                await producer.append(b"an order")
            sequence = await producer.flush()
            print("recorded up to", sequence)

        async with log.consume(cursor=store) as consumer:
            async for batch in consumer.batches():
                rows = [(each.sequence, each.data.decode()) for each in batch.records]

                def insert(database: sqlite3.Connection, rows: list = rows) -> None:  # type: ignore[type-arg]
                    database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER, text)")
                    database.executemany("INSERT INTO orders VALUES (?, ?)", rows)

                # The rows and the cursor behind them: both are stored, or neither.
                await store.hand_over(batch.cursor, insert)
                if batch.records[-1].sequence == sequence:
                    break


async def main() -> None:
    """Produce and consume twice, as after a restart."""
    with tempfile.TemporaryDirectory() as folder:
        await run(Path(folder))
        await run(Path(folder))
        with sqlite3.connect(Path(folder) / "orders.db") as database:
            print(
                "orders:", [number for (number,) in database.execute("SELECT number FROM orders")]
            )


if __name__ == "__main__":
    asyncio.run(main())
