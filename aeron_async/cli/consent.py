"""Whether a command may destroy something: it asks on a terminal, and takes `--yes` elsewhere."""

from __future__ import annotations

import sys
from typing import Final

from aeron_async.cli.output import question, remark
from aeron_async.cli.stdio import BlockingCalls
from aeron_async.errors import ConfigurationError

__all__ = ["ask", "ask_at_once", "can_ask", "check_can_ask"]

YES: Final = frozenset({"y", "yes"})


def can_ask() -> bool:
    """Return whether there is a person at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def check_can_ask(*, yes: bool, dry_run: bool, what: str) -> None:
    """Refuse a command that would have to ask, and cannot; before it opens anything.

    Args:
        yes: Whether --yes was given.
        dry_run: Whether --dry-run was given.
        what: The command would do, such as "remove files".

    Raises:
        ConfigurationError: Both options were given, or neither and there is no terminal.
    """
    if yes and dry_run:
        message = "--yes and --dry-run contradict each other: give one"
        raise ConfigurationError(message)
    if not (yes or dry_run or can_ask()):
        message = (
            f"this would {what}, and there is no terminal to ask at: give --yes to do it, or "
            "--dry-run to see what it would do"
        )
        raise ConfigurationError(message)


async def ask(text: str, *, yes: bool) -> bool:
    """Return whether the person at the terminal agrees, or has agreed by --yes."""
    if yes:
        return True
    calls = BlockingCalls()
    try:
        return await calls.call(ask_at_once, text)
    finally:
        calls.close()


def ask_at_once(text: str) -> bool:
    """Return whether the person at the terminal agrees; blocks until there is an answer."""
    question(text)
    answer = sys.stdin.readline()
    if answer.strip().lower() in YES:
        return True
    remark("nothing was changed")
    return False
