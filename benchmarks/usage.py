"""What another process uses, as Linux tells it in /proc: processor time, and memory.

Processor time is in nanoseconds, of all threads that there are: the ticks of /proc/PID/stat are too
long for a process that uses a thousandth of a core.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.cli.bench_processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cpu_s", "memory_mb", "shares_of"]

PROC: Final = Path("/proc")
KIB: Final = 1024


def cpu_s(pid: int) -> float:
    """Return the processor time of the threads of a process so far, in seconds.

    Raises:
        BenchError: The process has ended.
    """
    try:
        tasks = [each.read_text() for each in (PROC / str(pid) / "task").glob("*/schedstat")]
    except OSError:
        tasks = []
    if not tasks:
        message = f"process {pid} has ended, or the system tells nothing of it"
        raise BenchError(message)
    return sum(int(each.split()[0]) for each in tasks) / 1e9


async def shares_of(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Return the percentages of one core that processes use for so long, by their names.

    Raises:
        BenchError: One of them has ended.
    """
    started_s = time.perf_counter()
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    await asyncio.sleep(seconds)
    elapsed_s = time.perf_counter() - started_s
    return {name: 100 * (cpu_s(pid) - before[name]) / elapsed_s for name, pid in pids.items()}


def memory_mb(pid: int) -> dict[str, float]:
    """Return the memory of a process in MB: `pss_mb` shares what others use too, `rss_mb` does not.

    Raises:
        BenchError: The process has ended.
    """
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError as error:
        message = f"the memory of process {pid} cannot be read: {error}"
        raise BenchError(message) from None
    fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
    return {
        f"{name.lower()}_mb": int(fields[name].split()[0]) * KIB / 1e6 for name in ("Rss", "Pss")
    }
