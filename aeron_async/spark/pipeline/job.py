"""The job: batch after batch from an archive into bronze, silver and gold.

Whatever a batch writes replaces what an earlier attempt at the same batch has written, and depends
on nothing but that batch and those before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.clock import SystemClock
from aeron_async.spark.catalog_reading import open_directory, read_recordings
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.bronze import bronze, source_options
from aeron_async.spark.pipeline.compaction import compact_lake, recover
from aeron_async.spark.pipeline.decoding_step import Batch, DecodingStep
from aeron_async.spark.pipeline.edges import Edges
from aeron_async.spark.pipeline.lake import forget_batch
from aeron_async.spark.pipeline.lake_lock import hold
from aeron_async.spark.pipeline.query import Ending, follow, start_query
from aeron_async.spark.pipeline.silver import kinds_of
from aeron_async.spark.pipeline.tables import Tables, write_rows
from aeron_async.spark.pipeline.watermark import committed_offsets, last_committed, watermarks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.pipeline.lake import Lake
    from aeron_async.spark.pipeline.query import Lag
    from aeron_async.spark.pipeline.settings import PipelineSettings
    from aeron_async.spark.pipeline.watermark import Watermark

__all__ = ["BatchReport", "PipelineJob"]

NS_PER_SECOND: Final = 1_000_000_000


@final
@attrs.frozen
class BatchReport:
    """What a batch has done.

    Attributes:
        batch_id: Of the batch.
        messages: In bronze.
        bytes: Of their payloads.
        gaps: That were found.
        decoded: Messages, by kind.
        quarantined: Messages that could not be decoded.
        positions: Up to where each recording is in the lake now, in bytes.
        seconds: That it took.
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
    """Brings an archive into a lake; checks all it was told before Spark is started.

    Args:
        archive: Directory of the archive.
        lake: Where to.
        settings: What it was told.
        tell: Called with the report of every batch.

    Raises:
        ConfigurationError: There is no archive, or a decoder or field is none.
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
        """Return what the catalog knows of the recordings that are read."""
        return read_recordings(open_directory(self._options), self._options)

    def all_recordings(self) -> dict[int, RecordingDescriptor]:
        """Return what the catalog knows of every recording.

        A batch that is done again has rows of those that settings have meant the first time.
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
        """Ingest what there is, and with a trigger what there will be, until somebody stops it.

        Args:
            spark: The session.
            is_stopped: Asked now and then; the batch that is under way is finished.
            tell_lag: Called after every batch with how far the lake is behind.

        Raises:
            ConfigurationError: The lake is another archive's, has lost its checkpoint, has other
                columns, or another process writes it.
            ArchiveError: The query failed.
        """
        begun = {"archive": str(self._archive.absolute()), "format": self._settings.format}
        # Readers of Parquet take a table's columns from any of its files.
        begun |= {f"the columns of {kind.decoding.kind}": kind.columns for kind in self._kinds}
        with hold(self._lake.lock):
            self._lake.check_resumable(begun)
            for table in self._lake.tables():
                recover(table)
            checkpoint = self._lake.checkpoint
            ending = Ending(is_stopped)
            process = ending.guarded(self.process)
            query = start_query(spark, self._archive, checkpoint, self._settings, process)
            follow(query, tell_lag, ending)
            last = last_committed(checkpoint)
            if last is not None:
                self._compact(spark, before=last + 1)

    def watermarks(self) -> list[Watermark]:
        """Return what may be purged of the archive: what the lake and all others have read.

        Raises:
            ConfigurationError: A consumer is none.
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
        """Bring one batch into every table.

        Args:
            frame: Rows of the source.
            batch_id: Of the batch; the same rows for the same id.
        """
        began_ns = self._clock.now_ns()
        # Batches before this one are done for good; how else would Spark have come so far?
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
        batch = Batch(batch_id, messages, runs, earlier, recordings)
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
