"""A wait of one task that is logged when it lasts for long, and says why when its time is up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aeron_async.client.arguments import check_timeout
from aeron_async.client.offer_timeout import wait_timeout
from aeron_async.client.wait_watch import Wait, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.signal import Signal
    from aeron_async.client.wait_watch import WaitWatch

__all__ = ["watched_wait"]


class OpenWaiter(Waiter, Protocol):
    """A publication or subscription that can be closed while its callers wait."""

    waits: WaitWatch
    logs_waits: bool

    def check_open(self) -> None:
        """Raise `ClosedError` where it is closed."""
        ...


async def watched_wait(
    waiter: OpenWaiter,
    changed: Signal,
    condition: Callable[[], bool],
    operation: str,
    timeout: float | None,
) -> None:
    """Wait until a condition holds.

    Args:
        waiter: Whose condition it is.
        changed: Rings when the condition may have come to hold, and when the waiter is closed.
        condition: Is asked before any waiting too.
        operation: What the caller called.
        timeout: Seconds to wait at most; None waits as long as it takes.

    Raises:
        AeronTimeoutError: The timeout passed; its text says why.
        ClosedError: The waiter was closed, before or while waiting.
    """
    timeout = check_timeout(timeout)
    waiter.check_open()
    if condition():
        return
    started_ns = waiter.waits.now_ns()
    wait = Wait(waiter, operation, lambda: started_ns)
    if waiter.logs_waits:
        waiter.waits.begin(wait)
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await changed.wait()
                waiter.check_open()
    except TimeoutError:
        waited_ns = waiter.waits.now_ns() - started_ns
        raise wait_timeout(waiter.explain(), operation, waited_ns) from None
    finally:
        waiter.waits.end(wait)
