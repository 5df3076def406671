"""Commands `aeron-async archive replay` and `follow`: print the messages of a recording."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from aeron_async.cli.archive_where import is_elsewhere, opened, progress_bar
from aeron_async.cli.options import ClientOptions, Count, Quiet, RecordingId, Size
from aeron_async.cli.runner import ExitCode, run
from aeron_async.cli.stdio import BlockingCalls, write_all
from aeron_async.cli.sub import Format, Printer
from aeron_async.errors import AeronError
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.archive.api import Archive, Replay

__all__ = ["follow", "replay"]

MOST_BUFFERED: Final = 64 * 1024
LOOK_SECONDS: Final = 0.5


def replay(
    where: str,
    recording_id: RecordingId,
    /,
    *,
    begin: Size | None = None,
    end: Size | None = None,
    format: Format = "text",  # noqa: A002 - it is the name of the option
    count: Count | None = None,
    quiet: Quiet = False,
    options: ClientOptions | None = None,
) -> int:
    """Print what was recorded, up to the current end of the recording.

    Args:
        where: Directory of an archive, or the control channel of a running archive.
        recording_id: Id of the recording; see `archive ls`.
        begin: Position to begin at; by default the start of the recording.
        end: Position to end at.
        format: How a message is printed: as it is, one a line; in hexadecimal; as JSON; not at all.
        count: Stop after so many messages.
        quiet: Do not remark on how many there were.
        options: How to run.
    """
    printer = Printer(format, is_quiet=quiet)
    options = options or ClientOptions()
    main = _print(
        where,
        recording_id,
        printer,
        aeron_dir=options.aeron_dir,
        places=(begin, end),
        count=count,
        is_followed=False,
    )
    return run(main, options)


def follow(
    where: str,
    recording_id: RecordingId,
    /,
    *,
    begin: Size | None = None,
    format: Format = "text",  # noqa: A002 - it is the name of the option
    count: Count | None = None,
    quiet: Quiet = False,
    options: ClientOptions | None = None,
) -> int:
    """Print what was recorded and what is still being recorded, until Ctrl-C.

    The command does not stop at the end of a recording, because the recording may be extended.

    Args:
        where: Control channel of a running archive. A directory that no archive holds receives
            nothing more, so there the command ends at the end of the recording.
        recording_id: Id of the recording; see `archive ls`.
        begin: Position to begin at; by default the start of the recording.
        format: How a message is printed: as it is, one a line; in hexadecimal; as JSON; not at all.
        count: Stop after so many messages.
        quiet: Do not remark on how many there were.
        options: How to run.
    """
    printer = Printer(format, is_quiet=quiet)
    options = options or ClientOptions()
    main = _print(
        where,
        recording_id,
        printer,
        aeron_dir=options.aeron_dir,
        places=(begin, None),
        count=count,
        is_followed=True,
    )
    return run(main, options)


async def _print(
    where: str,
    recording_id: int,
    printer: Printer,
    *,
    aeron_dir: str | None,
    places: tuple[int | None, int | None],
    count: int | None,
    is_followed: bool,
) -> int:
    begin, end = places
    async with opened(where, aeron_dir=aeron_dir) as (_, archive):
        descriptor = await archive.describe(recording_id)
        printer.name_source(session_id=descriptor.session_id, stream_id=descriptor.stream_id)
        if is_followed and not is_elsewhere(where):
            # This process holds the directory now, so no other can record into it.
            printer.say(f"no archive serves {where}: this ends where recording {recording_id} does")
            is_followed = False
        messages = archive.replay(recording_id, begin, end, follow=is_followed)
        calls, is_refused = BlockingCalls(), False
        # On a terminal, the printed messages show the progress.
        is_shown = not (is_followed or sys.stdout.isatty())
        start, total = 0, 0
        if is_shown:
            start = await archive.start_position(recording_id) if begin is None else begin
            stop = await archive.max_recorded_position(recording_id) if end is None else end
            total = max(0, stop - start)
        try:
            with progress_bar("replaying", total) as advance:
                async with messages, remarks(archive, messages, printer, is_wanted=is_followed):
                    # A follower wants to see each message at once, and not in batches.
                    most = 1 if is_followed else MOST_BUFFERED
                    await _write(
                        messages, printer, calls, count, most, lambda at: advance(at - start)
                    )
        except AeronError:
            is_refused = printer.message_count == 0
            raise
        finally:
            calls.close()
            if not is_refused:
                printer.finish()
    return ExitCode.SUCCESS


@asynccontextmanager
async def remarks(
    archive: Archive, messages: Replay, printer: Printer, *, is_wanted: bool
) -> AsyncIterator[None]:
    """Remark on what the replay waits for while the block runs, if that is wanted."""
    if not is_wanted:
        yield
        return
    async with TaskOwner() as tasks:
        tasks.start(say_what_is_waited_for(archive, messages, printer), "remarks")
        yield


async def say_what_is_waited_for(archive: Archive, messages: Replay, printer: Printer) -> None:
    """Remark each time the replay has reached the end of a stopped recording, until cancelled."""
    recording_id, said_of = messages.recording_id, None
    with suppress(AeronError):
        start = await archive.start_position(recording_id)
        while True:
            stop = await archive.stop_position(recording_id)
            position = start if messages.position < 0 else messages.position
            if stop == position != said_of:
                printer.say(
                    f"recording {recording_id} has stopped at position {stop}; waiting for an "
                    "extension, Ctrl-C ends"
                )
                said_of = stop
            await asyncio.sleep(LOOK_SECONDS)


async def _write(
    messages: Replay,
    printer: Printer,
    calls: BlockingCalls,
    count: int | None,
    most: int,
    on_position: Callable[[int], object],
) -> None:
    """Write messages in batches of bytes, and report the position of each batch."""
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
