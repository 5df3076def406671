"""What is left of a server that could not start, and of clients and their replays that end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.control import server as server_module
from aeron_async.archive.control.messages import (
    CODEC,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from aeron_async.archive.control.recording_events import RecordingEvents
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.archive.signals import SignalHub
from aeron_async.client.waiters import Notify
from aeron_async.errors import (
    ArchiveError,
    ClosedError,
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


async def describe(recording_id: int) -> RecordingDescriptor:
    return attrs.evolve(DESCRIPTOR, recording_id=recording_id)


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

    async def describe_later(recording_id: int) -> RecordingDescriptor:
        if problems:
            raise problems.pop(0)
        return await describe(recording_id)

    told: list[Any] = []

    def offer(data: bytes) -> int:
        told.append(CODEC.decode(data))
        return len(data)

    archive = SimpleNamespace(signals=signals, describe=describe_later, recording_sessions={})
    publication: Any = SimpleNamespace(try_offer=offer)
    await RecordingEvents(archive, publication).run()
    assert [each.recording_id for each in told] == [2]


async def test_recording_events_go_on_behind_signals_that_were_lost() -> None:
    """They stopped for good. What was lost is found out from the archive: starts and stops."""

    def session(recording_id: int, start_position: int) -> Any:
        return SimpleNamespace(
            recording_id=recording_id,
            start_position=start_position,
            position=start_position + 32,
            is_over=True,
        )

    hub = SignalHub(most_waiting=2)
    stays, stops, extended, begins = (session(number, 64 * number) for number in range(4))
    archive = SimpleNamespace(
        signals=hub.stream, describe=describe, recording_sessions={0: stays, 1: stops, 2: extended}
    )
    told: list[Any] = []

    def offer(data: bytes) -> int:
        told.append(CODEC.decode(data))
        return len(data)

    def tell(recording_id: int, signal: RecordingSignal, position: int) -> None:
        hub.tell(
            RecordingSignalEvent(
                recording_id=recording_id, subscription_id=1, position=position, signal=signal
            )
        )

    async def until(count: int) -> list[Any]:
        async with asyncio.timeout(20):
            while len(told) < count:
                await asyncio.sleep(0)
        return [
            (type(each), each.recording_id)
            for each in told
            if not isinstance(each, RecordingProgress)
        ]

    publication: Any = SimpleNamespace(try_offer=offer)
    running = asyncio.ensure_future(RecordingEvents(archive, publication).run())
    for number in range(3):
        await asyncio.sleep(0)
        tell(number, RecordingSignal.START, 64 * number)
        await until(2 * number + 2)
    begun = await until(6)
    assert begun == [(RecordingStarted, number) for number in range(3)]
    told.clear()
    stops.position, extended.position = 4_096, 8_192
    again = session(2, 8_192)
    archive.recording_sessions = {0: stays, 2: again, 3: begins}
    for _ in range(2):
        tell(9, RecordingSignal.SYNC, 0)
    tell(1, RecordingSignal.STOP, 4_096)
    tell(2, RecordingSignal.STOP, 8_192)
    tell(2, RecordingSignal.EXTEND, 8_192)
    tell(3, RecordingSignal.START, begins.start_position)
    assert await until(6) == [
        (RecordingStopped, 1),
        (RecordingStopped, 2),
        (RecordingStarted, 2),
        (RecordingStarted, 3),
    ]
    ends = [each for each in told if isinstance(each, RecordingStopped)]
    assert [(each.start_position, each.stop_position) for each in ends] == [
        (64, 4_096),
        (128, 8_192),
    ]
    told.clear()
    tell(0, RecordingSignal.STOP, 96)
    assert await until(1) == [(RecordingStopped, 0)]
    hub.close()
    await running


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize(
    "problem", [UnknownRecordingError("purged"), StorageError("no disk"), None], ids=repr
)
async def test_listeners_are_told_that_a_recording_has_stopped_whatever_became_of_it(
    problem: Exception | None, *, has_session: bool
) -> None:
    """It was forgotten where it could not be described: for listeners it went on for ever."""
    hub = SignalHub(most_waiting=1)
    session = SimpleNamespace(recording_id=0, start_position=64, position=4_096, is_over=True)
    sessions: dict[int, Any] = {0: session} if has_session else {}
    archive = SimpleNamespace(signals=hub.stream, describe=describe, recording_sessions=sessions)
    told: list[Any] = []

    def offer(data: bytes) -> int:
        told.append(CODEC.decode(data))
        return len(data)

    def tell(signal: RecordingSignal, position: int) -> None:
        hub.tell(
            RecordingSignalEvent(
                recording_id=0, subscription_id=1, position=position, signal=signal
            )
        )

    async def describe_stopped(recording_id: int) -> RecordingDescriptor:
        looked.set()
        if problem is not None:
            raise problem
        return attrs.evolve(await describe(recording_id), stop_position=4_096)

    looked = asyncio.Event()
    publication: Any = SimpleNamespace(try_offer=offer)
    running = asyncio.ensure_future(RecordingEvents(archive, publication).run())
    async with asyncio.timeout(20):
        await asyncio.sleep(0)
        tell(RecordingSignal.START, 64)
        while not any(isinstance(each, RecordingStarted) for each in told):
            await asyncio.sleep(0)
        sessions.clear()
        archive.describe = describe_stopped
        tell(RecordingSignal.SYNC, 0)
        tell(RecordingSignal.STOP, 4_096)
        if not has_session:
            await looked.wait()
        if isinstance(problem, StorageError) and not has_session:
            # Nobody can tell where, for now; the signal may come yet.
            assert not any(isinstance(each, RecordingStopped) for each in told)
            await asyncio.sleep(0)
            tell(RecordingSignal.STOP, 4_096)
        while not any(isinstance(each, RecordingStopped) for each in told):
            await asyncio.sleep(0)
    (stop,) = [each for each in told if isinstance(each, RecordingStopped)]
    is_known = has_session or not isinstance(problem, UnknownRecordingError)
    assert (stop.start_position, stop.stop_position) == (64, 4_096 if is_known else 64)
    hub.close()
    await running


async def test_no_signal_is_lost_after_it_was_said_that_some_were(
    aeron: aa.Aeron, archive: FakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came in the very next turn of the loop was."""
    hub, loop = SignalHub(most_waiting=1), asyncio.get_running_loop()
    monkeypatch.setattr(archive, "signals", hub.stream, raising=False)
    server = ControlServer(archive, aeron)
    heard: list[RecordingSignalEvent] = []
    monkeypatch.setattr(server.router, "on_signal", heard.append)
    events = [
        RecordingSignalEvent(
            recording_id=number, subscription_id=1, position=0, signal=RecordingSignal.START
        )
        for number in range(3)
    ]

    def warn(*_: object, **__: object) -> None:
        loop.call_soon(hub.tell, events[2])

    monkeypatch.setattr(server_module, "LOG", SimpleNamespace(warning=warn))
    routing = asyncio.ensure_future(server._route())
    await asyncio.sleep(0)
    hub.tell(events[0])
    hub.tell(events[1])
    async with asyncio.timeout(20):
        while len(heard) < 2:
            await asyncio.sleep(0)
    assert heard == [events[0], events[2]]
    hub.close()
    await routing


async def test_a_client_whose_driver_has_gone_waits_for_no_answer(remote: RemoteArchive) -> None:
    connection, signals = remote.connection, remote.signals()
    # Before any answer has come there is no image either whose end could tell.
    connection._image = None
    connection._subscription._on_driver_closed(DriverTimeoutError("the driver has gone"))
    with pytest.raises(ArchiveError, match="is lost"):
        await anext(signals)
    with pytest.raises(ArchiveError, match="is lost"):
        await remote.start_position(0)
    async with asyncio.timeout(5):
        await connection._tasks.wait()


async def test_events_end_quietly_when_their_publication_is_closed_first() -> None:
    """A block is written in the turn in which the server is closed: its task wakes once more."""
    hub = SignalHub()
    is_closed = False
    told: list[Any] = []

    def try_offer(data: bytes) -> int:
        if is_closed:
            message = "publication is closed"
            raise ClosedError(message)
        told.append(CODEC.decode(data))
        return len(told)

    session = SimpleNamespace(
        start_position=0, position=64, recording_id=0, is_over=False, progress=Notify()
    )
    archive: Any = SimpleNamespace(
        signals=hub.stream, recording_sessions={0: session}, describe=describe
    )
    events = RecordingEvents(archive, SimpleNamespace(try_offer=try_offer))  # type: ignore[arg-type]
    running = asyncio.ensure_future(events.run())
    await asyncio.sleep(0)
    hub.tell(
        RecordingSignalEvent(
            recording_id=0, subscription_id=1, position=0, signal=RecordingSignal.START
        )
    )
    async with asyncio.timeout(5):
        while len(told) < 2:
            await asyncio.sleep(0)
    session.position = 128
    session.progress.notify()
    is_closed = True
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    assert events.skipped_events == 1
