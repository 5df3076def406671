"""What is left of a server that could not start, and of clients and their replays that end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.recording_events import RecordingEvents
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import (
    ArchiveError,
    DriverTimeoutError,
    RegistrationError,
    StorageError,
    UnknownRecordingError,
)
from tests.archive.control.fake_archive import DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aeron_async as aa
    from aeron_async.archive.control.client import RemoteArchive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from tests.archive.control.fake_archive import FakeArchive


async def test_a_server_that_cannot_start_hears_nothing_and_leaves_no_task(
    aeron: aa.Aeron, archive: FakeArchive, channel: str
) -> None:
    settings = ControlSettings(
        control_channel=channel, local_control_channel="aeron:udp?endpoint=192.0.2.1:1"
    )
    before = asyncio.all_tasks()
    server = ControlServer(archive, aeron, settings)
    with pytest.raises(RegistrationError):
        async with server:
            pass
    assert asyncio.all_tasks() == before
    async with ControlServer(archive, aeron, ControlSettings(control_channel=channel)) as server:
        assert server.session_count == 0


async def test_a_recording_that_cannot_be_described_does_not_end_the_events() -> None:
    begun = [
        RecordingSignalEvent(
            recording_id=number, subscription_id=1, position=64, signal=RecordingSignal.START
        )
        for number in range(3)
    ]
    problems: list[Exception] = [StorageError("no disk"), UnknownRecordingError("purged")]

    async def signals() -> AsyncIterator[RecordingSignalEvent]:
        for each in begun:
            yield each

    async def describe(recording_id: int) -> RecordingDescriptor:
        if problems:
            raise problems.pop(0)
        return attrs.evolve(DESCRIPTOR, recording_id=recording_id)

    told: list[Any] = []

    def offer(data: bytes) -> int:
        told.append(CODEC.decode(data))
        return len(data)

    archive = SimpleNamespace(signals=signals, describe=describe, recording_sessions={})
    publication: Any = SimpleNamespace(try_offer=offer)
    await RecordingEvents(archive, publication).run()
    assert [each.recording_id for each in told] == [2]


async def test_a_client_whose_driver_has_gone_waits_for_no_answer(remote: RemoteArchive) -> None:
    connection, signals = remote.connection, remote.signals()
    # Before any answer has come there is no image either whose end could tell.
    connection._image = None
    connection._subscription.on_driver_closed(DriverTimeoutError("the driver has gone"))
    with pytest.raises(ArchiveError, match="is lost"):
        await anext(signals)
    with pytest.raises(ArchiveError, match="is lost"):
        await remote.start_position(0)
    assert connection._reading.done()
    assert connection._reading.exception() is None
