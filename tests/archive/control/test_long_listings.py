"""Listings that take their time, and clients who ask for other things meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.messages import ListRecordingsRequest
from aeron_async.archive.control.server import ControlServer
from aeron_async.errors import AeronTimeoutError, ArchiveError
from tests.archive.control.fake_archive import FakeArchive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aeron_async as aa
    from aeron_async.archive.control.settings import ControlSettings

COUNT = 2_000
MOST = 16


async def test_a_long_listing_leaves_room_for_other_answers(
    aeron: aa.Aeron, settings: ControlSettings, channel: str
) -> None:
    archive = FakeArchive(COUNT)
    few = attrs.evolve(settings, max_pending_responses=MOST)
    async with (
        asyncio.timeout(20),
        ControlServer(archive, aeron, few),
        RemoteArchive.connect(aeron, control_channel=channel) as remote,
    ):
        listing = asyncio.ensure_future(
            remote.connection.list_pieces(
                ListRecordingsRequest, count=COUNT, from_recording_id=0, record_count=COUNT
            )
        )
        asked = 0
        while not listing.done():
            assert await remote.start_position(1) == 0
            asked += 1
        pieces, _ = await listing
        assert len(pieces) == COUNT
        assert asked > 1


async def until_listing(server: ControlServer, *, count: int) -> None:
    """Wait until so many listings are under way."""
    async with asyncio.timeout(20):
        while sum(each._listing is not None for each in server._sessions.values()) < count:
            await asyncio.sleep(0)


async def all_of(remote: RemoteArchive) -> list[int]:
    return [each.recording_id async for each in remote.recordings()]


@pytest.fixture
async def impatient(
    aeron: aa.Aeron, server: ControlServer, channel: str
) -> AsyncIterator[RemoteArchive]:
    async with RemoteArchive.connect(aeron, control_channel=channel, timeout=0.5) as remote:
        yield remote


@pytest.mark.parametrize("is_cancelled_again", [False, True])
async def test_a_listing_that_was_left_is_waited_for_by_the_next(
    impatient: RemoteArchive,
    archive: FakeArchive,
    server: ControlServer,
    *,
    is_cancelled_again: bool,
) -> None:
    archive.held.clear()
    left = asyncio.ensure_future(all_of(impatient))
    await until_listing(server, count=1)
    left.cancel()
    await asyncio.wait((left,))
    following = asyncio.ensure_future(all_of(impatient))
    for _ in range(5):
        await asyncio.sleep(0)
    if is_cancelled_again:
        following.cancel()
        await asyncio.wait((following,))
        following = asyncio.ensure_future(all_of(impatient))
        await asyncio.sleep(0)
    archive.held.set()
    assert await following == [0, 1, 2]
    assert await all_of(impatient) == [0, 1, 2]
    assert impatient.connection._pending == {}


async def test_a_listing_that_never_ends_is_not_waited_for_for_ever(
    impatient: RemoteArchive, archive: FakeArchive, server: ControlServer
) -> None:
    archive.held.clear()
    with pytest.raises(AeronTimeoutError):
        await all_of(impatient)
    await until_listing(server, count=1)
    with pytest.raises(ArchiveError, match="active listing"):
        await all_of(impatient)
    archive.held.set()
    await asyncio.sleep(0)
    assert impatient.connection._pending == {}
    assert await impatient.start_position(1) == 0
