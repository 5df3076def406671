"""A pipeline job without Spark: tasks run in this process, one after the other."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pyarrow as pa

from aeron_async.spark.columns import default_columns
from aeron_async.spark.lake.commits import DeltaStore
from aeron_async.spark.lake.places import LocalPlace
from aeron_async.spark.lake.tables import Lake, gold
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline.job import BatchReport, BatchWork, PipelineJob, with_batch
from aeron_async.spark.pipeline.query import source_options
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.silver import kinds_of
from aeron_async.spark.pipeline.task import BatchTask, TaskResult, run_plan
from aeron_async.spark.planning import partitions_of, plan_batch
from aeron_async.spark.ranges import ScanSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from aeron_async.spark.lake.places import LakePlace
    from aeron_async.spark.ranges import RecordingRange

__all__ = ["LocalJob", "Plans", "planned", "ran", "write_gold"]


class Plans:
    """The rows of a batch, as Spark would hand them to a job."""

    def __init__(self, groups: Sequence[Sequence[RecordingRange]]) -> None:
        self._rows = pa.table({"plan": [pickle.dumps(tuple(each)) for each in groups]})

    def mapInArrow(self, task: Any, _schema: str) -> Plans:  # noqa: N802 - Spark's name
        # A task has been sent to other processes.
        sent = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own
        plans = Plans([])
        plans._rows = pa.Table.from_batches(
            sent(self._rows.to_batches()), pa.schema([("result", pa.binary())])
        )
        return plans

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return self._rows


def planned(archive: Path | str, parts: int = 1, **source: str) -> list[tuple[RecordingRange, ...]]:
    """Return an archive as so many batches."""
    options = ArchiveOptions.parse({"path": str(archive), **source})
    groups = list(partitions_of(plan_batch(options), max_bytes=1, min_partitions=None))
    size = max(-(-len(groups) // parts), 1)
    return [
        tuple(part for group in groups[at : at + size] for part in group)
        for at in range(0, len(groups), size)
    ]


def ran(
    archive: Path,
    folder: Path,
    parts: Sequence[RecordingRange] | None = None,
    **given: Any,
) -> TaskResult:
    """Return what a task makes of an archive."""
    settings = PipelineSettings.parse(given)
    options = ArchiveOptions.parse(source_options(archive, settings))
    tables = ["bronze", "quarantine", *(f"silver/{kind}" for kind in settings.kinds)]
    task = BatchTask(
        batch=0,
        scan=ScanSettings(options, default_columns(options)),
        settings=settings,
        kinds=tuple(kinds_of(settings)),
        folders={each: LocalPlace(folder / each) for each in tables},
    )
    return run_plan(task, plan_batch(options) if parts is None else parts, 0)


class LocalJob:
    """A job on a lake, whose batches a test decides."""

    def __init__(
        self, archive: str | Path, lake: str | Path | LakePlace, query: str = "q", **given: Any
    ) -> None:
        self.lake = Lake(lake)
        self.reports: list[BatchReport] = []
        settings = PipelineSettings.parse(given)
        self.job = PipelineJob(archive, self.lake, settings, self.reports.append)
        self._query = query

    def begin(self, *, take_over: bool = False) -> dict[str, str]:
        """Begin as `run` does, and write what Spark writes into its checkpoint."""
        options = self.job.begin(take_over=take_over)
        self.lake.checkpoint.mkdir(parents=True, exist_ok=True)
        path = self.lake.checkpoint / "metadata"
        if not path.exists():
            path.write_text(json.dumps({"id": self._query}))
        return options

    def process(self, batch_id: int, *groups: Sequence[RecordingRange]) -> None:
        self.job.process(cast("DataFrame", Plans(groups)), batch_id)


def write_gold(lake: Lake, table: str, rows: pa.Table, batch: int = 0) -> None:
    """Write rows to a table of results; those of batch 0 replace all."""
    store = DeltaStore(lake)
    store.query = uuid4().hex
    store.prepare(gold(table), with_batch(rows.schema))
    BatchWork(store, batch, {gold(table)}).write(gold(table), rows, replace=not batch)
