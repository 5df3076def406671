"""What a batch must know of those before it: the last run of each recording.

It is kept beside the tables, so that a batch costs the same however many there were. What is not
kept is read from the runs themselves: those of batches since, or all.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.spark.pipeline.gold import RUNS
from aeron_async.spark.pipeline.lake import write_atomically
from aeron_async.spark.pipeline.runs import Run
from aeron_async.spark.pipeline.tables import read_folders

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from aeron_async.spark.pipeline.lake import Lake

__all__ = ["Edges", "last_runs"]

NAME: Final = re.compile(r"(\d{1,19})\.json")


def last_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the run that ends last of each recording, and of each number that counts messages."""
    found: dict[tuple[int, str], Run] = {}
    for run in runs:
        key = run.recording_id, run.name
        if key not in found or run.end_position > found[key].end_position:
            found[key] = run
    return list(found.values())


@final
class Edges:
    """Keeps the last runs of a lake, after each batch.

    Args:
        lake: Whose runs they are.
    """

    def __init__(self, lake: Lake) -> None:
        self._runs = lake.gold("runs")
        self._folder = lake.root / "_state" / "edges"

    def before(self, batch_id: int) -> list[Run]:
        """Return the last runs of all batches before one."""
        kept = [each for each in self._kept() if each < batch_id]
        last, known = -1, []
        for each in reversed(kept):
            read = read_runs(self._path(each))
            if read is not None:
                last, known = each, read
                break
        rows = read_folders(self._runs, RUNS, before=batch_id, after=last)
        return last_runs([*known, *(Run(**row) for row in rows.to_pylist())])

    def keep(self, batch_id: int, runs: Iterable[Run], recordings: Container[int]) -> None:
        """Keep what the next batch must know.

        Args:
            batch_id: Of the batch that is in the lake by now.
            runs: Of it, and the last ones before it.
            recordings: Those that are there; nothing can follow on others.
        """
        found = [attrs.asdict(run) for run in last_runs(runs) if run.recording_id in recordings]
        write_atomically(self._path(batch_id), json.dumps(found).encode())
        # The one before stays, for this batch may be done again.
        for each in [each for each in self._kept() if each < batch_id][:-1]:
            self._path(each).unlink()

    def _kept(self) -> list[int]:
        """Return after which batches something was kept, in order."""
        if not self._folder.is_dir():
            return []
        matches = [NAME.fullmatch(each.name) for each in self._folder.iterdir()]
        return sorted(int(match[1]) for match in matches if match is not None)

    def _path(self, batch_id: int) -> Path:
        return self._folder / f"{batch_id}.json"


def read_runs(path: Path) -> list[Run] | None:
    """Return what was kept; None if another version has kept it, or nobody has finished it."""
    try:
        return [Run(**each) for each in json.loads(path.read_bytes())]
    except (TypeError, ValueError):
        return None
