"""The application of `aeron-async top`, by its keys, on a screen in memory."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest

pytest.importorskip("textual", reason="pip install 'aeron-async[top]'")

from textual.drivers.headless_driver import HeadlessDriver

from aeron_async.cli import top as command
from aeron_async.cli.top_app import Lines, TopApp
from aeron_async.cli.top_model import TopModel
from aeron_async.stats import ImageStats, LossStats, PublicationStats, Stats, Table
from tests.cli.top_worlds import (
    WORLDS,
    FakeSource,
    TopWorld,
    healthy,
    image,
    publication,
    slow_reader,
    stats,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from textual.pilot import Pilot

SIZES = [(80, 24), (200, 50)]


class Screen:
    """The running application, whose looks the test makes."""

    def __init__(self, sources: list[FakeSource]) -> None:
        self.sources = sources
        self.model = TopModel()
        self.drivers = command.Looks(self.model, sources)
        self.looks: asyncio.Queue[None] = asyncio.Queue()
        self.looked = asyncio.Event()
        self.app = TopApp(self.model, self._look, pause=self._pause)
        self.pilot: Pilot[int]

    async def _pause(self, _seconds: float) -> None:
        self.looked.set()
        await self.looks.get()

    async def _look(self) -> None:
        await self.drivers.look()

    async def look(self) -> None:
        """Have the application look once more, and draw."""
        await self.pilot.pause()
        self.looked.clear()
        self.looks.put_nowait(None)
        await self.looked.wait()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*({" ": "space", "/": "slash", ".": "full_stop"}.get(e, e) for e in text))

    @property
    def lines(self) -> list[str]:
        """Return what the screen shows."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(each.text for each in strip) for strip in strips]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.lines).split())

    @property
    def body(self) -> Lines:
        return self.app.query_one("#body", Lines)


@asynccontextmanager
async def running(
    *takes: Callable[[float], Stats], size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Screen]:
    sources = [FakeSource(take, f"/run/{place}") for place, take in enumerate(takes)]
    screen = Screen(sources)
    await screen.drivers.look()
    async with screen.app.run_test(size=size) as pilot:
        screen.pilot = pilot
        await screen.look()
        yield screen


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
async def test_list_and_detail_name_stream_cause_and_remedy(
    world: TopWorld, size: tuple[int, int]
) -> None:
    async with running(world.take, size=size) as screen:
        listed = [each for each in screen.lines if each.startswith((world.kind, "drv"))]
        row = next(each for each in listed if each.startswith(world.kind))
        assert (world.word in row) if size[0] == 80 else (world.sentence[:40] in row)
        if listed[0].startswith("drv"):
            await screen.press("down")
        assert world.sentence[:60] in screen.text
        assert world.remedy[:30] in screen.text
        await screen.press("enter")
        assert world.sentence in screen.text
        assert world.remedy in screen.text
        assert f"id {world.registration_id}, driver /run/0" in screen.text


@pytest.mark.parametrize("size", [*SIZES, (40, 10), (20, 5)], ids=str)
async def test_no_line_is_wider_than_the_screen(size: tuple[int, int]) -> None:
    async with running(slow_reader, size=size) as screen:
        for keys in ([], ["enter"], ["escape", "d"], ["question_mark"]):
            await screen.press(*keys)
            assert {len(each) for each in screen.lines} == {size[0]}
            assert len(screen.lines) == size[1]


async def test_the_screen_follows_a_resize() -> None:
    async with running(slow_reader) as screen:
        await screen.pilot.resize_terminal(200, 50)
        await screen.pilot.pause()
        await screen.pilot.pause()
        assert len(screen.lines[0]) == 200
        assert "receiver 0b at 10.0.0.2:4000 holds it back" in screen.lines[2]
        await screen.pilot.resize_terminal(80, 24)
        await screen.pilot.pause()
        await screen.pilot.pause()
        assert len(screen.lines) == 24
        assert "sender_limit" in screen.lines[2]


async def test_the_cursor_follows_its_stream_and_stays_where_one_has_gone() -> None:
    count = 3

    def take(at: float) -> Stats:
        lost = (LossStats("gap", int(at), int(at) * 1_000),)
        rows = [
            image(at, registration_id=each, stream_id=each, losses=lost if each == worst else ())
            for each in range(1, count + 1)
        ]
        return stats(at, images=rows)

    worst = 0
    async with running(take) as screen:
        await screen.press("down", "down")
        assert screen.body.cursor == 2
        assert "img 3 session" in screen.text
        worst = 3
        await screen.look()
        assert screen.body.cursor == 0
        assert "img 3 session" in screen.text
        await screen.press("end")
        assert "img 2 session" in screen.text
        count = 1
        await screen.look()
        assert "img 1 session" in screen.text
        await screen.press("up", "up", "home", "pageup", "pagedown")
        assert screen.body.cursor == 0


async def test_keys_sort_reverse_and_filter() -> None:
    async with running(WORLDS["two percent"].take) as screen:
        assert "cause▼" in screen.lines[1]
        await screen.press("s")
        assert "sorted by rate" in screen.lines[-1]
        assert "B/s▼" in screen.lines[1]
        await screen.press("r")
        assert "B/s▲" in screen.lines[1]
        await screen.press("slash")
        await screen.type("gap 1001")
        await screen.press("enter")
        assert "filter: gap 1001" in screen.lines[1]
        assert [each[:3] for each in screen.lines[3:6]] == ["img", "   ", "   "]
        await screen.press("slash", *["backspace"] * 9, "x", "enter")
        assert "no rows match the filter" in screen.text
        await screen.press("enter", "escape")
        assert "filter" not in screen.lines[1]
        await screen.press("slash", "q", "escape")
        assert screen.app.is_running
        assert "no rows" not in screen.text


async def test_a_frozen_picture_stays_and_then_goes_on() -> None:
    async with running(healthy) as screen:
        await screen.press("f")
        assert "FROZEN" in screen.text
        before = screen.lines
        screen.sources[0].take_at = slow_reader
        await screen.look()
        assert screen.lines == before
        await screen.press("f")
        assert "sender_limit" in screen.text
        assert "FROZEN" not in screen.text


async def test_the_pages_of_drivers_and_help() -> None:
    late = WORLDS["blocked loop"].take
    async with running(healthy, late) as screen:
        await screen.press("d")
        assert "place /run/0" in screen.text
        assert "image_logs_bytes" in screen.text
        await screen.press("d")
        assert "place /run/1" in screen.text
        assert "loop_lag" in screen.text
        await screen.press("d")
        assert "place /run/0" in screen.text
        await screen.press("question_mark")
        assert "trouble 3" not in screen.lines[-1]
        assert "keys" in screen.text
        await screen.press("end")
        assert "trouble 3 offers wait" in screen.text
        await screen.press("home", "down", "up", "pagedown", "escape")
        assert "drv" in screen.text
        await screen.press("home", "enter")
        assert "place /run/1" in screen.text


async def test_a_page_of_a_stream_that_has_gone_says_so() -> None:
    async with running(slow_reader) as screen:
        await screen.press("enter")
        screen.sources[0].take_at = stats
        await screen.look()
        assert "this stream has gone" in screen.text
        await screen.press("escape")
        assert "no streams" in screen.text
        await screen.press("enter", "down", "e", "escape")
        assert "no streams" in screen.text


async def test_a_driver_that_does_not_answer_is_named_in_the_head() -> None:
    async with running(healthy, healthy) as screen:
        screen.sources[1].error = OSError("its socket [/x] is closed")
        await screen.look()
        assert "does not answer: its socket [/x] is closed" in screen.text


async def test_what_is_shown_is_written_to_a_new_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(WORLDS["two percent"].take) as screen:
        await screen.press("e")
        await screen.type("a.json")
        await screen.press("enter")
        assert "3 rows written to a.json" in screen.lines[-1]
        written = (tmp_path / "a.json").read_text()
        (driver,) = json.loads(written)["drivers"]
        assert [each["kind"] for each in driver["rows"]] == ["img", "img", "pub"]
        assert driver["rows"][0]["cause_word"] == "gap"

        await screen.press("enter", "e")
        await screen.type("a.json")
        await screen.press("enter")
        assert "a.json exists, and is not overwritten" in screen.lines[-1]
        assert (tmp_path / "a.json").read_text() == written

        (tmp_path / "b").symlink_to(tmp_path / "c")
        for name, said in (("b", "b exists"), ("x/y", "x/y was not written")):
            await screen.press("e")
            await screen.type(name)
            await screen.press("enter")
            assert said in screen.lines[-1]

        await screen.press("e")
        await screen.type("d")
        await screen.press("enter")
        (driver,) = json.loads((tmp_path / "d").read_text())["drivers"]
        assert [each["registration_id"] for each in driver["rows"]] == [2]
        await screen.press("e", "enter")
        assert names_in(tmp_path) == ["a.json", "b", "d"]


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
async def test_the_keys_that_end_it_have_exit_codes(key: str, code: int) -> None:
    async with running(healthy) as screen:
        await screen.press(key)
    assert screen.app.return_value == code


async def test_ctrl_c_ends_it_during_a_question_too() -> None:
    async with running(healthy) as screen:
        await screen.press("slash", "a", "ctrl+c")
    assert screen.app.return_value == 130


async def test_only_cells_whose_text_has_changed_are_drawn_and_only_visible_rows() -> None:
    changing = 1

    def take(at: float) -> Stats:
        usual: dict[str, Any] = {"position": 0, "hwm_position": 0, "received_bytes": 0}
        images = [
            image(0, registration_id=each, stream_id=each, **usual) for each in range(1, 1_001)
        ]
        images[changing] = attrs.evolve(images[changing], lag_bytes=int(at))
        return attrs.evolve(stats(at), images=Table.of(ImageStats, images))

    asked: list[int] = []

    def counted(line_of: Callable[[int], Any], index: int) -> Any:
        asked.append(index)
        return line_of(index)

    async with running(take) as screen:
        show = screen.body.show
        screen.body.show = lambda count, line_of, cursor=None: show(  # type: ignore[method-assign]
            count, partial(counted, line_of), cursor
        )
        await screen.look()
        # Its lag in bytes is one cell.
        assert screen.body.touched_count == 1
        assert max(asked) < 24
        changing = 500
        await screen.look()
        assert screen.body.touched_count == 1  # The second row has lost its lag.
        await screen.look()
        assert screen.body.touched_count == 0
        await screen.press("end")
        assert screen.body.cursor == 999
        assert "img 1000 session" in screen.text
        assert screen.lines[-7].startswith("img     1000")


async def test_what_is_drawn_in_part_is_what_the_whole_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal that got only changed cells shows the same as one that gets all of them."""
    pyte = pytest.importorskip("pyte", reason="pip install 'aeron-async[dev]'")
    shown = pyte.Screen(80, 24)
    stream = pyte.Stream(shown)
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, data: stream.feed(data))
    worlds = [each.take for each in WORLDS.values()]
    worlds += [healthy, stats]

    def take(at: float) -> Stats:
        return worlds[int(at * 7) % len(worlds)](at)

    async with running(take) as screen:
        keys = (
            *("look", "look", "down", "look", "enter", "look", "escape", "d", "look", "escape"),
            *("f", "look", "f", "s", "r", "look", "end", "look"),
        )
        for place, key in enumerate(keys):
            if key == "look":
                await screen.look()
            else:
                await screen.press(key)
            await screen.pilot.pause()
            assert [each.rstrip() for each in shown.display] == [
                each.rstrip() for each in screen.lines
            ], (place, key)


async def test_a_click_chooses_a_row() -> None:
    async with running(healthy) as screen:
        await screen.pilot.click("#body", offset=(5, 1))
        await screen.pilot.pause()
        assert screen.body.cursor == 1
        await screen.pilot.click("#body", offset=(5, 9))
        await screen.pilot.pause()
        assert screen.body.cursor == 1
        await screen.pilot.click("#head")
        await screen.press("enter")
        await screen.pilot.click("#body", offset=(5, 3))
        assert "publication 1001" in screen.text


async def test_what_strangers_wrote_is_text() -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J[/x][red]\u202e\x9b31m日本"

    def take(at: float) -> Stats:
        rows = [publication(at, channel=nasty, state=nasty, blocked_by=nasty)]
        return attrs.evolve(
            stats(at, images=[image(at, channel=nasty, source=nasty, state=nasty)]),
            publications=Table.of(PublicationStats, rows),
        )

    for size in SIZES:
        async with running(take, size=size) as screen:
            for keys in (["home"], ["enter"], ["escape", "down", "enter"]):
                await screen.press(*keys)
                assert all(each.isprintable() for each in screen.lines)
                assert "[/x][red]" in screen.text


@pytest.mark.parametrize("is_plain", [False, True])
async def test_no_color_is_honoured(
    is_plain: bool,  # noqa: FBT001 - pytest gives it by name
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if is_plain:
        monkeypatch.setenv("NO_COLOR", "1")
    async with running(slow_reader) as screen:
        assert screen.app.no_color == is_plain
        assert "sender_limit" in screen.text
