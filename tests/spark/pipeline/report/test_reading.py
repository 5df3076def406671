"""What a report reads: the files and row groups of its range, folded while they are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake import tables
from aeron_async.spark.lake.conditions import Condition
from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.report.reading import (
    ENOUGH_ROWS,
    EVERYTHING,
    Fold,
    ReportRange,
    TableReader,
)
from tests.spark.pipeline.local import write_gold
from tests.spark.pipeline.report.lakes import write_batches

NOW_MS = 1_800_000_000_000
DAY = 86_400
LENGTHS = tables.gold("lengths")


def lengths(minutes: range, stream_id: int = 1) -> pa.Table:
    rows = [{"stream_id": stream_id, "minute": minute, "bin": 5, "count": 2} for minute in minutes]
    return pa.Table.from_pylist(rows, schema=gold.LENGTHS)


def read(
    lake: Lake, shown: ReportRange = EVERYTHING, *bounds: Condition
) -> tuple[TableReader, list[int]]:
    reader = TableReader(lake, shown)
    parts = list(reader.read(LENGTHS, gold.LENGTHS, bounds))
    assert all(0 < len(each) < 2 * ENOUGH_ROWS for each in parts)
    return reader, [minute for each in parts for minute in each.column("minute").to_pylist()]


def within(low: int, high: int) -> list[Condition]:
    return [Condition("minute", ">=", (low,)), Condition("minute", "<=", (high,))]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    for batch in range(5):
        write_gold(lake, "lengths", lengths(range(100 * batch, 100 * batch + 100)), batch)
    write_gold(lake, "lengths", lengths(range(1_000), 2), 5)
    return lake


def test_files_outside_the_range_are_not_opened(lake: Lake) -> None:
    reader, found = read(lake)
    assert (len(found), reader.rows, reader.files, reader.skipped) == (1_500, 1_500, 6, 0)
    reader, found = read(lake, EVERYTHING, *within(150, 249))
    assert sorted(found) == sorted([*range(150, 250)] * 2)
    assert (reader.rows, reader.files, reader.skipped) == (1_200, 3, 3)
    reader, found = read(lake, ReportRange(streams=(1,)), Condition("minute", ">=", (450,)))
    assert (found, reader.rows, reader.skipped) == ([*range(450, 500)], 100, 5)
    reader, found = read(lake, ReportRange(streams=(3, 4)))
    assert (found, reader.rows, reader.skipped) == ([], 0, 6)
    # Between the streams that a file has may be one that it has not.
    reader, found = read(lake, ReportRange(streams=(0, 3)))
    assert (found, reader.files) == ([], 6)
    assert reader.extent(LENGTHS, "minute") == (0, 999)
    assert reader.extent(LENGTHS, "weight") is None
    assert reader.extent(tables.gold("none"), "minute") is None


def test_a_batch_that_not_all_tables_have_is_not_read(lake: Lake) -> None:
    write_batches(lake, (0, None, None), batch=3)
    reader, found = read(lake)
    # The files of batches 4 and 5 are there, and not opened.
    assert (sorted(found), reader.files, reader.skipped) == ([*range(400)], 4, 2)
    parts = reader.read(LENGTHS, gold.LENGTHS, is_replaced=True)
    assert sum(map(len, parts)) == 1_500


def test_files_without_statistics_are_read(tmp_path: Path) -> None:
    """Tables in Parquet have no log that could have them; their row groups do."""
    lake = Lake(tmp_path)
    for batch in range(2):
        folder = Path(str(lake.path(LENGTHS))) / f"batch={batch}"
        folder.mkdir(parents=True)
        rows = lengths(range(100 * batch, 100 * batch + 100))
        pq.write_table(rows, folder / "a.parquet", row_group_size=20)
        pq.write_table(rows.drop(["bin"]), folder / "b.parquet", write_statistics=False)
    reader, found = read(lake, EVERYTHING, *within(110, 119))
    assert found == [*range(110, 120)] * 2
    # One row group of the file with statistics, and two files without.
    assert (reader.rows, reader.skipped) == (220, 0)
    assert reader.stored(LENGTHS).column_names == ["path", "size_bytes"]
    assert reader.extent(LENGTHS, "minute") is None
    (part,) = TableReader(lake, EVERYTHING).read(LENGTHS, gold.LENGTHS)
    assert part.column("bin").null_count == 200


def test_rows_are_folded_as_if_they_were_read_at_once() -> None:
    fold = Fold(["key"], {"count": "sum", "low": "min", "high": "max"})
    assert (fold.table(), fold.rows()) == (None, [])
    values = list(range(3 * ENOUGH_ROWS))
    for start in range(0, len(values), 10_000):
        part = values[start : start + 10_000]
        keys = [each % 50_000 for each in part]
        columns = {"key": keys, "count": [1] * len(part), "low": part, "high": part, "more": part}
        fold.add(pa.table(columns))
    rows = fold.rows()
    assert [row["key"] for row in rows] == list(range(50_000))
    assert rows[7] == {"key": 7, "count": 4, "low": 7, "high": 150_007}
    assert sum(row["count"] for row in rows) == len(values)


def test_of_too_many_keys_the_largest_stay() -> None:
    fold = Fold(["key"], {"count": "sum"}, most=3)
    fold.add(pa.table({"key": [5, 1, 2, 3, 4, 1], "count": [1, 1, 9, 1, 9, 1]}))
    assert fold.rows() == [{"key": 1, "count": 2}, {"key": 2, "count": 9}, {"key": 4, "count": 9}]
    assert fold.left_out == 2


@pytest.mark.parametrize(
    ("since", "until", "wanted"),
    [
        (None, None, (None, None)),
        ("1970-01-02", "1970-01-03", (DAY, 2 * DAY)),
        ("1970-01-02T00:01:59", "1970-01-02T00:02:01", (DAY + 60, DAY + 180)),
        ("1970-01-02T01:00+01:00", " 1970-01-03T00:00Z ", (DAY, 2 * DAY)),
        ("24h", "90m", (1_800_000_000 - DAY, 1_800_000_000 - 5_400)),
        ("7d", None, (1_800_000_000 - 7 * DAY, None)),
    ],
)
def test_a_range_is_whole_minutes(
    since: str | None, until: str | None, wanted: tuple[int | None, int | None]
) -> None:
    shown = ReportRange.parse(since, until, [3, 1, 3], NOW_MS)
    assert (shown.since_s, shown.until_s, shown.streams) == (*wanted, (3, 1))
    assert shown.is_timed == (since is not None)


@pytest.mark.parametrize(
    ("since", "until", "problem"),
    [
        ("yesterday", None, "--since 'yesterday' is no time: write 2026-11-18"),
        (None, "\x1b[2J", r"--until '\\x1b\[2J' is no time"),
        ("1970-01-02", "1970-01-01", "is not before --until"),
        ("1970-01-02", "1970-01-02", "is not before --until"),
        ("9999999d", None, "--since '9999999d' is no time"),
    ],
)
def test_what_is_no_range_is_refused(since: str | None, until: str | None, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ReportRange.parse(since, until, [], NOW_MS)


def test_a_range_at_the_end_of_times_has_bounds() -> None:
    shown = ReportRange.parse("0001-01-01", "9999-12-31", [], NOW_MS)
    assert shown.bounds("minute", "minute", 60 * 10**9) == within(-1_035_593_280, 4_223_370_239)
    assert shown.bounds("first_ns", "last_ns", 1) == [
        Condition("last_ns", ">=", (-(2**63) + 1,)),
        Condition("first_ns", "<=", (2**63 - 2,)),
    ]
    assert shown.days() == ("0001-01-01", "9999-12-30")
    assert ReportRange.parse("999999d", None, [], NOW_MS).days() == ("0001-01-01", "9999-12-31")
