"""The edges of a unicast stream that take both of its ends and the time between them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.datagram import DataFrame
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.sim.wire import Peer, Wire, until

if TYPE_CHECKING:
    from aeron_async.testing.world import World

STREAM_ID = 7
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
MESSAGE = bytes(1_000)
MS = 0.001


def test_a_lost_tail_is_repaired_within_a_hundred_milliseconds() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with bob.aeron() as receiving, alice.aeron() as sending:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(b"first")
            assert (await anext(subscription)).data == b"first"
            lost: list[bytes] = []

            def lose_one(datagram: bytes) -> bool:
                lost.append(datagram)
                return len(lost) == 1

            world.link(alice, bob).is_lost = lose_one
            start_s = world.now_ns / 1e9
            await publication.offer(b"last")
            assert (await anext(subscription)).data == b"last"
            assert 90 * MS < world.now_ns / 1e9 - start_s < 110 * MS
            (nak,) = wire.of(Nak, start_s)
            assert (nak.frame.term_offset, nak.frame.length) == (64, 64)

    simulate(story)


def test_consumption_of_less_than_a_quarter_of_a_window_stalls_nobody() -> None:
    async def story(world: World) -> None:
        wire = Wire(world)
        async with world.host("bob").aeron() as receiving, world.host("alice").aeron() as sending:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            for _ in range(7):
                await publication.offer(MESSAGE)
                await anext(subscription)
                await world.sleep(0.3)
            # 7 frames of 1056 bytes are less than a quarter of 32 768: no message has told of them.
            told = [each.frame.consumption_term_offset for each in wire.of(StatusMessage)]
            assert len(told) > 10
            assert set(told) == {0}
            for _ in range(24):
                assert not isinstance(publication.try_offer(MESSAGE), aa.OfferOutcome)
            for _ in range(24):
                await anext(subscription)
            await world.sleep(0.3)
            assert wire.of(StatusMessage)[-1].frame.consumption_term_offset >= 8_192

    simulate(story)


def test_a_window_that_nobody_chose_grows_while_the_reader_is_fast_and_shrinks_after_drops() -> (
    None
):
    async def story(world: World) -> None:
        wire = Wire(world)
        async with world.host("bob").aeron() as receiving, world.host("alice").aeron() as sending:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL.replace("64k", "16m"), STREAM_ID)

            async def pass_on(length: int) -> int:
                """Let so many bytes through, and return the last window."""
                left = length // len(MESSAGE)
                while left:
                    count = min(64, left)
                    for _ in range(count):
                        await publication.offer(MESSAGE)
                    for _ in range(count):
                        await anext(subscription)
                    left -= count
                return int(wire.of(StatusMessage)[-1].frame.receiver_window)

            assert await pass_on(64 * 1024) == 128 * 1024
            assert await pass_on(5 * 1024 * 1024) == 2 * 1024 * 1024
            (counter,) = [
                each.value
                for each in receiving.driver.counters.snapshot()
                if each.label.startswith("rcv-cc-auto-wnd")
            ]
            assert counter == 2 * 1024 * 1024
            (endpoint,) = embedded(receiving).conductor.receiver.endpoints
            endpoint.on_datagrams_dropped(3)
            assert await pass_on(2 * 1024 * 1024) == 1024 * 1024
            # A reader that stops for a while begins again with what it has.
            await world.sleep(2)
            assert await pass_on(64 * 1024) == 1024 * 1024

    simulate(story)


def test_a_sender_beyond_the_bound_of_its_receiver_is_repaired_by_naks() -> None:
    async def story(world: World) -> None:
        wire = Wire(world)
        context = aa.DriverContext(initial_window_length=8_192)
        async with (
            world.host("bob").aeron(context) as receiving,
            world.host("alice").aeron() as sending,
        ):
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected(5)
            (core,) = embedded(sending).conductor.network_publications
            # A sender that ignores the window of 8 KiB, and the half of a term beyond it as well.
            core._sender.set_limit(60 * 1_024)
            messages = [bytes([number]) * 1_000 for number in range(50)]
            for message in messages:
                await publication.offer(message)
            await world.sleep(0.05)
            assert core.sender_position == 50 * 1_056
            over_runs = receiving.driver.counters.value(SystemCounterId.FLOW_CONTROL_OVER_RUNS)
            assert over_runs >= 50 - 32_768 // 1_056
            assert wire.of(Nak) == [], "what was dropped has not been missed yet"
            assert [(await anext(subscription)).data for _ in messages] == messages
            assert wire.of(Nak)[0].frame.term_offset == 32_768 // 1_056 * 1_056

    simulate(story)


@pytest.mark.parametrize("initial_term_id", [2**31 - 1, -(2**31), 5])
def test_a_stream_is_joined_however_far_it_is_from_its_first_term(initial_term_id: int) -> None:
    count = 2**31 - 100
    term_id = (initial_term_id + count + 2**31) % 2**32 - 2**31
    start = f"init-term-id={initial_term_id}|term-id={term_id}|term-offset=64"

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as receiving, world.host("alice").aeron() as sending:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_exclusive_publication(f"{CHANNEL}|{start}", STREAM_ID)
            await publication.wait_connected(5)
            messages = [bytes([number]) * 1_000 for number in range(200)]
            read = []
            for message in messages:
                await publication.offer(message)
                read.append(await anext(subscription))
            assert [each.data for each in read] == messages
            assert read[0].position == (count << 16) + 64 + 1_056
            assert read[-1].position == publication.position

    simulate(story)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_session_that_starts_anew_waits_for_its_old_image_to_be_read_or_left(
    is_read: bool,  # noqa: FBT001 - a table of cases
) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        session = f"{CHANNEL}|session-id=5"

        async def publish(aeron: aa.Aeron, term_id: int) -> aa.ExclusivePublication:
            place = f"init-term-id={term_id}|term-id={term_id}|term-offset=0"
            return await aeron.add_exclusive_publication(f"{session}|{place}", STREAM_ID)

        async with bob.aeron() as receiving:
            read: list[tuple[bytes, int]] = []
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)

            async def keep_reading() -> None:
                async for message in subscription:
                    image_id = message.image.image_id
                    read.append((bytes(message.data), image_id))

            async with alice.aeron() as sending:
                publication = await publish(sending, 3)
                await publication.offer(b"old")
                await world.sleep(0.5)
                (old,) = embedded(receiving).conductor.publication_images
                if is_read:
                    bob.spawn(keep_reading())
                await alice.crash()
            died_s = world.now_ns / 1e9
            await alice.restart()
            async with alice.aeron() as sending:
                publication = await publish(sending, -70_000)
                if not is_read:
                    await world.sleep(20)
                    assert old.state is ImageState.DRAINING, "silent, and not read yet"
                    assert not publication.is_connected
                    assert old.hwm_position == 64, "nothing of the new one is in the old log"
                await publication.wait_connected(20)
                # 10 s of silence, and 1 s of goodbyes; unread, it is given 10 s more.
                waited_s = 11 if is_read else 21
                assert waited_s - 0.2 <= world.now_ns / 1e9 - died_s < waited_s + 0.5
                assert old.state in (ImageState.LINGER, ImageState.DONE)
                await publication.offer(b"new", timeout=5)
                if not is_read:
                    bob.spawn(keep_reading())
                    await until(world, lambda: len(read) == 1)
                    assert read[0][0] == b"new"
                    return
                await until(world, lambda: len(read) == 2)
                (first, old_id), (second, new_id) = read
                assert (first, second) == (b"old", b"new")
                assert old_id != new_id

    simulate(story)


def test_who_has_lost_all_receivers_says_so_within_five_seconds_and_waits_to_be_asked() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with alice.aeron() as sending:
            async with bob.aeron() as receiving:
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                publication = await sending.add_publication(CHANNEL, STREAM_ID)
                await publication.offer(MESSAGE)
                await anext(subscription)
                await world.sleep(1)
                await bob.crash()
            last_s = wire.of(StatusMessage)[-1].at_s
            await until(world, lambda: not publication.is_connected)
            silent_s = world.now_ns / 1e9 - last_s
            assert 5 <= silent_s < 5.2
            assert publication.position_limit == publication.position
            assert publication.try_offer(b"x") is aa.OfferOutcome.NOT_CONNECTED
            gone_s = world.now_ns / 1e9
            await world.sleep(10)
            assert wire.of(Setup, last_s) == [], "nobody has asked for one"
            beats = [each.at_s for each in wire.heartbeats(gone_s)]
            assert all(after - before < 0.11 for before, after in pairwise(beats))
            await bob.restart()
            async with bob.aeron() as receiving:
                asked_s = world.now_ns / 1e9
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                await publication.wait_connected(1)
                first, *_ = wire.of(StatusMessage, asked_s)
                assert first.frame.is_setup_elicit
                assert len(wire.of(Setup, asked_s)) in (1, 2)
                await publication.offer(b"again")
                assert (await anext(subscription)).data == b"again"

    simulate(story)


@pytest.mark.parametrize("rejoin", ["true", "false"])
def test_without_rejoin_a_silent_source_stays_away_until_its_subscription_is_added_again(
    rejoin: str,
) -> None:
    channel = f"{CHANNEL}|rejoin={rejoin}"

    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(channel, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected(5)
            await until(world, lambda: subscription.images)
            with world.partitioned(alice):
                await until(world, lambda: not subscription.images)
            await world.sleep(30)
            assert bool(subscription.images) is publication.is_connected is (rejoin == "true")
            await subscription.aclose()
            await world.sleep(1)
            again = await receiving.add_subscription(channel, STREAM_ID)
            await until(world, lambda: again.images, 5)
            await publication.offer(b"back", timeout=5)
            assert (await anext(again)).data == b"back"

    simulate(story)


def test_status_messages_from_another_port_never_reach_a_connected_sender() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with alice.aeron() as sending:
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            stranger = await Peer.open(bob, 20_999)
            endpoint = await Peer.open(bob, 20_121)
            await until(world, lambda: endpoint.heard)
            setup = wire.of(Setup)[0]
            message = StatusMessage(
                session_id=publication.session_id,
                stream_id=STREAM_ID,
                consumption_term_id=setup.frame.active_term_id,
                consumption_term_offset=0,
                receiver_window=32_768,
                receiver_id=5,
            ).encode()
            for _ in range(10):
                stranger.say(message, setup.source)
                await world.sleep(0.1)
            assert not publication.is_connected
            spaces = [after.at_s - before.at_s for before, after in pairwise(wire.of(Setup))]
            assert len(spaces) >= 9
            assert all(0.1 <= each < 0.103 for each in spaces)
            start_s = world.now_ns / 1e9
            endpoint.say(message, setup.source)
            await publication.wait_connected(1)
            await world.sleep(0.5)
            assert wire.heartbeats(start_s)[0].at_s - start_s < 2 * MS, "at once"
            assert wire.of(Setup, start_s + MS) == []

    simulate(story)


def test_every_answer_of_a_receiver_leaves_from_the_port_of_its_endpoint() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with bob.aeron() as receiving, alice.aeron() as sending:
            subscription = await receiving.add_subscription(f"{CHANNEL}|cc=cubic", STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(MESSAGE)
            await anext(subscription)
            with world.partitioned(alice, is_one_way=True):
                await publication.offer(MESSAGE)
                await world.sleep(MS)
            await anext(subscription)
            (image,) = subscription.images
            await image.reject("enough")
            await world.sleep(0.5)
        kinds = {type(each.frame) for each in wire.sent if each.source[0] == bob.address}
        assert {StatusMessage, Nak} < kinds
        assert {each.source for each in wire.sent if each.source[0] == bob.address} == {
            (bob.address, 20_121)
        }
        assert all(each.source[0] == alice.address for each in wire.of(DataFrame) + wire.of(Setup))

    simulate(story)
