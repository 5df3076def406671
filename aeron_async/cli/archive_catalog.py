"""Commands `aeron-async archive ls` and `describe`: the recordings of an archive.

Given a directory, they only read its files, so they work beside a running archive, ours or the
official one. A running archive can also be asked over its control channel.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Literal

import attrs

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.segments import segment_bases, segment_name
from aeron_async.archive.recording_channels import extending_channel
from aeron_async.cli.archive_where import is_elsewhere, listed, opened
from aeron_async.cli.options import ClientOptions, Flag, RecordingId, Stream
from aeron_async.cli.output import make_console, print_json, print_line, safe_text
from aeron_async.cli.runner import ExitCode, run
from aeron_async.errors import ChannelUriError
from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aeron_async.archive.api import RecordingSubscription
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["describe", "ls"]

SEGMENTS_SHOWN: Final = 8
MS_PER_SECOND: Final = 1_000
COLUMNS: Final = ("id", "stream", "session", "start", "stop", "began", "channel")
BETWEEN: Final = 3
"""Upper limit on the characters between two columns of a table."""
CHANNEL_WIDTH_MIN: Final = 16
TEXT_COLUMNS: Final = frozenset({"began", "channel"})


def ls(
    where: str,
    /,
    *,
    channel: str = "",
    stream: Stream | None = None,
    json: Flag = False,
    options: ClientOptions | None = None,
) -> int:
    """List the recordings of an archive.

    If a running archive is asked over its control channel, the list includes recording requests
    that have not begun to record. Such an entry says "waits", with the id for
    `archive stop --subscription`; in --json its recording_id is null.

    Args:
        where: Directory of an archive, ours or the official one, which may be running; or the
            control channel of a running archive.
        channel: Only recordings whose channel contains this text.
        stream: Only recordings of this stream.
        json: One JSON object a line.
        options: How to run.
    """
    if is_elsewhere(where):
        options = options or ClientOptions()
        main = _ls(where, channel, stream, aeron_dir=options.aeron_dir, is_json=json)
        return run(main, options)
    catalog = Catalog.open_to_read(listed(where))
    try:
        show(matching(catalog, channel, stream), (), is_json=json)
    finally:
        catalog.close()
    return ExitCode.SUCCESS


async def _ls(
    where: str, channel: str, stream: int | None, *, aeron_dir: str | None, is_json: bool
) -> int:
    async with opened(where, aeron_dir=aeron_dir) as (_, archive):
        # Ask for requests first: one that begins in between is then listed twice and not missed.
        asked = await archive.recording_subscriptions()
        found = [each async for each in archive.recordings(channel=channel, stream_id=stream)]
    going_on = {(each.stripped_channel, each.stream_id) for each in found if each.is_active}
    waiting = [
        each
        for each in asked
        if (each.channel, each.stream_id) not in going_on
        and channel in each.channel
        and stream in {None, each.stream_id}
    ]
    show(iter(found), waiting, is_json=is_json)
    return ExitCode.SUCCESS


def describe(
    where: str,
    recording_id: RecordingId,
    /,
    *,
    json: Flag = False,
    options: ClientOptions | None = None,
) -> int:
    """Show the descriptor of one recording, and the channel that extends it.

    Args:
        where: Directory of an archive, which also tells the recording's files; or the control
            channel of a running archive.
        recording_id: Id of the recording; see `archive ls`.
        json: As one JSON object.
        options: How to run.
    """
    if is_elsewhere(where):
        options = options or ClientOptions()
        main = _describe(where, recording_id, aeron_dir=options.aeron_dir, is_json=json)
        return run(main, options)
    place = listed(where)
    catalog = Catalog.open_to_read(place)
    try:
        descriptor = catalog.get(recording_id)
    finally:
        catalog.close()
    bases = segment_bases(place.names(), recording_id)
    names = [segment_name(recording_id, base) for base in bases]
    tell(descriptor, {"segments": names}, is_json=json)
    return ExitCode.SUCCESS


async def _describe(where: str, recording_id: int, *, aeron_dir: str | None, is_json: bool) -> int:
    async with opened(where, aeron_dir=aeron_dir) as (_, archive):
        descriptor = await archive.describe(recording_id)
        written = await archive.max_recorded_position(recording_id)
    tell(descriptor, {"recorded_position": written}, is_json=is_json)
    return ExitCode.SUCCESS


def tell(descriptor: RecordingDescriptor, more: dict[str, object], *, is_json: bool) -> None:
    """Print the descriptor of a recording."""
    extending, why_not = None, "once it has stopped"
    if not descriptor.is_active:
        try:
            extending = str(extending_channel(descriptor, descriptor.original_channel))
        except ChannelUriError as error:
            why_not = f"impossible, for its channel is none: {error}"
    report = attrs.asdict(descriptor) | more | {"extend_channel": extending}
    if is_json:
        print_json(report)
        return
    report |= {
        "start_timestamp_ms": when(descriptor.start_timestamp_ms),
        "stop_timestamp_ms": when(descriptor.stop_timestamp_ms),
        "stop_position": position_text(descriptor),
        "extend_channel": extending or why_not,
    }
    names = more.get("segments")
    if isinstance(names, list):
        shown = ", ".join(names[:SEGMENTS_SHOWN])
        report["segments"] = f"{len(names)}: {shown}" + (
            ", …" if len(names) > SEGMENTS_SHOWN else ""
        )
    for name, value in report.items():
        print_line(f"{name.removesuffix('_ms').replace('_', ' '):<18} {printable(value)}")


def matching(catalog: Catalog, channel: str, stream: int | None) -> Iterator[RecordingDescriptor]:
    """Yield the selected recordings, in order of id."""
    for recording_id in catalog.ids():
        descriptor = catalog.get(recording_id)
        is_of_stream = stream is None or descriptor.stream_id == stream
        if is_of_stream and channel in descriptor.original_channel:
            yield descriptor


def show(
    found: Iterator[RecordingDescriptor],
    waiting: Sequence[RecordingSubscription],
    *,
    is_json: bool,
) -> None:
    """Print recordings, and requests that have not begun to record."""
    if is_json:
        for descriptor in found:
            print_json(attrs.asdict(descriptor))
        for each in waiting:
            print_json({"recording_id": None} | attrs.asdict(each))
        return
    is_terminal = sys.stdout.isatty()
    rows = [cells(each, is_terminal=is_terminal) for each in found]
    rows += [
        (
            *("-", str(each.stream_id), "-", "-", f"waits:{each.subscription_id}", "-"),
            printable(each.channel),
        )
        for each in waiting
    ]
    if is_terminal:
        print_table(rows)
    else:
        print_aligned(rows)


def cells(descriptor: RecordingDescriptor, *, is_terminal: bool) -> tuple[str, ...]:
    """Return the table cells of a recording; without blanks and commas unless for a terminal."""
    began = when(descriptor.start_timestamp_ms)
    start = descriptor.start_position
    return (
        str(descriptor.recording_id),
        str(descriptor.stream_id),
        str(descriptor.session_id),
        f"{start:,}" if is_terminal else str(start),
        f"{descriptor.stop_position:,}"
        if is_terminal and not descriptor.is_active
        else position_text(descriptor),
        began if is_terminal else began.replace(" ", "T"),
        printable(descriptor.original_channel),
    )


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows as a table for a terminal."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - programs do not need it
    from rich.table import Table  # noqa: PLC0415

    console = make_console()
    *widths, _ = column_widths(rows)
    if sum(widths) + BETWEEN * len(widths) + CHANNEL_WIDTH_MIN > console.width:
        # The terminal wraps lines that a table would have to cut: half an id would be another id.
        print_aligned(rows)
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for name, width in zip(COLUMNS, widths, strict=False):
        justify: Literal["left", "right"] = "left" if name in TEXT_COLUMNS else "right"
        table.add_column(name, justify=justify, no_wrap=True, min_width=width)
    table.add_column(COLUMNS[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(safe_text, row))
    console.print(table)


def column_widths(rows: list[tuple[str, ...]]) -> list[int]:
    """Return the width that each column needs without cutting."""
    shown = [COLUMNS, *rows]
    return [max(len(row[place]) for row in shown) for place in range(len(COLUMNS))]


def print_aligned(rows: list[tuple[str, ...]]) -> None:
    """Print rows in aligned columns for programs: never cut, with blanks only between columns."""
    widths = column_widths(rows)
    for row in (COLUMNS, *rows):
        parts = [
            cell.ljust(width) if name in TEXT_COLUMNS else cell.rjust(width)
            for name, cell, width in zip(COLUMNS, row, widths, strict=True)
        ]
        print_line("  ".join(parts).rstrip())


def position_text(descriptor: RecordingDescriptor) -> str:
    """Return where a recording ends, or "recording" if it is active."""
    return "recording" if descriptor.is_active else str(descriptor.stop_position)


def when(epoch_ms: int) -> str:
    """Return a time in UTC; a dash if there is none."""
    if epoch_ms < 0:
        return "-"
    return utc_time(epoch_ms, per_second=MS_PER_SECOND)
