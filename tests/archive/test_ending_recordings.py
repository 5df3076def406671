"""How recordings and archives end, and who is left alone when others do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.archive.recording_lane import open_lane
from tests.archive.test_record_and_replay import IPC, STREAM, messages

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.recording_lane import RecordingLane
    from tests.archive.conftest import OpenArchive


class HeldLane:
    """A lane that closes when it may."""

    def __init__(self, lane: RecordingLane) -> None:
        self._lane = lane
        self.is_closing = asyncio.Event()
        self.may_close = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    async def aclose(self) -> None:
        self.is_closing.set()
        await self.may_close.wait()
        await self._lane.aclose()


async def test_a_recording_is_over_when_nothing_is_left_to_be_written(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[HeldLane] = []

    def held(*arguments: Any, **keywords: Any) -> HeldLane:
        lanes.append(HeldLane(open_lane(*arguments, **keywords)))
        return lanes[-1]

    monkeypatch.setattr("aeron_async.archive.recording_session.open_lane", held)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in messages(10):
                await publication.offer(each)
            stopping = asyncio.ensure_future(archive.stop_recording(IPC, STREAM))
            async with asyncio.timeout(10):
                while not lanes:
                    await asyncio.sleep(0)
                await lanes[0].is_closing.wait()
            session = archive.recording_sessions[0]
            # Who replays and finds nothing more waits for what is still under way.
            found = [session.is_over]
            lanes[0].may_close.set()
            await stopping
            assert [*found, session.is_over] == [False, True]
            assert session.position == publication.position == await archive.stop_position(0)


async def test_an_archive_whose_opening_is_cancelled_lets_go_of_its_directory(
    open_archive: OpenArchive, tmp_path: Path
) -> None:
    async with open_archive() as (aeron, _):
        context = ArchiveContext(directory=str(tmp_path / "other"), low_storage_threshold=0)
        opening = asyncio.ensure_future(LocalArchive.open(aeron, context))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with await LocalArchive.open(aeron, context) as archive:
            assert [each async for each in archive.recordings()] == []
