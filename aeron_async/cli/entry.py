"""Entry point of the command: Ctrl-C ends it silently, even while it is still importing.

Invariant: nothing heavy is imported before the signal handler is set, and nothing of the extra
`cli` before it is known to be installed.
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
"""Packages of the extra `cli`."""


def main() -> int:
    """Run the command of this process, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is open yet. An exception could be caught, or printed, by the module being
        # imported.
        signal.signal(signal.SIGINT, _leave)
    try:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            from aeron_async.cli.output import complain  # noqa: PLC0415 - only for this error

            verb = "is" if len(missing) == 1 else "are"
            complain(
                f"the command needs {', '.join(missing)}, which {verb} not installed: "
                "pip install 'aeron-async[cli]'"
            )
            return BAD_USAGE
        from aeron_async.cli.main import main as run  # noqa: PLC0415 - takes half a second

        if signal.getsignal(signal.SIGINT) is _leave:
            # Set within the `try`, because the next Ctrl-C raises an exception.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
