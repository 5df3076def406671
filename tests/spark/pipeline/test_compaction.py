"""Small folders are put together; whatever is interrupted is finished, or forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aeron_async.spark.pipeline.lake import batch_folders
from aeron_async.spark.pipeline.tables import (
    ASIDE,
    NOTE,
    choose,
    read_folders,
    recover,
    replace_folders,
    write_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([10, 10], []),
        ([10, 10, 10], [[0, 1, 2]]),
        ([60, 60, 10], [[0, 1]]),
        ([10, 100, 10, 10], []),
        ([10, 10, 100, 10], [[0, 1]]),
        ([100, 100, 100], []),
        ([40, 40, 40, 40, 40, 40, 1], [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_neighbours_are_put_together_until_a_file_is_full(
    sizes: list[int], groups: list[list[int]]
) -> None:
    assert choose(dict(enumerate(sizes)), max_bytes=100, count=3) == groups


@pytest.fixture
def table(tmp_path: Path) -> Path:
    table = tmp_path / "table"
    for batch_id in range(4):
        write_rows(table, batch_id, rows(batch_id))
    (table / ASIDE).mkdir()
    pq.write_table(rows(0, 1, 2), table / ASIDE / "part.parquet")
    return table


def test_the_whole_takes_the_place_of_its_parts(table: Path) -> None:
    replace_folders(table, [0, 1, 2])
    assert list(batch_folders(table)) == [2, 3]
    assert read_folders(table, SCHEMA).to_pydict() == {"a": [0, 1, 2, 3]}
    recover(table)
    assert read_folders(table, SCHEMA).to_pydict() == {"a": [0, 1, 2, 3]}


def test_what_was_only_written_aside_is_forgotten(table: Path) -> None:
    recover(table)
    assert not (table / ASIDE).exists()
    assert list(batch_folders(table)) == [0, 1, 2, 3]


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_what_was_noted_is_finished(table: Path, done: int) -> None:
    (table / NOTE).write_text("[0, 1, 2]")
    for batch_id in range(done):
        write_rows(table, batch_id, rows())
    recover(table)
    assert list(batch_folders(table)) == [2, 3]
    assert read_folders(table, SCHEMA).to_pydict() == {"a": [0, 1, 2, 3]}
    assert not (table / NOTE).exists()


def test_what_was_finished_but_for_the_note_stays(table: Path) -> None:
    replace_folders(table, [0, 1, 2])
    (table / NOTE).write_text("[0, 1, 2]")
    recover(table)
    assert read_folders(table, SCHEMA).to_pydict() == {"a": [0, 1, 2, 3]}
