"""Data files: their names and statistics, how they are cut, and that they are on the disk."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aeron_async.spark.lake import files as module
from aeron_async.spark.lake import places
from aeron_async.spark.lake.files import FileWriter, attempt, file_schema
from aeron_async.spark.lake.places import LocalPlace

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.schema(
    [
        ("recording_id", pa.int64()),
        ("position", pa.int64()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("channel", pa.dictionary(pa.int32(), pa.string())),
        ("price", pa.float64()),
        ("payload", pa.binary()),
        ("date", pa.date32()),
        ("stream_id", pa.int32()),
    ]
)
SCHEMA = file_schema(TABLE)
DAY = 20_000


def rows(first: int, count: int, payload: bytes = b"x") -> list[Any]:
    positions = np.arange(first, first + count)
    channel = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["aeron:ipc"])
    return [
        pa.repeat(pa.scalar(3), count),
        pa.array(positions),
        pa.array(positions - 5).view(SCHEMA.field("event_time").type),
        channel,
        pa.array(positions * 0.5),
        pa.array([payload] * count),
    ]


def writer(folder: Path, max_bytes: int = 1 << 30) -> FileWriter:
    return FileWriter(LocalPlace(folder), attempt(7, 3), SCHEMA, max_bytes=max_bytes)


def test_a_file_says_where_it_belongs_and_what_is_in_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    writing = writer(table)
    for first in (0, 100):
        writing.write(rows(first, 100), (DAY, -5))
    (file,) = writing.close()
    pattern = r"date=2024-10-04/stream_id=-5/b00000007-p00003-[0-9a-f]{8}-000\.parquet"
    assert re.fullmatch(pattern, file.path)
    assert file.partition == {"date": "2024-10-04", "stream_id": "-5"}
    assert (file.rows, file.size) == (200, (table / file.path).stat().st_size)
    assert json.loads(file.stats) == {
        "numRecords": 200,
        "minValues": {
            "recording_id": 3,
            "position": 0,
            "event_time": "1969-12-31T23:59:59.999995Z",
        },
        "maxValues": {
            "recording_id": 3,
            "position": 199,
            "event_time": "1970-01-01T00:00:00.000194Z",
        },
        "nullCount": {},
    }
    read = pq.read_table(table / file.path, partitioning=None)
    assert read.column_names == SCHEMA.names
    assert read.schema.field("channel").type == pa.string()
    assert read.column("position").to_pylist() == list(range(200))
    metadata = pq.read_metadata(table / file.path)
    assert metadata.num_row_groups == 1
    encodings = [set(metadata.row_group(0).column(each).encodings) for each in range(6)]
    assert ["DELTA_BINARY_PACKED" in each for each in encodings] == [
        *(False, True, True),
        *(False, False, False),
    ]


def test_a_file_ends_at_its_length_and_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_GROUP", 50)
    writing = writer(tmp_path / "table", max_bytes=2_000)
    for first in range(0, 1_000, 50):
        writing.write(rows(first, 50, os.urandom(20)), None)
    found = writing.close()
    assert len(found) > 1
    assert [each.path[-11:-8] for each in found] == [f"{n:03}" for n in range(len(found))]
    read = [pq.read_table(tmp_path / "table" / each.path) for each in found]
    assert pa.concat_tables(read).column("position").to_pylist() == list(range(1_000))


def test_rows_do_not_wait_for_a_row_group_when_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 10_000)
    writing = writer(tmp_path / "table")
    for first in range(10):
        writing.write(rows(first, 1, bytes(6_000)), (DAY + first % 2, 1))
    sizes = [pq.read_metadata(tmp_path / "table" / each.path) for each in writing.close()]
    assert [each.num_rows for each in sizes] == [5, 5]
    assert all(each.num_row_groups > 1 for each in sizes)


def test_only_some_files_are_open_at_once(tmp_path: Path) -> None:
    writing = writer(tmp_path / "table")
    count = module.OPEN_FILES + 1
    for day in [*range(count), 0]:
        writing.write(rows(day, 1), (DAY + day, 1))
        writing.write(rows(day, 1), (DAY + day, 1))
    # That of the first day was closed, and it has another one.
    found = writing.close()
    assert len(found) == count + 1
    assert sum(each.rows for each in found) == 2 * (count + 1)


def test_an_attempt_that_failed_leaves_only_files_that_are_complete(tmp_path: Path) -> None:
    table = tmp_path / "table"
    writing = writer(table, max_bytes=1_000)
    writing.write(rows(0, module.ROW_GROUP), (DAY, 1))
    writing.write(rows(0, 1), (DAY, 1))
    assert len(list(table.rglob("*.parquet"))) == 2
    writing.abandon()
    (left,) = table.rglob("*.parquet")
    assert pq.read_metadata(left).num_rows == module.ROW_GROUP


def test_a_file_that_cannot_be_completed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(places, "sync", fail)
    table = tmp_path / "table"
    writing = writer(table)
    writing.write(rows(0, 1), (DAY, 1))
    with pytest.raises(OSError, match="No space"):
        writing.close()
    writing.abandon()
    assert list(table.rglob("*.parquet")) == []


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    table = tmp_path / "table"
    writing = writer(table)
    writing.write(rows(0, 1), (DAY, 1))
    writing.close()
    assert {each.stat().st_ino for each in (tmp_path, table, *table.rglob("*"))} <= synced
