"""An archive whose driver is in another process: what it hears late, and what it loses at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async import Aeron, DriverContext, MediaDriver
from aeron_async.archive import ArchiveContext, ControlServer, LocalArchive, RemoteArchive
from aeron_async.archive.api import RecordingSignal
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import AeronTimeoutError
from tests.archive.test_record_and_replay import IPC, STREAM, messages
from tests.client.local import until
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = needs_compiled

TERM = 65_536
TIMEOUT_S = 20.0


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[MediaDriver]:
    context = DriverContext(
        aeron_directory=str(tmp_path / "aeron"),
        counters_buffer_length=1 << 20,
        ipc_term_buffer_length=TERM,
        term_buffer_length=TERM,
    )
    async with MediaDriver.launch(context) as driver:
        yield driver


def client(driver: MediaDriver) -> Aeron:
    """Return one more client of a driver, which knows its directory only."""
    assert driver.context.aeron_directory is not None
    return Aeron.connect(directory=driver.context.aeron_directory)


@pytest.fixture
def context(tmp_path: Path) -> ArchiveContext:
    return ArchiveContext(
        directory=str(tmp_path / "archive"), segment_length=TERM, low_storage_threshold=0
    )


@pytest.fixture
async def archive(driver: MediaDriver, context: ArchiveContext) -> AsyncIterator[LocalArchive]:
    async with client(driver) as aeron, LocalArchive.open(aeron, context) as archive:
        yield archive


async def replayed(archive: LocalArchive, recording_id: int) -> list[bytes]:
    async with asyncio.timeout(TIMEOUT_S):
        return [each.data async for each in archive.replay(recording_id)]


async def test_what_another_client_offered_before_the_stop_is_recorded(
    driver: MediaDriver, archive: LocalArchive
) -> None:
    """The archive has not heard of that stream yet when it is told to stop."""
    sent = messages(10)
    for stream_id in range(20):
        await archive.start_recording(IPC, stream_id)
        async with client(driver) as other, other.add_publication(IPC, stream_id) as publication:
            for each in sent:
                await publication.offer(each, timeout=TIMEOUT_S)
            await archive.stop_recording(IPC, stream_id)
        assert await replayed(archive, stream_id) == sent


async def test_of_two_sources_of_a_stream_one_may_end_before_the_other(
    driver: MediaDriver, archive: LocalArchive
) -> None:
    """The task that records the one looked away for the other as well, when it ended."""
    await archive.start_recording(IPC, STREAM)
    sent = messages(40)
    async with client(driver) as other, asyncio.timeout(TIMEOUT_S):
        lasting = await other.add_exclusive_publication(IPC, STREAM)
        await lasting.offer(sent[0])
        await until(lambda: len(archive.recording_sessions) == 1)
        for number in range(1, len(sent)):
            async with other.add_exclusive_publication(IPC, STREAM) as brief:
                await brief.offer(sent[number])
            await lasting.offer(sent[number])
            (session,) = (
                each
                for each in archive.recording_sessions.values()
                if each.image.session_id == lasting.session_id
            )
            while session.position != lasting.position:
                await session.progress.wait()
        await until(lambda: len(archive.recording_sessions) == 1)
        await archive.stop_recording(IPC, STREAM)
    assert await replayed(archive, 0) == sent
    assert [await replayed(archive, each) for each in range(1, 40)] == [[each] for each in sent[1:]]


async def test_sources_that_are_busy_at_once_are_recorded_whole(
    driver: MediaDriver, archive: LocalArchive
) -> None:
    await archive.start_recording(IPC, STREAM)
    sent = {number: messages(400, number) for number in range(4)}

    async def publish(number: int) -> int:
        async with client(driver) as other:
            publication = await other.add_exclusive_publication(IPC, STREAM)
            for each in sent[number]:
                await publication.offer(each, timeout=TIMEOUT_S)
            await publication.drain(timeout=TIMEOUT_S)
            return publication.session_id

    async with asyncio.timeout(60):
        sessions = await asyncio.gather(*map(publish, sent))
        await until(lambda: not archive.recording_sessions)
    numbers = {session_id: number for number, session_id in enumerate(sessions)}
    async for each in archive.recordings():
        assert await replayed(archive, each.recording_id) == sent[numbers[each.session_id]]


@pytest.mark.parametrize("is_aborted", [False, True], ids=["closed", "aborted"])
async def test_a_driver_that_ends_leaves_what_was_recorded(
    driver: MediaDriver, context: ArchiveContext, *, is_aborted: bool
) -> None:
    sent = messages(30)
    async with client(driver) as aeron:
        archive = await LocalArchive.open(aeron, context)
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM)
        publication = await aeron.add_exclusive_publication(IPC, STREAM)
        for each in sent:
            await publication.offer(each, timeout=TIMEOUT_S)
        end = publication.position
        assert (await anext(signals)).signal is RecordingSignal.START
        (session,) = archive.recording_sessions.values()
        while session.position != end:
            await session.progress.wait()
        await (driver.abort() if is_aborted else driver.aclose())
        async with asyncio.timeout(TIMEOUT_S):
            stopped = await anext(signals)
        assert (stopped.signal, stopped.position) == (RecordingSignal.STOP, end)
        assert await archive.stop_position(0) == end
        assert await replayed(archive, 0) == sent
        await archive.aclose()


async def test_the_counter_of_a_recording_lives_as_long_as_it(
    driver: MediaDriver, archive: LocalArchive
) -> None:
    def values() -> list[int]:
        return [each.value for each in driver.counters if each.type_id == 100]

    async with client(driver) as other:
        await archive.start_recording(IPC, STREAM)
        publication = await other.add_publication(IPC, STREAM)
        await publication.offer(b"counted", timeout=TIMEOUT_S)
        await until(lambda: values() == [publication.position])
        await archive.stop_recording(IPC, STREAM)
        await until(lambda: values() == [])


@pytest.mark.parametrize("source", ["ipc", "udp"])
async def test_a_client_of_the_same_directory_has_an_archive_record_over_ipc(
    driver: MediaDriver, context: ArchiveContext, channel: str, source: str
) -> None:
    """Client and archive are processes of their own; what they share is the directory."""
    recorded = IPC if source == "ipc" else channel
    sent = messages(200)
    async with (
        asyncio.timeout(60),
        client(driver) as serving,
        LocalArchive.open(serving, attrs.evolve(context, archive_id=99)) as archive,
        ControlServer(archive, serving, ControlSettings.of(context)) as server,
        client(driver) as aeron,
        RemoteArchive.connect(aeron, control_channel=IPC) as remote,
        RemoteArchive.connect(aeron, control_channel=IPC) as another,
    ):
        assert remote.archive_id == another.archive_id == 99
        signals = remote.signals()
        # A spy for UDP: the publication is one of the archive's own driver.
        await remote.start_recording(recorded, STREAM)
        with_spies = f"{recorded}|ssc=true" if source == "udp" else recorded
        async with aeron.add_exclusive_publication(with_spies, STREAM) as publication:
            for each in sent:
                await publication.offer(each, timeout=TIMEOUT_S)
            end = publication.position
            while await remote.recording_position(0) != end:
                await asyncio.sleep(0)
            await remote.stop_recording(recorded, STREAM)
        assert [(await anext(signals)).signal.name for _ in range(2)] == ["START", "STOP"]
        assert [each.data async for each in remote.replay(0)] == sent
        assert [each.data async for each in another.replay(0, 0, end)] == sent
        assert [each async for each in another.recordings()] == [await archive.describe(0)]
        assert server.session_count == 2
        assert server.dropped_requests == 0


async def test_an_archive_replays_to_a_udp_channel_of_another_host(
    driver: MediaDriver, context: ArchiveContext, channel: str
) -> None:
    """A driver elsewhere cannot be told to send little: the archive asks for it all the same."""
    sent = messages(50)
    context = attrs.evolve(context, control_channel=channel)
    async with (
        asyncio.timeout(60),
        client(driver) as serving,
        LocalArchive.open(serving, context) as archive,
        ControlServer(archive, serving, ControlSettings.of(context)),
        Aeron.connect(context=DriverContext(term_buffer_length=TERM)) as elsewhere,
        RemoteArchive.connect(elsewhere, control_channel=channel) as remote,
    ):
        await archive.start_recording(IPC, STREAM)
        async with serving.add_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each, timeout=TIMEOUT_S)
            await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in remote.replay(0)] == sent


async def test_a_client_of_a_driver_elsewhere_is_told_what_may_be_wrong(
    driver: MediaDriver,
    context: ArchiveContext,
    channel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was told of the driver only, and not of the archive."""
    async with client(driver) as aeron:
        with pytest.raises(AeronTimeoutError, match="start one there"):
            await RemoteArchive.connect(aeron, control_channel=IPC, timeout=0.1)
        async with (
            LocalArchive.open(aeron, context) as archive,
            ControlServer(archive, aeron) as server,
        ):
            monkeypatch.setattr(server.waiting_room, "try_enter", lambda *_: False)
            remote = RemoteArchive.connect(
                aeron, control_channel=IPC, response_channel=channel, timeout=0.1
            )
            with pytest.raises(AeronTimeoutError, match="its answers go to aeron:udp"):
                await remote


@pytest.fixture
def channel(unused_udp_port: int) -> str:
    return f"aeron:udp?endpoint=localhost:{unused_udp_port}"
