"""A snapshot is read alike by Arrow, DuckDB, Polars and pandas, whatever happens to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake import TableSnapshot, lake_tables, maintain
from aeron_async.spark.lake.maintenance import MaintenanceSettings, maintain_table
from tests.spark.lake.lakes import add_batch, commit, little_lake, make_table, quotes, write_file

if TYPE_CHECKING:
    from pathlib import Path

WHERE = [
    None,
    "date = '2026-11-18'",
    "stream_id in (1002) and sequence between 50 and 149",
    "position >= 6400 and position < 12800",
    "date > '2026-11-18' and symbol in ('ALPHA', 'BRAVO') and event_time < '2027-01-01'",
    "date = '2030-01-01'",
]


def counts(snapshot: TableSnapshot, where: str | None) -> dict[str, tuple[int, int]]:
    """Return count and sum by each reader."""
    table = snapshot.arrow(where).to_table()
    frame = snapshot.polars(where).select(pl.len(), pl.sum("sequence")).collect().row(0)
    with duckdb.connect() as connection:
        connection.register("quotes", snapshot.arrow(where))
        query = "select count(*), coalesce(sum(sequence), 0) from quotes"
        found = connection.sql(query).fetchall()[0]
    pandas = table.to_pandas()
    return {
        "arrow": (table.num_rows, sum(table["sequence"].to_pylist())),
        "polars": (int(frame[0]), int(frame[1])),
        "duckdb": (int(found[0]), int(found[1])),
        "pandas": (len(pandas), int(pandas["sequence"].sum())),
    }


def truth(where: str | None) -> tuple[int, int]:
    every = [(day, number) for day in (18, 19) for number in range(400)]
    rows = {
        None: every,
        WHERE[1]: [each for each in every if each[0] == 18],
        WHERE[2]: [each for each in every if each[0] == 19 and 50 <= each[1] <= 149],
        WHERE[3]: [each for each in every if 100 <= each[1] < 200],
        WHERE[4]: [each for each in every if each[0] == 19],
        WHERE[5]: [],
    }[where]
    return len(rows), sum(number for _, number in rows)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    # A name with what means something in URLs and globs.
    return little_lake(tmp_path / "a [lake]? é*")


@pytest.mark.parametrize("where", WHERE)
def test_all_readers_agree(lake: Path, where: str | None) -> None:
    snapshot = TableSnapshot.open(lake / "silver" / "quotes")
    assert set(counts(snapshot, where).values()) == {truth(where)}


def test_types_are_those_of_the_table(lake: Path) -> None:
    snapshot = TableSnapshot.open(lake / "silver" / "quotes")
    row = snapshot.arrow("sequence = 5 and stream_id = 1002").to_table().to_pylist()[0]
    assert (row["date"].isoformat(), row["stream_id"], row["symbol"]) == (
        "2026-11-19",
        1002,
        "ALPHA",
    )
    assert snapshot.polars().collect_schema()["stream_id"] == pl.Int32
    assert snapshot.polars().collect_schema()["event_time"] == pl.Datetime("us", "UTC")
    assert snapshot.polars("date = '2030-01-01'").collect_schema() == (
        snapshot.polars().collect_schema()
    )


def test_conditions_open_few_files(lake: Path) -> None:
    snapshot = TableSnapshot.open(lake / "silver" / "quotes")
    assert len(snapshot.paths()) == 8
    assert len(snapshot.paths("date = '2026-11-18'")) == 4
    assert len(snapshot.paths("position between 6400 and 6400 and stream_id = 1001")) == 1
    assert len(snapshot.paths("sequence = 1")) == 8  # No statistics.


def test_tables_are_found_by_name(lake: Path, tmp_path: Path) -> None:
    make_table(lake / "bronze")
    (lake / "silver" / "nothing").mkdir()
    assert list(lake_tables(lake)) == ["bronze", "silver/quotes", "gold/rates_second"]
    for place in (tmp_path, tmp_path / "missing", lake / "silver" / "quotes"):
        with pytest.raises(ConfigurationError, match="no Delta table"):
            lake_tables(place)


def test_what_is_no_table_or_version_is_refused(lake: Path) -> None:
    with pytest.raises(ConfigurationError, match="no Delta table"):
        TableSnapshot.open(lake)
    with pytest.raises(ConfigurationError, match="no version 99"):
        TableSnapshot.open(lake / "silver" / "quotes", 99)


def test_a_version_is_read_as_it_was(lake: Path) -> None:
    table = lake / "silver" / "quotes"
    version = TableSnapshot.open(table).version
    add_batch(table, 9, range(1_000, 1_010))
    assert TableSnapshot.open(table, version).arrow().count_rows() == 800
    assert TableSnapshot.open(table).arrow().count_rows() == 810


def test_a_file_without_a_newer_column_reads_as_null(tmp_path: Path) -> None:
    table = make_table(tmp_path / "quotes")
    add_batch(table, 0, range(10))
    DeltaTable(str(table)).alter.add_columns([Field("venue", PrimitiveType("long"))])
    rows = quotes(range(10, 20), batch=1)
    rows = rows.append_column("venue", pa.array([3] * 10, pa.int64()))
    commit(table, [write_file(table, rows, "b00000001-p00000-abcdef01-000")], 1)
    snapshot = TableSnapshot.open(table)

    def found() -> list[list[Any]]:
        with duckdb.connect() as connection:
            connection.register("quotes", TableSnapshot.open(table).arrow())
            query = "select venue, count(*) from quotes group by all order by all"
            by_duckdb = [list(each) for each in connection.sql(query).fetchall()]
        by_polars = snapshot.polars().group_by("venue").len().sort("venue", nulls_last=True)
        return [by_duckdb, [list(each) for each in by_polars.collect().rows()]]

    assert found() == [[[3, 10], [None, 10]]] * 2
    maintain_table(table, MaintenanceSettings())
    snapshot = TableSnapshot.open(table)
    assert len(snapshot.paths()) == 1
    assert found() == [[[3, 10], [None, 10]]] * 2


@pytest.mark.parametrize("reader", ["arrow", "polars", "duckdb"])
def test_a_reader_that_has_begun_reads_to_its_end(lake: Path, reader: str) -> None:
    """Through a compaction, batches, and a removal of what is older than the retention."""
    table = lake / "silver" / "quotes"
    snapshot = TableSnapshot.open(table)
    with duckdb.connect() as connection:
        connection.register("quotes", snapshot.arrow())
        batches = iter(snapshot.arrow().to_batches(batch_size=10, batch_readahead=0))
        first = next(batches).num_rows
        reports = list(maintain(lake))
        assert [each.joined_files for each in reports] == [8, 0]
        add_batch(table, 9, range(1_000, 1_010))
        list(maintain(lake))
        assert len(TableSnapshot.open(table).paths()) == 2
        found = {
            "arrow": lambda: first + sum(each.num_rows for each in batches),
            "polars": lambda: snapshot.polars().select(pl.len()).collect().item(),
            "duckdb": lambda: connection.sql("select count(*) from quotes").fetchall()[0][0],
        }[reader]()
    assert found == 800
    assert all(value[0] == 810 for value in counts(TableSnapshot.open(table), None).values())
