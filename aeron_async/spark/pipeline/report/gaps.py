"""Gaps of a report: sums by kind, marks of a timeline, and a few of them one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.clock import NS_PER_SECOND
from aeron_async.spark.lake import tables
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.report.reading import Fold
from aeron_async.spark.pipeline.runs import RecordedGap

if TYPE_CHECKING:
    from aeron_async.spark.pipeline.report.reading import ReportRange, TableReader
    from aeron_async.spark.pipeline.report.steps import Steps

__all__ = ["LISTED_GAPS", "GapSummary", "Gaps", "gaps_of"]

LISTED_GAPS: Final = 200
DRAWN_GAPS: Final = 100
"""Upper limit on the gaps that are drawn as long as they were."""


@attrs.frozen
class GapSummary:
    """Gaps of one kind and stream, found by positions or by one number.

    Attributes:
        kind: See `GapKind`.
        stream_id: The stream.
        name: Name of the number; empty for positions.
        count: Number of gaps.
        missing: Numbers or bytes that are missing or were repeated, of all of them.
        largest: The same of the largest gap.
        first_ns: Time of the first one; None if it is not known.
        last_ns: Time of the last one.
    """

    kind: str
    stream_id: int
    name: str
    count: int
    missing: float
    largest: int
    first_ns: int | None
    last_ns: int | None


@attrs.frozen
class Gaps:
    """Gaps of the range that are listed.

    Attributes:
        listed: Number of gaps by recording.
        summaries: By kind, stream and name.
        marks: Number of gaps by recording, kind and step, those with a time.
        first: The first ones, in order of time; those without a time come last.
        longest: Those that lasted longest, if they lasted longer than a step.
    """

    listed: Counter[int]
    summaries: list[GapSummary]
    marks: dict[tuple[int, str, int], int]
    first: list[RecordedGap]
    longest: list[RecordedGap]


def gaps_of(reader: TableReader, shown: ReportRange, steps: Steps | None) -> Gaps:
    """Return the listed gaps of the range."""
    sums = {"count": "sum"}
    how = {"missing": "sum", "largest": "max", "first_ns": "min", "last_ns": "max"}
    of_kind = Fold(["kind", "stream_id", "name"], sums | how)
    marks, listed = Fold(["recording_id", "kind", "place"], sums), Fold(["recording_id"], sums)
    first, longest = gold.GAPS.empty_table(), gold.GAPS.empty_table()
    bounds = shown.bounds("before_ns", "after_ns", 1)
    for part in reader.read(tables.gold("gaps"), gold.GAPS, bounds):
        missing = pc.abs(part.column("missing"))
        time = pc.coalesce(part.column("after_ns"), part.column("before_ns"))
        columns = {
            name: part.column(name) for name in ("recording_id", "stream_id", "kind", "name")
        }
        columns |= {"count": pa.repeat(pa.scalar(1, pa.int64()), part.num_rows)}
        # Sums of what is missing may have more than 64 bits.
        columns |= {"missing": missing.cast(pa.float64(), safe=False), "largest": missing}
        rows = pa.table(columns | {"first_ns": time, "last_ns": time})
        of_kind.add(rows)
        listed.add(rows)
        if steps is not None:
            timed = rows.append_column("place", steps.place(time, 1))
            marks.add(timed.filter(pc.is_valid(timed.column("place"))))
            longest = lasting(pa.concat_tables([longest, part]), steps.step)
        first = earliest(pa.concat_tables([first, part]))
    return Gaps(
        listed=Counter({row["recording_id"]: row["count"] for row in listed.rows()}),
        summaries=[GapSummary(**row) for row in of_kind.rows()],
        marks={
            (row["recording_id"], row["kind"], row["place"]): row["count"] for row in marks.rows()
        },
        first=[RecordedGap(**row) for row in first.to_pylist()],
        longest=[RecordedGap(**row) for row in longest.to_pylist()],
    )


def earliest(gaps: pa.Table) -> pa.Table:
    """Return the first gaps, in order of time."""
    order = ("after_ns", "before_ns", "recording_id", "position")
    return gaps.sort_by([(name, "ascending") for name in order])[:LISTED_GAPS]


def lasting(gaps: pa.Table, seconds: int) -> pa.Table:
    """Return the gaps that lasted longest, if they lasted longer than this."""
    # In seconds, because the difference of two far times has more than 64 bits in nanoseconds.
    after, before = (
        pc.divide(gaps.column(name), NS_PER_SECOND) for name in ("after_ns", "before_ns")
    )
    timed = gaps.append_column("lasted", pc.subtract(after, before))
    timed = timed.filter(pc.greater(timed.column("lasted"), seconds))
    order = [("lasted", "descending"), ("recording_id", "ascending"), ("position", "ascending")]
    return timed.sort_by(order)[:DRAWN_GAPS].select(gaps.column_names)
