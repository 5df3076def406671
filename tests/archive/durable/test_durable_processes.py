"""Producer, consumer and archive are killed with SIGKILL: the database has each record once."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive import Cursor, Record, RecordBatch
from aeron_async.errors import CursorConflictError
from tests.archive.durable.durable_processes import POSTGRES_SERVICES, PRODUCER, SERVICES
from tests.examples.programs import finish, start
from tests.postgres import running_postgres
from tests.warm import CONTEXT

with suppress(ModuleNotFoundError):
    import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

KILLS = int(os.environ.get("AERON_ASYNC_DURABLE_KILLS", "2"))
MORE = 200
"""Records that must come through after the last kill."""
LIMIT_S = 60.0


Service = Callable[["Path", tuple[int, int]], None]
Look = Callable[[], list[tuple[int, str]]]
"""Returns what a database has, in the order in which it came."""


class Processes:
    """The three processes, each started again when it was killed."""

    def __init__(
        self, path: Path, ports: tuple[int, int], services: Sequence[Service] = SERVICES
    ) -> None:
        self._services = services
        self._arguments = (path, ports)
        self._running: list[BaseProcess] = [self._started(each) for each in services]

    def _started(self, service: Service) -> BaseProcess:
        assert CONTEXT is not None
        process = CONTEXT.Process(target=service, args=self._arguments)
        process.start()
        return process

    def kill(self, number: int, *, again: bool) -> None:
        process = self._running[number]
        name = self._services[number].__name__
        assert process.exitcode is None, f"{name} has ended by itself"
        process.kill()
        process.join()
        if again:
            self._running[number] = self._started(self._services[number])

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.join()


def recorded(path: Path) -> int:
    """Return the last number that the producer was told is recorded."""
    try:
        lines = (path / "recorded").read_bytes().splitlines()
    except FileNotFoundError:
        return 0
    return int(lines[-1]) if lines else 0


def until(is_so: Callable[[], bool]) -> Iterator[None]:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < LIMIT_S, "nothing comes through any more"
        yield


def wait(is_so: Callable[[], bool]) -> None:
    for _ in until(is_so):
        time.sleep(0.05)


def kill_at_random(path: Path, processes: Processes, look: Look) -> None:
    """Kill one process after the other, and check that the database has each record once."""
    draw = random.Random(KILLS)

    def wait_for_more(count: int) -> None:
        known = len(look())
        wait(lambda: len(look()) > known + count)

    try:
        wait(lambda: len(look()) > 0)
        for _ in range(KILLS):
            processes.kill(draw.randrange(3), again=True)
            if draw.random() < 1 / 2:
                time.sleep(draw.random())
            else:
                wait_for_more(0)
        wait_for_more(MORE)
        processes.kill(PRODUCER, again=False)
        last = recorded(path)
        wait(lambda: len(look()) >= last)
    finally:
        processes.end()
    found = look()
    assert found == [(number, str(number)) for number in range(1, len(found) + 1)]
    assert len(found) >= last
    print(f"{KILLS} kills, {len(found)} records, {last} known to be recorded")  # noqa: T201


def test_killed_processes_hand_each_record_over_once(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    def look() -> list[tuple[int, str]]:
        with closing(sqlite3.connect(tmp_path / "numbers.db", timeout=10)) as database:
            try:
                return list(database.execute("SELECT sequence, data FROM numbers ORDER BY rowid"))
            except sqlite3.OperationalError:
                return []

    ports = (unused_udp_port_factory(), unused_udp_port_factory())
    kill_at_random(tmp_path, Processes(tmp_path, ports), look)


def test_killed_processes_hand_each_record_over_once_to_postgres(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    with running_postgres() as where:
        from examples.durable_postgres import TABLES  # noqa: PLC0415 - needs psycopg

        (tmp_path / "database").write_text(where)
        with psycopg.connect(where, autocommit=True) as database:
            database.execute(TABLES)
            # A vacuum gives the places of what a killed consumer did not commit to later rows.
            database.execute("ALTER TABLE orders SET (autovacuum_enabled = false)")

            def look() -> list[tuple[int, str]]:
                # Rows of a table that is only inserted into are in the order of their places.
                return database.execute("SELECT number, data FROM orders ORDER BY ctid").fetchall()

            ports = (unused_udp_port_factory(), unused_udp_port_factory())
            kill_at_random(tmp_path, Processes(tmp_path, ports, POSTGRES_SERVICES), look)


def test_the_example_hands_over_to_postgres(tmp_path: Path) -> None:
    with running_postgres() as where:
        for life in (1, 2):
            printed = finish(start("durable_postgres", str(tmp_path), DATABASE=where))
            assert re.fullmatch(
                r"up to aeron-log:[-0-9a-f]{36}/0/\d+/\d+-[0-9a-f]{8}@\d+", printed[0]
            )
            with psycopg.connect(where) as database:
                rows = database.execute("SELECT number, data FROM orders").fetchall()
            assert rows == [(number, "an order") for number in range(1, life + 1)]


async def test_the_example_has_one_consumer() -> None:
    cursor = Cursor(uuid.UUID(int=1), 0, 64)
    batch = RecordBatch([Record(b"1", cursor, sequence=1)])
    with running_postgres() as where:
        from examples.durable_postgres import TABLES, hand_over  # noqa: PLC0415 - needs psycopg

        async with await psycopg.AsyncConnection.connect(where, autocommit=True) as database:
            await database.execute(TABLES)
            assert await hand_over(database, None, batch) == str(cursor)
            with pytest.raises(CursorConflictError, match="no longer None"):
                await hand_over(database, None, batch)
            rows = await database.execute("SELECT number FROM orders")
            assert await rows.fetchall() == [(1,)]
