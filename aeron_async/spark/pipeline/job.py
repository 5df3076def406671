"""Pipeline job: batch after batch from an archive into bronze, silver and gold.

The rows of a batch are plans: ranges of recordings. Tasks read them, write data files and sum up
(`task`); here each table is committed once, gold behind what it sums up, and `batches` last. A
batch that Spark repeats looks first which tables have it. What a batch writes depends on nothing
but that batch and those before it.
"""

from __future__ import annotations

import json
import pickle
import shutil
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.errors import ArchiveError
from aeron_async.logs import get_logger
from aeron_async.spark.catalog import CatalogWatch, open_directory, read_recordings
from aeron_async.spark.columns import default_columns
from aeron_async.spark.lake.commits import DeltaStore, FolderStore
from aeron_async.spark.lake.files import BATCH_COLUMN, FileWriter, attempt
from aeron_async.spark.lake.maintenance import Maintainer
from aeron_async.spark.lake.tables import (
    BATCHES,
    BRONZE,
    QUARANTINE,
    gold,
    silver,
)
from aeron_async.spark.losses import refuse_other, refuse_recreated_archive
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline.batches import (
    BATCHES_SCHEMA,
    BatchLog,
    Edges,
    has_checkpoint,
    last_runs,
    offsets_text,
    query_of,
    sync_offsets,
)
from aeron_async.spark.pipeline.gold import (
    GAPS,
    RATES_MINUTE,
    RECORDINGS,
    RUNS,
    SUMMED,
    per_minute,
    recording_rows,
    table_of,
)
from aeron_async.spark.pipeline.query import (
    MOST_TOLD,
    QueryStopper,
    follow,
    source_options,
    start_query,
)
from aeron_async.spark.pipeline.session import in_one_line
from aeron_async.spark.pipeline.silver import BRONZE_SCHEMA, QUARANTINE_SCHEMA, kinds_of
from aeron_async.spark.pipeline.task import RESULT, BatchTask
from aeron_async.spark.pipeline.totals import BatchTotals
from aeron_async.spark.pipeline.watermark import committed_offsets, watermarks
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.urls import s3_url, scheme_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.lake.commits import Store
    from aeron_async.spark.lake.files import DataFile
    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.offsets import Offsets
    from aeron_async.spark.pipeline.query import Lag
    from aeron_async.spark.pipeline.runs import Run
    from aeron_async.spark.pipeline.settings import PipelineSettings
    from aeron_async.spark.pipeline.totals import BatchSums
    from aeron_async.spark.pipeline.watermark import Watermark

__all__ = ["BatchReport", "BatchWork", "PipelineJob", "with_batch"]

log: Final = get_logger(__name__)
GOLD: Final = {
    **SUMMED,
    "rates_minute": RATES_MINUTE,
    "runs": RUNS,
    "gaps": GAPS,
    "recordings": RECORDINGS,
}


@final
@attrs.frozen
class BatchReport:
    """Result of a batch.

    Attributes:
        batch_id: Number of the batch.
        messages: Messages that were read.
        bytes: Bytes of their payloads.
        gaps: Gaps found.
        decoded: Decoded messages, by kind.
        quarantined: Messages that could not be decoded.
        positions: Position in the lake by recording id, in bytes; those of this batch first, and
            not more than `MOST_TOLD`.
        seconds: Duration of the batch.
        untold: How many more recordings the lake has.
        unlisted_gaps: How many gaps are not in the table of gaps, because there are too many.
        rounded: To how many seconds or minutes times were rounded, because a batch has too many
            different ones, by table of gold.
    """

    batch_id: int
    messages: int
    bytes: int
    gaps: int
    decoded: Mapping[str, int]
    quarantined: int
    positions: Mapping[int, int]
    seconds: float
    untold: int = 0
    unlisted_gaps: int = 0
    rounded: Mapping[str, int] = attrs.field(factory=dict)


@final
class PipelineJob:
    """Ingests an archive into a lake; its constructor checks all settings before Spark starts.

    Args:
        archive: Directory of the archive, or its URL.
        lake: Lake to write to.
        settings: Settings of the pipeline.
        tell: Called with the report of every batch.

    Raises:
        ConfigurationError: There is no archive, or a decoder or a field is unknown.
    """

    def __init__(
        self,
        archive: str | Path,
        lake: Lake,
        settings: PipelineSettings,
        tell: Callable[[BatchReport], None],
    ) -> None:
        self._archive = str(archive)
        self._lake = lake
        self._settings = settings
        self._tell = tell
        self._edges = Edges(lake)
        self._kinds = tuple(kinds_of(settings))
        self._given = source_options(archive, settings)
        self._options = ArchiveOptions.parse(self._given)
        directory = open_directory(self._options)
        self.recordings()
        self._watch = CatalogWatch(directory, self._options)
        self._clock = SystemClock()
        is_delta = settings.format == "delta"
        self._store: Store = DeltaStore(lake) if is_delta else FolderStore(lake)
        tables = {silver(each.decoding.kind): each.schema for each in self._kinds}
        tables[QUARANTINE] = QUARANTINE_SCHEMA
        if settings.bronze:
            tables[BRONZE] = BRONZE_SCHEMA
        self._data_tables = tuple(tables)
        self._tables = tables | {gold(name): with_batch(each) for name, each in GOLD.items()}
        self._tables[BATCHES] = BATCHES_SCHEMA
        self._maintainer = Maintainer(lake.root) if is_delta and settings.maintain else None
        self._log: BatchLog | None = None
        self._known_recordings: pa.Table = RECORDINGS.empty_table()

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return the catalog entries of the recordings to read."""
        return read_recordings(open_directory(self._options), self._options)

    def run(
        self,
        spark: SparkSession,
        *,
        take_over: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
        tell_lag: Callable[[Lag], None] = lambda _: None,
    ) -> None:
        """Ingest what is there; with a trigger, continue until a stop is requested.

        Args:
            spark: The session.
            take_over: Whether a new query may go on with a lake that has lost its checkpoint.
            is_stopped: Polled for a stop request; the current batch is completed first.
            tell_lag: Called after every batch with how far the lake is behind.

        Raises:
            ConfigurationError: The lake belongs to another archive or query, or a column of it has
                another type.
            ArchiveError: The query failed.
        """
        options = self.begin(take_over=take_over)
        ending = QueryStopper(is_stopped)
        process = ending.guarded(self.process)
        checkpoint = self._lake.checkpoint
        # That of a lake in a store is on this host, whatever file system Spark has by default.
        where = checkpoint if self._lake.root.is_local else checkpoint.as_uri()
        query = start_query(spark, options, where, self._settings.trigger, process)
        follow(query, tell_lag, ending)

    def begin(self, *, take_over: bool = False) -> dict[str, str]:
        """Check the lake, and create what it lacks; return the options of the source.

        Args:
            take_over: Whether a new query may go on with a lake that has lost its checkpoint.

        Raises:
            ConfigurationError: See `run`.
            DataLossError: The archive was created again.
        """
        is_url = scheme_of(self._archive) is not None
        archive = shown(s3_url(self._archive)) if is_url else str(Path(self._archive).absolute())
        self._lake.check_settings({"archive": archive, "format": self._settings.format})
        self._log = BatchLog(self._lake)
        is_stored = not self._lake.root.is_local
        is_taken_over = is_stored or self._log.check(take_over=take_over)
        for table, schema in self._tables.items():
            self._store.prepare(table, schema)
        self._store.begin()
        if is_taken_over and (is_stored or not has_checkpoint(self._lake)):
            self._store.take_turn()
            # A batch that came in until then counts, and none that comes after it.
            self._log = BatchLog(self._lake)
            self._store.roll_back(self._log.last)
            self._edges.forget_after(self._log.last)
        self._edges.begin(self._store.turn, self._log.last)
        options = dict(self._given)
        if is_taken_over and self._log.last >= 0:
            # Those of the user are for who begins a lake.
            options = {
                k: each for k, each in options.items() if not k.lower().startswith("starting")
            }
            runs = self._edges.before(self._log.last + 1)
            found = positions_behind(runs, self._log.offsets(), self.recordings())
            text = json.dumps({str(key): end for key, end in found.items()})
            options["startingPositions"] = text if found else "earliest"
        self._known_recordings = self._lake.read(gold("recordings"), RECORDINGS)
        return options

    def watermarks(self) -> list[Watermark]:
        """Return what may be purged from the archive: data that the lake and all others have read.

        Raises:
            ConfigurationError: A consumer is no checkpoint of a query on recordings.
        """
        others = [committed_offsets(Path(each)) for each in self._settings.consumers]
        consumers = [committed_offsets(self._lake.checkpoint), *others]
        return watermarks(self.recordings(), consumers, self._settings.purge_grace)

    def process(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch to every table that does not have it.

        Args:
            frame: Plans of the batch.
            batch_id: Id that Spark gave it; the same id always has the same plans.

        Raises:
            ArchiveError: Another job has committed the batch to a table meanwhile, or the lake has
                it with another end.
        """
        began_ns = self._clock.now_ns()
        assert self._log is not None
        self._store.query = query_of(self._lake.checkpoint) or ""
        batch = self._log.first_of(self._store.query) + batch_id
        missing = {table for table in self._tables if self._is_missing(table, batch)}
        if BATCHES not in missing:
            self._log.check_end(batch, offsets_text(self._lake.checkpoint, batch_id))
            return
        self._between_batches(batch)
        earlier = self._edges.before(batch)
        work = BatchWork(self._store, batch, missing)
        totals = self._written(frame, work)
        done = totals.summed_up(earlier)
        if not done.runs:
            return
        self._watch.look()
        self._check_owner()
        if self._lake.root.is_local:
            sync_offsets(self._lake.checkpoint, batch_id)
        for table in self._data_tables:
            work.commit(table, totals.files[table])
        self._commit_gold(work, totals, done)
        self._edges.keep(batch, done.all_runs, list(self._watch.recordings))
        positions = told_first(positions_of(done.all_runs), done.runs)
        report = BatchReport(
            batch_id=batch,
            messages=sum(run.messages for run in done.runs if not run.name),
            bytes=sum(run.bytes for run in done.runs),
            gaps=done.found_gaps,
            unlisted_gaps=done.unlisted_gaps,
            decoded={
                each.decoding.kind: totals.counts[silver(each.decoding.kind)]
                for each in self._kinds
            },
            quarantined=totals.counts[QUARANTINE],
            positions=dict(islice(positions.items(), MOST_TOLD)),
            untold=max(len(positions) - MOST_TOLD, 0),
            rounded=totals.rounded(),
            seconds=(self._clock.now_ns() - began_ns) / NS_PER_SECOND,
        )
        if report.rounded or report.unlisted_gaps:
            limits = {"rounded": report.rounded, "unlisted_gaps": report.unlisted_gaps}
            log.warning("batch_limited", batch=batch, **limits)
        self._commit_batch(work, report, batch_id, times_of(done.runs))
        self._tell(report)

    def _check_owner(self) -> None:
        """Refuse to commit for a query whose checkpoint was removed or replaced meanwhile.

        Whoever goes on with the lake begins behind the last batch, so that all of this one would be
        rolled back; see `commits` for who takes over while it commits.
        """
        found = query_of(self._lake.checkpoint) or ""
        if found != self._store.query:
            message = (
                f"lake {str(self._lake.root)!r} was written by query {self._store.query!r}, and "
                f"its _checkpoint is that of {found or 'none'!r} by now: nothing of this batch was "
                "committed; end this job, and let the one that has taken over go on"
            )
            raise ArchiveError(message)

    def _is_missing(self, table: str, batch: int) -> bool:
        last = self._store.last(table)
        return last is None or last < batch

    def _between_batches(self, batch: int) -> None:
        """Do what may be done while all tables have all batches before this one."""
        if self._lake.root.is_local:
            attempts = self._lake.attempts
            for each in attempts.folders():
                if each.isdecimal() and int(each) < batch:
                    shutil.rmtree(attempts / each)
        if self._maintainer is None:
            return
        try:
            self._maintainer.after_batch()
        except ArchiveError as error:
            # The batch does not depend on it, and the next call tries again.
            log.warning("maintenance_failed", error=str(error))

    def _written(self, frame: DataFrame, work: BatchWork) -> BatchTotals:
        """Run the tasks of a batch; return what they have found."""
        options = self._options
        task = BatchTask(
            batch=work.batch,
            scan=ScanSettings(options, default_columns(options)),
            settings=self._settings,
            kinds=self._kinds,
            folders={
                table: self._store.folder(table, work.batch)
                for table in self._data_tables
                if table in work.missing
            },
        )
        # Spark would show this error within one of its own, and that within another.
        with in_one_line():
            found = frame.mapInArrow(task, RESULT).toArrow()
        totals = BatchTotals()
        for each in found.column("result"):
            totals.add(pickle.loads(each.as_py()))  # noqa: S301 - from our own tasks
        return totals

    def _commit_gold(self, work: BatchWork, totals: BatchTotals, done: BatchSums) -> None:
        tables = totals.tables()
        tables["rates_minute"] = per_minute(tables["rates_second"])
        tables |= {"gaps": table_of(done.gaps, GAPS), "runs": table_of(done.runs, RUNS)}
        for name, rows in tables.items():
            work.write(gold(name), rows)
        recordings = recording_rows(self._watch.selected.values())
        if not recordings.equals(self._known_recordings):
            work.write(gold("recordings"), recordings, replace=True)
            self._known_recordings = recordings

    def _commit_batch(
        self,
        work: BatchWork,
        report: BatchReport,
        batch_id: int,
        times: tuple[int | None, int | None],
    ) -> None:
        row = {
            "query": self._store.query,
            "committed": datetime.fromtimestamp(self._clock.epoch_ms() / 1_000, UTC),
            "messages": report.messages,
            "bytes": report.bytes,
            "first_ns": times[0],
            "last_ns": times[1],
            "gaps": report.gaps,
            "quarantined": report.quarantined,
            "decoded": json.dumps(report.decoded),
            "offsets": offsets_text(self._lake.checkpoint, batch_id),
            "versions": json.dumps(self._store.versions()),
        }
        schema = BATCHES_SCHEMA.remove(BATCHES_SCHEMA.get_field_index(BATCH_COLUMN))
        work.write(BATCHES, pa.Table.from_pylist([row], schema=schema))


@final
@attrs.frozen
class BatchWork:
    """Commits of one batch.

    Attributes:
        store: The tables.
        batch: Number of the batch.
        missing: Tables that do not have it.
    """

    store: Store
    batch: int
    missing: set[str]

    def commit(self, table: str, files: list[DataFile], *, replace: bool = False) -> None:
        """Commit files to a table; nothing if there are none, or the table has the batch."""
        if table in self.missing and files:
            self.store.commit(table, self.batch, files, replace=replace)

    def write(self, table: str, rows: pa.Table, *, replace: bool = False) -> None:
        """Write rows to a table without partitions, and commit them."""
        if table not in self.missing or not rows.num_rows:
            return
        schema = with_batch(rows.schema)
        name = attempt(self.batch, 0)
        writer = FileWriter(self.store.folder(table, self.batch), name, schema, max_bytes=1 << 62)
        columns = [column.combine_chunks() for column in rows.columns]
        try:
            writer.write([pa.repeat(pa.scalar(self.batch, pa.int64()), len(rows)), *columns])
            files = writer.close()
        finally:
            writer.abandon()
        self.commit(table, files, replace=replace)


def with_batch(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table without partitions, which tell their batch."""
    return pa.schema([pa.field(BATCH_COLUMN, pa.int64()), *schema])


def times_of(runs: Iterable[Run]) -> tuple[int | None, int | None]:
    """Return the earliest and the latest time of runs; None if none has one."""
    times = [each for run in runs for each in (run.first_ns, run.last_ns) if each is not None]
    return min(times, default=None), max(times, default=None)


def positions_of(runs: pa.Table) -> dict[int, int]:
    """Return the end of what was ingested, by recording id."""
    last = last_runs(runs)
    own = last.filter(pc.equal(last.column("name"), ""))
    columns = (own.column(name).to_pylist() for name in ("recording_id", "end_position"))
    return dict(zip(*columns, strict=True))


def told_first(positions: Mapping[int, int], runs: Iterable[Run]) -> dict[int, int]:
    """Return positions, of which those of some runs come first."""
    first = {run.recording_id: positions[run.recording_id] for run in runs if not run.name}
    return first | dict(positions)


def positions_behind(
    runs: pa.Table, offsets: Offsets, recordings: Mapping[int, RecordingDescriptor]
) -> dict[int, int]:
    """Return where a query goes on that another one has left, by recording id.

    Args:
        runs: The last runs of the lake.
        offsets: Offsets of its last batch, which also know what was passed over and has no message.
        recordings: Catalog entries.

    Raises:
        DataLossError: A recording is another one now, because the archive was created again.
    """
    for key, each in recordings.items():
        if key in offsets.recordings:
            refuse_other(offsets.recordings[key], each)
        refuse_recreated_archive(offsets, each)
    passed = {key: offsets.position_in(each) for key, each in recordings.items()}
    is_passed = {key: end for key, end in passed.items() if end > recordings[key].start_position}
    return positions_of(runs) | is_passed
