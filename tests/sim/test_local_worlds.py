"""IPC and spies in a bottle: rejections that cool down, hosts that stand still, receivers that go.

Safety is audited all along, as in the swarm, and what was closed is gone in the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.client.image import ImageEventKind
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.testing import VirtualLoop
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.support.auditor import Auditor
from tests.support.run import counters_in_use

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.testing.world import World

IPC = "aeron:ipc?term-length=64k"
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
SPIED = f"aeron-spy:{CHANNEL}"
STREAM_ID = 1
MESSAGES = [b"%d" % number * (number % 300) for number in range(3_000)]


def play(story: Callable[[World], Awaitable[None]], *, seed: int = 1) -> None:
    """Play a story, and look at the bounds of every stream whenever a second has passed."""

    async def audited(world: World) -> None:
        auditor = Auditor(world)

        async def audit() -> None:
            while True:
                auditor.audit()
                await world.sleep(0.1)

        auditing = asyncio.create_task(audit())
        await story(world)
        auditing.cancel()
        auditor.audit()
        assert auditor.violations == []
        assert auditor.audit_count > 1

    simulate(audited, seed=seed, limit_s=600)


async def read(subscription: aa.Subscription, into: list[bytes]) -> None:
    async for message in subscription:
        # One at a time: they are looked at while more are to come.
        into += (message.data,)


# Rejection.


def test_a_rejected_image_comes_back_after_the_cool_down_and_its_publisher_knows_why() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            errors: list[aa.PublicationErrorFrame] = []
            one, two = [await aeron.add_subscription(IPC, STREAM_ID) for _ in range(2)]
            publication = await aeron.add_publication(IPC, STREAM_ID, on_error=errors.append)
            await publication.offer(b"before", timeout=5)
            await publication.drain(timeout=5)
            (image,) = one.images
            started_ns = world.now_ns
            await image.reject("cannot be meant")
            assert image.is_closed
            assert one.images == two.images == ()
            assert publication.try_offer(b"nobody") is aa.OfferOutcome.NOT_CONNECTED
            assert (await aeron.add_subscription(IPC, STREAM_ID)).images == ()
            await one.wait_connected()
            assert 10.0 <= (world.now_ns - started_ns) / 1e9 < 10.1
            await publication.offer(b"after", timeout=5)
            # Nobody had read what was there before: it is still to be had.
            assert [(await anext(one)).data, (await anext(one)).data] == [b"before", b"after"]
            (error,) = errors
            assert (error.code, error.message) == (13, "cannot be meant")
            assert (error.receiver_id, error.source_address) == (-1, None)
            assert error.registration_id == publication._ready.registration_id
            assert publication.last_error is not None
            assert "cannot be meant" in publication.last_error
            assert aeron.counters.value(SystemCounterId.IMAGES_REJECTED) == 1

    play(story)


def test_a_rejected_publication_that_closes_meanwhile_goes_at_once() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            before = counters_in_use(embedded(aeron))
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            await publication.offer(b"never read", timeout=5)
            await subscription.images[0].reject("no")
            await publication.aclose()
            await world.sleep(0.01)
            assert embedded(aeron).conductor.ipc_publications == ()
            assert counters_in_use(embedded(aeron)) == before
            await world.sleep(20)
            assert subscription.images == ()

    play(story)


def test_rejecting_twice_tells_the_publisher_twice_and_prolongs_the_cool_down() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(IPC, STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            await publication.wait_connected()
            (image,) = subscription.images
            await image.reject("once")
            await world.sleep(6)
            await aeron._conductor.reject_image(image.image_id, "twice")
            assert publication.last_error is not None
            assert "twice" in publication.last_error
            await world.sleep(6)
            assert not publication.is_connected
            await subscription.wait_connected(timeout=5)

    play(story)


# Untethered.


def test_an_untethered_reader_is_left_behind_on_time_and_comes_back_on_time() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            fast = await aeron.add_subscription(IPC, STREAM_ID)
            slow = await aeron.add_subscription(f"{IPC}|tether=false", STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            got: list[bytes] = []
            reading = asyncio.create_task(read(fast, got))
            offering = asyncio.create_task(publication.offer_many(MESSAGES))
            times: list[float] = []
            started_ns = world.now_ns
            kinds: list[ImageEventKind] = []
            async for event in slow.image_events():
                kinds.append(event.kind)
                times.append((world.now_ns - started_ns) / 1e9)
                if len(times) == 3:
                    break
            # Five seconds at the end of the window, five lingering, and ten of rest.
            assert [round(each) for each in times] == [0, 5, 20]
            back, gone = ImageEventKind.AVAILABLE, ImageEventKind.UNAVAILABLE
            assert kinds == [back, gone, back]
            await offering
            await publication.drain()
            await world.sleep(0.1)
            assert got == MESSAGES
            reading.cancel()

    play(story)


# Idle.


@pytest.mark.parametrize(
    "channels", [(IPC, IPC, IPC), (CHANNEL, SPIED, SPIED)], ids=["ipc", "spies"]
)
def test_nothing_turns_while_one_reader_waits_and_another_is_slow(
    channels: tuple[str, str, str],
) -> None:
    async def story(world: World) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            far = await bob.add_subscription(CHANNEL, STREAM_ID)
            fast, slow = [await alice.add_subscription(each, STREAM_ID) for each in channels[1:]]
            publication = await alice.add_publication(channels[0], STREAM_ID)
            got: list[bytes] = []
            reading = [asyncio.create_task(read(each, got)) for each in (far, fast)]
            await slow.wait_connected()
            while publication.try_offer(bytes(1_000)) is not aa.OfferOutcome.BACK_PRESSURED:
                await world.sleep(0.001)
            await world.sleep(1)
            turns = loop.turn_count
            await world.sleep(10)
            assert loop.turn_count - turns < 10 * 400, "heartbeats, audits and liveness"
            for each in reading:
                each.cancel()
            await asyncio.wait(reading)

    play(story)


# Hosts that stand still, and crash.


@pytest.mark.parametrize("seed", range(3))
def test_a_host_that_stands_still_loses_nothing_over_ipc(seed: int) -> None:
    async def story(world: World) -> None:
        host = world.host("alice")
        got: list[bytes] = []

        async def service(aeron: aa.Aeron) -> None:
            subscription = await aeron.add_subscription(f"{IPC}|tether=false", STREAM_ID)
            publication = await aeron.add_publication(IPC, STREAM_ID)
            reading = host.spawn(read(subscription, got))
            for number in range(0, len(MESSAGES), 100):
                await publication.offer_many(MESSAGES[number : number + 100])
                await world.sleep(0.1)
            await publication.drain()
            await world.sleep(0.1)
            reading.cancel()

        async with host.aeron() as aeron:
            working = host.spawn(service(aeron))
            for _ in range(3):
                await world.sleep(0.4)
                await host.pause_for(30)
            await working
        assert got == MESSAGES

    play(story, seed=seed)


def test_a_client_that_dies_lets_its_streams_go_and_others_read_on() -> None:
    async def story(world: World) -> None:
        host = world.host("alice")
        async with host.driver() as driver, aa.Aeron.connect(driver) as aeron:
            before = counters_in_use(driver)
            survivor = await aeron.add_subscription(IPC, STREAM_ID)
            for round_number in range(3):
                mortal = aa.Aeron.connect(driver)
                await mortal.start()
                publication = await mortal.add_exclusive_publication(IPC, STREAM_ID)
                slow = await mortal.add_subscription(IPC, STREAM_ID)
                messages = [b"x" * 500] * 1_000
                offering = asyncio.create_task(publication.offer_many(messages))
                await world.sleep(0.1)
                assert slow.images
                # What a client does that fails: it lets go of everything, amid an offer.
                await mortal.aclose()
                with pytest.raises(aa.ClosedError):
                    await offering
                got = await until_end(survivor)
                assert got > 0, round_number
            await survivor.aclose()
            await world.sleep(0.1)
            assert driver.conductor.ipc_publications == ()
            assert counters_in_use(driver) == before

    play(story)


async def until_end(subscription: aa.Subscription) -> int:
    """Read the one image there is to its end; return how many messages that were."""
    count = 0
    async for _ in subscription.images[0]:
        count += 1
    return count


def test_a_host_that_crashes_starts_again_with_streams_of_its_own() -> None:
    async def story(world: World) -> None:
        host = world.host("alice")
        lives: list[list[bytes]] = []

        async def service() -> None:
            got: list[bytes] = []
            lives.append(got)
            async with host.aeron() as aeron:
                subscription = await aeron.add_subscription(IPC, STREAM_ID)
                publication = await aeron.add_publication(IPC, STREAM_ID)
                offering = host.spawn(publication.offer_many(MESSAGES))
                try:
                    await read(subscription, got)
                finally:
                    offering.cancel()

        host.start(lambda _: service())
        await world.sleep(1)
        await host.crash()
        await host.restart()
        await world.sleep(1)
        await host.stop()
        assert lives == [MESSAGES, MESSAGES]

    play(story)


# Spies beside a receiver that comes and goes.


def test_a_spy_goes_on_while_the_receiver_comes_and_goes() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        seen: list[bytes] = []
        async with alice.aeron() as sending:
            spy = await sending.add_subscription(SPIED, STREAM_ID)
            publication = await sending.add_publication(f"{CHANNEL}|ssc=true", STREAM_ID)
            reading = asyncio.create_task(read(spy, seen))

            async def offer() -> None:
                for message in MESSAGES:
                    await publication.offer(message)
                    await world.sleep(0.01)

            offering = asyncio.create_task(offer())
            for visit in range(2):
                got: list[bytes] = []
                async with bob.aeron() as receiving:
                    subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                    await subscription.wait_connected(timeout=5)
                    receiver = asyncio.create_task(read(subscription, got))
                    await world.sleep(3)
                    receiver.cancel()
                    if visit:
                        await bob.crash()
                # Once it says goodbye, once it just falls silent.
                start = MESSAGES.index(got[0])
                assert got == MESSAGES[start : start + len(got)]
                assert len(got) > 100
                await world.sleep(7)
                assert publication.is_connected
            await offering
            await publication.drain(timeout=20)
            await world.sleep(0.1)
            assert seen == MESSAGES
            reading.cancel()

    play(story)


def test_without_ssc_a_spy_waits_for_the_receiver() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending:
            spy = await sending.add_subscription(SPIED, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await world.sleep(3)
            assert publication.try_offer(b"") is aa.OfferOutcome.NOT_CONNECTED
            async with bob.aeron() as receiving:
                await receiving.add_subscription(CHANNEL, STREAM_ID)
                await publication.offer(b"at last", timeout=5)
                assert (await anext(spy)).data == b"at last"
            await world.sleep(7)
            assert publication.try_offer(b"") is aa.OfferOutcome.NOT_CONNECTED

    play(story)
