"""Where the command begins: Ctrl-C ends it silently, also while it is still importing itself.

Invariant: nothing heavy is imported before that is so, and nothing of the extra `cli` before it is
known to be installed.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

BAD_USAGE: Final = 2
INTERRUPTED: Final = 130
NEEDED: Final = ("cyclopts", "rich")
"""What the extra `cli` installs."""


def main() -> int:
    """Run the command of this process, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is open yet. An exception might be caught, or printed, by what is being imported.
        signal.signal(signal.SIGINT, _leave)
    try:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            from aeron_async.cli.output import complain  # noqa: PLC0415 - most have all

            verb = "is" if len(missing) == 1 else "are"
            complain(
                f"the command needs {', '.join(missing)}, which {verb} not installed: "
                "pip install 'aeron-async[cli]'"
            )
            return BAD_USAGE
        from aeron_async.cli.main import main as run  # noqa: PLC0415 - takes half a second

        if signal.getsignal(signal.SIGINT) is _leave:
            # Within the `try`: the next one is an exception.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
