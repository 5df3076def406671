"""A client that lists more than it has taken, and asks for other things meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.control.catalog_requests import ListRecordingsRequest
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.server import ControlServer
from tests.archive.control.fake_archive import FakeArchive

if TYPE_CHECKING:
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
        ControlServer(aeron, archive, few),
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
