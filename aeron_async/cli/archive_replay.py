"""`aeron-async archive replay` and `follow`: print the messages of a recording."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from aeron_async.cli.archive_bar import progress_bar
from aeron_async.cli.archive_where import opened
from aeron_async.cli.options import Count, Quiet, RunOptions, Size
from aeron_async.cli.runner import ExitCode, run
from aeron_async.cli.stdio import BlockingCalls, write_all
from aeron_async.cli.sub import Format, Printer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.api import Replay

__all__ = ["follow", "replay"]

MOST_BUFFERED: Final = 64 * 1024


def replay(
    where: str,
    recording_id: int,
    /,
    *,
    begin: Size | None = None,
    end: Size | None = None,
    format: Format = "text",  # noqa: A002 - it is the name of the option
    count: Count | None = None,
    quiet: Quiet = False,
    options: RunOptions | None = None,
) -> int:
    """Print what was recorded, up to where the recording has come by now.

    Args:
        where: Directory of an archive, or the control channel of one that is running.
        recording_id: Of the recording; see `archive ls`.
        begin: Position to begin at; where the recording does when not given.
        end: Position to end at.
        format: How a message is printed: as it is, one a line; in hexadecimal; as JSON; not at all.
        count: Stop after so many messages.
        quiet: Do not remark on how many there were.
        options: How to run.
    """
    printer = Printer(format, is_quiet=quiet)
    main = _print(where, recording_id, printer, places=(begin, end), count=count, is_followed=False)
    return run(main, options or RunOptions())


def follow(
    where: str,
    recording_id: int,
    /,
    *,
    begin: Size | None = None,
    format: Format = "text",  # noqa: A002 - it is the name of the option
    count: Count | None = None,
    quiet: Quiet = False,
    options: RunOptions | None = None,
) -> int:
    """Print what was recorded, and what is recorded from now on, until Ctrl-C.

    Args:
        where: Control channel of an archive that is running.
        recording_id: Of the recording; see `archive ls`.
        begin: Position to begin at; where the recording does when not given.
        format: How a message is printed: as it is, one a line; in hexadecimal; as JSON; not at all.
        count: Stop after so many messages.
        quiet: Do not remark on how many there were.
        options: How to run.
    """
    printer = Printer(format, is_quiet=quiet)
    main = _print(where, recording_id, printer, places=(begin, None), count=count, is_followed=True)
    return run(main, options or RunOptions())


async def _print(
    where: str,
    recording_id: int,
    printer: Printer,
    *,
    places: tuple[int | None, int | None],
    count: int | None,
    is_followed: bool,
) -> int:
    begin, end = places
    async with opened(where) as (_, archive):
        messages = archive.replay(recording_id, begin, end, follow=is_followed)
        calls = BlockingCalls()
        # On a terminal, what is printed shows how far it is.
        is_shown = not (is_followed or sys.stdout.isatty())
        start, total = 0, 0
        if is_shown:
            start = await archive.start_position(recording_id) if begin is None else begin
            stop = await archive.max_recorded_position(recording_id) if end is None else end
            total = max(0, stop - start)
        try:
            with progress_bar("replaying", total) as advance:
                async with messages:
                    # Whoever follows wants to see each message now, and not with others.
                    most = 1 if is_followed else MOST_BUFFERED
                    await _write(
                        messages, printer, calls, count, most, lambda at: advance(at - start)
                    )
        finally:
            calls.close()
            printer.finish()
    return ExitCode.SUCCESS


async def _write(
    messages: Replay,
    printer: Printer,
    calls: BlockingCalls,
    count: int | None,
    most: int,
    on_position: Callable[[int], object],
) -> None:
    """Write messages, so many bytes at a time, and tell up to where."""
    lines, length = [], 0
    try:
        async for message in messages:
            line = printer.take([message])
            lines.append(line)
            length += len(line)
            if length >= most:
                pending, lines, length = b"".join(lines), [], 0
                await calls.call(write_all, sys.stdout.fileno(), pending)
                on_position(message.position)
            if printer.message_count == count:
                break
    finally:
        if lines:
            await calls.call(write_all, sys.stdout.fileno(), b"".join(lines))
