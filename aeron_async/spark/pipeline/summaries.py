"""Sums up rows that come in order: a row for each stretch, and one for each gap inside.

This runs where the rows are, in Spark's workers; see `runs` for what becomes of it. Rows of one
origin lie beside each other in their recording; between two origins nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.spark.pipeline.runs import MOST_MISSING, Gap, GapKind, Run, position_gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["SUMMARY", "Summariser", "gaps_of", "runs_of"]

RUN: Final = "run"
LISTED_GAPS: Final = 1_000
"""Of one partition; more are only counted."""
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
"""A run has all but `missing`; of a gap, the positions are where it lies, the times around it."""
RUN_FIELDS: Final = tuple(field.name for field in attrs.fields(Run))


@final
@attrs.define
class Edge:
    """The last row that was seen."""

    key: tuple[int, int, int]
    end_position: int
    number: int
    time_ns: int | None


@final
class Summariser:
    """Sums up one partition.

    Args:
        term_lengths: By recording id, in bytes.
        name: Of the number that counts messages; "" for runs of positions.
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
            batches: With recording_id, session_id, stream_id, origin, position, end_position,
                length, timestamp_ns, and number where there is one; in order.
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
        """Return which rows begin a run, and how far each is behind the row before."""
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
        """Return before which rows something is missing."""
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
        """Take the rows of one run, and list what is missing between them."""
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
        """Note what is missing before a row."""
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


def gaps_of(summary: pa.Table) -> list[Gap]:
    """Return the gaps among rows of `SUMMARY`."""
    return [
        Gap(
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
