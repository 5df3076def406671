"""The part of a batch that decodes: silver, quarantine, and what gold takes from silver."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

import attrs
import pyarrow as pa

from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.lake import forget_batch
from aeron_async.spark.pipeline.silver import decoded, silver, undecodable
from aeron_async.spark.pipeline.tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.pipeline.lake import Lake
    from aeron_async.spark.pipeline.runs import Gap, Run
    from aeron_async.spark.pipeline.settings import PipelineSettings
    from aeron_async.spark.pipeline.silver import Kind
    from aeron_async.spark.pipeline.tables import Tables

__all__ = ["Batch", "DecodingStep"]

PARTITIONS: Final = ("date", "stream_id")


@final
@attrs.frozen
class Batch:
    """A batch that is in bronze.

    Attributes:
        batch_id: Of the batch.
        messages: Its rows, as bronze has them.
        runs: Its stretches of positions.
        earlier: Runs of the batches before it.
        recordings: What the catalog says.
    """

    batch_id: int
    messages: DataFrame
    runs: Sequence[Run]
    earlier: Sequence[Run]
    recordings: Mapping[int, RecordingDescriptor]

    @property
    def term_lengths(self) -> dict[int, int]:
        """Return the length of terms, by recording id."""
        return {key: each.term_length for key, each in self.recordings.items()}

    @property
    def ends(self) -> dict[int, int]:
        """Return up to where recordings were ingested before."""
        found: dict[int, int] = {}
        for run in self.earlier:
            if not run.name:
                end = max(run.end_position, found.get(run.recording_id, 0))
                found[run.recording_id] = end
        return found

    @property
    def session_ends(self) -> dict[tuple[int, int], int]:
        """Return the same by recording id and session, for recordings that are in this batch."""
        read = {run.recording_id for run in self.runs}
        found: dict[tuple[int, int], int] = {}
        for run in self.earlier:
            if not run.name and run.recording_id in read:
                key = run.recording_id, run.session_id
                found[key] = max(run.end_position, found.get(key, 0))
        return found

    def bytes_of(self, stream_id: int) -> int:
        """Return the payload of a stream, in bytes."""
        return sum(run.bytes for run in self.runs if run.stream_id == stream_id)

    def has(self, stream_id: int) -> bool:
        """Return whether there is any message of a stream."""
        return any(run.stream_id == stream_id for run in self.runs)


@final
class DecodingStep:
    """Decodes batches.

    Args:
        lake: Where to.
        settings: Of the pipeline.
        kinds: Of messages.
        tables: That write silver.
    """

    def __init__(
        self, lake: Lake, settings: PipelineSettings, kinds: list[Kind], tables: Tables
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._kinds = kinds
        self._tables = tables

    def run(self, batch: Batch) -> tuple[dict[str, int], int]:
        """Write silver and quarantine; return how many messages of each kind, and how many none."""
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

    def _decode(self, kind: Kind, batch: Batch) -> tuple[int, int]:
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

    def _put_aside(self, batch: Batch, stream_ids: set[int]) -> int:
        """Write what cannot be decoded, and return how much that is."""
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
        self, batch: Batch, counts: Mapping[str, int]
    ) -> Iterator[tuple[list[Run], list[Gap]]]:
        """Yield runs and gaps of every number that counts messages."""
        for each in self._settings.sequence:
            if not counts[each.kind]:
                continue
            name = f"{each.kind}.{each.field}"
            rows = self._tables.read_batch(self._lake.silver(each.kind), batch.batch_id)
            found = gold.summary(rows, batch.term_lengths, name, each.field)
            earlier = [run for run in batch.earlier if run.name == name]
            yield gold.stitched(found, earlier, batch.term_lengths)

    def latencies(self, batch: Batch, counts: Mapping[str, int]) -> None:
        """Write how often each bin of every latency was met."""
        found = []
        for kind in (kind for kind, count in counts.items() if count):
            measured = [each for each in self._settings.latency if each.kind == kind]
            if measured:
                rows = self._tables.read_batch(self._lake.silver(kind), batch.batch_id)
                found.append(gold.latency_counts(rows, measured))
        table = pa.concat_tables([gold.LATENCY.empty_table(), *found])
        write_rows(self._lake.gold("latency"), batch.batch_id, table)
