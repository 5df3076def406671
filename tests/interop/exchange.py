"""Numbered messages from one publication to all its subscriptions, whoever's they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aeron_async as aa
from tests.interop.messages import NumberedMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.libaeron_streams import OfficialPublication, OfficialSubscription

    AnyPublication = aa.Publication | OfficialPublication
    AnySubscription = aa.Subscription | OfficialSubscription

STREAM_ID: Final = 1001
COUNT: Final = 2_000
"""Some sixty terms of 64 KiB, and windows of half of that."""
MESSAGES: Final = NumberedMessages(8, 4_000)
FEW: Final = range(8)
"""Together less than the smallest window, so that nobody needs to keep up."""
TIMEOUT_S: Final = 30.0


async def exchange(
    publication: AnyPublication,
    subscriptions: Sequence[AnySubscription],
    numbers: range = range(COUNT),
    *,
    also: AnyPublication | None = None,
) -> None:
    """Offer messages, and check that each subscription gets all of them and nothing between.

    Args:
        publication: Offers them.
        subscriptions: Those that have joined, and have taken all that was offered before.
        numbers: Of the messages.
        also: Offers each of them too, after the first.
    """
    limit_s = TIMEOUT_S + len(numbers) / 500
    async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
        for subscription in subscriptions:
            group.create_task(take(subscription, numbers))
        for number in numbers:
            await offer(publication, number)
            if also is not None:
                await offer(also, number)


async def offer(publication: AnyPublication, number: int) -> None:
    """Offer one numbered message, waiting for whoever is not there yet."""
    await offer_data(publication, MESSAGES[number])


async def take(subscription: AnySubscription, numbers: range) -> None:
    """Take messages, and check them byte by byte."""
    for number in numbers:
        MESSAGES.check(number, await take_data(subscription))


async def offer_data(publication: AnyPublication, data: bytes) -> None:
    """Offer one message, waiting for whoever is not there yet."""
    if isinstance(publication, aa.Publication):
        await publication.offer(data, timeout=TIMEOUT_S)
    else:
        await publication.offer_all([data], timeout=TIMEOUT_S)


async def take_data(subscription: AnySubscription) -> bytes:
    """Wait for the next message."""
    if isinstance(subscription, aa.Subscription):
        return (await anext(subscription)).data
    return await subscription.take()


def receive_more(subscription: AnySubscription) -> int:
    """Return whether there is more than has been taken, as a count of messages or fragments."""
    if isinstance(subscription, aa.Subscription):
        return subscription.poll(lambda *_: None)
    return subscription.poll()
