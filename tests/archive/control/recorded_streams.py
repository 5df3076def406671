"""What is recorded at an archive that is elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aeron_async.archive import RecordingSignal, RemoteArchive, SourceLocation

if TYPE_CHECKING:
    import aeron_async as aa

__all__ = ["MESSAGES", "STREAM_ID", "TIMEOUT_S", "record", "until_recorded"]

STREAM_ID: Final = 2001
MESSAGES: Final = [bytes([number % 251]) * (number * 37 % 3_000) for number in range(300)]
TIMEOUT_S: Final = 20.0


async def record(
    aeron: aa.Aeron, client: RemoteArchive, channel: str, messages: list[bytes]
) -> tuple[int, int]:
    signals = client.signals()
    await client.start_recording(channel, STREAM_ID, source_location=SourceLocation.REMOTE)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await publication.offer_many(messages, timeout=TIMEOUT_S)
    async with asyncio.timeout(TIMEOUT_S):
        started = await anext(signals)
        assert started.signal is RecordingSignal.START
        await until_recorded(client, started.recording_id, publication.position)
        await client.stop_recording(channel, STREAM_ID)
        stopped = await anext(signals)
    assert (stopped.signal, stopped.position) == (RecordingSignal.STOP, publication.position)
    await publication.aclose()
    return started.recording_id, stopped.position


async def until_recorded(client: RemoteArchive, recording_id: int, position: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await client.recording_position(recording_id) != position:
            await asyncio.sleep(0)
