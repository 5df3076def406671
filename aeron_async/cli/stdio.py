"""Standard input and output in a thread of their own, and questions asked there.

A pipe that nobody reads blocks the thread that writes to it, and the media driver must not stand
still that long. So one thread does the blocking calls, one after the other; it may be abandoned in
the middle of one, which the executor's threads may not.
"""

from __future__ import annotations

import asyncio
import os
import sys
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, final

from aeron_async.cli.output import question, remark
from aeron_async.errors import ConfigurationError, MessageTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = [
    "BlockingCalls",
    "ask",
    "ask_at_once",
    "can_ask",
    "check_can_ask",
    "read_lines",
    "write_all",
]

READ_LENGTH: Final = 256 * 1024

P = ParamSpec("P")
R = TypeVar("R")


@final
class BlockingCalls:
    """Makes blocking calls in a thread of its own, in order: `await calls.call(os.read, 0, 100)`.

    A thread that is still in a call when the program ends goes with it.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        Thread(target=self._run, name="aeron-async-stdio", daemon=True).start()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns, or raise what it raises; do not cancel a write."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._calls.put((future, lambda: function(*args, **kwargs)))
        return await future

    def close(self) -> None:
        """Let the thread end after the call it is in."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, function = item
            try:
                result, error = function(), None
            except Exception as raised:  # noqa: BLE001 - it is raised where the call was made
                result, error = None, raised
            try:
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # The loop has been closed meanwhile: nobody waits any more.
                return


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however many calls that takes.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


async def read_lines(
    calls: BlockingCalls, descriptor: int, *, max_length: int
) -> AsyncIterator[bytes]:
    """Yield the lines of a file, pipe or terminal as they come, without their newlines.

    Args:
        calls: Where to wait for them.
        descriptor: Of the open file.
        max_length: Longest line, in bytes; what has no newline would otherwise grow for ever.

    Raises:
        MessageTooLongError: A line is longer.
    """
    rest = b""
    while chunk := await calls.call(os.read, descriptor, READ_LENGTH):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > max_length:
            message = (
                f"a line of more than {max_length} bytes, the longest message of this channel: "
                "raise term-length"
            )
            raise MessageTooLongError(message)
    if rest:
        yield rest


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
