"""What a report reads of a lake: only the columns, files and row groups that it needs.

A table is read row group by row group, and folded meanwhile, so that memory depends on what the
page shows and not on how much the lake has. Files whose statistics say that they have nothing of
the range are not opened. Of a batch that not all tables have yet, no table is read.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.conditions import Condition, all_of, fitting_files
from aeron_async.spark.lake.files import BATCH_COLUMN, EPOCH
from aeron_async.spark.lake.reading import load_table
from aeron_async.spark.lake.tables import BATCHES, files_of, is_delta
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aeron_async.spark.lake.tables import Lake

__all__ = ["EVERYTHING", "Fold", "ReportRange", "TableReader"]

MINUTE: Final = 60
DAY: Final = 86_400
AGO: Final = re.compile(r"(\d{1,6})([mhd])")
UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
ENOUGH_ROWS: Final = 64 << 10
"""Rows that are folded at once."""
BATCH_FIELD: Final = pa.field(BATCH_COLUMN, pa.int64())
FARTHEST_NS: Final = (1 << 63) - 1
FILES: Final = pa.schema([("path", pa.string()), ("size_bytes", pa.int64())])


@final
@attrs.frozen
class ReportRange:
    """Time and streams that a report is about.

    Attributes:
        since_s: Seconds since 1970 at which the range begins, a whole minute; None for no limit.
        until_s: Seconds since 1970 before which it ends, a whole minute; None for no limit.
        streams: Ids of the streams; none for all.
    """

    since_s: int | None = None
    until_s: int | None = None
    streams: tuple[int, ...] = ()

    @classmethod
    def parse(
        cls, since: str | None, until: str | None, streams: Sequence[int], now_ms: int
    ) -> Self:
        """Return the range that three flags name, widened to whole minutes.

        Args:
            since: A date or a time in ISO 8601, in UTC by default, or so long ago as `24h`.
            until: The same; the range ends before it.
            streams: Ids of streams.
            now_ms: Milliseconds since 1970.

        Raises:
            ConfigurationError: A text is no time, or the range ends before it begins.
        """
        low = None if since is None else moment("--since", since, now_ms)
        high = None if until is None else moment("--until", until, now_ms)
        low_s = None if low is None else int(low // MINUTE * MINUTE)
        high_s = None if high is None else int(-(-high // MINUTE) * MINUTE)
        if low_s is not None and high_s is not None and low_s >= high_s:
            message = f"--since {since!r} is not before --until {until!r}: name an earlier time"
            raise ConfigurationError(message)
        return cls(low_s, high_s, tuple(dict.fromkeys(streams)))

    @property
    def is_timed(self) -> bool:
        """Return whether it is about a part of time only."""
        return self.since_s is not None or self.until_s is not None

    def bounds(self, first: str, last: str, unit_ns: int) -> list[Condition]:
        """Return what must hold for rows that overlap the range.

        Args:
            first: Column with the first time of a row.
            last: Column with the last time, which may be the same.
            unit_ns: Nanoseconds of a unit of these columns, which divides a minute.
        """
        low, high = (
            None if each is None else clipped(each * NS_PER_SECOND // unit_ns)
            for each in (self.since_s, self.until_s)
        )
        found = [] if low is None else [Condition(last, ">=", (low,))]
        return found if high is None else [*found, Condition(first, "<=", (high - 1,))]

    def days(self) -> tuple[str, str]:
        """Return the first and the last date of the range, as folders have them."""
        low = "" if self.since_s is None else date_of(self.since_s)
        return low, date.max.isoformat() if self.until_s is None else date_of(self.until_s - 1)


EVERYTHING: Final = ReportRange()


def clipped(value: int) -> int:
    """Return a value within 64 bits."""
    return min(max(value, -FARTHEST_NS), FARTHEST_NS)


def date_of(seconds: int) -> str:
    """Return the date of a time."""
    first, last = (each.toordinal() - EPOCH.toordinal() for each in (date.min, date.max))
    return (EPOCH + timedelta(days=min(max(seconds // DAY, first), last))).isoformat()


def moment(flag: str, text: str, now_ms: int) -> float:
    """Return seconds since 1970.

    Raises:
        ConfigurationError: The text is no time.
    """
    match = AGO.fullmatch(text.strip())
    if match is not None:
        return now_ms / 1_000 - timedelta(**{UNITS[match[2]]: int(match[1])}).total_seconds()
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        message = (
            f"{flag} '{printable(text, SHORT)}' is no time: write 2026-11-18, 2026-11-18T09:30 "
            "(UTC), or so long ago as 90m, 24h or 7d"
        )
        raise ConfigurationError(message) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


@final
class Fold:
    """Rows that are put together by their keys while they are read.

    Args:
        keys: Columns that stay.
        others: How each other column is put together: `sum`, `min` or `max`.
        most: Upper limit on the rows that stay, those with the largest first column of `others`;
            no limit by default.

    Attributes:
        left_out: Rows that had to go.
    """

    def __init__(
        self, keys: Sequence[str], others: Mapping[str, str], most: int | None = None
    ) -> None:
        self._keys = list(keys)
        self._others = dict(others)
        self._most = most
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._limit = ENOUGH_ROWS
        self.left_out = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows, which may have more columns."""
        self._parts.append(self._folded(rows.select([*self._keys, *self._others])))
        self._rows += self._parts[-1].num_rows
        if self._rows > self._limit:
            whole = self.table()
            self._parts, self._rows = [whole], whole.num_rows
            # If many rows stay, the next time is when there are twice as many.
            self._limit = max(ENOUGH_ROWS, 2 * self._rows)

    def table(self) -> Any:
        """Return a table with a row for each key; None if nothing was added."""
        if not self._parts:
            return None
        found = self._folded(pa.concat_tables(self._parts))
        if self._most is not None and found.num_rows > self._most:
            self.left_out += found.num_rows - self._most
            order = [(next(iter(self._others)), "descending")]
            order += [(key, "ascending") for key in self._keys]
            found = found.sort_by(order)[: self._most]
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each key, in order of the keys."""
        found = self.table()
        if found is None:
            return []
        rows: list[dict[str, Any]] = found.to_pylist()
        return sorted(rows, key=lambda row: [(row[key] is None, row[key]) for key in self._keys])

    def _folded(self, rows: pa.Table) -> pa.Table:
        done = rows.group_by(self._keys, use_threads=False).aggregate(list(self._others.items()))
        names = [*self._keys, *(f"{name}_{how}" for name, how in self._others.items())]
        return done.select(names).rename_columns([*self._keys, *self._others])


@final
class TableReader:
    """Reads tables of a lake.

    Args:
        lake: The lake.
        shown: What is read of it.

    Attributes:
        rows: Rows of the row groups that were read.
        files: Files that were opened.
        skipped: Files that their statistics have ruled out.
    """

    def __init__(self, lake: Lake, shown: ReportRange) -> None:
        self._lake = lake
        self._shown = shown
        self._found: dict[str, pa.Table] = {}
        # First of all: what other tables have beyond it is of batches that are not complete.
        batches = self.extent(BATCHES, BATCH_COLUMN)
        self._complete = [] if batches is None else [Condition(BATCH_COLUMN, "<=", (batches[1],))]
        self.rows = 0
        self.files = 0
        self.skipped = 0

    def read(
        self,
        table: str,
        schema: pa.Schema,
        bounds: Sequence[Condition] = (),
        *,
        is_replaced: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a table within bounds, some ten thousand at a time.

        Args:
            table: The table; a column that a file lacks is null.
            schema: Columns to yield, and those that `bounds` name. If `stream_id` is one of them,
                other streams than those of the range are left out.
            bounds: Rows to read.
            is_replaced: Whether each batch replaces the table, instead of adding to it.
        """
        known = schema
        if not is_replaced and self._complete:
            bounds = [*bounds, *self._complete]
            known = schema.append(BATCH_FIELD) if BATCH_COLUMN not in schema.names else schema
        where = [each.holds(pc.field(each.column), pc.scalar) for each in bounds]
        streams = self._shown.streams if "stream_id" in schema.names else ()
        if streams:
            where.append(pc.field("stream_id").isin(list(streams)))
        waiting: list[pa.RecordBatch] = []
        count = 0
        paths = self._chosen(table, bounds, streams)
        for batch in self._batches(paths, known, schema.names, all_of(where)):
            waiting.append(batch)
            count += batch.num_rows
            if count >= ENOUGH_ROWS:
                yield pa.Table.from_batches(waiting, schema)
                waiting, count = [], 0
        if count:
            yield pa.Table.from_batches(waiting, schema)

    def _batches(
        self, paths: list[str], schema: pa.Schema, names: list[str], where: Any
    ) -> Iterator[pa.RecordBatch]:
        if not paths:
            return
        files = self._lake.root.files
        data = ds.dataset(paths, schema=schema, format="parquet", filesystem=files)
        given = {"schema": schema, "columns": names, "filter": where, "batch_size": ENOUGH_ROWS}
        given |= {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        for fragment in data.get_fragments(where):
            self.files += 1
            for part in fragment.split_by_row_group(where, schema):
                self.rows += sum(each.num_rows for each in part.row_groups)
                yield from part.to_batches(**given)

    def stored(self, table: str) -> pa.Table:
        """Return the files of a table: path and size, and statistics if it is a Delta table."""
        if table not in self._found:
            folder = self._lake.path(table)
            if is_delta(folder):
                self._found[table] = pa.table(load_table(folder).get_add_actions(flatten=True))
            else:
                paths = files_of(folder)
                self._found[table] = pa.table([paths, folder.sizes(paths)], schema=FILES)
        return self._found[table]

    def extent(self, table: str, column: str) -> tuple[int, int] | None:
        """Return the smallest and the largest value, by statistics; None if they are not known."""
        found = self.stored(table)
        names = f"min.{column}", f"max.{column}"
        if not found.num_rows or not set(names) <= set(found.column_names):
            return None
        lows, highs = (found.column(name) for name in names)
        if lows.null_count or highs.null_count:
            return None
        return pc.min(lows).as_py(), pc.max(highs).as_py()

    def _chosen(self, table: str, bounds: Sequence[Condition], streams: Sequence[int]) -> list[str]:
        """Return the files that may have rows within bounds."""
        found = self.stored(table)
        if streams:
            ends = Condition("stream_id", ">=", (min(streams),))
            bounds = [*bounds, ends, Condition("stream_id", "<=", (max(streams),))]
        paths = fitting_files(found, bounds).column("path").to_pylist()
        self.skipped += found.num_rows - len(paths)
        folder = self._lake.path(table)
        return [folder.inside(each) for each in paths]
