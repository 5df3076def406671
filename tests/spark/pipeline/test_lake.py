"""The lake: its folders, and when nothing may be added to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.lake import (
    Lake,
    batch_folders,
    forget_batch,
    hold,
    write_atomically,
)
from aeron_async.spark.pipeline.tables import read_folders, write_rows

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})


def test_batches_replace_themselves_and_are_read_in_order(tmp_path: Path) -> None:
    table = Lake(tmp_path).gold("runs")
    for batch_id, rows in ((10, ROWS), (2, ROWS), (10, ROWS.slice(1))):
        write_rows(table, batch_id, rows)
    assert list(batch_folders(table)) == [2, 10]
    assert read_folders(table, ROWS.schema).to_pydict() == {"a": [1, 2, 2]}
    assert read_folders(table, ROWS.schema, before=10).to_pydict() == {"a": [1, 2]}
    write_rows(table, 10, ROWS.slice(2))
    forget_batch(table, 3)
    assert list(batch_folders(table)) == [2]
    assert Lake(tmp_path).tables() == [table]


def test_what_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert read_folders(tmp_path / "none", ROWS.schema).num_rows == 0
    assert Lake(tmp_path / "none").tables() == []


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        Lake(tmp_path / "none").check_readable()
    with pytest.raises(ConfigurationError, match="no messages yet"):
        Lake(tmp_path).check_readable()
    write_rows(Lake(tmp_path).gold("runs"), 0, ROWS)
    Lake(tmp_path).check_readable()


def test_a_lake_is_gone_on_with_as_it_was_begun(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.check_resumable({"archive": "/a", "format": "parquet"})
    lake.check_resumable({"archive": "/a", "format": "parquet"})
    with pytest.raises(ConfigurationError, match="begun with archive='/a'"):
        lake.check_resumable({"archive": "/b", "format": "parquet"})


def test_what_is_added_to_a_lake_is_held_to_from_then_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.check_resumable({"archive": "/a"})
    lake.check_resumable({"archive": "/a", "the columns of quotes": "price double"})
    lake.check_resumable({"archive": "/a"})
    with pytest.raises(ConfigurationError, match="begun with the columns of quotes='price double'"):
        lake.check_resumable({"the columns of quotes": "price int64"})


def test_one_job_at_a_time_writes_a_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with hold(lake.lock):
        with (
            pytest.raises(ConfigurationError, match=f"written by process {os.getpid()}, and two"),
            hold(lake.lock),
        ):
            pass
        assert lake.tables() == []
    with hold(lake.lock):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="could not be written"), hold(tmp_path / "file/l"):
        pass


def test_a_lake_that_lost_its_checkpoint_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_rows(lake.bronze, 0, ROWS)
    with pytest.raises(ConfigurationError, match="no _checkpoint"):
        lake.check_resumable({})
    lake.checkpoint.mkdir()
    (lake.checkpoint / "metadata").touch()
    lake.check_resumable({})


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="could not be written"):
        write_atomically(tmp_path / "file" / "inside", b"")
