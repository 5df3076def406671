"""Several waits at once, whose failure is one error and no group of them: Spark shows it whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["together"]


async def together(calls: Iterable[Callable[[], Awaitable[object]]], *, at_once: int) -> None:
    """Await all of some calls, and raise what the first of those that fail has raised.

    Args:
        calls: To be made.
        at_once: How many of them at the same time.
    """
    limiter = anyio.CapacityLimiter(at_once)
    failures: list[Exception] = []

    async def attempt(call: Callable[[], Awaitable[object]]) -> None:
        async with limiter:
            try:
                await call()
            except Exception as error:  # noqa: BLE001 - the first is raised below
                failures.append(error)

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(attempt, call)
    if failures:
        raise failures[0]
