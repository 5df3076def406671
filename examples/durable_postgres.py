"""Hand a log over to PostgreSQL: the rows and the cursor behind them in one transaction."""

import asyncio
import os
import sys
import tempfile

import aeron_async as aa
from aeron_async.archive import ArchiveContext, Cursor, DurableStream, LocalArchive, RecordBatch
from aeron_async.errors import CursorConflictError

try:
    import psycopg
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'psycopg[binary]'")

TABLES = """
CREATE TABLE IF NOT EXISTS orders (number BIGINT, data TEXT);
CREATE TABLE IF NOT EXISTS places (name TEXT PRIMARY KEY, cursor TEXT);
INSERT INTO places VALUES ('billing', NULL) ON CONFLICT DO NOTHING"""
# It waits for the transaction of a consumer that was killed.
LOAD = "SELECT cursor FROM places WHERE name = 'billing' FOR UPDATE"
MOVE = "UPDATE places SET cursor = %s WHERE name = 'billing' AND cursor IS NOT DISTINCT FROM %s"


async def hand_over(database: psycopg.AsyncConnection, old: str | None, batch: RecordBatch) -> str:
    """Insert a batch and move the cursor, or raise because another consumer has moved it."""
    new = str(batch.cursor)
    async with database.transaction():
        # This locks the row: a second consumer waits here, and then finds another cursor.
        moved = await database.execute(MOVE, (new, old))
        if moved.rowcount != 1:
            message = f"the cursor is no longer {old}: end one of the two consumers"
            raise CursorConflictError(message)
        rows = [(each.sequence, each.data.decode()) for each in batch.records]
        await moved.executemany("INSERT INTO orders VALUES (%s, %s)", rows)
    return new


async def main(folder: str) -> None:
    """Produce and consume; the cursor in the database counts."""
    context = ArchiveContext(directory=folder, low_storage_threshold=0)
    async with (
        aa.Aeron.connect() as aeron,
        DurableStream(lambda: LocalArchive.open(aeron, context), aeron, "aeron:ipc", 1001) as log,
        log.produce("shop") as producer,
        await psycopg.AsyncConnection.connect(os.environ["DATABASE"], autocommit=True) as database,
    ):
        await producer.append(b"an order", durable=True)
        await database.execute(TABLES)
        ((place,),) = await (await database.execute(LOAD)).fetchall()
        async with log.consume(start=Cursor.parse(place) if place else "first") as consumer:
            batch = await anext(consumer.batches(1000))
            place = await hand_over(database, place, batch)
        print("up to", place)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
