"""Event loops that stand still: no timeout counts the time in which its driver did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.testing.world import simulate
from tests.drivers import embedded

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

STREAM_ID = 1001
UNICAST = "aeron:udp?endpoint=bob:20121"
GROUP = "aeron:udp?endpoint=239.20.90.9:20122|fc=min,g:/1"
DYNAMIC = "aeron:udp?control=alice:20123|control-mode=dynamic|fc=max"
RECEIVING = "aeron:udp?endpoint=bob:0|control=alice:20123|control-mode=dynamic"
UNTETHERED = "aeron:udp?endpoint=bob:20124|tether=false"
STALLS_S = (1, 4, 12, 600)


def counted(aeron: aa.Aeron, counter: SystemCounterId | DriverCounterId) -> int:
    return embedded(aeron).conductor._resources.system_counters[counter].get()


async def stand_still(world: World, hosts: tuple[Host, ...], stall_s: int) -> None:
    """Let all hosts stand still, as one machine does that sleeps."""
    for host in hosts:
        host.pause()
    await world.sleep(stall_s)
    for host in hosts:
        host.resume()
    await world.sleep(0.001)


@pytest.mark.parametrize("stall_s", STALLS_S)
def test_streams_outlive_a_machine_that_slept(stall_s: int) -> None:
    """Unicast, a group whose one member counts, dynamic destinations, and a reader left behind."""

    async def story(world: World) -> None:
        hosts = alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            pairs = []
            for publish, subscribe in (
                (UNICAST, UNICAST),
                (GROUP, GROUP),
                (DYNAMIC, RECEIVING),
                (UNTETHERED.removesuffix("|tether=false"), UNTETHERED),
            ):
                subscription = await receiving.add_subscription(subscribe, STREAM_ID)
                publication = await sending.add_publication(publish, STREAM_ID)
                await publication.offer(b"before", timeout=5)
                assert (await anext(subscription)).data == b"before"
                pairs.append((publication, subscription, subscription.images))
            await world.sleep(1)
            before = counted(receiving, DriverCounterId.LOOP_LAG_COUNT)
            await stand_still(world, hosts, stall_s)
            for publication, subscription, images in pairs:
                assert publication.is_connected, publication.channel
                assert subscription.images == images, publication.channel
                await publication.offer(b"after", timeout=1)
                assert (await anext(subscription)).data == b"after"
                assert subscription.poll(print) == 0, "everything is taken"
            assert counted(receiving, DriverCounterId.LOOP_LAG_COUNT) > before
            # Silence beyond the pause still counts.
            await alice.crash()
            await world.sleep(20)
            assert not any(subscription.images for _, subscription, _ in pairs)

    simulate(story)


@pytest.mark.parametrize("stall_s", STALLS_S)
def test_a_reader_is_left_behind_only_by_the_time_in_which_it_could_have_read(
    stall_s: int,
) -> None:
    async def story(world: World) -> None:
        hosts = alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            slow = await receiving.add_subscription(UNTETHERED, STREAM_ID)
            fast = await receiving.add_subscription(UNTETHERED.partition("|")[0], STREAM_ID)
            channel = UNTETHERED.partition("|")[0]
            publication = await sending.add_publication(channel, STREAM_ID)
            await publication.wait_connected(5)
            # More than three quarters of the receiver window lie between the two.
            for _ in range(110):
                await publication.offer(bytes(1_000), timeout=5)
                await anext(fast)
            for _ in range(30):
                await publication.offer(bytes(1_000), timeout=5)
            await world.sleep(2)
            assert slow.is_connected
            await stand_still(world, hosts, stall_s)
            assert slow.is_connected
            await world.sleep(5)
            assert [slow.is_connected, fast.is_connected] == [False, True]

    simulate(story)


@pytest.mark.parametrize("stall_s", STALLS_S)
def test_what_is_timed_within_one_driver_stands_still_with_it(stall_s: int) -> None:
    """A claim, the cool-down of a rejected stream, and the linger of a closed publication."""

    async def story(world: World) -> None:
        hosts = alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as aeron, bob.aeron() as receiving:
            subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
            publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
            await publication.offer(b"read", timeout=5)
            assert (await anext(subscription)).data == b"read"
            assert subscription.poll(print) == 0, "everything is taken"
            claim = await publication.claim(64)
            await publication.offer(b"behind")
            rejecting = await aeron.add_subscription("aeron:ipc", STREAM_ID + 1)
            rejected = await aeron.add_publication("aeron:ipc", STREAM_ID + 1)
            await rejected.wait_connected(5)
            (image,) = rejecting.images
            await image.reject("enough")
            far = await receiving.add_subscription(UNICAST, STREAM_ID)
            closing = await aeron.add_publication(UNICAST, STREAM_ID)
            await closing.offer(b"last", timeout=5)
            assert (await anext(far)).data == b"last"
            (core,) = embedded(aeron).conductor.network_publications
            # Nobody acknowledges the end of the stream.
            await bob.crash()
            closing.close()
            await world.sleep(0.5)
            assert lingers(core)
            await stand_still(world, hosts, stall_s)
            assert lingers(core)
            assert not any([rejected.is_connected])
            assert counted(aeron, SystemCounterId.UNBLOCKED_PUBLICATIONS) == 0
            await world.sleep(11)
            assert not lingers(core)
            assert rejected.is_connected, "the cool-down of ten seconds is over"
            await world.sleep(20)
            assert counted(aeron, SystemCounterId.UNBLOCKED_PUBLICATIONS) == 1
            assert claim.position

    simulate(story)


def lingers(core: NetworkPublication) -> bool:
    return core.state is PublicationState.LINGER
