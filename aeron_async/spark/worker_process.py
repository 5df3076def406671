"""What a worker of Spark spares between its tasks: waiting, and collecting what is no garbage.

Together they were 80 ms of each task, as long as reading 50 MB takes.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext

__all__ = ["SentToWorkers", "acknowledge", "settle"]

OPEN_FILES: Final = Path("/proc/self/fd")
QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class SentToWorkers:
    """Base of what Spark sends to workers, and what they do when it has come."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Acknowledge at once what has come for a task; nothing where this is no worker of Spark.

    Spark sends a task in two pieces, and holds the second, which says what to read, until the first
    is acknowledged (Nagle's algorithm); the kernel waits up to 40 ms with that, for something to go
    back with it. Unpickling what is in the first is the moment between the two. Its socket is not
    told to those that are called, so it is all of them, of this process.
    """
    if QUICK_ACK is None or TaskContext.get() is None:
        return
    for each in OPEN_FILES.iterdir():
        # One of them is the listing's own, which is closed by the time it is asked about.
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                with socket.socket(fileno=os.dup(int(each.name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)


def settle() -> None:
    """Spare what has been imported from collection, once in a worker; nothing elsewhere.

    Spark collects after each task, and walks what belongs to modules each time, 40 ms: they are no
    garbage, and never will be. The first task has imported what others need.

    Source: `pyspark.daemon`.
    """
    if TaskContext.get() is None or gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()
