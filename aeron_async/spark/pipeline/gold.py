"""Gold tables: what a batch has found, in sums by second or minute; those of batches add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.clock import NS_PER_SECOND
from aeron_async.spark.pipeline.histogram import NEGATIVE, bins_of
from aeron_async.spark.pipeline.runs import RecordedGap, Run, gap_between, stitch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.pipeline.runs import MessageRows

__all__ = [
    "DECODED",
    "GAPS",
    "LATENCY",
    "LENGTHS",
    "MOST_OF_A_PLAN",
    "OTHER_REASONS",
    "RATES",
    "RATES_MINUTE",
    "RECORDINGS",
    "RUNS",
    "SUMMED",
    "Sums",
    "add_decoded",
    "add_latencies",
    "add_lengths",
    "add_quarantined",
    "add_rates",
    "per_minute",
    "recording_rows",
    "stitched",
    "table_of",
]

SECONDS_PER_MINUTE: Final = 60
MOST_PARTS: Final = 64 << 10
"""Rows of sums after which they are added up."""
MOST_OF_A_PLAN: Final = 128 << 10
"""Upper limit on the rows of sums that a plan makes of a table, because the driver holds those of
all plans of a batch. Whoever publishes chooses times, and with them how many rows there are."""
LONGEST_STEP: Final = 1 << 36
"""In seconds more than all times that there are."""
TIMES: Final = ("second", "minute")
BINS: Final = 1 << 13
"""More than there are bins of latencies."""
FEW_BINS: Final = 1 << 20
MOST_REASONS: Final = 64
"""Upper limit on the different reasons that a plan tells; it counts the others as one."""
REASON_LENGTH: Final = 200
"""Longest reason, in characters."""
OTHER_REASONS: Final = "other reasons"
KEYS: Final = ("recording_id", "session_id", "stream_id")
INTEGERS: Final = {"recording_id": pa.int64(), "session_id": pa.int32(), "stream_id": pa.int32()}


def schema_of(kind: type) -> pa.Schema:
    """Return the columns of an attrs class whose fields are integers and texts."""
    return pa.schema(
        [
            (
                field.name,
                INTEGERS.get(field.name, pa.string() if field.type == "str" else pa.int64()),
            )
            for field in attrs.fields(kind)
        ]
    )


RUNS: Final = schema_of(Run)
GAPS: Final = schema_of(RecordedGap)
RATES: Final = pa.schema(
    [*INTEGERS.items(), ("second", pa.int64()), ("messages", pa.int64()), ("bytes", pa.int64())]
)
RATES_MINUTE: Final = pa.schema(
    [*INTEGERS.items(), ("minute", pa.int64()), ("messages", pa.int64()), ("bytes", pa.int64())]
)
LATENCY: Final = pa.schema(
    [
        ("name", pa.string()),
        ("stream_id", pa.int32()),
        ("minute", pa.int64()),
        ("bin", pa.int64()),
        ("count", pa.int64()),
    ]
)
LENGTHS: Final = pa.schema(
    [
        ("stream_id", pa.int32()),
        ("minute", pa.int64()),
        ("bin", pa.int64()),
        ("count", pa.int64()),
    ]
)
DECODED: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("stream_id", pa.int32()),
        ("minute", pa.int64()),
        ("messages", pa.int64()),
    ]
)
"""A row has the kind of decoded messages, or else the reason why messages are in quarantine."""
SUMMED: Final = {
    "rates_second": RATES,
    "latency": LATENCY,
    "lengths": LENGTHS,
    "decoded": DECODED,
}
"""Tables whose rows are sums that tasks make."""
ADDED: Final = ("messages", "bytes", "count")
"""Columns that are added up; the others say of what."""
RECORDINGS: Final = pa.schema(
    [
        *INTEGERS.items(),
        ("channel", pa.string()),
        ("source_identity", pa.string()),
        ("start_position", pa.int64()),
        ("stop_position", pa.int64()),
        ("start_timestamp_ms", pa.int64()),
        ("stop_timestamp_ms", pa.int64()),
        ("term_length", pa.int64()),
        ("segment_length", pa.int64()),
    ]
)


def table_of(rows: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Return attrs instances as a table."""
    return pa.Table.from_pylist(
        [{name: getattr(row, name) for name in schema.names} for row in rows], schema=schema
    )


def recording_rows(recordings: Iterable[RecordingDescriptor]) -> pa.Table:
    """Return the catalog entries of recordings as a table."""
    return pa.Table.from_pylist(
        [
            {
                name: each.stripped_channel if name == "channel" else getattr(each, name)
                for name in RECORDINGS.names
            }
            for each in recordings
        ],
        schema=RECORDINGS,
    )


@final
class Sums:
    """Partial sums of a table, which are added up when they have become many.

    Args:
        schema: Columns of the table, one of which is a time; see `ADDED`.
        most: Upper limit on its rows; None for none. If there are more, times are rounded down to
            longer steps. Sums stay exact.

    Attributes:
        step: To how many of its units times were rounded; 1 for none.
    """

    def __init__(self, schema: pa.Schema, most: int | None = None) -> None:
        self._schema = schema
        self._limit = most
        self._time = next(place for place, name in enumerate(schema.names) if name in TIMES)
        self.step = 1
        self._keys = [name for name in schema.names if name not in ADDED]
        self._parts: list[pa.Table] = []
        self._count = 0
        self._most = MOST_PARTS

    def add(self, columns: Iterable[Any]) -> None:
        """Add rows; a column is an array, or one value for all rows."""
        given = list(columns)
        count = next(len(each) for each in given if isinstance(each, np.ndarray))
        arrays = [
            pa.array(each).cast(field.type)
            if isinstance(each, np.ndarray)
            else pa.repeat(pa.scalar(each, field.type), count)
            for each, field in zip(given, self._schema, strict=True)
        ]
        self.add_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def add_table(self, table: pa.Table) -> None:
        """Add rows that may be sums already."""
        self._parts.append(table)
        self._count += table.num_rows
        if self._count > self._most:
            self._parts = [self.table()]
            self._count = self._parts[0].num_rows
            # If many rows stay, the next time is when there are twice as many.
            self._most = max(MOST_PARTS, 2 * self._count)

    def table(self) -> pa.Table:
        """Return the sums."""
        found = self._added_up()
        while self._limit is not None and self._limit < len(found) and self.step < LONGEST_STEP:
            self.step *= 2
            self._parts = [found]
            found = self._added_up()
        return found

    def _added_up(self) -> pa.Table:
        whole = pa.concat_tables([self._schema.empty_table(), *self._parts])
        if self.step > 1:
            times = whole.column(self._time).to_numpy() // self.step * self.step
            whole = whole.set_column(self._time, self._schema.field(self._time), pa.array(times))
        names = [name for name in self._schema.names if name in ADDED]
        sums = whole.group_by(self._keys, use_threads=False).aggregate(
            [(name, "sum") for name in names]
        )
        columns = [*self._keys, *(f"{name}_sum" for name in names)]
        found = sums.select(columns).rename_columns(self._schema.names).cast(self._schema)
        # Its chunks are slices of the same memory, of which each would be sent whole.
        return found.combine_chunks()


def add_rates(sums: Sums, recording: RecordingDescriptor, rows: MessageRows) -> None:
    """Add messages to rates; those without a time are left out."""
    chosen = slice(None) if rows.is_timed.all() else rows.is_timed
    seconds, sessions = rows.times[chosen] // NS_PER_SECOND, rows.sessions[chosen]
    if not len(seconds):
        return
    # Neighbours mostly have the same second, so that few rows are left to be grouped.
    is_first = np.ones(len(seconds), np.bool_)
    is_first[1:] = (seconds[1:] != seconds[:-1]) | (sessions[1:] != sessions[:-1])
    starts = np.flatnonzero(is_first)
    messages = np.diff(np.append(starts, len(seconds)))
    lengths = np.add.reduceat(rows.lengths[chosen], starts, dtype=np.int64)
    keys = (recording.recording_id, sessions[starts], recording.stream_id, seconds[starts])
    sums.add([*keys, messages, lengths])


def add_latencies(
    sums: Sums, name: str, stream_id: int, values: NDArray[Any], event_ns: NDArray[Any]
) -> None:
    """Add latencies.

    Args:
        sums: Where to add them.
        name: Name of the latency.
        stream_id: Stream of the messages.
        values: Latencies in nanoseconds.
        event_ns: Time of each message.
    """
    if not len(values):
        return
    codes, counts = counted(minutes_of(event_ns) * BINS + bins_of(values) - NEGATIVE)
    sums.add([name, stream_id, codes // BINS, codes % BINS + NEGATIVE, counts])


def add_lengths(
    sums: Sums, stream_id: int, lengths: NDArray[Any], event_ns: NDArray[np.int64]
) -> None:
    """Add lengths of messages in bytes, with the time of each."""
    if not len(lengths):
        return
    # Most lengths occur many times, so that few are left to be put into bins.
    span = int(lengths.max()) + 1
    codes, counts = counted(minutes_of(event_ns) * span + lengths)
    sums.add([stream_id, codes // span, bins_of(codes % span), counts])


def add_decoded(sums: Sums, kind: str, stream_id: int, event_ns: NDArray[np.int64]) -> None:
    """Add decoded messages, with the time of each."""
    if len(event_ns):
        minutes, counts = counted(minutes_of(event_ns))
        sums.add([kind, "", stream_id, minutes, counts])


def add_quarantined(
    sums: Sums, stream_id: int, reasons: Any, event_ns: NDArray[np.int64], known: set[str]
) -> None:
    """Add messages in quarantine.

    Args:
        sums: Where to add them.
        stream_id: Stream of the messages.
        reasons: Why each is there; foreign text may be a part of it.
        event_ns: Time of each message.
        known: Reasons that were told so far, to which new ones are added while they are few.
    """
    shown = pc.utf8_slice_codeunits(reasons, 0, REASON_LENGTH)
    for each in pc.unique(shown).to_pylist():
        if len(known) < MOST_REASONS:
            known.add(each)
    is_known = pc.is_in(shown, pa.array(sorted(known), pa.string()))
    columns = ["", pc.if_else(is_known, shown, OTHER_REASONS), stream_id, minutes_of(event_ns), 1]
    arrays = [
        pa.array(each) if isinstance(each, pa.Array | np.ndarray) else pa.repeat(each, len(shown))
        for each in columns
    ]
    sums.add_table(pa.Table.from_arrays(arrays, names=DECODED.names).cast(DECODED))


def minutes_of(event_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the minute of each time, counted from 1970."""
    minute_ns = SECONDS_PER_MINUTE * NS_PER_SECOND
    low, high = (int(each) // minute_ns for each in (event_ns.min(), event_ns.max()))
    if low == high:
        # Mostly so, and five times faster than divisions.
        return np.full(len(event_ns), low)
    found: NDArray[np.int64] = event_ns // minute_ns
    return found


def counted(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which codes there are, in order, and how many of each."""
    low, high = int(codes.min()), int(codes.max())
    if low == high:
        return codes[:1], np.array([len(codes)])
    if high - low >= FEW_BINS:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes - low)
    found = np.flatnonzero(counts)
    return found + low, counts[found]


def stitched(
    found: Iterable[Run], earlier: Iterable[Run], term_lengths: Mapping[int, int]
) -> tuple[list[Run], list[RecordedGap]]:
    """Return the joined runs of a batch, and the gaps between runs, that to the batch before too.

    A run counts the gap before it, so that gaps of runs add up to all gaps.

    Args:
        found: Runs of parts, in any order.
        earlier: The last run of each recording and name before this batch.
        term_lengths: Term lengths by recording id.
    """
    runs, gaps = stitch(found, term_lengths)
    between = []
    for before in earlier:
        run = runs.get((before.recording_id, before.name))
        if run is None:
            continue
        gap = gap_between(before, run, term_lengths[run.recording_id])
        if gap is not None:
            between.append(gap)
            runs[run.recording_id, run.name] = attrs.evolve(run, gaps=run.gaps + 1)
    return list(runs.values()), [*gaps, *between]


def per_minute(seconds: pa.Table) -> pa.Table:
    """Return messages and bytes in each minute."""
    minutes = pa.array(seconds.column("second").to_numpy() // SECONDS_PER_MINUTE)
    sums = Sums(RATES_MINUTE)
    columns = [*(seconds.column(name) for name in KEYS), minutes]
    columns += [seconds.column(name) for name in ("messages", "bytes")]
    sums.add_table(pa.Table.from_arrays(columns, schema=RATES_MINUTE))
    return sums.table()
