"""Destinations as clients add and remove them, and channels for responses: what is refused, how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.media.network import SystemNetwork
from tests.client.conftest import STREAM_ID
from tests.client.local import until
from tests.drivers import TURNS, contradiction, embedded, embedded_only, endpoint_error

if TYPE_CHECKING:
    from collections.abc import Callable

MANUAL = "aeron:udp?control-mode=manual"


@pytest.fixture
def context() -> aa.DriverContext:
    # A publisher whose receiver was taken away must wait until that counts as silent.
    return aa.DriverContext(
        term_buffer_length=64 * 1024, publication_connection_timeout_ns=300_000_000
    )


@pytest.fixture
def port(unused_udp_port_factory: Callable[[], int]) -> Callable[[], str]:
    return lambda: f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"


async def test_a_subscription_receives_where_it_is_told_and_no_longer_where_not(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    assert subscription.local_address == ""
    channels = [port(), port(), port()]
    added = [await subscription.add_destination(channel) for channel in channels]
    publications = [await aeron.add_publication(channel, STREAM_ID) for channel in channels]
    for number, publication in enumerate(publications):
        await publication.offer(bytes([number]), timeout=5)
    heard = {(await anext(subscription)).data for _ in channels}
    assert heard == {b"\0", b"\1", b"\2"}
    await subscription.remove_destination(channels[0])
    await subscription.remove_destination(added[1])
    for destination in (channels[0], added[1], "aeron:udp?endpoint=127.0.0.1:9"):
        with pytest.raises(aa.RegistrationError, match="is not a destination of aeron:udp"):
            await subscription.remove_destination(destination)
    # Its port is free, and its counter gone.
    again = await aeron.add_subscription(channels[0], STREAM_ID + 1)
    assert again.local_address == channels[0].partition("=")[2]
    names = [record.label for record in aeron.counters if "rcv-local" in record.label]
    assert len(names) == 2


async def test_destinations_are_for_those_who_ask_for_them(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    plain = await aeron.add_subscription(port(), STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="with control-mode=manual only") as caught:
        await plain.add_destination(port())
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL
    sending = await aeron.add_publication(port(), STREAM_ID)
    for change in (sending.add_destination, sending.remove_destination):
        with pytest.raises(aa.RegistrationError, match="use control-mode=manual"):
            await change(port())
    manual = await aeron.add_publication(MANUAL, STREAM_ID)
    with pytest.raises(aa.ChannelUriError, match="endpoint"):
        await manual.add_destination("aeron:udp?control=127.0.0.1:9")
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await manual.remove_destination(12345)
    with pytest.raises(aa.RegistrationError) as caught:
        await manual.add_destination("aeron:udp?endpoint=127.0.0.1:9|interface={missing0}")
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL


async def test_a_channel_has_so_many_destinations_at_most(port: Callable[[], str]) -> None:
    context = aa.DriverContext(max_destinations=2)
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
        publication = await aeron.add_publication(MANUAL, STREAM_ID)
        for holder in (subscription, publication):
            for _ in range(2):
                await holder.add_destination(port())
            with pytest.raises(aa.RegistrationError, match=r"number 3.*limit is 2"):
                await holder.add_destination(port())


async def test_a_destination_whose_port_is_taken_is_refused_and_leaves_nothing(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    channel = port()
    taken = await aeron.add_subscription(channel, STREAM_ID)
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    before = sum(1 for _ in aeron.counters)
    with pytest.raises(aa.RegistrationError) as caught:
        await subscription.add_destination(channel)
    assert caught.value.code is endpoint_error(aeron)
    assert sum(1 for _ in aeron.counters) == before
    await taken.aclose()
    await subscription.add_destination(channel)


async def test_what_is_closed_has_no_destinations_any_more(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    conductor = aeron.driver.conductor
    await publication.aclose()
    await subscription.aclose()
    for holder in (publication, subscription):
        with pytest.raises(aa.ClosedError):
            await holder.add_destination(port())
        with pytest.raises(aa.ClosedError):
            await holder.remove_destination(1)
    uri = aa.ChannelUri.parse(port())
    # Closed while the request was under way, it does not exist any more when its turn comes.
    with pytest.raises(aa.RegistrationError, match="unknown publication: 99"):
        await conductor.destinations.add_to_publication(aeron.client_id, 99, uri)
    with pytest.raises(aa.RegistrationError, match="unknown subscription: 99"):
        await conductor.destinations.add_to_subscription(aeron.client_id, 99, uri)


async def test_a_destination_nobody_waits_for_any_more_is_taken_back(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    for holder in (publication, subscription):
        for turns in range(6):
            task = asyncio.create_task(holder.add_destination(port()))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_done = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if was_done:
                await holder.remove_destination(task.result())
    for _ in range(10):
        await asyncio.sleep(0)
    counts = [record.value for record in aeron.counters if "mdc-num-dest" in record.label]
    assert counts == [0]
    assert not [record for record in aeron.counters if "rcv-local" in record.label]


async def test_responses_need_somebody_who_asked(aeron: aa.Aeron, port: Callable[[], str]) -> None:
    response = "aeron:udp?control=127.0.0.1:0|control-mode=response"
    requests = port()
    with pytest.raises(aa.AeronError, match="response-correlation-id"):
        await aeron.add_publication(response, STREAM_ID)
    with pytest.raises(aa.RegistrationError, match=r"correlationId=.* not found"):
        await aeron.add_publication(f"{response}|response-correlation-id=99", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="unable to find response subscription"):
        await aeron.add_publication(f"{requests}|response-correlation-id=99", STREAM_ID)
    subscription = await aeron.add_subscription(requests, STREAM_ID)
    plain = await aeron.add_publication(requests, STREAM_ID)
    await plain.offer(b"no answer wanted", timeout=5)
    image = (await anext(subscription)).image
    with pytest.raises(aa.RegistrationError, match="did not request a response channel"):
        await aeron.add_publication(
            f"{response}|response-correlation-id={image.correlation_id}", STREAM_ID
        )
    prototype = await aeron.add_publication(f"{response}|response-correlation-id=prototype", 9)
    assert not prototype.is_connected


async def test_an_image_that_has_gone_cannot_be_rejected(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    channel = port()
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(b"x", timeout=5)
    image = (await anext(subscription)).image
    with pytest.raises(aa.ConfigurationError, match="at most 1023 bytes"):
        await image.reject("é" * 512)
    with pytest.raises(aa.RegistrationError, match="no image 99"):
        await aeron.driver.conductor.reject_image(aeron.client_id, 99, "gone")
    await image.reject("é" * 511)
    await publication.aclose()
    await subscription.aclose()
    with pytest.raises(aa.ClosedError):
        await image.reject("closed")


async def test_tags_name_the_endpoint_and_its_kind(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    channel = port()
    first = await aeron.add_publication(f"{channel}|tags=77", STREAM_ID)
    second = await aeron.add_publication("aeron:udp?tags=77", STREAM_ID + 1)
    assert first.local_address == second.local_address
    for other in (port(), "aeron:udp?control-mode=manual"):
        with pytest.raises(aa.RegistrationError, match="mismatched endpoint or control"):
            await aeron.add_publication(
                f"{other}{'|' if '?' in other else '?'}tags=77", STREAM_ID + 2
            )
    subscription = await aeron.add_subscription(f"{channel}|tags=5", STREAM_ID)
    for key in ("reliable", "rejoin"):
        with pytest.raises(contradiction(aeron), match=f"{key}=false differs from {key}=true"):
            await aeron.add_subscription(f"aeron:udp?tags=5|{key}=false", STREAM_ID)
    assert (await aeron.add_subscription("aeron:udp?tags=5", 4)).local_address == (
        subscription.local_address
    )
    tagged = await aeron.add_exclusive_publication(f"{port()}|tags=,9|mtu=2k", STREAM_ID)
    copied = await aeron.add_exclusive_publication(f"{port()}|session-id=tag:9", STREAM_ID)
    assert (copied.session_id, copied.mtu_length) == (tagged.session_id, tagged.mtu_length)


async def test_a_tag_alone_takes_the_role_of_the_endpoint_that_it_names(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    response = port().replace("endpoint", "control")
    await aeron.add_subscription(f"{response}|control-mode=response|tags=6", STREAM_ID)
    await aeron.add_subscription("aeron:udp?tags=6", STREAM_ID)
    with pytest.raises(contradiction(aeron), match="esponse"):
        await aeron.add_subscription(response, STREAM_ID)


async def test_a_session_of_a_tag_is_refused_before_the_tagged_publication_is_there(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    copying = f"{port()}|session-id=tag:9"
    with pytest.raises(aa.RegistrationError, match="names no publication of this driver") as caught:
        await aeron.add_publication(copying, STREAM_ID)
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL
    tagged = await aeron.add_publication(f"{port()}|tags=,9|session-id=77", STREAM_ID)
    copied = await aeron.add_publication(copying, STREAM_ID)
    assert copied.session_id == tagged.session_id == 77
    await tagged.aclose()


@embedded_only(TURNS)
@pytest.mark.parametrize("change", ["add_destination", "remove_destination"])
@pytest.mark.parametrize("add", ["add_publication", "add_subscription"])
async def test_what_is_closed_while_its_destinations_change_says_that_it_is(
    aeron: aa.Aeron, port: Callable[[], str], add: str, change: str
) -> None:
    holder = await getattr(aeron, add)(MANUAL, STREAM_ID)
    other = await getattr(aeron, add)(MANUAL, STREAM_ID + 1)
    task = asyncio.create_task(getattr(holder, change)(port()))
    await asyncio.sleep(0)
    await holder.aclose()
    with pytest.raises(aa.ClosedError, match="closed while the request was under way"):
        await task
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await other.remove_destination(port())


@pytest.mark.parametrize("turns", range(8))
async def test_a_subscription_that_closes_while_its_destination_opens_leaves_no_socket(
    turns: int, port: Callable[[], str]
) -> None:
    network, channel = SystemNetwork("loop"), port()
    async with aa.MediaDriver.launch(network=network) as driver, aa.Aeron.connect(driver) as aeron:
        before = sum(1 for _ in aeron.counters)
        subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
        adding = asyncio.create_task(subscription.add_destination(channel))
        for _ in range(turns):
            await asyncio.sleep(0)
        await subscription.aclose()
        (outcome,) = await asyncio.gather(adding, return_exceptions=True)
        assert isinstance(outcome, int | aa.ClosedError | aa.RegistrationError)
        await aeron.add_subscription(channel, STREAM_ID)
        assert sum(1 for _ in aeron.counters) == before + 2


async def test_a_destination_is_removed_by_its_text_also_when_its_name_has_gone() -> None:
    known = {"here": "127.0.0.1"}

    class Resolver:
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            return known[host], port

    context = aa.DriverContext(name_resolver_supplier=Resolver)
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
        publication = await aeron.add_publication(MANUAL, STREAM_ID)
        for holder, channel in (
            (subscription, "aeron:udp?endpoint=here:0"),
            (publication, "aeron:udp?endpoint=here:9"),
        ):
            known["here"] = "127.0.0.1"
            await holder.add_destination(channel)
            del known["here"]
            await holder.remove_destination(channel)
            with pytest.raises(aa.RegistrationError, match="is not a destination of"):
                await holder.remove_destination(channel)


def destination_count(aeron: aa.Aeron) -> int:
    (count,) = (record.value for record in aeron.counters if "mdc-num-dest" in record.label)
    return count


async def test_the_same_address_twice_is_two_destinations_and_removed_one_at_a_time(
    aeron: aa.Aeron, port: Callable[[], str]
) -> None:
    channel = port()
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    for count in (1, 2):
        await publication.add_destination(channel)
        assert destination_count(aeron) == count
    for count in (1, 0):
        await publication.remove_destination(channel)
        assert destination_count(aeron) == count
    with pytest.raises(aa.RegistrationError, match="is not a destination of"):
        await publication.remove_destination(channel)


@pytest.fixture
def impatient() -> aa.DriverContext:
    return aa.DriverContext(
        term_buffer_length=64 * 1024,
        publication_connection_timeout_ns=300_000_000,
        image_liveness_timeout_ns=300_000_000,
        status_message_timeout_ns=20_000_000,
        publication_linger_timeout_ns=1_000_000,
    )


async def test_receivers_that_are_sent_nothing_any_more_stay_until_they_time_out(
    impatient: aa.DriverContext, port: Callable[[], str]
) -> None:
    channel = port()
    async with aa.Aeron.connect(context=impatient) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(MANUAL, STREAM_ID)
        await publication.add_destination(channel)
        await publication.offer(b"x", timeout=5)
        await publication.remove_destination(channel)
        assert (publication.is_connected, subscription.is_connected) == (True, True)
        assert (await anext(subscription)).data == b"x"
        async with asyncio.timeout(5):
            # Asking for the next message says that the last was taken.
            reading = asyncio.ensure_future(anext(subscription))
            events = subscription.image_events()
            while (await anext(events)).kind is not aa.ImageEventKind.UNAVAILABLE:
                pass
        await until(lambda: not publication.is_connected)
        reading.cancel()


async def test_an_image_whose_destination_was_taken_away_stays_until_it_is_read(
    impatient: aa.DriverContext, port: Callable[[], str]
) -> None:
    channel = port()
    async with aa.Aeron.connect(context=impatient) as aeron:
        subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
        added = await subscription.add_destination(channel)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer(b"x", timeout=5)
        await subscription.wait_connected(timeout=5)
        (image,) = subscription.images
        (core,) = embedded(aeron).conductor._subscriptions.images
        await until(lambda: core.rebuild_position)
        await subscription.remove_destination(added)
        await until(lambda: not publication.is_connected)
        await until(lambda: core.state is ImageState.DRAINING)
        assert not image.is_closed
        assert (await anext(subscription)).data == b"x"
        subscription._begin_poll()
        await until(lambda: image.is_closed)
