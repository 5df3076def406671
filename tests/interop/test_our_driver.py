"""Official clients of a driver of ours, in processes of its own and theirs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from aeron_async.aeron_directory import AeronDirectory
from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.libaeron import official_client
from tests.interop.official import SHARED_MEMORY, OfficialDriver
from tests.interop.programs import Program, require, running, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COUNT: Final = 10_000
LONGEST: Final = 4_000


@pytest.fixture
async def driver() -> AsyncIterator[OfficialDriver]:
    """Our driver, started as `aeronmd` is; the official tool ends it."""
    require("DriverTool", "AeronStat", "stdbuf")
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="aeron-ours-", dir=parent))
    settings = {
        "AERON_DIR": str(directory),
        "AERON_DIR_DELETE_ON_SHUTDOWN": "true",
        "AERON_DRIVER_TERMINATION_VALIDATOR": "allow",
        "AERON_TERM_BUFFER_LENGTH": "64k",
        "AERON_IPC_TERM_BUFFER_LENGTH": "64k",
    }
    command = (sys.executable, "-m", "aeron_async", "driver")
    try:
        async with running(*command, environ=settings) as process:
            await wait_until(lambda: is_served(directory, process), "the driver")
            driver = OfficialDriver(directory, process)
            yield driver
            await driver.check_nothing_was_wrong()
            async with driver.run("DriverTool", "-d", directory, "-T") as tool:
                await tool.wait(timeout=10)
            assert await process.wait(timeout=10) == 0
            assert (process.stdout.lines, process.stderr.lines) == ([], [])
            await wait_until(lambda: not directory.exists(), "the removal of the directory")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def is_served(directory: Path, process: Program) -> bool:
    assert process.is_running, process.stderr.lines
    found = AeronDirectory.try_open(directory)
    if not isinstance(found, AeronDirectory):
        return False
    with found:
        return found.heartbeat_ms > 0


async def test_official_processes_exchange_messages_over_udp(
    driver: OfficialDriver, channel: str
) -> None:
    stream = (channel, STREAM_ID, COUNT, 0, LONGEST)
    async with (
        driver.run("checked_subscriber", *stream) as subscriber,
        driver.run("checked_publisher", *stream) as publisher,
    ):
        assert await publisher.wait(timeout=60) == 0
        assert await subscriber.wait(timeout=60) == 0
    assert any(line.startswith(f"OK {COUNT} ") for line in subscriber.stdout.lines)


@pytest.mark.parametrize("kind", ["ipc", "udp"])
async def test_official_clients_exchange_messages(
    driver: OfficialDriver, channel: str, kind: str
) -> None:
    channel = "aeron:ipc" if kind == "ipc" else channel
    async with official_client(driver) as publisher, official_client(driver) as subscriber:
        subscription = await subscriber.add_subscription(channel, STREAM_ID)
        publication = await publisher.add_publication(channel, STREAM_ID)
        await exchange(publication, [subscription], range(COUNT))


async def test_the_samples_meet_over_ipc(driver: OfficialDriver) -> None:
    where = ("-c", "aeron:ipc", "-s", STREAM_ID)
    async with (
        driver.run("basic_subscriber", *where) as subscriber,
        driver.run("basic_publisher", *where, "-m", 3) as publisher,
    ):
        await publisher.wait_for("Done sending.")
        for number in range(3):
            await subscriber.wait_for(f"<<Hello World! {number}>>")
