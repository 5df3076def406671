"""Cursors and their stores: text, crashes at any step, and two consumers of one name."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive import Cursor, FileCursorStore, SqliteCursorStore
from aeron_async.archive.disk.log_id import LOG_ID_NAME, read_log_id, read_or_create_log_id
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.errors import (
    ArchiveBusyError,
    ArchiveFileError,
    ConfigurationError,
    CursorConflictError,
    StorageError,
)
from tests.support.faulty_files import FaultyDirectory, ProcessStopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = uuid.UUID("12345678-1234-4234-9234-123456789abc")
OLD, NEW = Cursor(LOG, 3, 64), Cursor(LOG, 4, 9_600, 96, 0xFE)


@given(st.uuids(), st.integers(0, 2**63 - 1), st.integers(1, 2**58 - 1), st.integers(0, 2**32 - 1))
def test_a_cursor_survives_its_text(
    log_id: uuid.UUID, recording_id: int, count: int, check: int
) -> None:
    for known in ((), (32, check), (min(count * 32, 2**31 - 32), check)):
        for began_ms in (0, 1, 2**63 - 1):
            cursor = attrs.evolve(
                Cursor(log_id, recording_id, count * 32, *known), began_ms=began_ms
            )
            assert Cursor.parse(str(cursor)) == cursor
            assert len(str(cursor)) < 128


@given(st.text(max_size=200))
def test_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Cursor.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        f"aeron-log:{LOG}/1/33",
        f"aeron-log:{LOG}/-1/32",
        f"aeron-log:{LOG}/1/{2**63}",
        f"aeron-log:{LOG}/01/32",
        f"aeron-log:{LOG}/1/32\n",
        f"aeron-log:{LOG}/\u0661/32",
        f"aeron-log:{LOG}/1/32/64-00000000",
        f"aeron-log:{LOG}/1/64/33-00000000",
        f"aeron-log:{LOG}/1/64/0-00000001",
        f"aeron-log:{LOG}/1/64/32-0000001",
        f"aeron-log:{LOG}/1/64/32",
        f"aeron-log:{LOG}/1/64@0",
        f"aeron-log:{LOG}/1/64@01",
        f"aeron-log:{LOG}/1/64@{2**63}",
        f"aeron-log:{LOG}/1/64@1/32-00000000",
    ],
)
def test_a_cursor_of_impossible_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Cursor.parse(text)


@pytest.mark.parametrize("is_power_lost", [False, True])
async def test_a_crash_at_any_step_leaves_the_old_cursor_or_the_new(*, is_power_lost: bool) -> None:
    # Each seed loses other pages and names of those that were not synced.
    found = set()
    for seed in range(8):
        for step in range(1, 40):
            directory = FaultyDirectory(seed)
            store = FileCursorStore("cursor", directory=directory, disk=InlineDisk())
            await store.save(OLD)
            directory.stop_at = directory.steps + step
            is_done = True
            try:
                await store.save(NEW)
            except ProcessStopped:
                is_done = False
            directory.stop_at = None
            (directory.crash if is_power_lost else directory.kill)()
            again = FileCursorStore("cursor", directory=directory, disk=InlineDisk())
            cursor = await again.load()
            assert cursor == NEW if is_done else cursor in (OLD, NEW)
            found.add((is_done, cursor))
            if is_done:
                break
    assert found == {(False, OLD), (False, NEW), (True, NEW)}


async def test_a_file_of_a_cursor_has_one_user(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cursor"
    async with FileCursorStore(path) as store, FileCursorStore(path) as other:
        assert await store.load() is None
        await store.save(OLD)
        with pytest.raises(ArchiveBusyError):
            await other.load()
    async with FileCursorStore(path) as store:
        assert await store.load() == OLD


async def test_a_damaged_file_of_a_cursor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    path.write_bytes(b"\x1b[2J" + bytes(200))
    async with FileCursorStore(path) as store:
        with pytest.raises(ArchiveFileError) as caught:
            await store.load()
    assert "\x1b" not in str(caught.value)


async def test_results_and_cursor_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def write(database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER)")
        database.execute("INSERT INTO results VALUES (1)")

    def fail(database: sqlite3.Connection) -> None:
        write(database)
        raise LookupError

    async with SqliteCursorStore(path, "one") as store:
        await store.hand_over(OLD, write)
        with pytest.raises(LookupError):
            await store.hand_over(NEW, fail)
        assert await store.load() == OLD
        await store.hand_over(NEW, write)
        assert store.save_count == 2
    with closing(sqlite3.connect(path)) as database:
        assert list(database.execute("SELECT * FROM results")) == [(1,), (1,)]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_the_second_consumer_of_a_name_stores_nothing(
    tmp_path: Path, *, has_begun: bool
) -> None:
    path = tmp_path / "results.db"
    async with SqliteCursorStore(path, "one") as store, SqliteCursorStore(path, "one") as other:
        if has_begun:
            await store.save(OLD)
        await store.load()
        await other.load()
        await store.save(NEW)
        with pytest.raises(CursorConflictError):
            await other.hand_over(
                Cursor(LOG, 4, 32), lambda database: database.execute("CREATE TABLE results (n)")
            )
        assert await other.load() == NEW
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    assert "results" not in names


async def test_names_of_consumers_do_not_share_a_cursor(tmp_path: Path) -> None:
    hostile = "'; DROP TABLE aeron_cursor; --"
    path = tmp_path / "results.db"
    async with SqliteCursorStore(path, hostile) as store, SqliteCursorStore(path, "b") as other:
        await store.save(OLD)
        assert await other.load() is None
        assert await store.load() == OLD


async def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(b"no database" * 100)
    async with SqliteCursorStore(path, "one") as store:
        with pytest.raises(StorageError, match=r"results\.db"):
            await store.load()


def commit_by_with(database: sqlite3.Connection) -> None:
    with database:
        database.execute("INSERT INTO results VALUES (1)")


def commit_by_script(database: sqlite3.Connection) -> None:
    database.executescript("INSERT INTO results VALUES (1);")


def commit_by_text(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO results VALUES (1)")
    database.execute("COMMIT")


def commit_by_call(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO results VALUES (1)")
    database.commit()


def end_by_conflict(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO results VALUES (2)")
    with suppress(sqlite3.IntegrityError):
        database.execute("INSERT OR ROLLBACK INTO results VALUES (0)")


@pytest.mark.parametrize(
    "apply", [commit_by_with, commit_by_script, commit_by_text, commit_by_call, end_by_conflict]
)
async def test_a_function_that_ends_the_transaction_stores_nothing(
    tmp_path: Path, apply: Callable[[sqlite3.Connection], None]
) -> None:
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE results (number INTEGER UNIQUE)")
    async with SqliteCursorStore(path, "one") as store:
        await store.hand_over(
            OLD, lambda database: database.execute("INSERT INTO results VALUES (0)")
        )
        for _ in range(2):
            with pytest.raises((sqlite3.DatabaseError, ConfigurationError)):
                await store.hand_over(NEW, apply)
        assert await store.load() == OLD
        await store.hand_over(
            NEW, lambda database: database.execute("INSERT INTO results VALUES (3)")
        )
        assert await store.load() == NEW
    with closing(sqlite3.connect(path)) as database:
        assert list(database.execute("SELECT * FROM results")) == [(0,), (3,)]


async def test_a_cursor_does_not_go_back_within_a_recording(tmp_path: Path) -> None:
    earlier = Cursor(LOG, NEW.recording_id, NEW.position - 32)
    called: list[object] = []
    async with SqliteCursorStore(tmp_path / "results.db", "one") as store:
        await store.save(NEW)
        await store.save(earlier)
        assert await store.load() == NEW
        assert store.save_count == 1
        for reached in (earlier, NEW):
            with pytest.raises(CursorConflictError, match="has the results up to"):
                await store.hand_over(reached, called.append)
        assert called == []
        assert await store.load() == NEW


async def test_a_cursor_does_not_go_back_to_an_earlier_recording(tmp_path: Path) -> None:
    """The order is that of the log, which is not that of the ids."""
    first, second = Cursor(LOG, 9, 960, began_ms=100), Cursor(LOG, 4, 32, began_ms=200)
    called: list[object] = []
    async with SqliteCursorStore(tmp_path / "results.db", "one") as store:
        await store.hand_over(first, called.append)
        await store.hand_over(second, called.append)
        await store.save(first)
        with pytest.raises(CursorConflictError, match="has the results up to"):
            await store.hand_over(first, called.append)
        assert (len(called), await store.load()) == (2, second)


async def test_a_table_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE aeron_cursor (name TEXT PRIMARY KEY, log_id TEXT NOT NULL, recording_id "
            "INTEGER NOT NULL, position INTEGER NOT NULL, record_length INTEGER NOT NULL, "
            "record_check INTEGER NOT NULL) WITHOUT ROWID"
        )
        row = ("one", str(LOG), 3, 64, 32, 7)
        database.execute("INSERT INTO aeron_cursor VALUES (?, ?, ?, ?, ?, ?)", row)
        database.commit()
    newer = Cursor(LOG, 3, 96, 32, 8, 1_000)
    async with SqliteCursorStore(path, "one") as store, SqliteCursorStore(path, "two") as other:
        assert await store.load() == Cursor(LOG, 3, 64, 32, 7)
        await other.save(OLD)
        await store.save(newer)
        assert await store.load() == newer
        assert await other.load() == OLD


# The identity of a log.


def test_a_crash_at_any_step_leaves_a_whole_log_id_or_none() -> None:
    for seed in range(8):
        for step in range(1, 40):
            directory = FaultyDirectory(seed)
            directory.stop_at = step
            made = None
            with suppress(ProcessStopped):
                made = read_or_create_log_id(directory)
            directory.crash()
            found = read_log_id(directory)
            assert made is None or found == made
            assert read_or_create_log_id(directory) == (found or read_log_id(directory))
            if made is not None:
                break


@pytest.mark.parametrize("data", [b"", b"AALOGID1", bytes(32), bytes(33)])
def test_a_damaged_log_id_is_refused_and_kept(data: bytes) -> None:
    directory = FaultyDirectory()
    directory.open(LOG_ID_NAME, create=True).write([data], 0)
    with pytest.raises(ArchiveFileError):
        read_or_create_log_id(directory)
    assert directory.open_to_read(LOG_ID_NAME).length() == len(data)
