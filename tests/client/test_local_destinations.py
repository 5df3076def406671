"""Multi-destination subscriptions that read streams of their own driver beside the network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.client.image import ImageEventKind
from tests.client.local import IPC, STREAM_ID, fill, labels, publications, take, until
from tests.drivers import embedded

if TYPE_CHECKING:
    from collections.abc import Callable

MANUAL = "aeron:udp?control-mode=manual"


@pytest.fixture
async def subscription(aeron: aa.Aeron) -> aa.Subscription:
    return await aeron.add_subscription(MANUAL, STREAM_ID)


async def test_images_of_every_kind_appear_in_one_subscription(
    aeron: aa.Aeron,
    subscription: aa.Subscription,
    channel: str,
    unused_udp_port_factory: Callable[[], int],
) -> None:
    spied = f"aeron:udp?control=127.0.0.1:{unused_udp_port_factory()}|control-mode=dynamic"
    await subscription.add_destination(channel)
    await subscription.add_destination(IPC)
    await subscription.add_destination(f"aeron-spy:{spied}")
    network = await aeron.add_publication(channel, STREAM_ID)
    ipc = await aeron.add_publication(IPC, STREAM_ID)
    unsent = await aeron.add_publication(f"{spied}|ssc=true", STREAM_ID)
    for publication, text in ((network, b"network"), (ipc, b"ipc"), (unsent, b"spy")):
        await publication.offer(text, timeout=5)
    assert sorted(await take(subscription, 3)) == [b"ipc", b"network", b"spy"]
    assert len(subscription.images) == 3
    assert len(labels(aeron, "sub-pos")) == 3


@pytest.mark.parametrize("by", ["channel", "id"])
@pytest.mark.parametrize("kind", ["ipc", "spy"])
async def test_removing_a_destination_takes_its_images_away(
    aeron: aa.Aeron, subscription: aa.Subscription, channel: str, kind: str, by: str
) -> None:
    written = IPC if kind == "ipc" else f"{channel}|ssc=true"
    destination = IPC if kind == "ipc" else f"aeron-spy:{channel}"
    publication = await aeron.add_publication(written, STREAM_ID)
    added_id = await subscription.add_destination(destination)
    events = subscription.image_events()
    await publication.offer(b"seen", timeout=5)
    assert await take(subscription, 1) == [b"seen"]
    await subscription.remove_destination(added_id if by == "id" else destination)
    kinds = [(await anext(events)).kind for _ in range(2)]
    assert kinds == [ImageEventKind.AVAILABLE, ImageEventKind.UNAVAILABLE]
    assert subscription.images == ()
    assert labels(aeron, "sub-pos") == []
    await until(lambda: not publication.is_connected)
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await subscription.remove_destination(destination)


async def test_a_stream_that_two_destinations_mean_is_read_once_and_until_both_are_gone(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    publication = await aeron.add_publication(f"{IPC}?session-id=5", STREAM_ID)
    await subscription.add_destination(IPC)
    await subscription.add_destination(f"{IPC}?session-id=5")
    images = [subscription.images]
    await subscription.remove_destination(IPC)
    await publication.offer(b"once", timeout=5)
    assert await take(subscription, 1) == [b"once"]
    await subscription.remove_destination(f"{IPC}?session-id=5")
    images.append(subscription.images)
    assert [len(each) for each in images] == [1, 0]


async def test_a_destination_may_want_one_session_and_be_left_behind(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    await aeron.add_exclusive_publication(f"{IPC}?session-id=5", STREAM_ID)
    await aeron.add_exclusive_publication(f"{IPC}?session-id=6", STREAM_ID)
    await subscription.add_destination(f"{IPC}?session-id=6|tether=false")
    assert [image.session_id for image in subscription.images] == [6]
    (subscriber,) = (each for core in publications(aeron) for each in core.subscribers)
    assert not subscriber.is_tether


async def test_an_untethered_destination_that_was_left_behind_is_removed_in_silence(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    short = "untethered-window-limit-timeout=1ms|untethered-resting-timeout=1000s"
    publication = await aeron.add_publication(f"{IPC}?{short}", STREAM_ID)
    await subscription.add_destination(f"{IPC}?tether=false")
    # The window is measured from where the furthest is: alone, nobody is ever behind.
    fast = await aeron.add_subscription(IPC, STREAM_ID)
    count = 0
    while isinstance(publication.try_offer(bytes(1_000)), int):
        count += 1
    await take(fast, count)
    await until(lambda: not subscription.images)
    events = subscription.image_events()
    await subscription.remove_destination(f"{IPC}?tether=false")
    await subscription.aclose()
    assert [event async for event in events] == []
    assert len(labels(aeron, "sub-pos")) == 1


async def test_destinations_of_every_kind_count_against_one_limit(channel: str) -> None:
    context = aa.DriverContext(max_destinations=2)
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
        await subscription.add_destination(channel)
        await subscription.add_destination(IPC)
        with pytest.raises(aa.RegistrationError, match="would be number 3") as caught:
            await subscription.add_destination(f"aeron-spy:{channel}")
        assert caught.value.code is aa.ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
        await subscription.remove_destination(channel)
        await subscription.add_destination(f"aeron-spy:{channel}")


async def test_a_destination_that_finds_no_counter_is_refused_and_forgotten(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    counters = embedded(aeron).counters
    fillers = fill(counters)
    with pytest.raises(aa.RegistrationError, match="counters"):
        await subscription.add_destination(IPC)
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await subscription.remove_destination(IPC)
    with pytest.raises(aa.RegistrationError, match="counters"):
        await aeron.add_subscription(IPC, STREAM_ID)
    for filler in fillers:
        filler.close()


async def test_a_destination_is_taken_back_when_nobody_waits_for_it(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    adding = asyncio.create_task(subscription.add_destination(IPC))
    for _ in range(3):
        await asyncio.sleep(0)
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    if adding.cancelled():
        await until(lambda: not subscription.images)


@pytest.mark.parametrize("destination", [IPC, "aeron-spy:aeron:udp?endpoint=127.0.0.1:40456"])
async def test_only_a_manual_subscription_has_destinations(
    aeron: aa.Aeron, channel: str, destination: str
) -> None:
    for other in (channel, IPC, f"aeron-spy:{channel}"):
        subscription = await aeron.add_subscription(other, STREAM_ID)
        with pytest.raises(aa.RegistrationError, match="control-mode=manual only"):
            await subscription.add_destination(destination)


async def test_a_subscription_with_destinations_of_all_kinds_leaves_nothing_behind(
    aeron: aa.Aeron, channel: str
) -> None:
    before = len(list(aeron.counters))
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    for destination in (channel, IPC, f"aeron-spy:{channel}"):
        await subscription.add_destination(destination)
    ipc = await aeron.add_publication(IPC, STREAM_ID)
    network = await aeron.add_publication(f"{channel}|linger=0", STREAM_ID)
    await until(lambda: len(subscription.images) == 3)
    await subscription.aclose()
    await ipc.aclose()
    await network.aclose()
    await until(lambda: not publications(aeron))
    conductor = embedded(aeron).conductor
    await until(lambda: not conductor.publication_images)
    assert len(list(aeron.counters)) == before
