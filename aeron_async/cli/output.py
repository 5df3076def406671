"""Where a command writes: results to standard output, remarks to standard error.

Colour and anything that moves appear on a terminal only, and not where `NO_COLOR` is set.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["complain", "has_colour", "make_console", "print_json", "print_line", "remark"]

PIPE_WIDTH: Final = 100
"""Where no terminal says how wide it is, and `COLUMNS` says nothing either."""


def print_line(text: str) -> None:
    """Write one line of the result."""
    sys.stdout.write(f"{text}\n")


def print_json(value: object) -> None:
    """Write one line of the result, as JSON."""
    print_line(json.dumps(value))


def remark(text: str) -> None:
    """Say something beside the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def complain(error: BaseException | str) -> None:
    """Say in one line what went wrong, in the words of the command line."""
    from aeron_async.cli.wording import worded  # noqa: PLC0415 - most commands go right

    remark(f"error: {worded(' '.join(str(error).split()))}")


def has_colour(stream: TextIO) -> bool:
    """Return whether colours are wanted there."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def make_console() -> Console:
    """Return what draws tables on standard output; rich is imported here and nowhere earlier."""
    from rich.console import Console  # noqa: PLC0415 - commands that draw nothing do without it

    is_told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if is_told else PIPE_WIDTH
    return Console(file=sys.stdout, highlight=False, width=width)
