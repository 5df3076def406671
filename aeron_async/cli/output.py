"""Where a command writes, and the words it uses for settings.

The library's errors and log lines name the arguments of its classes. At the command line these are
options and variables of the environment, and here, for all commands, one becomes the other.

Invariant: foreign words reach a terminal or a pipe only as `printable` shows them, and never as
markup; JSON keeps the true text, with everything but visible ASCII escaped.

Colour and anything that moves appear on a terminal only, and not where `NO_COLOR` is set.
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, TextIO

from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.text import Text

__all__ = [
    "MESSAGE_TIMEOUT",
    "as_json",
    "complain",
    "has_colour",
    "make_console",
    "print_json",
    "print_line",
    "print_painted",
    "question",
    "remark",
    "safe_text",
    "worded",
]

MESSAGE_TIMEOUT: Final = "AERON_ARCHIVE_MESSAGE_TIMEOUT"
"""How long the archive commands wait for an answer."""

OPTIONS: Final = {
    "`extending_publication`": "`pub --extend`",
    "the control stream id": "AERON_ARCHIVE_CONTROL_STREAM_ID",
    "response_channel": "AERON_ARCHIVE_CONTROL_RESPONSE_CHANNEL",
    "raise timeout": f"raise {MESSAGE_TIMEOUT}",
    "from_position": "--begin",
    "to_position": "--end",
    "max_age_ms": "--max-age",
    "max_bytes": "--max-bytes",
    "before_position": "--before",
}
NAME: Final = re.compile(
    "|".join([*map(re.escape, (each for each in OPTIONS if not each.isidentifier()))])
    + r"|(?<![\w./=-])[a-z]+(?:_[a-z]+)+(?![\w/(=-]|\.\w)"
)


def worded(text: str) -> str:
    """Return a text with the options and variables that it means.

    A name without an underscore is taken for a word, and one in a path, a call or a value for
    itself.
    """
    return NAME.sub(lambda found: meanings().get(found[0], found[0]), text)


@cache
def meanings() -> Mapping[str, str]:
    """Return what arguments are called at the command line."""
    from aeron_async.archive.context import ArchiveContext  # noqa: PLC0415 - errors alone need it
    from aeron_async.driver.core.context import DriverContext  # noqa: PLC0415 - likewise

    variables = {
        name: setting.env_name
        for settings in (ArchiveContext.settings(), DriverContext.settings())
        for name, setting in settings.items()
    }
    return variables | OPTIONS


LINE_LENGTH_MAX: Final = 8_000
"""In characters; a line of the result has several foreign words at most."""

PIPE_WIDTH: Final = 100
"""Where no terminal says how wide it is, and `COLUMNS` says nothing either."""


def print_line(text: str) -> None:
    """Write one line of the result."""
    sys.stdout.write(f"{printable(text, LINE_LENGTH_MAX)}\n")


def print_painted(*parts: tuple[str, int | None]) -> None:
    """Write one line of the result, each part in its colour, as terminals number them."""
    sys.stdout.write(
        "".join(
            printable(text, LINE_LENGTH_MAX)
            if colour is None
            else f"\x1b[{colour}m{printable(text, LINE_LENGTH_MAX)}\x1b[0m"
            for text, colour in parts
        )
        + "\n"
    )


def as_json(value: object) -> str:
    """Return one line of JSON: the true text, and only visible ASCII in it."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def print_json(value: object) -> None:
    """Write one line of the result, as JSON."""
    sys.stdout.write(f"{as_json(value)}\n")


def safe_text(text: str, style: str = "") -> Text:
    """Return what a table takes for foreign words."""
    from rich.text import Text  # noqa: PLC0415 - commands that draw nothing do without it

    return Text(printable(text, LINE_LENGTH_MAX), style=style)


def remark(text: str) -> None:
    """Say something beside the result."""
    sys.stderr.write(f"{printable(text, LINE_LENGTH_MAX)}\n")
    sys.stderr.flush()


def question(text: str) -> None:
    """Ask something; the answer follows on the same line."""
    sys.stderr.write(f"{printable(text, LINE_LENGTH_MAX)} [y/N] ")
    sys.stderr.flush()


def complain(error: BaseException | str) -> None:
    """Say in one line what went wrong, in the words of the command line."""
    remark(f"error: {worded(' '.join(str(error).split()))}")


def has_colour(stream: TextIO) -> bool:
    """Return whether colours are wanted there."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def make_console() -> Console:
    """Return what draws tables on standard output; rich is imported here and nowhere earlier."""
    from rich.console import Console  # noqa: PLC0415 - commands that draw nothing do without it

    is_told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if is_told else PIPE_WIDTH
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
