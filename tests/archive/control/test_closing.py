"""Who closes what somebody else reads, or is cancelled while closing, leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import RemoteArchive, subscribe
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import AeronTimeoutError, ClosedError
from tests.archive.test_served import LOCAL, STREAM, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async import Aeron
    from tests.archive.conftest import OpenArchive
    from tests.archive.control.fake_archive import FakeArchive

IPC = "aeron:ipc"


async def read(messages: Any, take: Callable[[bytes], object]) -> None:
    async for each in messages:
        take(each.data)


@pytest.mark.parametrize(
    ("is_persistent", "is_client"), [(False, False), (False, True), (True, False)]
)
async def test_who_reads_what_another_task_closes(
    open_archive: OpenArchive, *, is_persistent: bool, is_client: bool
) -> None:
    """It ends; or raises, where that was not what is read but the client of the archive."""
    found: list[bytes] = []
    async with asyncio.timeout(20), served(open_archive) as (aeron, _, remote):
        await remote.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"one", timeout=5)
            messages: Any = remote.replay(0, follow=True)
            if is_persistent:
                messages = subscribe(remote, aeron, 0, IPC, STREAM)
            reading = asyncio.ensure_future(read(messages, found.append))
            while not found:
                await asyncio.sleep(0)
            await (remote if is_client else messages).aclose()
            if is_client:
                with pytest.raises(ClosedError):
                    await reading
            await asyncio.wait((reading,))
            await messages.aclose()
            assert is_client or reading.exception() is None
    assert found == [b"one"]


async def test_a_client_that_was_never_started_has_no_signals(aeron: Aeron) -> None:
    """Their reader waited for ever, also when the client was closed."""
    remote = RemoteArchive.connect(aeron, control_channel=LOCAL)
    with pytest.raises(ClosedError):
        remote.signals()
    await remote.aclose()
    async with asyncio.timeout(20):
        assert [each async for each in remote.signals()] == []


async def test_a_client_whose_first_start_failed_has_signals(
    aeron: Aeron, archive: FakeArchive
) -> None:
    remote = RemoteArchive.connect(aeron, control_channel=LOCAL, timeout=0.5)
    with pytest.raises(AeronTimeoutError):
        await remote.start()
    settings = ControlSettings(local_control_channel=LOCAL)
    async with asyncio.timeout(20), ControlServer(archive, aeron, settings), remote:
        signals = remote.signals()
        reading = asyncio.ensure_future(anext(signals))
        await asyncio.sleep(0)
        assert not reading.done()
        reading.cancel()
        await asyncio.wait((reading,))


async def test_a_client_that_is_started_twice_at_once_has_one_session(
    aeron: Aeron, archive: FakeArchive
) -> None:
    settings = ControlSettings(local_control_channel=LOCAL)
    async with asyncio.timeout(20), ControlServer(archive, aeron, settings) as server:
        remote = RemoteArchive.connect(aeron, control_channel=LOCAL)
        await asyncio.gather(remote.start(), remote.start(), remote.start())
        assert server.session_count == 1
        await remote.aclose()
        assert not responses()


async def test_a_client_that_is_closed_while_it_starts_leaves_no_session(
    aeron: Aeron, archive: FakeArchive
) -> None:
    settings = ControlSettings(local_control_channel=LOCAL)
    async with asyncio.timeout(20), ControlServer(archive, aeron, settings):
        remote = RemoteArchive.connect(aeron, control_channel=LOCAL)
        starting = asyncio.ensure_future(remote.start())
        while not responses():
            await asyncio.sleep(0)
        await remote.aclose()
        with pytest.raises(ClosedError):
            await starting
        assert not responses()
        with pytest.raises(ClosedError):
            await remote.start()


def responses() -> list[asyncio.Task[Any]]:
    """Return the tasks of sessions that are open at their clients."""
    return [each for each in asyncio.all_tasks() if each.get_name() == "aeron-archive-responses"]


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("kind", ["server", "client"])
async def test_who_is_cancelled_while_closing_leaves_no_task(
    open_archive: OpenArchive, kind: str, turns: int
) -> None:
    def tasks(*names: str) -> list[asyncio.Task[Any]]:
        return [each for each in asyncio.all_tasks() if each.get_name().startswith(names)]

    async with asyncio.timeout(20), open_archive() as (aeron, archive):
        server = ControlServer(archive, aeron, ControlSettings(local_control_channel=LOCAL))
        await server.start()
        remote = await RemoteArchive.connect(aeron, control_channel=LOCAL)
        replays = [remote.replay(0), remote.replay(0)]
        closed: Any = server if kind == "server" else remote
        closing = asyncio.ensure_future(closed.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        names = ("aeron-archive-control", "aeron-archive-signals")
        while tasks(*(names if kind == "server" else ("aeron-archive-responses",))):
            await asyncio.sleep(0)
        await remote.aclose()
        await server.aclose()
        for each in replays:
            with pytest.raises(ClosedError):
                await anext(each)
