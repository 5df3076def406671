"""Official and own clients and drivers in one Aeron directory, in all combinations.

AERON_ASYNC_DIRECTORY_MESSAGES is how many messages each combination exchanges; 2,000 unless set.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.shared import OURS_AND_OFFICIAL, client_of, shared_directory
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = needs_compiled

COUNT = int(os.environ.get("AERON_ASYNC_DIRECTORY_MESSAGES", "2000"))


@pytest.fixture(params=OURS_AND_OFFICIAL)
async def directory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The directory of a driver."""
    async with shared_directory(request.param, tmp_path / "aeron") as directory:
        yield directory


@pytest.mark.parametrize("medium", ["ipc", "udp"])
@pytest.mark.parametrize("is_exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("subscriber", OURS_AND_OFFICIAL)
@pytest.mark.parametrize("publisher", OURS_AND_OFFICIAL)
async def test_every_publisher_reaches_every_subscriber(
    directory: Path,
    channel: str,
    publisher: str,
    subscriber: str,
    medium: str,
    *,
    is_exclusive: bool,
) -> None:
    channel = f"{channel if medium == 'udp' else 'aeron:ipc?'}|term-length=64k".replace("?|", "?")
    async with client_of(publisher, directory) as one, client_of(subscriber, directory) as two:
        subscription = await two.add_subscription(channel, STREAM_ID)
        add = one.add_exclusive_publication if is_exclusive else one.add_publication
        publication = await add(channel, STREAM_ID)
        await publication.wait_connected()
        await exchange(publication, [subscription], range(COUNT))


@pytest.mark.parametrize("medium", ["ipc", "udp"])
async def test_clients_of_both_kinds_share_a_publication(
    directory: Path, channel: str, medium: str
) -> None:
    channel = channel if medium == "udp" else "aeron:ipc"
    async with client_of("ours", directory) as ours, client_of("official", directory) as official:
        subscription = await ours.add_subscription(channel, STREAM_ID)
        first = await ours.add_publication(channel, STREAM_ID)
        second = await official.add_publication(channel, STREAM_ID)
        await first.wait_connected(timeout=5)
        await second.wait_connected()
        for number in range(0, COUNT, 2):
            await first.offer(b"%d" % number, timeout=5)
            await second.offer_all([b"%d" % (number + 1)])
            assert (await anext(subscription)).data == b"%d" % number
            assert (await anext(subscription)).data == b"%d" % (number + 1)
