"""Java clients and the Java driver beside those of C and ours, in all combinations.

Each cell has a publisher, a subscriber and a driver, at least one of them Java's;
`test_one_directory` has the others. AERON_ASYNC_DIRECTORY_MESSAGES is how many messages each cell
exchanges.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, offer, take
from tests.interop.official import SHARED_MEMORY, TERM_LENGTH, official_driver
from tests.interop.official_archive import java_arguments
from tests.interop.programs import running, wait_until
from tests.interop.shared import client_of
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = needs_compiled

SOURCE: Final = Path(__file__).with_name("DirectoryClient.java")
COUNT: Final = int(os.environ.get("AERON_ASYNC_DIRECTORY_MESSAGES", "2000"))
KINDS: Final = ("ours", "c", "java")
CELLS: Final = [cell for cell in product(KINDS, repeat=3) if "java" in cell]
TIMEOUT_S: Final = 60 + COUNT / 500


@asynccontextmanager
async def java_driver() -> AsyncIterator[Path]:
    """Run the Java driver; yield its directory."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="aeron-interop-", dir=parent))
    properties = {
        "aeron.dir": directory,
        "aeron.dir.delete.on.start": "true",
        "aeron.threading.mode": "SHARED",
        "aeron.shared.idle.strategy": "org.agrona.concurrent.BackoffIdleStrategy",
        "aeron.term.buffer.sparse.file": "true",
        "aeron.term.buffer.length": TERM_LENGTH,
        "aeron.ipc.term.buffer.length": TERM_LENGTH,
    }
    try:
        async with running(
            "java",
            *java_arguments(),
            *(f"-D{key}={value}" for key, value in properties.items()),
            "io.aeron.driver.MediaDriver",
        ) as process:
            cnc = directory / "cnc.dat"
            await wait_until(lambda: cnc.exists() and cnc.stat().st_size > 0, "cnc.dat")
            yield directory
            await process.interrupt()
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


@asynccontextmanager
async def driver_of(kind: str, tmp_path: Path) -> AsyncIterator[Path]:
    """Run a driver; yield its directory."""
    if kind == "java":
        async with java_driver() as directory:
            yield directory
    elif kind == "c":
        async with official_driver() as driver:
            yield driver.directory
    else:
        directory = tmp_path / "aeron"
        context = aa.DriverContext(
            aeron_directory=str(directory),
            term_buffer_length=TERM_LENGTH,
            ipc_term_buffer_length=TERM_LENGTH,
        )
        async with aa.MediaDriver.launch(context):
            yield directory


async def run_java(
    what: str, directory: Path, channel: str, ready: asyncio.Event | None = None
) -> None:
    """Run a Java client until it has offered, or taken and checked, all messages."""
    arguments = (*java_arguments(), SOURCE, what, directory, channel, STREAM_ID, COUNT)
    async with running("java", *arguments) as program:
        if ready is not None:
            await program.wait_for("subscribed", timeout=TIMEOUT_S)
            ready.set()
        await program.wait_for("done", timeout=TIMEOUT_S)
        assert await program.wait(timeout=TIMEOUT_S) == 0


async def publish(kind: str, directory: Path, channel: str) -> None:
    """Offer all messages, and stay until the subscriber has left."""
    if kind == "java":
        await run_java("publish", directory, channel)
        return
    async with client_of("ours" if kind == "ours" else "official", directory) as client:
        publication = await client.add_publication(channel, STREAM_ID)
        for number in range(COUNT):
            await offer(publication, number)
        while publication.is_connected:
            await asyncio.sleep(0.01)


async def subscribe(kind: str, directory: Path, channel: str, ready: asyncio.Event) -> None:
    """Take and check all messages, and leave."""
    if kind == "java":
        await run_java("subscribe", directory, channel, ready)
        return
    async with client_of("ours" if kind == "ours" else "official", directory) as client:
        subscription = await client.add_subscription(channel, STREAM_ID)
        ready.set()
        await take(subscription, range(COUNT))


@pytest.mark.parametrize("medium", ["ipc", "udp"])
@pytest.mark.parametrize(
    ("publisher", "subscriber", "driver"), CELLS, ids=[" ".join(cell) for cell in CELLS]
)
async def test_every_cell_with_java_exchanges_all_messages(
    tmp_path: Path, channel: str, publisher: str, subscriber: str, driver: str, medium: str
) -> None:
    channel = "aeron:ipc?term-length=64k" if medium == "ipc" else f"{channel}|term-length=64k"
    java_arguments()
    async with (
        driver_of(driver, tmp_path) as directory,
        asyncio.timeout(TIMEOUT_S),
        asyncio.TaskGroup() as group,
    ):
        ready = asyncio.Event()
        group.create_task(subscribe(subscriber, directory, channel, ready))
        await ready.wait()
        group.create_task(publish(publisher, directory, channel))
