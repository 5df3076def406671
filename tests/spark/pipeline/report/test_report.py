"""The report: whole without anything beside it, whatever was found, and whatever it is called."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import attrs
import pyarrow as pa
import pytest

from aeron_async.cli.main import main
from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import NEGATIVE, bin_of
from aeron_async.spark.pipeline.report import render_report
from aeron_async.spark.pipeline.report.findings import rates_of, read_findings
from aeron_async.spark.pipeline.report.plots import (
    Axis,
    Plot,
    format_amount,
    format_ns,
    linear_ticks,
    log_ticks,
)
from aeron_async.spark.pipeline.runs import GapKind, RecordedGap, Run
from tests.spark.pipeline.local import write_gold

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_900_000_000_000
BEGAN_NS = 1_800_000_000 * 10**9
RUN = Run(
    recording_id=0,
    session_id=7,
    stream_id=1001,
    first_position=0,
    end_position=6_400,
    messages=100,
    bytes=3_200,
    first_ns=BEGAN_NS,
    last_ns=BEGAN_NS + 5 * 10**9,
)
GAP = RecordedGap(
    kind=GapKind.SEQUENCE,
    recording_id=0,
    stream_id=1001,
    name="quotes.sequence",
    position=640,
    end_position=640,
    missing=3,
    before_ns=BEGAN_NS + 10**9,
    after_ns=BEGAN_NS + 10**9 + 5_000,
)
RECORDING: dict[str, Any] = {
    "recording_id": 0,
    "session_id": 7,
    "stream_id": 1001,
    "channel": "aeron:udp?alias=<script>alert(1)</script>",
    "source_identity": "<b>host</b>:1",
    "start_position": 0,
    "stop_position": 6_400,
    "start_timestamp_ms": BEGAN_NS // 10**6,
    "stop_timestamp_ms": BEGAN_NS // 10**6 + 8_000,
    "term_length": 65_536,
    "segment_length": 131_072,
}


def rates(*rows: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "recording_id": 0,
                "session_id": 7,
                "stream_id": stream_id,
                "second": second,
                "messages": messages,
                "bytes": 32 * messages,
            }
            for stream_id, second, messages in rows
        ],
        schema=gold.RATES,
    )


def latencies(name: str, counts: dict[int, int]) -> pa.Table:
    rows = [
        {"name": name, "stream_id": 1001, "minute": 0, "bin": index, "count": count}
        for index, count in counts.items()
    ]
    return pa.Table.from_pylist(rows, schema=gold.LATENCY)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake & co")
    recordings = pa.Table.from_pylist([RECORDING], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", recordings)
    write_gold(lake, "runs", gold.table_of([RUN], gold.RUNS))
    return lake


def pictures(page: str) -> list[ET.Element]:
    found = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    return [ET.fromstring(each) for each in found]  # noqa: S314 - drawn by ourselves, just now


def test_a_page_needs_nothing_beside_it_and_escapes_what_it_shows(lake: Lake) -> None:
    seconds = rates((1001, 1_800_000_000, 60), (1001, 1_800_000_004, 40), (5, 1_800_000_002, 1))
    write_gold(lake, "rates_second", seconds)
    values = {bin_of(1_000): 90, bin_of(5_000_000): 10, NEGATIVE: 3}
    write_gold(lake, "latency", latencies("quotes: <sent> to timestamp_ns", values))
    write_gold(lake, "gaps", gold.table_of([GAP], gold.GAPS))
    page = render_report(lake, NOW_MS)
    assert not re.search(r"<script|https?:|src=|href=|@import|url\(", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;host&lt;/b&gt;:1" in page
    assert "quotes: &lt;sent&gt; to" in page
    assert "lake &amp; co" in page
    assert "prefers-color-scheme: dark" in page
    assert [each.get("aria-label") for each in pictures(page)] == [
        "msg/s over time",
        "B/s over time",
        "latency by percentile",
        "gaps over time",
    ]
    for each in ("100", "2030-03-17", "20 msg/s", "640 B/s", "sequence (1)", "5.01 ms"):
        assert each in page


def test_what_nobody_asked_for_is_said_to_be_missing(lake: Lake) -> None:
    page = render_report(lake, NOW_MS)
    assert "--timestamp-from" in page
    assert "--latency" in page
    assert "No gaps were found" in page
    assert pictures(page) == []


def test_latencies_that_are_all_below_zero_have_no_plot(lake: Lake) -> None:
    write_gold(lake, "latency", latencies("x", {NEGATIVE: 2}))
    page = render_report(lake, NOW_MS)
    assert pictures(page) == []
    assert '<td class="text">x</td><td>0</td>' in page


def test_one_message_can_be_drawn(lake: Lake) -> None:
    write_gold(lake, "latency", latencies("x", {0: 1}))
    write_gold(lake, "rates_second", rates((1001, 1_800_000_000, 1)))
    assert len(pictures(render_report(lake, NOW_MS))) == 3


def test_gaps_without_a_time_are_listed_and_not_drawn(lake: Lake) -> None:
    gap = attrs.evolve(GAP, kind=GapKind.PADDING, name="", before_ns=None, after_ns=None)
    gaps = [attrs.evolve(gap, position=64 * each) for each in range(60)]
    write_gold(lake, "gaps", gold.table_of(gaps, gold.GAPS))
    page = render_report(lake, NOW_MS)
    assert pictures(page) == []
    assert "padding (60)" in page
    assert "And 10 more" in page


def test_batches_add_up_and_recordings_nobody_knows_are_left_out(lake: Lake) -> None:
    more = attrs.evolve(RUN, first_position=6_528, end_position=7_000, messages=5, gaps=2)
    gone = attrs.evolve(RUN, recording_id=9)
    write_gold(lake, "runs", gold.table_of([more, gone], gold.RUNS), 1)
    findings = read_findings(lake)
    (session,) = findings.sessions
    assert (session.run.messages, session.run.end_position, session.seconds) == (105, 7_000, 5.0)
    # Two inside, and one between the batches.
    assert findings.inner_gaps == 3


@pytest.mark.parametrize(("stop_ms", "seconds"), [(8_000, 8.0), (-8_000, 0.0), (None, 0.0)])
def test_without_times_of_messages_the_catalog_says_how_long(
    lake: Lake, stop_ms: int | None, seconds: float
) -> None:
    run = attrs.evolve(RUN, first_ns=None, last_ns=None)
    write_gold(lake, "runs", gold.table_of([run], gold.RUNS))
    stop = -1 if stop_ms is None else RECORDING["start_timestamp_ms"] + stop_ms
    recording = RECORDING | {"stop_timestamp_ms": stop}
    rows = pa.Table.from_pylist([recording], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", rows)
    assert read_findings(lake).sessions[0].seconds == seconds
    assert "Sessions" in render_report(lake, NOW_MS)


@pytest.mark.parametrize(("span", "step"), [(1, 1), (599, 1), (600, 2), (10**6, 1_800)])
def test_long_times_are_put_together(span: int, step: int) -> None:
    found, lines = rates_of(rates((1, 0, step), (1, span, 3 * step)))
    assert found == step
    assert (lines[1][0], lines[1][-1][1]) == ((0, 1.0, 32.0), 3.0)
    assert len(lines[1]) == span // step + 1 <= 601


def test_years_are_put_together_by_days() -> None:
    step, lines = rates_of(rates((1, 0, 1), (1, 10**9, 1)))
    assert step % 86_400 == 0
    assert len(lines[1]) <= 601


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        render_report(Lake(tmp_path / "none"), NOW_MS)
    (tmp_path / "gold").mkdir()
    with pytest.raises(ConfigurationError, match="no messages"):
        render_report(Lake(tmp_path), NOW_MS)


def test_the_command_writes_the_page_and_says_where(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out" / "report.html"
    assert main(["pipeline", "report", str(lake.root), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert output.read_text().startswith("<!doctype html>")
    assert main(["pipeline", "report", str(tmp_path / "none")]) == 2
    assert "no directory" in capsys.readouterr().err
    assert main(["pipeline", "report", str(lake.root), "-o", str(tmp_path)]) == 2
    assert "is a directory: name a file" in capsys.readouterr().err


def test_without_jinja_the_command_says_what_to_install(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["pipeline", "report", str(lake.root)]) == 2
    error = capsys.readouterr().err
    assert "jinja2 is not installed: pip install 'aeron-async[spark]'" in error


def test_axes_have_round_numbers() -> None:
    assert [value for value, _ in linear_ticks(430, str)] == [0, 200, 400, 600]
    assert [text for _, text in linear_ticks(0, format_ns)] == ["0 ns", "1 ns"]
    assert [text for _, text in log_ticks(30, 4_000, format_ns)] == [
        "10 ns",
        "100 ns",
        "1 \N{GREEK SMALL LETTER MU}s",
        "10 \N{GREEK SMALL LETTER MU}s",
    ]
    assert (Axis(0, 10, []).place(-5), Axis(0, 10, []).place(50)) == (0.0, 1.0)
    assert format_amount(1_500, "B") == "1.5 kB"


def test_a_line_without_points_is_none() -> None:
    plot = Plot("x", Axis(0, 1, []), Axis(0, 1, []))
    plot.line([], 0, "nothing")
    assert "path" not in plot.svg()


def test_a_page_draws_what_strangers_wrote_and_years_that_no_calendar_has(tmp_path: Path) -> None:
    """The same, on the page."""
    lake = Lake(tmp_path / "lake")
    far_s = 9_404_879_817_600
    hostile = {
        "channel": "aeron:udp?alias=[/x]\x1b[2J\u202e" + "<i>" * 20_000,
        "source_identity": "\x07<b>host</b>",
        "start_timestamp_ms": far_s * 1_000,
        "stop_timestamp_ms": far_s * 1_000 + 1,
    }
    recordings = pa.Table.from_pylist([RECORDING | hostile], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", recordings)
    write_gold(lake, "runs", gold.table_of([RUN], gold.RUNS))
    write_gold(lake, "rates_second", rates((1001, far_s, 60), (1001, far_s + 4, 40)))
    page = render_report(lake, NOW_MS)
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page) is None
    assert "aeron:udp?alias=[/x]\\x1b[2J\\u202e&lt;i&gt;" in page
    assert "more characters)" in page
    assert "<i>" not in page
    assert f"{far_s * 1_000}ms-after-1970(not-in-years-1-to-9999)" in page
    assert len(pictures(page)) == 2
