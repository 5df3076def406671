"""Log lines of the code under test, without those that tell of the machine it runs on.

A machine with much to do holds an event loop up, and every driver says so, at any time. That is
true, and nothing a test has asked for: `tests/client/test_agents.py` asks for it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import structlog
from structlog.testing import capture_logs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

OF_THE_MACHINE: Final = "event_loop_lagged"


def captured_logs() -> AbstractContextManager[list[Any]]:
    """Capture what this thread logs, but for the lines that tell of the machine."""
    thread = threading.get_ident()

    def drop(
        logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if event["event"] == OF_THE_MACHINE or threading.get_ident() != thread:
            raise structlog.DropEvent
        return event

    return capture_logs(processors=[drop])


def without_lines_of_the_machine(text: str) -> str:
    """Return what a command has said on standard error, but for such lines."""
    return "".join(line for line in text.splitlines(keepends=True) if OF_THE_MACHINE not in line)
