"""Test code that speaks Aeron: a driver, a client and a channel for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import aeron_async as aa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def aeron() -> AsyncIterator[aa.Aeron]:
    """Start a client with its own driver; short terms are quick to make."""
    context = aa.DriverContext(term_buffer_length=64 * 1024)
    async with aa.Aeron.connect(context=context) as aeron:
        yield aeron


@pytest_asyncio.fixture
async def subscription(aeron: aa.Aeron) -> aa.Subscription:
    """Subscribe at a port that the system chooses, so that tests may run side by side."""
    return await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", stream_id=1001)


@pytest_asyncio.fixture
async def publication(aeron: aa.Aeron, subscription: aa.Subscription) -> aa.Publication:
    """Publish to wherever the subscription is."""
    channel = f"aeron:udp?endpoint={subscription.local_address}"
    publication = await aeron.add_publication(channel, stream_id=1001)
    await publication.wait_connected(timeout=5)
    return publication


async def test_a_message_arrives(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    """Offer on one side, take on the other."""
    await publication.offer(b"hello", timeout=5)
    message = await anext(subscription)
    assert message.data == b"hello"


async def test_a_publication_without_subscriber_says_so(aeron: aa.Aeron) -> None:
    """Use port 9 (discard), where no program listens."""
    publication = await aeron.add_publication("aeron:udp?endpoint=127.0.0.1:9", stream_id=1001)
    assert publication.try_offer(b"x") is aa.OfferOutcome.NOT_CONNECTED
