"""Joined files have every row once, in order of position, with the encodings of their parts."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction

from aeron_async.errors import ArchiveError
from aeron_async.spark.lake import compaction
from aeron_async.spark.lake.compaction import (
    PARTS_MAX,
    JoinedFile,
    TableFile,
    join_files,
    plan_joins,
    table_files,
)
from aeron_async.spark.lake.files import FileWriter, attempt
from aeron_async.spark.lake.places import LocalPlace
from aeron_async.spark.lake.reading import TableSnapshot
from tests.spark.lake.lakes import QUOTES, commit, make_table, quotes, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

INSIDE = pa.schema([each for each in QUOTES if each.name not in {"date", "stream_id"}])
KIB = 1_024
TARGET = 1_024 * KIB


def part(
    path: str, size: int = KIB, *, day: str = "2026-11-18", at: int = 0, modified_ms: int = 1_000
) -> TableFile:
    return TableFile(
        path=path,
        size=size,
        rows=None,
        partition={"date": day},
        modified_ms=modified_ms,
        start=(0, at),
    )


def planned(files: Sequence[TableFile], *, settled_before_ms: int = 0) -> list[str]:
    found = plan_joins(files, target_size=TARGET, min_files=3, settled_before_ms=settled_before_ms)
    return ["".join(each.path for each in group) for group in found]


def test_small_files_of_a_partition_are_joined_in_order_of_position() -> None:
    assert planned([part("b", at=2), part("c", at=3), part("a", at=1)]) == ["abc"]
    assert planned([part("b", at=2), part("a", at=1)]) == []
    days = [part(name, day=day) for day in ("2026-11-19", "2026-11-18") for name in "abc"]
    assert planned(days) == ["abc", "abc"]
    assert planned([part("a"), part("b"), part("c", day="2026-11-19")]) == []


def test_files_far_below_the_target_only() -> None:
    assert planned([part(name, TARGET // 2) for name in "abc"]) == []
    # Two that make half of a full file are enough.
    assert planned([part(name, TARGET // 2 - 1) for name in "ab"]) == ["ab"]
    assert planned([part(name, TARGET // 2 - 1) for name in "abc"]) == ["ab"]


def test_a_large_file_is_not_written_again_for_small_ones() -> None:
    files = [part("A", 500 * KIB, at=0), *(part(name, at=1) for name in "bc")]
    assert planned(files) == []
    assert planned([*files, part("d", at=2)]) == ["bcd"]
    # Once the partition gets no more files, all are joined.
    assert planned(files, settled_before_ms=1_000) == ["Abc"]
    assert planned(files, settled_before_ms=999) == []


def test_a_file_has_a_limited_number_of_parts() -> None:
    files = [part(f"{place:04},", at=place) for place in range(PARTS_MAX * 2)]
    assert [group.count(",") for group in planned(files)] == [PARTS_MAX] * 2


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_table(tmp_path / "quotes")


def joined(table: Path, *parts: pa.Table) -> tuple[JoinedFile, pa.Table]:
    files = []
    for place, rows in enumerate(parts):
        action = write_file(table, rows, f"b{place:08}-p00000-abcdef01-000")
        files.append(
            TableFile(
                path=action.path,
                size=action.size,
                rows=rows.num_rows,
                partition=dict(action.partition_values),
                modified_ms=0,
                start=(0, 0),
            )
        )
    found = join_files(LocalPlace(table), files, INSIDE, "m00000001")
    return found, pq.ParquetFile(table / found.path).read()


def test_rows_are_in_order_within_each_recording(table: Path) -> None:
    """Whatever the order of the files: here each has what the other one needs first."""
    one = pa.concat_tables(
        [quotes(range(10, 20), recording_id=0), quotes(range(10), recording_id=1)]
    )
    other = pa.concat_tables(
        [quotes(range(10), recording_id=0), quotes(range(10, 20), recording_id=1)]
    )
    _, rows = joined(table, one, other)
    for recording_id in (0, 1):
        of_one = rows.filter(pc.equal(rows["recording_id"], recording_id))
        assert of_one["sequence"].to_pylist() == list(range(20))


@pytest.mark.parametrize("seed", range(6))
def test_any_rows_come_out_once_and_in_order(
    table: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(compaction, "ROWS_PER_GROUP", chance.randrange(1, 40))
    monkeypatch.setattr(compaction, "BYTES_PER_GROUP", chance.choice([500, 5_000, 1 << 30]))
    next_of = [0, 0, 0]
    parts = []
    for _ in range(6):
        pieces = []
        for _ in range(chance.randrange(1, 5)):
            recording_id, count = chance.randrange(3), chance.randrange(1, 30)
            at = next_of[recording_id]
            next_of[recording_id] += count
            pieces.append(quotes(range(at, at + count), recording_id=recording_id))
        parts.append(pa.concat_tables(pieces))
    chance.shuffle(parts)
    found, rows = joined(table, *parts)
    for recording_id in range(3):
        of_one = rows.filter(pc.equal(rows["recording_id"], recording_id))
        assert of_one["sequence"].to_pylist() == list(range(next_of[recording_id]))
    statistics = json.loads(found.statistics)
    assert statistics["numRecords"] == sum(next_of)
    assert statistics["maxValues"]["position"] == 64 * (max(next_of) - 1)


def test_rows_of_another_session_stay_apart(table: Path) -> None:
    """A recording that was cut has another session at the same positions."""
    first, second = quotes(range(20)), quotes(range(10, 15))
    session = pa.array([8] * 5, pa.int32())
    second = second.set_column(second.column_names.index("session_id"), "session_id", session)
    _, rows = joined(table, first.slice(0, 12), second, first.slice(12))
    for session_id, numbers in ((7, range(20)), (8, range(10, 15))):
        of_one = rows.filter(pc.equal(rows["session_id"], session_id))
        assert of_one["sequence"].to_pylist() == list(numbers)


def test_encodings_are_those_of_the_parts(table: Path) -> None:
    found, _ = joined(table, quotes(range(1_000)), quotes(range(1_000, 2_000)))

    def seen(path: str) -> list[tuple[object, ...]]:
        group = pq.read_metadata(table / path).row_group(0)
        chunks = [group.column(place) for place in range(group.num_columns)]
        return [
            (each.path_in_schema, each.compression, each.has_dictionary_page, set(each.encodings))
            for each in chunks
        ]

    assert seen(found.path) == seen(found.parts[0].path)
    assert ("position", "ZSTD", False, {"RLE", "DELTA_BINARY_PACKED"}) in seen(found.path)
    assert pq.read_metadata(table / found.path).metadata is None


def test_statistics_are_read_back(table: Path) -> None:
    found, _ = joined(table, quotes(range(5)), quotes(range(5, 9)))

    keys = found.parts[0].partition
    commit(table, [AddAction(found.path, found.size, keys, 0, True, found.statistics)], 0)
    files = TableSnapshot.open(table).files()
    row = files.to_pylist()[0]
    assert (row["num_records"], row["min.position"], row["max.position"]) == (9, 0, 512)
    assert row["max.event_time"].microsecond == 80_000
    (read,) = table_files(files, ["date", "stream_id"])
    assert read.partition == {"date": "2026-11-18", "stream_id": "1001"}
    assert TableSnapshot.open(table).paths("event_time > '2027-01-01'") == []


def test_ranges_of_all_columns_that_readers_ask_for_stay(tmp_path: Path) -> None:
    columns = pa.schema([("ingest_batch", pa.int64()), ("second", pa.int64()), ("n", pa.int64())])
    parts = []
    for batch in range(2):
        writer = FileWriter(LocalPlace(tmp_path), attempt(batch, 0), columns, max_bytes=1 << 20)
        seconds = [100 * batch, 100 * batch + 5]
        writer.write([pa.array(each) for each in ([batch, batch], seconds, [1, 2])])
        (file,) = writer.close()
        found = TableFile(
            path=file.path, size=file.size, rows=2, partition={}, modified_ms=0, start=(0, 0)
        )
        parts.append(found)
    statistics = json.loads(
        join_files(LocalPlace(tmp_path), parts, columns, "m00000000").statistics
    )
    assert statistics == {
        "numRecords": 4,
        "minValues": {"ingest_batch": 0, "second": 0},
        "maxValues": {"ingest_batch": 1, "second": 105},
        "nullCount": {},
    }


def test_a_part_that_is_not_what_the_log_says_changes_nothing(table: Path) -> None:
    found, _ = joined(table, quotes(range(5)), quotes(range(5, 9)))
    (table / found.path).unlink()
    before = sorted(table.rglob("*.parquet"))
    wrong = TableFile(
        path=found.parts[0].path,
        size=1,
        rows=6,
        partition=found.parts[0].partition,
        modified_ms=0,
        start=(0, 0),
    )
    with pytest.raises(ArchiveError, match="9 rows, and by the log 10"):
        join_files(LocalPlace(table), [wrong, found.parts[1]], INSIDE, "m00000001")
    (table / found.parts[1].path).write_bytes(b"damaged, and longer than a magic number")
    with pytest.raises(ArchiveError, match="cannot join 2 files"):
        join_files(LocalPlace(table), found.parts, INSIDE, "m00000001")
    assert sorted(table.rglob("*.parquet")) == before
