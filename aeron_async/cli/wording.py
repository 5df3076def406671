"""What Python calls a setting, in the words of whoever types commands.

The library's errors and log lines name the arguments of its classes. At the command line these are
options and variables of the environment, and here, for all commands, one becomes the other.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MESSAGE_TIMEOUT", "worded"]

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
