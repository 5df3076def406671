"""The head, the list and the panel of `aeron-async top` as lines of text, for every screen.

A line is a sequence of cells, each a text with a style. Pure, and without a library of terminals.

Invariant: a cell of a list is exactly as wide as its column, and foreign text in it is printable,
whatever a channel or an address holds. A state or a trouble has a word, and not only a colour.
"""

from __future__ import annotations

import unicodedata
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.figures import format_ns
from aeron_async.cli.top_causes import CauseClass
from aeron_async.cli.top_scene import sparkline
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aeron_async.cli.top_scene import TopDriver, TopRow, TopScene
    from aeron_async.stats import ArchiveStats

__all__ = [
    "DIM",
    "TROUBLE",
    "WIDTH_MIN",
    "Cell",
    "Line",
    "columns_for",
    "columns_of",
    "compact",
    "fit",
    "folded",
    "head_line",
    "header_lines",
    "is_full",
    "keys_line",
    "panel_lines",
    "percent",
    "row_line",
    "style_of",
]

Cell = tuple[str, str]
Line = tuple[Cell, ...]
Columns = tuple[tuple["TopColumn", int], ...]

HEADERS_MAX: Final = 4
"""Most drivers that the head of a screen names."""
FAILURE_LINES_MAX: Final = 6
"""Most lines that say why one driver does not answer."""
SENTENCE_WIDTH_MIN: Final = 40
"""A narrower column of causes has words instead of sentences."""
PANEL_WIDTH: Final = 120
"""A narrower panel has two lines for a cause, and two for its remedy."""
WIDTH_MIN: Final = 20
UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
TROUBLE: Final = "bold red"
DIM: Final = "dim"
KEYS: Final = "enter:open s:sort r:reverse /:filter f:freeze e:export d:driver ?:help q:quit"
FEW_KEYS: Final = "?:help q:quit"


# Numbers and texts of a fixed width.


def compact(value: float | None) -> str:
    """Return a number in at most five characters, such as `1.2M`; a dash for an unknown one."""
    if value is None:
        return "-"
    for scale, unit in UNITS:
        # What rounds up to the next unit is written in it.
        if abs(value) >= 0.9995 * scale:
            scaled = value / scale
            return f"{scaled:.{1 if abs(scaled) < 99.95 else 0}f}{unit}"  # noqa: PLR2004 - likewise
    is_whole = abs(value) >= 9.95 or value == round(value)  # noqa: PLR2004 - likewise
    return f"{value:.0f}" if is_whole else f"{value:.1f}"


def fit(text: str, width: int, *, is_right: bool = False) -> str:
    """Return text that takes exactly so many columns of a terminal; what is cut off is marked.

    Args:
        text: Without control characters; marks that take no column of their own are left out.
        width: In columns; a wide character takes two.
        is_right: Whether to align it to the right.
    """
    if text.isascii():
        shown, length = text, len(text)
    else:
        shown, length = "", 0
        for character in text:
            if unicodedata.category(character) in {"Mn", "Me"}:
                continue
            shown += character
            length += columns_of(character)
    if length > width:
        kept, length = "", 0
        for character in shown:
            if length + columns_of(character) > width - 1:
                break
            kept += character
            length += columns_of(character)
        shown, length = (f"{kept}~", length + 1) if width > 0 else ("", 0)
    padding = " " * (width - length)
    return f"{padding}{shown}" if is_right else f"{shown}{padding}"


def columns_of(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def short_channel(channel: str, width: int) -> str:
    """Return a channel, or only its endpoint or control address where there is no room."""
    text = printable(channel, max(64, 2 * width))
    if len(text) <= width:
        return text
    for name in ("endpoint=", "control="):
        _, found, rest = text.partition(name)
        if found:
            return rest.partition("|")[0]
    return text


def percent(ratio: float) -> str:
    """Return a part of the whole in percent, in at most four characters."""
    return f"{100 * min(1.0, ratio):.0f}%"


# The list.


@attrs.frozen(kw_only=True)
class TopColumn:
    """A column of the list.

    Attributes:
        width: At least, in characters.
        text: Returns the cell of a row, given its width.
    """

    name: str
    width: int
    is_right: bool = True
    text: Callable[[TopRow, int], str]


def cause_text(row: TopRow, width: int) -> str:
    """Return the worst cause of a row, as a sentence if there is room."""
    if row.cause is None:
        return ""
    return row.cause.sentence if width >= SENTENCE_WIDTH_MIN else row.cause.word


def identity(number: int | None) -> str:
    """Return a number that names something; empty if there is none."""
    return "" if number is None else str(number)


def rate_of_losses(row: TopRow) -> str:
    """Return what is lost in a second; empty for what loses nothing by its nature."""
    if row.key.kind != "img":
        return ""
    return compact(row.lost_bytes or sum(row.losses_per_second.values()))


def blocked_text(row: TopRow) -> str:
    """Return in how much of the time offers waited; empty for what is not offered to."""
    if row.key.kind != "pub":
        return ""
    return percent(row.blocked) if row.blocked_ratio else "-"


def column(
    name: str,
    width: int,
    text: Callable[[TopRow, int], str],
    *,
    is_left: bool = False,
) -> TopColumn:
    """Return one column."""
    return TopColumn(
        name=name,
        width=width,
        is_right=not is_left,
        text=text,
    )


COLUMNS: Final = (
    column("", 3, lambda row, _: row.key.kind, is_left=True),
    column("driver", 7, lambda row, _: str(row.pid)),
    column("stream", 8, lambda row, _: identity(row.stream_id)),
    column("session", 11, lambda row, _: identity(row.session_id)),
    column("channel", 15, lambda row, width: short_channel(row.channel, width), is_left=True),
    column("state", 8, lambda row, _: printable(row.state, 64), is_left=True),
    column("B/s", 6, lambda row, _: compact(row.bytes_per_second)),
    column("msg/s", 6, lambda row, _: compact(row.messages_per_second)),
    column("rate", 12, lambda row, width: sparkline(row.history, width), is_left=True),
    column("lag B", 6, lambda row, _: compact(row.lag_bytes)),
    column("lag", 7, lambda row, _: "-" if row.lag_ns is None else format_ns(row.lag_ns)),
    column("lost/s", 6, lambda row, _: rate_of_losses(row)),
    column("nak/s", 6, lambda row, _: compact(row.naks_per_second)),
    column("blk", 5, lambda row, _: blocked_text(row)),
    column("cause", 15, cause_text, is_left=True),
)
BY_IMPORTANCE: Final = (
    *("", "stream", "B/s", "cause", "lag B", "lost/s", "blk", "driver", "channel", "msg/s"),
    *("rate", "lag", "state", "nak/s", "session"),
)
GROWING: Final = (
    *(("cause", 40), ("channel", 32), ("cause", 72), ("channel", 44)),
    *(("stream", 11), ("rate", 30), ("cause", 400)),
)
"""Columns that take what room is left, in this order, and up to which width."""


def tail(text: str, width: int, *, is_ascii: bool = False) -> str:
    """Return the end of a path, which tells drivers apart."""
    shown, mark = printable(text), "..." if is_ascii else "…"
    return shown if len(shown) <= width else f"{mark}{shown[len(shown) + len(mark) - width :]}"


def columns_for(width: int, *, has_drivers: bool = False, has_history: bool = True) -> Columns:
    """Return the columns that a screen has room for, and how wide each is.

    Args:
        width: Of the screen, in characters.
        has_drivers: Whether there is more than one driver to name.
        has_history: Whether rates have been seen before, of which there are bars.
    """
    named = {each.name: each for each in COLUMNS}
    widths: dict[str, int] = {}
    left = max(width, WIDTH_MIN) + 1
    for name in BY_IMPORTANCE:
        if (name == "driver" and not has_drivers) or (name == "rate" and not has_history):
            continue
        if named[name].width + 1 > left:
            break
        widths[name] = named[name].width
        left -= named[name].width + 1
    for name, most in GROWING:
        if name == "rate" and not has_history:
            continue
        more = min(left, most - widths.get(name, most))
        if more > 0 and (name != "cause" or widths[name] + more >= SENTENCE_WIDTH_MIN):
            widths[name] += more
            left -= more
    return tuple((each, widths[each.name]) for each in COLUMNS if each.name in widths)


SORTED_BY: Final = {
    "trouble": "cause",
    "rate": "B/s",
    "lag": "lag B",
    "loss": "lost/s",
    "blocked": "blk",
}
"""The columns that the rows are sorted by, where it has another name."""
MARKED_NAMES: Final = {"lost/s": "lost", "lag B": "lagB"}
"""What is left of a name where its mark takes room."""


def head_line(
    columns: Columns, sort: str, *, is_reversed: bool = False, is_ascii: bool = False
) -> Line:
    """Return the names of the columns; that which the rows are sorted by is marked."""
    marked = SORTED_BY.get(sort, sort)
    sign = ("^" if is_reversed else "v") if is_ascii else "▲" if is_reversed else "▼"
    cells = []
    for each, width in columns:
        name = each.name
        if name == marked:
            # A letter as a mark must not look like a part of the name.
            mark = f" {sign}" if is_ascii else sign
            short = name if len(name) + len(mark) <= width else MARKED_NAMES.get(name, name)
            name = f"{short}{mark}"
        cells.append((fit(name, width, is_right=each.is_right), "bold"))
    return spaced(cells)


def row_line(row: TopRow, columns: Columns, *, is_ascii: bool = False) -> Line:
    """Return the cells of a row."""
    cells = []
    for each, width in columns:
        if each.name == "rate" and is_ascii:
            text = sparkline(row.history, width, is_ascii=True)
        else:
            text = each.text(row, width)
        cells.append((fit(text, width, is_right=each.is_right), style_of(row, each.name)))
    return spaced(cells)


def style_of(row: TopRow, name: str) -> str:
    """Return how a cell is painted."""
    if name == "cause" and row.cause is not None:
        return TROUBLE if row.score >= CauseClass.STRAIN else "yellow"
    if name == "lost/s" and row.lost_bytes > 0:
        return TROUBLE
    if name == "blk" and row.blocked > 0:
        return "yellow"
    return ""


def spaced(cells: Iterable[Cell]) -> Line:
    """Return cells with a space between two of them."""
    line: list[Cell] = []
    for cell in cells:
        if line:
            line.append((" ", ""))
        line.append(cell)
    return tuple(line)


# The head of a screen, and what is said of the chosen row.


def header_lines(
    scene: TopScene, width: int, status: str = "", *, is_ascii: bool = False
) -> list[Line]:
    """Return whether the trouble is in a driver itself: a line for each, or more if it is long.

    Args:
        scene: What to show.
        width: Of the screen, in characters.
        status: What the view adds, such as its filter.
        is_ascii: Whether the screen shows ASCII only.
    """
    lines: list[Line] = []
    is_alone = len(scene.drivers) == 1
    for driver in scene.drivers[:HEADERS_MAX]:
        if driver.failure:
            lines += failure_lines(driver, width, is_alone=is_alone, is_ascii=is_ascii)
        else:
            lines += flowing(driver_parts(driver, is_alone=is_alone, is_ascii=is_ascii), width)
    if len(scene.drivers) > HEADERS_MAX:
        lines.append(((fit(f"and {len(scene.drivers) - HEADERS_MAX} more drivers", width), DIM),))
    if status:
        lines.append(((fit(printable(status), width), "yellow"),))
    return lines


def failure_lines(
    driver: TopDriver, width: int, *, is_alone: bool, is_ascii: bool
) -> Sequence[Line]:
    """Return why a driver does not answer, with what to do about it at the end.

    What it did before it was silent would be taken for the present, so nothing is said of it.
    """
    if driver.stats is None:
        text = f"{tail(driver.name, 40, is_ascii=is_ascii)}: {driver.failure}"
    else:
        name = "" if is_alone else f"  {tail(driver.name, 24, is_ascii=is_ascii)}"
        text = f"driver {driver.stats.pid}{name}  does not answer: {driver.failure}"
    parts = folded(text, width, TROUBLE, most=FAILURE_LINES_MAX)
    return [((fit(each, width), style),) for line in parts for each, style in line]


def driver_parts(driver: TopDriver, *, is_alone: bool, is_ascii: bool = False) -> list[Cell]:
    """Return the parts of the line of a driver that answers, the most important first."""
    assert driver.stats is not None
    parts: list[Cell] = [(f"driver {driver.stats.pid}", "bold")]
    if not is_alone:
        parts.append((tail(driver.name, 24, is_ascii=is_ascii), DIM))
    if driver.remark:
        parts.append((driver.remark, "yellow"))
    span = driver.span
    if span is None:
        parts.append(("first look", DIM))
        return parts
    is_late = span.is_loop_late
    late = "loop ok" if span.loop_lag_count is not None else "loop ?"
    late = f"loop late {format_ns(span.loop_lag_ns)}" if is_late else late
    parts += [
        (late, TROUBLE if is_late else ""),
        counted("drops", span.drop_count),
        counted("limits", sum(span.limits.values())),
        (
            f"blocked {compact(driver.blocked_count)}/{driver.stream_count}",
            "yellow" if driver.blocked_count else "",
        ),
        (f"in {compact(driver.in_bytes_per_second)}B/s", ""),
        (f"out {compact(driver.out_bytes_per_second)}B/s", ""),
    ]
    if driver.archive is not None:
        parts.append(archive_part(driver.archive))
    return parts


def archive_part(archive: ArchiveStats) -> Cell:
    """Return how many recordings are written, how far they are behind, and what is free."""
    text = (
        f"archive {compact(archive.active_count)} rec, lag {compact(archive.lag_bytes)}B, "
        f"free {compact(archive.free_bytes)}B"
    )
    return (f"{text}: too little", TROUBLE) if is_full(archive) else (text, "")


def is_full(archive: ArchiveStats) -> bool:
    """Return whether the disk has so little room that no recording begins."""
    free = archive.free_bytes
    return free is not None and free < archive.low_space_limit_bytes


def counted(name: str, count: int) -> Cell:
    """Return a count that should be 0."""
    return f"{name} {compact(count)}", TROUBLE if count else ""


def flowing(parts: Sequence[Cell], width: int) -> list[Line]:
    """Return parts in lines that are no longer than the screen."""
    lines: list[list[Cell]] = [[]]
    used = 0
    for text, style in parts:
        if lines[-1] and used + 2 + len(text) > width:
            lines[-1].append((" " * (width - used), ""))
            lines.append([])
            used = 0
        if lines[-1]:
            lines[-1].append(("  ", ""))
            used += 2
        shown = text if len(text) <= width else fit(text, width)
        lines[-1].append((shown, style))
        used += len(shown)
    lines[-1].append((" " * max(0, width - used), ""))
    return [tuple(each) for each in lines]


def panel_lines(row: TopRow | None, width: int) -> list[Line]:
    """Return what the list has no room for: the chosen stream, its cause, and its remedy.

    There are as many lines for every row.
    """
    folds = 1 if width >= PANEL_WIDTH else 2
    texts: list[tuple[str, str, int]] = []
    if row is not None:
        session = "" if row.session_id is None else f" session {row.session_id}"
        stream = "driver" if row.stream_id is None else f"{row.key.kind} {row.stream_id}{session}"
        texts.append((f"{stream} {printable(row.channel)}", DIM, 1))
        if row.cause is None:
            texts.append(("no trouble", "", 1))
        else:
            texts.append((row.cause.sentence, style_of(row, "cause"), folds))
            texts.append((f"-> {row.cause.remedy}", "", folds))
    lines: list[Line] = []
    for text, style, most in texts:
        parts = folded(text, width, style, most=most)
        lines += [((fit(each, width), style),) for line in parts for each, _ in line]
    return lines + [((" " * width, ""),)] * (1 + 2 * folds - len(lines))


def folded(text: str, width: int | None, style: str = "", *, most: int | None = None) -> list[Line]:
    """Return a text in lines that are as wide as the screen.

    Args:
        text: Printable; what it begins with is indented in all of its lines.
        width: In characters; None for one line.
        style: Of all of it.
        most: Number of lines at most; the last one is longer than the screen if it must be.
    """
    if width is None:
        return [((text, style),)]
    indent = " " * (len(text) - len(text.lstrip()))
    parts = wrap(text, max(WIDTH_MIN, width), subsequent_indent=indent) or [""]
    if most is not None and len(parts) > most:
        parts = [*parts[: most - 1], " ".join(parts[most - 1 :])]
    return [((each, style),) for each in parts]


def keys_line(message: str, width: int) -> Line:
    """Return the last line of the screen: a message, or else the keys."""
    keys = KEYS if width >= len(KEYS) else FEW_KEYS
    return ((fit(printable(message) or keys, width), "reverse"),)
