"""How images end under their readers: while they are read, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import aeron_async as aa
from tests.client.local import IPC, STREAM_ID


@pytest.mark.parametrize("way", ["read", "poll", "peek_block"])
async def test_an_image_that_ends_when_it_tells_how_far_it_is_is_read_no_more(
    publication: aa.Publication, subscription: aa.Subscription, way: str
) -> None:
    await publication.offer(b"one")
    await publication.offer(b"two")
    assert (await anext(subscription)).data == b"one"
    (image,) = subscription.images
    image._take(64)

    def end() -> None:
        subscription._remove_image(image.image_id)
        image._log.close()

    image._wake_flag.callback = end
    image._wake_flag.is_set = False
    image._port = cast(
        "Any", SimpleNamespace(consumption_trigger=-1, readable_position=lambda _position: 128)
    )
    calls: dict[str, Any] = {
        "read": lambda: image._read(1),
        "poll": lambda: image.poll(print),
        "peek_block": lambda: image._peek_block(64, 1_000)[1],
    }
    assert calls[way]() in {None, 0}
    assert image.is_closed


@pytest.mark.parametrize("medium", ["ipc", "udp"])
@pytest.mark.parametrize("is_revoked", [False, True])
async def test_an_iteration_over_an_image_ends_when_why_it_ended_is_known(
    aeron: aa.Aeron, channel: str, medium: str, *, is_revoked: bool
) -> None:
    channel = IPC if medium == "ipc" else channel
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await publication.offer(b"read", timeout=5)
    await subscription.wait_connected(timeout=5)
    (image,) = subscription.images
    assert (await anext(image)).data == b"read"
    ends = [image.end]
    if is_revoked:
        publication.revoke()
    else:
        await publication.aclose()
    assert [message async for message in image] == []
    ends.append(image.end)
    before, end = ends
    assert before is None
    assert end is not None
    assert end.reason is (
        aa.ImageEndReason.REVOKED if is_revoked else aa.ImageEndReason.END_OF_STREAM
    )
    # Revoking drops the message that was delivered last, and not taken yet.
    assert is_revoked or end.position == 64
    await subscription.aclose()
    assert image.is_closed
    assert image.end == end


async def test_an_image_whose_subscription_closed_before_its_stream_ended_says_so(
    aeron: aa.Aeron, subscription: aa.Subscription, publication: aa.Publication
) -> None:
    await publication.offer(b"never read", timeout=5)
    (image,) = subscription.images
    await subscription.aclose()
    assert image.end is not None
    assert image.end.reason is aa.ImageEndReason.CLOSED
