"""Clients that are killed in the middle of an append: the others of their streams go on.

AERON_ASYNC_CLIENT_KILLS is how many are killed on each medium; 3 unless set.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from aeron_async.driver.core.system_counters import SystemCounterId
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = needs_compiled

KILLS: Final = int(os.environ.get("AERON_ASYNC_CLIENT_KILLS", "3"))
ROOT: Final = Path(__file__).parent.parent.parent
STREAM_ID: Final = 1001
MS: Final = 1_000_000
LIMIT_S: Final = 10.0
SURVIVOR: Final = -1
MESSAGES_AFTER_EACH: Final = 20


class Victims:
    """A process that lets one client after the other live and die."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def read_line(self) -> str:
        async with asyncio.timeout(60):
            return (await self._stdout.readline()).decode().strip()

    async def live(self, life: int, channel: str) -> int:
        """Let a client live until it is killed; return how many of its offers had returned."""
        self._stdin.write(f"{life} {life} {channel}\n".encode())
        return int(await self.read_line())


class Reader:
    """Reads the stream, and checks that each writer's messages come in order and without gaps."""

    def __init__(self, subscription: aa.Subscription) -> None:
        self._subscription = subscription
        self.counts: dict[int, int] = {}
        self._more = asyncio.Event()

    async def read(self) -> None:
        async for message in self._subscription:
            life, number, rest = message.data.split(b" ", 2)
            assert not any(rest)
            count = self.counts.get(int(life), 0)
            assert int(number) == count, f"{life!r}: {number!r} came after {count} messages"
            self.counts[int(life)] = count + 1
            self._more.set()

    async def wait_for(self, life: int, count: int) -> None:
        """Wait until so many messages of one writer have come."""
        async with asyncio.timeout(LIMIT_S):
            while self.counts.get(life, 0) < count:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[aa.MediaDriver]:
    context = aa.DriverContext(
        aeron_directory=str(tmp_path / "aeron"),
        term_buffer_length=64 * 1024,
        ipc_term_buffer_length=64 * 1024,
        timer_interval_ns=50 * MS,
        client_liveness_timeout_ns=1_200 * MS,
        publication_unblock_timeout_ns=1_300 * MS,
        publication_linger_timeout_ns=0,
    )
    async with aa.MediaDriver.launch(context) as driver:
        yield driver


@pytest.fixture
async def victims(driver: aa.MediaDriver) -> AsyncIterator[Victims]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.slow.killed_client",
        str(driver.context.aeron_directory),
        str(STREAM_ID),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    victims = Victims(process)
    assert await victims.read_line() == "ready"
    yield victims
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("medium", ["ipc", "udp"])
async def test_a_client_killed_in_an_append_holds_up_the_others_for_the_timeout_only(
    driver: aa.MediaDriver, victims: Victims, unused_udp_port: int, medium: str
) -> None:
    udp = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    channel = "aeron:ipc" if medium == "ipc" else udp
    directory = driver.context.aeron_directory
    async with aa.Aeron.connect(directory=directory) as aeron, asyncio.TaskGroup() as group:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        survivor = await aeron.add_publication(channel, STREAM_ID)
        await survivor.wait_connected(LIMIT_S)
        reader = Reader(subscription)
        reading = group.create_task(reader.read())
        offered = 0
        for life in range(KILLS):
            returned = await victims.live(life, channel)
            for _ in range(MESSAGES_AFTER_EACH):
                await survivor.offer(b"%d %d " % (SURVIVOR, offered), timeout=LIMIT_S)
                offered += 1
            await reader.wait_for(SURVIVOR, offered)
            # What it had offered has come: it lies before what the survivor has offered since.
            assert reader.counts.get(life, 0) - returned in {0, 1}
        # The driver has noticed the death of each, and has freed what it had.
        conductor = driver.conductor
        async with asyncio.timeout(LIMIT_S):
            while timeouts(driver) < KILLS:
                await asyncio.sleep(0.05)
        assert len(conductor.ipc_publications + conductor.network_publications) == 1
        await subscription.aclose()
        await reading


def timeouts(driver: aa.MediaDriver) -> int:
    """Return how many clients the driver has given up."""
    return next(
        each.value
        for each in driver.counters
        if each.type_id == 0 and each.registration_id == SystemCounterId.CLIENT_TIMEOUTS
    )
