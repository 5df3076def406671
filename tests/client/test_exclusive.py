"""What an exclusive publication can do beside offering: padding, blocks, and taking it all back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.position import term_id_at
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import DataFrame
from tests.drivers import TURNS, caught_up, embedded, embedded_only

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STREAM_ID = 1001


@pytest.fixture
async def exclusive(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> aa.ExclusivePublication:
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    return publication


def block_for(publication: aa.ExclusivePublication, payload: bytes) -> bytes:
    """Return one frame of 64 bytes, made for where the publication stands."""
    position, term_length = publication.position, publication.term_length
    header = DataHeader(
        frame_length=64,
        term_offset=position % term_length,
        session_id=publication.session_id,
        stream_id=publication.stream_id,
        term_id=term_id_at(
            position,
            initial_term_id=publication.initial_term_id,
            bits=term_length.bit_length() - 1,
        ),
    )
    return DataFrame(header, payload.ljust(32, b".")).encode()


async def fill(publication: aa.ExclusivePublication) -> None:
    """Offer until there is no room, and nothing of it is being read."""
    while True:
        while publication.try_offer(bytes(1_000)) not in set(aa.OfferOutcome):
            await asyncio.sleep(0)
        limit = publication.position_limit
        for _ in range(50):
            await asyncio.sleep(0)
        if publication.position_limit == limit:
            return


async def test_padding_moves_the_position_and_is_seen_by_nobody(
    exclusive: aa.ExclusivePublication, subscription: aa.Subscription
) -> None:
    assert await exclusive.append_padding(100, timeout=5) == 160
    assert exclusive.try_append_padding(0) == 192
    await exclusive.offer(b"behind it", timeout=5)
    async with asyncio.timeout(5):
        message = await anext(subscription)
    assert message.data == b"behind it"
    assert message.position == 256


async def test_padding_goes_on_in_the_next_term(
    exclusive: aa.ExclusivePublication, subscription: aa.Subscription
) -> None:
    reading = asyncio.ensure_future(anext(subscription))
    longest = exclusive.max_message_length
    positions = [0]
    while positions[-1] < exclusive.term_length:
        positions.append(await exclusive.append_padding(longest, timeout=5))
    assert positions == sorted(positions)
    await exclusive.offer(b"at last", timeout=5)
    assert (await asyncio.wait_for(reading, 5)).data == b"at last"


async def test_a_block_is_delivered_as_it_is(
    exclusive: aa.ExclusivePublication, subscription: aa.Subscription
) -> None:
    block = block_for(exclusive, b"ready made")
    assert await exclusive.offer_block(block, timeout=5) == 64
    assert exclusive.try_offer_block(block_for(exclusive, b"another")) == 128
    async with asyncio.timeout(5):
        received = [(await anext(subscription)).data for _ in range(2)]
    assert received == [b"ready made".ljust(32, b"."), b"another".ljust(32, b".")]


async def test_a_block_for_another_place_is_refused(exclusive: aa.ExclusivePublication) -> None:
    block = block_for(exclusive, b"late")
    await exclusive.offer(b"first", timeout=5)
    with pytest.raises(aa.ConfigurationError, match="term offset"):
        exclusive.try_offer_block(block)
    with pytest.raises(aa.ConfigurationError, match="multiple of 32"):
        await exclusive.offer_block(b"short", timeout=5)


@embedded_only(TURNS)
@pytest.mark.parametrize(
    "append",
    [
        lambda publication: publication.append_padding(10, timeout=0.01),
        lambda publication: publication.offer_block(
            block_for(publication, b"no room"), timeout=0.01
        ),
    ],
    ids=["padding", "block"],
)
async def test_both_wait_for_room_like_an_offer(
    exclusive: aa.ExclusivePublication,
    subscription: aa.Subscription,
    append: Callable[[aa.ExclusivePublication], Awaitable[int]],
) -> None:
    await fill(exclusive)
    position = exclusive.position
    with pytest.raises(aa.OfferTimeoutError):
        await append(exclusive)
    assert exclusive.position == position
    assert subscription.images[0].position == 0


async def test_without_room_the_outcome_says_so(exclusive: aa.ExclusivePublication) -> None:
    await fill(exclusive)
    assert exclusive.try_append_padding(10) is aa.OfferOutcome.BACK_PRESSURED
    block = block_for(exclusive, b"no room")
    assert exclusive.try_offer_block(block) is aa.OfferOutcome.BACK_PRESSURED


async def test_padding_stands_in_line_behind_offers_that_wait(
    exclusive: aa.ExclusivePublication, subscription: aa.Subscription
) -> None:
    await fill(exclusive)
    waiting = asyncio.create_task(exclusive.offer(b"first"))
    await asyncio.sleep(0)
    padding = asyncio.create_task(exclusive.append_padding(10))
    async with asyncio.timeout(5):
        async for message in subscription:
            if message.data == b"first":
                break
        assert await waiting < await padding


async def test_impossible_padding_is_refused(exclusive: aa.ExclusivePublication) -> None:
    with pytest.raises(aa.MessageTooLongError):
        exclusive.try_append_padding(exclusive.term_length)
    with pytest.raises(aa.ConfigurationError, match="0 or more bytes"):
        await exclusive.append_padding(-1)


@pytest.mark.parametrize(
    "end",
    [
        lambda publication: publication.aclose(revoke=True),
        lambda publication: asyncio.sleep(0, publication.revoke()),
    ],
    ids=["aclose", "revoke"],
)
async def test_revoking_ends_the_stream_without_sending_what_is_left(
    aeron: aa.Aeron,
    exclusive: aa.ExclusivePublication,
    end: Callable[[aa.ExclusivePublication], Awaitable[Any]],
) -> None:
    await fill(exclusive)
    (publication,) = embedded(aeron).conductor.network_publications
    await end(exclusive)
    await caught_up(aeron)
    assert exclusive.is_closed
    assert publication.state is PublicationState.LINGER
    assert not publication.is_connected
    assert (
        embedded(aeron)
        .conductor._resources.system_counters[SystemCounterId.PUBLICATIONS_REVOKED]
        .get()
        == 1
    )
    with pytest.raises(aa.ClosedError):
        exclusive.try_append_padding(1)
    with pytest.raises(aa.ClosedError):
        await exclusive.offer_block(b"")
    await exclusive.aclose(revoke=True)
    await exclusive.aclose()


async def test_closing_an_exclusive_publication_revokes_nothing(
    aeron: aa.Aeron, exclusive: aa.ExclusivePublication, subscription: aa.Subscription
) -> None:
    await exclusive.offer(b"last words", timeout=5)
    await exclusive.aclose()
    async with asyncio.timeout(5):
        assert (await anext(subscription)).data == b"last words"
    (publication,) = embedded(aeron).conductor.network_publications
    assert not publication.log.metadata.is_publication_revoked


async def test_an_exclusive_publication_can_be_revoked_after_its_driver_closed(
    exclusive: aa.ExclusivePublication, driver: aa.MediaDriver
) -> None:
    await driver.aclose()
    exclusive.revoke()
    assert exclusive.is_closed


async def test_revoking_what_is_shared_only_releases_it(
    aeron: aa.Aeron, publication: aa.Publication
) -> None:
    (core,) = embedded(aeron).conductor.network_publications
    registration_id = publication._ready.registration_id
    aeron._conductor.revoke_publication(registration_id)
    await caught_up(aeron)
    assert not core.log.metadata.is_publication_revoked
    assert core.state is not PublicationState.ACTIVE
    aeron.driver.conductor.revoke_publication(registration_id)
