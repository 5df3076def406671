"""A served archive answers its clients: what, when, and in which order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.api import RecordingSignal, SourceLocation
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.messages import (
    MigrateSegmentsRequest,
    ReplayRequest,
    ReplayTokenRequest,
    ReplicateRequest2,
    StartRecordingRequest2,
    StopReplicationRequest,
    UpdateChannelRequest,
)
from aeron_async.errors import (
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    InvalidPositionError,
    StorageError,
    UnknownRecordingError,
)

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.archive.control.server import ControlServer
    from tests.archive.control.fake_archive import FakeArchive


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_a_client_hears_the_id_of_the_archive(
    remote: RemoteArchive, server: ControlServer
) -> None:
    assert remote.archive_id == 77
    assert server.session_count == 1


@pytest.mark.parametrize("response_channel", [None, "aeron:ipc?control-mode=response"])
async def test_a_client_of_the_same_driver_needs_no_network(
    aeron: aa.Aeron, server: ControlServer, response_channel: str | None
) -> None:
    async with RemoteArchive.connect(
        aeron, control_channel="aeron:ipc", response_channel=response_channel
    ) as remote:
        assert remote.archive_id == 77
        assert [each.recording_id async for each in remote.recordings()] == [0, 1, 2]


async def test_a_client_may_be_answered_on_a_response_channel(
    aeron: aa.Aeron, server: ControlServer, channel: str, unused_udp_port_factory: Any
) -> None:
    control = f"aeron:udp?control-mode=response|control=localhost:{unused_udp_port_factory()}"
    async with RemoteArchive.connect(
        aeron, control_channel=channel, response_channel=control
    ) as remote:
        assert remote.archive_id == 77


async def test_every_request_reaches_the_archive(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.answers |= {"start_recording": 5, "extend_recording": 6, "start_replay": 1 << 33}
    assert await remote.start_recording("aeron:ipc", 3, auto_stop=True) == 5
    remote_location = SourceLocation.REMOTE
    assert await remote.extend_recording(2, "aeron:ipc", 3, source_location=remote_location) == 6
    assert await remote.start_replay(1, "aeron:ipc", 4, position=32, length=64) == 1 << 33
    await remote.start_replay(1, "aeron:ipc", 4, limit_counter_id=9)
    await remote.stop_recording("aeron:ipc", 3)
    await remote.stop_recording_subscription(5)
    await remote.stop_replay(8)
    await remote.stop_all_replays()
    await remote.stop_all_replays(1)
    await remote.detach_segments(1, 65_536)
    asked = [
        (name, *(each for each in rest if type(each) is not tuple)) for name, *rest in archive.asked
    ]
    assert asked == [
        ("start_recording", "aeron:ipc", 3),
        ("extend_recording", 2, "aeron:ipc", 3),
        ("start_replay", 1, "aeron:ipc", 4),
        ("start_replay", 1, "aeron:ipc", 4),
        ("stop_recording", "aeron:ipc", 3),
        ("stop_recording_subscription", 5),
        ("stop_replay", 8),
        ("stop_all_replays", None),
        ("stop_all_replays", 1),
        ("detach_segments", 1, 65_536),
    ]
    named: list[dict[str, Any]] = [
        dict(each for each in call if type(each) is tuple) for call in archive.asked[:4]
    ]
    assert named[0]["auto_stop"]
    assert named[0]["source_location"] is SourceLocation.LOCAL
    assert not named[1]["auto_stop"]
    assert named[1]["source_location"] is SourceLocation.REMOTE
    assert named[1]["control_session_id"] == remote.connection.control_session_id
    assert (named[2]["position"], named[2]["length"]) == (32, 64)
    assert named[2]["limit_counter_id"] is None
    assert named[3]["limit_counter_id"] == 9


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "heard"),
    [
        ("stop_recording_by_identity", (1,), True, True),
        ("stop_recording_by_identity", (1,), False, False),
        ("start_position", (1,), 32, 32),
        ("stop_position", (1,), None, None),
        ("stop_position", (1,), 64, 64),
        ("recording_position", (1,), None, None),
        ("recording_position", (1,), 96, 96),
        ("max_recorded_position", (1,), 1 << 40, 1 << 40),
        ("truncate", (1, 32), 3, 3),
        ("purge_segments", (1, 65_536), 2, 2),
        ("purge_recording", (1,), 4, 4),
        ("attach_segments", (1,), 5, 5),
        ("delete_detached_segments", (1,), 6, 6),
    ],
)
async def test_what_the_archive_answers_reaches_the_client(
    remote: RemoteArchive,
    archive: FakeArchive,
    name: str,
    arguments: tuple[int, ...],
    answer: int | None,
    heard: int | None,
) -> None:
    archive.answers[name] = answer
    assert await getattr(remote, name)(*arguments) == heard
    assert archive.asked == [(name, *arguments)]


@pytest.mark.parametrize(("answer", "heard"), [(None, None), (7, 7)])
async def test_the_last_recording_that_matches_is_found_or_none(
    remote: RemoteArchive, archive: FakeArchive, answer: int | None, heard: int | None
) -> None:
    archive.answers["find_last"] = answer
    assert await remote.find_last(channel="x", stream_id=1, session_id=2) == heard
    with pytest.raises(UnknownRecordingError, match="minRecordingId=-1 < 0"):
        await remote.find_last(channel="x", stream_id=1, session_id=2, min_recording_id=-1)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (UnknownRecordingError("gone"), UnknownRecordingError, "gone"),
        (InvalidPositionError("between frames"), InvalidPositionError, "between frames"),
        (StorageError("disk full"), StorageError, "disk full"),
        (ArchiveError("busy", code=ArchiveErrorCode.MAX_REPLAYS), ArchiveError, "busy"),
        (AeronTimeoutError("too late"), ArchiveError, "too late"),
        (ZeroDivisionError("a mistake"), ArchiveError, "a mistake"),
    ],
)
async def test_errors_of_the_archive_are_the_clients_errors(
    remote: RemoteArchive, archive: FakeArchive, error: Exception, kind: type, text: str
) -> None:
    archive.answers["start_position"] = error
    with pytest.raises(ArchiveError, match=text) as caught:
        await remote.start_position(9)
    assert type(caught.value) is kind
    assert caught.value.code == getattr(error, "code", ArchiveErrorCode.GENERIC)
    assert await remote.stop_position(9) == 0


@pytest.mark.parametrize(
    ("kind", "fields", "text", "code"),
    [
        (MigrateSegmentsRequest, {"src_recording_id": 1, "dst_recording_id": 2}, "support", 0),
        (UpdateChannelRequest, {"recording_id": 1, "channel": "x"}, "support", 0),
        (
            ReplicateRequest2,
            {
                "src_recording_id": 1,
                "dst_recording_id": -1,
                "stop_position": -1,
                "channel_tag_id": -1,
                "subscription_tag_id": -1,
                "src_control_stream_id": 10,
                "src_control_channel": "x",
                "live_destination": "",
                "replication_channel": "",
            },
            "does not support ReplicateRequest2",
            0,
        ),
        (StopReplicationRequest, {"replication_id": 3}, "unknown replication id 3", 12),
    ],
)
async def test_what_is_not_supported_is_refused(
    remote: RemoteArchive, kind: Any, fields: dict[str, Any], text: str, code: int
) -> None:
    with pytest.raises(ArchiveError, match=text) as caught:
        await remote.connection.ask(kind, **fields)
    assert caught.value.code == code


async def test_a_source_location_that_nobody_knows_is_refused(remote: RemoteArchive) -> None:
    with pytest.raises(ArchiveError, match="unknown source location 9"):
        await remote.connection.ask(
            StartRecordingRequest2,
            channel="aeron:ipc",
            stream_id=3,
            source_location=9,
            auto_stop=False,
        )


# Signals.


async def test_whoever_has_asked_to_record_hears_what_becomes_of_it(
    remote: RemoteArchive, archive: FakeArchive, aeron: aa.Aeron, channel: str
) -> None:
    async with RemoteArchive.connect(aeron, control_channel=channel) as other:
        signals, others = remote.signals(), other.signals()
        archive.answers["start_recording"] = 5
        await remote.start_recording("aeron:ipc", 3)
        archive.tell(RecordingSignal.START, subscription_id=5)
        archive.tell(RecordingSignal.START, subscription_id=6)
        archive.tell(RecordingSignal.STOP, subscription_id=5)
        assert [(await anext(signals)).signal for _ in range(2)] == [
            RecordingSignal.START,
            RecordingSignal.STOP,
        ]
        await other.purge_recording(0)
        deleted = await anext(others)
        assert deleted.signal is RecordingSignal.DELETE
        assert (deleted.subscription_id, deleted.position) == (-1, -1)


async def test_a_recording_may_begin_before_its_request_is_answered(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    async def start() -> int:
        archive.tell(RecordingSignal.START, subscription_id=5)
        await until(archive.events.empty)
        await asyncio.sleep(0)
        return 5

    archive.answers["start_recording"] = start
    signals = remote.signals()
    await remote.start_recording("aeron:ipc", 3)
    assert (await anext(signals)).signal is RecordingSignal.START


async def test_signals_go_on_after_some_were_lost(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.answers["start_recording"] = 5
    signals = remote.signals()
    await remote.start_recording("aeron:ipc", 3)
    archive.events.put_nowait(ArchiveError("lost"))
    archive.tell(RecordingSignal.STOP, subscription_id=5)
    assert (await anext(signals)).signal is RecordingSignal.STOP


# Tokens.


async def test_a_token_lets_another_image_ask_for_a_replay_of_that_recording(
    remote: RemoteArchive,
    archive: FakeArchive,
    aeron: aa.Aeron,
    server: ControlServer,
    channel: str,
) -> None:
    archive.answers["start_replay"] = 12
    token = await remote.connection.ask(ReplayTokenRequest, recording_id=1)
    publication = await aeron.add_exclusive_publication(channel, 10)
    await publication.wait_connected(timeout=5)
    replay: dict[str, Any] = {
        "position": -1,
        "length": -1,
        "replay_stream_id": 1,
        "replay_channel": "aeron:udp?control-mode=response|control=localhost:1",
        "through": publication,
        "replay_token": token,
    }
    assert await remote.connection.ask(ReplayRequest, recording_id=1, **replay) == 12
    assert "response-correlation-id=" in archive.asked[-1][2]
    remote.connection.timeout = 0.2
    with pytest.raises(AeronTimeoutError):
        await remote.connection.ask(ReplayRequest, recording_id=2, **replay)
    with pytest.raises(AeronTimeoutError):
        await remote.connection.ask(ReplayRequest, recording_id=1, **replay | {"replay_token": -1})
    assert server.dropped_requests == 2
