"""Telling the driver how far an image was read may be what ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    import aeron_async as aa


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
    image._port = cast("Any", SimpleNamespace(consumption_trigger=-1, rebuild_position=128))
    calls: dict[str, Any] = {
        "read": lambda: image._read(1),
        "poll": lambda: image.poll(print),
        "peek_block": lambda: image._peek_block(64, 1_000)[1],
    }
    assert calls[way]() in {None, 0}
    assert image.is_closed
