"""Handlers of images hear of each once, in order, and may close what they hear of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.drivers import caught_up

if TYPE_CHECKING:
    from aeron_async.driver.commands import ImageReady

STREAM_ID = 1001


async def links(driver: aa.MediaDriver, aeron: aa.Aeron) -> int:
    await caught_up(aeron)
    return len(driver.conductor._subscriptions._links)


async def test_a_handler_may_close_the_subscription_that_is_being_added(
    aeron: aa.Aeron,
    driver: aa.MediaDriver,
    channel: str,
    publication: aa.Publication,
    subscription: aa.Subscription,
) -> None:
    heard: list[str] = []

    def on_available(image: aa.Image) -> None:
        heard.append(image.subscription.local_address)
        image.subscription.close()

    before = await links(driver, aeron)
    other = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await other.wait_connected(timeout=5)
    while len(subscription.images) < 2:
        await asyncio.sleep(0)
    late = await aeron.add_subscription(
        channel,
        STREAM_ID,
        on_available_image=on_available,
        on_unavailable_image=lambda image: heard.append(f"{image.session_id} gone"),
    )
    assert late.is_closed
    assert late.images == ()
    await asyncio.sleep(0)
    # The second image was never announced, and so its end is not told either.
    assert heard == [subscription.local_address, f"{publication.session_id} gone"]
    assert await links(driver, aeron) == before


async def test_existing_images_are_announced_before_the_subscription_is_returned(
    aeron: aa.Aeron, channel: str, publication: aa.Publication
) -> None:
    heard: list[aa.Image] = []
    late = await aeron.add_subscription(channel, STREAM_ID, on_available_image=heard.append)
    assert tuple(heard) == late.images
    assert [image.session_id for image in heard] == [publication.session_id]


async def test_an_add_that_is_undone_is_never_announced(
    aeron: aa.Aeron, driver: aa.MediaDriver, channel: str, publication: aa.Publication
) -> None:
    heard: list[aa.Image] = []
    before = await links(driver, aeron)
    for turns in range(12):
        adding = asyncio.create_task(
            aeron.add_subscription(
                channel,
                STREAM_ID,
                on_available_image=heard.append,
                on_unavailable_image=heard.append,
            )
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        adding.cancel()
        try:
            subscription = await adding
        except asyncio.CancelledError:
            for _ in range(3):
                await asyncio.sleep(0)
            assert heard == []
        else:
            await subscription.aclose()
            heard.clear()
    assert await links(driver, aeron) == before


async def test_an_image_that_goes_before_it_is_announced_is_not_told_of(
    aeron: aa.Aeron, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[aa.Image] = []
    subscription = await aeron.add_subscription(
        channel, STREAM_ID, on_available_image=heard.append, on_unavailable_image=heard.append
    )
    on_available_image = subscription._add_image
    gone = asyncio.Event()

    def come_and_go(ready: ImageReady) -> None:
        on_available_image(ready)
        subscription._remove_image(ready.image_id)
        gone.set()

    monkeypatch.setattr(subscription._listener, "on_available_image", come_and_go)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await gone.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard == []
    assert subscription.images == ()
    publication.close()


@pytest.mark.parametrize("closer", ["subscription", "client", "driver"])
async def test_closing_tells_of_every_image_once(channel: str, closer: str) -> None:
    heard: list[str] = []
    driver = aa.MediaDriver.launch()
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(
            channel,
            STREAM_ID,
            on_available_image=lambda image: heard.append(f"available {image.is_closed}"),
            on_unavailable_image=lambda image: heard.append(f"unavailable {image.is_closed}"),
        )
        await aeron.add_publication(channel, STREAM_ID)
        await subscription.wait_connected(timeout=5)
        events = subscription.image_events()
        closers = {
            "subscription": subscription.aclose,
            "client": aeron.aclose,
            "driver": driver.aclose,
        }
        await closers[closer]()
        assert heard == ["available False", "unavailable True"]
        assert [kind async for kind, _ in events] == [
            aa.ImageEventKind.AVAILABLE,
            aa.ImageEventKind.UNAVAILABLE,
        ]
    assert len(heard) == 2
