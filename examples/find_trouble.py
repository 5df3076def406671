"""A subscriber stops reading: what the statistics say of it, and how to see that it is over."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async.health import not_ready

if TYPE_CHECKING:
    from aeron_async.stats import Stats

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
BLOCKED_RATIO = 0.1
LATE_NS = 200_000_000


def troubles(earlier: Stats, now: Stats) -> list[str]:
    """Return what is wrong now, and what went wrong since an earlier snapshot."""
    found = not_ready(now)
    rates = now.diff(earlier)
    for row in now.publications:
        found += [
            f"stream {row.stream_id}: offers wait {share:.0%} of the time by {by}"
            for by, share in rates.publications[row.registration_id].blocked_ratio.items()
            if share > BLOCKED_RATIO
        ]
    for image in now.images:
        found += [
            f"stream {image.stream_id}: {rate:.1f} losses a second by {cause}"
            for cause, rate in rates.images[image.registration_id].losses_per_second.items()
            if rate > 0
        ]
        if image.lag_ns is not None and image.lag_ns > LATE_NS:
            found.append(f"stream {image.stream_id}: its reader is {image.lag_bytes} bytes behind")
    return found


async def main() -> None:
    """Publish to a subscriber that stands still, look, let it read, and look again."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(f"{CHANNEL}|term-length=64k", stream_id=1001)
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(publication.offer_many([bytes(1_000)] * 200))
            await asyncio.sleep(0.5)
            earlier = aeron.stats()
            await asyncio.sleep(0.5)
            print(*troubles(earlier, aeron.stats()), sep="\n")
            subscription.on_message(lambda _: None)
            await publishing
        earlier = aeron.stats()
        await asyncio.sleep(0.5)
        print("now:", troubles(earlier, aeron.stats()) or "nothing")


asyncio.run(main())
