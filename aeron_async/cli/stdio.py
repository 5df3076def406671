"""Standard input and output in a thread of their own, and questions to the user.

A pipe without a reader blocks the thread that writes to it, and the media driver must not stand
still that long. So one thread makes the blocking calls, one after the other. The program may end
while that thread is in a call, which an executor's threads do not allow.
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

    A call that is still running when the program ends is abandoned.
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
        """End the thread after its current call."""
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
            except RuntimeError:  # The loop is closed, so no task waits for the result.
                return


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, in as many calls as necessary.

    Raises:
        BrokenPipeError: The reader has gone.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


async def read_lines(
    calls: BlockingCalls, descriptor: int, *, max_length: int
) -> AsyncIterator[bytes]:
    """Yield the lines of a file, pipe or terminal as they come, without their newlines.

    Args:
        calls: Thread that reads them.
        descriptor: Open file descriptor.
        max_length: Longest line in bytes; input without a newline would otherwise grow without
            limit.

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
    """Return whether a user is at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def check_can_ask(*, yes: bool, dry_run: bool, what: str) -> None:
    """Refuse a command that must ask and cannot, before it opens anything.

    Args:
        yes: Whether --yes was given.
        dry_run: Whether --dry-run was given.
        what: What the command would do, such as "remove files".

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
    """Return whether the user agrees at the terminal, or has agreed by --yes."""
    if yes:
        return True
    calls = BlockingCalls()
    try:
        return await calls.call(ask_at_once, text)
    finally:
        calls.close()


def ask_at_once(text: str) -> bool:
    """Return whether the user agrees at the terminal; blocks until there is an answer."""
    question(text)
    answer = sys.stdin.readline()
    if answer.strip().lower() in YES:
        return True
    remark("nothing was changed")
    return False
