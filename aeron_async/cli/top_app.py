"""The application of `aeron-async top`, made with Textual.

All text comes as lines from `top_text`, whose cells are printable; none of it is ever markup. One
widget draws all lines. Of a new picture it looks at the visible lines only, and draws only cells
whose text has changed: a table of Textual's own would measure every cell.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from aeron_async.cli.output import as_json
from aeron_async.cli.runner import ExitCode
from aeron_async.cli.top_pages import detail_lines, driver_lines, help_lines, page_line
from aeron_async.cli.top_scene import SORTS, TopKey, arranged, json_of_driver
from aeron_async.cli.top_text import (
    columns_for,
    head_line,
    header_lines,
    keys_line,
    panel_lines,
    row_line,
)
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from aeron_async.cli.top_model import TopModel
    from aeron_async.cli.top_scene import TopRow, TopScene
    from aeron_async.cli.top_text import Line

__all__ = ["TopApp"]

FILTER_LENGTH_MAX: Final = 200
FILE_NAME_LENGTH_MAX: Final = 4_096


class Lines(ScrollView, can_focus=True):
    """Lines of cells, of which only those are drawn that can be seen.

    Attributes:
        cursor: The chosen line; None if the lines are a page, which scrolls.
        touched_count: How many cells the last picture has changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(0)", show=False),
        Binding("end", "end(1)", show=False),
    ]

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - Textual's name
        on_moved: Callable[[int], object] | None = None,
        on_resized: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(id=id)
        self.cursor: int | None = None
        self.touched_count = 0
        self._count = 0
        self._line_of: Callable[[int], Line] = no_line
        self._drawn: dict[int, tuple[Line, bool]] = {}
        self._on_moved = on_moved
        self._on_resized = on_resized
        if on_moved is None:
            self.can_focus = False

    def show(self, count: int, line_of: Callable[[int], Line], cursor: int | None = None) -> None:
        """Show another picture.

        Args:
            count: Number of lines.
            line_of: Returns a line; called for visible lines only, until the next picture.
            cursor: The chosen line; None for a page.
        """
        self._count, self._line_of, self.cursor = count, line_of, cursor
        size = Size(max(1, self.size.width), count)
        if self.virtual_size != size:
            self.virtual_size = size
        self.touched_count = 0
        for y in range(self.size.height):
            self._touch(y)

    def show_all(self, lines: list[Line]) -> None:
        """Show lines that are made already, as a page."""
        self.show(len(lines), lines.__getitem__)

    def scroll_to_cursor(self) -> None:
        """Scroll so that the chosen line can be seen."""
        if self.cursor is None or self.size.height == 0:
            return
        first = self.scroll_offset.y
        if self.cursor < first:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= first + self.size.height:
            y = self.cursor - self.size.height + 1
            self.scroll_to(y=y, animate=False, immediate=True)

    def line_at(self, y: int) -> tuple[Line, bool]:
        """Return the line at a place of the screen, and whether it is the chosen one."""
        index = y + self.scroll_offset.y
        line = self._line_of(index) if 0 <= index < self._count else ()
        return line, index == self.cursor

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen, as Textual draws it."""
        line, is_chosen = self._drawn[y] = self.line_at(y)
        base = self.rich_style + Style(reverse=True) if is_chosen else self.rich_style
        segments = [Segment(text, base + Style.parse(style)) for text, style in line]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def action_move(self, step: int) -> None:
        """Choose another line, or scroll a page by one."""
        if self.cursor is None:
            self.scroll_relative(y=step, animate=False)
        else:
            self._choose(self.cursor + step)

    def action_page(self, direction: int) -> None:
        """Go as far as the screen is high."""
        self.action_move(direction * max(1, self.size.height - 1))

    def action_end(self, is_last: int) -> None:
        """Go to the first or the last line."""
        self.action_move(self._count if is_last else -self._count)

    def on_resize(self) -> None:
        """Have the lines made for another size."""
        if self._on_resized is not None:
            self._on_resized()

    def on_click(self, event: events.Click) -> None:
        """Choose the line that was clicked."""
        if self.cursor is not None:
            self._choose(event.y + self.scroll_offset.y)

    def _choose(self, index: int) -> None:
        if self._on_moved is not None and self._count > 0:
            self._on_moved(max(0, min(self._count - 1, index)))

    def _touch(self, y: int) -> None:
        """Have those cells of a line drawn that have changed."""
        before = self._drawn.get(y)
        now = self.line_at(y)
        if before == now:
            return
        line, is_chosen = now
        if before is None or before[1] != is_chosen or widths(before[0]) != widths(line):
            self.touched_count += max(1, len(line))
            self.refresh(Region(0, y, self.size.width, 1))
            return
        x = 0
        for old, new in zip(before[0], line, strict=True):
            if old != new:
                self.touched_count += 1
                self.refresh(Region(x, y, cell_len(new[0]), 1))
            x += cell_len(new[0])


def no_line(_index: int) -> Line:
    """Return an empty line."""
    return ()


def widths(line: Line) -> list[int]:
    """Return how many columns of the terminal the cells of a line take."""
    return [cell_len(text) for text, _ in line]


@attrs.frozen
class TopPage:
    """What the screen shows: `list`, or a `detail` of a stream, a `driver`, or `help`."""

    kind: str
    key: TopKey | None = None
    driver: int = 0


LIST: Final = TopPage("list")


class TopApp(App[int]):
    """The application.

    Args:
        model: What was seen of the drivers.
        look: Looks at the drivers, which changes the model.
        interval: Seconds between two looks.
        pause: Waits for so many seconds.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "aeron-async top"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Lines { height: 1; overflow-x: hidden; overflow-y: hidden; }
    #body { height: 1fr; overflow-y: auto; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    #prompt { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", priority=True, show=False),
        Binding("q", "leave", show=False),
        Binding("enter", "open", show=False),
        Binding("escape", "close_page", show=False),
        Binding("s", "sort", show=False),
        Binding("r", "reverse", show=False),
        Binding("slash", "filter", show=False),
        Binding("f", "freeze", show=False),
        Binding("e", "export", show=False),
        Binding("d", "driver", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(
        self,
        model: TopModel,
        look: Callable[[], Awaitable[None]],
        *,
        interval: float = 1.0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        sort: str = "trouble",
        is_reversed: bool = False,
        pattern: str = "",
        is_ascii: bool = False,
    ) -> None:
        super().__init__()
        self._model = model
        self._look = look
        self._interval = interval
        self._pause = pause
        self._sort = sort
        self._is_reversed = is_reversed
        self._pattern = pattern
        self._is_ascii = is_ascii
        self._is_frozen = False
        self._message = ""
        self._asks_for = ""
        self._page = LIST
        self._chosen: TopKey | None = None
        self._scene: TopScene = model.scene()
        self._rows: list[TopRow] = []

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen, from above."""
        yield Lines(id="head")
        yield Lines(id="names")
        yield Lines(id="body", on_moved=self._on_moved, on_resized=self._settle)
        yield Lines(id="panel")
        yield Lines(id="foot")
        yield Input(id="prompt", select_on_focus=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self._body.focus()
        self.run_worker(self._watch(), exclusive=True)

    async def _watch(self) -> None:
        while True:
            await self._pause(self._interval)
            await self._look()
            if not self._is_frozen:
                self._scene = self._model.scene()
                self._draw()

    @property
    def _body(self) -> Lines:
        return self.query_one("#body", Lines)

    # What is shown.

    def _draw(self) -> None:
        """Show the picture as the keys have chosen it."""
        self._rows = arranged(
            self._scene, self._sort, is_reversed=self._is_reversed, pattern=self._pattern
        )
        with self.batch_update():
            self._draw_head()
            is_list = self._page == LIST
            self.query_one("#names").display = is_list
            self.query_one("#panel").display = is_list
            if is_list:
                self._draw_list()
            else:
                self._body.show_all(self._page_lines(max(1, self._body.size.width)))
            self._show_all("foot", [keys_line(self._message, self.size.width)])

    def _draw_head(self) -> None:
        status = ["FROZEN (f)"] if self._is_frozen else []
        status += [f"filter: {self._pattern}"] if self._pattern else []
        lines = header_lines(
            self._scene, self.size.width, "  ".join(status), is_ascii=self._is_ascii
        )
        lines = lines[: max(1, self.size.height // 3)]
        self._show_all("head", lines)

    def _draw_list(self) -> None:
        body = self._body
        columns = columns_for(max(1, body.size.width), has_drivers=len(self._scene.drivers) > 1)
        names = head_line(
            columns, self._sort, is_reversed=self._is_reversed, is_ascii=self._is_ascii
        )
        self._show_all("names", [names])
        rows = self._rows
        cursor = self._cursor(body.cursor or 0)
        row = rows[cursor] if rows else None
        self._chosen = None if row is None else row.key
        self._show_all("panel", panel_lines(row, self.size.width))
        if rows:
            body.show(
                len(rows),
                lambda at: row_line(rows[at], columns, is_ascii=self._is_ascii),
                cursor,
            )
        else:
            what = "no rows match the filter" if self._pattern else "no streams"
            body.show_all([page_line(what, body.size.width)])

    def _cursor(self, before: int) -> int:
        """Return where the chosen stream is now; if it has gone, where it was."""
        for place, row in enumerate(self._rows):
            if row.key == self._chosen:
                return place
        return max(0, min(before, len(self._rows) - 1))

    def _page_lines(self, width: int) -> list[Line]:
        page = self._page
        if page.kind == "help":
            return help_lines(width)
        if page.kind == "driver":
            return driver_lines(self._scene, self._scene.drivers[page.driver], width)
        row = self._scene.row(page.key)
        if row is None:
            return [page_line("this stream has gone, or this driver is out of trouble", width)]
        return detail_lines(self._scene, row, width, is_ascii=self._is_ascii)

    def _show_all(self, name: str, lines: list[Line]) -> None:
        """Show lines that have all a place of their own."""
        part = self.query_one(f"#{name}", Lines)
        if part.styles.height is None or part.styles.height.value != len(lines):
            part.styles.height = len(lines)
        part.show_all(lines)

    def _on_moved(self, cursor: int) -> None:
        if self._page != LIST or not self._rows:
            return
        self._chosen = self._rows[min(cursor, len(self._rows) - 1)].key
        self._message = ""
        self._settle()

    def _go(self, page: TopPage) -> None:
        self._page = page
        self._message = ""
        self._body.scroll_to(y=0, animate=False, immediate=True)
        # If parts beside the body come or go, its size changes, and it is drawn once more.
        self._settle()

    def _settle(self) -> None:
        """Show the picture, and the chosen line of it."""
        self._draw()
        self._body.scroll_to_cursor()

    # Keys.

    def action_interrupt(self) -> None:
        """End as Ctrl-C does."""
        self.exit(ExitCode.INTERRUPTED)

    def action_leave(self) -> None:
        """End."""
        self.exit(ExitCode.SUCCESS)

    def action_open(self) -> None:
        """Open the page of the chosen row."""
        row = self._scene.row(self._chosen)
        if self._page != LIST or row is None:
            return
        if row.key.kind == "drv":
            names = [each.name for each in self._scene.drivers]
            self._go(TopPage("driver", driver=names.index(row.key.driver)))
        else:
            self._go(TopPage("detail", key=row.key))

    def action_close_page(self) -> None:
        """Leave a question, or a page."""
        if self._asks_for:
            self._end_prompt()
        elif self._page != LIST:
            self._go(LIST)
        elif self._pattern:
            self._pattern = ""
            self._draw()

    def action_sort(self) -> None:
        """Sort by the next of `SORTS`."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._say(f"sorted by {self._sort}")

    def action_reverse(self) -> None:
        """Sort the other way around."""
        self._is_reversed = not self._is_reversed
        self._draw()

    def action_freeze(self) -> None:
        """Keep the picture as it is, or let it go on."""
        self._is_frozen = not self._is_frozen
        if not self._is_frozen:
            self._scene = self._model.scene()
        self._draw()

    def action_driver(self) -> None:
        """Open the page of a driver; from there that of the next one."""
        page = self._page
        place = page.driver + 1 if page.kind == "driver" else 0
        self._go(TopPage("driver", driver=place % len(self._scene.drivers)))

    def action_help(self) -> None:
        """Open the page of keys and columns."""
        self._go(TopPage("help"))

    def action_filter(self) -> None:
        """Ask for words."""
        self._ask("filter", self._pattern, FILTER_LENGTH_MAX)

    def action_export(self) -> None:
        """Ask for the name of a file."""
        self._ask("file", "", FILE_NAME_LENGTH_MAX)

    def _say(self, message: str) -> None:
        self._message = message
        self._draw()

    def _ask(self, what: str, value: str, length_max: int) -> None:
        self._asks_for = what
        prompt = self.query_one("#prompt", Input)
        prompt.placeholder = "words to look for" if what == "filter" else "name of a new file"
        prompt.max_length = length_max
        prompt.value = value
        prompt.cursor_position = len(value)
        prompt.display = True
        prompt.focus()

    def _end_prompt(self) -> None:
        self._asks_for = ""
        self.query_one("#prompt", Input).display = False
        self._body.focus()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer to a question."""
        what, value = self._asks_for, event.value.strip()
        event.stop()
        if what == "filter":
            self._pattern = value
        elif what == "file" and value:
            self._message = self._export(value)
        self._end_prompt()

    def _export(self, name: str) -> str:
        """Write what is shown to a new file; return what to say about it."""
        shown = printable(name, SHORT)
        row = self._scene.row(self._page.key)
        rows = self._rows if row is None else [row]
        drivers = [json_of_driver(self._scene, each.name, rows) for each in self._scene.drivers]
        events = [attrs.asdict(each) for each in self._scene.events]
        text = as_json({"drivers": drivers, "events": events})
        try:
            # A file that exists is refused, and so is a link.
            with Path(name).expanduser().open("x", encoding="ascii") as file:
                file.write(f"{text}\n")
        except FileExistsError:
            return f"{shown} exists, and is not overwritten: name another file"
        except (OSError, ValueError, RuntimeError) as error:
            return f"{shown} was not written: {error}"
        return f"{len(rows)} rows written to {shown}"
