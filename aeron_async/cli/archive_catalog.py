"""`aeron-async archive ls` and `describe`: what an archive's directory holds.

Both read the files alone, so that they work beside an archive that is running, ours or the
official one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - annotations of commands are read when they run
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.segments import segment_bases, segment_name
from aeron_async.cli.options import Flag, Stream  # noqa: TC001 - likewise
from aeron_async.cli.output import make_console, print_json, print_line
from aeron_async.cli.runner import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["describe", "ls"]

SEGMENTS_SHOWN: Final = 8


def ls(
    directory: Path,
    /,
    *,
    channel: str = "",
    stream: Stream | None = None,
    json: Flag = False,
) -> int:
    """List the recordings of a directory.

    Args:
        directory: Of an archive, ours or the official one; it may be running.
        channel: Only those whose channel has this in it.
        stream: Only those of this stream.
        json: One JSON object a line.
    """
    catalog = Catalog.open_to_read(OsDirectory(directory, create=False))
    try:
        found = matching(catalog, channel, stream)
        if json:
            for each in found:
                print_json(attrs.asdict(each))
        else:
            print_table(found)
    finally:
        catalog.close()
    return ExitCode.SUCCESS


def describe(directory: Path, recording_id: int, /, *, json: Flag = False) -> int:
    """Say all that is known of one recording, and which files it has.

    Args:
        directory: Of an archive.
        recording_id: Of the recording.
        json: As one JSON object.
    """
    place = OsDirectory(directory, create=False)
    catalog = Catalog.open_to_read(place)
    try:
        descriptor = catalog.get(recording_id)
    finally:
        catalog.close()
    bases = segment_bases(place.names(), recording_id)
    report = attrs.asdict(descriptor)
    report["segments"] = [segment_name(recording_id, base) for base in bases]
    if json:
        print_json(report)
        return ExitCode.SUCCESS
    report |= {
        "start_timestamp_ms": when(descriptor.start_timestamp_ms),
        "stop_timestamp_ms": when(descriptor.stop_timestamp_ms),
        "stop_position": position_text(descriptor),
        "segments": f"{len(bases)}: {', '.join(report['segments'][:SEGMENTS_SHOWN])}"
        + (", …" if len(bases) > SEGMENTS_SHOWN else ""),
    }
    for name, value in report.items():
        print_line(f"{name.removesuffix('_ms').replace('_', ' '):<18} {value}")
    return ExitCode.SUCCESS


def matching(catalog: Catalog, channel: str, stream: int | None) -> Iterator[RecordingDescriptor]:
    """Yield the recordings that are asked for, in the order of their ids."""
    for recording_id in catalog.ids():
        descriptor = catalog.get(recording_id)
        is_of_stream = stream is None or descriptor.stream_id == stream
        if is_of_stream and channel in descriptor.original_channel:
            yield descriptor


def print_table(found: Iterator[RecordingDescriptor]) -> None:
    """Write recordings as people read them."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - `--json` does without
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for name in ("id", "stream", "session", "start", "stop", "began", "channel"):
        is_text = name in {"began", "channel"}
        table.add_column(
            name, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis"
        )
    for each in found:
        table.add_row(
            str(each.recording_id),
            str(each.stream_id),
            str(each.session_id),
            f"{each.start_position:,}",
            position_text(each),
            when(each.start_timestamp_ms),
            each.original_channel,
        )
    make_console().print(table)


def position_text(descriptor: RecordingDescriptor) -> str:
    """Return where a recording ends, as people read it."""
    return "recording" if descriptor.is_active else f"{descriptor.stop_position:,}"


def when(epoch_ms: int) -> str:
    """Return a time as people read it, in UTC; a dash where there is none."""
    if epoch_ms < 0:
        return "-"
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
