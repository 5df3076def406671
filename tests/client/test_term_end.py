"""A reader at the end of a term finds the next one by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.drivers import both_drivers

if TYPE_CHECKING:
    import aeron_async as aa

pytestmark = both_drivers

MESSAGES_PER_TERM = 7
"""So many of the longest fit into a term of 64 KiB; what is left over becomes padding."""


async def until_received(aeron: aa.Aeron, position: int) -> None:
    """Wait until the driver has rebuilt the stream up to a position."""
    async with asyncio.timeout(5):
        while True:
            (received,) = (
                record.value for record in aeron.counters if record.label.startswith("rcv-pos")
            )
            if received >= position:
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("source", ["subscription", "image", "batches"])
async def test_a_message_behind_padding_is_found_though_nothing_follows_it(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription, source: str
) -> None:
    # Reading padding alone makes no message, and nothing that still comes would wake the reader.
    data = bytes(publication.max_message_length)
    async with asyncio.timeout(5):
        for _ in range(MESSAGES_PER_TERM):
            await publication.offer(data)
            await anext(subscription)
        assert publication.term_length - publication.position < len(data)
        position = await publication.offer(data)
        await until_received(aeron, position)
        if source == "subscription":
            message = await anext(subscription)
        elif source == "image":
            message = await anext(subscription.images[0])
        else:
            (message,) = await anext(subscription.batches())
    assert message.data == data
    assert message.position == position
