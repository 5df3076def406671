"""Official and own clients and drivers in one Aeron directory, in all combinations.

DIRECTORY_MESSAGES is how many messages each combination exchanges; 2,000 unless set.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.libaeron import official_client
from tests.interop.official import official_driver
from tests.twins import IS_BUILT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not IS_BUILT, reason="shared memory needs the compiled code")

COUNT = int(os.environ.get("DIRECTORY_MESSAGES", "2000"))
OURS_AND_OFFICIAL = ("ours", "official")


@pytest.fixture(params=OURS_AND_OFFICIAL)
async def directory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The directory of a driver."""
    if request.param == "official":
        async with official_driver() as driver:
            yield driver.directory
        return
    context = aa.DriverContext(
        aeron_directory=str(tmp_path / "aeron"),
        term_buffer_length=64 * 1024,
        ipc_term_buffer_length=64 * 1024,
    )
    async with aa.MediaDriver.launch(context):
        yield tmp_path / "aeron"


@asynccontextmanager
async def client_of(kind: str, directory: Path) -> AsyncIterator[Any]:
    """A client of either kind."""
    if kind == "ours":
        async with aa.Aeron.connect(directory=directory) as aeron:
            yield aeron
        return
    driver: Any = SimpleNamespace(directory=directory)
    async with official_client(driver) as client:
        yield client


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
