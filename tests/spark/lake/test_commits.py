"""Commits: each batch once, whoever tries it, and however old what he knows is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from aeron_async.errors import ArchiveError
from aeron_async.spark.lake import commits as module
from aeron_async.spark.lake.commits import DeltaStore, FolderStore
from aeron_async.spark.lake.files import FileWriter, attempt, file_schema
from aeron_async.spark.lake.maintenance import MaintenanceSettings, maintain_table
from aeron_async.spark.lake.tables import Lake

if TYPE_CHECKING:
    from deltalake.transaction import RemoveAction

    from aeron_async.spark.lake.commits import Store
    from aeron_async.spark.lake.files import DataFile

TABLE = "bronze"
COLUMNS = pa.schema([("ingest_batch", pa.int64()), ("n", pa.int64())])
DATED = pa.schema([*COLUMNS, ("date", pa.date32()), ("stream_id", pa.int32())])
DAY = 20_000


def opened(lake: Lake, kind: type[Any] = DeltaStore, query: str = "q") -> Store:
    store: Store = kind(lake)
    store.query = query
    store.prepare(TABLE, DATED)
    return store


def written(store: Store, batch: int, *numbers: int) -> list[DataFile]:
    writer = FileWriter(
        store.folder(TABLE, batch), attempt(batch, 0), file_schema(DATED), max_bytes=1 << 20
    )
    writer.write([pa.repeat(pa.scalar(batch), len(numbers)), pa.array(numbers)], (DAY, 1))
    return writer.close()


def numbers(lake: Lake) -> list[int]:
    return sorted(lake.read(TABLE, COLUMNS).column("n").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake & more")


@pytest.mark.parametrize("kind", [DeltaStore, FolderStore])
def test_what_is_written_counts_when_it_is_committed(lake: Lake, kind: type[Any]) -> None:
    store = opened(lake, kind)
    assert store.last(TABLE) is None
    for batch in (0, 4):
        files = written(store, batch, batch, batch + 1)
        written(store, batch, 99)
        assert 99 not in numbers(lake)
        store.commit(TABLE, batch, files)
        assert store.last(TABLE) == batch
    assert numbers(lake) == [0, 1, 4, 5]
    store.commit(TABLE, 5, written(store, 5, 7), replace=True)
    assert numbers(lake) == [7]


@pytest.mark.parametrize("kind", [DeltaStore, FolderStore])
def test_of_two_jobs_one_commits_a_batch_and_the_other_is_told(lake: Lake, kind: type[Any]) -> None:
    first, second = opened(lake, kind), opened(lake, kind)
    files = written(second, 0, 2)
    first.commit(TABLE, 0, written(first, 0, 1))
    with pytest.raises(ArchiveError, match="another job has committed batch 0 to table bronze"):
        second.commit(TABLE, 0, files)
    assert numbers(lake) == [1]
    second.commit(TABLE, 1, written(second, 1, 3))
    assert numbers(lake) == [1, 3]


def test_a_folder_that_cannot_be_moved_is_no_other_job(lake: Lake) -> None:
    store = opened(lake, FolderStore)
    files = written(store, 0, 1)
    store.folder(TABLE, 0).remove(files[0].path)
    with pytest.raises(ArchiveError, match=r"batch 0 could not be committed to table bronze: No s"):
        store.commit(TABLE, 0, files)
    assert list(Path(str(lake.path(TABLE))).iterdir()) == []


def test_what_a_killed_commit_has_moved_goes_with_the_next_one(lake: Lake) -> None:
    store = opened(lake, FolderStore)
    left = (
        Path(str(lake.path(TABLE))) / ".batch=0.b00000000-p00000-abcdef01-000" / "date=2024-10-04"
    )
    left.mkdir(parents=True)
    (left / "b00000000-p00000-abcdef01-000.parquet").touch()
    store.commit(TABLE, 0, written(store, 0, 1))
    assert [each.name for each in Path(str(lake.path(TABLE))).iterdir()] == ["batch=0"]


def test_a_handle_that_is_behind_cannot_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(lake), opened(lake)
    files = written(second, 0, 2)
    looks = []

    def stale(self: DeltaStore, table: str) -> int | None:
        looks.append(table)
        if len(looks) == 1:
            # It looked just before the other one committed.
            first.commit(TABLE, 0, written(first, 0, 1))
            return None
        return last(self, table)

    last = DeltaStore.last
    monkeypatch.setattr(second, "last", lambda table: stale(second, table))  # type: ignore[arg-type] # one of these
    with pytest.raises(ArchiveError, match="another job has committed"):
        second.commit(TABLE, 0, files)
    assert len(looks) == 2
    assert numbers(lake) == [1]


def test_a_commit_that_always_comes_too_late_gives_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(lake)
    tries = []

    def fail(*given: object) -> None:
        tries.append(given)
        raise CommitFailedError

    monkeypatch.setattr(store, "_write", fail)
    with pytest.raises(ArchiveError, match=f"in each of {module.ATTEMPTS} attempts"):
        store.commit(TABLE, 0, written(store, 0, 1))
    assert len(tries) == module.ATTEMPTS


def test_another_query_has_its_own_numbers(lake: Lake) -> None:
    first, second = opened(lake), opened(lake, query="other")
    first.commit(TABLE, 7, written(first, 7, 1))
    assert second.last(TABLE) is None
    second.commit(TABLE, 8, written(second, 8, 2))
    assert (first.last(TABLE), second.last(TABLE)) == (7, 8)
    assert numbers(lake) == [1, 2]


@pytest.mark.parametrize("kind", [DeltaStore, FolderStore])
def test_what_later_batches_left_is_rolled_back(lake: Lake, kind: type[Any]) -> None:
    store = opened(lake, kind)
    for batch in range(3):
        store.commit(TABLE, batch, written(store, batch, batch))
    (Path(str(lake.root)) / "silver" / "of somebody else").mkdir(parents=True)
    store.roll_back(1)
    assert numbers(lake) == [0, 1]
    store.roll_back(1)
    store.roll_back(-1)
    assert numbers(lake) == []


def test_a_commit_says_which_batch_it_is(lake: Lake) -> None:
    store = opened(lake)
    store.commit(TABLE, 0, written(store, 0, 1))
    (entry, *_) = DeltaTable(str(lake.path(TABLE))).history(1)
    assert (entry["aeron.query"], entry["aeron.batch"]) == ("q", "0")
    assert store.versions() == {TABLE: 1}
    assert opened(lake, FolderStore).versions() == {}


def test_a_commit_that_removes_files_is_refused_if_maintenance_joined_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(lake)
    for batch in range(3):
        store.commit(TABLE, batch, written(store, batch, batch))
    files, joined = written(store, 3, 3), list[int]()
    removals = module.removals

    def joins_meanwhile(table: DeltaTable, after: int = -1) -> list[RemoveAction]:
        found = removals(table, after)
        if not joined:
            settings = MaintenanceSettings(min_files=2)
            joined.append(maintain_table(lake.path(TABLE), settings).joined_files)
        return found

    monkeypatch.setattr(module, "removals", joins_meanwhile)
    store.commit(TABLE, 3, files, replace=True)
    assert joined == [3]
    assert numbers(lake) == [3]


def test_rolling_back_gives_up_if_others_commit_all_the_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(lake)
    store.commit(TABLE, 1, written(store, 1, 1))

    def refuse(*_: object) -> None:
        raise CommitFailedError

    monkeypatch.setattr(store, "_write", refuse)
    with pytest.raises(ArchiveError, match="what batches after 0 have left could not be removed"):
        store.roll_back(0)
