"""A stream that is over and no longer read makes room for its successor; one that is read stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.sim.wire import until

if TYPE_CHECKING:
    from aeron_async.testing.world import World

ENDPOINT = "aeron:udp?endpoint=bob:20121"
CHANNEL = f"{ENDPOINT}|term-length=64k|session-id=7"


@pytest.mark.parametrize("terms", ["", "|init-term-id=1|term-id=1|term-offset=0"])
def test_a_stream_that_is_not_read_any_more_makes_room_for_its_successor(terms: str) -> None:
    """The publisher that came back was not connected within 40 s."""

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, 10)
            publication = await alice.add_exclusive_publication(CHANNEL + terms, 10)
            await publication.offer_many([b"read", b"unread"])
            assert (await anext(subscription)).data == b"read"
            publication.close()
            await until(world, lambda: not embedded(alice).conductor.network_publications)
            with capture_logs() as logs:
                again = await alice.add_exclusive_publication(CHANNEL + terms, 10)
                await again.wait_connected(12)
            (line,) = [each for each in logs if each["event"] == "image_left_unread"]
            # The message that the loop holds is not taken before it asks for the next.
            assert line["unread_length"] == 128
            await again.offer(b"new")
            # What had been read ahead is still there.
            assert [(await anext(subscription)).data for _ in range(2)] == [b"unread", b"new"]

    simulate(story)


def test_a_source_that_comes_back_is_not_kept_out_by_what_was_not_read() -> None:
    """After a partition, the same publisher was not connected again either."""

    async def story(world: World) -> None:
        bob, alice = world.host("bob"), world.host("alice")
        async with bob.aeron() as receiving, alice.aeron() as sending:
            subscription = await receiving.add_subscription(ENDPOINT, 10)
            publication = await sending.add_exclusive_publication(CHANNEL, 10)
            await publication.offer_many([b"read", b"unread"])
            assert (await anext(subscription)).data == b"read"
            with world.partitioned(bob):
                await world.sleep(15)
            await publication.wait_connected(15)
            await publication.offer(b"new")
            await until(world, lambda: len(subscription.images) == 1)
            assert [(await anext(subscription)).data for _ in range(2)] == [b"unread", b"new"]

    simulate(story)


@pytest.mark.parametrize("is_slow", [False, True], ids=["paused", "slow"])
def test_a_reader_keeps_what_has_arrived(is_slow: bool) -> None:  # noqa: FBT001 - of a table
    """Paused for as long as it likes where nothing waits, or slow where something does."""

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, 10)
            publication = await alice.add_exclusive_publication(CHANNEL, 10)
            await publication.offer_many([b"%d" % number for number in range(10)])
            publication.close()
            if is_slow:
                await until(world, lambda: not embedded(alice).conductor.network_publications)
                await alice.add_exclusive_publication(CHANNEL, 10)
            heard = []
            for _ in range(10):
                heard.append((await anext(subscription)).data)
                await world.sleep(9 if is_slow else 100)
            assert heard == [b"%d" % number for number in range(10)]

    simulate(story)
