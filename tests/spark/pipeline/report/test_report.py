"""The report: whole without anything beside it, whatever was found, and whatever it is called."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import attrs
import pyarrow as pa
import pytest

from aeron_async.cli.main import main
from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import NEGATIVE, bin_of
from aeron_async.spark.pipeline.report import ReportRange, render_report
from aeron_async.spark.pipeline.report.drawings import (
    DRAWN_RECORDINGS,
    MOST_LINES,
    MOST_MARKS,
    gap_plot,
)
from aeron_async.spark.pipeline.report.gaps import Gaps
from aeron_async.spark.pipeline.report.plots import (
    Axis,
    Plot,
    duration_axis,
    format_amount,
    format_ns,
    format_share,
    linear_ticks,
    time_axis,
)
from aeron_async.spark.pipeline.report.steps import Steps
from aeron_async.spark.pipeline.runs import GapKind
from tests.spark.pipeline.local import write_gold
from tests.spark.pipeline.report.lakes import (
    BEGAN_NS,
    BEGAN_S,
    GAP,
    NOW_MS,
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

if TYPE_CHECKING:
    from pathlib import Path

MINUTE = BEGAN_S // 60
HOSTILE = "[/x]\x1b[2J\u202e</style></title><script>alert(1)</script>\"'" + "<i>" * 20_000
EVERY_PLOT = [
    "msg/s over time",
    "B/s over time",
    "gaps over time",
    "messages in quarantine over time",
    "latency by percentile",
    "quotes: <sent> to timestamp_ns over time",
    "lag of the lake over time",
    "messages by length",
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake & co")
    recordings = pa.Table.from_pylist([RECORDING], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", recordings)
    write_gold(lake, "runs", gold.table_of([RUN], gold.RUNS))
    return lake


def fill(lake: Lake, name: str = "quotes: <sent> to timestamp_ns") -> None:
    """Write what makes every part of a page; a stranger has chosen the name."""
    write_rates(lake, rates((1001, BEGAN_S, 60), (1001, BEGAN_S + 4, 40), (5, BEGAN_S + 2, 1)))
    values = {bin_of(1_000): 90, bin_of(5_000_000): 10, NEGATIVE: 3}
    write_gold(lake, "latency", latencies(name, values))
    gaps = [GAP, attrs.evolve(GAP, kind=name, name=name)]
    write_gold(lake, "gaps", gold.table_of(gaps, gold.GAPS))
    write_gold(lake, "lengths", lengths((1001, MINUTE, 32, 100)))
    rows = decoded((name, "", 1001, MINUTE, 95), ("", name, 1001, MINUTE, 5))
    write_gold(lake, "decoded", rows)
    write_batches(lake, (BEGAN_NS + 6 * 10**9, BEGAN_NS, BEGAN_NS + 5 * 10**9))


def page_of(lake: Lake, shown: ReportRange | None = None) -> str:
    report = render_report(lake, NOW_MS, shown or ReportRange())
    assert report.is_empty == ("There are no messages" in report.page)
    return report.page


def pictures(page: str) -> list[ET.Element]:
    found = re.findall(r"<svg (?!class).*?</svg>", page, re.DOTALL)
    return [ET.fromstring(each) for each in found]  # noqa: S314 - drawn by ourselves, just now


def check_alone(page: str) -> None:
    """Check that a page asks for nothing, runs nothing, and has no element of a stranger."""
    assert not re.search(r"<script|https?:|src=|@import|url\(|javascript:| on\w+=", page)
    assert set(re.findall(r'href="(.)', page)) <= {"#"}
    assert set(re.findall(r'href="#(\w+)"', page)) <= set(re.findall(r' id="(\w+)"', page))
    assert page.count("<style>") == page.count("</style>") == page.count("</title>\n<style>") == 1
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page) is None
    for tag in ("table", "section", "details", "figure", "ul", "thead", "tbody", "tr"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>")


def test_a_page_needs_nothing_beside_it_and_escapes_what_it_shows(lake: Lake) -> None:
    fill(lake)
    page = page_of(lake)
    check_alone(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;host&lt;/b&gt;:1" in page
    assert "quotes: &lt;sent&gt; to" in page
    assert "lake &amp; co" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert [each.get("aria-label") for each in pictures(page)] == EVERY_PLOT
    for each in ("100", "2030-03-17", "20 msg/s", "640 B/s", "sequence (1)", "5.01 ms"):
        assert each in page
    assert "<b>5</b> <span>in quarantine</span>" in page
    assert "<b>1 s</b> <span>lag of the last batch</span>" in page
    # Every table but those that a summary or a heading names has a caption.
    assert page.count("<caption>") == 6


def test_a_page_draws_what_strangers_wrote_and_years_that_no_calendar_has(lake: Lake) -> None:
    fill(lake, HOSTILE)
    far_s = 9_200_000_000
    hostile = {
        "channel": f"aeron:udp?alias={HOSTILE}",
        "source_identity": "\x07<b>host</b>",
        "start_timestamp_ms": 9_404_879_817_600_000,
        "stop_timestamp_ms": 9_404_879_817_600_001,
    }
    recordings = pa.Table.from_pylist([RECORDING | hostile], schema=gold.RECORDINGS)
    write_gold(lake, "recordings", recordings)
    write_rates(lake, rates((1001, 9_404_879_817_600, 60), (1001, -far_s, 40)), 1)
    first_ns, last_ns = -far_s * 10**9, far_s * 10**9
    gap = attrs.evolve(GAP, before_ns=first_ns, after_ns=last_ns)
    write_gold(lake, "gaps", gold.table_of([gap], gold.GAPS), 1)
    run = attrs.evolve(RUN, first_ns=first_ns, last_ns=last_ns)
    write_gold(lake, "runs", gold.table_of([run], gold.RUNS), 1)
    write_gold(lake, "latency", latencies("x", {bin_of(2**63 - 1): 1}, 2**63 - 1), 1)
    write_batches(lake, (BEGAN_NS, first_ns, last_ns), batch=1_001)
    page = page_of(lake)
    check_alone(page)
    assert "aeron:udp?alias=[/x]\\x1b[2J\\u202e&lt;/style&gt;" in page
    assert "more characters)" in page
    assert "<i>" not in page
    assert "9404879817600000ms-after-1970(not-in-years-1-to-9999)" in page
    assert len(pictures(page)) == len(EVERY_PLOT) + 1
    assert len(page) < 1 << 20


def test_what_nobody_asked_for_is_said_to_be_missing(lake: Lake) -> None:
    page = page_of(lake)
    check_alone(page)
    for each in ("--timestamp-from", "--latency", "--decode", "No gaps were found"):
        assert each in page
    assert "lag is not known" in page
    assert "lengths are not known" in page
    assert pictures(page) == []


def test_latencies_that_are_all_below_zero_have_no_plot(lake: Lake) -> None:
    write_gold(lake, "latency", latencies("x", {NEGATIVE: 2}))
    page = page_of(lake)
    assert pictures(page) == []
    assert '<th scope="row" class="text">x</th><td>0</td>' in page


def test_one_message_can_be_drawn(lake: Lake) -> None:
    write_gold(lake, "latency", latencies("x", {0: 1}))
    write_gold(lake, "lengths", lengths((1001, MINUTE, 0, 1)))
    write_gold(lake, "decoded", decoded(("", "too short", 1001, MINUTE, 1)))
    write_rates(lake, rates((1001, BEGAN_S, 1)))
    write_batches(lake, (BEGAN_NS - 1_000, BEGAN_NS, BEGAN_NS))
    page = page_of(lake)
    assert len(pictures(page)) == 7
    # Clocks that disagree.
    assert "-1 \N{GREEK SMALL LETTER MU}s</b>" in page


def test_an_empty_range_is_told(lake: Lake) -> None:
    fill(lake)
    shown = ReportRange(BEGAN_S - 7_200, BEGAN_S - 3_600, (1001,))
    page = page_of(lake, shown)
    check_alone(page)
    text = "from 2027-01-15 06:00 UTC until 2027-01-15 07:00 UTC of stream 1001"
    assert f"There are no messages {text}." in page
    assert "The lake has messages from 2027-01-15 08:00 UTC until 2027-01-15 08:01 UTC." in page
    assert pictures(page) == []


def test_a_lake_without_times_says_why_a_range_is_empty(lake: Lake) -> None:
    run = attrs.evolve(RUN, first_ns=None, last_ns=None)
    write_gold(lake, "runs", gold.table_of([run], gold.RUNS))
    page = page_of(lake, ReportRange(BEGAN_S, None, (1, 2)))
    assert "There are no messages from 2027-01-15 08:00 UTC of streams 1, 2." in page
    assert "--timestamp-from" in page


def test_a_range_is_named(lake: Lake) -> None:
    fill(lake)
    page = page_of(lake, ReportRange(None, BEGAN_S + 60, (1001, 5)))
    check_alone(page)
    assert "until 2027-01-15 08:01 UTC of streams 1001, 5</p>" in page
    assert [each.get("aria-label") for each in pictures(page)] == EVERY_PLOT
    assert "with those of all streams" in page


def test_gaps_are_folded_and_the_first_ones_listed(lake: Lake) -> None:
    gap = attrs.evolve(GAP, kind=GapKind.PADDING, name="", before_ns=None, after_ns=None)
    gaps = [attrs.evolve(gap, position=64 * each) for each in range(260)]
    write_gold(lake, "gaps", gold.table_of(gaps, gold.GAPS))
    write_gold(lake, "runs", gold.table_of([attrs.evolve(RUN, gaps=1_300)], gold.RUNS))
    page = page_of(lake)
    check_alone(page)
    # They have no time, so there is no timeline.
    assert pictures(page) == []
    assert "padding (260)" in page
    assert "<details>\n<summary>The first 200 of 260 gaps, in order of time</summary>" in page
    assert "And 60 more" in page
    assert "1,040 of 1,300 gaps are counted only" in page
    assert len(re.findall(r'<td class="text">padding</td>', page)) == 200


def test_long_gaps_are_as_long_as_they_were(lake: Lake) -> None:
    write_rates(lake, rates((1001, BEGAN_S, 1)))
    gap = attrs.evolve(GAP, kind=GapKind.MISSING, after_ns=BEGAN_NS + 600 * 10**9)
    last_ns = BEGAN_NS + 3_600 * 10**9
    write_gold(lake, "runs", gold.table_of([attrs.evolve(RUN, last_ns=last_ns)], gold.RUNS))
    write_gold(lake, "gaps", gold.table_of([gap, GAP], gold.GAPS))
    drawn = pictures(page_of(lake))[2]
    (bar,) = drawn.findall("rect")
    assert "lasted 9.98 min" in "".join(bar.itertext())
    # As much of the plot as it lasted.
    assert float(bar.get("width", "0")) == pytest.approx(780 * 599 / 3_600, abs=0.1)


def test_many_gaps_are_drawn_together() -> None:
    marks = {
        (recording_id, kind, place): 1 + place % 7
        for recording_id in range(DRAWN_RECORDINGS + 5)
        for kind in ("a", "b")
        for place in range(360)
    }
    gaps = Gaps(listed=None, summaries=[], marks=marks, first=[], longest=[])  # type: ignore[arg-type]
    (drawn,) = pictures(gap_plot(Steps.of(0, 360 * 86_400), gaps, ["a", "b"]))
    marked = drawn.findall("path")
    assert len(marked) <= MOST_MARKS
    counts = [re.search(r": ([0-9,]+) of kind", "".join(each.itertext())) for each in marked]
    drawn_gaps = sum(int(each[1].replace(",", "")) for each in counts if each is not None)
    assert drawn_gaps == sum(marks.values())
    assert "5 others" in "".join(drawn.itertext())


def test_streams_beyond_the_colours_share_a_line(lake: Lake) -> None:
    write_rates(lake, rates(*((each, BEGAN_S, 1 + each) for each in range(MOST_LINES + 3))))
    drawn, _ = pictures(page_of(lake))
    lines = [each for each in drawn.findall("path") if "line" in each.get("class", "")]
    names = ["".join(each.itertext()) for each in lines]
    assert len(names) == MOST_LINES
    assert names[-1] == "4 other streams"
    # The sum of the four streams with the fewest messages, in a second of six.
    (strip, *_) = drawn.findall("rect")
    assert "4 other streams: 10 msg/s" in "".join(strip.itertext())


def test_a_page_of_a_year_is_as_long_as_one_of_a_day(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_year(lake, 4)
    began = BEGAN_S + 86_400
    year, day = page_of(lake), page_of(lake, ReportRange(began, began + 86_400))
    assert abs(len(year) - len(day)) < len(day) / 2
    assert "Means for each 12 hours" in year
    assert "Means for each 5 minutes" in day


def test_the_command_writes_the_page_and_says_where(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out" / "report.html"
    command = ["pipeline", "report", str(lake.root)]
    assert main([*command, "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert output.read_text().startswith("<!doctype html>")
    given = ["--since", "2027-01-15", "--until", "2027-01-15T09:00", "--stream", "7", "-s", "8"]
    assert main([*command, "-o", str(output), *given]) == 0
    said = capsys.readouterr()
    assert (said.out, "there are no messages in this range" in said.err) == (f"{output}\n", True)
    wanted = "from 2027-01-15 00:00 UTC until 2027-01-15 09:00 UTC of streams 7, 8"
    assert wanted in output.read_text()
    assert main([*command, "--since", "2027"]) == 2
    assert "is no time" in capsys.readouterr().err
    assert main([*command, "--stream", str(2**31)]) == 2
    assert "stream" in capsys.readouterr().err.lower()
    assert main(["pipeline", "report", str(tmp_path / "none")]) == 2
    assert "no directory" in capsys.readouterr().err
    assert main([*command, "-o", str(tmp_path)]) == 2
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
    assert [text for _, text in duration_axis(30, 4_000).ticks] == [
        "10 ns",
        "100 ns",
        "1 \N{GREEK SMALL LETTER MU}s",
        "10 \N{GREEK SMALL LETTER MU}s",
    ]
    assert [text for _, text in duration_axis(2e9, 5e12).ticks] == [
        "1 s",
        "10 s",
        "1 min",
        "10 min",
        "1 h",
        "10 h",
    ]
    assert [text for _, text in duration_axis(1, 1).ticks] == ["1 ns", "10 ns"]
    assert duration_axis(1e30, 1e31).place(2e31) == 1.0
    assert (Axis(0, 10, []).place(-5), Axis(0, 10, []).place(50)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("length", "first", "count"),
    [
        (1, "08:00:01", 0),
        (60, "08:00:10", 5),
        (3_600, "08:10", 5),
        (86_400, "09:00", 8),
        (3 * 86_400, "15 Jan 12:00", 6),
        (30 * 86_400, "21 Jan", 4),
        (1_000 * 86_400, "26 Feb 2027", 8),
    ],
)
def test_an_axis_of_time_has_a_few_round_times(length: int, first: str, count: int) -> None:
    ticks = [text for _, text in time_axis(BEGAN_S, BEGAN_S + length).ticks]
    assert (ticks[:1], len(ticks)) == ([first] if count else [], count)


def test_numbers_are_short() -> None:
    assert format_amount(1_500, "B") == "1.5 kB"
    assert format_amount(1.5e16, "B") == "15 PB"
    assert [format_ns(each) for each in (5, -90e9, 86_400e9 * 20_000, 7.3e12)] == [
        "5 ns",
        "-1.5 min",
        "20,000 d",
        "2.03 h",
    ]
    shares = [format_share(part, 10**6) for part in (0, 1, 999_999, 10**6, 123_456)]
    assert shares == ["0 %", "< 0.01 %", "> 99.99 %", "100 %", "12.35 %"]
    assert format_share(0, 0) == ""


def test_a_line_without_points_is_none() -> None:
    plot = Plot("x", Axis(0, 1, []), Axis(0, 1, []))
    plot.line([], 0, "nothing")
    plot.area([], [], 0, "nothing")
    assert "path" not in plot.svg()
