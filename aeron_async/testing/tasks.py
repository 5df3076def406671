"""Tasks in virtual time: their repeatable order, and their description by where they wait."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

import aeron_async

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

__all__ = ["NumberedTask", "describe_task", "describe_tasks", "task_order"]

T = TypeVar("T")


def folder_of(module: Any) -> str:
    """Return the folder of a module's file, with a separator at its end."""
    return f"{Path(module.__file__).parent}{os.sep}"


ASYNCIO: Final = folder_of(asyncio)
STANDARD_LIBRARY: Final = folder_of(os)
DRIVER: Final = f"{folder_of(aeron_async)}driver{os.sep}"
NOBODYS: Final = ("<", folder_of(aeron_async), folder_of(anyio))
"""Prefixes of files that do not belong to the library's user; frozen code has no file."""
PACKAGES: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
"""Packages may be installed inside the standard library's folder, but do not belong to it."""
UNNAMED: Final = re.compile(r"Task-\d+")
TASKS_SHOWN: Final = 8


class NumberedTask(asyncio.Task[T]):
    """A task with a repeatable hash, so that sets iterate in the same order in every run.

    Task groups cancel their tasks in the order of a set, so by their hashes; the hash of an
    ordinary task is its address in memory.

    Args:
        coro: Coroutine to run.
        loop: Loop to run it on.
        number: Number of the task in this loop.
        options: Options of any task.
    """

    def __init__(
        self, coro: Any, *, loop: asyncio.AbstractEventLoop, number: int, **options: Any
    ) -> None:
        # First, because the base class puts the task into a set.
        self.number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


def task_order(task: asyncio.Task[Any]) -> tuple[float, str]:
    """Return a sort key for tasks: creation order on their loop; those without a number come last.

    Default names of asyncio count through the whole process, and sort as text.
    """
    number = task.number if isinstance(task, NumberedTask) else float("inf")
    return number, task.get_name()


def describe_tasks(tasks: Iterable[asyncio.Task[Any]], *, has_agents: bool = False) -> str:
    """Return the names of some tasks and where they wait, for the first few of them.

    Args:
        tasks: In any order.
        has_agents: Whether to name agents of drivers too. They wait for other tasks, so usually
            their number is enough.
    """
    ordered = sorted(tasks, key=task_order)
    named = [task for task in ordered if has_agents or not is_agent(task)]
    told = [describe_task(task) for task in named[:TASKS_SHOWN]]
    if len(named) > len(told):
        told.append(f"and {len(named) - len(told)} more")
    if agent_count := len(ordered) - len(named):
        ending = "" if agent_count == 1 else "s"
        told.append(f"{'and ' if told else ''}{agent_count} agent{ending} of drivers")
    return "; ".join(told) or "no task"


def describe_task(task: asyncio.Task[Any]) -> str:
    """Return a task's name and where it waits: the innermost line of the user's own code.

    Without such a line, the innermost one outside asyncio is used. A default name of asyncio says
    nothing, so the name of the coroutine is added.
    """
    name, coroutine = task.get_name(), task.get_coro()
    if UNNAMED.fullmatch(name):
        name = f"{name} ({getattr(coroutine, '__qualname__', type(coroutine).__name__)})"
    frames = [frame for frame in frames_of(coroutine) if not file_of(frame).startswith(ASYNCIO)]
    if not frames:
        return f"{name} at its end"
    frame = next(filter(is_users, reversed(frames)), frames[-1])
    return f"{name} at {file_of(frame)}:{frame.f_lineno}"


def is_agent(task: asyncio.Task[Any]) -> bool:
    """Return whether a driver made the task."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(DRIVER)


def is_users(frame: FrameType) -> bool:
    """Return whether a frame runs code of neither this library nor the standard library."""
    file = file_of(frame)
    if file.startswith(NOBODYS):
        return False
    return not file.startswith(STANDARD_LIBRARY) or PACKAGES.search(file) is not None


def file_of(frame: FrameType) -> str:
    """Return the file of a frame's code."""
    return frame.f_code.co_filename


def frames_of(waiting: Any) -> list[FrameType]:
    """Return the frames of a coroutine and of everything it awaits, innermost last.

    A finished coroutine has no frame, and neither has a future.
    """
    frames: list[FrameType] = []
    while waiting is not None:
        # Coroutines, and generators that act as coroutines.
        kind = "gi" if hasattr(waiting, "gi_frame") else "cr"
        frame = getattr(waiting, f"{kind}_frame", None)
        if frame is None:
            break
        frames.append(frame)
        waiting = waiting.gi_yieldfrom if kind == "gi" else waiting.cr_await
    return frames
