"""What the commands that use an Aeron directory share: opening, drawing again, rows of text.

Invariant: commands that look into one open files for reading only. What a driver or a client wrote
is printed as text; see `output`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Final

import attrs
from cyclopts import Parameter

from aeron_async.aeron_directory import (
    DRIVER_TIMEOUT_MS,
    AeronDirectory,
    CncMissing,
    default_directory,
)
from aeron_async.cli.options import Count, Positive, RunOptions, is_a_name
from aeron_async.cli.output import clear_terminal, print_json, print_line
from aeron_async.cli.runner import ExitCode, run
from aeron_async.clock import SystemClock
from aeron_async.errors import DriverTimeoutError
from aeron_async.text import utc_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from aeron_async.client.aeron import Aeron
    from aeron_async.concurrent.cnc_file import CncNotReady

__all__ = [
    "DRIVER_TIMEOUT_MS",
    "Directory",
    "Watch",
    "connected",
    "epoch_ms",
    "facts_of",
    "format_when",
    "headline_of",
    "located",
    "open_directory",
    "print_columns",
    "show",
]

MS_PER_SECOND: Final = 1_000

Directory = Annotated[
    str | None, Parameter(name=("--directory", "-d", "--aeron-dir"), validator=is_a_name)
]
"""An Aeron directory; None for the one of this user."""

epoch_ms: Callable[[], int] = SystemClock().epoch_ms
pause: Callable[[float], Awaitable[None]] = asyncio.sleep


@Parameter(name="*", group="Watching")
@attrs.frozen(kw_only=True)
class Watch:
    """Options of commands that can draw again and again.

    Attributes:
        watch: Draw again at each interval, until Ctrl-C; a driver that is started again is found.
        interval: Seconds between two drawings.
        count: Draw so often, and then end.
    """

    watch: Annotated[bool, Parameter(name=("--watch", "-w"), negative=(), show_default=False)] = (
        False
    )
    interval: Positive = 1.0
    count: Count | None = None


def located(directory: str | None) -> str | Path:
    """Return the directory that a command was given, or that of this user."""
    return default_directory() if directory is None else directory


def open_directory(directory: str | None) -> AeronDirectory:
    """Return the directory that a command was given, open for reading.

    Raises:
        DriverError: There is no driver, or it has not finished its start, or the user may not read
            its file.
        ProtocolError: The file is of another version, damaged, or no plain file.
        ConfigurationError: The compiled code is missing.
    """
    return AeronDirectory.open(located(directory))


@asynccontextmanager
async def connected(directory: str | None, timeout: float | None) -> AsyncIterator[Aeron]:
    """Yield a client of the driver in a directory, or of one of its own; it is closed at the end.

    Args:
        directory: As the command was given it; None starts a driver.
        timeout: The `--timeout` of the command, in seconds: most to wait for the driver of another
            process. `driver_timeout_ms` bounds that wait, too.

    Raises:
        DriverTimeoutError: There is no driver in the directory in time.
    """
    from aeron_async.client.aeron import Aeron  # noqa: PLC0415 - commands that look need no client

    client = Aeron.connect(directory=directory)
    if directory is not None and timeout is not None:
        waiting = asyncio.timeout(timeout)
        try:
            async with waiting:
                await client
        except TimeoutError:
            if not waiting.expired():
                raise
            message = (
                f"no media driver within {timeout:g} s, which is --timeout: {_why_not(directory)}"
            )
            raise DriverTimeoutError(message) from None
    async with client as aeron:
        yield aeron


def _why_not(directory: str) -> str:
    """Return why the driver of a directory cannot be used."""
    found = AeronDirectory.try_open_active(
        directory, now_ms=epoch_ms(), timeout_ms=DRIVER_TIMEOUT_MS
    )
    if isinstance(found, str):
        return found
    found.close()
    return f"the driver in {directory} does not answer"


def facts_of(directory: AeronDirectory, now_ms: int) -> dict[str, object]:
    """Return what JSON output says of a driver."""
    return {
        "directory": str(directory.path),
        "pid": directory.layout.pid,
        "start_timestamp_ms": directory.layout.start_timestamp_ms,
        "now_ms": now_ms,
        "heartbeat_ms": directory.heartbeat_ms,
        "is_active": directory.is_active(now_ms, DRIVER_TIMEOUT_MS),
    }


def headline_of(directory: AeronDirectory, now_ms: int) -> str:
    """Return the line that says which driver it is, and whether it is active."""
    why_not = directory.why_not_active(now_ms, DRIVER_TIMEOUT_MS)
    if why_not is not None:
        return f"{format_when(now_ms)}  not active: {why_not}"
    return (
        f"{format_when(now_ms)}  driver {directory.layout.pid} in {directory.path}, "
        f"heartbeat {now_ms - directory.heartbeat_ms:,} ms ago"
    )


def format_when(time_ms: int) -> str:
    """Return a time of another process in UTC; a number that is no time stays a number."""
    return utc_time(time_ms, per_second=MS_PER_SECOND)


def show(
    directory: str | None,
    draw: Callable[[AeronDirectory, int], object],
    watch: Watch,
    *,
    json: bool,
) -> int:
    """Open a directory and draw it, once or again and again; return the exit code.

    Args:
        directory: As the command was given it.
        draw: Prints a directory at a time in epoch milliseconds.
        watch: Whether and how often to draw again.
        json: Whether `draw` prints JSON.
    """
    if watch.watch or watch.count is not None:
        return run(_watch(directory, draw, watch, is_json=json), RunOptions())
    with open_directory(directory) as found:
        draw(found, epoch_ms())
    return ExitCode.SUCCESS


async def _watch(
    directory: str | None,
    draw: Callable[[AeronDirectory, int], object],
    watch: Watch,
    *,
    is_json: bool,
) -> int:
    place = located(directory)
    is_cleared = sys.stdout.isatty() and not is_json
    found: AeronDirectory | CncMissing | CncNotReady = open_directory(directory)
    drawn = 0
    try:
        while True:
            if is_cleared:
                clear_terminal()
            if isinstance(found, AeronDirectory):
                draw(found, epoch_ms())
            elif is_json:
                print_json({"directory": str(place), "is_active": False, "reason": found.reason})
            else:
                print_line(f"{format_when(epoch_ms())}  {found.reason}")
            sys.stdout.flush()
            drawn += 1
            if drawn == watch.count:
                return ExitCode.SUCCESS
            if not is_cleared and not is_json:
                print_line("")
            await pause(watch.interval)
            if not isinstance(found, AeronDirectory):
                found = AeronDirectory.try_open(place)
            elif found.is_replaced():
                found.close()
                found = AeronDirectory.try_open(place)
    finally:
        if isinstance(found, AeronDirectory):
            found.close()


def print_columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, texts: frozenset[str]
) -> None:
    """Print rows in aligned columns, never cut; the last column is not padded.

    Args:
        names: What the columns hold.
        rows: A cell for each column.
        texts: Names of the columns that are aligned to the left.
    """
    widths = [max(len(row[place]) for row in (names, *rows)) for place in range(len(names))]
    for row in (names, *rows):
        cells = [
            cell.ljust(width) if name in texts else cell.rjust(width)
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        print_line("  ".join(cells).rstrip())
