"""What waits in a world of one client, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.testing import World, simulate
from aeron_async.waits import PublicationSeen, SubscriptionSeen
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HERE = "aeron:udp?endpoint=127.0.0.1:20121"
STREAM_ID = 1001
SMALL = aa.DriverContext(term_buffer_length=64 * 1024, ipc_term_buffer_length=64 * 1024)


def told(story: Callable[[World, aa.Aeron], Awaitable[None]], **settings: Any) -> list[Any]:
    """Return the lines about waits that a story of one client has written."""

    async def main(world: World) -> None:
        async with world.host("alice").aeron(attrs.evolve(SMALL, **settings)) as aeron:
            await story(world, aeron)

    with captured_logs() as lines:
        simulate(main)
    return [line for line in lines if line["event"] == "wait_lasted_long"]


async def seen_by(publication: aa.Publication) -> tuple[aa.WaitReason, PublicationSeen]:
    """Return what a publication says after three seconds of an offer, which times out."""
    with pytest.raises(aa.OfferTimeoutError) as caught:
        await publication.offer(bytes(64), timeout=3)
    why = caught.value.why
    assert why is not None
    assert str(why) in str(caught.value)
    assert isinstance(why.seen, PublicationSeen)
    assert aa.why(publication).reason is why.reason
    return why.reason, why.seen


async def heard_by(subscription: aa.Subscription) -> tuple[aa.WaitReason, SubscriptionSeen]:
    """Return what a subscription says after three seconds without an image."""
    with pytest.raises(aa.AeronTimeoutError) as caught:
        await subscription.wait_connected(timeout=3)
    why = caught.value.why
    assert why is not None
    assert str(why) in str(caught.value)
    assert isinstance(why.seen, SubscriptionSeen)
    return why.reason, why.seen
