"""Statistics name the stream that hurts, and why, on the side that can know it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import OfferTimeoutError
from aeron_async.protocol.header import FrameType
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.sim.wire import until

if TYPE_CHECKING:
    from aeron_async.stats import ImageStats, PublicationStats, Stats
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
STREAM_ID = 1001
MESSAGE = bytes(100)
MS = 1_000_000
SECOND = 1_000_000_000


def lost(image: ImageStats) -> dict[str, tuple[int, int]]:
    return {each.cause: (each.count, each.bytes) for each in image.losses}


def known(value: int | None) -> int:
    assert value is not None
    return value


def only_publication(stats: Stats) -> PublicationStats:
    (publication,) = stats.publications
    return publication


def only_image(stats: Stats) -> ImageStats:
    (image,) = stats.images
    return image


def test_a_stream_that_flows_shows_where_it_is_and_what_was_counted() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            other = await alice.add_publication(CHANNEL, STREAM_ID)
            before = alice.stats(), bob.stats()
            await publication.offer_many([MESSAGE] * 7)
            await publication.offer([b"in", b"parts"])
            with await other.claim(9):
                pass
            for _ in range(9):
                await anext(subscription)
            await world.sleep(1)
            sent, received = alice.stats(), await bob.gather_stats()

            row, image = only_publication(sent), only_image(received)
            assert (row.channel, row.stream_id, row.session_id) == (
                publication.channel,
                STREAM_ID,
                publication.session_id,
            )
            assert (row.state, row.is_connected, row.is_exclusive) == ("active", True, False)
            assert row.position == publication.position == row.sender_position == image.position
            assert row.position_limit == publication.position_limit
            assert (row.backlog_bytes, row.blocked_by, row.message_count) == (0, "", 9)
            assert row.window_bytes == publication.available_window
            (receiver,) = row.receivers
            assert row.receiver_count == 1
            assert receiver.address == "10.0.0.2:20121"
            assert receiver.kind == "receiver"
            assert receiver.silent_ns is not None
            assert receiver.silent_ns <= SECOND
            assert row.slowest_receiver is receiver
            assert image.session_id == publication.session_id
            assert image.source.startswith("10.0.0.1:")
            assert image.received_bytes == row.position
            assert (image.losses, image.missing_bytes) == ((), 0)
            assert image.status_message_count is not None
            assert image.status_message_count >= 5
            # The last message is taken when the next one is asked for.
            assert image.readers[0].lag_bytes == image.lag_bytes == 64
            (reading,) = received.subscriptions
            assert (reading.message_count, reading.image_count) == (9, 1)
            rates = sent.diff(before[0]).publications[row.registration_id]
            assert rates.bytes_per_second == pytest.approx(row.position, rel=0.05)
            assert rates.messages_per_second == pytest.approx(9, rel=0.05)
            assert received.driver.counters["bytes_received"] > row.position

    simulate(story)


def test_a_slow_reader_is_named_at_both_ends() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
            await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()
            with suppress(OfferTimeoutError):
                while True:
                    await publication.offer(MESSAGE, timeout=3)
            waiting = asyncio.ensure_future(publication.offer(MESSAGE))
            await world.sleep(2)

            row, image = only_publication(alice.stats()), only_image(bob.stats())
            assert row.blocked_by == "sender_limit"
            assert row.blocked_sender_limit_ns == pytest.approx(5 * SECOND, rel=0.05)
            # Until the sender had sent what was offered.
            assert known(row.blocked_publisher_limit_ns) < MS
            assert row.blocked_not_connected_ns == 0
            slowest = row.slowest_receiver
            assert slowest is not None
            assert slowest.address == "10.0.0.2:20121"
            assert slowest.lag_bytes == row.sender_position
            assert image.lag_bytes == image.position == row.sender_position
            assert row.backlog_bytes == row.position - row.sender_position
            assert image.lag_ns == pytest.approx(5 * SECOND, rel=0.05)
            waiting.cancel()

    simulate(story)


def test_an_offer_without_a_subscriber_is_held_back_by_that() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        world.host("bob")
        async with alice.aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)
            waiting = asyncio.ensure_future(publication.offer(MESSAGE))
            await world.sleep(2)
            row = only_publication(aeron.stats())
            assert (row.blocked_by, row.is_connected) == ("not_connected", False)
            assert row.blocked_not_connected_ns == pytest.approx(2 * SECOND, rel=0.01)
            assert row.receivers == ()
            waiting.cancel()

    simulate(story)


def test_an_offer_that_joins_the_line_does_not_change_what_holds_the_first_back() -> None:
    async def story(world: World) -> None:
        world.host("bob")
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)
            waiting = [asyncio.ensure_future(publication.offer(MESSAGE))]
            await world.sleep(1)
            waiting.append(asyncio.ensure_future(publication.offer(MESSAGE)))
            await world.sleep(1)
            row = only_publication(aeron.stats())
            assert row.blocked_by == "not_connected"
            assert row.blocked_not_connected_ns == pytest.approx(2 * SECOND, rel=0.01)
            assert row.blocked_sender_limit_ns == 0
            for each in waiting:
                each.cancel()

    simulate(story)


def test_what_a_client_has_offered_stays_when_it_closes_and_others_go_on() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            first = await alice.add_publication(CHANNEL, STREAM_ID)
            second = await alice.add_publication(CHANNEL, STREAM_ID)
            await first.offer_many([MESSAGE] * 3)
            await second.offer_many([MESSAGE] * 40)
            for _ in range(43):
                await anext(subscription)
            assert only_publication(alice.stats()).message_count == 43
            second.close()
            assert only_publication(alice.stats()).message_count == 43
            assert only_publication(await alice.gather_stats()).message_count == 43
            await first.offer(MESSAGE)
            assert only_publication(alice.stats()).message_count == 44

    simulate(story)


def test_a_stalled_reader_of_a_bursty_stream_has_waited_since_its_oldest_byte() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            await publication.offer_many([MESSAGE] * 2)
            await anext(subscription)
            await anext(subscription)
            for pause_s in (4, 4):
                await world.sleep(pause_s)
                await publication.offer(MESSAGE)
            await world.sleep(0.2)
            # The second message is taken when the third is asked for.
            image = only_image(bob.stats())
            assert known(image.lag_ns) == pytest.approx(8.2 * SECOND, rel=0.03)

    simulate(story)


def test_a_publication_with_very_many_receivers_shows_those_furthest_behind() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()
            (sending,) = embedded(alice).conductor.network_publications
            receivers = sending._receivers
            for receiver_id in range(4_000):
                receivers.on_status_message(receiver_id, world.now_ns)
                receivers.reports[receiver_id] = receiver_id * 32, 4_096
            for row in (
                only_publication(alice.stats()),
                only_publication(await alice.gather_stats()),
            ):
                assert row.receiver_count == 4_001
                assert len(row.receivers) == 256
                assert row.receivers[0].position == 0
                assert row.receivers[-1].position <= 256 * 32

    simulate(story)


def test_an_ipc_publication_is_held_back_by_its_reader() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        async with alice.aeron() as aeron:
            subscription = await aeron.add_subscription("aeron:ipc?term-length=64k", STREAM_ID)
            publication = await aeron.add_publication("aeron:ipc?term-length=64k", STREAM_ID)
            with suppress(OfferTimeoutError):
                while True:
                    await publication.offer(MESSAGE, timeout=1)
            row = only_publication(aeron.stats())
            (reader,) = row.receivers
            assert (reader.kind, reader.window_bytes, reader.silent_ns) == ("ipc", None, None)
            assert reader.lag_bytes == row.backlog_bytes == row.position
            assert row.blocked_publisher_limit_ns == pytest.approx(SECOND, rel=0.01)
            assert (row.sender_position, row.blocked_by) == (None, "")
            (reading,) = aeron.stats().subscriptions
            assert (reading.lag_bytes, reading.lag_ns) == (row.position, None)
            await anext(subscription)
            (reading,) = aeron.stats().subscriptions
            assert reading.message_count == 1

    simulate(story)


@pytest.mark.parametrize("is_reliable", [True, False])
def test_losses_on_a_link_are_gaps_and_what_is_not_resent_is_unfilled(
    is_reliable: bool,  # noqa: FBT001 - of a table
) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            reliable = "" if is_reliable else "|reliable=false"
            subscription = await receiving.add_subscription(CHANNEL + reliable, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()
            world.set_conditions(Conditions(loss=0.02), alice, bob)

            async def publish() -> None:
                for _ in range(2_000):
                    await publication.offer(MESSAGE)
                    await world.sleep(0.0001)

            publishing = asyncio.ensure_future(publish())
            async for message in subscription:
                if message.position >= 1_900 * 160:
                    break
            publishing.cancel()
            row, image = only_publication(sending.stats()), only_image(receiving.stats())
            causes = lost(image)
            assert set(causes) == ({"gap"} if is_reliable else {"unfilled"})
            ((count, length),) = causes.values()
            assert 10 < count < 100
            assert length >= count * 160
            if is_reliable:
                assert known(row.nak_count) > 0
                assert known(image.nak_count) >= known(row.nak_count)
                assert known(row.retransmit_count) > 0
                assert known(row.retransmitted_bytes) >= length

    simulate(story, seed=7)


def test_a_small_socket_buffer_is_told_apart_from_the_network() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            small = f"{CHANNEL}|so-rcvbuf=8k|rcv-wnd=8k"
            subscription = await receiving.add_subscription(small, STREAM_ID)
            # Each alone keeps to the window, and both together fill the socket.
            publications = [
                await sending.add_exclusive_publication(CHANNEL, STREAM_ID) for _ in range(2)
            ]
            for publication in publications:
                await publication.wait_connected()
            bob.pause()
            for _ in range(45):
                for publication in publications:
                    publication.try_offer(MESSAGE)
                await world.sleep(0.0001)
            bob.resume()
            left = {publication.session_id for publication in publications}
            for publication in publications:
                await publication.offer(b"last")
            async for message in subscription:
                if message.data == b"last":
                    left.remove(message.session_id)
                if not left:
                    break
            stats = receiving.stats()
            causes = [cause for image in stats.images for cause in lost(image)]
            assert set(causes) == {"socket_drop"}
            assert stats.driver.counters["socket_drops"] > 0

    simulate(story)


def test_a_blocked_loop_is_counted_in_its_own_driver() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()
            await bob.pause_for(3)
            await world.sleep(0.1)
            late, calm = receiving.stats().driver, sending.stats().driver
            assert (late.loop_lag_count, calm.loop_lag_count) == (1, 0)
            assert late.loop_lag_max_ns == pytest.approx(3 * SECOND, rel=0.1)
            assert sum(late.loop_lags[32:]) >= 1
            assert sum(calm.loop_lags[32:]) == 0
            assert known(late.loop_lag_ns) >= 3 * SECOND - 100 * MS

    simulate(story)


def test_what_a_forger_sends_is_counted_at_the_image_it_was_meant_for() -> None:
    async def story(world: World) -> None:
        alice, bob, mallory = (world.host(each) for each in ("alice", "bob", "mallory"))
        del mallory
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(MESSAGE)
            await anext(subscription)
            endpoint = next(iter(receiving.driver.conductor._subscriptions.endpoints))  # type: ignore[union-attr]
            frame = bytearray(64)
            frame[0:4] = (64).to_bytes(4, "little")
            frame[5:6] = b"\xc0"
            frame[6:8] = FrameType.DATA.to_bytes(2, "little")
            frame[8:12] = (160).to_bytes(4, "little")
            frame[12:16] = publication.session_id.to_bytes(4, "little", signed=True)
            frame[16:20] = STREAM_ID.to_bytes(4, "little")
            frame[20:24] = publication.initial_term_id.to_bytes(4, "little", signed=True)
            for _ in range(3):
                endpoint.sockets[0].datagram_received(bytes(frame), ("10.0.0.3", 999))
            image = only_image(receiving.stats())
            assert lost(image) == {"forged": (3, 192)}
            assert receiving.stats().driver.counters["foreign_packets"] == 3

    simulate(story)


def test_a_full_budget_is_named_with_its_limit() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        context = DriverContext(image_log_budget_length=4 * 65_536)
        async with alice.aeron() as sending, bob.aeron(context) as receiving:
            await receiving.add_subscription(CHANNEL, STREAM_ID)
            first = await sending.add_exclusive_publication(CHANNEL, STREAM_ID)
            await first.wait_connected()
            second = await sending.add_exclusive_publication(CHANNEL, STREAM_ID)
            await world.sleep(2)
            assert not second.is_connected
            driver = receiving.stats().driver
            (budget,) = [each for each in driver.budgets if each.name == "image_log_bytes"]
            assert (budget.used, budget.limit) == (3 * 65_536, 4 * 65_536)
            assert driver.limits["images_refused"] >= 1
            assert "images_refused" not in sending.stats().driver.limits

    simulate(story)


def test_a_stream_that_has_gone_is_in_no_later_snapshot() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(MESSAGE)
            await anext(subscription)
            kept = sending.stats()
            gathered = receiving.stats()
            publication.close()
            subscription.close()
            await until(world, lambda: not sending.stats().publications)
            await until(world, lambda: not receiving.stats().images)
            # A snapshot stays what it was, also if nobody has looked at it before.
            assert only_publication(kept).message_count == 1
            assert only_image(gathered).received_bytes == 160
            assert not receiving.stats().subscriptions

    simulate(story)


def test_a_client_that_is_not_open_has_no_statistics() -> None:
    async def story(world: World) -> None:
        aeron = world.host("alice").aeron()
        with pytest.raises(aa.ClosedError):
            aeron.stats()
        async with aeron:
            assert not aeron.stats().publications
        with pytest.raises(aa.ClosedError):
            aeron.stats()
        with pytest.raises(aa.ClosedError):
            await aeron.gather_stats()

    simulate(story)
