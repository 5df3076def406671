"""How many attributes an object has that is touched for each message.

CPython 3.11 keeps up to 29 beside the object, where reading one costs a comparison and a load. An
object with more has a dictionary of its own: a stream in pure Python is then 7 % slower.
"""

from __future__ import annotations

from typing import Final

import aeron_async as aa

MOST: Final = 29
IPC: Final = "aeron:ipc"


async def test_publications_subscriptions_and_images_have_few_attributes() -> None:
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(IPC, stream_id=1)
        shared = await aeron.add_publication(IPC, stream_id=1)
        exclusive = await aeron.add_exclusive_publication(IPC, stream_id=1)
        for publication in (shared, exclusive):
            await publication.offer(b"x")
            message = await anext(subscription)
            assert len(vars(publication)) <= MOST
            assert len(vars(message.image)) <= MOST
        assert len(vars(subscription)) <= MOST
