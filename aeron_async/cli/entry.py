"""Entry point of the command: Ctrl-C ends it silently, even while it is still importing.

Invariant: nothing heavy is imported before the signal handler is set, and nothing of the extra
`cli` before it is known to be installed. `aeron-async driver` needs nothing of it, and imports no
other command: programs wait for a driver to start.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main", "runs_driver"]

BAD_USAGE: Final = 2
INTERRUPTED: Final = 130
NEEDED: Final = ("cyclopts", "rich")
"""Packages of the extra `cli`."""
DRIVER: Final = "driver"
PING: Final = "ping"
"""What may follow `driver` and runs none."""


def main() -> int:
    """Run the command of this process, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is open yet. An exception could be caught, or printed, by the module being
        # imported.
        signal.signal(signal.SIGINT, _leave)
    try:
        if runs_driver(sys.argv[1:]):
            from aeron_async.cli import driver_run  # noqa: PLC0415 - not before the handler is set

            return driver_run.main(sys.argv[2:])
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


def runs_driver(arguments: Sequence[str]) -> bool:
    """Return whether a command line runs a media driver."""
    return [*arguments[:1]] == [DRIVER] and [*arguments[1:2]] != [PING]


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
