"""A client of ours, a served archive of ours, and recordings on a disk."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RecordingSignal,
    RemoteArchive,
    Replay,
    SourceLocation,
)
from aeron_async.archive.control.messages import (
    CODEC,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from aeron_async.errors import (
    ArchiveError,
    InvalidPositionError,
    UnknownRecordingError,
)
from tests.archive.control.recorded_streams import (
    MESSAGES,
    STREAM_ID,
    TIMEOUT_S,
    record,
    until_recorded,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aeron_async as aa
    from aeron_async.archive import RecordingDescriptor
    from aeron_async.archive.control.sbe import SbeMessage


async def exhaust(replay: Replay) -> None:
    async for _ in replay:
        pass


async def test_what_is_recorded_is_replayed(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    assert client.archive_id == 88
    recording_id, end = await record(aeron, client, recorded, MESSAGES)
    replay = client.replay(recording_id)
    assert [bytes(each.data) async for each in replay] == MESSAGES
    assert replay.position == end
    with pytest.raises(StopAsyncIteration):
        await anext(replay)
    descriptor = await client.describe(recording_id)
    assert (descriptor.start_position, descriptor.stop_position) == (0, end)
    assert [each async for each in client.recordings()] == [descriptor]
    assert [each async for each in client.replay(recording_id, end)] == []


async def test_a_replay_goes_from_one_position_to_another(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, end = await record(aeron, client, recorded, MESSAGES)
    positions = [each.position async for each in client.replay(recording_id)]
    begin, stop = positions[49], positions[99]
    found = [bytes(each.data) async for each in client.replay(recording_id, begin, stop)]
    assert found == MESSAGES[50:100]
    assert [each async for each in client.replay(recording_id, begin, begin)] == []
    for position, nearest in ((end + 32, end), (-32, 0), (33, 32)):
        with pytest.raises(InvalidPositionError) as caught:
            await anext(client.replay(recording_id, position))
        assert caught.value.nearest == nearest
    with pytest.raises(UnknownRecordingError):
        await anext(client.replay(77))


async def test_a_recording_is_extended_and_followed(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, end = await record(aeron, client, recorded, MESSAGES[:100])
    replay = client.replay(recording_id, follow=True)
    found = [bytes((await anext(replay)).data) for _ in range(100)]
    await client.extend_recording(
        recording_id, recorded, STREAM_ID, source_location=SourceLocation.REMOTE
    )
    async with await client.extending_publication(recording_id, recorded, STREAM_ID) as more:
        assert more.position == end
        await more.offer_many(MESSAGES[100:], timeout=TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            found += [bytes((await anext(replay)).data) for _ in range(200)]
        assert found == MESSAGES
        assert await client.stop_recording_by_identity(recording_id)
        assert not await client.stop_recording_by_identity(recording_id)
    await replay.aclose()


async def test_a_replay_that_has_ended_is_kept_by_nobody(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES[:10])
    replays = [client.replay(recording_id) for _ in range(3)]
    for each in replays:
        assert len([message async for message in each]) == 10
    ended = list(map(ref, replays))
    replays.clear()
    del each
    gc.collect()
    assert [found() for found in ended] == [None] * 3


async def test_a_replay_may_be_closed_after_the_client_of_its_archive(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES[:10])
    async with client.replay(recording_id) as replay:
        assert bytes((await anext(replay)).data) == MESSAGES[0]
        await client.aclose()
    await replay.aclose()


async def test_a_replay_that_is_closed_while_it_begins_leaves_nothing_behind(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replays() -> list[asyncio.Task[object]]:
        return [
            each for each in asyncio.all_tasks() if each.get_name().startswith("aeron-archive-repl")
        ]

    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    is_beginning, may_begin = asyncio.Event(), asyncio.Event()
    recorded_position = client.max_recorded_position

    async def slowly(recording_id: int) -> int:
        is_beginning.set()
        await may_begin.wait()
        return await recorded_position(recording_id)

    monkeypatch.setattr(client, "max_recorded_position", slowly)
    replay = client.replay(recording_id)
    waiting = asyncio.ensure_future(anext(replay))
    async with asyncio.timeout(TIMEOUT_S):
        await is_beginning.wait()
        await replay.aclose()
        may_begin.set()
        with pytest.raises(StopAsyncIteration):
            await waiting
        while replays():
            await asyncio.sleep(0)


@pytest.mark.parametrize("is_response", [False, True])
async def test_many_replays_come_at_once(
    client: RemoteArchive,
    aeron: aa.Aeron,
    channel: str,
    recorded: str,
    unused_udp_port_factory: Callable[[], int],
    *,
    is_response: bool,
) -> None:
    mode = f"aeron:udp?control-mode=response|control=localhost:{unused_udp_port_factory()}"
    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    async with RemoteArchive.connect(
        aeron, control_channel=channel, replay_channel=mode if is_response else "aeron:ipc"
    ) as other:

        async def replayed() -> list[bytes]:
            return [bytes(each.data) async for each in other.replay(recording_id)]

        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(replayed()) for _ in range(5)]
        assert all(task.result() == MESSAGES for task in tasks)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_recording_may_stop_before_the_end_of_its_replay(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str, *, follow: bool
) -> None:
    signals = client.signals()
    await client.start_recording(recorded, STREAM_ID, source_location=SourceLocation.REMOTE)
    publication = await aeron.add_exclusive_publication(recorded, STREAM_ID)
    await publication.offer_many(MESSAGES[:100], timeout=TIMEOUT_S)
    recording_id = (await anext(signals)).recording_id
    await until_recorded(client, recording_id, publication.position)
    replay = client.replay(recording_id, to_position=1 << 20, follow=follow)
    found = [bytes((await anext(replay)).data) for _ in range(100)]
    assert found == MESSAGES[:100]
    await client.stop_recording(recorded, STREAM_ID)
    await publication.aclose()
    async with asyncio.timeout(TIMEOUT_S):
        if not follow:
            await exhaust(replay)
            return
        waiting = asyncio.create_task(exhaust(replay))
        await asyncio.wait((waiting,), timeout=0.3)
        assert not waiting.done()
        await replay.aclose()
        await waiting


async def test_a_replay_that_is_broken_off_raises(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    replay = client.replay(recording_id)
    await anext(replay)
    await client.stop_all_replays(recording_id)
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(ArchiveError, match="ended at position"):
            await exhaust(replay)


async def test_a_replay_that_is_left_early_lets_go_of_everything(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str
) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    async with client.replay(recording_id) as replay:
        assert bytes((await anext(replay)).data) == MESSAGES[0]
    with pytest.raises(StopAsyncIteration):
        await anext(replay)


async def test_room_is_made(client: RemoteArchive, aeron: aa.Aeron, recorded: str) -> None:
    recording_id, _ = await record(aeron, client, recorded, MESSAGES)
    signals = client.signals()
    assert await client.purge_segments(recording_id, 65_536) == 1
    assert await client.start_position(recording_id) == 65_536
    assert await client.truncate(recording_id, 131_072) >= 1
    assert await client.stop_position(recording_id) == 131_072
    assert await client.purge_recording(recording_id) == 1
    for _ in range(3):
        assert (await anext(signals)).signal is RecordingSignal.DELETE
    assert [each async for each in client.recordings()] == []


async def test_everybody_hears_how_far_recordings_are_who_wants_to(
    aeron: aa.Aeron, channel: str, recorded: str, tmp_path: Path
) -> None:
    context = ArchiveContext(
        directory=str(tmp_path),
        segment_length=65_536,
        low_storage_threshold=65_536,
        control_channel=channel,
        recording_events_channel="aeron:ipc",
    )
    events = await aeron.add_subscription("aeron:ipc", 30)
    archive = await LocalArchive.open(aeron, context)
    async with (
        archive,
        ControlServer(archive, aeron, ControlSettings.of(context)) as server,
        RemoteArchive.connect(aeron, control_channel=channel) as client,
    ):
        await events.wait_connected(timeout=TIMEOUT_S)
        recording_id, end = await record(aeron, client, recorded, MESSAGES[:50])
        heard: list[SbeMessage] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not heard or not isinstance(heard[-1], RecordingStopped):
                heard.append(CODEC.decode((await anext(events)).data))
        begun, *progress, ended = heard
        assert isinstance(begun, RecordingStarted)
        assert (begun.recording_id, begun.start_position, begun.channel) == (0, 0, recorded)
        assert ended == RecordingStopped(
            recording_id=recording_id, start_position=0, stop_position=end
        )
        positions = [each.position for each in progress if isinstance(each, RecordingProgress)]
        assert len(positions) == len(progress) > 0
        assert positions == sorted(set(positions))
        assert positions[-1] == end
        await events.aclose()
        await record(aeron, client, recorded, MESSAGES[:50])
        assert server.events is not None
        async with asyncio.timeout(TIMEOUT_S):
            while server.events.skipped_events == 0:
                await asyncio.sleep(0)


async def test_a_descriptor_is_never_older_than_the_position(
    client: RemoteArchive, aeron: aa.Aeron, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording_id, end = await record(aeron, client, recorded, MESSAGES)
    # It has stopped, and will not come to the position.
    where, descriptor = await client.wait_recorded_descriptor(recording_id, end + 1)
    assert (where, descriptor.stop_position) == (end, end)
    described = asyncio.Event()
    describe, count = client.describe, 0

    async def counted(recording_id: int) -> RecordingDescriptor:
        nonlocal count
        found = await describe(recording_id)
        count += 1
        described.set()
        return found

    async def late(_: int) -> int:
        await described.wait()
        # The answer to a request that was overtaken.
        await asyncio.sleep(0)
        return end

    monkeypatch.setattr(client, "describe", counted)
    monkeypatch.setattr(client, "recording_position", late)
    assert (await client.wait_recorded_descriptor(recording_id, end))[0] == end
    assert count == 2


async def test_an_unknown_recording_has_no_position_to_wait_for(client: RemoteArchive) -> None:
    with pytest.raises(UnknownRecordingError):
        await client.wait_recorded_descriptor(7, 0)
