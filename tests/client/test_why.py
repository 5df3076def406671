"""A publication that waits says why, with what was seen, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from aeron_async.client.why import explain_publication
from aeron_async.clock import NS_PER_SECOND
from aeron_async.logs import FIELD_LENGTH_MAX
from aeron_async.testing import simulate
from aeron_async.waits import PublicationSeen
from tests.client.waiting import HERE, SMALL, STREAM_ID, heard_by, seen_by, told
from tests.drivers import CLOCK, embedded_only

if TYPE_CHECKING:
    from aeron_async.testing import World


pytestmark = embedded_only(CLOCK)


def test_setups_that_nobody_answers() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.NO_ANSWER
        assert seen.setup_count in {30, 31}
        assert 2_900_000_000 <= seen.setups_for_ns <= 3_010_000_000
        assert seen.sent_to == ("127.0.0.1:20121",)
        assert not seen.is_answered
        assert not seen.nearly

    (line,) = told(story)
    assert (line["operation"], line["seconds"], line["cause"]) == ("offer", 2.0, "no_answer")
    assert (line["channel"], line["stream_id"], line["log_level"]) == (HERE, STREAM_ID, "warning")


def test_a_group_to_which_another_interface_leads() -> None:
    """It did not say from where the SETUPs left, which is what was wrong."""
    group = "aeron:udp?endpoint=224.0.1.1:40456|interface="

    async def story(world: World) -> None:
        alice = world.host("alice", "10.0.0.1", "10.1.0.1")
        async with alice.aeron(SMALL) as here, world.host("bob", "10.0.0.2").aeron(SMALL) as there:
            await there.add_subscription(f"{group}10.0.0.2", STREAM_ID)
            publication = await here.add_publication(f"{group}10.1.0.1", STREAM_ID)
            reason, seen = await seen_by(publication)
            assert reason is aa.WaitReason.NO_ANSWER
            (interface,) = seen.interfaces
            assert interface.endswith("10.1.0.1")
            text = str(aa.why(publication))
            assert f"SETUPs to 224.0.1.1:40456 from interface {interface} in 3.0 s" in text
            assert "interface= at both ends names the network that they share" in text
            assert "ttl= reaches across routers" in text

    simulate(story)


def test_a_subscription_of_the_driver_that_nearly_fits_is_named() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:20122", STREAM_ID)
        await aeron.add_subscription(HERE, STREAM_ID + 1)
        await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:20123", STREAM_ID + 1)
        publication = await aeron.add_publication(HERE, STREAM_ID)
        _, seen = await seen_by(publication)
        assert [(each.stream_id, each.channel[-5:], each.differs_in) for each in seen.nearly] == [
            (STREAM_ID + 1, "20121", "stream id"),
            (STREAM_ID, "20122", "channel"),
        ]
        assert aa.why(publication).remedy.startswith(
            f"publish on stream {STREAM_ID + 1} if that subscription is meant, or subscribe to "
            "this stream id; otherwise start a subscription"
        )

    told(story)


def test_a_subscription_of_another_session_is_the_likeliest() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription(HERE, STREAM_ID + 1)
        await aeron.add_subscription(f"{HERE}|session-id=8", STREAM_ID)
        publication = await aeron.add_publication(f"{HERE}|session-id=7", STREAM_ID)
        _, seen = await seen_by(publication)
        assert [(each.session_id, each.differs_in) for each in seen.nearly] == [
            (8, "session id"),
            (None, "stream id"),
        ]
        assert aa.why(publication).remedy.startswith(
            "give that subscription the session-id of this publication, or none; otherwise"
        )

    told(story)


def test_a_spy_of_another_stream_is_not_taken_for_the_subscriber() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription(f"aeron-spy:{HERE}", STREAM_ID + 1)
        publication = await aeron.add_publication(HERE, STREAM_ID)
        _, seen = await seen_by(publication)
        assert [each.differs_in for each in seen.nearly] == ["stream id"]
        assert aa.why(publication).remedy.startswith("start a subscription with this endpoint")

    told(story)


def test_a_spy_alone_does_not_connect_without_ssc() -> None:
    """A local recording is such a spy, and the line names `ssc=true`."""

    async def story(_world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        await aeron.add_subscription(f"aeron-spy:{HERE}", STREAM_ID)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.SPIES_DO_NOT_CONNECT
        assert (seen.reader_count, seen.do_spies_connect, seen.receiver_count) == (1, False, 0)

    (line,) = told(story)
    assert "ssc=true" in line["why"]


def test_a_receiver_that_refuses_the_stream_in_the_same_driver() -> None:
    """The publisher hears which setting of the receiver refuses it."""

    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        first = await aeron.add_exclusive_publication(HERE, STREAM_ID)
        await first.wait_connected(timeout=1)
        second = await aeron.add_exclusive_publication(HERE, STREAM_ID)
        reason, seen = await seen_by(second)
        assert reason is aa.WaitReason.REJECTED
        assert seen.refusal is not None
        assert seen.refusal.session_id == second.session_id
        assert "max_images_per_stream" in seen.refusal.reason
        assert [each.session_id for each in subscription.images] == [first.session_id]

    told(story, max_images_per_stream=1)


def test_a_refusal_is_of_one_endpoint_and_one_publication() -> None:
    """Ids alone are not enough: publications of other channels may have the same."""
    there = "aeron:udp?endpoint=127.0.0.1:20122"

    async def story(world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription(HERE, STREAM_ID)
        subscription = await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:20123", STREAM_ID)
        first = await aeron.add_exclusive_publication(HERE, STREAM_ID)
        await first.wait_connected(timeout=1)
        refused = await aeron.add_exclusive_publication(f"{HERE}|session-id=7", STREAM_ID)
        alone = await aeron.add_exclusive_publication(f"{there}|session-id=7", STREAM_ID)
        await world.sleep(1)
        assert aa.why(refused).reason is aa.WaitReason.REJECTED
        assert aa.why(alone).reason is aa.WaitReason.NO_ANSWER
        assert aa.why(subscription).reason is aa.WaitReason.NOTHING_HEARD

    told(story, max_images_per_stream=1)


def test_a_receiver_that_refuses_the_stream_elsewhere() -> None:
    """The text names the limit of the receiver, in its own words."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        context = attrs.evolve(SMALL, max_images_per_stream=1)
        async with world.host("bob").aeron(context) as other:
            await other.add_subscription("aeron:udp?endpoint=bob:20121", STREAM_ID)
            channel = "aeron:udp?endpoint=bob:20121"
            first = await aeron.add_exclusive_publication(channel, STREAM_ID)
            await first.wait_connected(timeout=1)
            second = await aeron.add_exclusive_publication(channel, STREAM_ID)
            reason, seen = await seen_by(second)
            assert reason is aa.WaitReason.REJECTED
            assert seen.refusal is None
            assert seen.last_error == second.last_error is not None
            assert "max_images_per_stream" in str(seen.last_error)

    (line,) = told(story)
    assert "max_images_per_stream" in line["why"]


def test_a_rejection_before_the_last_receiver_explains_nothing() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        async with world.host("bob").aeron(SMALL) as other:
            channel = "aeron:udp?endpoint=bob:20121"
            subscription = await other.add_subscription(channel, STREAM_ID)
            publication = await aeron.add_publication(channel, STREAM_ID)
            await subscription.wait_connected(timeout=1)
            await subscription.images[0].reject("not now")
            await world.sleep(0.1)
            assert aa.why(publication).reason is aa.WaitReason.REJECTED
            await publication.wait_connected(timeout=60)
            subscription.close()
            await world.sleep(6)
            assert publication.last_error is not None
            assert aa.why(publication).reason is aa.WaitReason.RECEIVERS_GONE

    told(story)


def test_a_receiver_that_has_rejected_the_stream() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        async with world.host("bob").aeron(SMALL) as other:
            subscription = await other.add_subscription("aeron:udp?endpoint=bob:20121", STREAM_ID)
            publication = await aeron.add_publication("aeron:udp?endpoint=bob:20121", STREAM_ID)
            await publication.wait_connected(timeout=1)
            await subscription.wait_connected(timeout=1)
            await subscription.images[0].reject("not\x1b[2J you")
            await world.sleep(0.1)
            reason, seen = await seen_by(publication)
            assert reason is aa.WaitReason.REJECTED
            assert seen.last_error == publication.last_error is not None
            assert seen.receiver_count == 0
            assert "\x1b" not in str(aa.why(publication))

    told(story)


def test_receivers_that_have_gone() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        async with world.host("bob").aeron(SMALL) as other:
            subscription = await other.add_subscription("aeron:udp?endpoint=bob:20121", STREAM_ID)
            publication = await aeron.add_publication("aeron:udp?endpoint=bob:20121", STREAM_ID)
            await publication.wait_connected(timeout=1)
            world.partition(world.host("bob"))
            await world.sleep(7)
            reason, seen = await seen_by(publication)
            assert reason is aa.WaitReason.RECEIVERS_GONE
            assert seen.is_answered
            assert seen.last_gone is not None
            assert 9_000_000_000 <= seen.last_gone.silent_ns <= 10_500_000_000
            world.heal()
            assert subscription.images

    told(story)


def test_a_group_that_is_too_small() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        channel = "aeron:udp?control=127.0.0.1:20130|control-mode=dynamic|fc=min,g:/2"
        publication = await aeron.add_publication(channel, STREAM_ID)
        await aeron.add_subscription(
            "aeron:udp?endpoint=127.0.0.1:20121|control=127.0.0.1:20130|control-mode=dynamic",
            STREAM_ID,
        )
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.GROUP_TOO_SMALL
        assert (seen.group_size, seen.group_min_size, seen.receiver_count) == (1, 2, 1)

    told(story)


@pytest.mark.parametrize("mode", ["manual", "dynamic"])
def test_no_destination(mode: str) -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        channel = f"aeron:udp?control=127.0.0.1:20130|control-mode={mode}"
        publication = await aeron.add_publication(channel, STREAM_ID)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.NO_DESTINATION
        assert (seen.has_destinations, seen.is_manual) == (True, mode == "manual")
        assert seen.destination_count == 0

    told(story)


def test_destinations_whose_names_lead_nowhere() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        channel = "aeron:udp?control=127.0.0.1:20130|control-mode=manual"
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.add_destination("aeron:udp?endpoint=nowhere:20121")
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.NAME_UNRESOLVED
        assert seen.unresolved == ("aeron:udp?endpoint=nowhere:20121",)

    (line,) = told(story)
    assert line["cause"] == "name_unresolved"
    assert "nowhere:20121" in line["why"]


def test_no_subscription_in_the_driver_of_an_ipc_publication() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
        await aeron.add_subscription("aeron:ipc", STREAM_ID + 1)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.NO_SUBSCRIPTION_HERE
        assert seen.is_ipc
        assert [each.stream_id for each in seen.nearly] == [STREAM_ID + 1]
        assert aa.why(publication).remedy.startswith(f"publish on stream {STREAM_ID + 1} if")

    told(story)


@pytest.mark.parametrize("channel", [HERE, "aeron:ipc"])
def test_back_pressure(channel: str) -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=1)
        while publication.available_window > 0 or publication.position < 32 * 1024:
            publication.try_offer(bytes(1024))
            await asyncio.sleep(0.001)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.BACK_PRESSURED
        assert seen.position >= seen.position_limit > 0
        assert seen.is_connected
        if channel == HERE:
            assert seen.slowest_receiver == seen.receivers[0].receiver_id
            assert seen.slowest_address == seen.receivers[0].address == "127.0.0.1:20121"
            assert seen.receivers[0].silent_ns < 250_000_000
            assert seen.sender_limit == 32 * 1024
            assert aa.why(publication).remedy.startswith("let the subscriber keep up")
            # One that is silent is not slow: it may be dead.
            silent = attrs.evolve(seen.receivers[0], silent_ns=NS_PER_SECOND)
            why = explain_publication("it", attrs.evolve(seen, receivers=(silent,)))
            assert why.remedy.startswith("does that subscriber still run, and do")
        else:
            assert seen.reader_lag == seen.position

    (line,) = told(story)
    assert (line["operation"], line["cause"]) == ("offer", "back_pressured")
    assert ("slowest receiver 127.0.0.1:20121 (0x" in line["why"]) is (channel == HERE)


@pytest.mark.parametrize("channel", [HERE, "aeron:ipc"])
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_a_claim_that_nobody_commits(channel: str, *, is_exclusive: bool) -> None:
    """It was blamed on slow subscribers, which had read everything."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        add = aeron.add_exclusive_publication if is_exclusive else aeron.add_publication
        publication = await add(channel, STREAM_ID)
        await publication.wait_connected(timeout=1)
        await publication.offer(bytes(64))
        await world.sleep(0.01)
        subscription.poll(lambda _data, _header: None)
        claim = publication.try_claim(64)
        assert isinstance(claim, aa.BufferClaim)
        await world.sleep(0.01)
        assert aa.why(publication).reason is aa.WaitReason.CLAIM_UNCOMMITTED
        while publication.available_window > 0:
            publication.try_offer(bytes(1024))
            await asyncio.sleep(0.001)
        reason, seen = await seen_by(publication)
        assert reason is aa.WaitReason.CLAIM_UNCOMMITTED
        assert seen.claim is not None
        assert (seen.claim.position, seen.claim.timeout_ns) == (96, 15_000_000_000)
        if is_exclusive:
            assert seen.claim.unblocks_in_ns is None
            claim.abort()
        else:
            assert seen.claim.unblocks_in_ns is not None
            await world.sleep(seen.claim.unblocks_in_ns / 1e9 + 0.1)
            now_seen = aa.why(publication).seen
            assert isinstance(now_seen, PublicationSeen)
            assert now_seen.claim is None

    (line,) = told(story)
    assert (line["operation"], line["cause"]) == ("offer", "claim_uncommitted")
    assert "position 96" in line["why"]
    assert ("publication_unblock_timeout_ns" in line["why"]) is not is_exclusive


def test_what_is_not_sent_holds_draining_up() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        async with world.host("bob").aeron(SMALL) as other:
            channel = "aeron:udp?endpoint=bob:20121|rcv-wnd=4k|mtu=1408"
            await other.add_subscription(channel, STREAM_ID)
            publication = await aeron.add_publication("aeron:udp?endpoint=bob:20121", STREAM_ID)
            await publication.wait_connected(timeout=1)
            for _ in range(16):
                await publication.offer(bytes(1024))
            with pytest.raises(
                aa.AeronTimeoutError, match=r"drain waited 3\.0\d\d s: not all sent"
            ) as e:
                await publication.drain(timeout=3)
            assert e.value.why is not None
            assert e.value.why.reason is aa.WaitReason.NOT_SENT
            seen = e.value.why.seen
            assert isinstance(seen, PublicationSeen)
            assert seen.position - seen.sender_position == 16 * 1056 - seen.sender_position > 0
            assert seen.slowest_receiver is not None

    (line,) = told(story)
    assert (line["operation"], line["cause"]) == ("drain", "not_sent")


def test_nothing_is_in_the_way_or_it_is_closed() -> None:
    async def story(_world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        publication = await aeron.add_publication(HERE, STREAM_ID)
        await publication.wait_connected(timeout=1)
        await subscription.wait_connected(timeout=1)
        assert aa.why(publication).reason is aa.WaitReason.NOTHING
        assert aa.why(subscription).reason is aa.WaitReason.NO_DATA
        await publication.offer(b"x")
        await asyncio.sleep(0.1)
        assert aa.why(subscription).reason is aa.WaitReason.NOTHING
        publication.close()
        subscription.close()
        assert aa.why(publication).reason is aa.WaitReason.CLOSED
        assert aa.why(subscription).reason is aa.WaitReason.CLOSED
        assert aa.why(publication).remedy == ""

    assert told(story) == []


def test_only_publications_and_subscriptions_are_explained() -> None:
    with pytest.raises(aa.ConfigurationError, match="got str"):
        aa.why("aeron:ipc")  # type: ignore[arg-type]


LONG_ALIAS = f"{HERE}|alias={'x' * 3_000}"


def test_a_long_channel_does_not_cut_off_what_to_change() -> None:
    """A field of a log line ends after a thousand characters, and the channel came first."""

    async def offers(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_subscription(HERE, STREAM_ID + 1)
        publication = await aeron.add_publication(LONG_ALIAS, STREAM_ID)
        await seen_by(publication)
        assert publication.channel == LONG_ALIAS

    async def waits(_world: World, aeron: aa.Aeron) -> None:
        await aeron.add_publication(LONG_ALIAS, STREAM_ID + 1)
        subscription = await aeron.add_subscription(LONG_ALIAS, STREAM_ID)
        await heard_by(subscription)

    for story, remedy in ((offers, "also on their way back"), (waits, "publish with this one")):
        (line,) = told(story)
        assert line["why"].endswith(remedy)
        assert f"stream {STREAM_ID}: " in line["why"]
        assert "more characters) stream" in line["why"]


def test_whatever_was_seen_what_to_change_is_told() -> None:
    for sight, told_of in (("seen " * 900, "seen seen"), ("\x1b[2J" * 900, "\\x1b[2J")):
        why = aa.Why(
            reason=aa.WaitReason.REJECTED,
            subject="s" * 360,
            sight=sight,
            remedy="r" * 360,
            seen=PublicationSeen(),
        )
        assert len(str(why)) < FIELD_LENGTH_MAX
        assert str(why).endswith("; " + "r" * 360)
        assert told_of in str(why)
