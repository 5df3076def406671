"""Tasks in virtual time: in an order that repeats, and told apart by where they wait."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

__all__ = ["NumberedTask", "describe_task", "task_order"]

T = TypeVar("T")

ASYNCIO: Final = asyncio.__file__.removesuffix("__init__.py")


class NumberedTask(asyncio.Task[T]):
    """A task that sets keep in the same order in every run.

    Task groups cancel their tasks in the order of a set, so by their hashes; that of an ordinary
    task is its place in memory.

    Args:
        coro: What it runs.
        loop: Where.
        number: Its own, in this loop.
        options: As those of any task.

    Attributes:
        number: As given.
    """

    def __init__(
        self, coro: Any, *, loop: asyncio.AbstractEventLoop, number: int, **options: Any
    ) -> None:
        # First, for a task enters a set before it is whole.
        self.number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


def task_order(task: asyncio.Task[Any]) -> tuple[float, str]:
    """Return what sorts tasks as they were made on their loop; those without a number come last.

    Names that asyncio gives count through the whole process, and sort as text.
    """
    number = task.number if isinstance(task, NumberedTask) else float("inf")
    return number, task.get_name()


def describe_task(task: asyncio.Task[Any]) -> str:
    """Return a task's name and where it waits: the innermost line that is not asyncio's own."""
    place = "its end"
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        if not frame.f_code.co_filename.startswith(ASYNCIO):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        waiting = waiting.cr_await
    return f"{task.get_name()} at {place}"
