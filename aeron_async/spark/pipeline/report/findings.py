"""Findings of a report: gold tables of all batches, added up for a range of time and streams."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.clock import NS_PER_SECOND, NS_PER_US
from aeron_async.spark.lake import tables
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.batches import BATCHES_SCHEMA
from aeron_async.spark.pipeline.histogram import Histogram
from aeron_async.spark.pipeline.report.gaps import Gaps, gaps_of
from aeron_async.spark.pipeline.report.reading import Fold, TableReader
from aeron_async.spark.pipeline.report.steps import Steps
from aeron_async.spark.pipeline.report.stored import TableFiles, files_of_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.report.reading import ReportRange

__all__ = [
    "DecodedMessages",
    "Findings",
    "Lags",
    "LatencyOverTime",
    "Session",
    "StreamFindings",
    "read_findings",
]

NS_PER_MINUTE: Final = 60 * NS_PER_SECOND
MS_PER_SECOND: Final = 1_000
MINUTE: Final = 60
MOST_REASONS: Final = 1_000
"""Upper limit on the different reasons that are added up at once; the page shows fewer."""
COARSE: Final = 2
"""Over time, so many bits of a bin are left out: a bin is at most 1/32 of its values wide."""


@attrs.frozen
class Session:
    """One recording.

    Attributes:
        recording: Its catalog entry.
        messages: Messages in the range.
        bytes: Bytes of their payloads.
        gaps: Gaps; without a range of time including those that were too many to be listed.
        first_position: Where the first message of all batches of the range begins.
        end_position: End of the last message of these batches.
        seconds: Duration in the range; 0 if unknown.
    """

    recording: dict[str, Any]
    messages: int
    bytes: int
    gaps: int
    first_position: int
    end_position: int
    seconds: float

    @property
    def recording_id(self) -> int:
        """Return the id of the recording."""
        return int(self.recording["recording_id"])

    @property
    def stream_id(self) -> int:
        """Return the stream."""
        return int(self.recording["stream_id"])


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
class Lags:
    """How long messages waited until their batch was there, for all streams together.

    Attributes:
        newest: Longest wait of the last message of a batch in nanoseconds, by step.
        oldest: Longest wait of the first message of a batch, by step.
        batches: Number of batches.
        last_ns: Wait of the last message of the last batch; None if unknown.
    """

    newest: dict[int, int]
    oldest: dict[int, int]
    batches: int
    last_ns: int | None


@attrs.frozen
class DecodedMessages:
    """What has become of the messages of streams that are decoded.

    Attributes:
        kinds: Decoded messages by kind.
        reasons: Messages in quarantine by stream and reason.
        quarantined: Messages in quarantine by step.
        other_reasons: Reasons that were too many to be told.
    """

    kinds: dict[str, int]
    reasons: dict[tuple[int, str], int]
    quarantined: dict[int, int]
    other_reasons: int

    @property
    def decoded(self) -> int:
        """Return the number of decoded messages; a message may be of several kinds."""
        return sum(self.kinds.values())

    @property
    def put_aside(self) -> int:
        """Return the number of messages in quarantine."""
        return sum(self.quarantined.values())


@attrs.frozen
class LatencyOverTime:
    """Percentiles of one latency in a step, in nanoseconds."""

    place: int
    median: int
    high: int
    largest: int


@attrs.frozen
class Findings:
    """Everything that a report shows.

    Attributes:
        shown: Range of the report.
        extent: First minute of the lake and the one behind its last, in seconds since 1970; None
            if it is not known.
        has_times: Whether any message of the lake has a time.
        steps: Steps of rates; None if no message has a time.
        minutes: The same, or steps of at least a minute.
        sessions: Recordings, in order of id.
        streams: Streams, in order of id.
        rates: Points of (second, messages per second, bytes per second), by stream.
        decoding: Decoded messages, and those in quarantine.
        latencies: Histograms by name of the latency.
        latency_times: Percentiles over time, by name of the latency.
        lengths: Histograms of the lengths of messages, by stream.
        lags: How far the lake was behind.
        gaps: Gaps.
        files: Files of each table.
        reader: What was read.
    """

    shown: ReportRange
    extent: tuple[int, int] | None
    has_times: bool
    steps: Steps | None
    minutes: Steps | None
    sessions: list[Session]
    streams: list[StreamFindings]
    rates: dict[int, list[tuple[int, float, float]]]
    decoding: DecodedMessages
    latencies: dict[str, Histogram]
    latency_times: dict[str, list[LatencyOverTime]]
    lengths: dict[int, Histogram]
    lags: Lags
    gaps: Gaps
    files: list[TableFiles]
    reader: TableReader

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return sum(each.messages for each in self.sessions)

    @property
    def bytes(self) -> int:
        """Return the bytes of their payloads."""
        return sum(each.bytes for each in self.sessions)

    @property
    def gap_count(self) -> int:
        """Return the number of gaps; without a range of time, of all that were counted."""
        return sum(each.gaps for each in self.sessions)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is in the range."""
        return not self.sessions


def read_findings(lake: Lake, shown: ReportRange) -> Findings:
    """Read the gold tables of a lake.

    Raises:
        ConfigurationError: The folder is no lake, or nothing was ingested.
    """
    lake.check_readable()
    reader = TableReader(lake, shown)
    recordings = recordings_of(reader)
    runs = runs_of(reader, shown)
    steps = steps_of(shown, runs)
    minutes = None if steps is None else Steps.of(steps.low_s, steps.high_s, MINUTE)
    rates, by_recording = rates_of(reader, shown, steps)
    gaps = gaps_of(reader, shown, minutes)
    sessions = [
        session_of(shown, recordings[key], run, (*by_recording.get(key, (0, 0)), gaps.listed[key]))
        for key, run in sorted(runs.items())
        if key in recordings
    ]
    if shown.is_timed:
        sessions = [each for each in sessions if each.messages or each.gaps]
    latencies, latency_times = latencies_of(reader, shown, minutes)
    minute_table = tables.gold("rates_minute")
    extent = reader.extent(minute_table, "minute")
    return Findings(
        shown=shown,
        extent=None if extent is None else (extent[0] * MINUTE, (extent[1] + 1) * MINUTE),
        has_times=reader.stored(minute_table).num_rows > 0,
        steps=steps,
        minutes=minutes,
        sessions=sessions,
        streams=streams_of(sessions),
        rates=rates,
        decoding=decoding_of(reader, shown, minutes),
        latencies=latencies,
        latency_times=latency_times,
        lengths=lengths_of(reader, shown),
        lags=lags_of(reader, shown, minutes),
        gaps=gaps,
        files=files_of_tables(lake, reader, shown),
        reader=reader,
    )


def recordings_of(reader: TableReader) -> dict[int, dict[str, Any]]:
    """Return the catalog entries by id."""
    found: dict[int, dict[str, Any]] = {}
    table = tables.gold("recordings")
    for part in reader.read(table, gold.RECORDINGS, is_replaced=True):
        found |= {row["recording_id"]: row for row in part.to_pylist()}
    return found


def columns_of(schema: pa.Schema, *names: str) -> pa.Schema:
    """Return some columns of a table."""
    return pa.schema([schema.field(name) for name in names])


def runs_of(reader: TableReader, shown: ReportRange) -> dict[int, dict[str, Any]]:
    """Return the runs of positions by recording, each as one; gaps of numbers are among theirs."""
    names = ("recording_id", "stream_id", "name", "first_position", "end_position")
    schema = columns_of(gold.RUNS, *names, "messages", "bytes", "first_ns", "last_ns", "gaps")
    how = {"first_position": "min", "end_position": "max", "messages": "sum", "bytes": "sum"}
    how |= {"first_ns": "min", "last_ns": "max", "gaps": "sum"}
    fold = Fold(["recording_id", "name"], how)
    for part in reader.read(tables.gold("runs"), schema, shown.bounds("first_ns", "last_ns", 1)):
        fold.add(part)
    found: dict[int, dict[str, Any]] = {}
    # The run of positions has no name, and comes first.
    for row in fold.rows():
        if not row["name"]:
            found[row["recording_id"]] = row
        elif row["recording_id"] in found:
            found[row["recording_id"]]["gaps"] += row["gaps"]
    return found


def steps_of(shown: ReportRange, runs: Mapping[int, Mapping[str, Any]]) -> Steps | None:
    """Return the steps of the range, whose open ends are those of the runs."""
    lows = [run["first_ns"] for run in runs.values() if run["first_ns"] is not None]
    highs = [run["last_ns"] for run in runs.values() if run["last_ns"] is not None]
    if not lows:
        return None
    low_s = min(*lows, *highs) // NS_PER_SECOND if shown.since_s is None else shown.since_s
    high_s = max(*lows, *highs) // NS_PER_SECOND + 1 if shown.until_s is None else shown.until_s
    return Steps.of(low_s, high_s)


def session_of(
    shown: ReportRange,
    recording: dict[str, Any],
    run: Mapping[str, Any],
    in_range: tuple[int, int, int],
) -> Session:
    """Return what was found of a recording; a batch may have more than the range."""
    whole = run["messages"], run["bytes"], run["gaps"]
    messages, length, gaps = in_range if shown.is_timed else whole
    return Session(
        recording=recording,
        messages=messages,
        bytes=length,
        gaps=gaps,
        first_position=run["first_position"],
        end_position=run["end_position"],
        seconds=seconds_of(shown, run, recording),
    )


def seconds_of(shown: ReportRange, run: Mapping[str, Any], recording: Mapping[str, Any]) -> float:
    """Return the duration of a recording, by its messages or else by the catalog."""
    first_ns, last_ns = run["first_ns"], run["last_ns"]
    if first_ns is not None and last_ns is not None:
        if shown.since_s is not None:
            first_ns = max(first_ns, shown.since_s * NS_PER_SECOND)
        if shown.until_s is not None:
            last_ns = min(last_ns, shown.until_s * NS_PER_SECOND)
        if last_ns > first_ns:
            return float((last_ns - first_ns) / NS_PER_SECOND)
    began_ms, ended_ms = int(recording["start_timestamp_ms"]), int(recording["stop_timestamp_ms"])
    if ended_ms >= 0 and not shown.is_timed:
        return max(ended_ms - began_ms, 0) / MS_PER_SECOND
    return 0.0


def streams_of(sessions: Iterable[Session]) -> list[StreamFindings]:
    """Return sessions grouped by stream and channel."""
    by_stream: dict[tuple[int, str], list[Session]] = defaultdict(list)
    for session in sessions:
        by_stream[session.stream_id, session.recording["channel"]].append(session)
    return [
        StreamFindings(
            stream_id=stream_id,
            channel=channel,
            recordings=len(parts),
            messages=sum(part.messages for part in parts),
            bytes=sum(part.bytes for part in parts),
            gaps=sum(part.gaps for part in parts),
        )
        for (stream_id, channel), parts in sorted(by_stream.items())
    ]


def rates_of(
    reader: TableReader, shown: ReportRange, steps: Steps | None
) -> tuple[dict[int, list[tuple[int, float, float]]], dict[int, tuple[int, int]]]:
    """Return rates by stream, and messages and bytes by recording.

    A step without messages has a point of zero.
    """
    if steps is None:
        return {}, {}
    is_fine = steps.step < MINUTE
    unit = "second" if is_fine else "minute"
    table = tables.gold("rates_second" if is_fine else "rates_minute")
    unit_ns = NS_PER_SECOND if is_fine else NS_PER_MINUTE
    names = ("recording_id", "stream_id", unit, "messages", "bytes")
    schema = columns_of(gold.RATES if is_fine else gold.RATES_MINUTE, *names)
    sums = {"messages": "sum", "bytes": "sum"}
    by_stream, by_recording = Fold(["stream_id", "place"], sums), Fold(["recording_id"], sums)
    for part in reader.read(table, schema, shown.bounds(unit, unit, unit_ns)):
        by_stream.add(part.append_column("place", steps.place(part.column(unit), unit_ns)))
        by_recording.add(part)
    places: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in by_stream.rows():
        places[row["stream_id"]][row["place"]] = row["messages"], row["bytes"]
    rates = {
        stream_id: [rate_point(steps, place, found) for place in range(steps.count)]
        for stream_id, found in sorted(places.items())
    }
    return rates, {
        row["recording_id"]: (row["messages"], row["bytes"]) for row in by_recording.rows()
    }


def rate_point(
    steps: Steps, place: int, found: Mapping[int, tuple[int, int]]
) -> tuple[int, float, float]:
    """Return the means of a step."""
    messages, length = found.get(place, (0, 0))
    seconds = steps.seconds(place)
    return steps.start(place), messages / seconds, length / seconds


def decoding_of(reader: TableReader, shown: ReportRange, steps: Steps | None) -> DecodedMessages:
    """Return what has become of messages."""
    sums = {"messages": "sum"}
    kinds, times = Fold(["kind"], sums), Fold(["place"], sums)
    reasons = Fold(["stream_id", "reason"], sums, MOST_REASONS)
    bounds = shown.bounds("minute", "minute", NS_PER_MINUTE)
    for part in reader.read(tables.gold("decoded"), gold.DECODED, bounds):
        is_wrong = pc.equal(part.column("kind"), "")
        kinds.add(part.filter(pc.invert(is_wrong)))
        wrong = part.filter(is_wrong)
        reasons.add(wrong)
        minutes = wrong.column("minute")
        # Without times there is one step.
        place = pa.array([0] * len(wrong)) if steps is None else steps.place(minutes, NS_PER_MINUTE)
        times.add(wrong.append_column("place", place))
    return DecodedMessages(
        kinds={row["kind"]: row["messages"] for row in kinds.rows()},
        reasons={(row["stream_id"], row["reason"]): row["messages"] for row in reasons.rows()},
        quarantined={row["place"]: row["messages"] for row in times.rows()},
        other_reasons=reasons.left_out,
    )


def latencies_of(
    reader: TableReader, shown: ReportRange, steps: Steps | None
) -> tuple[dict[str, Histogram], dict[str, list[LatencyOverTime]]]:
    """Return a histogram for each latency, and percentiles over time."""
    sums = {"count": "sum"}
    whole, times = Fold(["name", "bin"], sums), Fold(["name", "place", "coarse"], sums)
    bounds = shown.bounds("minute", "minute", NS_PER_MINUTE)
    for part in reader.read(tables.gold("latency"), gold.LATENCY, bounds):
        whole.add(part)
        if steps is None:
            continue
        known = part.filter(pc.greater_equal(part.column("bin"), 0))
        place = steps.place(known.column("minute"), NS_PER_MINUTE)
        coarse = pc.shift_right(known.column("bin"), COARSE)
        times.add(known.append_column("place", place).append_column("coarse", coarse))
    found: dict[str, Histogram] = defaultdict(Histogram)
    for row in whole.rows():
        found[row["name"]].add(row["bin"], row["count"])
    by_place: dict[tuple[str, int], Histogram] = defaultdict(Histogram)
    for row in times.rows():
        # The last bin of those that were put together, so that nothing seems faster than it was.
        last = (row["coarse"] << COARSE) + (1 << COARSE) - 1
        by_place[row["name"], row["place"]].add(last, row["count"])
    over_time: dict[str, list[LatencyOverTime]] = defaultdict(list)
    for (name, place), histogram in by_place.items():
        median, high = (histogram.percentile(each) for each in ("50", "99"))
        over_time[name].append(LatencyOverTime(place, median, high, histogram.largest))
    return dict(sorted(found.items())), over_time


def lengths_of(reader: TableReader, shown: ReportRange) -> dict[int, Histogram]:
    """Return a histogram of the lengths of messages for each stream."""
    fold = Fold(["stream_id", "bin"], {"count": "sum"})
    bounds = shown.bounds("minute", "minute", NS_PER_MINUTE)
    for part in reader.read(tables.gold("lengths"), gold.LENGTHS, bounds):
        fold.add(part)
    found: dict[int, Histogram] = defaultdict(Histogram)
    for row in fold.rows():
        found[row["stream_id"]].add(row["bin"], row["count"])
    return dict(found)


def lags_of(reader: TableReader, shown: ReportRange, steps: Steps | None) -> Lags:
    """Return how long messages waited until their batch was there."""
    schema = columns_of(BATCHES_SCHEMA, "committed", "first_ns", "last_ns")
    fold = Fold(["place"], {"newest": "max", "oldest": "max"})
    count, last_us, last_ns = 0, None, None
    for part in reader.read(tables.BATCHES, schema, shown.bounds("first_ns", "last_ns", 1)):
        count += part.num_rows
        timed = part.filter(pc.is_valid(part.column("last_ns")))
        if steps is None or not timed.num_rows:
            continue
        us = timed.column("committed").cast(pa.int64()).to_numpy()
        first, last = (timed.column(name).to_numpy() for name in ("first_ns", "last_ns"))
        # In microseconds, because a far time has no difference in nanoseconds within 64 bits.
        newest, oldest = us - last // NS_PER_US, us - first // NS_PER_US
        columns = [steps.place(timed.column("last_ns"), 1), pa.array(newest), pa.array(oldest)]
        fold.add(pa.table(columns, names=["place", "newest", "oldest"]))
        latest = int(us.argmax())
        if last_us is None or us[latest] > last_us:
            last_us, last_ns = int(us[latest]), int(newest[latest]) * NS_PER_US
    rows = fold.rows()
    return Lags(
        newest={row["place"]: row["newest"] * NS_PER_US for row in rows},
        oldest={row["place"]: row["oldest"] * NS_PER_US for row in rows},
        batches=count,
        last_ns=last_ns,
    )
