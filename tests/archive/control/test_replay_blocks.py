"""A replay as blocks of frames: what the files hold, but for session and stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.control.remote_replay import RemoteReplay
from aeron_async.errors import ClosedError, InvalidPositionError
from tests.archive.control.recorded_streams import MESSAGES, STREAM_ID, record

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.archive import RemoteArchive


async def test_a_replay_can_be_taken_in_blocks(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, end = await record(aeron, client, recorded, MESSAGES)
    replay = RemoteReplay(client, recording_id, None, None, follow=False, is_on_its_stream=True)
    taken = 0
    streams = set()
    while (found := await replay.next_block()) is not None:
        block, padding = found
        streams.add(int.from_bytes(block[16:20], "little"))
        taken += len(block) + padding
        replay.take_block(len(block) + padding)
        assert replay.position == taken
    assert (taken, streams) == (end, {STREAM_ID})
    assert await replay.next_block() is None
    replay.take_block(32)
    assert replay.position == end


async def test_a_replay_in_blocks_is_refused_in_the_middle_of_a_frame(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, end = await record(aeron, client, recorded, [bytes(100)] * 3)
    replay = RemoteReplay(client, recording_id, 32, end, follow=False)
    with pytest.raises(InvalidPositionError):
        await replay.next_block()
    await replay.aclose()
    assert await replay.next_block() is None


async def test_a_replay_in_blocks_says_when_its_client_is_closed(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    replay = client.replay(recording_id)
    assert await replay.next_block() is not None
    await client.aclose()
    with pytest.raises(ClosedError):
        await replay.next_block()
