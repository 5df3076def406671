"""The official C driver: one process with a folder of its own, and what its counters say."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.programs import Program, require, running, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Aeron itself puts its folder
TERM_LENGTH: Final = 64 * 1024
"""Short terms, so that every stream rotates many times."""

COUNTER_LINE: Final = re.compile(r"\s*(\d+):\s+([-\d,]+) - (.*)")


class OfficialDriver:
    """A running `aeronmd`, and the programs that are its clients.

    Attributes:
        expected_error_count: Errors that it is meant to have recorded when the test has passed.
    """

    def __init__(self, directory: Path, process: Program) -> None:
        self.directory = directory
        self.process = process
        self.expected_error_count = 0

    def run(self, name: str, *arguments: object) -> AbstractAsyncContextManager[Program]:
        """Run a client of this driver; skip when it is not to be found."""
        require(name)
        return running(name, *arguments, environ={"AERON_DIR": str(self.directory)})

    async def counters(self) -> dict[str, int]:
        """Values by label, as `AeronStat` prints them; labels end where their details begin."""
        async with self.run("AeronStat", "-d", self.directory, "-w", "false") as stat:
            await stat.wait(timeout=10)
        counters: dict[str, int] = {}
        for line in stat.stdout.lines:
            if match := COUNTER_LINE.match(line):
                label = match[3].partition(":")[0]
                counters[label] = counters.get(label, 0) + int(match[2].replace(",", ""))
        return counters

    async def check_nothing_was_wrong(self) -> None:
        """No packet of ours was refused, and no error was recorded but those meant to be."""
        counters = await self.counters()
        for label in ("Invalid packets", "Failed attempts to free log buffers"):
            assert counters[label] == 0, f"{label}: {counters[label]}"
        assert counters["Errors"] == self.expected_error_count, f"Errors: {counters['Errors']}"


@asynccontextmanager
async def official_driver(
    *, idle_sleep: str = "100us", **settings: str
) -> AsyncIterator[OfficialDriver]:
    """Run an `aeronmd` that sleeps between its cycles, and check at the end that all was well.

    Args:
        idle_sleep: How long it sleeps when there is nothing to do.
        settings: Its environment, without the leading `AERON_`.
    """
    require("aeronmd", "AeronStat", "stdbuf")
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="aeron-interop-", dir=parent))
    environ = {
        "DIR": str(directory),
        "DIR_DELETE_ON_START": "1",
        "THREADING_MODE": "SHARED",
        "SHARED_IDLE_STRATEGY": "sleep-ns",
        "SHARED_IDLE_STRATEGY_INIT_ARGS": idle_sleep,
        "TERM_BUFFER_SPARSE_FILE": "1",
        "TERM_BUFFER_LENGTH": str(TERM_LENGTH),
        **settings,
    }
    try:
        async with running(
            "aeronmd", environ={f"AERON_{name}": value for name, value in environ.items()}
        ) as process:
            cnc = directory / "cnc.dat"
            await wait_until(lambda: cnc.exists() and cnc.stat().st_size > 0, "cnc.dat")
            driver = OfficialDriver(directory, process)
            yield driver
            await driver.check_nothing_was_wrong()
            await process.interrupt()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
