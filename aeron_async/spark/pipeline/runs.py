"""Runs of a recording without gaps, and the gaps between them.

A `Summariser` reads part of a recording in order and sums it up in a few rows: the runs, and the
gaps inside them. Sorted by position, the runs of all parts are then stitched together, whatever the
order in which the parts were read. A run is one of positions, or of a number that counts messages.

A `Summariser` runs in Spark's workers, where the rows are. Rows with the same origin are adjacent
in their recording; nothing is known about rows of different origins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "MOST_MISSING",
    "SUMMARY",
    "GapKind",
    "RecordedGap",
    "Run",
    "Summariser",
    "gaps_of",
    "is_term_padding",
    "position_gap",
    "runs_of",
    "stitch",
]

POSITIONS: Final = ""
"""Name of runs of positions."""
MOST_MISSING: Final = (1 << 63) - 1
"""Largest count of missing numbers in a gap; a larger one is shown as this."""


class GapKind:
    """Kinds in the table of gaps."""

    SEQUENCE: Final = "sequence"
    """Numbers that were not recorded: `missing` of them."""
    BACKWARDS: Final = "backwards"
    """A number that is not larger than the one before: a duplicate, a reordering, or a restart."""
    PADDING: Final = "padding"
    """Padding in mid term: data that was lost, or an aborted claim; `missing` bytes."""
    MISSING: Final = "missing"
    """A jump of a term or more; `missing` bytes."""


@final
@attrs.frozen(kw_only=True)
class Run:
    """A run of messages of one recording.

    Attributes:
        recording_id: The recording.
        session_id: Session of the publication.
        stream_id: The stream.
        name: Name of the number that counts messages, as `KIND.FIELD`; "" for positions.
        first_position: Where the first message begins.
        end_position: End of the last message.
        messages: Number of messages.
        bytes: Bytes of their payloads.
        first_ns: Time of the first message that has one; None if none has.
        last_ns: Time of the last message that has one; None if none has.
        first_number: Number of the first message; None for positions.
        last_number: Number of the last message; None for positions.
        gaps: Number of gaps inside, including those that were too many to be listed.
    """

    recording_id: int
    session_id: int
    stream_id: int
    name: str = POSITIONS
    first_position: int
    end_position: int
    messages: int
    bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    first_number: int | None = None
    last_number: int | None = None
    gaps: int = 0


@final
@attrs.frozen(kw_only=True)
class RecordedGap:
    """A gap in a recording.

    Attributes:
        kind: See `GapKind`.
        recording_id: The recording.
        stream_id: The stream.
        name: Name of the run, as in `Run`.
        position: End of the message before the gap.
        end_position: Where the message after the gap begins.
        missing: Numbers or bytes, depending on the kind.
        before_ns: Time of the message before, if it has one.
        after_ns: Time of the message after, if it has one.
    """

    kind: str
    recording_id: int
    stream_id: int
    name: str = POSITIONS
    position: int
    end_position: int
    missing: int
    before_ns: int | None = None
    after_ns: int | None = None


def is_term_padding(position: int, end_position: int, term_length: int) -> bool:
    """Return whether a gap in positions is the padding at the end of a term."""
    return end_position & (term_length - 1) == 0 and end_position - position < term_length


def position_gap(position: int, end_position: int, term_length: int) -> str | None:
    """Return the kind of the gap between two messages; None if there is none."""
    if end_position <= position or is_term_padding(position, end_position, term_length):
        return None
    return GapKind.PADDING if end_position - position < term_length else GapKind.MISSING


def stitch(
    runs: Iterable[Run], term_lengths: Mapping[int, int]
) -> tuple[dict[tuple[int, str], Run], list[RecordedGap]]:
    """Join runs to one for each recording and name; return these and the gaps between them.

    Args:
        runs: Runs in any order.
        term_lengths: Term lengths in bytes, by recording id.
    """
    whole: dict[tuple[int, str], Run] = {}
    gaps = []
    for run in sorted(runs, key=lambda each: (each.first_position, each.end_position)):
        key = run.recording_id, run.name
        before = whole.get(key)
        if before is None:
            whole[key] = run
            continue
        gap = gap_between(before, run, term_lengths[run.recording_id])
        if gap is not None:
            gaps.append(gap)
        whole[key] = joined(before, run, gaps=0 if gap is None else 1)
    return whole, gaps


def gap_between(before: Run, after: Run, term_length: int) -> RecordedGap | None:
    """Return the gap between two runs; None if there is none."""
    kind: str | None
    if after.first_number is None or before.last_number is None:
        kind = position_gap(before.end_position, after.first_position, term_length)
        missing = after.first_position - before.end_position
    else:
        missing = after.first_number - before.last_number - 1
        # Columns have 64 bits, and the difference of two numbers may have more.
        missing = max(min(missing, MOST_MISSING), -MOST_MISSING)
        kind = GapKind.SEQUENCE if missing > 0 else GapKind.BACKWARDS if missing < 0 else None
    if kind is None:
        return None
    return RecordedGap(
        kind=kind,
        recording_id=after.recording_id,
        stream_id=after.stream_id,
        name=after.name,
        position=before.end_position,
        end_position=after.first_position,
        missing=missing,
        before_ns=before.last_ns,
        after_ns=after.first_ns,
    )


def joined(before: Run, after: Run, *, gaps: int) -> Run:
    """Return two runs as one; `after` has the session that extended the recording."""
    last = after if after.end_position >= before.end_position else before
    return attrs.evolve(
        after,
        first_position=before.first_position,
        end_position=last.end_position,
        messages=before.messages + after.messages,
        bytes=before.bytes + after.bytes,
        first_ns=after.first_ns if before.first_ns is None else before.first_ns,
        last_ns=before.last_ns if after.last_ns is None else after.last_ns,
        first_number=before.first_number,
        last_number=last.last_number,
        gaps=before.gaps + after.gaps + gaps,
    )


RUN: Final = "run"
LISTED_GAPS: Final = 1_000
"""Upper limit on the gaps that one partition lists; more are only counted."""
SUMMARY: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("recording_id", pa.int64()),
        ("session_id", pa.int32()),
        ("stream_id", pa.int32()),
        ("name", pa.string()),
        ("first_position", pa.int64()),
        ("end_position", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("first_number", pa.int64()),
        ("last_number", pa.int64()),
        ("gaps", pa.int64()),
        ("missing", pa.int64()),
    ]
)
"""Columns of runs and gaps.

A run has all but `missing`. The positions and times of a gap are those of its two ends.
"""
RUN_FIELDS: Final = tuple(field.name for field in attrs.fields(Run))


@final
@attrs.define
class Edge:
    """The last row of the batch before."""

    key: tuple[int, int, int]
    end_position: int
    number: int
    time_ns: int | None


@final
class Summariser:
    """Sums up one partition.

    Args:
        term_lengths: Term lengths in bytes, by recording id.
        name: Name of the number that counts messages; "" for runs of positions.
    """

    def __init__(self, term_lengths: Mapping[int, int], name: str = "") -> None:
        self._term_lengths = term_lengths
        self._name = name
        self._edge: Edge | None = None
        self._open: dict[str, Any] = {}
        self._rows: list[dict[str, Any]] = []
        self._listed = 0

    def summarise(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `SUMMARY`.

        Args:
            batches: Batches in order, with recording_id, session_id, stream_id, origin, position,
                end_position, length, timestamp_ns, and number unless for positions.
        """
        for batch in batches:
            if batch.num_rows:
                self._take(batch)
            if self._rows:
                yield self._flush()
        if self._open:
            self._close()
            yield self._flush()

    def _flush(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=SUMMARY)

    def _take(self, batch: pa.RecordBatch) -> None:
        columns = {
            name: batch.column(name).to_numpy(zero_copy_only=False)
            for name in ("recording_id", "session_id", "origin", "position", "end_position")
        }
        numbers = batch.column("number") if self._name else batch.column("position")
        columns["number"] = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
        is_first, holes = self._compared(columns)
        is_gap = self._gap_flags(columns, is_first, holes)
        starts = np.flatnonzero(is_first)
        if not is_first[0]:
            starts = np.concatenate([[0], starts])
        ends = np.append(starts[1:], batch.num_rows)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if is_first[start]:
                self._close()
            self._extend(batch, columns, is_gap, start, end)

    def _compared(self, columns: dict[str, Any]) -> tuple[Any, Any]:
        """Return which rows begin a run, and the distance of each from the row before."""
        edge = self._edge
        key = np.stack([columns[name] for name in ("recording_id", "session_id", "origin")])
        is_first = np.ones(key.shape[1], np.bool_)
        is_first[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        before_end = np.empty(key.shape[1], np.int64)
        before_end[1:] = columns["end_position"][:-1]
        before_end[0] = columns["position"][0]
        if edge is not None and edge.key == tuple(key[:, 0].tolist()):
            is_first[0] = False
            before_end[0] = edge.end_position
        holes = columns["position"] - before_end
        is_first |= holes < 0
        return is_first, holes

    def _gap_flags(self, columns: dict[str, Any], is_first: Any, holes: Any) -> Any:
        """Return which rows have a gap before them."""
        if self._name:
            numbers = columns["number"]
            before = np.empty_like(numbers)
            before[1:] = numbers[:-1]
            before[0] = self._edge.number if self._edge is not None else 0
            missing = numbers - before - 1
            is_wrapped = (missing < 0) == (numbers > before)
            most = np.where(numbers > before, MOST_MISSING, -MOST_MISSING)
            columns["missing"] = np.where(is_wrapped, most, missing)
            return ~is_first & (columns["missing"] != 0)
        columns["missing"] = holes
        flags = ~is_first & (holes > 0)
        for row in np.flatnonzero(flags).tolist():
            flags[row] = self._position_gap(columns, row) is not None
        return flags

    def _position_gap(self, columns: dict[str, Any], row: int) -> str | None:
        end = int(columns["position"][row])
        term_length = self._term_lengths[int(columns["recording_id"][row])]
        return position_gap(end - int(columns["missing"][row]), end, term_length)

    def _extend(
        self, batch: pa.RecordBatch, columns: dict[str, Any], is_gap: Any, start: int, end: int
    ) -> None:
        """Add rows to the current run, and list the gaps among them."""
        part = batch.slice(start, end - start)
        times = part.column("timestamp_ns").drop_null()[:1].to_pylist()
        run = self._open
        if not run:
            run |= {
                "kind": RUN,
                "recording_id": int(columns["recording_id"][start]),
                "session_id": int(columns["session_id"][start]),
                "stream_id": part.column("stream_id")[0].as_py(),
                "name": self._name,
                "first_position": int(columns["position"][start]),
                "messages": 0,
                "bytes": 0,
                "first_ns": None,
                "last_ns": None,
                "first_number": int(columns["number"][start]) if self._name else None,
                "gaps": 0,
            }
        gaps = np.flatnonzero(is_gap[start:end]) + start
        for row in gaps[: max(LISTED_GAPS - self._listed, 0)].tolist():
            self._list(batch, columns, row)
        run["messages"] += end - start
        run["bytes"] += part.column("length").to_numpy(zero_copy_only=False).sum(dtype=np.int64)
        run["gaps"] += len(gaps)
        run["end_position"] = int(columns["end_position"][end - 1])
        if self._name:
            run["last_number"] = int(columns["number"][end - 1])
        if times:
            run["first_ns"] = times[0] if run["first_ns"] is None else run["first_ns"]
            run["last_ns"] = part.column("timestamp_ns").drop_null()[-1].as_py()
        self._edge = Edge(
            key=(
                int(columns["recording_id"][end - 1]),
                int(columns["session_id"][end - 1]),
                int(columns["origin"][end - 1]),
            ),
            end_position=run["end_position"],
            number=int(columns["number"][end - 1]),
            time_ns=batch.column("timestamp_ns")[end - 1].as_py(),
        )

    def _list(self, batch: pa.RecordBatch, columns: dict[str, Any], row: int) -> None:
        """List the gap before a row."""
        self._listed += 1
        missing = int(columns["missing"][row])
        if self._name:
            kind = GapKind.SEQUENCE if missing > 0 else GapKind.BACKWARDS
        else:
            kind = self._position_gap(columns, row) or GapKind.PADDING
        edge = self._edge
        if row == 0:
            assert edge is not None
            before, position = edge.time_ns, edge.end_position
        else:
            before = batch.column("timestamp_ns")[row - 1].as_py()
            position = int(columns["end_position"][row - 1])
        self._rows.append(
            {
                "kind": kind,
                "recording_id": int(columns["recording_id"][row]),
                "stream_id": batch.column("stream_id")[row].as_py(),
                "name": self._name,
                "first_position": position,
                "end_position": int(columns["position"][row]),
                "missing": missing,
                "first_ns": before,
                "last_ns": batch.column("timestamp_ns")[row].as_py(),
            }
        )

    def _close(self) -> None:
        if self._open:
            self._open["bytes"] = int(self._open["bytes"])
            self._rows.append(self._open)
            self._open = {}


def runs_of(summary: pa.Table) -> list[Run]:
    """Return the runs among rows of `SUMMARY`."""
    rows = summary.select([*RUN_FIELDS, "kind"]).to_pylist()
    return [Run(**{name: row[name] for name in RUN_FIELDS}) for row in rows if row["kind"] == RUN]


def gaps_of(summary: pa.Table) -> list[RecordedGap]:
    """Return the gaps among rows of `SUMMARY`."""
    return [
        RecordedGap(
            kind=row["kind"],
            recording_id=row["recording_id"],
            stream_id=row["stream_id"],
            name=row["name"],
            position=row["first_position"],
            end_position=row["end_position"],
            missing=row["missing"],
            before_ns=row["first_ns"],
            after_ns=row["last_ns"],
        )
        for row in summary.to_pylist()
        if row["kind"] != RUN
    ]
