"""Where the command begins: Ctrl-C ends it silently, also while it is still importing itself.

Invariant: nothing heavy is imported before that is so.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

INTERRUPTED: Final = 130


def main() -> int:
    """Run the command of this process, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is open yet. An exception might be caught, or printed, by what is being imported.
        signal.signal(signal.SIGINT, _leave)
    try:
        from aeron_async.cli.main import main as run  # noqa: PLC0415 - takes half a second

        if signal.getsignal(signal.SIGINT) is _leave:
            # Within the `try`: the next one is an exception.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
