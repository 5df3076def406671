"""What failed in a world, who it was, and which of it has been told already.

Invariant: whatever fails is told once: as a failure itself, or beside the first that follows.
"""

from __future__ import annotations

import asyncio
import gc
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = ["Failures", "add_notes"]

ERRORS_SHOWN: Final = 8
LINE_LENGTH_MAX: Final = 300
"""In characters: of an error's own message, where it is one line of another."""
CALLBACK: Final = "a callback"


@final
class Failures:
    """Keeps what services and callbacks raised until somebody is told.

    Args:
        loop: The loop in virtual time, which asks here when nothing can go on.

    Attributes:
        errors: All of them, told or not, oldest first.
    """

    def __init__(self, loop: VirtualTime) -> None:
        self.errors: list[Exception] = []
        self._loop = loop
        self._told_count = 0
        self._raisers: list[tuple[Exception, str]] = []
        loop.explain = self.explain

    def add(self, error: Exception, raiser: str) -> None:
        """Keep an error, which carries from now on who raised it.

        Args:
            error: The error.
            raiser: Such as "service 'book' on host 'shop'".
        """
        self.errors.append(error)
        if not any(each is error for each, _ in self._raisers):
            self._raisers.append((error, raiser))
            error.add_note(f"Raised by {raiser}, at {self._loop.time():.6g} virtual seconds.")

    def on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what nobody else does: an exception handler for loops."""
        error, task = context.get("exception"), context.get("future")
        if not isinstance(error, Exception):
            self.errors.append(RuntimeError(str(context)))
        elif isinstance(task, asyncio.Task):
            self.add(error, f"task {task.get_name()!r}")
        else:
            self.errors.append(error)

    def take(self) -> list[Exception]:
        """Return what has not been told yet, and is now; callbacks last, as they tell least."""
        errors = self.errors[self._told_count :]
        self._told_count = len(self.errors)
        return sorted(errors, key=lambda error: self._raiser_of(error) == CALLBACK)

    def describe(self, error: Exception) -> str:
        """Return one line of who failed, and how."""
        first_line = str(error).partition("\n")[0][:LINE_LENGTH_MAX]
        return f"{self._raiser_of(error)} failed: {type(error).__name__}: {first_line}"

    def group(self, errors: Sequence[Exception]) -> ExceptionGroup[Exception]:
        """Return a group of errors whose message begins with the first of them."""
        message = f"exceptions that nobody handled: {self.describe(errors[0])}"
        return ExceptionGroup(message, errors[:ERRORS_SHOWN])

    def explain(self, failure: RuntimeError) -> None:
        """Let a failure of the loop begin with what failed before, and be caused by it.

        Who waits for ever mostly waits for somebody who is dead.
        """
        # A task that was forgotten reports its exception when it is freed. Python 3.13 keeps it in
        # a cycle until the collector runs.
        gc.collect()
        errors = self.take()
        if errors:
            before = "; ".join(map(self.describe, errors[:ERRORS_SHOWN]))
            failure.args = (f"{before}; since then, {failure}",)
            failure.__cause__ = errors[0]
            add_notes(failure, errors[1:])

    def add_to(self, failure: BaseException) -> None:
        """Let another failure tell what has not been told yet."""
        add_notes(failure, self.take())

    def raise_untold(self) -> None:
        """Raise what has not been told yet.

        Raises:
            Exception: There is one error.
            ExceptionGroup: There are several.
        """
        errors = self.take()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise self.group(errors)

    def _raiser_of(self, error: Exception) -> str:
        raisers = [raiser for each, raiser in self._raisers if each is error]
        return raisers[0] if raisers else CALLBACK


def add_notes(failure: BaseException, errors: Iterable[Exception]) -> None:
    """Let a failure tell of other exceptions too, whole, for nobody else will."""
    known = set(map(id, all_within(failure)))
    others = [error for error in errors if id(error) not in known]
    for error in others[:ERRORS_SHOWN]:
        failure.add_note(f"Beside that:\n{''.join(format_exception(error))}")


def all_within(failure: BaseException) -> list[BaseException]:
    """Return an exception, its causes and contexts, and what is grouped in any of them."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [failure]
    while waiting:
        error = waiting.pop()
        if error is None or any(each is error for each in found):
            continue
        found.append(error)
        waiting += [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
    return found
