"""A driver that is killed: the waits of its clients end, and a driver started again serves anew."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.official import SHARED_MEMORY
from tests.interop.programs import require, running
from tests.serving import until_it_serves
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.interop.programs import Program

pytestmark = needs_compiled

DRIVER_TIMEOUT_MS = 1_500
COUNT = 100


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="aeron-interop-", dir=SHARED_MEMORY))
    yield path / "aeron"
    shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def driver_of(kind: str, directory: Path) -> AsyncIterator[Program]:
    """Run a driver as a process of its own."""
    environ = {
        "AERON_DIR": str(directory),
        "AERON_DIR_DELETE_ON_START": "true",
        "AERON_TERM_BUFFER_LENGTH": "65536",
        "AERON_IPC_TERM_BUFFER_LENGTH": "65536",
    }
    program = ["aeronmd"] if kind == "official" else [sys.executable, "-m", "aeron_async", "driver"]
    async with running(*program, environ=environ) as process:
        await until_it_serves(directory, process.process.pid)
        yield process


def context() -> aa.DriverContext:
    return attrs.evolve(aa.DriverContext(), driver_timeout_ms=DRIVER_TIMEOUT_MS)


async def watch_it_die(directory: Path, channel: str, process: Program) -> None:
    """Kill a driver while its client reads and offers."""
    async with aa.Aeron.connect(directory=directory, context=context()) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.wait_connected(5)
        await exchange(publication, [subscription], range(COUNT))
        unread = await aeron.add_publication("aeron:ipc", STREAM_ID)
        waits = [
            asyncio.ensure_future(anext(subscription)),
            asyncio.ensure_future(unread.offer(b"nobody reads it")),
            asyncio.ensure_future(aeron.add_publication(channel, STREAM_ID + 1)),
        ]
        process.process.kill()
        await asyncio.wait(waits, timeout=10)
        for each in waits:
            error = each.exception()
            assert error is not None
            told = error if isinstance(error, aa.DriverTimeoutError) else error.__cause__
            assert isinstance(told, aa.DriverTimeoutError)
            # A command is given up after the time in which a driver must show life.
            is_command = each is waits[-1]
            assert "no life" in str(error) or (is_command and "did not answer within" in str(error))
        assert aeron.is_closed


@pytest.mark.parametrize("kind", ["ours", "official"])
async def test_the_waits_of_its_clients_end_and_its_successor_serves_new_ones(
    directory: Path, channel: str, kind: str
) -> None:
    require("stdbuf", *(["aeronmd"] if kind == "official" else []))
    for _ in range(2):
        async with driver_of(kind, directory) as process:
            await watch_it_die(directory, channel, process)


@pytest.mark.parametrize("kinds", [("ours", "official"), ("official", "ours")])
async def test_a_client_that_reconnects_goes_on_with_a_driver_of_either_kind(
    directory: Path, channel: str, kinds: tuple[str, str]
) -> None:
    require("aeronmd", "stdbuf")
    events: list[aa.Reconnected] = []
    async with driver_of(kinds[0], directory) as process:
        aeron = await aa.Aeron.connect(
            directory=directory,
            context=context(),
            reconnect=True,
            on_reconnected=events.append,
        )
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        shared = await aeron.add_exclusive_publication("aeron:ipc", STREAM_ID)
        reader = await aeron.add_subscription("aeron:ipc", STREAM_ID)
        counter = await aeron.add_counter(5_000, "orders", b"key")
        static = await aeron.add_static_counter(5_001, "starts", registration_id=-3)
        counter.set(41)
        static.increment()
        await exchange(publication, [subscription], range(COUNT))
        await exchange(shared, [reader], range(COUNT))
        process.process.kill()
    async with aeron, driver_of(kinds[1], directory):
        async with asyncio.timeout(20):
            while not events:
                await asyncio.sleep(0.01)
        assert events[0].not_added == ()
        await exchange(publication, [subscription], range(COUNT))
        await exchange(shared, [reader], range(COUNT))
        counter.increment()
        found = [each for each in aeron.counters if each.type_id in {5_000, 5_001}]
        assert [(each.label, each.value) for each in found] == [("orders", 42), ("starts", 0)]
        assert found[0].registration_id == counter.registration_id
        assert found[1].registration_id == static.registration_id == -3
        await counter.aclose()
        await aeron.aclose()
