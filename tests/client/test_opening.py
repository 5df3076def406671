"""What takes a moment to open is awaited, or entered with `async with`: both work everywhere."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive, RemoteArchive
from tests.client.conftest import STREAM_ID
from tests.drivers import STARTING, embedded_only

if TYPE_CHECKING:
    from pathlib import Path

IPC = "aeron:ipc"


async def test_a_client_is_awaited_or_entered() -> None:
    """`await aa.Aeron.connect()` raised TypeError."""
    aeron = await aa.Aeron.connect()
    assert aeron.client_id > 0
    assert not (await aeron.add_publication(IPC, STREAM_ID)).is_closed
    await aeron.aclose()
    assert aeron.is_closed
    for connecting in (aa.Aeron.connect(), await aa.Aeron.connect()):
        async with connecting as entered:
            assert entered.client_id > 0
        assert entered.is_closed
        with pytest.raises(aa.ClosedError, match="starts once"):
            await entered


@embedded_only(STARTING)
async def test_a_driver_is_awaited_or_entered() -> None:
    """Likewise `await aa.MediaDriver.launch()`."""
    driver = await aa.MediaDriver.launch()
    async with aa.Aeron.connect(driver) as aeron:
        assert aeron.driver is driver
    assert not driver.is_closed
    await driver.aclose()
    async with await aa.MediaDriver.launch() as driver:
        assert driver.conductor is not None
    assert driver.is_closed


async def test_streams_are_awaited_or_entered_without_an_inner_await(aeron: aa.Aeron) -> None:
    """`async with aeron.add_publication(...)` raised TypeError."""
    async with (
        aeron.add_subscription(IPC, STREAM_ID) as subscription,
        aeron.add_publication(IPC, STREAM_ID) as publication,
        aeron.add_exclusive_publication(IPC, STREAM_ID) as exclusive,
    ):
        await publication.offer(b"shared", timeout=5)
        await exclusive.offer(b"own", timeout=5)
        heard = {(await anext(subscription)).data, (await anext(subscription)).data}
        assert heard == {b"shared", b"own"}
    assert publication.is_closed
    assert exclusive.is_closed
    assert subscription.is_closed
    async with await aeron.add_publication(IPC, STREAM_ID) as publication:
        assert not publication.is_closed
    assert publication.is_closed


async def test_archives_are_awaited_or_entered(aeron: aa.Aeron, tmp_path: Path) -> None:
    """Likewise a local archive; a remote one is not there before it is opened."""
    context = ArchiveContext(directory=str(tmp_path))
    async with LocalArchive.open(aeron, context):
        pass
    archive = await LocalArchive.open(aeron, context)
    await archive.aclose()
    remote = RemoteArchive.connect(aeron, control_channel="aeron:udp?endpoint=127.0.0.1:8010")
    with pytest.raises(aa.ClosedError, match="not started"):
        _ = remote.connection


async def test_what_is_being_opened_is_a_coroutine_like_any_other(aeron: aa.Aeron) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(aeron.add_publication(IPC, STREAM_ID))
    (second,) = await asyncio.gather(aeron.add_subscription(IPC, STREAM_ID))
    third = await asyncio.wait_for(aeron.add_exclusive_publication(IPC, STREAM_ID), 5)
    for opened in (task.result(), second, third):
        await opened.aclose()
    opening = aeron.add_publication(IPC, STREAM_ID)
    assert repr(opening) == "<Opening by Aeron.add_publication>"
    await (await opening).aclose()
    with pytest.raises(RuntimeError, match="already awaited"):
        await opening
    given_up = aeron.add_publication(IPC, STREAM_ID)
    given_up.close()
    thrown_at = aeron.add_publication(IPC, STREAM_ID)
    with pytest.raises(KeyError):
        thrown_at.throw(KeyError("x"))


async def test_a_forgotten_await_is_named(aeron: aa.Aeron) -> None:
    """What was not awaited says so when it is used, or dropped."""
    opening = aeron.add_publication(IPC, STREAM_ID)
    with pytest.raises(AttributeError, match=r"'offer'; write `publication = await aeron\.add"):
        _ = getattr(opening, "offer")  # noqa: B009 - type checkers know better
    opening.close()
    dropped = aeron.add_subscription(IPC, STREAM_ID)
    with pytest.warns(RuntimeWarning, match=r"'Aeron\.add_subscription' was never awaited"):
        del dropped


@pytest.mark.parametrize(
    "name", ["add_publication", "add_exclusive_publication", "add_subscription"]
)
async def test_a_client_that_was_not_started_says_so(name: str) -> None:
    """It was an AssertionError, and an AttributeError with `python -O`."""
    aeron = aa.Aeron.connect()
    with pytest.raises(aa.ClosedError, match=r"`aeron = await Aeron\.connect\(\)`"):
        await getattr(aeron, name)(IPC, STREAM_ID)
    with pytest.raises(aa.ClosedError, match=r"`aeron = await Aeron\.connect\(\)`"):
        _ = aeron.client_id
    with pytest.raises(aa.ClosedError, match=r"`aeron = await Aeron\.connect\(\)`"):
        _ = aeron.counters
    with pytest.raises(aa.ClosedError, match=r"driver = await MediaDriver\.launch\(\)"):
        _ = aa.MediaDriver.launch().conductor


UNSTARTED = """
import asyncio
import aeron_async as aa

async def main():
    try:
        await aa.Aeron.connect().add_publication("aeron:ipc", 1)
    except aa.ClosedError as error:
        print(error)

asyncio.run(main())
"""


def test_a_client_that_was_not_started_says_so_without_assertions() -> None:
    """`python -O` takes assertions away."""
    done = subprocess.run(
        [sys.executable, "-O", "-c", UNSTARTED], capture_output=True, text=True, check=True
    )
    assert "has not been started" in done.stdout
    assert not done.stderr


FORGOTTEN = """
import asyncio
import aeron_async as aa

async def main():
    await aa.Aeron.connect()

asyncio.run(main())
"""


def test_a_client_that_was_never_closed_is_warned_of() -> None:
    """As asyncio warns of a transport; silent where such warnings are off."""
    for more, said in (("-Wdefault::ResourceWarning", True), ("-Wignore", False)):
        done = subprocess.run(
            [sys.executable, more, "-c", FORGOTTEN], capture_output=True, text=True, check=True
        )
        assert ("unclosed <aeron_async.driver.media_driver.MediaDriver" in done.stderr) is said
        assert said or not done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"driver": aa.DriverContext(mtu_length=8192)}, r"write context=\.\.\."),
        ({"driver": "x"}, "was given str as its driver: give a MediaDriver"),
        ({"context": {}}, "must be a DriverContext, got dict"),
    ],
)
def test_a_client_takes_a_driver_or_settings_and_nothing_else(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(aa.ConfigurationError, match=told):
        aa.Aeron.connect(**given)
