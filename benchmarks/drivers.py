"""Media drivers with an Aeron directory of their own, for the clients of other processes.

Every measurement has a fresh driver: what clients of the last one have left behind, such as streams
that still linger, costs the next one nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.cli.bench_processes import BenchError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterator

__all__ = ["Served", "aeron_directory", "our_driver", "wait_until_served", "why_absent"]

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Aeron itself puts its folder
START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0
LOOK_INTERVAL_S: Final = 0.02


@attrs.frozen(kw_only=True)
class Served:
    """A driver that runs.

    Attributes:
        directory: Its Aeron directory.
        pid: Its process.
    """

    directory: Path
    pid: int


def why_absent() -> str:
    """Return why no driver of ours can serve other processes here; empty if it can."""
    if sys.platform != "linux":
        return "shared memory needs Linux"
    return "" if WHY_PURE is None else f"shared memory needs compiled code: {WHY_PURE}"


@contextmanager
def aeron_directory() -> Iterator[Path]:
    """Yield a place in memory for an Aeron directory; it is removed with the block."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="aeron-bench-", dir=parent))
    try:
        yield place / "aeron"
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def wait_until_served(directory: Path, process: Process) -> None:
    """Wait until a driver has made its directory; its clients wait for the rest.

    Raises:
        BenchError: It has ended, or takes too long.
    """
    end_s = time.monotonic() + START_TIMEOUT_S
    while not (directory / "cnc.dat").exists():
        if process.returncode is not None or time.monotonic() > end_s:
            message = f"the driver made no cnc.dat; exit code {process.returncode}"
            raise BenchError(message)
        await asyncio.sleep(LOOK_INTERVAL_S)


def pinned(core: int) -> tuple[str, ...]:
    """Return what a command line begins with that runs on one core."""
    return ("taskset", "--cpu-list", str(core))


def why_not_pinned() -> str:
    """Return why processes cannot be given two cores; empty if they can."""
    if shutil.which("taskset") is None:
        return "not found: taskset"
    return "" if len(os.sched_getaffinity(0)) > 1 else "needs two cores"


@asynccontextmanager
async def our_driver(*before: str) -> AsyncIterator[Served]:
    """Run `aeron-async driver` with its default settings.

    Args:
        *before: What its command line begins with, such as that of `pinned`.

    Raises:
        BenchError: It does not start.
    """
    with aeron_directory() as directory, tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *(*before, sys.executable, "-m", "aeron_async"),
            *("driver", "--directory", str(directory)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            try:
                await wait_until_served(directory, process)
            except BenchError as error:
                output.seek(0)
                said = output.read().decode("utf-8", "replace").strip() or "it said nothing"
                message = f"{error}: {said}"
                raise BenchError(message) from None
            yield Served(directory=directory, pid=process.pid)
        finally:
            await end(process)


async def end(process: Process) -> None:
    """Ask a process to end, and see to it that it does."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
