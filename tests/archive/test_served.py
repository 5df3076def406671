"""One archive, asked here and over its control channel: the same answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import RemoteArchive
from aeron_async.archive.control.messages import (
    CODEC,
    PROTOCOL_VERSION,
    AuthConnectRequest,
    ControlResponse,
    ReplayRequest,
)
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.archive.recording_session import open_session
from aeron_async.errors import ArchiveError
from tests.archive.conftest import DRIVER_KINDS
from tests.archive.test_record_and_replay import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async import Aeron
    from aeron_async.archive import LocalArchive
    from tests.archive.conftest import OpenArchive

STREAM = 7
LOCAL = "aeron:ipc?term-length=64k"


@pytest.fixture(params=DRIVER_KINDS)
def driver_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def served(
    open_archive: OpenArchive, **more: Any
) -> AsyncIterator[tuple[Aeron, LocalArchive, Any]]:
    async with open_archive(archive_id=77, **more) as (aeron, archive):
        settings = ControlSettings(local_control_channel=LOCAL)
        async with (
            ControlServer(archive, aeron, settings),
            RemoteArchive.connect(aeron, control_channel=LOCAL) as remote,
        ):
            yield aeron, archive, remote


async def test_a_stream_is_recorded_and_replayed_over_the_control_channel(
    open_archive: OpenArchive,
) -> None:
    sent = [bytes([number]) * number * 50 for number in range(100)]
    async with served(open_archive) as (aeron, archive, remote):
        subscription_id = await remote.start_recording("aeron:ipc", STREAM)
        (found,) = await archive.recording_subscriptions()
        assert (found.subscription_id, found.stream_id) == (subscription_id, STREAM)
        assert await remote.recording_subscriptions() == [found]
        async with await aeron.add_exclusive_publication("aeron:ipc", STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            await remote.stop_recording("aeron:ipc", STREAM)
        assert await archive.recording_subscriptions() == []
        assert await remote.describe(0) == await archive.describe(0)
        assert [each.data async for each in remote.replay(0)] == sent
        assert [each.data async for each in archive.replay(0)] == sent
        assert [each async for each in remote.recordings()] == [await archive.describe(0)]
        assert await remote.stop_position(0) == await archive.stop_position(0)


async def test_a_client_that_stands_still_does_not_hold_up_the_answers_to_another(
    open_archive: OpenArchive,
) -> None:
    """Over IPC all answers came on one stream, to all clients."""
    async with served(open_archive) as (aeron, archive, remote):
        await record(aeron, archive, [b"one"])
        expected = await archive.describe(0)
        async with RemoteArchive.connect(aeron, control_channel=LOCAL, timeout=5.0) as other:
            # It reads no answer from now on.
            await remote.connection._tasks.aclose()
            for _ in range(300):
                assert await other.describe(0) == expected


async def test_a_control_channel_over_ipc_hears_each_request_once(
    open_archive: OpenArchive,
) -> None:
    """It is the local one then; each client had two sessions, and one of them was dropped."""
    async with open_archive() as (aeron, archive):
        settings = ControlSettings(control_channel="aeron:ipc")
        async with (
            ControlServer(archive, aeron, settings) as server,
            RemoteArchive.connect(aeron, control_channel="aeron:ipc") as remote,
        ):
            assert [each async for each in remote.recordings()] == []
            assert (server.session_count, server.dropped_requests) == (1, 0)


async def test_an_archive_says_its_id(open_archive: OpenArchive) -> None:
    async with served(open_archive) as (_, archive, remote):
        assert archive.archive_id == 77
        assert remote.archive_id == 77


async def test_a_client_whose_channel_has_parameters_of_its_own_is_answered(
    open_archive: OpenArchive,
) -> None:
    async with served(open_archive) as (aeron, _, _):
        subscription = await aeron.add_subscription("aeron:ipc", 99)
        publication = await aeron.add_exclusive_publication(LOCAL, 10)
        request = AuthConnectRequest(
            correlation_id=5,
            response_stream_id=99,
            version=PROTOCOL_VERSION,
            response_channel="aeron:ipc?colour=red",
        )
        await publication.offer(CODEC.encode(request))
        async with asyncio.timeout(5):
            answer = CODEC.decode((await anext(subscription)).data)
        assert isinstance(answer, ControlResponse)
        assert answer.correlation_id == 5


async def test_what_goes_wrong_in_a_replay_is_told_to_who_asked_for_it(
    open_archive: OpenArchive, tmp_path: Path, driver_kind: str
) -> None:
    async with served(open_archive) as (aeron, archive, remote):
        await record(aeron, archive, [bytes(1_000)] * 40)
        path = tmp_path / "archive" / "0-0.rec"
        data = bytearray(path.read_bytes())
        data[10 * 1_056 + 16] ^= 0xFF
        path.write_bytes(data)
        received: list[bytes] = []

        async def receive() -> None:
            async with asyncio.timeout(5), remote.replay(0) as replay:
                async for each in replay:
                    received.append(each.data)  # noqa: PERF401 - what came before the error counts

        with pytest.raises(ArchiveError, match=r"0-0\.rec, offset 10560: a frame of stream"):
            await receive()
        # What a revoked stream still held is lost, if its reader is a process of its own.
        assert received == [bytes(1_000)] * (10 if driver_kind == "embedded" else len(received))
        assert len(received) <= 10


async def test_a_replay_that_nobody_subscribes_to_is_told_to_who_asked_for_it(
    open_archive: OpenArchive,
) -> None:
    async with served(open_archive, connect_timeout_ns=20_000_000) as (aeron, archive, remote):
        await record(aeron, archive, [b"one"])
        told = asyncio.get_running_loop().create_future()
        await remote.connection.ask(
            ReplayRequest,
            on_late_error=told.set_result,
            recording_id=0,
            position=-1,
            length=-1,
            replay_stream_id=99,
            replay_channel="aeron:ipc",
        )
        async with asyncio.timeout(5):
            assert "no connection established" in str(await told)


async def test_a_replay_in_blocks_that_hold_no_datagram_is_refused(
    open_archive: OpenArchive,
) -> None:
    async with served(open_archive) as (aeron, archive, remote):
        await record(aeron, archive, [b"one"])
        with pytest.raises(ArchiveError, match="fileIoMaxLength=1000 < mtuLength=1408"):
            await remote.connection.ask(
                ReplayRequest,
                recording_id=0,
                position=-1,
                length=-1,
                replay_stream_id=99,
                replay_channel="aeron:ipc",
                file_io_max_length=1_000,
            )


@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_recording_that_is_just_about_to_begin_has_not_stopped(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, *, is_failing: bool
) -> None:
    """Its entry is there before its session: who replays it then waits for that."""
    is_in_catalog, may_begin = asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> Any:
        is_in_catalog.set()
        await may_begin.wait()
        if is_failing:
            message = "no file can be had"
            raise ArchiveError(message)
        return await open_session(*arguments)

    monkeypatch.setattr("aeron_async.archive.recordings.open_session", held)
    async with asyncio.timeout(20), served(open_archive) as (aeron, _, remote):
        await remote.start_recording("aeron:ipc", STREAM)
        async with await aeron.add_exclusive_publication("aeron:ipc", STREAM) as publication:
            await publication.offer(b"one", timeout=5)
            await is_in_catalog.wait()
            replay = remote.replay(0, follow=True)
            reading = asyncio.ensure_future(anext(replay))
            await asyncio.wait((reading,), timeout=0.1)
            may_begin.set()
            if is_failing:
                with pytest.raises(ArchiveError, match="has stopped"):
                    await reading
            else:
                assert (await reading).data == b"one"
            await replay.aclose()
