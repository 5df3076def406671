"""Ids that one driver has given mean nothing to the next, which begins again with small ones."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa
from aeron_async.protocol.control_protocol import PublicationErrorResponse
from tests.client.attached.reconnecting.reconnects import Events, attached, restarted
from tests.client.local import IPC, STREAM_ID, until
from tests.twins import needs_compiled

pytestmark = needs_compiled

MANUAL = "aeron:udp?control-mode=manual"
TO = "aeron:udp?endpoint=127.0.0.1:"


def sent_to(driver: aa.MediaDriver) -> list[str]:
    """Return the ports that the only publication of a driver sends to."""
    table = driver.conductor._table
    publication, *_ = table.network
    destinations = table.endpoint(publication).destinations
    assert destinations is not None
    return sorted(str(each.uri).removeprefix(TO) for each in destinations.destinations)


def listening_at(driver: aa.MediaDriver) -> list[str]:
    """Return the ports at which the only subscription of a driver listens."""
    (link,) = driver.conductor._subscriptions._links.values()
    assert link.endpoint is not None
    found = link.endpoint.destinations
    return [str(each.channel.uri).removeprefix(TO) for each in found if each.registration_id]


def draw_ids(aeron: aa.Aeron, next_id: int) -> None:
    """Let other clients of the driver ask for so much that its next id is this one."""
    ring = attached(aeron)._proxy()._ring
    while ring.next_correlation_id() < next_id - 1:
        pass


async def answered(aeron: aa.Aeron) -> None:
    """Wait until the driver has answered what was asked before, and what followed from that."""
    for number in range(2):
        await aeron.add_counter(2_000, f"answer {number}")


async def begin_removal(owner: aa.Publication | aa.Subscription, destination: int | str) -> None:
    """Ask the driver for a removal, and do not wait for its answer."""
    asking = asyncio.ensure_future(owner.remove_destination(destination))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_an_id_of_the_next_driver_takes_no_destination_away(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    draw_ids(aeron, 40)
    first = await publication.add_destination(f"{TO}9002")
    async with restarted(driver) as second:
        await events.next()
        draw_ids(aeron, first)
        added = await publication.add_destination(f"{TO}7777")
        assert added != first
        await publication.remove_destination(first)
        assert sent_to(second) == ["7777"]
        async with restarted(second) as third:
            assert (await events.next()).not_added == ()
            assert sent_to(third) == ["7777"]
            await publication.remove_destination(added)
            assert sent_to(third) == []
            await aeron.aclose()


async def test_an_id_that_was_removed_removes_nothing_of_the_next_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    removed = await publication.add_destination(f"{TO}9001")
    draw_ids(aeron, 40)
    await publication.add_destination(f"{TO}9002")
    await publication.remove_destination(removed)
    async with restarted(driver) as second:
        await events.next()
        (known,) = next(iter(attached(aeron).publications.values())).destinations.values()
        assert known.driver_id is not None
        for number in (removed, known.driver_id):
            with pytest.raises(aa.RegistrationError, match="is not a destination of aeron:udp"):
                await publication.remove_destination(number)
        assert sent_to(second) == ["9002"]
        await aeron.aclose()


async def test_an_image_of_a_lost_driver_rejects_no_image_of_the_next(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await subscription.wait_connected(timeout=5)
    before = subscription.images[0]
    async with restarted(driver):
        await events.next()
        await subscription.wait_connected(timeout=5)
        after = subscription.images[0]
        assert after.image_id == before.image_id
        with pytest.raises(aa.RegistrationError, match=r"image \d+ of session .* has ended"):
            await before.reject("an image that has ended")
        await publication.offer(b"goes on", timeout=5)
        assert (await anext(subscription)).data == b"goes on"
        assert not after.is_closed
        await aeron.aclose()


@pytest.mark.parametrize("is_sent_to", [True, False])
@pytest.mark.parametrize("by_id", [True, False])
async def test_a_removal_for_which_nobody_waits_stays_a_removal(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, *, is_sent_to: bool, by_id: bool
) -> None:
    add = aeron.add_publication if is_sent_to else aeron.add_subscription
    owner: aa.Publication | aa.Subscription = await add(MANUAL, STREAM_ID)
    uri = f"{TO}{9001 if is_sent_to else 0}"
    added = await owner.add_destination(uri)
    await begin_removal(owner, added if by_id else uri)
    ports = sent_to if is_sent_to else listening_at
    async with restarted(driver) as second:
        assert (await events.next()).not_added == ()
        assert ports(second) == []
        await aeron.aclose()


async def test_a_removal_that_the_driver_refuses_is_none(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    monkeypatch: pytest.MonkeyPatch,
    events: Events,
) -> None:
    publication = await aeron.add_publication(MANUAL, STREAM_ID)
    added = await publication.add_destination(f"{TO}9001")

    def refuse(*_: object, **__: object) -> None:
        message = "not now"
        raise aa.RegistrationError(message)

    with monkeypatch.context() as refusing:
        refusing.setattr(driver.conductor._publications, "remove_destination", refuse)
        with pytest.raises(aa.RegistrationError, match="not now"):
            await publication.remove_destination(added)
    async with restarted(driver) as second:
        assert (await events.next()).not_added == ()
        assert sent_to(second) == ["9001"]
        await publication.remove_destination(added)
        assert sent_to(second) == []
        await aeron.aclose()


@pytest.mark.parametrize("parameter", ["", "|alias=second"])
@pytest.mark.parametrize("is_first_answered", [True, False])
async def test_a_second_destination_for_which_nobody_waits_leaves_the_first(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    unused_udp_port: int,
    parameter: str,
    *,
    is_first_answered: bool,
) -> None:
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    uri = f"{TO}{unused_udp_port}"
    first = asyncio.ensure_future(subscription.add_destination(uri))
    if is_first_answered:
        await first
    asking = asyncio.ensure_future(subscription.add_destination(f"{uri}{parameter}"))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await first
    await answered(aeron)
    assert listening_at(driver) == [str(unused_udp_port)]


async def test_a_destination_for_which_nobody_waits_is_taken_back(
    driver: aa.MediaDriver, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    subscription = await aeron.add_subscription(MANUAL, STREAM_ID)
    proxy = attached(aeron)._proxy()
    held_before = proxy._hold_count
    asking = asyncio.ensure_future(subscription.add_destination(f"{TO}{unused_udp_port}"))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await answered(aeron)
    assert listening_at(driver) == []
    assert proxy._hold_count == held_before
    assert not proxy._waiting


async def test_requests_for_one_publication_share_its_destinations(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, unused_udp_port: int
) -> None:
    channel = f"{MANUAL}|control=127.0.0.1:{unused_udp_port}"
    first = await aeron.add_publication(channel, STREAM_ID)
    second = await aeron.add_publication(channel, STREAM_ID)
    removed = await first.add_destination(f"{TO}9001")
    await second.remove_destination(removed)
    kept = await first.add_destination(f"{TO}9002")
    async with restarted(driver) as next_driver:
        assert (await events.next()).not_added == ()
        assert sent_to(next_driver) == ["9002"]
        await second.remove_destination(kept)
        assert sent_to(next_driver) == []
        await aeron.aclose()


async def test_an_error_names_a_destination_by_the_id_that_its_user_has(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    errors: list[aa.PublicationErrorFrame] = []
    publication = await aeron.add_publication(MANUAL, STREAM_ID, on_error=errors.append)
    draw_ids(aeron, 40)
    added = await publication.add_destination(f"{TO}9001")
    async with restarted(driver) as second:
        await events.next()
        (mine,) = attached(aeron).publications.values()
        assert mine.destinations[added].driver_id not in {None, added}
        for driver_id in (mine.destinations[added].driver_id, -1):
            event = PublicationErrorResponse(
                registration_id=mine.ready.original_registration_id,
                destination_registration_id=driver_id or 0,
                session_id=mine.ready.session_id,
                stream_id=STREAM_ID,
                receiver_id=1,
                group_tag=-1,
                address_type=1,
                source_port=9001,
                source_address=bytes(16),
                code=aa.ErrorCode.GENERIC,
                message=b"no room",
            )
            mine.on_error(event)
        await until(lambda: len(errors) == 2)
        assert [each.destination_registration_id for each in errors] == [added, None]
        await second.abort()
