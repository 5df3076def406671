"""Findings of a report: the gold tables of all batches, added up."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake import tables
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import Histogram
from aeron_async.spark.pipeline.runs import RecordedGap, Run, stitch

if TYPE_CHECKING:
    from aeron_async.spark.lake.tables import Lake

__all__ = ["Findings", "Session", "StreamFindings", "read_findings"]

NS_PER_SECOND: Final = 1_000_000_000
MS_PER_SECOND: Final = 1_000
MOST_POINTS: Final = 600
"""Upper limit on the points of a line; longer times get longer steps."""
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200)
DAY: Final = 86_400


@attrs.frozen
class Session:
    """One recording.

    Attributes:
        recording: Its catalog entry.
        run: All that was ingested of it, as one run.
        seconds: Its duration; 0 if unknown.
    """

    recording: dict[str, Any]
    run: Run
    seconds: float


@attrs.frozen
class StreamFindings:
    """All recordings with the same stream and channel."""

    stream_id: int
    channel: str
    recordings: int
    messages: int
    bytes: int
    gaps: int


@attrs.frozen
class Findings:
    """Everything that a report shows.

    Attributes:
        sessions: Recordings, in order of id.
        streams: Streams, in order of id.
        step: Seconds between two points of rates.
        rates: Points of (second, messages per second, bytes per second), by stream.
        latencies: Histograms by name of the latency.
        gaps: Gaps in order of recording and position.
        inner_gaps: Number of all gaps, including those that were too many to be listed.
    """

    sessions: list[Session]
    streams: list[StreamFindings]
    step: int
    rates: dict[int, list[tuple[int, float, float]]]
    latencies: dict[str, Histogram]
    gaps: list[RecordedGap]
    inner_gaps: int


def read_findings(lake: Lake) -> Findings:
    """Read the gold tables of a lake.

    Raises:
        ConfigurationError: The folder is no lake, or nothing was ingested.
    """
    lake.check_readable()
    runs = [Run(**row) for row in read(lake, "runs", gold.RUNS).to_pylist()]
    if not runs:
        message = f"lake {str(lake.root)!r} has no messages: `pipeline run` brings some"
        raise ConfigurationError(message)
    recordings = {
        row["recording_id"]: row for row in read(lake, "recordings", gold.RECORDINGS).to_pylist()
    }
    gaps = [RecordedGap(**row) for row in read(lake, "gaps", gold.GAPS).to_pylist()]
    lengths = {key: row["term_length"] for key, row in recordings.items()}
    known = [run for run in runs if run.recording_id in recordings]
    whole, between = stitch(known, lengths)
    sessions = [
        Session(recordings[key], run, seconds_of(run, recordings[key]))
        for (key, name), run in sorted(whole.items())
        if not name
    ]
    step, rates = rates_of(read(lake, "rates_second", gold.RATES))
    return Findings(
        sessions=sessions,
        streams=streams_of(sessions, gaps),
        step=step,
        rates=rates,
        latencies=latencies_of(read(lake, "latency", gold.LATENCY)),
        gaps=sorted(gaps, key=lambda gap: (gap.recording_id, gap.position)),
        inner_gaps=sum(run.gaps for run in known) + len(between),
    )


def read(lake: Lake, table: str, schema: pa.Schema) -> pa.Table:
    """Read a gold table."""
    return lake.read(tables.gold(table), schema)


def seconds_of(run: Run, recording: dict[str, Any]) -> float:
    """Return the duration of a recording, by its messages or else by the catalog."""
    if run.first_ns is not None and run.last_ns is not None and run.last_ns > run.first_ns:
        return (run.last_ns - run.first_ns) / NS_PER_SECOND
    began_ms, ended_ms = int(recording["start_timestamp_ms"]), int(recording["stop_timestamp_ms"])
    if ended_ms >= 0:
        return max(ended_ms - began_ms, 0) / MS_PER_SECOND
    return 0.0


def streams_of(sessions: list[Session], gaps: list[RecordedGap]) -> list[StreamFindings]:
    """Return sessions grouped by stream and channel."""
    by_stream: dict[tuple[int, str], list[Session]] = defaultdict(list)
    for session in sessions:
        by_stream[session.run.stream_id, session.recording["channel"]].append(session)
    found = []
    for (stream_id, channel), parts in sorted(by_stream.items()):
        ids = {part.run.recording_id for part in parts}
        found.append(
            StreamFindings(
                stream_id=stream_id,
                channel=channel,
                recordings=len(parts),
                messages=sum(part.run.messages for part in parts),
                bytes=sum(part.run.bytes for part in parts),
                gaps=sum(gap.recording_id in ids for gap in gaps),
            )
        )
    return found


def rates_of(table: pa.Table) -> tuple[int, dict[int, list[tuple[int, float, float]]]]:
    """Return the step in seconds, and rates by stream with a limited number of points.

    A step without messages has a point of zero.
    """
    if not table.num_rows:
        return 1, {}
    seconds = table.column("second")
    low, high = (each.as_py() for each in pa.compute.min_max(seconds).values())
    step = next((each for each in STEPS if (high - low) // each < MOST_POINTS), 0)
    step = step or -(-(high - low + 1) // (MOST_POINTS * DAY)) * DAY
    place = pa.compute.divide(pa.compute.subtract(seconds, low), step)
    sums = (
        table.append_column("place", place)
        .group_by(["stream_id", "place"])
        .aggregate([("messages", "sum"), ("bytes", "sum")])
    )
    found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in sums.to_pylist():
        found[row["stream_id"]][row["place"]] = row["messages_sum"], row["bytes_sum"]
    count = (high - low) // step + 1
    return step, {
        stream_id: [
            (low + index * step, *(each / step for each in places.get(index, (0, 0))))
            for index in range(count)
        ]
        for stream_id, places in sorted(found.items())
    }


def latencies_of(table: pa.Table) -> dict[str, Histogram]:
    """Return a histogram for each latency."""
    sums = table.group_by(["name", "bin"]).aggregate([("count", "sum")])
    found: dict[str, Histogram] = defaultdict(Histogram)
    for row in sums.to_pylist():
        found[row["name"]].add(row["bin"], row["count_sum"])
    return dict(sorted(found.items()))
