"""A bell that any number of tasks of one loop may wait for; ringing it wakes those who wait now.

Unlike an event it has no state to clear: whoever waits checks first, waits, and checks again.
Nothing can slip between check and wait, for there is no `await` between them.
"""

from __future__ import annotations

import asyncio

__all__ = ["Signal"]


class Signal:
    """Wakes every task that waits."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake every task that waits now."""
        if not self._waiters:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until the next ring."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
