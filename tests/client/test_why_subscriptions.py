"""A subscription that waits says why, with what was seen, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.archive.persistent_subscription import LiveStream
from aeron_async.client.why import explain_subscription
from aeron_async.waits import SubscriptionSeen
from tests.client.waiting import HERE, SMALL, STREAM_ID, heard_by, told
from tests.driver.fakes import data, setup
from tests.drivers import CLOCK, embedded_only
from tests.sim.wire import Peer

if TYPE_CHECKING:
    from aeron_async.testing import World


pytestmark = embedded_only(CLOCK)


@pytest.mark.parametrize("other_sessions", [(), (7,)], ids=["nothing", "others"])
def test_a_subscription_for_responses_is_told_of_its_server(
    other_sessions: tuple[int, ...],
) -> None:
    """Neither its session nor its channel is what its publisher has to be given."""
    seen = SubscriptionSeen(
        listening_at=("10.0.0.2:20121",),
        answered_from=("10.0.0.1:20122",),
        session_id=5,
        other_sessions=other_sessions,
    )
    why = explain_subscription("a stream", seen)
    assert why.remedy.endswith(
        "start it again; if it lives, let it add a response publication for each client"
        if not other_sessions
        else "start the server again, or let it add a response publication for each client"
    )
    for wrong in ("session-id", "control-mode=dynamic", "start a publication"):
        assert wrong not in why.remedy


def test_a_subscription_that_hears_nothing() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.NOTHING_HEARD
        assert seen == SubscriptionSeen(listening_at=("127.0.0.1:20121",))

    (line,) = told(story)
    assert (line["operation"], line["cause"]) == ("wait_connected", "nothing_heard")


@pytest.mark.parametrize("mode", ["|control-mode=dynamic", ""])
def test_a_subscription_whose_publisher_is_to_take_it_in(mode: str) -> None:
    """It told of a publication with the subscriber's own endpoint, which is the wrong one."""

    async def story(_world: World, aeron: aa.Aeron) -> None:
        channel = f"{HERE}|control=127.0.0.1:20130{mode}"
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.NOTHING_HEARD
        assert (seen.listening_at, seen.reports_to) == (("127.0.0.1:20121",), ("127.0.0.1:20130",))

    (line,) = told(story)
    assert line["why"].endswith(
        "127.0.0.1:20121 hears nothing from a publisher at control address 127.0.0.1:20130; "
        "start a publication with control=127.0.0.1:20130|control-mode=dynamic, without endpoint, "
        "and with this stream id, on this machine: no other reaches a loopback address"
    )


def test_a_subscription_whose_publisher_is_to_take_it_in_elsewhere() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        there = f"{world.host('bob').address}:20130"
        subscription = await aeron.add_subscription(
            f"aeron:udp?endpoint=alice:20121|control={there}|control-mode=dynamic", STREAM_ID
        )
        _, seen = await heard_by(subscription)
        assert seen.reports_to == (there,)
        assert aa.why(subscription).remedy == (
            f"start a publication with control={there}|control-mode=dynamic, without endpoint, and "
            "with this stream id, and let datagrams through to that address, and back"
        )

    told(story)


def test_a_publication_nearly_of_the_same_control_address_is_named() -> None:
    """Only endpoints were held against each other, and the publisher has none."""
    control = "control=127.0.0.1:20130|control-mode=dynamic"

    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(f"{HERE}|{control}", STREAM_ID)
        publication = await aeron.add_publication(f"aeron:udp?{control}", STREAM_ID + 1)
        _, seen = await heard_by(subscription)
        assert [each.session_id for each in seen.nearly] == [publication.session_id]
        near = aa.why(publication).seen.nearly
        assert [each.stream_id for each in near] == [STREAM_ID]
        assert aa.why(publication).remedy.startswith(f"publish on stream {STREAM_ID} if")

    told(story)


def test_a_subscription_that_hears_another_stream() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        publication = await aeron.add_publication(HERE, STREAM_ID + 1)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.OTHER_STREAMS_HEARD
        (stream,) = seen.other_streams
        assert (stream.stream_id, stream.session_id) == (STREAM_ID + 1, publication.session_id)
        assert stream.source == publication.local_address
        assert [each.stream_id for each in seen.nearly] == [STREAM_ID + 1]

    told(story)


def test_a_subscription_that_hears_another_session() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(f"{HERE}|session-id=7", STREAM_ID)
        await aeron.add_publication(f"{HERE}|session-id=8", STREAM_ID)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.OTHER_SESSIONS_HEARD
        assert (seen.session_id, seen.other_sessions) == (7, (8,))

    told(story)


def test_a_subscription_whose_driver_refuses_the_image() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        publication = await aeron.add_publication(f"{HERE}|term-length=128k", STREAM_ID)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.IMAGE_REFUSED
        (refusal,) = seen.refusals
        assert (refusal.session_id, refusal.source) == (
            publication.session_id,
            publication.local_address,
        )
        assert "max_image_term_length" in refusal.reason

    told(story, max_image_term_length=64 * 1024)


@pytest.mark.parametrize("channel", ["aeron:ipc", f"aeron-spy:{HERE}"])
def test_a_subscription_without_a_publication_in_its_driver(channel: str) -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        await aeron.add_publication(channel.removeprefix("aeron-spy:"), STREAM_ID + 1)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.NO_PUBLICATION_HERE
        assert seen.is_local
        assert [each.stream_id for each in seen.nearly] == [STREAM_ID + 1]
        assert aa.why(subscription).remedy.startswith(f"subscribe to stream {STREAM_ID + 1} if")

    told(story)


def test_a_publication_of_another_session_in_the_driver_is_the_likeliest() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription("aeron:ipc?session-id=7", STREAM_ID)
        await aeron.add_publication("aeron:ipc", STREAM_ID + 1)
        await aeron.add_publication("aeron:ipc?session-id=8", STREAM_ID)
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.NO_PUBLICATION_HERE
        assert [each.differs_in for each in seen.nearly] == ["session id", "stream id"]
        assert aa.why(subscription).remedy.startswith(
            "subscribe with the session-id of that publication, or with none; otherwise publish"
        )

    told(story)


def test_a_response_that_no_server_has_named() -> None:
    """A subscription for responses that waits says for what."""

    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(
            "aeron:udp?control=127.0.0.1:20130|control-mode=response", STREAM_ID
        )
        reason, seen = await heard_by(subscription)
        assert reason is aa.WaitReason.NO_RESPONSE_SESSION
        assert seen.is_response_pending

    told(story)


def test_a_subscription_that_was_left_behind() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        slow = await aeron.add_subscription(f"{HERE}|tether=false", STREAM_ID)
        fast = await aeron.add_subscription(HERE, STREAM_ID)
        publication = await aeron.add_publication(HERE, STREAM_ID)
        await publication.wait_connected(timeout=1)

        async def read() -> None:
            async for _ in fast:
                pass

        reading = asyncio.create_task(read())
        for _ in range(1_500):
            publication.try_offer(bytes(1024))
            await world.sleep(0.01)
        assert slow.images == ()
        why = aa.why(slow)
        assert why.reason is aa.WaitReason.LEFT_BEHIND
        assert isinstance(why.seen, SubscriptionSeen)
        assert why.seen.resting_count == 1
        reading.cancel()

    told(story)


def test_a_persistent_subscription_that_waits_for_its_live_stream() -> None:
    """What waits is named by what the caller called."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        live = LiveStream(aeron, aa.ChannelUri.parse(HERE), STREAM_ID, session_id=7)
        await aeron.add_publication(f"{HERE}|session-id=8", STREAM_ID)
        await world.sleep(3)
        await live.aclose()

    (line,) = told(story)
    assert (line["operation"], line["seconds"], line["cause"]) == (
        "subscribe",
        2.0,
        "other_sessions_heard",
    )


def test_data_whose_publisher_hears_nothing_back() -> None:
    """Its SETUP was missed, and what asks for another one does not reach it."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription("aeron:udp?endpoint=alice:20121", STREAM_ID)
        peer = await Peer.open(world.host("mute"), 6_000)
        waiting = asyncio.ensure_future(heard_by(subscription))
        for _ in range(29):
            peer.say(
                data(0, 64, session_id=7, stream_id=STREAM_ID),
                (world.host("alice").address, 20_121),
            )
            await world.sleep(0.1)
        reason, seen = await waiting
        assert reason is aa.WaitReason.SETUP_NOT_ANSWERED
        assert seen.asked_sessions == (7,)

    (line,) = told(story)
    assert line["cause"] == "setup_not_answered"
    assert "session 7" in line["why"]


def test_a_session_whose_image_has_ended_here() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        channel = "aeron:udp?endpoint=alice:20121"
        subscription = await aeron.add_subscription(f"{channel}|rejoin=false", STREAM_ID)
        async with world.host("bob").aeron(SMALL) as other:
            publication = await other.add_publication(channel, STREAM_ID)
            await subscription.wait_connected(timeout=1)
            await subscription.images[0].reject("not now")
            while subscription.is_connected:
                await world.sleep(0.1)
            reason, seen = await heard_by(subscription)
            assert reason is aa.WaitReason.COOLING_DOWN
            assert seen.cooling_sessions == (publication.session_id,)

    (line,) = told(story)
    assert line["cause"] == "cooling_down"
    assert "rejoin=true" in line["why"]


def test_a_subscription_that_waits_for_what_was_lost() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription("aeron:udp?endpoint=alice:20121", STREAM_ID)
        peer = await Peer.open(world.host("bob"), 20122)
        there = (world.host("alice").address, 20121)
        peer.transport.sendto(setup().encode(), there)
        await subscription.wait_connected(timeout=1)
        peer.transport.sendto(data(64, 96), there)
        await asyncio.sleep(0.1)
        why = aa.why(subscription)
        assert why.reason is aa.WaitReason.DATA_MISSING
        assert isinstance(why.seen, SubscriptionSeen)
        (image,) = why.seen.images
        assert (image.unread_length, image.missing_length) == (0, 160)
        peer.transport.sendto(data(0, 64), there)
        await asyncio.sleep(0.1)
        assert aa.why(subscription).reason is aa.WaitReason.NOTHING

    told(story)
