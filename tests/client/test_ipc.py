"""`aeron:ipc`: streams that never leave their driver, as applications see them."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa
from tests.client.local import IPC, STREAM_ID, fill, labels, publications, take, until
from tests.drivers import MEMORY, REASON, TURNS, caught_up, contradiction, embedded, embedded_only
from tests.logs import captured_logs


@pytest.fixture
async def subscription(aeron: aa.Aeron) -> aa.Subscription:
    return await aeron.add_subscription(IPC, STREAM_ID)


@pytest.fixture
async def publication(aeron: aa.Aeron, subscription: aa.Subscription) -> aa.Publication:
    return await aeron.add_publication(IPC, STREAM_ID)


# From end to end.


async def test_what_is_offered_is_read(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"hello", reserved_value=7, timeout=5)
    message = await anext(subscription)
    assert (message.data, message.reserved_value) == (b"hello", 7)
    assert message.session_id == publication.session_id
    assert message.image.source_identity == "aeron:ipc"
    assert subscription.local_address == publication.local_address == ""


@embedded_only(MEMORY)
async def test_a_reader_sees_the_log_of_its_publisher_and_no_copy(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    (core,) = embedded(aeron).conductor.ipc_publications
    (image,) = subscription.images
    assert image._log is core.log
    assert image.image_id == core.registration_id


async def test_a_stream_goes_round_its_terms_many_times(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    messages = [b"%d" % number * (number % 400) for number in range(4_000)]
    offering = asyncio.create_task(publication.offer_many(messages))
    assert await take(subscription, len(messages)) == messages
    assert await offering > 3 * publication.term_length


async def test_messages_may_be_longer_than_a_frame(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    longest = bytes(range(256)) * (publication.max_message_length // 256)
    await publication.offer(longest, timeout=5)
    assert await take(subscription, 1) == [longest]


async def test_a_claim_is_read_when_it_is_committed(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    claim = await publication.claim(5, timeout=5)
    reading = asyncio.ensure_future(anext(subscription))
    claim.data[:] = b"later"
    for _ in range(8):
        await asyncio.sleep(0)
    assert not reading.done()
    claim.commit()
    assert (await asyncio.wait_for(reading, 5)).data == b"later"


@embedded_only(TURNS)
async def test_an_offer_wakes_its_reader_within_two_turns_of_the_loop(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    reading = asyncio.ensure_future(anext(subscription))
    await publication.wait_connected(timeout=5)
    for _ in range(8):
        await asyncio.sleep(0)
    assert publication.try_offer(b"now") == 64
    # The sender has the first turn, the reader the second.
    for _ in range(3):
        await asyncio.sleep(0)
    assert reading.done()


async def test_reading_makes_room_for_an_offer_that_waits(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.wait_connected(timeout=5)
    while isinstance(publication.try_offer(bytes(1_000)), int):
        pass
    waiting = asyncio.ensure_future(publication.offer(b"last", timeout=5))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await take(subscription, 33))[-1] == b"last"
    assert await waiting == publication.position


async def test_the_slowest_of_several_subscriptions_sets_the_pace(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    slow = await aeron.add_subscription(IPC, STREAM_ID)
    await publication.wait_connected(timeout=5)
    count = 0
    while isinstance(publication.try_offer(bytes(1_000)), int):
        count += 1
    await take(subscription, count)
    assert publication.try_offer(b"") is aa.OfferOutcome.BACK_PRESSURED
    await take(slow, count)
    await publication.offer(b"room", timeout=5)


async def test_drain_waits_until_publications_know_what_was_offered(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"one", timeout=5)
    await publication.drain(timeout=5)
    assert labels_value(publication) == publication.position


def labels_value(publication: aa.Publication) -> int:
    return publication._ready.sender_position.get()


# Who is connected.


async def test_a_publication_is_connected_while_somebody_subscribes(aeron: aa.Aeron) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    connections = [publication.is_connected]
    assert publication.try_offer(b"nobody") is aa.OfferOutcome.NOT_CONNECTED
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    connections.append(publication.is_connected)
    assert publication.try_offer(b"somebody") == 64
    await subscription.aclose()
    await caught_up(aeron)
    connections.append(publication.is_connected)
    assert publication.try_offer(b"nobody") is aa.OfferOutcome.NOT_CONNECTED
    assert connections == [False, True, False]


async def test_an_offer_may_wait_for_the_first_subscription(aeron: aa.Aeron) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    waiting = asyncio.ensure_future(publication.offer(b"early", timeout=5))
    await asyncio.sleep(0)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    await waiting
    assert await take(subscription, 1) == [b"early"]


async def test_only_subscriptions_of_the_stream_and_session_join(aeron: aa.Aeron) -> None:
    publication = await aeron.add_publication(f"{IPC}?session-id=5", STREAM_ID)
    other_stream = await aeron.add_subscription(IPC, STREAM_ID + 1)
    other_session = await aeron.add_subscription(f"{IPC}?session-id=6", STREAM_ID)
    this_session = await aeron.add_subscription(f"{IPC}?session-id=5", STREAM_ID)
    assert other_stream.images == other_session.images == ()
    await publication.offer(b"for 5", timeout=5)
    assert await take(this_session, 1) == [b"for 5"]


async def test_what_reads_the_network_does_not_read_ipc_nor_the_other_way_round(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    await aeron.add_publication(channel, STREAM_ID + 1)
    assert (await aeron.add_subscription(f"aeron-spy:{channel}", STREAM_ID)).images == ()
    assert (await aeron.add_subscription(IPC, STREAM_ID + 1)).images == ()


# Shared and exclusive publications, and their sessions.


async def test_publications_of_one_stream_are_shared(aeron: aa.Aeron) -> None:
    one = await aeron.add_publication(IPC, STREAM_ID)
    two = await aeron.add_publication(f"{IPC}?term-length=64k", STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    assert one.session_id == two.session_id
    await one.offer(b"one", timeout=5)
    await two.offer(b"two", timeout=5)
    assert await take(subscription, 2) == [b"one", b"two"]
    await one.aclose()
    assert len(publications(aeron)) == len(subscription.images) == 1
    await two.aclose()
    await until(lambda: not publications(aeron))


@pytest.mark.parametrize(
    "parameter", ["term-length=128k", "mtu=4k", "session-id=99", "term-offset=32"]
)
async def test_a_shared_publication_is_not_had_otherwise(aeron: aa.Aeron, parameter: str) -> None:
    start = "init-term-id=1|term-id=1|term-offset="
    await aeron.add_publication(f"{IPC}?{start}0", STREAM_ID)
    if parameter.startswith("term-offset"):
        parameter = f"{start}32"
    with pytest.raises(contradiction(aeron), match="differs from"):
        await aeron.add_publication(f"{IPC}?{parameter}", STREAM_ID)
    assert len(publications(aeron)) == 1


async def test_exclusive_publications_have_sessions_of_their_own(aeron: aa.Aeron) -> None:
    shared = await aeron.add_publication(IPC, STREAM_ID)
    exclusive = [await aeron.add_exclusive_publication(IPC, STREAM_ID) for _ in range(3)]
    sessions = {each.session_id for each in (shared, *exclusive)}
    assert len(sessions) == 4
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    assert {image.session_id for image in subscription.images} == sessions


async def test_a_session_that_is_taken_is_refused_and_may_be_had_on_another_stream(
    aeron: aa.Aeron,
) -> None:
    await aeron.add_exclusive_publication(f"{IPC}?session-id=7", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="session-id=7 is in use") as caught:
        await aeron.add_exclusive_publication(f"{IPC}?session-id=7", STREAM_ID)
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL
    other = await aeron.add_exclusive_publication(f"{IPC}?session-id=7", STREAM_ID + 1)
    assert other.session_id == 7
    assert len(publications(aeron)) == 2


async def test_a_tag_stands_for_the_session_mtu_and_terms_of_a_publication(
    aeron: aa.Aeron, channel: str
) -> None:
    tagged = await aeron.add_publication(f"{IPC}?tags=,3|mtu=4k|term-length=128k", STREAM_ID)
    network = await aeron.add_publication(f"{channel}|tags=,4|session-id=44", STREAM_ID)
    one = await aeron.add_publication(f"{IPC}?session-id=tag:3", STREAM_ID + 1)
    two = await aeron.add_publication(f"{IPC}?session-id=tag:4", STREAM_ID + 2)
    assert (one.session_id, one.mtu_length, one.term_length) == (tagged.session_id, 4096, 131_072)
    assert (two.session_id, two.mtu_length) == (44, network.mtu_length)
    with pytest.raises(aa.RegistrationError, match="tags=,5 first"):
        await aeron.add_publication(f"{IPC}?session-id=tag:5", STREAM_ID + 3)


async def test_a_stream_may_start_anywhere(aeron: aa.Aeron) -> None:
    start = "init-term-id=2147483647|term-id=-2147483648|term-offset=64"
    publication = await aeron.add_exclusive_publication(f"{IPC}?{start}", STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    assert publication.position == 64 * 1024 + 64
    await publication.offer(b"wrapped", timeout=5)
    assert subscription.images[0].join_position == 64 * 1024 + 64
    assert await take(subscription, 1) == [b"wrapped"]


async def test_a_publication_on_ipc_has_no_destinations(aeron: aa.Aeron, channel: str) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="control-mode=manual"):
        await publication.add_destination(channel)
    with pytest.raises(aa.RegistrationError, match="control-mode=manual"):
        await publication.remove_destination(5)
    with pytest.raises(aa.RegistrationError, match="control-mode=manual"):
        await subscription.add_destination(channel)
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await subscription.remove_destination(5)


# Counters.


async def test_an_ipc_stream_has_three_counters_and_they_go_with_it(aeron: aa.Aeron) -> None:
    before = len(list(aeron.counters))
    publication = await aeron.add_publication(f"{IPC}?session-id=5|alias=x", STREAM_ID)
    subscription = await aeron.add_subscription(f"{IPC}?alias=y", STREAM_ID)
    await publication.offer(b"x", timeout=5)
    await take(subscription, 1)
    await publication.drain(timeout=5)
    async with asyncio.timeout(5):
        # The reader takes the message without the driver, which looks when it has its turn.
        while (counters := list(aeron.counters)[before:])[0].value != 64:
            await asyncio.sleep(0)
    publication_id, subscription_id = (record.registration_id for record in counters[::2])
    # The driver looks at the reader once a second, and may have moved the limit by then.
    assert counters[1].value in {32_768, 32_832}
    assert [(each.label, each.value) for each in counters] == [
        (f"pub-pos (concurrent): {publication_id} 5 1001 aeron:ipc?session-id=5|alias=x", 64),
        (f"pub-lmt: {publication_id} 5 1001 aeron:ipc?session-id=5|alias=x", counters[1].value),
        (f"sub-pos: {subscription_id} 5 1001 aeron:ipc?alias=y @0", 64),
    ]
    assert counters[2].reference_id == publication_id
    await publication.aclose()
    await until(lambda: not publications(aeron))
    await until(lambda: not subscription.images)
    assert len(list(aeron.counters)) == before


async def test_without_counters_nothing_is_added_and_nothing_left_behind(aeron: aa.Aeron) -> None:
    counters = embedded(aeron).counters
    await aeron.add_subscription(IPC, STREAM_ID)
    fillers = fill(counters, 1)
    with pytest.raises(aa.RegistrationError, match="counters"):
        await aeron.add_publication(IPC, STREAM_ID)
    assert not publications(aeron)
    for filler in fillers[:2]:
        filler.close()
    assert not labels(aeron, "pub-")


async def test_a_reader_that_finds_no_counter_is_refused_counted_and_told_in_the_log(
    aeron: aa.Aeron,
) -> None:
    counters = embedded(aeron).counters
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    fill(counters, 2)
    with captured_logs() as lines:
        publication = await aeron.add_publication(IPC, STREAM_ID)
    assert [line["event"] for line in lines] == ["image_refused"]
    assert [each.value for each in counters if each.label.startswith("Images refused")] == [1]
    assert subscription.images == ()
    assert not publication.is_connected


@embedded_only(REASON)
async def test_who_waits_in_vain_is_told_that_ipc_stays_within_one_driver(
    aeron: aa.Aeron, context: aa.DriverContext
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    async with aa.Aeron.connect(context=context) as elsewhere:
        await elsewhere.add_subscription(IPC, STREAM_ID)
        with pytest.raises(aa.OfferTimeoutError, match=r"same driver.*within one") as caught:
            await publication.offer(b"x", timeout=0.01)
        with pytest.raises(aa.AeronTimeoutError, match=r"IPC stays within one"):
            await publication.wait_connected(timeout=0.01)
    assert not caught.value.is_connected


@embedded_only(REASON)
async def test_the_advice_on_back_pressure_names_nothing_that_ipc_does_not_have(
    publication: aa.Publication,
) -> None:
    with pytest.raises(aa.OfferTimeoutError, match=r"raise term-length$") as caught:
        await publication.offer_many([bytes(1_000)] * 1_000, timeout=0.01)
    assert "rcv-wnd" not in str(caught.value)
    assert "receiver" not in str(caught.value)
