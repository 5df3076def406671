"""Command `aeron-async pipeline query`: SQL on the tables of a lake, by DuckDB.

Invariant: without `--unrestricted` DuckDB has no access to files, extensions or the network, and
its settings are locked. It gets the rows of the lake from Arrow, which reads the files.
"""

from __future__ import annotations

import csv
import math
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, final

from aeron_async.cli.figures import plural
from aeron_async.cli.options import (  # noqa: TC001 - cyclopts reads annotations at run time
    Count,
    Flag,
)
from aeron_async.cli.output import (
    LINE_LENGTH_MAX,
    make_console,
    print_json,
    remark,
    safe_text,
)
from aeron_async.cli.runner import ExitCode
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.pipeline.session import check_installed
from aeron_async.spark.urls import told
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor, Future
    from pathlib import Path

    from duckdb import DuckDBPyConnection

__all__ = ["query"]

RESTRICTIONS: Final = (
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
EXTENSIONS: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
INTERRUPTED: Final = "Query interrupted"
INTERRUPT_SECONDS: Final = 0.05
FETCHED: Final = 1_000
"""Rows that are fetched at once."""


def query(
    lake: str,
    sql: str,
    /,
    *,
    output: Literal["table", "csv", "json"] = "table",
    limit: Count = 1_000,
    unrestricted: Flag = False,
) -> int:
    """Run a query of SQL on the tables of a lake, without Spark.

    The tables are bronze, quarantine, silver_KIND, gold_TABLE and batches.

    Args:
        lake: Directory that `pipeline run` has filled, or its URL, such as s3://bucket/lake.
        sql: Query of DuckDB, such as "SELECT count(*) FROM bronze"; "SHOW TABLES" lists the tables.
        output: A table for people, CSV, or one JSON object a line.
        limit: Most rows to print.
        unrestricted: Let the query write files, load extensions and use the network.
    """
    check_installed(("deltalake", "duckdb", "pyarrow"))
    import duckdb  # noqa: PLC0415 - an extra

    try:
        with (
            duckdb.connect(config={} if unrestricted else EXTENSIONS) as connection,
            ThreadPoolExecutor(1) as pool,
        ):
            connection.execute("SET TimeZone = 'UTC'")
            add_tables(connection, lake, sql)
            for each in () if unrestricted else RESTRICTIONS:
                connection.execute(each)
            run(Interruptible(connection, pool), sql, output, limit)
    except (duckdb.Error, RuntimeError) as error:
        # In this thread Ctrl-C is one of these, and not a KeyboardInterrupt.
        if isinstance(error, duckdb.InterruptException) or str(error) == INTERRUPTED:
            raise KeyboardInterrupt from error
        # What follows draws an arrow below the place in the query.
        text = " ".join(str(error).partition("\n\nLINE ")[0].split())
        if isinstance(error, duckdb.PermissionException):
            text += "; --unrestricted allows it"
        message = f"query failed: {without_secrets(text, lake)}"
        raise ArchiveError(message) from error
    return ExitCode.SUCCESS


def without_secrets(text: str, lake: str) -> str:
    """Return the text of an error, in which a store may say what it was sent."""
    from aeron_async.spark.lake.places import place_at  # noqa: PLC0415 - needs pyarrow

    return place_at(lake).told(RuntimeError(text))


def add_tables(connection: DuckDBPyConnection, lake: str | Path, sql: str) -> None:
    """Make the tables that a query names known to DuckDB; all if it names none.

    Raises:
        ConfigurationError: The lake has no table, or two names differ in case only.
    """
    from aeron_async.spark.lake.reading import TableSnapshot, lake_tables  # noqa: PLC0415 - as above

    folders = {name.replace("/", "_"): folder for name, folder in lake_tables(lake).items()}
    lowered = [name.lower() for name in folders]
    twice = sorted(name for name in folders if lowered.count(name.lower()) > 1)
    if twice:
        message = (
            f"lake {told(str(lake))!r} has tables whose names differ in case only, and DuckDB "
            f"ignores case: {printable(', '.join(twice))}; read them by `TableSnapshot`"
        )
        raise ConfigurationError(message)
    named = {name: each for name, each in folders.items() if name.lower() in sql.lower()}
    for name, folder in (named or folders).items():
        connection.register(name, TableSnapshot.open(folder).arrow())


@final
class Interruptible:
    """A connection whose queries end at once on Ctrl-C.

    DuckDB looks for signals seldom, so it runs in another thread, and this one waits for both.

    Args:
        connection: The connection.
        pool: Has one thread.
    """

    def __init__(self, connection: DuckDBPyConnection, pool: Executor) -> None:
        self._connection = connection
        self._pool = pool

    def execute(self, sql: str) -> list[str]:
        """Run one query; return the names of its columns.

        Raises:
            ConfigurationError: There is no query, or more than one.
        """
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1:
            message = f"sql must be one query, and is {len(statements)}: give one at a time"
            raise ConfigurationError(message)
        self._wait(self._pool.submit(self._connection.execute, statements[0]))
        return [str(each[0]) for each in self._connection.description or ()]

    def rows(self, count: int) -> Iterator[Sequence[Any]]:
        """Yield at most so many rows of the result."""
        while count > 0:
            fetch = self._pool.submit(self._connection.fetchmany, min(count, FETCHED))
            found: list[Sequence[Any]] = self._wait(fetch)
            yield from found
            count = count - len(found) if found else 0

    def _wait(self, work: Future[Any]) -> Any:
        """Return a result; on Ctrl-C interrupt the query, and wait until it has ended."""
        try:
            # Again and again, for a signal that comes just before a wait does not end it.
            while not work.done():
                wait([work], INTERRUPT_SECONDS)
            return work.result()
        except KeyboardInterrupt:
            while not work.done():
                # Again, for what has not begun is not interrupted.
                self._connection.interrupt()
                wait([work], INTERRUPT_SECONDS)
            raise


def run(connection: Interruptible, sql: str, output: str, limit: int) -> None:
    """Run a query and print its rows."""
    names = connection.execute(sql)
    counted = Counted(connection.rows(limit + 1), limit)
    if output == "json":
        keys = unique(names)
        for row in counted:
            print_json(dict(zip(keys, map(plain, row), strict=True)))
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([printable(each, LINE_LENGTH_MAX) for each in names])
        for row in counted:
            writer.writerow(["" if each is None else text_of(each) for each in row])
    else:
        draw(names, counted)
    if counted.has_more:
        remark(f"only the first {plural(limit, 'row')}: --limit shows more")


@final
class Counted:
    """The first rows of a result.

    Args:
        rows: All rows, of which one more than the limit is taken.
        limit: Most rows to yield.

    Attributes:
        has_more: Whether there are more rows than the limit.
    """

    def __init__(self, rows: Iterator[Sequence[Any]], limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self.has_more: bool = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        for place, row in enumerate(self._rows):
            if place == self._limit:
                self.has_more = True
                return
            yield row


def draw(names: list[str], rows: Counted) -> None:
    """Print rows as a table."""
    from rich.table import Table  # noqa: PLC0415 - only drawing needs it

    found = list(rows)
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        is_number = all(isinstance(row[place], int | float | None) for row in found)
        justify: Literal["right", "left"] = "right" if found and is_number else "left"
        table.add_column(safe_text(name), justify=justify, overflow="fold")
    for row in found:
        table.add_row(*("NULL" if each is None else safe_text(text_of(each)) for each in row))
    make_console().print(table)


def unique(names: list[str]) -> list[str]:
    """Return the names of columns, with a number behind those that occur again."""
    found: list[str] = []
    for name in names:
        number, candidate = 0, name
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def plain(value: Any) -> Any:
    """Return a value of DuckDB as JSON has it; bytes are hexadecimal."""
    is_plain = value is None or isinstance(value, bool | int | str)
    if is_plain or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return str(value)


def text_of(value: Any) -> str:
    """Return a value as harmless text."""
    return printable(plain(value), LINE_LENGTH_MAX)
