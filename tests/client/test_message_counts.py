"""Messages are counted where they are appended and where they are handed out, compiled or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.client.waiters import BY_RECEIVERS, BY_SENDER, UNCONNECTED, OfferWaiters
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from aeron_async.testing.world import World

IPC = "aeron:ipc?term-length=64k"
STREAM_ID = 1001


def counts(aeron: aa.Aeron) -> tuple[int | None, int | None]:
    stats = aeron.stats()
    return stats.publications[0].message_count, stats.subscriptions[0].message_count


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_each_way_to_publish_counts_messages(is_exclusive: bool) -> None:  # noqa: FBT001 - of a table
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            add = aeron.add_exclusive_publication if is_exclusive else aeron.add_publication
            publication: aa.Publication = await add(IPC, STREAM_ID)
            await publication.offer(b"one")
            publication.try_offer([b"t", b"wo"])
            await publication.offer_many([b"three", b"four", bytearray(b"five")])
            await publication.offer(bytes(5_000))
            with await publication.claim(7):
                pass
            with pytest.raises(aa.MessageTooLongError):
                publication.try_offer(bytes(20_000))
            assert counts(aeron) == (7, 0)
            for taken in range(1, 8):
                await anext(subscription)
                assert counts(aeron) == (7, taken)

    simulate(story)


def test_a_claim_counts_when_it_is_committed() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            kept, dropped = await publication.claim(7), await publication.claim(7)
            assert counts(aeron) == (0, 0)
            dropped.abort()
            kept.commit()
            assert counts(aeron) == (1, 0)
            with pytest.raises(ZeroDivisionError), await publication.claim(7):
                raise ZeroDivisionError
            await publication.offer(b"last")
            assert counts(aeron) == (2, 0)
            for taken in (1, 2):
                await anext(subscription)
                assert counts(aeron) == (2, taken)

    simulate(story)


def test_messages_that_are_put_back_count_when_they_are_handed_out_again() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            await publication.offer_many([b"message"] * 10)
            await anext(subscription)
            # A fragment is no message: this one is passed, and counted nowhere.
            subscription.poll(lambda _view, _header: None, 1)
            assert counts(aeron) == (10, 1)
            async for batch in subscription.batches(max_messages=4):
                assert len(batch) == 4
                assert counts(aeron) == (10, 1)
                break
            # The batch was not taken: the next reader gets its messages.
            assert (await anext(subscription)).data == b"message"
            assert counts(aeron)[1] == 2
            for _ in range(7):
                await anext(subscription)
            assert counts(aeron)[1] == 9

    simulate(story)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_what_is_put_back_after_its_image_has_closed_counts_no_more(is_ahead: bool) -> None:  # noqa: FBT001 - of a table
    """Nobody gets these messages any more."""

    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_exclusive_publication(IPC, STREAM_ID)
            await publication.offer_many([b"message"] * 10)
            await anext(subscription)
            if not is_ahead:
                async for batch in subscription.batches(max_messages=4):
                    assert len(batch) == 4
                    break
            publication.revoke()
            while subscription.images:
                await world.sleep(1)
            assert aeron.stats().subscriptions[0].message_count == 1
            assert subscription.poll(lambda _view, _header: None) == 0
            assert aeron.stats().subscriptions[0].message_count == 1

    simulate(story)


def test_handlers_and_batches_count_too_and_a_gone_image_keeps_its_count() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            got: list[aa.Message] = []
            subscription.on_message(got.append)
            await publication.offer_many([b"message"] * 5)
            await world.sleep(1)
            assert counts(aeron) == (5, 5)
            assert len(got) == 5
            subscription.on_message(None)
            publication.close()
            await world.sleep(30)
            again = await aeron.add_publication(IPC, STREAM_ID)
            await again.offer(b"again")
            await anext(subscription)
            assert counts(aeron) == (1, 6)

    simulate(story)


def test_waiting_offers_are_timed_by_what_holds_them_back() -> None:
    line = OfferWaiters()
    line.block(UNCONNECTED, 100)
    line.block(UNCONNECTED, 150)
    assert (line.blocked_by, line.since_blocked_ns) == (UNCONNECTED, 100)
    before = line.blocked_ns
    line.block(BY_RECEIVERS, 200)
    line.block(BY_SENDER, 260)
    line.unblock(300)
    line.unblock(900)
    assert (line.blocked_by, line.blocked_ns) == (-1, (60, 40, 100))
    # What a snapshot holds never changes.
    assert before == (0, 0, 0)
