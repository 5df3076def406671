"""An archive, a producer and a consumer as processes, to be killed."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async import Aeron, DriverContext
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    Cursor,
    DurableStream,
    LocalArchive,
    RemoteArchive,
    SqliteCursorStore,
)
from aeron_async.errors import ArchiveBusyError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from aeron_async.archive import RecordBatch

__all__ = ["POSTGRES_SERVICES", "PRODUCER", "SERVICES"]

TERM: Final = 65_536
DRIVER: Final = DriverContext(term_buffer_length=TERM, ipc_term_buffer_length=TERM)
STREAM: Final = 7


def control(ports: tuple[int, int]) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{ports[0]}"


def log_of(aeron: Aeron, ports: tuple[int, int]) -> DurableStream:
    return DurableStream(
        lambda: RemoteArchive.connect(aeron, control_channel=control(ports), timeout=1),
        aeron,
        f"aeron:udp?endpoint=127.0.0.1:{ports[1]}",
        STREAM,
        source_location="remote",
    )


async def serve(path: Path, ports: tuple[int, int]) -> None:
    context = ArchiveContext(
        directory=str(path / "archive"), segment_length=2 * TERM, low_storage_threshold=0
    )
    async with Aeron.connect(context=DRIVER) as aeron:
        while True:
            try:
                archive = await LocalArchive.open(aeron, context)
            except ArchiveBusyError:
                await asyncio.sleep(0.1)
                continue
            break
        async with (
            archive,
            ControlServer(archive, aeron, ControlSettings(control_channel=control(ports))),
        ):
            await asyncio.get_running_loop().create_future()


async def produce(path: Path, ports: tuple[int, int]) -> None:
    """Append the numbers from the last one on, and note each that is recorded."""
    async with (
        Aeron.connect(context=DRIVER) as aeron,
        log_of(aeron, ports) as log,
        log.produce("numbers") as producer,
    ):
        noted = os.open(path / "recorded", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        while True:
            number = producer.last_sequence + 1
            await producer.append(b"%d" % number, durable=number % 10 == 0)
            if number % 10 == 0:
                os.write(noted, b"%d\n" % number)
                await asyncio.sleep(0.001)


async def consume(path: Path, ports: tuple[int, int]) -> None:
    """Hand each number over to a database."""

    def insert(batch: RecordBatch, database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE IF NOT EXISTS numbers (sequence INTEGER, data TEXT)")
        database.executemany(
            "INSERT INTO numbers VALUES (?, ?)",
            [(each.sequence, each.data.decode()) for each in batch.records],
        )

    async with (
        Aeron.connect(context=DRIVER) as aeron,
        SqliteCursorStore(path / "numbers.db", "numbers") as store,
        log_of(aeron, ports) as log,
        log.consume(cursor=store) as consumer,
    ):
        async for batch in consumer.batches(100):
            # A batch is handed over before the next one is read.
            await store.hand_over(batch.cursor, partial(insert, batch))


async def consume_into_postgres(path: Path, ports: tuple[int, int]) -> None:
    """Hand each number over to PostgreSQL, as the example does."""
    # Where it is not installed, this does not run.
    from psycopg import AsyncConnection  # noqa: PLC0415

    from examples.durable_postgres import LOAD, hand_over  # noqa: PLC0415

    async with (
        Aeron.connect(context=DRIVER) as aeron,
        await AsyncConnection.connect((path / "database").read_text(), autocommit=True) as database,
        log_of(aeron, ports) as log,
    ):
        ((place,),) = await (await database.execute(LOAD)).fetchall()
        async with log.consume(start=Cursor.parse(place) if place else "first") as consumer:
            async for batch in consumer.batches(100):
                place = await hand_over(database, place, batch)


def run_archive(path: Path, ports: tuple[int, int]) -> None:
    asyncio.run(serve(path, ports))


def run_producer(path: Path, ports: tuple[int, int]) -> None:
    asyncio.run(produce(path, ports))


def run_consumer(path: Path, ports: tuple[int, int]) -> None:
    asyncio.run(consume(path, ports))


def run_postgres_consumer(path: Path, ports: tuple[int, int]) -> None:
    asyncio.run(consume_into_postgres(path, ports))


PRODUCER: Final = 1
SERVICES: Final = (run_archive, run_producer, run_consumer)
POSTGRES_SERVICES: Final = (run_archive, run_producer, run_postgres_consumer)
