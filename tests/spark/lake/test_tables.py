"""Tables: what they are created with, how columns are added, and which lakes are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake.commits import DeltaStore, FolderStore
from aeron_async.spark.lake.files import FileWriter, attempt
from aeron_async.spark.lake.places import LocalPlace, write_atomically
from aeron_async.spark.lake.tables import Lake, gold, open_table, silver
from tests.spark.lake.lakes import files_synced

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.lake.commits import Store

RUNS = gold("runs")
SCHEMA = pa.schema([("ingest_batch", pa.int64()), ("a", pa.int32())])
WIDER = SCHEMA.append(pa.field("b", pa.string()))


def write(lake: Lake, store: Store, batch: int, table: pa.Table) -> None:
    store.prepare(RUNS, table.schema)
    writer = FileWriter(
        store.folder(RUNS, batch), attempt(batch, 0), table.schema, max_bytes=1 << 20
    )
    writer.write([each.combine_chunks() for each in table.columns])
    store.commit(RUNS, batch, writer.close())
    assert RUNS in lake.tables()


def test_a_table_is_partitioned_by_what_it_has_and_keeps_its_log_short(tmp_path: Path) -> None:
    dated = pa.schema([*SCHEMA, ("date", pa.date32()), ("stream_id", pa.int32())])
    for schema, partitions in ((SCHEMA, []), (dated, ["date", "stream_id"])):
        path = tmp_path / str(len(partitions))
        metadata = open_table(LocalPlace(path), schema).metadata()
        assert metadata.partition_columns == partitions
        assert metadata.configuration == {
            "delta.checkpointInterval": "100",
            "delta.logRetentionDuration": "interval 7 days",
            "delta.deletedFileRetentionDuration": "interval 1 days",
            "delta.enableExpiredLogCleanup": "false",
        }
        assert DeltaTable(str(path)).protocol().min_reader_version == 1


def test_a_new_column_is_added_and_null_in_older_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    store = DeltaStore(lake)
    write(lake, store, 0, pa.table({"ingest_batch": [0], "a": [1]}, schema=SCHEMA))
    write(lake, store, 1, pa.table({"ingest_batch": [1], "a": [2], "b": ["x"]}, schema=WIDER))
    assert lake.read(RUNS, WIDER).sort_by("a").to_pydict() == {
        "ingest_batch": [0, 1],
        "a": [1, 2],
        "b": [None, "x"],
    }
    # A decoder that makes fewer columns leaves the others null.
    write(lake, store, 2, pa.table({"ingest_batch": [2], "a": [3]}, schema=SCHEMA))
    assert lake.read(RUNS, WIDER, pa.compute.field("ingest_batch") == 2).num_rows == 1


def test_a_column_keeps_its_type(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    changed = SCHEMA.set(1, pa.field("a", pa.float64()))
    write(lake, DeltaStore(lake), 0, pa.table({"ingest_batch": [0], "a": [1]}, schema=SCHEMA))
    with pytest.raises(ConfigurationError, match="column 'a' as integer, and now it is double"):
        DeltaStore(lake).prepare(RUNS, changed)


def test_a_table_in_parquet_keeps_its_columns(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write(lake, FolderStore(lake), 0, pa.table({"ingest_batch": [0], "a": [1]}, schema=SCHEMA))
    FolderStore(lake).prepare(RUNS, SCHEMA)
    with pytest.raises(ConfigurationError, match="column 'b' as none, and now it is string"):
        FolderStore(lake).prepare(RUNS, WIDER)


def test_what_is_not_there_has_no_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "none")
    assert lake.read(RUNS, SCHEMA).num_rows == 0
    assert lake.tables() == []
    assert silver("quotes") == "silver/quotes"


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    open_table(lake.path(RUNS), SCHEMA)
    (tmp_path / RUNS / "_delta_log" / f"{0:020}.json").write_text("{")
    for use in (lambda: open_table(lake.path(RUNS), SCHEMA), lambda: lake.files(RUNS)):
        with pytest.raises(ArchiveError, match="gold/runs' cannot be loaded"):
            use()


def test_what_is_created_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = files_synced(monkeypatch)
    for schema in (SCHEMA, WIDER):
        open_table(LocalPlace(tmp_path / "table"), schema)
    log = tmp_path / "table" / "_delta_log"
    assert {log, log / f"{0:020}.json", log / f"{1:020}.json"} <= set(synced)


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        Lake(tmp_path / "none").check_readable()
    lake = Lake(tmp_path)
    with pytest.raises(ConfigurationError, match="no messages yet"):
        lake.check_readable()
    write(lake, DeltaStore(lake), 0, pa.table({"ingest_batch": [0], "a": [1]}, schema=SCHEMA))
    lake.check_readable()


def test_a_lake_is_gone_on_with_as_it_was_begun(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for _ in range(2):
        lake.check_settings({"archive": "/a", "format": "delta"})
    with pytest.raises(ConfigurationError, match="begun with archive='/a'"):
        lake.check_settings({"archive": "/b", "format": "delta"})
    lake.check_settings({"archive": "/a", "more": "x"})
    with pytest.raises(ConfigurationError, match="begun with more='x'"):
        lake.check_settings({"more": "y"})


def test_a_lake_of_an_older_version_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.state.write("begun.json", json.dumps({"archive": "/a"}).encode())
    with pytest.raises(ConfigurationError, match="begun by an older version"):
        lake.check_settings({"archive": "/a"})


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="could not be written"):
        write_atomically(tmp_path / "file" / "inside", b"")
