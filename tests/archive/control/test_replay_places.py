"""A replay begins and ends where something was recorded, or is refused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive import RecordingSignal, RemoteArchive, SourceLocation
from aeron_async.errors import ArchiveError, InvalidPositionError
from tests.archive.control.recorded_streams import (
    MESSAGES,
    STREAM_ID,
    TIMEOUT_S,
    record,
    until_recorded,
)

if TYPE_CHECKING:
    import aeron_async as aa


async def test_a_replay_that_would_begin_behind_what_is_recorded_is_refused(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    signals = client.signals()
    await client.start_recording(recorded, STREAM_ID, source_location=SourceLocation.REMOTE)
    async with await aeron.add_exclusive_publication(recorded, STREAM_ID) as publication:
        end = await publication.offer(b"all there is", timeout=TIMEOUT_S)
        recording_id = (await anext(signals)).recording_id
        await until_recorded(client, recording_id, end)
        # Nobody is to take it for one without messages, whether it goes on or has stopped.
        with pytest.raises(InvalidPositionError, match=f"recorded up to {end}") as caught:
            await anext(client.replay(recording_id, end + 32))
        assert caught.value.nearest == end
        await client.stop_recording(recorded, STREAM_ID)
    assert (await anext(signals)).signal is RecordingSignal.STOP
    with pytest.raises(InvalidPositionError, match=f"recorded up to {end}"):
        await anext(client.replay(recording_id, end + 32, follow=True))
    with pytest.raises(InvalidPositionError, match=f"end at 0, before it begins at {end}"):
        await anext(client.replay(recording_id, end, 0))


@pytest.mark.parametrize("follow", [False, True])
async def test_a_replay_hands_out_nothing_that_goes_on_behind_its_end(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str, *, follow: bool
) -> None:
    recording_id, _ = await record(aeron, client, recorded, [bytes(100)] * 3)
    replay = client.replay(recording_id, 0, 160 + 32, follow=follow)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await anext(replay)).position == 160
        with pytest.raises(
            InvalidPositionError, match=r"192 is in the middle .* ends at 320"
        ) as no:
            await anext(replay)
        assert no.value.nearest == 320
        with pytest.raises(StopAsyncIteration):
            await anext(replay)


async def test_who_follows_hears_that_a_recording_was_cut_off(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, end = await record(aeron, client, recorded, MESSAGES[:10])
    replay = client.replay(recording_id, follow=True)
    for _ in range(10):
        await anext(replay)
    waiting = asyncio.ensure_future(anext(replay))
    async with asyncio.timeout(TIMEOUT_S):
        while not waiting.done():
            # What has been replayed is not to be cut off before the archive has closed the replay.
            with suppress(ArchiveError):
                await client.truncate(recording_id, 0)
                break
        with pytest.raises(InvalidPositionError, match=f"truncated to 0 .* up to {end}"):
            await waiting
    await replay.aclose()
