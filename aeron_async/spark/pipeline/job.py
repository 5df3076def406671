"""Pipeline job: batch after batch from an archive into bronze, silver and gold.

What a batch writes replaces the output of an earlier attempt at the same batch, and depends on
nothing but that batch and those before it.

The last runs are stored beside the tables, so that a batch costs the same however many came before.
If they are missing, the job reads the runs themselves: those of later batches, or all.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import pyarrow as pa

from aeron_async.clock import SystemClock
from aeron_async.spark.catalog import open_directory, read_recordings
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.gold import RUNS
from aeron_async.spark.pipeline.lake import forget_batch, hold, write_atomically
from aeron_async.spark.pipeline.query import (
    QueryStopper,
    bronze,
    follow,
    source_options,
    start_query,
)
from aeron_async.spark.pipeline.runs import Run
from aeron_async.spark.pipeline.silver import decoded, kinds_of, silver, undecodable
from aeron_async.spark.pipeline.tables import (
    Tables,
    compact_lake,
    read_folders,
    recover,
    write_rows,
)
from aeron_async.spark.pipeline.watermark import committed_offsets, last_committed, watermarks

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.pipeline.lake import Lake
    from aeron_async.spark.pipeline.query import Lag
    from aeron_async.spark.pipeline.runs import RecordedGap
    from aeron_async.spark.pipeline.settings import PipelineSettings
    from aeron_async.spark.pipeline.silver import MessageKind
    from aeron_async.spark.pipeline.watermark import Watermark

__all__ = [
    "BatchReport",
    "BronzeBatch",
    "DecodingStep",
    "Edges",
    "PipelineJob",
    "last_runs",
]

NAME: Final = re.compile(r"(\d{1,19})\.json")


def last_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the run that ends last, of each recording and each name."""
    found: dict[tuple[int, str], Run] = {}
    for run in runs:
        key = run.recording_id, run.name
        if key not in found or run.end_position > found[key].end_position:
            found[key] = run
    return list(found.values())


@final
class Edges:
    """Stores the last runs of a lake after each batch."""

    def __init__(self, lake: Lake) -> None:
        self._runs = lake.gold("runs")
        self._folder = lake.root / "_state" / "edges"

    def before(self, batch_id: int) -> list[Run]:
        """Return the last runs of all batches before this one."""
        kept = [each for each in self._kept() if each < batch_id]
        last, known = -1, []
        for each in reversed(kept):
            read = read_runs(self._path(each))
            if read is not None:
                last, known = each, read
                break
        rows = read_folders(self._runs, RUNS, before=batch_id, after=last)
        return last_runs([*known, *(Run(**row) for row in rows.to_pylist())])

    def keep(self, batch_id: int, runs: Iterable[Run], recordings: Container[int]) -> None:
        """Store the last runs for the next batch.

        Args:
            batch_id: Batch that is now in the lake.
            runs: Its runs, and the last ones before it.
            recordings: Ids of existing recordings; the runs of others are not needed any more.
        """
        found = [attrs.asdict(run) for run in last_runs(runs) if run.recording_id in recordings]
        write_atomically(self._path(batch_id), json.dumps(found).encode())
        # Keep the one before as well, because Spark may repeat this batch.
        for each in [each for each in self._kept() if each < batch_id][:-1]:
            self._path(each).unlink()

    def _kept(self) -> list[int]:
        """Return the batches after which runs were stored, in order."""
        if not self._folder.is_dir():
            return []
        matches = [NAME.fullmatch(each.name) for each in self._folder.iterdir()]
        return sorted(int(match[1]) for match in matches if match is not None)

    def _path(self, batch_id: int) -> Path:
        return self._folder / f"{batch_id}.json"


def read_runs(path: Path) -> list[Run] | None:
    """Return stored runs; None if another version wrote them, or the file is incomplete."""
    try:
        return [Run(**each) for each in json.loads(path.read_bytes())]
    except (TypeError, ValueError):
        return None


PARTITIONS: Final = ("date", "stream_id")


@final
@attrs.frozen
class BronzeBatch:
    """A batch that is in bronze.

    Attributes:
        batch_id: Id of the batch.
        messages: Its rows in bronze.
        runs: Its runs of positions.
        earlier: Runs of the batches before it.
        recordings: Catalog entries by recording id.
    """

    batch_id: int
    messages: DataFrame
    runs: Sequence[Run]
    earlier: Sequence[Run]
    recordings: Mapping[int, RecordingDescriptor]

    @property
    def term_lengths(self) -> dict[int, int]:
        """Return term lengths by recording id."""
        return {key: each.term_length for key, each in self.recordings.items()}

    @property
    def ends(self) -> dict[int, int]:
        """Return the end of what was ingested before, by recording id."""
        found: dict[int, int] = {}
        for run in self.earlier:
            if not run.name:
                end = max(run.end_position, found.get(run.recording_id, 0))
                found[run.recording_id] = end
        return found

    @property
    def session_ends(self) -> dict[tuple[int, int], int]:
        """Return the same by recording id and session, for the recordings in this batch."""
        read = {run.recording_id for run in self.runs}
        found: dict[tuple[int, int], int] = {}
        for run in self.earlier:
            if not run.name and run.recording_id in read:
                key = run.recording_id, run.session_id
                found[key] = max(run.end_position, found.get(key, 0))
        return found

    def bytes_of(self, stream_id: int) -> int:
        """Return the payload bytes of a stream."""
        return sum(run.bytes for run in self.runs if run.stream_id == stream_id)

    def has(self, stream_id: int) -> bool:
        """Return whether the batch has a message of a stream."""
        return any(run.stream_id == stream_id for run in self.runs)


@final
class DecodingStep:
    """Decodes batches into silver and quarantine.

    Args:
        lake: Lake to write to.
        settings: Settings of the pipeline.
        kinds: Kinds of messages.
        tables: Writes the tables.
    """

    def __init__(
        self, lake: Lake, settings: PipelineSettings, kinds: list[MessageKind], tables: Tables
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._kinds = kinds
        self._tables = tables

    def run(self, batch: BronzeBatch) -> tuple[dict[str, int], int]:
        """Write silver and quarantine; return the count of each kind, and that of quarantine."""
        counts = {}
        has_errors = set()
        for kind in self._kinds:
            name, stream_id = kind.decoding.kind, kind.decoding.stream_id
            counts[name], errors = self._decode(kind, batch) if batch.has(stream_id) else (0, 0)
            if not counts[name]:
                forget_batch(self._lake.silver(name), batch.batch_id)
            if errors:
                has_errors.add(stream_id)
        return counts, self._put_aside(batch, has_errors)

    def _decode(self, kind: MessageKind, batch: BronzeBatch) -> tuple[int, int]:
        failures = batch.messages.sparkSession.sparkContext.accumulator(0)
        rows = decoded(
            batch.messages,
            kind,
            ends=batch.session_ends,
            started_ms={key: each.start_timestamp_ms for key, each in batch.recordings.items()},
            failed=failures.add,
        )
        file_count = math.ceil(
            max(batch.bytes_of(kind.decoding.stream_id), 1) / self._settings.max_file_bytes
        )
        table = self._lake.silver(kind.decoding.kind)
        self._tables.write(silver(rows, kind, file_count), table, batch.batch_id, PARTITIONS)
        return self._tables.count(table, batch.batch_id), int(failures.value)

    def _put_aside(self, batch: BronzeBatch, stream_ids: set[int]) -> int:
        """Write messages that cannot be decoded to quarantine; return how many there are."""
        frames = [
            undecodable(batch.messages, [k for k in self._kinds if k.decoding.stream_id == each])
            for each in sorted(stream_ids)
        ]
        if not frames:
            forget_batch(self._lake.quarantine, batch.batch_id)
            return 0
        frame = frames[0]
        for each in frames[1:]:
            frame = frame.unionByName(each)
        self._tables.write(frame, self._lake.quarantine, batch.batch_id)
        return self._tables.count(self._lake.quarantine, batch.batch_id)

    def sequences(
        self, batch: BronzeBatch, counts: Mapping[str, int]
    ) -> Iterator[tuple[list[Run], list[RecordedGap]]]:
        """Yield runs and gaps of every number that counts messages."""
        for each in self._settings.sequence:
            if not counts[each.kind]:
                continue
            name = f"{each.kind}.{each.field}"
            rows = self._tables.read_batch(self._lake.silver(each.kind), batch.batch_id)
            found = gold.summary(rows, batch.term_lengths, name, each.field)
            earlier = [run for run in batch.earlier if run.name == name]
            yield gold.stitched(found, earlier, batch.term_lengths)

    def latencies(self, batch: BronzeBatch, counts: Mapping[str, int]) -> None:
        """Write the count of each bin of every latency."""
        found = []
        for kind in (kind for kind, count in counts.items() if count):
            measured = [each for each in self._settings.latency if each.kind == kind]
            if measured:
                rows = self._tables.read_batch(self._lake.silver(kind), batch.batch_id)
                found.append(gold.latency_counts(rows, measured))
        table = pa.concat_tables([gold.LATENCY.empty_table(), *found])
        write_rows(self._lake.gold("latency"), batch.batch_id, table)


NS_PER_SECOND: Final = 1_000_000_000


@final
@attrs.frozen
class BatchReport:
    """Result of a batch.

    Attributes:
        batch_id: Id of the batch.
        messages: Messages in bronze.
        bytes: Bytes of their payloads.
        gaps: Gaps found.
        decoded: Decoded messages, by kind.
        quarantined: Messages that could not be decoded.
        positions: Position in the lake by recording id, in bytes.
        seconds: Duration of the batch.
    """

    batch_id: int
    messages: int
    bytes: int
    gaps: int
    decoded: Mapping[str, int]
    quarantined: int
    positions: Mapping[int, int]
    seconds: float


@final
class PipelineJob:
    """Ingests an archive into a lake; its constructor checks all settings before Spark starts.

    Args:
        archive: Directory of the archive.
        lake: Lake to write to.
        settings: Settings of the pipeline.
        tell: Called with the report of every batch.

    Raises:
        ConfigurationError: There is no archive, or a decoder or a field is unknown.
    """

    def __init__(
        self,
        archive: Path,
        lake: Lake,
        settings: PipelineSettings,
        tell: Callable[[BatchReport], None],
    ) -> None:
        self._archive = archive
        self._lake = lake
        self._settings = settings
        self._tell = tell
        self._edges = Edges(lake)
        self._kinds = kinds_of(settings)
        self._options = ArchiveOptions.parse(source_options(archive, settings))
        self._clock = SystemClock()
        self.recordings()

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return the catalog entries of the recordings to read."""
        return read_recordings(open_directory(self._options), self._options)

    def all_recordings(self) -> dict[int, RecordingDescriptor]:
        """Return the catalog entries of all recordings.

        A repeated batch may hold rows of recordings that the settings selected only the first time.
        """
        everything = ArchiveOptions.parse({"path": str(self._archive)})
        return read_recordings(open_directory(everything), everything)

    def run(
        self,
        spark: SparkSession,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        tell_lag: Callable[[Lag], None] = lambda _: None,
    ) -> None:
        """Ingest what is there; with a trigger, continue until a stop is requested.

        Args:
            spark: The session.
            is_stopped: Polled for a stop request; the current batch is completed first.
            tell_lag: Called after every batch with how far the lake is behind.

        Raises:
            ConfigurationError: The lake belongs to another archive, has lost its checkpoint, has
                other columns, or another process writes to it.
            ArchiveError: The query failed.
        """
        begun = {"archive": str(self._archive.absolute()), "format": self._settings.format}
        # Readers of Parquet take the columns of a table from any of its files.
        begun |= {f"the columns of {kind.decoding.kind}": kind.columns for kind in self._kinds}
        with hold(self._lake.lock):
            self._lake.check_resumable(begun)
            for table in self._lake.tables():
                recover(table)
            checkpoint = self._lake.checkpoint
            ending = QueryStopper(is_stopped)
            process = ending.guarded(self.process)
            query = start_query(spark, self._archive, checkpoint, self._settings, process)
            follow(query, tell_lag, ending)
            last = last_committed(checkpoint)
            if last is not None:
                self._compact(spark, before=last + 1)

    def watermarks(self) -> list[Watermark]:
        """Return what may be purged from the archive: data that the lake and all others have read.

        Raises:
            ConfigurationError: A consumer is no checkpoint of a query on recordings.
        """
        others = [committed_offsets(Path(each)) for each in self._settings.consumers]
        consumers = [committed_offsets(self._lake.checkpoint), *others]
        return watermarks(self.recordings(), consumers, self._settings.purge_grace)

    def _compact(self, spark: SparkSession, *, before: int) -> None:
        if self._settings.format == "parquet":
            compact_lake(
                spark,
                self._lake,
                before=before,
                max_bytes=self._settings.max_file_bytes,
                count=self._settings.compact_batches,
            )

    def process(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch to every table.

        Args:
            frame: Rows of the source.
            batch_id: Id of the batch; the same id always has the same rows.
        """
        began_ns = self._clock.now_ns()
        # Spark begins a batch only after it has committed all before it, so those can be compacted.
        if batch_id and batch_id % self._settings.compact_batches == 0:
            self._compact(frame.sparkSession, before=batch_id)
        tables = Tables(frame.sparkSession, self._settings)
        tables.write(bronze(frame, batch_id), self._lake.bronze, batch_id)
        messages = tables.read_batch(self._lake.bronze, batch_id)
        recordings = self.all_recordings()
        lengths = {each.recording_id: each.term_length for each in recordings.values()}
        earlier = self._edges.before(batch_id)
        runs, gaps = gold.stitched(gold.summary(messages, lengths), earlier, lengths)
        if not runs:
            forget_batch(self._lake.bronze, batch_id)
            return
        seconds = gold.rates(messages)
        write_rows(self._lake.gold("rates_second"), batch_id, seconds)
        write_rows(self._lake.gold("rates_minute"), batch_id, gold.per_minute(seconds))
        batch = BronzeBatch(batch_id, messages, runs, earlier, recordings)
        step = DecodingStep(self._lake, self._settings, self._kinds, tables)
        counts, quarantined = step.run(batch)
        step.latencies(batch, counts)
        all_runs, all_gaps = list(runs), list(gaps)
        for more_runs, more_gaps in step.sequences(batch, counts):
            all_runs += more_runs
            all_gaps += more_gaps
        write_rows(self._lake.gold("gaps"), batch_id, gold.table_of(all_gaps, gold.GAPS))
        write_rows(self._lake.gold("runs"), batch_id, gold.table_of(all_runs, gold.RUNS))
        meant = self.recordings()
        write_rows(self._lake.gold("recordings"), 0, gold.recording_rows(meant.values()))
        self._edges.keep(batch_id, [*earlier, *all_runs], recordings)
        self._tell(
            BatchReport(
                batch_id=batch_id,
                messages=sum(run.messages for run in runs),
                bytes=sum(run.bytes for run in runs),
                gaps=len(all_gaps),
                decoded=counts,
                quarantined=quarantined,
                positions=batch.ends | {run.recording_id: run.end_position for run in runs},
                seconds=(self._clock.now_ns() - began_ns) / NS_PER_SECOND,
            )
        )
