"""Kills a sink in the middle of a batch, from within the query that feeds it.

Spark's workers import this module by name: it holds nothing of the tests.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

PATIENCE_S = 60
PAGE = 4_096
WRITTEN = 4 * PAGE
"""Bytes of a recording, of which a reader leaves out the last page at most."""


def killer_of(
    archives: str, flag: str, after: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that lets rows through, and kills once.

    Args:
        archives: Below it the sink records.
        flag: A file that is there once the sink was killed.
        after: Rows of a task; so many that Spark has handed some to the sink.
    """

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row_count = 0
        for batch in batches:
            if row_count >= after and not Path(flag).exists():
                kill_writers(archives)
                Path(flag).touch()
            row_count += batch.num_rows
            yield batch

    return through


def kill_writers(archives: str) -> None:
    """Kill who has recorded something and has it open still."""
    deadline = time.monotonic() + PATIENCE_S
    # A worker is the child of a daemon, of which the JVM may have several.
    daemon = psutil.Process(os.getppid())
    jvm = daemon.parent() or daemon
    while time.monotonic() < deadline:
        for process in jvm.children(recursive=True):
            if process.pid != os.getpid() and has_recorded(process, archives):
                os.kill(process.pid, signal.SIGKILL)
                return
        time.sleep(0.01)
    message = f"nobody records below {archives}"
    raise TimeoutError(message)


def has_recorded(process: psutil.Process, archives: str) -> bool:
    try:
        paths = [Path(each.path) for each in process.open_files()]
    except psutil.Error:
        return False
    recordings = [each for each in paths if each.suffix == ".rec" and archives in str(each)]
    return any(is_written(each) for each in recordings)


def is_written(recording: Path) -> bool:
    """Return whether there is more than a reader would leave out as torn."""
    with recording.open("rb") as file:
        file.seek(WRITTEN)
        return any(file.read(PAGE))
