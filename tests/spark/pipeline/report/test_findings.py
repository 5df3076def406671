"""Findings: exact numbers of a known lake, of a part of its time and of some of its streams."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import NEGATIVE, bin_of, lower_bound, upper_bound
from aeron_async.spark.pipeline.report.findings import LatencyOverTime, read_findings
from aeron_async.spark.pipeline.report.reading import ENOUGH_ROWS, EVERYTHING, Fold, ReportRange
from aeron_async.spark.pipeline.report.steps import MOST_POINTS, Steps
from aeron_async.spark.pipeline.runs import GapKind
from tests.spark.pipeline.local import LocalJob, planned, write_gold
from tests.spark.pipeline.report.lakes import (
    BEGAN_NS,
    BEGAN_S,
    GAP,
    RECORDING,
    RUN,
    decoded,
    latencies,
    lengths,
    rates,
    write_batches,
    write_rates,
    write_year,
)
from tests.spark.pipeline.test_task import DAY_NS, SPEC, quotes

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.pipeline.report.findings import Findings

MINUTE = BEGAN_S // 60
COUNT = 3_000
FAR_S = 9_000_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with two streams and two hours; the second hour has half of it."""
    lake = Lake(tmp_path / "lake")
    hour_ns = 3_600 * 10**9
    other = {"recording_id": 1, "stream_id": 5, "channel": "aeron:ipc"}
    recordings = pa.Table.from_pylist([RECORDING, RECORDING | other], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", recordings)
    for batch in range(2):
        mine = attrs.evolve(
            RUN,
            first_position=6_400 * batch,
            end_position=6_400 * (batch + 1),
            first_ns=BEGAN_NS + batch * hour_ns,
            last_ns=BEGAN_NS + (batch + 1) * hour_ns - 1,
            gaps=2 - batch,
        )
        numbers = attrs.evolve(mine, name="quotes.sequence", bytes=0, gaps=4)
        its = attrs.evolve(mine, recording_id=1, stream_id=5, messages=60 - 30 * batch, gaps=0)
        write_gold(lake, "runs", gold.table_of([mine, numbers, its], gold.RUNS), batch)
        begin = BEGAN_S + 3_600 * batch
        table = pa.concat_tables(
            [
                rates((1001, begin, 60), (1001, begin + 3_599, 40)),
                rates((5, begin + 1, 60 - 30 * batch)).set_column(0, "recording_id", pa.array([1])),
            ]
        )
        write_rates(lake, table, batch)
        at = MINUTE + 60 * batch
        values = {bin_of(1_000): 90, bin_of(5_000_000): 10, NEGATIVE: 3}
        write_gold(lake, "latency", latencies("x", values, at), batch)
        counts = lengths((1001, at, 32, 100), (5, at, 64, 60 - 30 * batch))
        write_gold(lake, "lengths", counts, batch)
        table = decoded(
            ("quotes", "", 1001, at, 95),
            ("", "too short", 1001, at, 4),
            ("", "<b>", 1001, at, 1 + batch),
            ("trades", "", 5, at, 60 - 30 * batch),
        )
        write_gold(lake, "decoded", table, batch)
        gap = attrs.evolve(
            GAP,
            missing=(-2, 7)[batch],
            kind=(GapKind.BACKWARDS, GapKind.SEQUENCE)[batch],
            before_ns=BEGAN_NS + batch * hour_ns,
            after_ns=BEGAN_NS + batch * hour_ns + 60 * 10**9,
        )
        write_gold(lake, "gaps", gold.table_of([gap], gold.GAPS), batch)
    write_batches(
        lake,
        (BEGAN_NS + hour_ns + 5 * 10**9, BEGAN_NS, BEGAN_NS + hour_ns),
        (BEGAN_NS + 2 * hour_ns + 10**9, BEGAN_NS + hour_ns + 1, BEGAN_NS + 2 * hour_ns - 10**9),
        (BEGAN_NS + 2 * hour_ns + 2 * 10**9, None, None),
    )
    return lake


def by_id(findings: Findings) -> dict[int, tuple[int, int, int]]:
    return {each.recording_id: (each.messages, each.bytes, each.gaps) for each in findings.sessions}


def sums(findings: Findings) -> dict[int, float]:
    """Return the messages of each stream by its line."""
    steps = findings.steps
    assert steps is not None
    return {
        stream_id: round(sum(point[1] * steps.seconds(place) for place, point in enumerate(points)))
        for stream_id, points in findings.rates.items()
    }


def test_batches_add_up(lake: Lake) -> None:
    found = read_findings(lake, EVERYTHING)
    assert by_id(found) == {0: (200, 6_400, 11), 1: (90, 6_400, 0)}
    assert (found.messages, found.bytes, found.gap_count) == (290, 12_800, 11)
    assert [(each.stream_id, each.messages) for each in found.streams] == [(5, 90), (1001, 200)]
    (session, _) = found.sessions
    assert (session.first_position, session.end_position) == (0, 12_800)
    assert session.seconds == pytest.approx(7_200)
    assert found.steps == Steps(BEGAN_S, BEGAN_S + 7_200, 30)
    assert found.minutes == Steps(BEGAN_S, BEGAN_S + 7_200, 60)
    assert sums(found) == {5: 90, 1001: 200}
    decoding = found.decoding
    assert (decoding.kinds, decoding.put_aside) == ({"quotes": 190, "trades": 90}, 11)
    assert decoding.reasons == {(1001, "too short"): 8, (1001, "<b>"): 3}
    assert decoding.quarantined == {0: 5, 60: 6}
    assert (found.latencies["x"].count, found.latencies["x"].negative_count) == (200, 6)
    low, high = coarse(1_000), coarse(5_000_000)
    assert found.latency_times["x"] == [
        LatencyOverTime(place, low, high, high) for place in (0, 60)
    ]
    assert {key: dict(each.bins()) for key, each in found.lengths.items()} == {
        5: {64: 90},
        1001: {32: 200},
    }
    assert found.extent == (BEGAN_S, BEGAN_S + 7_200)


def coarse(value: int) -> int:
    """Return the upper bound of four bins that lie together."""
    index = bin_of(value)
    found = upper_bound(index // 4 * 4 + 3)
    assert found - lower_bound(index // 4 * 4) < value / 32
    return found


def test_a_batch_waits_from_its_messages_to_its_commit(lake: Lake) -> None:
    lags = read_findings(lake, EVERYTHING).lags
    second = 10**9
    # The last message of the first batch came in the first minute of the second hour.
    assert lags.newest == {60: 5 * second, 119: 2 * second}
    assert lags.oldest == {60: 3_605 * second, 119: 3_601 * second}
    assert (lags.batches, lags.last_ns) == (3, 2 * second)


def test_gaps_are_summed_up_by_kind(lake: Lake) -> None:
    gaps = read_findings(lake, EVERYTHING).gaps
    assert [(each.kind, each.count, each.missing, each.largest) for each in gaps.summaries] == [
        (GapKind.BACKWARDS, 1, 2, 2),
        (GapKind.SEQUENCE, 1, 7, 7),
    ]
    assert gaps.marks == {(0, GapKind.BACKWARDS, 1): 1, (0, GapKind.SEQUENCE, 61): 1}
    assert [gap.missing for gap in gaps.first] == [-2, 7]
    assert gaps.listed == Counter({0: 2})
    # Neither lasted longer than a step of a minute.
    assert gaps.longest == []
    shown = ReportRange(BEGAN_S, BEGAN_S + 60)
    assert [gap.missing for gap in read_findings(lake, shown).gaps.first] == [-2]


def test_a_range_has_what_is_in_it_whatever_the_batches_were(lake: Lake) -> None:
    shown = ReportRange(BEGAN_S + 60, BEGAN_S + 3_660)
    found = read_findings(lake, shown)
    # The end of the first hour, and the beginning of the second one.
    assert by_id(found) == {0: (100, 3_200, 2), 1: (30, 960, 0)}
    assert sums(found) == {5: 30, 1001: 100}
    assert found.steps == Steps(BEGAN_S + 60, BEGAN_S + 3_660, 10)
    assert found.decoding.kinds == {"quotes": 95, "trades": 30}
    assert found.decoding.put_aside == 6
    assert found.latencies["x"].count == 100
    assert {key: each.count for key, each in found.lengths.items()} == {5: 30, 1001: 100}
    assert found.gap_count == 2
    assert found.sessions[0].seconds == 3_600
    first = read_findings(lake, ReportRange(None, BEGAN_S + 3_600))
    second = read_findings(lake, ReportRange(BEGAN_S + 3_600, None))
    whole = read_findings(lake, EVERYTHING)
    assert first.messages + second.messages == whole.messages
    assert first.decoding.decoded + second.decoding.decoded == whole.decoding.decoded
    assert second.lags.batches == 2
    # Files of the other hour are not opened.
    assert (first.reader.skipped, second.reader.skipped) == (6, 6)
    assert first.reader.rows < whole.reader.rows


def test_a_stream_has_what_is_of_it(lake: Lake) -> None:
    found = read_findings(lake, ReportRange(streams=(5,)))
    assert by_id(found) == {1: (90, 6_400, 0)}
    assert sums(found) == {5: 90}
    assert (found.decoding.kinds, found.decoding.put_aside) == ({"trades": 90}, 0)
    assert (list(found.lengths), found.latencies, found.gaps.first) == ([5], {}, [])
    both = read_findings(lake, ReportRange(BEGAN_S, BEGAN_S + 60, (5, 1001)))
    assert by_id(both) == {0: (60, 1_920, 1), 1: (60, 1_920, 0)}


@pytest.mark.parametrize(
    "shown",
    [
        ReportRange(0, 60),
        ReportRange(BEGAN_S - 60, BEGAN_S),
        ReportRange(BEGAN_S + 7_200, None),
        ReportRange(BEGAN_S + 120, BEGAN_S + 240),
        ReportRange(streams=(6,)),
        ReportRange(-FAR_S, -FAR_S + 60),
        ReportRange(250_000_000_000, None),
    ],
)
def test_an_empty_range_is_empty(lake: Lake, shown: ReportRange) -> None:
    found = read_findings(lake, shown)
    assert (found.is_empty, found.messages, found.rates, found.lengths) == (True, 0, {}, {})
    assert (found.decoding.decoded, found.decoding.put_aside, found.gap_count) == (0, 0, 0)


def test_recordings_nobody_knows_are_left_out(lake: Lake) -> None:
    gone = attrs.evolve(RUN, recording_id=9)
    write_gold(lake, "runs", gold.table_of([gone], gold.RUNS), 2)
    assert list(by_id(read_findings(lake, EVERYTHING))) == [0, 1]


@pytest.mark.parametrize(("stop_ms", "seconds"), [(8_000, 8.0), (-8_000, 0.0), (None, 0.0)])
def test_without_times_of_messages_the_catalog_says_how_long(
    tmp_path: Path, stop_ms: int | None, seconds: float
) -> None:
    lake = Lake(tmp_path)
    run = attrs.evolve(RUN, first_ns=None, last_ns=None)
    write_gold(lake, "runs", gold.table_of([run], gold.RUNS))
    stop = -1 if stop_ms is None else RECORDING["start_timestamp_ms"] + stop_ms
    recording = RECORDING | {"stop_timestamp_ms": stop}
    rows = pa.Table.from_pylist([recording], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", rows)
    write_gold(lake, "lengths", lengths((1001, MINUTE, 32, 100)))
    write_gold(lake, "decoded", decoded(("", "too short", 1001, MINUTE, 4)))
    write_batches(lake, (BEGAN_NS, None, None))
    found = read_findings(lake, EVERYTHING)
    assert (found.sessions[0].seconds, found.steps, found.extent) == (seconds, None, None)
    assert (found.lengths[1001].count, found.decoding.put_aside) == (100, 4)
    assert (found.lags.batches, found.lags.last_ns) == (1, None)
    assert read_findings(lake, ReportRange(0, None)).is_empty


@pytest.mark.parametrize(
    ("length", "step"),
    [(1, 1), (399, 1), (400, 2), (86_400, 300), (7 * 86_400, 1_800), (365 * 86_400, 86_400)],
)
@pytest.mark.parametrize("low_s", [0, 17, BEGAN_S, -FAR_S - 1, FAR_S])
def test_long_times_are_put_together(low_s: int, length: int, step: int) -> None:
    steps = Steps.of(low_s, low_s + length)
    assert steps.step == step
    assert steps.begin_s % step == 0
    assert steps.count <= MOST_POINTS
    assert sum(map(steps.seconds, range(steps.count))) == length
    assert (steps.start(0), steps.end(steps.count - 1)) == (low_s, low_s + length)
    times = pa.array([low_s, low_s + length - 1, None, low_s - 5, low_s + length + 5])
    last = steps.count - 1
    for unit_ns in (1, 10**9):
        scaled = pa.compute.multiply(times, 10**9 // unit_ns)
        assert steps.place(scaled, unit_ns).to_pylist() == [0, last, None, 0, last]
    far = pa.array([2**63 - 1, -(2**63)])
    for unit_ns in (1, 10**9, 60 * 10**9):
        assert set(steps.place(far, unit_ns).to_pylist()) <= {0, last}


@pytest.mark.parametrize("length", [10**9, 18 * 10**9])
def test_years_are_put_together_by_days(length: int) -> None:
    steps = Steps.of(1, 1 + length)
    assert steps.step % 86_400 == 0
    assert MOST_POINTS // 2 < steps.count <= MOST_POINTS


def test_of_a_year_only_sums_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory depends on what is shown: neither lines nor rows at once grow with time."""
    lake = Lake(tmp_path)
    write_year(lake)
    most = Counter[str]()
    add = Fold.add

    def watched(self: Fold, rows: pa.Table) -> None:
        add(self, rows)
        most["rows"] = max(most["rows"], rows.num_rows)
        most["kept"] = max(most["kept"], self._rows)

    monkeypatch.setattr(Fold, "add", watched)
    month = 30 * 1_440 * 2
    year = read_findings(lake, EVERYTHING)
    # Three tables with a row for each minute and stream, and no seconds.
    assert year.reader.rows == 12 * 3 * month + 12 * 2 + 2
    assert year.messages == 12 * month
    assert sums(year) == {0: 6 * month, 1: 6 * month}
    # It begins within a day.
    assert {len(each) for each in year.rates.values()} == {361}
    assert len(year.latency_times["x"]) == 361
    assert most["rows"] < 2 * ENOUGH_ROWS
    assert most["kept"] < 2 * ENOUGH_ROWS
    began = BEGAN_S + 100 * 86_400
    day = read_findings(lake, ReportRange(began, began + 86_400, (1,)))
    assert (day.messages, sums(day)) == (1_440, {1: 1_440})
    assert {len(each) for each in day.rates.values()} == {288}
    # Of each table the file of one month, and the two recordings.
    assert day.reader.rows == 3 * month + 2 + 2
    assert day.reader.skipped == 4 * 11


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_job_leaves_what_a_report_needs(tmp_path: Path, table_format: str) -> None:
    rows = [(index + (index > 50), DAY_NS, -1 if index in (7, 8) else 5) for index in range(COUNT)]
    quotes(tmp_path / "archive", rows)
    given = {"decode": SPEC, "sequence": "quotes=sequence", "timestamp_from": "reserved"}
    given |= {"latency": "quotes=sent..timestamp_ns", "format": table_format}
    job = LocalJob(tmp_path / "archive", tmp_path / "lake", **given)
    job.begin()
    parts = planned(tmp_path / "archive", 99)
    job.process(0, *parts[:1])
    job.process(1, *parts[1:])
    found = read_findings(job.lake, EVERYTHING)
    decoding = found.decoding
    assert (found.messages, decoding.kinds, decoding.put_aside) == (COUNT, {"quotes": COUNT - 2}, 2)
    (reason,) = decoding.reasons
    assert reason[0] == 1001
    assert dict(found.lengths[1001].bins()) == {10: 2, 24: COUNT - 2}
    assert found.latencies["quotes: sent to timestamp_ns"].count == COUNT - 2
    assert sums(found) == {1001: COUNT}
    # The two that were cut short are one gap of numbers, and the one that was left out.
    assert found.gap_count == 2
    assert found.gaps.listed == Counter({0: 2})
    assert found.lags.batches == 2
    assert found.lags.last_ns is not None
    assert found.lags.last_ns > 0
    # Of tables in Parquet only their files know how many rows they have.
    rows_of = {each.table: each.rows for each in found.files}
    wanted = [COUNT, COUNT - 2, 2] if table_format == "delta" else [None] * 3
    assert [rows_of[each] for each in ("bronze", "silver/quotes", "quarantine")] == wanted
    assert all(each.bytes >= each.files * each.smallest > 0 for each in found.files)
    began_s = 20_000 * 86_400
    part = read_findings(job.lake, ReportRange(began_s, began_s + 60))
    assert (part.messages, part.decoding.decoded, part.gap_count) == (60, 58, 2)
    later = read_findings(job.lake, ReportRange(began_s + 86_400, None))
    assert (later.is_empty, later.has_times) == (True, True)
    assert (later.extent is None) == (table_format == "parquet")
    # Partitions of other days are left out, and tables without partitions are whole.
    assert {each.table.partition("/")[0] for each in later.files} == {"gold", "batches"}


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        read_findings(Lake(tmp_path / "none"), EVERYTHING)
    (tmp_path / "gold").mkdir()
    with pytest.raises(ConfigurationError, match="no messages"):
        read_findings(Lake(tmp_path), EVERYTHING)
