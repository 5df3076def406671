"""The edges of streams to many that take whole drivers: who asks, how often, and from where."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from aeron_async.driver.core.image_state import ImageEndReason
from aeron_async.driver.core.stream_counters import ChannelCounterType, StreamCounterType
from aeron_async.driver.core.system_counters import DRIVER_COUNTER_LABELS, DriverCounterId
from aeron_async.driver.media.endpoint import SendChannelEndpoint
from aeron_async.protocol.data import DataHeader, encode_heartbeat
from aeron_async.protocol.datagram import DataFrame
from aeron_async.protocol.header import DataFlags, FrameType, SetupFlags, StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.sim.wire import Peer, Wire, until

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.testing.world import World

STREAM_ID = 7
PUBLISH = "aeron:udp?control=alice:20121|control-mode=dynamic|term-length=64k"
SUBSCRIBE = "aeron:udp?endpoint=bob:20122|control=alice:20121|control-mode=dynamic"
CONTROL = ("10.0.0.1", 20_121)
ENDPOINT = ("10.0.0.2", 20_122)
MS = 0.001


def value(aeron: aa.Aeron, type_id: int) -> int:
    """Return the one counter of a type."""
    (record,) = [each for each in aeron.counters if each.type_id == type_id]
    return record.value


@pytest.mark.parametrize(("tag", "length"), [("", 36), ("|gtag=-9", 44)])
def test_a_dynamic_receiver_says_once_a_second_that_it_is_there_also_with_an_image(
    tag: str, length: int
) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)

        def announced() -> list[float]:
            return [
                each.at_s
                for each in wire.of(StatusMessage)
                if (each.frame.session_id, each.frame.stream_id) == (0, 0)
            ]

        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(SUBSCRIBE + tag, STREAM_ID)
            await world.sleep(3.5)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            for _ in range(70):
                await publication.offer(b"x")
                await anext(subscription)
                await world.sleep(0.1)
            assert len(announced()) in (11, 12)
            spaces = [after - before for before, after in pairwise(announced())]
            assert all(1.0 <= each < 1.003 for each in spaces)
            for each in wire.of(StatusMessage):
                assert each.destination == CONTROL
                assert each.datagram_length == each.frame.frame_length == length
                if (each.frame.session_id, each.frame.stream_id) == (0, 0):
                    assert each.frame.flags == StatusMessageFlags.SEND_SETUP
                    assert each.frame.receiver_window == 0
            await subscription.aclose()
            count = len(announced())
            await world.sleep(3)
            assert len(announced()) == count, "nobody subscribes to anything any more"

    simulate(story)


def test_the_frames_of_a_dynamic_channel_come_from_its_control_address() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(SUBSCRIBE, STREAM_ID)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            await publication.offer(b"x")
            await anext(subscription)
        setups = wire.of(Setup)
        assert {each.frame.flags for each in setups} == {SetupFlags.GROUP}
        assert int(SetupFlags.GROUP) == 0x40
        ends = {(each.source, each.destination) for each in setups + wire.of(DataFrame)}
        assert ends == {(CONTROL, ENDPOINT)}

    simulate(story)


def test_a_dynamic_receiver_silent_for_five_seconds_is_dropped_and_comes_back_by_itself() -> None:
    async def story(world: World) -> None:
        alice, bob, carol = (world.host(name) for name in ("alice", "bob", "carol"))
        wire = Wire(world)
        destinations = ChannelCounterType.MDC_NUM_DESTINATIONS.type_id
        async with alice.aeron() as sending, bob.aeron() as receiving, carol.aeron() as other:
            subscription = await receiving.add_subscription(SUBSCRIBE, STREAM_ID)
            await other.add_subscription(SUBSCRIBE.replace("bob", "carol"), STREAM_ID)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            await publication.offer(b"before")
            assert (await anext(subscription)).data == b"before"
            assert value(sending, destinations) == 2
            # It hears, and is not heard.
            with world.partitioned(bob, is_one_way=True):
                start_s = world.now_ns / 1e9
                await until(world, lambda: value(sending, destinations) == 1)
                assert 4.8 < world.now_ns / 1e9 - start_s < 5.2
                await world.sleep(2)
                assert not any(
                    each.destination == ENDPOINT for each in wire.heartbeats(start_s + 5.3)
                )
                assert publication.is_connected, "by the other one"
                assert subscription.images
            start_s = world.now_ns / 1e9
            await until(world, lambda: value(sending, destinations) == 2)
            assert world.now_ns / 1e9 - start_s < 1.1
            await publication.offer(b"after")
            assert (await anext(subscription)).data == b"after"

    simulate(story)


def test_a_publisher_that_slept_for_six_seconds_still_has_its_destinations() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        destinations = ChannelCounterType.MDC_NUM_DESTINATIONS.type_id
        counts: list[int] = []
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(SUBSCRIBE, STREAM_ID)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            await publication.offer(b"before")
            assert (await anext(subscription)).data == b"before"
            # What was said meanwhile is lost: it hears nobody before it sends again.
            with world.partitioned(bob, is_one_way=True):
                await alice.pause_for(6)
                woken_s = world.now_ns / 1e9
                for _ in range(4):
                    await world.sleep(0.1)
                    counts.append(value(sending, destinations))
            assert counts == [1] * 4
            assert wire.heartbeats(woken_s)
            await publication.offer(b"after")
            assert (await anext(subscription)).data == b"after"
            assert len(subscription.images) == 1

    simulate(story)


def test_names_are_not_looked_up_for_a_silence_that_was_slept_through() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(SUBSCRIBE, STREAM_ID)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            unicast = await sending.add_publication("aeron:udp?endpoint=bob:20123", STREAM_ID)
            await publication.offer(b"before")
            await anext(subscription)
            ends: list[tuple[SendChannelEndpoint | ReceiveChannelEndpoint, aa.Aeron]] = [
                *((each, sending) for each in embedded(sending).conductor._publications.endpoints),
                *(
                    (each, receiving)
                    for each in embedded(receiving).conductor._subscriptions.endpoints
                ),
            ]
            for host in (alice, bob):
                host.pause()
            await world.sleep(6)
            for host in (alice, bob):
                host.resume()
            await world.sleep(0.001)
            for end, aeron in ends:
                assert aeron.clock.now_ns() - heard(end) < 0.5e9
            assert not unicast.is_connected

    simulate(story)


def heard(endpoint: SendChannelEndpoint | ReceiveChannelEndpoint) -> int:
    """Return when an endpoint last heard of its peers."""
    if isinstance(endpoint, SendChannelEndpoint):
        return endpoint.dispatcher.last_sm_ns
    (destination,) = endpoint.destinations
    return destination.last_activity_ns


def test_the_last_destination_is_counted_until_something_is_sent_after_its_time() -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        destinations = ChannelCounterType.MDC_NUM_DESTINATIONS.type_id
        async with alice.aeron() as sending:
            peer = await Peer.open(bob, 20_122)
            publication = await sending.add_publication(PUBLISH, STREAM_ID)
            peer.say(
                StatusMessage(
                    session_id=0, stream_id=0, receiver_id=1, flags=StatusMessageFlags.SEND_SETUP
                ).encode(),
                CONTROL,
            )
            await until(world, lambda: peer.heard)
            assert value(sending, destinations) == 1
            start_s = world.now_ns / 1e9
            await until(world, lambda: value(sending, destinations) == 0)
            # The SETUP of each 100 ms is the attempt that notices.
            assert 4.9 < world.now_ns / 1e9 - start_s < 5.2
            assert not publication.is_connected

    simulate(story)


def frame(offset: int, session_id: int = 5) -> bytes:
    header = DataHeader(
        frame_length=64,
        flags=DataFlags.UNFRAGMENTED,
        frame_type=FrameType.DATA,
        term_offset=offset,
        session_id=session_id,
        stream_id=STREAM_ID,
        term_id=0,
    )
    return DataFrame(header, bytes(32)).encode()


def setup_frame(flags: SetupFlags) -> bytes:
    return Setup(
        flags=flags,
        term_offset=0,
        session_id=5,
        stream_id=STREAM_ID,
        initial_term_id=0,
        active_term_id=0,
        term_length=65_536,
        mtu_length=1_408,
    ).encode()


@pytest.mark.parametrize("flags", [SetupFlags.GROUP, SetupFlags(0)], ids=["group", "one"])
def test_the_setup_says_whether_a_plain_subscription_asks_like_one_of_many(
    flags: SetupFlags,
) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        wire = Wire(world)
        async with bob.aeron() as receiving:
            await receiving.add_subscription("aeron:udp?endpoint=bob:20122", STREAM_ID)
            peer = await Peer.open(alice, 20_121)
            peer.say(setup_frame(flags), ENDPOINT)
            await world.sleep(0.01)
            peer.say(frame(0), ENDPOINT)
            start_s = world.now_ns / 1e9
            peer.say(frame(128), ENDPOINT)
            await world.sleep(0.1)
        naks = wire.of(Nak, start_s)
        assert {(each.frame.term_offset, each.frame.length) for each in naks} == {(64, 64)}
        spaces = [after.at_s - before.at_s for before, after in pairwise(naks)][:8]
        if flags is SetupFlags.GROUP:
            # Drawn anew each time, from nothing to 10 ms, and more often longer than shorter.
            assert 3 * MS < sum(spaces) / len(spaces) < 9 * MS
            assert max(spaces) < 12 * MS
            assert len({round(each / MS) for each in spaces}) > 3
        else:
            assert naks[0].at_s - start_s < 2 * MS
            assert sum(spaces[:4]) < 6 * MS

    simulate(story)


@pytest.mark.parametrize("is_late_one_added", [False, True])
def test_an_image_does_not_end_before_a_destination_that_was_added_late_has_ended_it(
    *, is_late_one_added: bool
) -> None:
    async def story(world: World) -> None:
        alice, bob, carol = (world.host(name) for name in ("alice", "bob", "carol"))
        async with bob.aeron() as receiving:
            subscription = await receiving.add_subscription(
                "aeron:udp?control-mode=manual", STREAM_ID
            )
            first, late = await Peer.open(alice, 20_121), await Peer.open(carol, 20_121)
            await subscription.add_destination("aeron:udp?endpoint=bob:20122")
            first.say(setup_frame(SetupFlags(0)), ENDPOINT)
            await until(world, lambda: subscription.images)
            if is_late_one_added:
                await subscription.add_destination("aeron:udp?endpoint=bob:20123")
            (image,) = subscription.images
            for _ in range(30):
                first.say(end_of_stream(0), ENDPOINT)
                await world.sleep(0.1)
            assert (subscription.images == (image,)) is is_late_one_added
            if is_late_one_added:
                late.say(setup_frame(SetupFlags(0)), ("10.0.0.2", 20_123))
                late.say(frame(0), ("10.0.0.2", 20_123))
                late.say(end_of_stream(64), ("10.0.0.2", 20_123))
                assert (await anext(subscription)).position == 64
                subscription._begin_poll()
                await until(world, lambda: not subscription.images, 2)

    simulate(story)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the longer first", "the shorter first"])
def test_of_two_sources_the_one_that_sent_less_may_end_there(order: tuple[int, int]) -> None:
    async def story(world: World) -> None:
        alice, bob, carol = (world.host(name) for name in ("alice", "bob", "carol"))
        async with bob.aeron() as receiving:
            subscription = await receiving.add_subscription(
                "aeron:udp?control-mode=manual", STREAM_ID
            )
            peers = [await Peer.open(alice, 20_121), await Peer.open(carol, 20_121)]
            places = [("10.0.0.2", port) for port in (20_122, 20_123)]
            for peer, place in zip(peers, places, strict=True):
                await subscription.add_destination(f"aeron:udp?endpoint=bob:{place[1]}")
                peer.say(setup_frame(SetupFlags(0)), place)
                peer.say(heartbeat_at(0), place)
                await world.sleep(0.01)
            peers[0].say(frame(0), places[0])
            assert (await anext(subscription)).position == 64
            (image,) = subscription.images
            subscription._begin_poll()
            await world.sleep(0.3)
            # Both cannot have sent less than was read.
            for index in (1, 0):
                peers[index].say(end_of_stream(0), places[index])
            await world.sleep(1)
            assert subscription.images == (image,)
            assert own_count(receiving, DriverCounterId.STREAM_ENDS_IGNORED) >= 1
            for index in order:
                peers[index].say(end_of_stream(64 if index == 0 else 0), places[index])
            await until(world, lambda: not subscription.images, 2)
            assert image.end is not None
            assert image.end.reason is ImageEndReason.END_OF_STREAM
            assert image.end.end_position == 64

    simulate(story)


def heartbeat_at(offset: int) -> bytes:
    return encode_heartbeat(session_id=5, stream_id=STREAM_ID, term_id=0, term_offset=offset)


def own_count(aeron: aa.Aeron, counter_id: DriverCounterId) -> int:
    (found,) = (
        each.value
        for each in aeron.counters
        if each.registration_id == counter_id
        and each.label.startswith(DRIVER_COUNTER_LABELS[counter_id])
    )
    return found


def end_of_stream(offset: int) -> bytes:
    flags = DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM
    return encode_heartbeat(
        session_id=5, stream_id=STREAM_ID, term_id=0, term_offset=offset, flags=flags
    )


def test_one_gap_of_two_sources_is_asked_of_both_and_counted_twice() -> None:
    async def story(world: World) -> None:
        alice, bob, carol = (world.host(name) for name in ("alice", "bob", "carol"))
        wire = Wire(world)
        async with bob.aeron() as receiving:
            subscription = await receiving.add_subscription(
                "aeron:udp?control-mode=manual", STREAM_ID
            )
            peers = [await Peer.open(alice, 20_121), await Peer.open(carol, 20_121)]
            for peer, port in zip(peers, (20_122, 20_123), strict=True):
                await subscription.add_destination(f"aeron:udp?endpoint=bob:{port}")
                peer.say(setup_frame(SetupFlags(0)), ("10.0.0.2", port))
                await world.sleep(0.01)
            peers[0].say(frame(0), ("10.0.0.2", 20_122))
            peers[0].say(frame(128), ("10.0.0.2", 20_122))
            await world.sleep(MS)
            peers[1].say(frame(64), ("10.0.0.2", 20_123))
            await world.sleep(0.3)
            naks = wire.of(Nak)
            assert {(each.source[1], each.destination[0]) for each in naks} == {
                (20_122, "10.0.0.1"),
                (20_123, "10.0.0.3"),
            }
            # As in the C driver; the Java one counts a gap, and not who was asked.
            assert value(receiving, StreamCounterType.RECEIVER_NAKS_SENT.type_id) == len(naks)
            assert len(naks) % 2 == 0

    simulate(story)
