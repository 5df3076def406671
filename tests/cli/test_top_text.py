"""The lines of the live view: as wide as the screen, and harmless whatever strangers wrote."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_async.cli.output import as_json
from aeron_async.cli.top import TopOptions, plain_lines
from aeron_async.cli.top_model import TopModel
from aeron_async.cli.top_pages import detail_lines, driver_lines, help_lines
from aeron_async.cli.top_scene import TopScene, arranged, json_of_driver
from aeron_async.cli.top_text import (
    columns_for,
    columns_of,
    compact,
    fit,
    head_line,
    header_lines,
    panel_lines,
    row_line,
)
from aeron_async.stats import (
    BudgetStats,
    CycleStats,
    LossStats,
    ReceiverStats,
    SocketStats,
    Stats,
)
from tests.cli.top_worlds import (
    SUBSCRIPTION,
    WORLDS,
    TopWorld,
    driver,
    healthy,
    image,
    publication,
    slow_reader,
    stats,
)
from tests.examples.pages import DOCS, blocks_of
from tests.snapshots import RECORDING, archive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.cli.top_text import Line

EXAMPLES: Final = int(os.environ.get("AERON_ASYNC_EXAMPLES", "25"))
PLAIN: Final = TopOptions(
    interval=1,
    count=None,
    once=True,
    json=False,
    plain=True,
    sort="trouble",
    is_reversed=False,
    pattern="",
)
NASTY: Final = "\x1b]0;owned\x07\x1b[2J[/x][red]\u202e\u2066\x9b31m\x00\r\n\ud800" + "\u0301" * 9


def text(line: Line) -> str:
    return "".join(each for each, _ in line)


def said(lines: Sequence[Line]) -> str:
    return " ".join(" ".join(map(text, lines)).split())


def scene_of(*snapshots: Stats) -> TopScene:
    model = TopModel()
    for each in snapshots:
        model.on_stats(each)
    return model.scene()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((None, "-"), (0, "0"), (0.04, "0.0"), (2, "2"), (2.5, "2.5"), (9.96, "10"), (999, "999")),
        *(
            (999.6, "1.0k"),
            (1_000, "1.0k"),
            (99_960, "100k"),
            (999_600, "1.0M"),
            (1_234_567, "1.2M"),
        ),
        *((-5, "-5"), (2**62, "4611686T")),
    ],
)
def test_numbers_are_compact(value: float | None, shown: str) -> None:
    assert compact(value) == shown


@pytest.mark.parametrize(
    ("word", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc~"),
        ("日本語", 7, "日本語 "),
        ("日本語", 5, "日本~"),
        ("日本語", 4, "日~ "),
        ("e\u0301" * 3, 3, "eee"),
        ("abc", 0, ""),
    ],
)
def test_a_text_takes_its_columns(word: str, width: int, shown: str) -> None:
    assert fit(word, width) == shown
    assert fit("a", 3, is_right=True) == "  a"


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 120, 160, 200, 300])
@pytest.mark.parametrize("has_drivers", [False, True])
def test_columns_fit_every_screen(width: int, has_drivers: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    columns = columns_for(width, has_drivers=has_drivers)
    names = [each.name for each, _ in columns]
    assert sum(each for _, each in columns) + len(columns) - 1 <= width
    assert {"", "stream"} <= {*names}
    if width >= 60:
        assert {"B/s", "cause", "lag B", "lost/s"} <= {*names}
    if width >= 79:
        assert "channel" in names
        assert ("driver" in names) == has_drivers
    if width >= 200:
        assert {"rate", "lag", "state", "nak/s", "session", "msg/s", "blk"} <= {*names}
        assert {each.name: size for each, size in columns}["cause"] >= 60


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_list_and_detail_name_stream_cause_and_remedy(world: TopWorld, width: int) -> None:
    scene = scene_of(world.take(1), world.take(2))
    rows = arranged(scene)
    troubled = next(each for each in rows if each.key.kind != "drv")

    line = text(row_line(troubled, columns_for(width)))
    assert line.startswith(world.kind)
    assert str(troubled.stream_id) in line
    assert (world.word in line) if width == 80 else (world.sentence[:40] in line)
    assert world.remedy[:20] in said(panel_lines(troubled, width))

    printed = said(plain_lines(scene, rows, PLAIN, width))
    detail = said(detail_lines(scene, troubled, width))
    for page in (printed, detail):
        assert world.sentence in page
        assert world.remedy in page
    assert f"cause {world.word}: " in detail


def test_the_head_says_whether_it_is_the_driver() -> None:
    scene = scene_of(healthy(1), healthy(2))
    assert text(header_lines(scene, 80)[0]).rstrip() == (
        "driver 42  loop ok  drops 0  limits 0  blocked 0/2  in 0B/s  out 0B/s"
    )
    late = scene_of(*(WORLDS["blocked loop"].take(at) for at in (1, 2)))
    assert "loop late 312 ms" in said(header_lines(late, 80))
    full = scene_of(*(WORLDS["full budget"].take(at) for at in (1, 2)))
    assert "limits 2" in said(header_lines(full, 80))
    held = scene_of(slow_reader(1), slow_reader(2))
    assert "blocked 1/3" in said(header_lines(held, 80))
    folded = header_lines(held, 40, "FROZEN")
    assert len(folded) == 3
    assert said(folded).endswith("FROZEN")
    assert said(header_lines(scene_of(healthy(1)), 80)) == "driver 42 first look"


def test_the_head_has_room_for_some_drivers_only() -> None:
    model = TopModel()
    for name in "abcdef":
        model.on_failure(name, "not there")
    model.on_stats(healthy(1), "a")
    model.on_failure("a", "gone")
    lines = [text(each).rstrip() for each in header_lines(model.scene(), 80)]
    assert lines[:2] == ["driver 42  a  does not answer: gone", "b: not there"]
    assert lines[-1] == "and 2 more drivers"


def test_a_driver_that_does_not_answer_says_why_in_whole_and_nothing_of_the_past() -> None:
    model = TopModel()
    for at in (1, 2):
        model.on_stats(healthy(at), "/run/app/stats.sock")
    why = (
        "nobody listens at /run/app/stats.sock: the process that has opened it has ended or "
        "closed it; start it again, or name the socket of another process with --door"
    )
    model.on_failure("/run/app/stats.sock", why)
    lines = header_lines(model.scene(), 60)
    assert said(lines) == f"driver 42 does not answer: {why}"
    assert {len(text(each)) for each in lines} == {60}
    silent = TopModel()
    silent.on_failure("/run/app/stats.sock", why)
    assert said(header_lines(silent.scene(), 60)) == f"/run/app/stats.sock: {why}"


def test_the_end_of_a_long_path_is_shown_and_its_cut_is_no_home_directory() -> None:
    model = TopModel()
    for name in ("/run/a/very/long/path/to/stats.sock", "/b"):
        for at in (1, 2):
            model.on_stats(healthy(at), name)
    line, ascii_line = (
        text(header_lines(model.scene(), 120, is_ascii=is_ascii)[0]) for is_ascii in (False, True)
    )
    assert "driver 42  …long/path/to/stats.sock  " in line
    assert "driver 42  ...ng/path/to/stats.sock  " in ascii_line
    assert "~" not in line + ascii_line


@pytest.mark.parametrize(
    ("sort", "marked", "ascii_marked"),
    [
        ("trouble", " cause▼ ", " cause v "),
        ("rate", " B/s▼ ", " B/s v "),
        ("lag", " lag B▼ ", " lagB v "),
        ("loss", " lost▼ ", " lost v "),
        ("blocked", " blk▼ ", " blk v "),
        ("stream", " stream▼ ", " stream v "),
        ("channel", " channel▼ ", " channel v "),
    ],
)
@pytest.mark.parametrize("width", [80, 200])
def test_the_mark_of_the_order_can_be_told_from_the_name(
    sort: str, marked: str, ascii_marked: str, width: int
) -> None:
    columns = columns_for(width)
    lines = [text(head_line(columns, sort)), text(head_line(columns, sort, is_ascii=True))]
    assert marked in f"{lines[0]} "
    assert ascii_marked in f"{lines[1]} "
    assert lines[1].isascii()
    turned = head_line(columns, sort, is_reversed=True)
    assert text(turned) == lines[0].replace("▼", "▲")
    turned = head_line(columns, sort, is_reversed=True, is_ascii=True)
    assert text(turned).rstrip() == f"{lines[1]} ".replace(" v ", " ^ ").rstrip()


def test_one_rate_has_no_bars() -> None:
    scene = scene_of(healthy(1), healthy(2))
    for once in (True, False):
        lines = plain_lines(scene, arranged(scene), attrs.evolve(PLAIN, once=once), 200)
        assert (" rate " in text(lines[1])) is not once
        assert any("█" in text(each) for each in lines) is not once


def test_the_page_of_a_driver_has_budgets_limits_cycles_and_sockets() -> None:
    busy = driver(
        budgets=(BudgetStats("image_logs_bytes", 950_000, 1_000_000),),
        limits={"naks_withheld": 7},
        counters={"bytes_sent": 5_000, "errors": 0},
        sockets=(SocketStats("10.0.0.1:1", 3, None, None),),
        is_pure=True,
    )
    scene = scene_of(healthy(1), stats(2, driver=busy))
    page = said(driver_lines(scene, scene.drivers[0], 100))
    for part in (
        "version 1.2.3, pure Python, from its own statistics",
        "950,000 1,000,000 95% image_logs_bytes",
        "7 7 naks_withheld",
        "5.00 μs 0 sender",
        "3 - - 10.0.0.1:1",
        "5,000 bytes_sent",
        "limit naks_withheld was reached",
        "raise AERON_ASYNC_MAX_NAKS_PER_SECOND",
    ):
        assert part in page
    assert "errors" not in page
    silent = TopModel()
    silent.on_failure("/a", "not there")
    lines = driver_lines(silent.scene(), silent.scene().drivers[0], 80)
    assert said(lines) == "driver /a: not there"


def test_the_page_of_a_stream_has_its_receivers_and_its_events() -> None:
    scene = scene_of(healthy(1), slow_reader(2), slow_reader(3))
    held = next(each for each in scene.rows if each.stream_id == 1001)
    page = said(detail_lines(scene, held, 100))
    assert "publication 1001, session -7, id 1, driver 42" in page
    assert "receiver 0b 3,000 7,000 0 5 ns 10.0.0.2:4000" in page
    assert "22:13:22 publication 1001, session -7, waits for sender_limit" in page
    assert "100% by sender_limit" in page
    assert "publication 11," not in page


def test_many_events_are_shown_by_their_end() -> None:
    scene = scene_of(
        *(stats(at, [publication(at, is_connected=at % 2 == 0)]) for at in range(1, 200))
    )
    page = said(detail_lines(scene, scene.rows[0], 80))
    assert page.count(" is connected") == 50
    assert "98 older ones" in page


def test_the_help_explains_the_score() -> None:
    page = said(help_lines(80))
    assert "trouble 3 offers wait, data is late by seconds" in page


def test_the_sample_in_the_docs_is_what_is_printed() -> None:
    (sample,) = [each for each in blocks_of(DOCS / "howto" / "top.md") if each.language == "text"]
    scene = scene_of(slow_reader(1), slow_reader(2))
    lines = plain_lines(scene, arranged(scene), PLAIN, 80)
    assert sample.text.splitlines() == [text(each).rstrip() for each in lines]
    assert max(map(len, sample.text.splitlines()[:5])) <= 80


# Strangers.


hostile = st.text(max_size=40) | st.sampled_from([NASTY, "x" * 70_000, "\u202e" * 200, "[/x]", ""])


def hostile_stats(at: int, words: list[str]) -> Stats:
    channel, state, address, cause, name, blocked = words
    recording = attrs.evolve(RECORDING, channel=channel, state=state)
    made = stats(
        at,
        [
            publication(
                at,
                channel=channel,
                state=state if at > 1 else "active",
                blocked_by=blocked,
                receivers=(ReceiverStats(name, address, address, 0, 0, 0, at),),
                blocked_sender_limit_ns=at * 500_000_000,
            )
        ],
        [
            image(
                at,
                channel=channel,
                source=address,
                lag_ns=at * 10**9,
                losses=(LossStats(cause, at, at), LossStats("gap", at, at)),
            )
        ],
        [attrs.evolve(SUBSCRIPTION, channel=channel, image_count=0)],
        driver=driver(
            version=name,
            limits={name: at},
            budgets=(BudgetStats(name, 100, 100),),
            sockets=(SocketStats(address, at, 0, 0),),
            cycles=(CycleStats(name, 1, 1),),
            counters={name: at},
        ),
    )
    return made.with_archive(archive(recording))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(hostile, min_size=6, max_size=6), st.text(max_size=20), st.integers(20, 210))
def test_what_strangers_wrote_is_harmless_and_never_wider_than_the_screen(
    words: list[str], place: str, width: int
) -> None:
    model = TopModel()
    for at in (1, 2):
        model.on_stats(hostile_stats(at, words), place, remark=words[1])
    model.on_failure(place, words[0])
    scene = model.scene()
    columns = columns_for(width, has_drivers=True)
    exact = [row_line(each, columns) for each in scene.rows]
    pages = [*header_lines(scene, width, words[0]), *driver_lines(scene, scene.drivers[0], width)]
    for each in scene.rows:
        pages += panel_lines(each, width)
        pages += detail_lines(scene, each, width)
    wide = sum(each for _, each in columns) + len(columns) - 1
    assert {cells(text(each)) for each in exact} == {wide}
    for line in pages + exact:
        shown = text(line)
        assert shown.isprintable()
        assert cells(shown) <= width
    for line in plain_lines(scene, scene.rows, PLAIN, width):
        assert text(line).isprintable()
        assert len(text(line)) < 4_000
    for event in scene.events:
        assert event.text.isprintable()
    written = as_json(json_of_driver(scene, place, scene.rows))
    assert written.isascii()
    assert written.isprintable()
    rows = json.loads(written)["rows"]
    assert {each["channel"] for each in rows} == {words[0], place}


def cells(shown: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(columns_of, shown))
