"""A publisher takes its stream back: what has not arrived is lost, and the image is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.exchange import FEW, STREAM_ID, exchange, offer
from tests.interop.ours import count_of
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.interop.libaeron import OfficialClient

AT_ONCE_S: Final = 3.0
"""The C driver looks at its timers once a second; a linger takes 5 s, liveness 10 s."""


async def test_an_official_subscriber_hears_that_we_revoke_our_publication(
    client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await client.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await exchange(publication, [subscription])
    for number in FEW:
        await offer(publication, number)
    await publication.aclose(revoke=True)
    await wait_until(lambda: subscription.unavailable != [], "unavailable", timeout=AT_ONCE_S)
    (image,) = subscription.unavailable
    assert image.session_id == publication.session_id
    assert image.is_revoked
    while subscription.poll() > 0:
        await subscription.take()
    again = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await exchange(again, [subscription])
    assert client.counters()["Publication Images Revoked"] == 1


async def test_we_hear_that_an_official_publisher_revokes_its_publication(
    client: OfficialClient, aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await client.add_exclusive_publication(channel, STREAM_ID)
    await exchange(publication, [subscription])
    (image,) = subscription.images
    for number in FEW:
        await offer(publication, number)
    publication.revoke()
    await wait_until(lambda: image.is_closed, "closed", timeout=AT_ONCE_S)
    assert subscription.images == ()
    again = await client.add_exclusive_publication(channel, STREAM_ID)
    await exchange(again, [subscription])
    assert count_of(aeron, "Publication Images Revoked") == 1
