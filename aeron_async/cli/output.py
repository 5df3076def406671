"""Output of commands, and the translation of setting names into those of the command line.

Errors and log lines of the library name the arguments of its classes. At the command line these are
options and environment variables, and `rename_settings_for_cli` replaces one by the other for all
commands.

Invariant: untrusted text reaches a terminal or a pipe only through `printable`, and never as
markup. JSON keeps the true text, with everything but visible ASCII escaped.

Colour and moving output appear on a terminal only, and not if `NO_COLOR` is set.
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
    "LINE_LENGTH_MAX",
    "MESSAGE_TIMEOUT",
    "TOLD",
    "as_json",
    "clear_terminal",
    "complain",
    "discard_output",
    "has_colour",
    "make_console",
    "print_json",
    "print_line",
    "print_painted",
    "question",
    "remark",
    "rename_settings_for_cli",
    "safe_text",
]

MESSAGE_TIMEOUT: Final = "AERON_ARCHIVE_MESSAGE_TIMEOUT"
"""Environment variable: how long archive commands wait for a response."""

OPTIONS: Final = {
    "`extending_publication`": "`pub --extend`",
    "the control stream id": "AERON_ARCHIVE_CONTROL_STREAM_ID",
    "response_channel": "AERON_ARCHIVE_CONTROL_RESPONSE_CHANNEL",
    "path": "ARCHIVE",
    "change path": "change ARCHIVE",
    "is gone: connect again": "is gone: run the command again",
    "raise timeout": f"raise {MESSAGE_TIMEOUT}",
    "from_position": "--begin",
    "to_position": "--end",
    "max_age_ms": "--max-age",
    "max_bytes": "--max-bytes",
    "before_position": "--before",
    "target_size": "--target-size",
    "may_break_readers": "--may-break-readers",
}
NAME: Final = re.compile(
    "|".join([*map(re.escape, (each for each in OPTIONS if not each.isidentifier()))])
    + r"|^path(?==')|(?<![\w./=-])[a-z]+(?:_[a-z]+)+(?![\w/(=-]|\.\w)"
)


def rename_settings_for_cli(text: str) -> str:
    """Replace argument names in a text by options and environment variables.

    A name without an underscore is taken for a word. A name in a path, a call or a value stays.
    """
    return NAME.sub(lambda found: meanings().get(found[0], found[0]), text)


@cache
def meanings() -> Mapping[str, str]:
    """Return the option or environment variable for each argument name."""
    from aeron_async.archive.context import ArchiveContext  # noqa: PLC0415 - only errors need it
    from aeron_async.driver.core.context import DriverContext  # noqa: PLC0415 - as above

    variables = {
        name: setting.env_name
        for settings in (ArchiveContext.settings(), DriverContext.settings())
        for name, setting in settings.items()
    }
    return variables | OPTIONS


LINE_LENGTH_MAX: Final = 8_000
"""In characters; a line of output holds several untrusted texts at most."""

CLEAR: Final = "\x1b[H\x1b[J"
PIPE_WIDTH: Final = 100
"""Width in characters if there is no terminal and `COLUMNS` is not set."""


def print_line(text: str) -> None:
    """Write one line of output."""
    sys.stdout.write(f"{printable(text, LINE_LENGTH_MAX)}\n")


def clear_terminal() -> None:
    """Move to the first line of the terminal, and empty the screen; what scrolled away stays."""
    sys.stdout.write(CLEAR)


def print_painted(*parts: tuple[str, int | None]) -> None:
    """Write one line of output, each part in its terminal colour."""
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
    """Return one line of JSON: the true text, in visible ASCII only."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def print_json(value: object) -> None:
    """Write one line of output, as JSON."""
    sys.stdout.write(f"{as_json(value)}\n")


def safe_text(text: str, style: str = "") -> Text:
    """Return untrusted text as a table cell."""
    from rich.text import Text  # noqa: PLC0415 - only drawing needs it

    return Text(printable(text, LINE_LENGTH_MAX), style=style)


def remark(text: str) -> None:
    """Write a remark to standard error."""
    sys.stderr.write(f"{printable(text, LINE_LENGTH_MAX)}\n")
    sys.stderr.flush()


def question(text: str) -> None:
    """Write a question to standard error; the answer follows on the same line."""
    sys.stderr.write(f"{printable(text, LINE_LENGTH_MAX)} [y/N] ")
    sys.stderr.flush()


TOLD: Final[set[tuple[str, str]]] = set()
"""Causes and texts of the waits of this run that were remarked on."""


ERROR_ADVICE: Final = {
    "unknown recording id": "`archive ls` shows the ids of all recordings",
    "no recording subscription found": "`archive ls` shows what is recorded, and what waits",
    "no recording found for": "`archive ls` shows what is recorded, and what waits",
}
"""What to do about errors of the archive, by their beginning."""


def complain(error: BaseException | str) -> None:
    """Write an error in one line, with the names of the command line.

    If the wait that has timed out was remarked on, its explanation is not repeated.
    """
    text, why = str(error), getattr(error, "why", None)
    if why is not None and any(
        cause == why.reason.name.lower()
        and told.startswith(f"{why.subject}: ")
        and told.endswith(why.remedy)
        for cause, told in TOLD
    ):
        text = text.replace(str(why), f"{why.subject}, as said above")
    for beginning, advice in ERROR_ADVICE.items():
        if text.startswith(beginning):
            text += f"; {advice}"
    remark(f"error: {rename_settings_for_cli(' '.join(text.split()))}")


def discard_output() -> None:
    """Send buffered output to the null device, so that the interpreter can flush it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream should have colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def make_console() -> Console:
    """Return a console that draws tables on standard output; rich is imported only here."""
    from rich.console import Console  # noqa: PLC0415 - only drawing needs it

    is_told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if is_told else PIPE_WIDTH
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
