"""Bronze: one row for each message, as it was recorded, and the batch that it came with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = ["BRONZE_COLUMNS", "bronze", "source_options"]

BRONZE_COLUMNS: Final = (
    "recording_id",
    "position",
    "end_position",
    "session_id",
    "stream_id",
    "channel",
    "reserved_value",
    "timestamp",
    "timestamp_ns",
    "length",
    "payload",
)


def source_options(archive: Path, settings: PipelineSettings) -> dict[str, str]:
    """Return the options of `aeron_archive` that a pipeline reads with."""
    options = {"path": str(archive), "columns": ",".join(BRONZE_COLUMNS), **settings.source}
    if settings.timestamp_from is not None:
        options["timestampFrom"] = settings.timestamp_from
    return options


def bronze(frame: DataFrame, batch_id: int) -> DataFrame:
    """Return the rows of a batch as bronze keeps them, be they of a query or of a stream."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it

    return frame.withColumn("ingest_batch", F.lit(batch_id).cast("bigint"))
