"""Command `aeron-async top`: a live view of drivers, with the cause of each trouble.

On a terminal it is an application of Textual. Without Textual, without a terminal, and with
`--once`, `--json` or `--plain`, it prints text, and imports nothing of Textual.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, final

import attrs
from cyclopts import Parameter, validators

from aeron_async.aeron_directory import default_directory
from aeron_async.cli.options import Count, Flag, Names, RunOptions
from aeron_async.cli.output import clear_terminal, make_console, print_json, print_line, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.cli.stats_sources import open_source
from aeron_async.cli.top_model import TopModel
from aeron_async.cli.top_scene import arranged, json_of_driver
from aeron_async.cli.top_text import columns_for, folded, head_line, header_lines, row_line
from aeron_async.errors import AeronError, DriverError
from aeron_async.protocol.units import INT64_MAX, INT64_MIN
from aeron_async.tasks import TaskOwner
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from aeron_async.cli.top_model import StatsSource
    from aeron_async.cli.top_scene import TopRow, TopScene
    from aeron_async.cli.top_text import Line
    from aeron_async.stats import Stats, Table

__all__ = ["Looks", "top"]

PIPE_WIDTH: Final = 100
"""Width in characters if there is no terminal and `COLUMNS` is not set."""
TAKE_TIMEOUT_S: Final = 5.0
"""How long a driver may take to answer."""
PATIENCE_S: Final = 1.0
"""How long a picture waits for drivers, or half an interval if that is longer."""
TROUBLES_SHOWN: Final = 10
"""Most rows that the plain view explains below the table."""
SIMPLE_TERMINALS: Final = frozenset({"", "dumb", "unknown"})
"""Values of TERM for terminals that cannot move their cursor."""
NONE: Final = type(None)
TYPES: Final[Mapping[str, set[type]]] = {
    "int": {int},
    "int | None": {int, NONE},
    "str": {str},
    "bool": {bool},
    "bool | None": {bool, NONE},
}
"""What the fields of a snapshot may hold, by their annotation."""

pause: Callable[[float], Awaitable[None]] = asyncio.sleep


@attrs.frozen(kw_only=True)
class TopOptions:
    """What a view of drivers was asked for."""

    interval: float
    count: int | None
    once: bool
    json: bool
    plain: bool
    sort: str
    is_reversed: bool
    pattern: str


def top(
    *,
    door: Annotated[Names, Parameter(name="--door")] = (),
    directory: Annotated[Names, Parameter(name=("--directory", "-d", "--aeron-dir"))] = (),
    interval: Annotated[float, Parameter(validator=validators.Number(gte=0.05, lte=60))] = 1.0,
    count: Count | None = None,
    once: Flag = False,
    json: Flag = False,
    plain: Flag = False,
    sort: Literal["trouble", "rate", "lag", "loss", "blocked", "stream", "channel"] = "trouble",
    reverse: Flag = False,
    pattern: Annotated[str, Parameter(name="--filter")] = "",
) -> int:
    """Watch drivers: what each stream does, which one is in trouble, why, and what to change.

    With a terminal and Textual, keys choose what is shown; `?` names them. Otherwise a table is
    printed at each interval. Rates are of the last interval; losses, NAKs and blocked time are of
    the last ten seconds.

    Args:
        door: The Unix socket of a process that serves its statistics; may be repeated.
        directory: The Aeron directory of a driver; may be repeated. Without one and without a door
            that is AERON_DIR, or the one of this user.
        interval: Seconds between two looks.
        count: Look so often, and then end; the view is plain.
        once: Look twice, print one table or object, and end.
        json: One JSON object for each driver and look: its statistics, and rows with causes.
        plain: Print text, even on a terminal.
        sort: What the rows are sorted by.
        reverse: Sort the other way around.
        pattern: Only rows that have all these words in their channel, stream, session, state or
            cause.
    """
    options = TopOptions(
        interval=interval,
        count=count,
        once=once,
        json=json,
        plain=plain or count is not None,
        sort=sort,
        is_reversed=reverse,
        pattern=pattern,
    )
    directories = directory if directory or door else (str(default_directory()),)
    sources = [open_source("door", each) for each in dict.fromkeys(door)]
    sources += [open_source("directory", each) for each in dict.fromkeys(directories)]
    return run(watch(sources, options), RunOptions(loop="asyncio"))


async def watch(sources: Sequence[StatsSource], options: TopOptions) -> int:
    """Show drivers until the user has seen enough; return the exit code.

    Raises:
        DriverError: None of the drivers has answered.
    """
    model = TopModel(names=[each.name for each in sources])
    async with Looks(model, sources) as looks:
        await looks.look()
        refuse_silence(model)
        if options.once:
            await pause(options.interval)
            await looks.look()
            draw(model, options, is_alone=True)
            return ExitCode.SUCCESS
        look = partial(looks.look, max(PATIENCE_S, options.interval / 2))
        if is_application(options):
            return await run_application(model, look, options)
        return await print_again_and_again(model, look, options)


@final
class Looks:
    """Takes snapshots of drivers: of all at once, and of each never twice at a time.

    `async with` ends what is under way, and closes the sources.

    Args:
        model: Is told what they say.
        sources: Where snapshots come from.
    """

    def __init__(self, model: TopModel, sources: Sequence[StatsSource]) -> None:
        self._model = model
        self._sources = tuple(sources)
        self._tasks = TaskOwner()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def look(self, patience_s: float | None = None) -> None:
        """Ask all drivers that are not being asked yet, and wait for their answers.

        Args:
            patience_s: How long to wait, in seconds; None for all. What comes later is seen later.
        """
        for each in self._sources:
            if each.name not in self._under_way:
                task = self._tasks.start(look_at(self._model, each), f"look at {each.name}")
                self._under_way[each.name] = task
        if self._under_way:
            await asyncio.wait(tuple(self._under_way.values()), timeout=patience_s)
        for name, task in tuple(self._under_way.items()):
            if task.done():
                del self._under_way[name]
                # What it raises no driver can cause.
                task.result()

    async def aclose(self) -> None:
        """End what is under way, and close the sources."""
        await self._tasks.aclose()
        for each in self._sources:
            await each.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


async def look_at(model: TopModel, source: StatsSource) -> None:
    """Take a snapshot of one driver; a failure becomes part of the picture."""
    try:
        async with asyncio.timeout(TAKE_TIMEOUT_S):
            stats = await source.take()
    except TimeoutError:
        model.on_failure(source.name, f"no answer within {TAKE_TIMEOUT_S:g} s")
    except (AeronError, OSError) as error:
        model.on_failure(source.name, str(error))
    else:
        odd = odd_field(stats)
        if odd:
            model.on_failure(source.name, f"its statistics cannot be read: {odd}")
        else:
            model.on_stats(stats, source.name, remark=source.remark)


def odd_field(stats: Stats) -> str:
    """Return which field of a snapshot has not the type that it must have; empty if all have.

    Snapshots of another process may be of another version, or of a stranger.
    """
    if not are_counts((stats.epoch_ns, stats.monotonic_ns)):
        return "its time is longer than 64 bits"
    tables: list[Table[Any]] = [stats.publications, stats.images, stats.subscriptions]
    parts: list[attrs.AttrsInstance] = [stats.driver]
    if stats.archive is not None:
        tables.append(stats.archive.recordings)
        parts.append(stats.archive)
    columns = [
        (field, table.column(field.name))
        for table in tables
        for field in attrs.fields(table.row_type)
    ]
    columns += [
        (field, (getattr(part, field.name),))
        for part in parts
        for field in attrs.fields(type(part))
    ]
    found = (odd_values(field, values) for field, values in columns)
    return next((each for each in found if each), "")


def odd_values(field: attrs.Attribute[Any], values: Sequence[Any]) -> str:
    """Return what is odd about the values of a field, or about a row within one of them."""
    kind, found = str(field.type), set(map(type, values))
    if kind in TYPES:
        odd = sorted(each.__name__ for each in found - TYPES[kind])
        if odd or not are_counts(values):
            return f"{field.name} is {', '.join(odd) or 'longer than 64 bits'}"
        return ""
    if kind.startswith("Mapping"):
        counts = [each for value in values for each in getattr(value, "values", list)()]
        is_odd = not all(isinstance(each, Mapping) for each in values) or {*map(type, counts)} - {
            int
        }
        return f"{field.name} is no mapping of counts" if is_odd or not are_counts(counts) else ""
    if kind.startswith("tuple"):
        return f"{field.name} is no list" if found - {tuple} else odd_items(field, values)
    return ""


def are_counts(values: Sequence[Any]) -> bool:
    """Return whether all whole numbers among some values have no more than 64 bits."""
    numbers = [each for each in values if type(each) is int]
    return not numbers or (min(numbers) >= INT64_MIN and max(numbers) <= INT64_MAX)


def odd_items(field: attrs.Attribute[Any], values: Sequence[tuple[Any, ...]]) -> str:
    """Return what is odd about what the lists of a field hold: counts, or rows."""
    items = [each for value in values for each in value]
    are_rows = str(field.type) != "tuple[int, ...]"
    for item_type in set(map(type, items)):
        is_row = attrs.has(item_type)
        if not (is_row if are_rows else item_type is int and are_counts(items)):
            return f"{field.name} has other things than {'rows' if are_rows else 'counts'}"
        rows = [each for each in items if type(each) is item_type]
        for part in attrs.fields(item_type) if are_rows else ():
            odd = odd_values(part, [getattr(each, part.name) for each in rows])
            if odd:
                return f"{field.name}: {odd}"
    return ""


def refuse_silence(model: TopModel) -> None:
    """Refuse to begin if there is nothing to look at.

    Raises:
        DriverError: None of the drivers has answered.
    """
    drivers = model.scene().drivers
    if all(each.failure for each in drivers):
        raise DriverError("; ".join(f"{printable(each.name)}: {each.failure}" for each in drivers))


def is_application(options: TopOptions) -> bool:
    """Return whether to run the application; say so if it only needs to be installed."""
    if options.json or options.plain:
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty() and is_clever()):
        return False
    if find_spec("textual") is None:
        remark(
            "textual is not installed, so this is the plain view: pip install 'aeron-async[top]'"
        )
        return False
    return True


def is_clever() -> bool:
    """Return whether the terminal can move its cursor."""
    return os.environ.get("TERM", "") not in SIMPLE_TERMINALS


async def run_application(
    model: TopModel, look: Callable[[], Awaitable[None]], options: TopOptions
) -> int:
    """Run the application until its user quits; return the exit code.

    Raises:
        CancelledError: A signal has ended it.
    """
    from aeron_async.cli.top_app import TopApp  # noqa: PLC0415 - it is optional

    application = TopApp(
        model,
        look,
        interval=options.interval,
        pause=pause,
        sort=options.sort,
        is_reversed=options.is_reversed,
        pattern=options.pattern,
        is_ascii=is_ascii(),
    )
    code = await application.run_async()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # Textual ends in order when it is cancelled, and keeps that to itself.
        raise asyncio.CancelledError
    return (application.return_code or ExitCode.SUCCESS) if code is None else code


async def print_again_and_again(
    model: TopModel, look: Callable[[], Awaitable[None]], options: TopOptions
) -> int:
    """Print what is seen, until the count is reached or Ctrl-C."""
    drawn = 0
    while True:
        draw(model, options, is_alone=False)
        drawn += 1
        if drawn == options.count:
            return ExitCode.SUCCESS
        await pause(options.interval)
        await look()


# Text and JSON.


def draw(model: TopModel, options: TopOptions, *, is_alone: bool) -> None:
    """Print one picture.

    Args:
        model: What was seen.
        options: What to show of it.
        is_alone: Whether it is the only one, so that nothing may be left out for lack of room.
    """
    scene = model.scene()
    rows = arranged(scene, options.sort, is_reversed=options.is_reversed, pattern=options.pattern)
    if options.json:
        for each in scene.drivers:
            last = model.last(each.name)
            shown = rows if last is not None else []
            stats = None if last is None else last.to_dict()
            print_json(json_of_driver(scene, each.name, shown) | {"stats": stats})
    else:
        is_redrawn = not is_alone and sys.stdout.isatty() and is_clever()
        size = shutil.get_terminal_size((PIPE_WIDTH, 24))
        lines = plain_lines(scene, rows, options, size.columns)
        if is_redrawn:
            clear_terminal()
            if len(lines) >= size.lines:
                kept = max(1, size.lines - 2)
                lines = [*lines[:kept], ((f"... {len(lines) - kept:,} more lines", ""),)]
        elif not is_alone:
            lines.append(())
        print_lines(lines)
    sys.stdout.flush()


def plain_lines(
    scene: TopScene, rows: Sequence[TopRow], options: TopOptions, width: int
) -> list[Line]:
    """Return the table of streams, and below it the causes and remedies."""
    # Two looks have one rate, of which a bar says nothing.
    columns = columns_for(width, has_drivers=len(scene.drivers) > 1, has_history=not options.once)
    lines = header_lines(scene, width, is_ascii=is_ascii())
    if not rows:
        return [*lines, (("no streams", ""),)]
    lines.append(
        head_line(columns, options.sort, is_reversed=options.is_reversed, is_ascii=is_ascii())
    )
    lines += [row_line(each, columns, is_ascii=is_ascii()) for each in rows]
    troubled = [each for each in rows if each.causes]
    # A terminal would fold within words; a program that reads lines wants whole ones.
    room = width if sys.stdout.isatty() else None
    for row in troubled[:TROUBLES_SHOWN]:
        stream = "" if row.stream_id is None else f" {row.stream_id}"
        session = "" if row.session_id is None else f" session {row.session_id}"
        for cause in row.causes[:2]:
            lines += folded(f"{row.key.kind}{stream}{session}: {cause.sentence}", room, "bold")
            lines += folded(f"    {cause.remedy}", room)
    if len(troubled) > TROUBLES_SHOWN:
        lines.append(((f"{len(troubled) - TROUBLES_SHOWN:,} more rows in trouble", ""),))
    return lines


def print_lines(lines: Sequence[Line]) -> None:
    """Print lines, with their styles if there is a terminal."""
    if not sys.stdout.isatty():
        for line in lines:
            print_line("".join(text for text, _ in line).rstrip())
        return
    from rich.text import Text  # noqa: PLC0415 - only drawing needs it

    console = make_console()
    for line in lines:
        text = Text()
        for each, style in line:
            text.append(printable(each, max(64, 2 * len(each))), style)
        text.rstrip()
        console.print(text, soft_wrap=True)


def is_ascii() -> bool:
    """Return whether standard output can only show ASCII."""
    return "utf" not in (sys.stdout.encoding or "").lower()
