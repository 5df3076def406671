"""Command `aeron-async loss`: what the streams of a driver have lost.

Source: Aeron `LossStat`.
"""

from __future__ import annotations

from typing import Final

import attrs

from aeron_async.cli.aeron_directories import Directory, format_when, open_directory, print_columns
from aeron_async.cli.options import Flag  # noqa: TC001 - cyclopts reads annotations at run time
from aeron_async.cli.output import print_json, print_line
from aeron_async.cli.runner import ExitCode
from aeron_async.text import printable

__all__ = ["loss"]

COLUMNS: Final = (*("times", "bytes", "first", "last", "stream", "session", "source", "channel"),)
TEXTS: Final = frozenset({"first", "last", "source", "channel"})


def loss(*, directory: Directory = None, json: Flag = False) -> int:
    """Show the loss report of a driver: an entry for each image that has ever lost data.

    What was repaired later is included.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        json: One JSON object a line.
    """
    with open_directory(directory) as found:
        entries = found.losses()
    if json:
        for each in entries:
            print_json(attrs.asdict(each))
    elif entries:
        rows = [
            (
                f"{each.observation_count:,}",
                f"{each.total_bytes_lost:,}",
                format_when(each.first_observation_ms),
                format_when(each.last_observation_ms),
                str(each.stream_id),
                str(each.session_id),
                printable(each.source),
                printable(each.channel),
            )
            for each in entries
        ]
        print_columns(COLUMNS, rows, texts=TEXTS)
    else:
        print_line("nothing was lost")
    return ExitCode.SUCCESS
