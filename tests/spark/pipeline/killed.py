"""Jobs that are killed at each moment of a batch: behind the files, and around each commit.

Each is a process of its own, forked from this one, which has only imported what they need.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aeron_async.spark.lake.commits import DeltaStore, FolderStore
from aeron_async.spark.pipeline.task import BatchTask
from tests.spark.pipeline.local import LocalJob, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["GIVEN", "KilledTask", "ingest"]

GIVEN: Final = {
    "decode": "1001:quotes=struct:<sequence:q,sent:q,price:q",
    "timestamp_from": "reserved",
    "sequence": "quotes=sequence",
    "latency": "quotes=sent..timestamp_ns",
}


class KilledTask:
    """A task whose worker is killed when all its files are written."""

    def __init__(self, **given: Any) -> None:
        self._task = BatchTask(**given)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for each in self._task(batches):
            os.kill(os.getpid(), signal.SIGKILL)
            yield each


KILLED_IN: Final = 1
"""The batch in which a job is killed."""


def ingest(archive: Path, lake: Path, kind: str, first: int, last: int) -> LocalJob:
    """Ingest some of three batches of an archive."""
    job = LocalJob(archive, lake, format=kind, **GIVEN)
    job.begin()
    batches = planned(archive, 3)
    for batch_id in range(first, last + 1):
        # Two plans each, whose rows come from one recording.
        half = len(batches[batch_id]) // 2
        job.process(batch_id, batches[batch_id][:half], batches[batch_id][half:])
    return job


def kill_at(moment: int) -> None:
    """Kill this process before a commit if the moment is even, behind one if it is odd."""
    seen = -1

    def killing(commit: Callable[..., None]) -> Callable[..., None]:
        def replaced(*given: object, **more: object) -> None:
            nonlocal seen
            for work in (None, commit):
                if work is not None:
                    work(*given, **more)
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        return replaced

    for store in (DeltaStore, FolderStore):
        store.commit = killing(store.commit)  # type: ignore[method-assign] # for this process


def main(archive: Path, folder: Path, kind: str, step: int) -> None:
    """Print the first moment that a job never came to; each moment has a lake of its own."""
    moment = 0
    while True:
        pid = os.fork()
        if not pid:
            ingest(archive, folder / str(moment), kind, 0, KILLED_IN - 1)
            kill_at(moment)
            ingest(archive, folder / str(moment), kind, KILLED_IN, KILLED_IN)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        moment += step
    sys.stdout.write(f"{moment}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
