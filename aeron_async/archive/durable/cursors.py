"""Cursors: places in a log, and where consumers keep them.

A `Cursor` names the log, the recording and the position behind the last record that was processed,
and it knows that record again, so that a place that was written again is noticed. It also says
when the recording began, because that is its place in the order of the log.
A store keeps the cursor of one consumer. `FileCursorStore` keeps it in a file, `SqliteCursorStore`
in a table, where one transaction can store it together with the results. All blocking work runs in
a thread.

Invariant: a store moves its cursor only from where this process has left it. If another consumer
has moved it, nothing is stored and `CursorConflictError` is raised.

Invariant: a crash at any moment leaves the old cursor or the new one, and never a part of either.
"""

from __future__ import annotations

import re
import sqlite3
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar, final
from zlib import crc32

import attrs

from aeron_async.archive.disk.files import (
    OsDirectory,
    close_quietly,
    code_of,
    read_exactly,
    reason_of,
    write_all,
)
from aeron_async.archive.disk_access import DiskThreads
from aeron_async.errors import (
    ArchiveBusyError,
    ArchiveFileError,
    ClosedError,
    ConfigurationError,
    CursorConflictError,
    StorageError,
)
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.units import INT32_MAX, INT64_MAX
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.archive.disk_access import Disk

__all__ = ["Cursor", "CursorStore", "FileCursorStore", "SqliteCursorStore"]

TEXT: Final = re.compile(
    r"aeron-log:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"/(0|[1-9][0-9]{0,18})/(0|[1-9][0-9]{0,18})(?:/([1-9][0-9]{0,9})-([0-9a-f]{8}))?"
    r"(?:@([1-9][0-9]{0,18}))?",
    re.ASCII,
)
LONGEST_TEXT: Final = 128
ALIGNMENT: Final = 32
UINT32_MAX: Final = (1 << 32) - 1
CHECKED_LENGTH: Final = 64

Result = TypeVar("Result")


@final
@attrs.frozen
class Cursor:
    """A place in a log. `str(cursor)` is its text form, and `Cursor.parse` reads that.

    Attributes:
        log_id: Id of the archive's log.
        recording_id: Recording in that archive.
        position: Position in the recording, in bytes; a multiple of 32.
        record_length: Bytes of the log from the record before the position up to it; a multiple of
            32. 0 if no record before the position is known.
        record_check: Checksum of that record, by `check_of`; 0 if none is known.
        began_ms: When the recording began, in milliseconds since 1970; 0 if that is not known, as
            in cursors of earlier versions.

    Raises:
        ConfigurationError: A number is negative, too large, or no multiple of 32.
    """

    log_id: uuid.UUID
    recording_id: int
    position: int
    record_length: int = 0
    record_check: int = 0
    began_ms: int = 0

    def __attrs_post_init__(self) -> None:
        given: object = self.log_id
        if not isinstance(given, uuid.UUID):
            message = f"log_id={printable(given, SHORT)} must be a UUID"
            raise ConfigurationError(message)
        for name, value in (("recording_id", self.recording_id), ("position", self.position)):
            check_number(value, name, minimum=0, maximum=INT64_MAX)
        if self.position % ALIGNMENT:
            message = f"position={self.position} must be a multiple of {ALIGNMENT}"
            raise ConfigurationError(message)
        longest = min(self.position, INT32_MAX)
        check_number(self.record_length, "record_length", minimum=0, maximum=longest)
        most = UINT32_MAX if self.record_length else 0
        check_number(self.record_check, "record_check", minimum=0, maximum=most)
        check_number(self.began_ms, "began_ms", minimum=0, maximum=INT64_MAX)
        if self.record_length % ALIGNMENT:
            message = f"record_length={self.record_length} must be a multiple of {ALIGNMENT}"
            raise ConfigurationError(message)

    def __str__(self) -> str:
        place = f"aeron-log:{self.log_id}/{self.recording_id}/{self.position}"
        if self.record_length:
            place = f"{place}/{self.record_length}-{self.record_check:08x}"
        return f"{place}@{self.began_ms}" if self.began_ms else place

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor of a text such as `aeron-log:<uuid>/<recording id>/<position>`.

        `/<record length>-<checksum, 8 hexadecimal digits>` may follow, and `@<milliseconds>`.

        Raises:
            ConfigurationError: The text is no cursor.
        """
        found = TEXT.fullmatch(text) if len(text) <= LONGEST_TEXT else None
        if found is None:
            message = (
                f"{printable(text, SHORT)!r} is no cursor: "
                "aeron-log:<uuid>/<recording id>/<position>"
            )
            raise ConfigurationError(message)
        length, check = int(found[4] or "0"), int(found[5] or "0", 16)
        place = uuid.UUID(found[1]), int(found[2]), int(found[3])
        return cls(*place, length, check, int(found[6] or "0"))


def check_of(data: bytes) -> int:
    """Return the checksum of a record, of 32 bits, over its header and its length.

    The header of a record has the time at which it was appended, in nanoseconds. Of a message of
    another program the first 64 bytes count.
    """
    return crc32(data[:CHECKED_LENGTH], len(data))


class CursorStore(Protocol):
    """Where a consumer keeps its cursor; other databases may implement it."""

    async def load(self) -> Cursor | None:
        """Return the stored cursor; None if there is none yet."""
        ...

    async def save(self, cursor: Cursor) -> None:
        """Store a cursor, and return when it survives a crash.

        Raises:
            CursorConflictError: Another consumer has moved the stored cursor.
        """
        ...

    async def aclose(self) -> None:
        """Release what the store holds; a second call does nothing."""
        ...


class BlockingStore:
    """What both stores share: work in a thread, one call at a time, and closing."""

    def __init__(self, disk: Disk | None) -> None:
        self._disk: Disk = DiskThreads(1) if disk is None else disk
        self._is_disk_owned = disk is None
        self._is_closed = False
        self.save_count: int = 0

    async def _run(self, function: Callable[..., Result], *arguments: object) -> Result:
        if self._is_closed:
            message = f"{self!r} is closed"
            raise ClosedError(message)
        try:
            return await self._disk.run(function, *arguments)
        except StorageError:
            raise
        except OSError as error:
            message = f"{self!r} cannot be used: {reason_of(error)}"
            raise StorageError(message, code=code_of(error)) from error

    def _close(self) -> None:
        """Release what the store holds, in the thread."""

    async def aclose(self) -> None:
        """Close the store; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._disk.run(self._close)
        finally:
            if self._is_disk_owned:
                await self._disk.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


@final
class FileCursorStore(BlockingStore):
    """Keeps a cursor in a file of its own, as one line of text.

    Each `save` writes another file, syncs it, renames it, and syncs the folder: about 4 ms. A lock
    file beside it keeps a second process out.

    Args:
        path: Path of the file; its folder is created if it does not exist.
        directory: Folder to use instead of that of the path.
        disk: Runs blocking work; a thread of the store's own if not given.

    Attributes:
        save_count: How often a cursor was stored.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        directory: Directory | None = None,
        disk: Disk | None = None,
    ) -> None:
        super().__init__(disk)
        folder, _, self._name = f"/{os_path(path)}".rpartition("/")
        self._folder = folder[1:] or "."
        self._directory = directory
        self._lock: File | None = None

    def __repr__(self) -> str:
        return f"<FileCursorStore {printable(self._folder)}/{printable(self._name, SHORT)}>"

    async def load(self) -> Cursor | None:
        """Return the stored cursor; None if there is none yet.

        Raises:
            ArchiveBusyError: Another process uses the file.
            ArchiveFileError: The file is damaged.
            StorageError: The disk failed.
        """
        return await self._run(self._load)

    async def save(self, cursor: Cursor) -> None:
        """Store a cursor; see `CursorStore.save`.

        Raises:
            ArchiveBusyError: Another process uses the file.
            StorageError: The disk is full, or failed; the old cursor is still there.
        """
        await self._run(self._save, cursor)
        self.save_count += 1

    def _locked(self) -> Directory:
        if self._directory is None:
            self._directory = OsDirectory(self._folder)
        directory = self._directory
        if self._lock is None:
            lock = directory.open(f"{self._name}.lock", create=True)
            if lock.try_lock() is False:
                close_quietly(lock)
                message = f"{self!r} is used by another consumer: give each its own file"
                raise ArchiveBusyError(message)
            self._lock = lock
        return directory

    def _load(self) -> Cursor | None:
        directory = self._locked()
        try:
            file = directory.open_to_read(self._name)
        except FileNotFoundError:
            return None
        data = bytearray(LONGEST_TEXT)
        try:
            length = read_exactly(file, memoryview(data), 0)
        finally:
            close_quietly(file)
        try:
            return Cursor.parse(data[:length].decode("ascii", "replace").removesuffix("\n"))
        except ConfigurationError as error:
            raise ArchiveFileError(str(error), file=self._name, offset=0) from error

    def _save(self, cursor: Cursor) -> None:
        directory = self._locked()
        new = f"{self._name}.new"
        file = directory.open(new, create=True)
        try:
            file.set_length(0)
            write_all(file, [f"{cursor}\n".encode()], 0)
            file.sync(metadata=True)
        finally:
            close_quietly(file)
        directory.rename(new, self._name)
        directory.sync()

    def _close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            close_quietly(lock)


def os_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text.

    Raises:
        ConfigurationError: It is no path, or names no file.
    """
    text = path if isinstance(path, str) else getattr(path, "__fspath__", lambda: None)()
    if not isinstance(text, str) or text.endswith("/") or not text:
        message = f"path={printable(path, SHORT)} must be the path of a file"
        raise ConfigurationError(message)
    return text


TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS aeron_cursor (name TEXT PRIMARY KEY, log_id TEXT NOT NULL, "
    "recording_id INTEGER NOT NULL, position INTEGER NOT NULL, record_length INTEGER NOT NULL, "
    "record_check INTEGER NOT NULL, began_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID"
)
ADD_COLUMN: Final = "ALTER TABLE aeron_cursor ADD COLUMN began_ms INTEGER NOT NULL DEFAULT 0"
"""For a table of an earlier version."""
BUSY_TIMEOUT_S: Final = 10.0
LONGEST_CURSOR_NAME: Final = 255


def add_column(database: sqlite3.Connection) -> None:
    """Let the table of an earlier version say when a recording began."""
    names = {row[1] for row in database.execute("PRAGMA table_info(aeron_cursor)")}
    if "began_ms" not in names:
        database.execute("BEGIN IMMEDIATE")
        try:
            # Once more: another process may have done it.
            names = {row[1] for row in database.execute("PRAGMA table_info(aeron_cursor)")}
            if "began_ms" not in names:
                database.execute(ADD_COLUMN)
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise


def refuse_transactions(action: int, *_: object) -> int:
    """Let SQLite do all but BEGIN, COMMIT and ROLLBACK."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def is_reached(new: Cursor, old: Cursor | None) -> bool:
    """Return whether a stored cursor is at another one, or behind it in the order of the log."""
    if old is None or new.log_id != old.log_id:
        return False
    if new.recording_id == old.recording_id:
        return new.position <= old.position
    if not (new.began_ms and old.began_ms):
        return False
    return (new.began_ms, new.recording_id) < (old.began_ms, old.recording_id)


def row_of(cursor: Cursor) -> tuple[str, int, int, int, int, int]:
    """Return the values of a cursor's row, without the name."""
    _, *numbers = attrs.astuple(cursor)
    return str(cursor.log_id), *numbers


@final
class SqliteCursorStore(BlockingStore):
    """Keeps a cursor in a table of an SQLite database, alone or together with results.

    `hand_over` stores what a function writes and the cursor in one transaction. So each record has
    its effect in that database exactly once, whatever is killed. The database is in WAL mode with
    `synchronous=FULL`.

    Args:
        path: Path of the database, which is created if it does not exist.
        name: Name of the consumer; each has one row in the table `aeron_cursor`.
        disk: Runs blocking work; a thread of the store's own if not given.

    Attributes:
        save_count: How often a cursor was stored.

    Raises:
        ConfigurationError: The name is empty, or longer than 255 characters.
    """

    def __init__(
        self, path: str | os.PathLike[str], name: str, *, disk: Disk | None = None
    ) -> None:
        super().__init__(disk)
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_CURSOR_NAME:
            message = (
                f"name={printable(name, SHORT)!r} must be text of 1 to {LONGEST_CURSOR_NAME} "
                "characters"
            )
            raise ConfigurationError(message)
        self._path = os_path(path)
        self._name = name
        self._database: sqlite3.Connection | None = None
        self._is_loaded = False
        self._last: Cursor | None = None

    def __repr__(self) -> str:
        return f"<SqliteCursorStore {printable(self._path)} {printable(self._name, SHORT)!r}>"

    async def load(self) -> Cursor | None:
        """Return the stored cursor; None if there is none yet.

        Raises:
            ArchiveFileError: The row holds no cursor.
            StorageError: The database cannot be opened or read.
        """
        return await self._run(self._load)

    async def save(self, cursor: Cursor) -> None:
        """Store a cursor; see `CursorStore.save`.

        Raises:
            CursorConflictError: Another consumer has moved the stored cursor.
            StorageError: The database is locked for 10 s, or the disk is full or failed.

        A cursor that the stored one has reached is ignored.
        """
        await self._run(self._hand_over, cursor, None)

    async def hand_over(
        self, cursor: Cursor, apply: Callable[[sqlite3.Connection], object]
    ) -> None:
        """Write results and the cursor behind them in one transaction.

        The consumer needs no `auto_commit`, and must not have it: it would store the cursor of
        records whose results are not written yet.

        Args:
            cursor: The place behind the last record that the results are of.
            apply: Writes the results; called in the thread of the store, in a transaction that it
                can neither commit nor roll back: SQLite refuses that with `sqlite3.DatabaseError`.
                If it raises, nothing is stored.

        Raises:
            ConfigurationError: The transaction has ended in `apply`, such as by ON CONFLICT
                ROLLBACK; nothing is stored.
            CursorConflictError: Another consumer has moved the stored cursor, or it has reached
                the given one; nothing is stored.
            StorageError: The database is locked for 10 s, or the disk is full or failed.
        """
        await self._run(self._hand_over, cursor, apply)

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            # The threads of a pool take turns: one call at a time, so one thread at a time.
            database = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute("PRAGMA synchronous=FULL")
                database.execute(TABLE)
                add_column(database)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    @contextmanager
    def _own_statements(self) -> Iterator[None]:
        """Raise what goes wrong as `StorageError`; what `apply` raises stays as it is."""
        try:
            yield
        except sqlite3.Error as error:
            message = f"{self!r} cannot be used: {error}"
            raise StorageError(message) from error

    def _load(self) -> Cursor | None:
        with self._own_statements():
            row = (
                self._opened()
                .execute(
                    "SELECT log_id, recording_id, position, record_length, record_check, began_ms "
                    "FROM aeron_cursor WHERE name = ?",
                    (self._name,),
                )
                .fetchone()
            )
        try:
            found = None if row is None else Cursor(uuid.UUID(str(row[0])), *row[1:])
        except ValueError as error:
            message = f"the row of {printable(self._name, SHORT)!r} holds no cursor: {error}"
            raise ArchiveFileError(message, file=self._path, offset=0) from error
        self._last, self._is_loaded = found, True
        return found

    def _hand_over(self, new: Cursor, apply: Callable[[sqlite3.Connection], object] | None) -> None:
        if not self._is_loaded:
            self._load()
        if is_reached(new, self._last):
            if apply is None:
                return
            message = (
                f"{self!r} is at {self._last} already, and has the results up to {new}: "
                "go on behind its cursor"
            )
            raise CursorConflictError(message)
        with self._own_statements():
            database = self._opened()
            database.execute("BEGIN IMMEDIATE")
        try:
            if apply is not None:
                self._apply(database, apply)
            with self._own_statements():
                self._move(database, self._last, new)
                database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        # Here and not in the caller, which may be cancelled while this thread commits.
        self._last = new
        self.save_count += 1

    def _apply(
        self, database: sqlite3.Connection, apply: Callable[[sqlite3.Connection], object]
    ) -> None:
        """Let a function write, but not end the transaction that the cursor is in."""
        database.set_authorizer(refuse_transactions)
        try:
            apply(database)
        finally:
            database.set_authorizer(None)
        if not database.in_transaction:
            message = (
                f"apply has ended the transaction of {self!r}, and the cursor stays: use no "
                "ON CONFLICT ROLLBACK, RAISE(ROLLBACK) or set_authorizer in it"
            )
            raise ConfigurationError(message)

    def _move(self, database: sqlite3.Connection, old: Cursor | None, new: Cursor) -> None:
        if old is None:
            moved = database.execute(
                "INSERT INTO aeron_cursor (name, log_id, recording_id, position, record_length, "
                "record_check, began_ms) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (self._name, *row_of(new)),
            )
        else:
            moved = database.execute(
                "UPDATE aeron_cursor SET log_id = ?, recording_id = ?, position = ?, "
                "record_length = ?, record_check = ?, began_ms = ? WHERE name = ? AND log_id = ? "
                "AND recording_id = ? AND position = ? AND record_length = ? "
                "AND record_check = ? AND began_ms = ?",
                (*row_of(new), self._name, *row_of(old)),
            )
        if moved.rowcount != 1:
            message = (
                f"{self!r} is no longer at {old or 'the beginning'}: another consumer of that name "
                "has gone on; nothing was stored, end one of the two"
            )
            raise CursorConflictError(message)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
