"""What a driver says of publications whose clients are elsewhere, and the live view of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async.cli.top_model import TopModel
from aeron_async.cli.top_scene import json_of_driver
from aeron_async.metrics import MetricsText
from aeron_async.stats import BLOCKED_BY
from tests.client.local import STREAM_ID
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from aeron_async.stats import PublicationStats

pytestmark = needs_compiled


def waits_in(row: PublicationStats) -> list[int | None]:
    return [getattr(row, f"blocked_{by}_ns") for by in BLOCKED_BY]


async def fill(publication: aa.Publication) -> None:
    """Offer until nothing more goes for a while."""
    await publication.wait_connected(timeout=5)
    with suppress(aa.OfferTimeoutError):
        while True:
            await publication.offer(bytes(1_000), timeout=0.1)


async def test_what_clients_elsewhere_wait_for_is_unknown_and_their_limit_names_a_cause(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    async with aa.Aeron.connect(directory=driver.context.aeron_directory) as other:
        subscription = await other.add_subscription(medium, STREAM_ID)
        publication = await aeron.add_publication(medium, STREAM_ID)
        await fill(publication)
        # The driver looks at an idle log once in a while only, and its counter may be old.
        stats, model = driver.stats(), TopModel()
        assert stats.publications[0].position == publication.position
        assert (await driver.gather_stats()).publications[0].position == publication.position
        model.on_stats(stats, "/a")
        row = stats.publications[0]
        assert (row.message_count, row.blocked_ns) == (None, None)
        assert waits_in(row) == [None] * 3
        page = MetricsText().render(stats)
        assert "blocked_seconds" not in page
        assert "publication_messages" not in page
        scene = model.scene()
        (shown,) = [each for each in scene.rows if each.key.kind == "pub"]
        is_ipc = medium == "aeron:ipc"
        reader = stats.publications[0].receivers[0]
        assert reader.kind == ("ipc" if is_ipc else "receiver")
        assert shown.cause is not None
        assert shown.cause.word == ("publisher_limit" if is_ipc else "sender_limit")
        assert f"{reader.kind} {reader.id}" in shown.cause.sentence
        assert json_of_driver(scene, "/a", scene.rows)["blocked_streams"] == 1
        assert await anext(subscription)


async def test_a_client_here_beside_one_elsewhere_makes_the_sum_no_more_known(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    async with aa.Aeron.connect(driver) as here:
        publication = await here.add_publication(medium, STREAM_ID)
        assert waits_in(driver.stats().publications[0]) == [0] * 3
        elsewhere = await aeron.add_publication(medium, STREAM_ID)
        waiting = asyncio.ensure_future(publication.offer(b"lonely"))
        await asyncio.sleep(0)
        row = driver.stats().publications[0]
        assert waits_in(row) == [None] * 3
        # What a client of this process waits for is known.
        assert row.blocked_by == "not_connected"
        waiting.cancel()
        await elsewhere.aclose()
