"""A receiver takes nothing more of a source: the source hears why, and may come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, exchange, receive_more
from tests.interop.official import TERM_LENGTH, official_driver
from tests.interop.ours import count_of
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.interop.libaeron import OfficialClient
    from tests.interop.official import OfficialDriver

LIVENESS_S: Final = 2
"""After which a rejected image ends, and the stream may be joined again; 10 s by default."""
IMAGE_REJECTED: Final = 13
REASON: Final = "the reader cannot make sense of it: ¿qué?"
TAG: Final = -77
BACK_S: Final = 10.0


@pytest.fixture
async def official() -> AsyncIterator[OfficialDriver]:
    async with official_driver(IMAGE_LIVENESS_TIMEOUT=f"{LIVENESS_S}s") as driver:
        yield driver


@pytest.fixture
async def aeron(official: OfficialDriver) -> AsyncIterator[aa.Aeron]:
    """A client of ours that closes first."""
    del official
    context = aa.DriverContext(
        term_buffer_length=TERM_LENGTH, image_liveness_timeout_ns=LIVENESS_S * 1_000_000_000
    )
    async with aa.Aeron.connect(context=context) as aeron:
        yield aeron


def dynamic(port: int) -> str:
    return f"control=127.0.0.1:{port}|control-mode=dynamic"


async def test_an_official_publication_hears_why_we_reject_it_and_comes_back(
    official: OfficialDriver, client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(f"{channel}|gtag={TAG}", STREAM_ID)
    publication = await client.add_exclusive_publication(channel, STREAM_ID)
    await exchange(publication, [subscription])
    # That the last message has been taken shows when the next is asked for.
    assert receive_more(subscription) == 0
    (image,) = subscription.images
    await image.reject(REASON)
    official.expected_error_count = 1
    await wait_until(lambda: client.error_frames != [], "error frame", timeout=2)
    frame = client.error_frames[0]
    assert (frame.code, frame.text) == (IMAGE_REJECTED, REASON)
    assert (frame.session_id, frame.stream_id) == (publication.session_id, STREAM_ID)
    assert frame.registration_id == publication.registration_id
    assert frame.group_tag == TAG
    await wait_until(lambda: not publication.is_connected, "not connected", timeout=2)
    await wait_until(lambda: image.is_closed, "ended", timeout=BACK_S)
    await subscription.wait_connected(timeout=BACK_S)
    (again,) = subscription.images
    assert again.session_id == publication.session_id
    assert again.join_position == publication.position
    await exchange(publication, [subscription])
    assert count_of(aeron, "Images rejected") == 1


async def test_we_hear_why_an_official_subscriber_rejects_us_and_come_back(
    client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await client.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await exchange(publication, [subscription])
    subscription.reject(publication.session_id, REASON)
    expected = f"a receiver rejected the stream with code {IMAGE_REJECTED}: {REASON}"
    await wait_until(lambda: publication.last_error == expected, "error", timeout=2)
    await wait_until(lambda: not publication.is_connected, "not connected", timeout=2)
    await wait_until(lambda: len(subscription.available) > 1, "back", timeout=BACK_S)
    assert len(subscription.unavailable) == 1
    assert subscription.available[1].session_id == publication.session_id
    assert subscription.available[1].join_position == publication.position
    await exchange(publication, [subscription])
    assert count_of(aeron, "Error Frames received") > 0


async def test_the_rest_of_our_group_goes_on_when_an_official_member_rejects_it(
    client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    where = dynamic(unused_udp_port)
    publication = await aeron.add_publication(f"aeron:udp?{where}|fc=min,g:/2", STREAM_ID)
    channel = f"aeron:udp?endpoint=127.0.0.1:0|{where}"
    rejecting, staying = [await client.add_subscription(channel, STREAM_ID) for _ in range(2)]
    await exchange(publication, [rejecting, staying])
    rejecting.reject(publication.session_id, REASON)
    await wait_until(lambda: not publication.is_connected, "one left", timeout=2)
    another = await aeron.add_subscription(channel, STREAM_ID)
    await another.wait_connected(timeout=10)
    await exchange(publication, [another, staying])


async def test_the_rest_of_an_official_group_goes_on_when_we_reject_it(
    official: OfficialDriver, client: OfficialClient, aeron: aa.Aeron, unused_udp_port: int
) -> None:
    where = dynamic(unused_udp_port)
    publication = await client.add_publication(f"aeron:udp?{where}|fc=min,g:/2", STREAM_ID)
    channel = f"aeron:udp?endpoint=127.0.0.1:0|{where}"
    rejecting, staying = [await aeron.add_subscription(channel, STREAM_ID) for _ in range(2)]
    await exchange(publication, [rejecting, staying])
    await rejecting.images[0].reject(REASON)
    official.expected_error_count = 1
    await wait_until(lambda: not publication.is_connected, "one left", timeout=2)
    another = await client.add_subscription(channel, STREAM_ID)
    await another.wait_connected(timeout=10)
    await exchange(publication, [another, staying])
