"""Task of a batch: from recordings to data files and partial sums, by one look at each message.

A task runs in a Python worker of Spark. It gets plans, which are ranges of recordings, and gives
back results: the files that it has written, and sums. No message passes through Java.
"""

from __future__ import annotations

import pickle
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from aeron_async.clock import NS_PER_MS, NS_PER_US
from aeron_async.codecs.columns import Payloads
from aeron_async.protocol.units import INT64_MAX
from aeron_async.spark.batch_reader import SentToWorkers, settle
from aeron_async.spark.decoding import CodecDecoder
from aeron_async.spark.lake.files import OPEN_FILES, FileWriter, attempt, file_schema
from aeron_async.spark.lake.tables import BRONZE, QUARANTINE, silver
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.runs import MessageRows, RecordedGap, Run, Summariser
from aeron_async.spark.pipeline.settings import RECORDED_NS
from aeron_async.spark.pipeline.silver import BRONZE_SCHEMA, QUARANTINE_SCHEMA, STAMP
from aeron_async.spark.record_batches import in_nanoseconds
from aeron_async.spark.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.codecs.columns import Decoded, Flags
    from aeron_async.spark.lake.files import DataFile
    from aeron_async.spark.lake.places import LakePlace
    from aeron_async.spark.pipeline.settings import Latency, PipelineSettings
    from aeron_async.spark.pipeline.silver import MessageKind
    from aeron_async.spark.ranges import RecordingRange, ScanSettings
    from aeron_async.spark.record_batches import RowBatch

__all__ = ["RESULT", "BatchTask", "TaskResult", "run_plan"]

RESULT: Final = "result BINARY"
"""Columns of what a task gives back, as Spark's SQL declares them."""
US_PER_DAY: Final = 86_400_000_000
DAYS_MOST: Final = OPEN_FILES - 1
"""Upper limit on the days of a table in one plan, because each is a file. Whoever publishes chooses
the times of messages; those of further days go to the day on which their recording began."""


@final
@attrs.frozen
class BatchTask(SentToWorkers):
    """What every task of a batch does.

    Attributes:
        batch: Number of the batch.
        scan: How recordings are read.
        settings: Settings of the pipeline.
        kinds: Kinds of messages.
        folders: Where the files of each table go; tables that already have the batch are left out.
    """

    batch: int
    scan: ScanSettings
    settings: PipelineSettings
    kinds: tuple[MessageKind, ...]
    folders: Mapping[str, LakePlace]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result of each plan."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        for each in batches:
            for plan in each.column("plan").to_pylist():
                result = run_plan(self, pickle.loads(plan), partition)  # noqa: S301 - from our own reader, by Spark
                yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})
        settle()


@final
@attrs.frozen
class TaskResult:
    """What one attempt at a plan has done.

    Attributes:
        files: Files that were written, by table.
        counts: Rows of each table, also of those that already have the batch.
        runs: Runs of each part.
        gaps: Gaps inside them.
        sums: Rows of each of `gold.SUMMED`.
        term_lengths: Term lengths by recording id.
        steps: To how many seconds or minutes times were rounded, by table of sums.
    """

    files: dict[str, list[DataFile]]
    counts: dict[str, int]
    runs: list[Run]
    gaps: list[RecordedGap]
    sums: dict[str, pa.Table]
    term_lengths: dict[int, int]
    steps: dict[str, int]


def run_plan(task: BatchTask, parts: Sequence[RecordingRange], partition: int) -> TaskResult:
    """Write the files of some ranges of recordings, and sum them up."""
    writer = PlanWriter(task, attempt(task.batch, partition))
    try:
        for batch in Scanner(task.scan).rows(parts):
            writer.add(batch)
        return writer.result(parts)
    finally:
        writer.abandon()


@final
class PlanWriter:
    """Writes the messages of a plan to all tables.

    Args:
        task: What the task does.
        name: Beginning of the names of the files.
    """

    def __init__(self, task: BatchTask, name: str) -> None:
        self._task = task
        self._writers: dict[str, FileWriter] = {}
        schemas = {BRONZE: BRONZE_SCHEMA, QUARANTINE: QUARANTINE_SCHEMA}
        schemas |= {silver(kind.decoding.kind): kind.schema for kind in task.kinds}
        for table, folder in task.folders.items():
            schema = file_schema(schemas[table])
            most = task.settings.max_file_bytes
            self._writers[table] = FileWriter(folder, name, schema, max_bytes=most)
        self._counts: Counter[str] = Counter()
        self._sums = {
            name: gold.Sums(schema, gold.MOST_OF_A_PLAN) for name, schema in gold.SUMMED.items()
        }
        self._reasons: set[str] = set()
        self._days: dict[str, set[int]] = {table: set() for table in self._writers}
        self._part: RecordingRange | None = None
        self._summarisers: list[Summariser] = []
        self._runs: list[Run] = []
        self._gaps: list[RecordedGap] = []

    def add(self, batch: RowBatch) -> None:
        """Write some messages of one recording."""
        if batch.part is not self._part:
            self._begin(batch.part)
        messages = RecordedMessages(batch, self._task)
        part, rows = batch.part.descriptor, messages.rows
        self._summarisers[0].add(rows)
        if messages.is_timed:
            gold.add_rates(self._sums["rates_second"], part, rows)
        gold.add_lengths(self._sums["lengths"], part.stream_id, rows.lengths, messages.event_ns)
        if BRONZE in self._writers:
            columns = [messages.column(name) for name in self._writers[BRONZE].schema.names]
            self._write(BRONZE, columns, messages.event_ns, part.stream_id)
        self._counts[BRONZE] += batch.count
        numbered = iter(self._summarisers[1:])
        found = [self._decode(kind, messages, numbered) for kind in self._of(part.stream_id)]
        if any(each.errors.null_count < batch.count for each in found):
            self._put_aside(messages, found)

    def result(self, parts: Sequence[RecordingRange]) -> TaskResult:
        """Complete all files; return them with the sums."""
        self._close_runs()
        lengths = {part.descriptor.recording_id: part.descriptor.term_length for part in parts}
        # How far times are rounded is known when sums are tables.
        tables = {name: each.table() for name, each in self._sums.items()}
        return TaskResult(
            files={table: each.close() for table, each in self._writers.items()},
            counts=dict(self._counts),
            runs=self._runs,
            gaps=self._gaps,
            sums=tables,
            term_lengths=lengths,
            steps={name: each.step for name, each in self._sums.items()},
        )

    def abandon(self) -> None:
        """Remove the files that are not complete."""
        for each in self._writers.values():
            each.abandon()

    def _of(self, stream_id: int) -> list[MessageKind]:
        return [each for each in self._task.kinds if each.decoding.stream_id == stream_id]

    def _begin(self, part: RecordingRange) -> None:
        """Begin with a part: nothing is known of what lies between it and the one before."""
        self._close_runs()
        self._part = part
        names = [
            f"{kind.decoding.kind}.{each.field}"
            for kind in self._of(part.descriptor.stream_id)
            for each in self._task.settings.sequence
            if each.kind == kind.decoding.kind
        ]
        self._summarisers = [Summariser(part.descriptor, name) for name in ("", *names)]

    def _close_runs(self) -> None:
        for each in self._summarisers:
            each.close()
            self._runs += each.runs
            self._gaps += each.gaps

    def _write(
        self, table: str, columns: list[Any], event_ns: NDArray[np.int64], stream_id: int
    ) -> None:
        """Write rows to the files of their days."""
        if not len(event_ns):
            return
        days = self._admitted(self._days[table], event_ns // (NS_PER_US * US_PER_DAY))
        low, high = int(days.min()), int(days.max())
        if low == high:
            self._writers[table].write(columns, (low, stream_id))
            return
        for day in np.unique(days).tolist():
            chosen = pa.array(days == day)
            part = [column.filter(chosen) for column in columns]
            self._writers[table].write(part, (day, stream_id))

    def _admitted(self, known: set[int], days: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return days of which a table has few; see `DAYS_MOST`."""
        low, high = int(days.min()), int(days.max())
        if low == high and low in known:
            return days
        found = set(np.unique(days).tolist())
        known.update(sorted(found - known)[: DAYS_MOST - len(known)])
        if found <= known:
            return days
        assert self._part is not None
        began_day = began_ns(self._part.descriptor) // (NS_PER_US * US_PER_DAY)
        return np.where(np.isin(days, list(known)), days, began_day)

    def _decode(
        self, kind: MessageKind, messages: RecordedMessages, numbered: Iterator[Summariser]
    ) -> Decoded:
        """Write the messages of a kind; return what its decoder found."""
        decoded = messages.decoded(kind)
        chosen = messages.chosen(decoded)
        count = len(messages.rows) if chosen is None else int(np.count_nonzero(chosen))
        fields = zip((field.name for field in kind.decoder.fields), decoded.columns, strict=True)
        good = {name: kept(column, chosen) for name, column in fields}
        recorded_ns = messages.event_ns if chosen is None else messages.event_ns[chosen]
        event_ns = event_of(kind, good, recorded_ns)
        stream_id = messages.part.stream_id
        gold.add_decoded(self._sums["decoded"], kind.decoding.kind, stream_id, recorded_ns)
        table = silver(kind.decoding.kind)
        if table in self._writers and count:
            own = {**good, "event_ns": pa.array(event_ns), "event_time": stamps(event_ns)}
            columns = [
                own[name] if name in own else kept(messages.column(name), chosen)
                for name in self._writers[table].schema.names
            ]
            self._write(table, columns, event_ns, stream_id)
        self._counts[table] += count
        self._measure(kind, messages, good, chosen, event_ns)
        for each in self._task.settings.sequence:
            if each.kind == kind.decoding.kind:
                next(numbered).add(counted(messages.rows, chosen, good[each.field]))
        return decoded

    def _measure(
        self,
        kind: MessageKind,
        messages: RecordedMessages,
        good: Mapping[str, Any],
        chosen: Flags | None,
        event_ns: NDArray[np.int64],
    ) -> None:
        """Count the latencies of a kind."""
        for each in self._task.settings.latency:
            if each.kind != kind.decoding.kind:
                continue
            times = good
            if RECORDED_NS in {each.start, each.end}:
                times = {**good, RECORDED_NS: kept(messages.column(RECORDED_NS), chosen)}
            values, is_known = latencies(each, times)
            stream_id = messages.part.stream_id
            known, events = values[is_known], event_ns[is_known]
            gold.add_latencies(self._sums["latency"], each.name, stream_id, known, events)

    def _put_aside(self, messages: RecordedMessages, found: list[Decoded]) -> None:
        """Write messages that no decoder reads, with the first reason, to quarantine.

        A message that a decoder identifies as another kind is no error of that decoder.
        """
        reasons = reasons_of(found, len(messages.rows))
        wrong = reasons.is_valid().to_numpy(zero_copy_only=False)
        if not wrong.any():
            return
        self._counts[QUARANTINE] += int(np.count_nonzero(wrong))
        events, stream_id = messages.event_ns[wrong], messages.part.stream_id
        given = self._sums["decoded"], stream_id, kept(reasons, wrong), events, self._reasons
        gold.add_quarantined(*given)
        if QUARANTINE in self._writers:
            *names, _ = self._writers[QUARANTINE].schema.names
            columns = [*(messages.column(name) for name in names), reasons]
            self._write(QUARANTINE, [kept(each, wrong) for each in columns], events, stream_id)


@final
class RecordedMessages:
    """Some messages of one recording, whose columns are made when they are asked for.

    Attributes:
        part: Catalog entry of the recording.
        rows: What runs are made of.
        is_timed: Whether frames have times at all.
        event_ns: Recorded time of each message, or else when its recording began.
    """

    def __init__(self, batch: RowBatch, task: BatchTask) -> None:
        self._batch = batch
        self._task = task
        self._columns: dict[str, Any] = {}
        self.part = batch.part.descriptor
        self.is_timed: bool = task.scan.options.timestamp_from is not None
        is_timed = np.full(batch.count, self.is_timed)
        times = np.zeros(batch.count, np.int64)
        if self.is_timed:
            times, absent = batch.nanoseconds()
            np.logical_not(absent, out=is_timed)
        self.rows = MessageRows(
            sessions=self.column("session_id").to_numpy(),
            positions=self.column("position").to_numpy(),
            ends=self.column("end_position").to_numpy(),
            lengths=self.column("length").to_numpy(),
            times=times,
            is_timed=is_timed,
        )
        self.event_ns: NDArray[np.int64] = times
        if not is_timed.all():
            self.event_ns = np.where(is_timed, times, began_ns(self.part))

    def column(self, name: str) -> Any:
        """Return a column of bronze."""
        if name not in self._columns:
            self._columns[name] = self._made(name)
        return self._columns[name]

    def _made(self, name: str) -> Any:
        count = self._batch.count
        if name == "ingest_batch":
            return pa.repeat(pa.scalar(self._task.batch, pa.int64()), count)
        if name == "channel":
            places = pa.array(np.zeros(count, np.int32))
            return pa.DictionaryArray.from_arrays(places, [self.part.stripped_channel])
        if name in (RECORDED_NS, "timestamp") and self.is_timed:
            is_timed = self.rows.is_timed
            mask = None if is_timed.all() else ~is_timed
            if name == RECORDED_NS:
                return pa.array(self.rows.times, mask=mask)
            return pa.array(self.rows.times // NS_PER_US, mask=mask).cast(STAMP)
        return self._batch.column(name)

    @cached_property
    def _whole(self) -> Payloads:
        """Payloads in a memory of their own."""
        return Payloads.of_column(self.column("payload"))

    def decoded(self, kind: MessageKind) -> Decoded:
        """Return what the decoder of a kind makes of the payloads."""
        decoder = kind.decoder
        if not isinstance(decoder, CodecDecoder):
            return decoder.decode(self.column("payload"))
        if "payload" in self._columns:
            return decoder.decode_payloads(self._whole)
        return decoder.decode_payloads(self._batch.payloads(decoder.reach))

    def chosen(self, decoded: Decoded) -> Flags | None:
        """Return which messages a decoder reads; None for all."""
        found = None
        if decoded.others is not None and decoded.others.any():
            found = ~decoded.others
        if decoded.errors.null_count < len(decoded.errors):
            good = decoded.errors.is_null().to_numpy(zero_copy_only=False)
            found = good if found is None else found & good
        return found


def began_ns(recording: RecordingDescriptor) -> int:
    """Return when a recording began; the nearest time of 64 bits if its catalog is damaged."""
    most = INT64_MAX // NS_PER_MS
    return max(-most, min(recording.start_timestamp_ms, most)) * NS_PER_MS


def stamps(times_ns: NDArray[np.int64]) -> Any:
    """Return times as the tables have them, in microseconds."""
    return pa.array(times_ns // NS_PER_US).view(STAMP)


def kept(column: Any, chosen: Flags | None) -> Any:
    """Return the chosen rows of a column."""
    return column if chosen is None else column.filter(pa.array(chosen))


def numbers_of(column: Any) -> tuple[NDArray[np.int64], Flags]:
    """Return a column of integers, and which of them are null; zeros stand there."""
    absent = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0) if column.null_count else column
    return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), absent


def event_of(
    kind: MessageKind, columns: Mapping[str, Any], recorded_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the time of each message; that of its recording where its field has none."""
    if kind.event_time is None:
        return recorded_ns
    values, absent = numbers_of(columns[kind.event_time.field])
    times, is_none = in_nanoseconds(values, kind.event_time.unit_ns, absent)
    return np.where(is_none, recorded_ns, times)


def latencies(latency: Latency, columns: Mapping[str, Any]) -> tuple[NDArray[np.int64], Flags]:
    """Return latencies in nanoseconds, and which are known: not null, and within 64 bits."""
    ends = []
    for name in (latency.start, latency.end):
        values, absent = numbers_of(columns[name])
        unit_ns = 1 if name == RECORDED_NS else latency.unit_ns
        ends.append(in_nanoseconds(values, unit_ns, absent))
    (start, has_no_start), (end, has_no_end) = ends
    values = end - start
    is_over = ((end < 0) != (start < 0)) & ((values < 0) != (end < 0))
    return values, ~(has_no_start | has_no_end | is_over)


def counted(rows: MessageRows, chosen: Flags | None, column: Any) -> MessageRows:
    """Return the chosen messages whose number is not null, with it."""
    numbers, absent = numbers_of(column)
    if not absent.any():
        return rows.counted(slice(None) if chosen is None else chosen, numbers)
    places = np.arange(len(rows)) if chosen is None else np.flatnonzero(chosen)
    return rows.counted(places[~absent], numbers[~absent])


def reasons_of(found: Sequence[Decoded], count: int) -> Any:
    """Return why no decoder can read each message; null if one can, or if none claims it."""
    is_good = np.zeros(count, np.bool_)
    reasons = pa.nulls(count, pa.string())
    for each in found:
        others = np.zeros(count, np.bool_) if each.others is None else each.others
        errors = each.errors.is_valid().to_numpy(zero_copy_only=False)
        is_good |= ~errors & ~others
        own = pa.compute.if_else(pa.array(others), None, each.errors)
        reasons = pa.compute.coalesce(reasons, own)
    return pa.compute.if_else(pa.array(is_good), pa.scalar(None, pa.string()), reasons)
