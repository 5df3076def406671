"""Log lines of the code under test, without those that tell of the machine it runs on.

A machine with much to do holds an event loop up, and every driver says so, at any time. That is
true, and nothing a test has asked for: `tests/client/test_agents.py` asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog
from structlog.testing import capture_logs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

OF_THE_MACHINE: Final = "event_loop_lagged"


def captured_logs() -> AbstractContextManager[list[Any]]:
    """Capture every line of structlog but those that tell of the machine."""
    return capture_logs(processors=[_drop_those_of_the_machine])


def without_lines_of_the_machine(text: str) -> str:
    """Return what a command has said on standard error, but for such lines."""
    return "".join(line for line in text.splitlines(keepends=True) if OF_THE_MACHINE not in line)


def _drop_those_of_the_machine(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if event["event"] == OF_THE_MACHINE:
        raise structlog.DropEvent
    return event
