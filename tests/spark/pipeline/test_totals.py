"""Totals of a batch: exact whatever tasks have found, and in no more rows than a batch may make."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aeron_async.cli.pipeline_run import PipelineOutput
from aeron_async.spark.lake.tables import gold
from aeron_async.spark.pipeline import ingest, totals
from aeron_async.spark.pipeline import query as query_module
from aeron_async.spark.pipeline.gold import GAPS, RATES, RUNS, SUMMED, Sums
from aeron_async.spark.pipeline.job import BatchReport, told_first
from aeron_async.spark.pipeline.query import MOST_TOLD, Lag, farthest
from aeron_async.spark.pipeline.runs import GapKind, RecordedGap, Run
from aeron_async.spark.pipeline.task import TaskResult
from aeron_async.spark.pipeline.totals import BatchTotals
from tests.spark.pipeline.local import LocalJob, planned
from tests.spark.pipeline.test_task import DAY_NS, SPEC, quotes

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65_536
FARTHEST = (1 << 63) - 1


def result(recording_id: int, seconds: range, gaps: int = 0) -> TaskResult:
    """Return what a task finds of a recording with a message each second, some behind gaps."""
    count = len(seconds)
    sums = {name: Sums(schema) for name, schema in SUMMED.items()}
    ids = np.full(count, recording_id)
    row = [ids, 7, 1001, np.array(seconds), np.full(count, 2), np.full(count, 3)]
    sums["rates_second"].add(row)
    run = Run(
        recording_id=recording_id,
        session_id=7,
        stream_id=1001,
        first_position=0,
        end_position=64 * count,
        messages=count,
        gaps=gaps,
    )
    padding = RecordedGap(
        kind=GapKind.PADDING,
        recording_id=recording_id,
        stream_id=1001,
        position=0,
        end_position=64,
        missing=64,
    )
    return TaskResult(
        files={"bronze": []},
        counts={"bronze": count},
        runs=[run],
        gaps=[padding] * gaps,
        sums={name: each.table() for name, each in sums.items()},
        term_lengths={recording_id: TERM},
        steps={"rates_second": 1, "latency": 1, "lengths": 1, "decoded": 4},
    )


@pytest.mark.parametrize("most", [50, 1_000, 1 << 20])
def test_a_batch_has_a_limited_number_of_sums_which_stay_exact(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "MOST_OF_A_BATCH", most)
    found = BatchTotals()
    for place in range(5):
        found.add(result(0, range(place * 1_000, place * 1_000 + 1_000)))
    rates = found.tables()["rates_second"]
    assert rates.schema == RATES
    assert rates.num_rows <= most
    assert sum(rates.column("messages").to_pylist()) == 10_000
    assert sum(rates.column("bytes").to_pylist()) == 15_000
    # A step of a plan is told, too.
    wanted = {50: 128, 1_000: 8}.get(most)
    assert found.rounded() == {"decoded": 4} | ({"rates_second": wanted} if wanted else {})
    assert found.counts == {"bronze": 5_000}


def test_a_batch_lists_a_limited_number_of_gaps_and_counts_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(totals, "GAPS_OF_A_BATCH", 25)
    found = BatchTotals()
    for recording_id in range(4):
        found.add(result(recording_id, range(100), gaps=10))
    done = found.summed_up(RUNS.empty_table())
    assert (len(done.gaps), done.found_gaps, done.unlisted_gaps) == (25, 40, 15)
    assert sorted(each.recording_id for each in done.runs) == [0, 1, 2, 3]
    assert done.all_runs.num_rows == 4


def test_the_report_of_a_batch_says_what_it_has_no_rows_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "GAPS_OF_A_BATCH", 3)
    monkeypatch.setattr(totals, "MOST_OF_A_BATCH", 10)
    quotes(tmp_path / "archive", [(n * 2, DAY_NS + n * 10**9, 1) for n in range(100)])
    given = {"decode": SPEC, "sequence": "quotes=sequence", "timestamp_from": "reserved"}
    job = LocalJob(tmp_path / "archive", tmp_path / "lake", **given)
    job.begin()
    job.process(0, *planned(tmp_path / "archive"))
    (report,) = job.reports
    assert (report.gaps, report.unlisted_gaps, report.untold) == (99, 96, 0)
    assert job.lake.read(gold("gaps"), GAPS).num_rows == 3
    runs = job.lake.read(gold("runs"), RUNS)
    assert sum(runs.column("gaps").to_pylist()) == 99
    rates = job.lake.read(gold("rates_second"), RATES)
    assert rates.num_rows <= 10
    assert sum(rates.column("messages").to_pylist()) == 100
    assert report.rounded["rates_second"] > 1


def test_a_report_is_a_line_that_the_recorder_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    most = {FARTHEST - place: FARTHEST for place in range(MOST_TOLD)}
    report = BatchReport(
        batch_id=FARTHEST,
        messages=FARTHEST,
        bytes=FARTHEST,
        gaps=FARTHEST,
        decoded={f"{'k' * 60}{place}": FARTHEST for place in range(100)},
        quarantined=FARTHEST,
        positions=most,
        seconds=1e-300,
        untold=FARTHEST,
    )
    output = PipelineOutput(is_json=True)
    with redirect_stdout(io.StringIO()) as lines:
        output.batch(report)
        output.lag(Lag(FARTHEST, most, FARTHEST))
    for line in lines.getvalue().splitlines():
        assert MOST_TOLD < len(line) < ingest.LONGEST_LINE // 2
    monkeypatch.setattr(query_module, "MOST_TOLD", 2)
    assert farthest({1: 5, 2: 7, 3: 6}) == {2: 7, 3: 6}


def test_recordings_of_the_batch_are_told_first() -> None:
    found = told_first({1: 10, 2: 20, 3: 30}, result(2, range(1)).runs)
    assert list(found.items()) == [(2, 20), (1, 10), (3, 30)]
