"""Maintenance joins and removes files, and never changes a row: whoever else is at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake import Maintainer, TableSnapshot, maintain
from aeron_async.spark.lake import maintenance as subject
from aeron_async.spark.lake.compaction import JoinedFile, TableFile, join_files, table_files
from aeron_async.spark.lake.maintenance import (
    APPLICATION,
    BATCH_HOURS,
    CHECKPOINT_COMMITS,
    LOOK_COMMITS,
    MaintenanceSettings,
    TableReport,
    compact,
    maintain_table,
)
from aeron_async.spark.lake.places import LocalPlace, place_of
from tests.spark.lake.lakes import (
    QUOTES,
    add_batch,
    files_synced,
    little_lake,
    make_table,
    table_of_batches,
)
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.lake.places import LakePlace

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class HandClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ns(self) -> int:
        return self.ms * 10**6

    def epoch_ms(self) -> int:
        return self.ms

    def epoch_ns(self) -> int:
        return self.ms * 10**6


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return table_of_batches(tmp_path / "lake" / "silver" / "quotes")


def join(table: Path, parts: list[TableFile]) -> JoinedFile:
    schema = pa.schema([each for each in QUOTES if each.name not in {"date", "stream_id"}])
    return join_files(LocalPlace(table), parts, schema, "m00000000")


def numbers(table: Path) -> list[int]:
    """Return the numbers of all rows, in the order of the files."""
    found: list[int] = TableSnapshot.open(table).arrow().to_table()["sequence"].to_pylist()
    return found


def age(table: Path, hours: float) -> None:
    """Make every data file older."""
    for path in table.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            then = path.stat().st_mtime - hours * 3_600
            os.utime(path, (then, then))


def test_small_files_become_one_and_every_row_stays(table: Path) -> None:
    report = maintain_table(table, name="silver/quotes")
    assert (report.files, report.joined_files, report.made_files) == (10, 10, 1)
    assert report.joined_bytes == report.bytes > report.made_bytes > 0
    assert numbers(table) == list(range(100))
    assert len(TableSnapshot.open(table).paths()) == 1
    again = maintain_table(table)
    assert (again.files, again.joined_files, again.made_files) == (1, 0, 0)


def test_a_plan_changes_nothing(table: Path) -> None:
    age(table, 48)
    orphan = table / "date=2026-11-18" / "b00000099-p00000-abcdef01-000.parquet"
    orphan.write_bytes(b"12345")
    os.utime(orphan, (0, 0))
    before = DeltaTable(str(table)).version(), sorted(table.rglob("*"))
    plan = maintain_table(table, is_plan=True)
    assert (DeltaTable(str(table)).version(), sorted(table.rglob("*"))) == before
    done = maintain_table(table)
    assert (plan.joined_files, plan.made_files) == (done.joined_files, done.made_files) == (10, 1)
    assert (plan.unknown_files, plan.replaced_files, plan.removed_bytes) == (1, 0, 5)
    assert (done.unknown_files, done.removed_bytes) == (1, 5)
    assert not orphan.exists()


def test_one_run_joins_no_more_than_it_may(table: Path) -> None:
    for batch in range(10, 20):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10), day="2026-11-19")
    settings = MaintenanceSettings(max_files=12)
    first = maintain_table(table, settings)
    assert (first.joined_files, first.left_files) == (10, 10)
    second = maintain_table(table, settings)
    assert (second.joined_files, second.left_files) == (10, 0)
    assert sorted(numbers(table)) == list(range(200))


def test_more_is_committed_step_by_step(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "COMMIT_BYTES", 1)
    for batch in range(10, 20):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10), day="2026-11-19")
    assert maintain_table(table).made_files == 2
    assert DeltaTable(str(table)).transaction_version(APPLICATION) == 1
    assert sorted(numbers(table)) == list(range(200))


def test_what_another_process_joins_between_two_commits_is_left_alone(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(10, 20):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10), day="2026-11-19")
    monkeypatch.setattr(subject, "COMMIT_BYTES", 1)
    calls: list[str] = []

    def join_after_another(*arguments: Any) -> Any:
        calls.append("join")
        if len(calls) == 2:
            with monkeypatch.context() as restored:
                restored.setattr(subject, "join_files", join_files)
                assert maintain_table(table).joined_files == 10
        return join_files(*arguments)

    monkeypatch.setattr(subject, "join_files", join_after_another)
    report = maintain_table(table)
    assert (report.joined_files, report.refused_files) == (10, 10)
    assert sorted(numbers(table)) == list(range(200))
    assert len(list(table.rglob("m*.parquet"))) == 2


def test_what_another_process_joins_after_an_update_is_left_alone(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were chosen by an older version than the one that is committed to."""
    handle = DeltaTable(str(table))
    commit = subject.commit

    def commit_on_a_newer_handle(table: DeltaTable, *others: Any) -> bool:
        monkeypatch.setattr(subject, "commit", commit)
        maintain_table(place_of(table))
        table.update_incremental()
        return commit(table, *others)

    monkeypatch.setattr(subject, "commit", commit_on_a_newer_handle)
    assert compacted(handle).refused_files == 10
    assert numbers(table) == list(range(100))


def compacted(handle: DeltaTable, **settings: Any) -> TableReport:
    report = TableReport(table="quotes", is_plan=False)
    compact(handle, MaintenanceSettings(**settings), report, 2**62)
    return report


def test_of_two_that_race_on_stale_handles_one_is_refused(table: Path) -> None:
    first, second = DeltaTable(str(table)), DeltaTable(str(table))
    assert compacted(first).joined_files == 10
    lost = compacted(second)
    assert (lost.joined_files, lost.refused_files) == (0, 10)
    assert numbers(table) == list(range(100))
    # What was written for nothing is gone at once.
    assert len(list(table.rglob("m*.parquet"))) == 1


def test_another_choice_of_files_is_refused_too(table: Path) -> None:
    """The fence is the application, and not the files: one may choose others."""
    for batch in range(10, 20):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10), day="2026-11-19")
    first, second = DeltaTable(str(table)), DeltaTable(str(table))
    assert compacted(first, max_files=10).joined_files == 10
    assert compacted(second).refused_files == 20
    assert sorted(numbers(table)) == list(range(200))


def test_files_of_other_processes_do_not_stand_in_the_way(table: Path) -> None:
    """A refused commit is tried again if the files are still there."""
    handle = DeltaTable(str(table))
    for batch in range(10, 20):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10), day="2026-11-19")
    other = DeltaTable(str(table))
    day = TableSnapshot(other).files("date = '2026-11-19'")
    done = [join(table, table_files(day, ["date", "stream_id"]))]
    assert subject.commit(other, done, 0)
    assert compacted(handle).joined_files == 10
    assert sorted(numbers(table)) == list(range(200))
    assert DeltaTable(str(table)).transaction_version(APPLICATION) == 1


def test_batches_that_commit_meanwhile_are_not_touched(table: Path) -> None:
    handle = DeltaTable(str(table))
    add_batch(table, 10, range(100, 110))
    assert compacted(handle).joined_files == 10
    assert numbers(table) == list(range(110))
    assert len(TableSnapshot.open(table).paths()) == 2


def test_rows_that_were_deleted_meanwhile_do_not_come_back(table: Path) -> None:
    handle = DeltaTable(str(table))
    DeltaTable(str(table)).delete("sequence < 5")
    assert compacted(handle).refused_files == 10
    assert sorted(numbers(table)) == list(range(5, 100))


def test_an_error_of_a_commit_leaves_no_file_behind(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        message = "the disk is gone"
        raise OSError(message)

    monkeypatch.setattr(subject, "commit", fail)
    with pytest.raises(ArchiveError, match="the disk is gone"):
        maintain_table(table)
    assert list(table.rglob("m*.parquet")) == []
    assert sorted(numbers(table)) == list(range(100))


RACER = """
import sys
from pathlib import Path
from aeron_async.spark.lake.maintenance import MaintenanceSettings, maintain_table
from tests.spark.lake.lakes import add_batch
role, table = sys.argv[1], Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
joined = refused = 0
for turn in range(15):
    if role == "batches":
        for batch in (2 * turn, 2 * turn + 1):
            add_batch(table, 100 + batch, range(1_000 + batch * 10, 1_010 + batch * 10))
    else:
        report = maintain_table(table, MaintenanceSettings(min_files=2))
        joined, refused = joined + report.joined_files, refused + report.refused_files
print(joined, refused, flush=True)
"""


@pytest.mark.processes
def test_processes_that_race_lose_and_double_nothing(table: Path) -> None:
    roles = ("batches", "maintains", "maintains")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, role, str(table)],
            env=untraced_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role in roles
    ]
    for each in racers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in racers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    printed = [each.communicate(timeout=300)[0].split() for each in racers]
    assert [each.returncode for each in racers] == [0, 0, 0]
    assert sum(int(joined) for joined, _ in printed) > 0
    assert sorted(numbers(table)) == [*range(100), *range(1_000, 1_300)]
    # Each compaction that went in has raised the version by one.
    done = [
        each
        for each in DeltaTable(str(table)).history()
        if each.get("aeron.operation") == "compaction"
    ]
    assert DeltaTable(str(table)).transaction_version(APPLICATION) == len(done) - 1


KILLED = """
import sys
from pathlib import Path
from aeron_async.spark.lake import maintenance
def wait(*_):
    print("written", flush=True)
    sys.stdin.read()
maintenance.commit = wait
maintenance.maintain_table(Path(sys.argv[1]))
"""


@pytest.mark.processes
def test_what_was_written_before_a_kill_is_never_read_and_goes_later(table: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(table)],
        env=untraced_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.communicate(timeout=60)
    (orphan,) = table.rglob("m*.parquet")
    assert sorted(numbers(table)) == list(range(100))
    assert maintain_table(table).joined_files == 10
    assert orphan.exists()
    age(table, 25)
    report = maintain_table(table)
    assert (report.replaced_files, report.unknown_files) == (0, 1)
    assert not orphan.exists()
    assert numbers(table) == list(range(100))


def test_replaced_files_stay_for_readers_and_unknown_ones_for_batches(table: Path) -> None:
    first = TableSnapshot.open(table)
    age(table, 30 * 24)
    maintain_table(table)
    running = table / "date=2026-11-18" / "b00000099-p00000-abcdef01-000.parquet"
    running.write_bytes(b"a batch that is running")
    for _ in range(2):
        report = maintain_table(table)
        assert (report.replaced_files, report.unknown_files) == (0, 0)
    assert first.arrow().count_rows() == 100
    assert running.exists()


def test_old_files_go_after_the_retention(table: Path) -> None:
    maintain_table(table)
    settings = MaintenanceSettings(retention_hours=0, may_break_readers=True)
    report = maintain_table(table, settings)
    assert (report.replaced_files, report.unknown_files) == (10, 0)
    assert report.removed_bytes > 0
    assert [path.name[0] for path in table.rglob("*.parquet") if path.name[0] in "bm"] == ["m"]
    assert numbers(table) == list(range(100))


def test_a_longer_retention_is_kept_through_checkpoints(table: Path) -> None:
    maintain_table(table, MaintenanceSettings(retention_hours=72))
    configuration = DeltaTable(str(table)).metadata().configuration
    assert configuration["delta.deletedFileRetentionDuration"] == "interval 72 hours"
    maintain_table(table, MaintenanceSettings(retention_hours=48))
    assert DeltaTable(str(table)).metadata().configuration == configuration


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="may_break_readers"):
        MaintenanceSettings(retention_hours=BATCH_HOURS - 1)
    with pytest.raises(ConfigurationError, match="retention"):
        MaintenanceSettings(retention_hours=-1, may_break_readers=True)
    for name in ("target_size", "min_files", "max_bytes", "max_files"):
        with pytest.raises(ConfigurationError, match=name):
            MaintenanceSettings(**{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="settled_hours"):
        MaintenanceSettings(settled_hours=-1)


def test_a_long_log_gets_a_checkpoint(table: Path) -> None:
    for batch in range(10, 10 + CHECKPOINT_COMMITS):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10))
    assert maintain_table(table).has_checkpoint
    last = json.loads((table / "_delta_log" / "_last_checkpoint").read_bytes())
    assert last["version"] == DeltaTable(str(table)).version()
    assert not maintain_table(table).has_checkpoint
    assert sorted(numbers(table)) == list(range(300))


def test_the_log_is_on_the_disk_before_what_it_stands_for_goes(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(10, 10 + CHECKPOINT_COMMITS):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10))
    log, before = table / "_delta_log", DeltaTable(str(table)).version()
    synced, cleaned = files_synced(monkeypatch), list[set[str]]()

    def cleaning(self: DeltaTable) -> None:
        cleaned.append({each.name for each in synced if each.parent == log})

    monkeypatch.setattr(DeltaTable, "cleanup_metadata", cleaning)
    settings = MaintenanceSettings(retention_hours=48)
    assert maintain_table(table, settings).has_checkpoint
    (names,) = cleaned
    after = DeltaTable(str(table)).version()
    assert after >= before + 3
    wanted = {f"{version:020}.json" for version in range(before + 1, after + 1)}
    assert wanted | {f"{after:020}.checkpoint.parquet"} <= names
    assert log in synced


def test_a_lake_is_maintained_table_by_table(tmp_path: Path) -> None:
    lake = little_lake(tmp_path)
    reports = list(maintain(lake))
    assert [(each.table, each.joined_files, each.made_files) for each in reports] == [
        ("silver/quotes", 8, 2),
        ("gold/rates_second", 0, 0),
    ]
    with pytest.raises(ConfigurationError, match="no Delta table"):
        list(maintain(tmp_path / "other"))


def test_files_of_a_batch_that_not_all_tables_have_are_not_joined(tmp_path: Path) -> None:
    """A job that was killed between two commits, or is between them now."""
    schema = pa.schema([("ingest_batch", pa.int64())])
    batches = make_table(tmp_path / "batches", schema, [])
    table = make_table(tmp_path / "bronze")
    for batch in range(4):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10))
    assert [each.joined_files for each in maintain(tmp_path)] == [0, 0]
    for batch in range(3):
        write_deltalake(str(batches), pa.table({"ingest_batch": [batch]}), mode="append")
    assert [(each.table, each.joined_files) for each in maintain(tmp_path)] == [
        ("bronze", 3),
        ("batches", 3),
    ]
    names = sorted(path.rpartition("/")[2][:9] for path in TableSnapshot.open(table).paths())
    assert [name[0] for name in names] == ["b", "m"]
    assert names[0] == "b00000003"
    # What was joined has no batch any more, and is joined again.
    write_deltalake(str(batches), pa.table({"ingest_batch": [3]}), mode="append")
    assert [each.joined_files for each in maintain(tmp_path)] == [2, 2]
    assert sorted(numbers(table)) == list(range(40))


def test_between_batches_little_is_done_until_it_pays(tmp_path: Path) -> None:
    table = make_table(tmp_path / "bronze")
    clock = HandClock()
    clock.ms = DeltaTable(str(table)).history(1)[0]["timestamp"]
    maintainer = Maintainer(tmp_path, clock=clock)
    done: list[tuple[int, int]] = []
    for batch in range(40):
        add_batch(table, batch, range(batch * 10, batch * 10 + 10))
        done += [(batch, each.joined_files) for each in maintainer.after_batch()]
    # First there is nothing to join; later, what was joined before is as small as the new files.
    assert [joined for _, joined in done] == [0, LOOK_COMMITS + 1, LOOK_COMMITS + 1]
    assert sorted(numbers(table)) == list(range(400))
    assert maintainer.after_batch() == []
    clock.ms += 25 * HOUR_MS
    (report,) = maintainer.after_batch()
    assert report.joined_files == 0
    assert maintainer.after_batch() == []


def test_a_damaged_table_keeps_no_other_from_being_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [make_table(tmp_path / name) for name in ("bronze", "quarantine")]
    schema = pa.schema([("ingest_batch", pa.int64())])
    make_table(tmp_path / "batches", schema, [])
    asked: list[int | None] = []
    last_batch = subject.last_batch

    def counted(tables: dict[str, LakePlace]) -> int | None:
        asked.append(last_batch(tables))
        return 99

    monkeypatch.setattr(subject, "last_batch", counted)
    for batch in range(8):
        for each in tables:
            add_batch(each, batch, range(batch * 10, batch * 10 + 10))
    next(tables[0].rglob("b*.parquet")).write_bytes(b"damaged, and longer than a magic number")
    maintainer = Maintainer(tmp_path)
    with pytest.raises(ArchiveError, match=r"bronze' could not be maintained: .* cannot join 8"):
        maintainer.after_batch()
    assert asked == [-1]
    assert len(TableSnapshot.open(tables[1]).paths()) == 1
    # It is not tried again with each batch; files that nothing needs go all the same.
    assert [each.table for each in maintainer.after_batch()] == ["bronze"]
    assert maintainer.after_batch() == []
    for batch in range(8, 8 + LOOK_COMMITS):
        add_batch(tables[0], batch, range(batch * 10, batch * 10 + 10))
    with pytest.raises(ArchiveError, match="cannot join"):
        maintainer.after_batch()


def test_between_batches_what_was_left_is_done_next(tmp_path: Path) -> None:
    table = make_table(tmp_path / "bronze")
    for batch in range(8):
        for day in ("2026-11-18", "2026-11-19"):
            add_batch(table, batch, range(batch * 10, batch * 10 + 10), day=day)
    settings = MaintenanceSettings(settled_hours=1, max_files=8)
    maintainer = Maintainer(tmp_path, settings)
    assert [each.joined_files for _ in range(3) for each in maintainer.after_batch()] == [8, 8]
