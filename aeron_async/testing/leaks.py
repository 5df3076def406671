"""Closes a world, and sees that nothing of it is left: no socket, no task, no exception."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aeron_async.testing.tasks import describe_task, task_order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from aeron_async.testing.world import World

__all__ = ["LeakError", "aclose_all", "tell_and_close"]

SETTLING_S: Final = 0.01
"""Virtual seconds in which what was cancelled last comes to its end."""


class LeakError(AssertionError):
    """Something is still open after the world was closed."""


async def aclose_all(world: World, *, others: AbstractSet[asyncio.Task[Any]] = frozenset()) -> None:
    """Close a world, and see that nothing is left.

    Args:
        world: To be closed.
        others: Tasks that are none of the world's business.

    Raises:
        ExceptionGroup: Callbacks raised something that nobody handled.
        LeakError: Sockets or tasks are left.
    """
    await world.aclose()
    await world.sleep(SETTLING_S)
    left = [
        f"{host.machine.socket_count} sockets of {host.name}"
        for host in world.hosts
        if host.machine.socket_count
    ]
    tasks = asyncio.all_tasks() - others - {asyncio.current_task()}
    left += [f"task {describe_task(task)}" for task in sorted(tasks, key=task_order)]
    if left:
        message = f"left open when the test was over: {'; '.join(left)}"
        raise LeakError(message)


async def tell_and_close(story: Callable[[World], Awaitable[Any]], world: World) -> Any:
    """Let a story happen, then close its world, and see that nothing is left.

    Raises:
        LeakError: Sockets or tasks are left.
    """
    others = asyncio.all_tasks()
    result = await story(world)
    await aclose_all(world, others=others)
    return result
