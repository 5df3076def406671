"""Command `aeron-async errors`: the distinct errors that a driver has logged.

Source: Aeron `ErrorStat`.
"""

from __future__ import annotations

from typing import Final

import attrs

from aeron_async.cli.aeron_directories import Directory, format_when, open_directory
from aeron_async.cli.figures import plural
from aeron_async.cli.options import Flag  # noqa: TC001 - cyclopts reads annotations at run time
from aeron_async.cli.output import print_json, print_line
from aeron_async.cli.runner import ExitCode

__all__ = ["errors"]

LINES_SHOWN: Final = 40
"""Most lines of one error: a stack of an official driver has about ten."""


def errors(*, directory: Directory = None, json: Flag = False) -> int:
    """Show the distinct errors of a driver, oldest first, also of one that has ended.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        json: One JSON object a line.
    """
    with open_directory(directory) as found:
        observations = found.errors()
    if json:
        for each in observations:
            print_json(attrs.asdict(each))
        return ExitCode.SUCCESS
    for each in observations:
        first, last = format_when(each.first_observation_ms), format_when(each.last_observation_ms)
        print_line(f"{plural(each.observation_count, 'time')} from {first} to {last}:")
        # Indented, so that no line of a text looks like one of this command.
        lines = each.text.rstrip("\n").split("\n")
        for line in lines[:LINES_SHOWN]:
            print_line(f"  {line}".rstrip())
        if len(lines) > LINES_SHOWN:
            print_line(f"  … {len(lines) - LINES_SHOWN:,} more lines")
    print_line(plural(len(observations), "distinct error"))
    return ExitCode.SUCCESS
