"""Gaps: where the stream of a session did not continue, and why; and skipping to the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

import aeron_async as aa
from aeron_async.client.gaps import CAUSES, EVENTS_MAX, SESSIONS_MAX, GapReader, log_length
from aeron_async.client.lag import LagLimit
from aeron_async.driver.commands import ImageEndReason
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.drivers import CLOCK, embedded_only
from tests.sim.wire import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.testing.world import World

pytestmark = embedded_only(CLOCK)

ENDPOINT = "aeron:udp?endpoint=bob:20121"
CHANNEL = f"{ENDPOINT}|term-length=64k|session-id=7"
STREAM_ID = 10
FRAME = 1024
T = TypeVar("T")
BODY = bytes(FRAME - 32 - 4)
Cause = aa.GapCause


def body(number: int) -> bytes:
    return number.to_bytes(4, "little") + BODY


def number_of(message: aa.Message) -> int:
    return int.from_bytes(message.data[:4], "little")


async def offer_range(publication: aa.Publication, start: int, stop: int) -> None:
    for number in range(start, stop):
        await publication.offer(body(number))


def test_every_end_of_an_image_has_a_cause() -> None:
    assert set(CAUSES) == set(ImageEndReason)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 1000])
def test_the_length_in_the_log_is_that_of_all_fragments(length: int) -> None:
    mtu_length = 96
    frames = [min(64, length - at) for at in range(0, length, 64)] or [0]
    assert log_length(length, mtu_length) == sum((each + 32 + 31) // 32 * 32 for each in frames)


def test_a_skip_is_a_gap_and_takes_nothing_of_what_follows() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            publication = await alice.add_exclusive_publication(CHANNEL, STREAM_ID)
            await offer_range(publication, 0, 10)
            reader = subscription.with_gaps()
            first = await anext(reader)
            assert isinstance(first, aa.Message)
            assert number_of(first) == 0
            (image,) = subscription.images
            await until(world, lambda: image.lag_bytes == 10 * FRAME)
            assert subscription.skip_to_newest() == 9 * FRAME
            assert (image.position, image.skipped_bytes, image.lag_bytes) == (
                10 * FRAME,
                9 * FRAME,
                0,
            )
            assert subscription.skip_to_newest() == image.skip_to_newest() == 0
            await offer_range(publication, 10, 12)
            gap = aa.Gap(7, FRAME, 10 * FRAME, Cause.SKIPPED)
            assert await anext(reader) == gap
            for number in (10, 11):
                message = await anext(reader)
                assert isinstance(message, aa.Message)
                assert number_of(message) == number

    simulate(story)


def test_a_message_begun_before_a_skip_is_discarded() -> None:
    async def story(world: World) -> None:
        bob_host, alice_host = world.host("bob"), world.host("alice")
        async with bob_host.aeron() as bob, alice_host.aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            publication = await alice.add_exclusive_publication(f"{CHANNEL}|mtu=1024", STREAM_ID)
            await publication.offer(b"first")
            assert (await anext(subscription)).data == b"first"
            (image,) = subscription.images
            reading = bob_host.spawn(anext_of(subscription))
            # The window is narrower than the message: its beginning arrives, and is read.
            world.set_conditions(Conditions(bandwidth=2_000_000), bob_host, alice_host)
            offered = await publication.offer(bytes(8 * 992))
            await until(world, lambda: image.position > 3 * FRAME)
            reading.cancel()
            await world.sleep(0.005)
            assert subscription.skip_to_newest() > 0
            # Those that were read and, later, those behind; what was skipped was never read.
            assert image.discarded_fragments >= 1
            await publication.offer(b"last")
            assert (await anext(subscription)).data == b"last"
            assert 2 <= image.discarded_fragments < 8
            assert image.position <= offered

    simulate(story)


async def anext_of(subscription: aa.Subscription) -> aa.Message:
    return await anext(subscription)


@pytest.mark.parametrize("on_lag", ["wait", "skip", "raise"])
def test_a_reader_that_lags_waits_skips_or_raises(on_lag: str) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            publication = await alice.add_exclusive_publication(CHANNEL, STREAM_ID)
            reading = subscription.reading(on_lag=on_lag, max_lag_bytes=4 * FRAME)  # type: ignore[arg-type]
            await offer_range(publication, 0, 4)
            await until(world, lambda: bool(subscription.images))
            (image,) = subscription.images
            await until(world, lambda: image.lag_bytes == 4 * FRAME)
            seen = [number_of(await anext(reading))]
            await offer_range(publication, 4, 10)
            await until(world, lambda: image.lag_bytes == 10 * FRAME)
            if on_lag == "raise":
                with pytest.raises(aa.LaggedError, match="max_lag_bytes") as caught:
                    await anext(reading)
                assert caught.value.lag_bytes == 8 * FRAME
                assert caught.value.max_lag_bytes == 4 * FRAME
                # Nothing is lost yet.
                seen.append(number_of(await anext(subscription)))
                assert subscription.skip_to_newest() == 8 * FRAME
            if on_lag == "wait":
                seen += [number_of(await anext(reading)) for _ in range(9)]
            task = world.host("bob").spawn(bob_next(reading))
            await world.sleep(0.01)
            await publication.offer(body(10))
            seen.append(number_of(await task))
            expected = {"wait": [*range(11)], "skip": [0, 10], "raise": [0, 1, 10]}
            assert seen == expected[on_lag]

    simulate(story)


async def bob_next(reading: AsyncIterator[T]) -> T:
    return await anext(reading)


def test_wrong_arguments_are_refused() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            for options in ({"on_lag": "stop"}, {"max_lag_bytes": 0}):
                with pytest.raises(aa.ConfigurationError, match=next(iter(options))):
                    subscription.reading(**options)
                with pytest.raises(aa.ConfigurationError):
                    subscription.with_gaps(**options)

    simulate(story)


def test_lost_data_of_an_unreliable_stream_is_a_gap_and_padding_is_none() -> None:
    """Messages and gaps of a session touch, but for the padding at the end of a term."""

    async def story(world: World) -> None:
        bob_host, alice_host = world.host("bob"), world.host("alice")
        async with bob_host.aeron() as bob, alice_host.aeron() as alice:
            subscription = await bob.add_subscription(f"{ENDPOINT}|reliable=false", STREAM_ID)
            publication = await alice.add_exclusive_publication(CHANNEL, STREAM_ID)
            await subscription.wait_connected(5)
            world.set_conditions(Conditions(loss=0.1), alice_host, bob_host)
            sizes = [1, 500, 1300, 2900]
            lengths = [log_length(sizes[number % 4], 1408) for number in range(400)]

            async def publish() -> None:
                for number in range(400):
                    await publication.offer(bytes(sizes[number % 4]))
                world.set_conditions(Conditions(), alice_host, bob_host)
                await publication.offer(b"end")

            alice_host.spawn(publish())
            position = gap_bytes = count = 0
            gaps = []
            async for item in subscription.with_gaps():
                if isinstance(item, aa.Gap):
                    assert (item.session_id, item.cause) == (7, Cause.UNFILLED)
                    assert item.to_position is not None
                    assert position <= item.from_position < item.to_position
                    gaps.append(item)
                    gap_bytes += item.to_position - item.from_position
                    position = item.to_position
                    continue
                start = item.position - log_length(len(item.data), 1408)
                # What lies between is padding at the end of a term.
                assert start == position or start % 65536 == 0
                position = item.position
                count += 1
                if item.data == b"end":
                    break
            assert gaps
            assert count < 400
            assert gap_bytes <= sum(lengths) - count * min(lengths) + 65536

    simulate(story, seed=3)


def test_a_partition_is_a_silent_gap() -> None:
    async def story(world: World) -> None:
        bob_host, alice_host = world.host("bob"), world.host("alice")
        async with bob_host.aeron() as bob, alice_host.aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            publication = await alice.add_exclusive_publication(f"{CHANNEL}|ssc=true", STREAM_ID)
            other = await alice.add_subscription(f"aeron-spy:{CHANNEL}", STREAM_ID)
            alice_host.spawn(drain(other))
            reader = subscription.with_gaps()
            await offer_range(publication, 0, 2)
            assert [number_of(await next_message(reader)) for _ in range(2)] == [0, 1]
            following = bob_host.spawn(bob_next(reader))
            with world.partitioned(bob_host):
                await world.sleep(6)
                await offer_range(publication, 2, 5)
                await world.sleep(9)
            await offer_range(publication, 5, 6)
            gap = await following
            assert isinstance(gap, aa.Gap)
            assert gap.cause is Cause.SILENT
            assert gap.from_position == 2 * FRAME
            assert gap.to_position is not None
            assert gap.to_position >= 5 * FRAME
            await publication.offer(body(6))
            message = await next_message(reader)
            assert message.position - FRAME == gap.to_position

    simulate(story)


async def drain(subscription: aa.Subscription) -> None:
    async for _ in subscription:
        pass


async def next_message(reader: GapReader[aa.Message]) -> aa.Message:
    message = await anext(reader)
    assert isinstance(message, aa.Message)
    return message


def test_a_late_join_and_a_revocation_are_told_before_any_message() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            publication = await alice.add_exclusive_publication(
                f"{CHANNEL}|init-term-id=1|term-id=1|term-offset=4096", STREAM_ID
            )
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            reader = subscription.with_gaps()
            assert await anext(reader) == aa.Gap(7, 0, 4096, Cause.LATE_JOIN)
            await publication.offer(b"a")
            end = (await next_message(reader)).position
            publication.revoke()
            assert await anext(reader) == aa.Gap(7, end, None, Cause.REVOKED)

    simulate(story)


def test_a_session_that_takes_the_place_of_one_that_was_lost_is_a_gap() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        async with world.host("bob").aeron() as bob:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            reader = subscription.with_gaps()

            async def publish() -> None:
                async with alice.aeron() as aeron:
                    publication = await aeron.add_exclusive_publication(CHANNEL, STREAM_ID)
                    await publication.offer(body(0))
                    await world.sleep(100)

            alice.spawn(publish())
            assert number_of(await next_message(reader)) == 0
            await alice.crash()
            async with world.host("carol").aeron() as carol:
                following = world.host("bob").spawn(bob_next(reader))
                await world.sleep(15)
                publication = await carol.add_exclusive_publication(
                    f"{ENDPOINT}|session-id=8", STREAM_ID
                )
                await publication.offer(body(1))
                assert await following == aa.Gap(7, FRAME, None, Cause.NEW_SESSION)
                assert number_of(await next_message(reader)) == 1
                following = world.host("bob").spawn(bob_next(reader))
                publication.close()
                await world.sleep(15)
                # A stream that has ended and was read is followed by no gap.
                again = await carol.add_exclusive_publication(f"{ENDPOINT}|session-id=9", STREAM_ID)
                await again.offer(body(2))
                message = await following
                assert isinstance(message, aa.Message)
                assert number_of(message) == 2

    simulate(story)


def test_plain_iteration_is_not_disturbed_by_a_reader_of_gaps() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(ENDPOINT, STREAM_ID)
            reader = subscription.with_gaps()
            publication = await alice.add_exclusive_publication(CHANNEL, STREAM_ID)
            await publication.offer(b"a")
            assert (await anext(subscription)).data == b"a"
            await publication.offer(b"b")
            assert (await next_message(reader)).data == b"b"
            subscription.close()
            with pytest.raises(StopAsyncIteration):
                await anext(reader)

    simulate(story)


def test_what_is_remembered_is_bounded_and_counted() -> None:
    class NoReading:
        images = ()

    reader: GapReader[aa.Message] = GapReader(
        NoReading(),  # type: ignore[arg-type]
        LagLimit(NoReading(), "wait", 1),  # type: ignore[arg-type]
    )

    class Joined:
        position = join_position = image_id = 0

        def __init__(self, session_id: int) -> None:
            self.session_id = session_id

    for session_id in range(EVENTS_MAX + 3):
        reader.on_event("AVAILABLE", Joined(session_id), 0)  # type: ignore[arg-type]
    assert reader.missed_count == 3
    for session_id in range(SESSIONS_MAX + 5):
        reader._take_event("AVAILABLE", Joined(session_id), 0)  # type: ignore[arg-type]
    assert reader.forgotten_count == 5
