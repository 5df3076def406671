"""The official Java archive with its driver: one process, one directory of recordings.

AERON_JAVA is the classpath of Agrona and of Aeron's client, driver and archive, as Java wants it;
without it every test that needs the archive is skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.archive.control.client import RemoteArchive
from tests.interop.official import SHARED_MEMORY
from tests.interop.programs import require, running, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aeron_async as aa
    from tests.interop.programs import Program

OPEN: Final = "--add-opens=java.base/{0}=ALL-UNNAMED"
EXPORT: Final = "--add-exports=java.base/{0}=ALL-UNNAMED"
PACKAGES: Final = ("jdk.internal.misc", "sun.nio.ch")
SEGMENT_LENGTH: Final = 65_536


def java_arguments() -> tuple[str, ...]:
    """What Java needs before the name of a class; skip where there is no archive."""
    classpath = os.environ.get("AERON_JAVA", "")
    if not classpath:
        pytest.skip("no official archive: set AERON_JAVA to its classpath")
    require("java", "stdbuf")
    opened = [text.format(package) for package in PACKAGES for text in (OPEN, EXPORT)]
    return (*opened, "-XX:TieredStopAtLevel=1", "-cp", classpath)


class OfficialArchive:
    """A running archive, where it hears requests, and the directory of its driver."""

    def __init__(
        self, directory: Path, control_channel: str, process: Program, aeron_directory: Path
    ) -> None:
        self.aeron_directory = aeron_directory
        self.directory = directory
        self.control_channel = control_channel
        self.process = process

    def connect(self, aeron: aa.Aeron, **options: Any) -> RemoteArchive:
        return RemoteArchive.connect(
            aeron,
            control_channel=self.control_channel,
            timeout=20.0,
            **options,
        )


@asynccontextmanager
async def official_archive(
    directory: Path,
    unused_udp_port_factory: Callable[[], int],
    *,
    driver_directory: Path | None = None,
    **settings: str,
) -> AsyncIterator[OfficialArchive]:
    """Run an archive over a directory, until the block is left.

    Args:
        directory: Of recordings.
        unused_udp_port_factory: Chooses where requests are heard.
        driver_directory: Of the driver that it uses; None for one of its own.
        settings: Its properties, without the leading `aeron.archive.`, dots as underscores.
    """
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    own_directory = Path(tempfile.mkdtemp(prefix="aeron-interop-", dir=parent))
    aeron_directory = own_directory if driver_directory is None else driver_directory
    control = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    properties = {
        "aeron.dir": str(aeron_directory),
        "aeron.dir.delete.on.start": "true",
        "aeron.threading.mode": "SHARED",
        "aeron.term.buffer.sparse.file": "true",
        "aeron.term.buffer.length": "65536",
        "aeron.ipc.term.buffer.length": "65536",
        "aeron.archive.threading.mode": "SHARED",
        "aeron.archive.dir": str(directory),
        "aeron.archive.segment.file.length": str(SEGMENT_LENGTH),
        "aeron.archive.control.channel": control,
        "aeron.archive.replication.channel": "aeron:udp?endpoint=localhost:0",
    }
    properties |= {f"aeron.archive.{key.replace('_', '.')}": each for key, each in settings.items()}
    try:
        async with running(
            "java",
            *java_arguments(),
            *(f"-D{key}={value}" for key, value in properties.items()),
            f"io.aeron.archive.{'Archive' if driver_directory else 'ArchivingMediaDriver'}",
        ) as process:
            mark = directory / "archive-mark.dat"
            await wait_until(mark.exists, "archive-mark.dat")
            yield OfficialArchive(directory, control, process, aeron_directory)
            await process.interrupt()
    finally:
        await asyncio.to_thread(shutil.rmtree, own_directory, ignore_errors=True)
