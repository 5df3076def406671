"""What tests of streams within one driver have in common."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.drivers import embedded
from tests.tracing import untraced

if TYPE_CHECKING:
    from collections.abc import Callable

    import aeron_async as aa
    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.publication import SubscribablePublication

IPC = "aeron:ipc"
STREAM_ID = 1001


async def until(condition: Callable[[], object]) -> None:
    """Give the loop turns until something is so."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def take(subscription: aa.Subscription, count: int) -> list[bytes]:
    """Read so many messages, and say that the last was taken, too."""
    async with asyncio.timeout(5):
        taken = [(await anext(subscription)).data for _ in range(count)]
    subscription._begin_poll()
    return taken


def fill(counters: CountersManager, free_count: int = 0) -> list[Counter]:
    """Allocate every counter that is free but so many."""
    with untraced():
        count = counters.limit - len(counters.snapshot()) - free_count
        return [
            counters.allocate(1_000, b"", "filler", registration_id=-1 - each)
            for each in range(count)
        ]


def publications(aeron: aa.Aeron) -> tuple[SubscribablePublication, ...]:
    """Return the cores of all publications."""
    conductor = embedded(aeron).conductor
    return (*conductor.ipc_publications, *conductor.network_publications)


def labels(aeron: aa.Aeron, *names: str) -> list[str]:
    """Return the labels of the counters that begin with these names."""
    return [each.label for each in aeron.counters if each.label.startswith(names)]
