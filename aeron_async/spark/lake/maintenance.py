"""Maintenance of a lake: small files are joined, and files that no version needs are removed.

Compaction is a commit of this package under the application id `aeron:maintenance`, whose version
grows by one each time. A process looks whether the table still has the files that it replaces, and
commits on the handle it has looked with, so of two that race one is refused. (`optimize` of
`deltalake` has no such fence: two of them double every row.) A batch that commits at the same time
is not affected, because compaction only replaces files that are in the log already.

A batch commits to one table after another, and to `batches` when all have it. Until then none of
its files is joined, so that a batch which not all tables have can be taken out again.

A reader keeps its version: replaced files stay for the retention. So do files that are in no
version: they may belong to a batch that is running.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Final, final

import attrs
import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from aeron_async.clock import Clock, SystemClock
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.spark.lake.compaction import is_small, join_files, plan_joins, table_files
from aeron_async.spark.lake.files import BATCH_COLUMN, batch_of
from aeron_async.spark.lake.places import place_at, place_of
from aeron_async.spark.lake.reading import LOG, TableSnapshot, lake_tables, load_table
from aeron_async.spark.lake.tables import BATCHES, sync_log, write_commit
from aeron_async.text import printable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from aeron_async.spark.lake.compaction import JoinedFile, TableFile
    from aeron_async.spark.lake.places import LakePlace

__all__ = [
    "APPLICATION",
    "Maintainer",
    "MaintenanceSettings",
    "TableReport",
    "maintain",
    "maintain_table",
    "next_turn",
]

log: Final = get_logger(__name__)

APPLICATION: Final = "aeron:maintenance"
VACUUM: Final = "aeron:vacuum"
"""Application id whose version is the time of the last vacuum, in seconds since 1970."""
ATTEMPTS: Final = 5
"""How often a commit is tried; each time after loading the table and looking at it again."""
MS_PER_HOUR: Final = 3_600_000
SECONDS_PER_HOUR: Final = 3_600
BATCH_HOURS: Final = 6
"""A batch may take this long, and its files are in no version until it commits."""
DEFAULT_RETENTION_HOURS: Final = 24
COMMIT_BYTES: Final = 1 << 30
"""Bytes of files that are joined before they are committed; an interrupted run loses no more."""
CHECKPOINT_COMMITS: Final = 20
"""Commits after which maintenance writes a checkpoint, so that the table opens fast."""
DURATION: Final = re.compile(r"interval (\d+) (hour|day|week)s?")
HOURS: Final = {"hour": 1, "day": 24, "week": 168}


@final
@attrs.frozen(kw_only=True)
class MaintenanceSettings:
    """What maintenance does, and how much of it in one run.

    Attributes:
        target_size: Size of a full file in bytes; files below half of it are joined.
        min_files: Files of like sizes in one partition that are joined even if they do not make
            half of a full file.
        settled_hours: In a partition without new files for so long, all small files are joined.
        retention_hours: How long replaced files stay for readers, and unknown files for batches.
        may_break_readers: Allow a retention that is shorter than a batch may take.
        max_bytes: Most bytes of files that one run joins in a table.
        max_files: Most files that one run joins in a table.

    Raises:
        ConfigurationError: A number is too small.
    """

    target_size: int = 128 << 20
    min_files: int = 8
    settled_hours: int = 0
    retention_hours: int = DEFAULT_RETENTION_HOURS
    may_break_readers: bool = False
    max_bytes: int = 64 << 30
    max_files: int = 100_000

    def __attrs_post_init__(self) -> None:
        """Check every limit."""
        least = 0 if self.may_break_readers else BATCH_HOURS
        if self.retention_hours < least:
            message = (
                f"retention of {self.retention_hours} hours would remove the files of a batch that "
                f"is running, which may take {BATCH_HOURS} hours: raise it, or set "
                "may_break_readers while nothing writes or reads the lake"
            )
            raise ConfigurationError(message)
        limits = (("target_size", 1), ("min_files", 2), ("max_bytes", 1), ("max_files", 2))
        for name, minimum in (*limits, ("settled_hours", 0)):
            value = getattr(self, name)
            if value < minimum:
                message = f"{name} must be at least {minimum}, got {value}"
                raise ConfigurationError(message)


BETWEEN_BATCHES: Final = MaintenanceSettings(settled_hours=1, max_bytes=1 << 30, max_files=5_000)


@final
@attrs.define(kw_only=True)
class TableReport:
    """What maintenance has done to a table, or would do.

    Attributes:
        table: Name of the table, such as `silver/quotes`.
        is_plan: Whether nothing was changed.
        files: Files of the table before.
        bytes: Their bytes.
        joined_files: Small files that were replaced.
        joined_bytes: Their bytes.
        made_files: Files that replace them.
        made_bytes: Their bytes; 0 in a plan.
        left_files: Small files to join that this run had no room for.
        refused_files: Files that another process had joined or removed in the meantime.
        replaced_files: Files that were removed because the table no longer has them.
        unknown_files: Files that were removed because no version has them: those of batches that
            failed.
        removed_bytes: Bytes of both.
        log_files: Files of the table's log that were removed.
        has_checkpoint: Whether a checkpoint was written.
    """

    table: str
    is_plan: bool
    files: int = 0
    bytes: int = 0
    joined_files: int = 0
    joined_bytes: int = 0
    made_files: int = 0
    made_bytes: int = 0
    left_files: int = 0
    refused_files: int = 0
    replaced_files: int = 0
    unknown_files: int = 0
    removed_bytes: int = 0
    log_files: int = 0
    has_checkpoint: bool = False


def maintain(
    root: str | os.PathLike[str] | LakePlace,
    settings: MaintenanceSettings | None = None,
    *,
    is_plan: bool = False,
    clock: Clock | None = None,
) -> Iterator[TableReport]:
    """Maintain all tables of a lake, one after another; yield a report of each.

    Args:
        root: Path or URL of the lake. Batches may run, and other processes may maintain it, too.
        settings: What to do.
        is_plan: Only say what would be done.
        clock: Tells the time.

    Raises:
        ConfigurationError: The lake has no table.
        ArchiveError: A table cannot be read or written; those before it are done.
    """
    tables = lake_tables(root)
    last = last_batch(tables)
    for name, folder in tables.items():
        yield maintain_table(
            folder, settings, name=name, last_batch=last, is_plan=is_plan, clock=clock
        )


def last_batch(tables: dict[str, LakePlace]) -> int | None:
    """Return the last batch that all tables have, -1 before the first; None if no table says."""
    if BATCHES not in tables:
        return None
    rows = TableSnapshot.open(tables[BATCHES]).arrow().to_table(columns=[BATCH_COLUMN])
    return max(rows.column(BATCH_COLUMN).to_pylist(), default=-1)


def maintain_table(
    folder: str | os.PathLike[str] | LakePlace,
    settings: MaintenanceSettings | None = None,
    *,
    name: str | None = None,
    last_batch: int | None = None,
    is_plan: bool = False,
    clock: Clock | None = None,
) -> TableReport:
    """Maintain one table: join small files, remove old ones, and write a checkpoint.

    Args:
        folder: Path or URL of the table.
        settings: What to do.
        name: Name for the report; by default that of the folder.
        last_batch: Files of later batches are not joined; None joins all.
        is_plan: Only say what would be done.
        clock: Tells the time.

    Raises:
        ConfigurationError: The folder has no table.
        ArchiveError: The table cannot be read or written.
    """
    report = TableReport(table=name or place_at(folder).name, is_plan=is_plan)
    settings = settings or MaintenanceSettings()
    now_ms = (clock or SystemClock()).epoch_ms()
    table = load_table(folder)
    try:
        compact(table, settings, report, now_ms, last_batch)
        remove_old_files(table, settings, report, now_ms)
        tidy_log(table, report)
    except (DeltaError, OSError) as error:
        told = place_of(table).told(error)
        message = f"table {printable(place_of(table))!r} could not be maintained: {told}"
        raise ArchiveError(message) from place_of(table).cause(error)
    return report


def compact(
    table: DeltaTable,
    settings: MaintenanceSettings,
    report: TableReport,
    now_ms: int,
    last_batch: int | None = None,
) -> None:
    """Join small files of a table, as many as one run may, and commit them."""
    actions = pa.table(table.get_add_actions(flatten=True))
    keys = list(table.metadata().partition_columns)
    report.files = actions.num_rows
    report.bytes = sum(actions.column("size_bytes").to_pylist())
    small = [is_small(each, settings.target_size) for each in actions["size_bytes"].to_pylist()]
    # Most files of a table are full, and need not be looked at further.
    files = table_files(actions.filter(pa.array(small, pa.bool_())), keys)
    if last_batch is not None:
        files = [each for each in files if batch_of(each.path) <= last_batch]
    plan = plan_joins(
        files,
        target_size=settings.target_size,
        min_files=settings.min_files,
        settled_before_ms=now_ms - settings.settled_hours * MS_PER_HOUR,
    )
    chosen = within_limits(plan, settings, report)
    if report.is_plan:
        for group in chosen:
            report.joined_files += len(group)
            report.joined_bytes += sum(each.size for each in group)
        report.made_files = len(chosen)
        return
    schema = pa.schema(table.schema().to_arrow())
    inside = pa.schema([each for each in schema if each.name not in keys])
    for batch in commits(chosen):
        done: list[JoinedFile] = []
        try:
            for group in batch:
                start = f"m{table.version():08}"
                done.append(join_files(place_of(table), group, inside, start))
            is_in = commit(table, done, now_ms)
        except BaseException:
            # Not those that were committed: an error of the commit itself leaves that open.
            remove_unused(load_table(place_of(table)), done)
            raise
        note(report, done, is_in=is_in)
        if not is_in:
            remove_unused(load_table(place_of(table)), done)
            return
        table.update_incremental()


def within_limits(
    plan: list[list[TableFile]], settings: MaintenanceSettings, report: TableReport
) -> list[list[TableFile]]:
    """Return the first groups of a plan that one run may join."""
    files = length = 0
    for place, group in enumerate(plan):
        files += len(group)
        length += sum(each.size for each in group)
        if place and (files > settings.max_files or length > settings.max_bytes):
            report.left_files = sum(map(len, plan[place:]))
            return plan[:place]
    return plan


def commits(groups: list[list[TableFile]]) -> Iterator[list[list[TableFile]]]:
    """Yield the groups to join before each commit."""
    held: list[list[TableFile]] = []
    length = 0
    for group in groups:
        held.append(group)
        length += sum(each.size for each in group)
        if length >= COMMIT_BYTES:
            yield held
            held, length = [], 0
    if held:
        yield held


def note(report: TableReport, done: list[JoinedFile], *, is_in: bool) -> None:
    """Add joined files to a report."""
    parts = sum(len(each.parts) for each in done)
    if not is_in:
        report.refused_files += parts
        log.info("compaction_refused", table=report.table, files=parts)
        return
    report.joined_files += parts
    report.joined_bytes += sum(part.size for each in done for part in each.parts)
    report.made_files += len(done)
    report.made_bytes += sum(each.size for each in done)
    log.info("files_joined", table=report.table, files=parts, into=len(done))


def commit(table: DeltaTable, done: list[JoinedFile], now_ms: int) -> bool:
    """Replace files by those that join them; return False if the table no longer has all of them.

    Args:
        table: The table.
        done: The new files.
        now_ms: The time.

    Raises:
        DeltaError: The commit failed for another reason than another commit.
    """
    removed = [
        RemoveAction(part.path, False, now_ms, part.size, part.partition)
        for each in done
        for part in each.parts
    ]
    added = [
        AddAction(each.path, each.size, each.parts[0].partition, now_ms, False, each.statistics)
        for each in done
    ]
    replaced = {part.path for each in done for part in each.parts}
    handle = table
    for _ in range(ATTEMPTS):
        # The look and the commit are on one handle: what comes between makes the commit fail.
        if not replaced <= paths_of(handle):
            return False
        try:
            note = {"aeron.operation": "compaction"}
            write_commit(handle, [*removed, *added], [next_turn(handle)], note)
        except CommitFailedError:
            handle = load_table(place_of(table))
        else:
            return True
    return False


def next_turn(table: DeltaTable) -> Transaction:
    """Return the transaction of a commit that removes files: of two that race, one is refused."""
    seen = table.transaction_version(APPLICATION)
    return Transaction(APPLICATION, 0 if seen is None else seen + 1)


def paths_of(table: DeltaTable) -> set[str]:
    """Return the paths of all files of a table."""
    return set(pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist())


def remove_unused(table: DeltaTable, done: list[JoinedFile]) -> None:
    """Remove files that were written for a commit that was refused."""
    known = paths_of(table)
    for each in done:
        if each.path not in known:
            place_of(table).remove(each.path)


def remove_old_files(
    table: DeltaTable, settings: MaintenanceSettings, report: TableReport, now_ms: int
) -> None:
    """Remove replaced files and files of no version, if they are older than the retention."""
    hours = settings.retention_hours
    table.update_incremental()
    if not report.is_plan:
        keep_replaced_files(table, hours)

    def vacuum(*, dry_run: bool, full: bool) -> list[str]:
        # `deltalake` refuses less than the table's own retention, which may be longer than needed.
        return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=full)

    found, folder = vacuum(dry_run=True, full=True), place_of(table)
    replaced = set(vacuum(dry_run=True, full=False)) & set(found)
    report.removed_bytes = sum(folder.sizes(found))
    report.replaced_files = len(replaced)
    report.unknown_files = len(found) - len(replaced)
    if report.is_plan:
        return
    is_first = claim_vacuum(table, now_ms)
    if found and is_first:
        before = table.version()
        vacuum(dry_run=False, full=True)
        sync_log(table, before)
        log.info("files_removed", table=report.table, files=len(found), bytes=report.removed_bytes)
    elif found:
        report.replaced_files = report.unknown_files = report.removed_bytes = 0


def keep_replaced_files(table: DeltaTable, hours: int) -> None:
    """Let the log name replaced files for the retention, or they would count as unknown before."""
    text = table.metadata().configuration.get(RETENTION, "interval 1 week")
    match = DURATION.fullmatch(text)
    if match is None or int(match[1]) * HOURS[match[2]] < hours:
        before = table.version()
        table.alter.set_table_properties({RETENTION: f"interval {hours} hours"})
        sync_log(table, before)


RETENTION: Final = "delta.deletedFileRetentionDuration"


def claim_vacuum(table: DeltaTable, now_ms: int) -> bool:
    """Note the time of a vacuum in the log; return False if another process does so now."""
    seen = table.transaction_version(VACUUM)
    now_s = max(now_ms // 1_000, 0 if seen is None else seen + 1)
    try:
        write_commit(table, [], [Transaction(VACUUM, now_s)], {"aeron.operation": "vacuum"})
    except CommitFailedError:
        return False
    return True


def tidy_log(table: DeltaTable, report: TableReport) -> None:
    """Write a checkpoint if there are many commits without one, and remove the old log."""
    folder = place_of(table) / LOG
    report.has_checkpoint = table.version() - last_checkpoint(folder) >= CHECKPOINT_COMMITS
    if report.is_plan:
        return
    if report.has_checkpoint:
        table.update_incremental()
        table.create_checkpoint()
    # Once the log before it is gone, the checkpoint is all there is.
    names, start = folder.names(), f"{last_checkpoint(folder):020}.checkpoint"
    folder.sync_names([each for each in names if each.startswith(start)])
    table.cleanup_metadata()
    report.log_files = max(len(names) - len(folder.names()), 0)


def last_checkpoint(log_folder: LakePlace) -> int:
    """Return the version of the last checkpoint; -1 if there is none."""
    try:
        return int(json.loads(log_folder.read("_last_checkpoint") or b"")["version"])
    except (OSError, ValueError, KeyError):
        return -1


LOOK_COMMITS: Final = 16
"""Commits of a table after which it is looked at again."""


@final
class Maintainer:
    """Maintains a lake between the batches of a job, cheaply if nothing is to do.

    A table is looked at after so many commits that joining can pay off, and once a retention old
    files are removed. In between, a call reads only the new commits of each table's log.

    Args:
        root: Path or URL of the lake.
        settings: What to do in one call.
        clock: Tells the time.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | LakePlace,
        settings: MaintenanceSettings = BETWEEN_BATCHES,
        clock: Clock | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._tables: dict[str, DeltaTable] = {}
        self._seen: dict[str, int] = {}

    def after_batch(self) -> list[TableReport]:
        """Do what is due; return a report of each table that was looked at.

        Raises:
            ConfigurationError: The lake has no table.
            ArchiveError: A table cannot be read or written; the others are done, and this one is
                tried again after as many commits as when nothing is wrong.
        """
        reports = []
        problems: list[ArchiveError] = []
        now_ms = self._clock.epoch_ms()
        tables = lake_tables(self._root)
        # Only asked for if a table has grown, and then once.
        last = cache(lambda: last_batch(tables))
        for name, folder in tables.items():
            report = TableReport(table=name, is_plan=False)
            try:
                if name not in self._tables:
                    self._tables[name] = load_table(folder)
                if self._do(self._tables[name], report, now_ms, last):
                    reports.append(report)
            except (ArchiveError, DeltaError, OSError) as error:
                message = (
                    f"table {printable(folder)!r} could not be maintained: {folder.told(error)}"
                )
                problems.append(ArchiveError(message))
                if name in self._tables:
                    self._seen[name] = self._tables[name].version()
        if problems:
            raise problems[0]
        return reports

    def _do(
        self,
        table: DeltaTable,
        report: TableReport,
        now_ms: int,
        last: Callable[[], int | None],
    ) -> bool:
        """Do what is due for a table; return whether something was."""
        table.update_incremental()
        if table.version() == 0:
            # It was created, and has no file.
            return False
        seen = self._seen.get(report.table)
        is_grown = seen is None or table.version() - seen >= LOOK_COMMITS
        if is_grown:
            compact(table, self._settings, report, now_ms, last())
        last_s = table.transaction_version(VACUUM)
        hours = max(self._settings.retention_hours, 1)
        is_old = last_s is None or now_ms // 1_000 - last_s >= hours * SECONDS_PER_HOUR
        if is_old:
            remove_old_files(table, self._settings, report, now_ms)
        if is_grown or is_old:
            tidy_log(table, report)
            table.update_incremental()
            # What one call had no room for is due in the next.
            self._seen[report.table] = table.version() - LOOK_COMMITS * bool(
                report.left_files or report.refused_files
            )
        return is_grown or is_old
