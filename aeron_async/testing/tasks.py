"""Tasks in virtual time: in an order that repeats, and told apart by where they wait."""

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
    """Return the folder that a module's file is in, with a separator at its end."""
    return f"{Path(module.__file__).parent}{os.sep}"


ASYNCIO: Final = folder_of(asyncio)
STANDARD_LIBRARY: Final = folder_of(os)
DRIVER: Final = f"{folder_of(aeron_async)}driver{os.sep}"
NOBODYS: Final = ("<", folder_of(aeron_async), folder_of(anyio))
"""Where files begin that are not those of a library's user; what is frozen has no file."""
PACKAGES: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
"""Packages may be installed within the standard library's folder, and are not of it."""
UNNAMED: Final = re.compile(r"Task-\d+")
TASKS_SHOWN: Final = 8


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


def describe_tasks(tasks: Iterable[asyncio.Task[Any]], *, has_agents: bool = False) -> str:
    """Return who waits, and where, for the first few of some tasks.

    Args:
        tasks: In any order.
        has_agents: Whether agents of drivers are named like the others. They wait for others, so
            that mostly their number is enough.
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
    """Return a task's name and where it waits: the innermost line that is a user's own.

    Where it has none, it is the innermost that is not asyncio's. A name that asyncio made up says
    nothing, so that of the coroutine stands beside it.
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
    """Return whether a driver made the task, and no user."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(DRIVER)


def is_users(frame: FrameType) -> bool:
    """Return whether a frame runs code of neither this library nor what asyncio comes with."""
    file = file_of(frame)
    if file.startswith(NOBODYS):
        return False
    return not file.startswith(STANDARD_LIBRARY) or PACKAGES.search(file) is not None


def file_of(frame: FrameType) -> str:
    """Return the file of a frame's code."""
    return frame.f_code.co_filename


def frames_of(waiting: Any) -> list[FrameType]:
    """Return where a coroutine stands and where all stand that it waits for, innermost last.

    What is done stands nowhere, and futures have no frames.
    """
    frames: list[FrameType] = []
    while waiting is not None:
        # Coroutines, and generators that stand for them.
        kind = "gi" if hasattr(waiting, "gi_frame") else "cr"
        frame = getattr(waiting, f"{kind}_frame", None)
        if frame is None:
            break
        frames.append(frame)
        waiting = waiting.gi_yieldfrom if kind == "gi" else waiting.cr_await
    return frames
