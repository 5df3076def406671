"""Committed rows of a table that `aeron_archive` has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.identity import (
    BATCH_SHIFT,
    INDEX_BITS,
    MARKER_INDEX,
    PARTITION_BITS,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["committed_rows"]

PARTITION_MASK: Final = (1 << PARTITION_BITS) - 1
NAMES: Final = ("batch_id", "partition_id", "row_index")


def committed_rows(table: DataFrame) -> DataFrame:
    """Return each committed row once, with batch, partition and index as columns.

    Args:
        table: Recordings of one query, with the column `reserved_value`: read with
            `includeHeaders=true`, or with `columns` that name it. Not a streaming table.

    Raises:
        ConfigurationError: The column is missing, or the table is a streaming one.
    """
    if "reserved_value" not in table.columns:
        message = "no column reserved_value: read with includeHeaders=true"
        raise ConfigurationError(message)
    if table.isStreaming:
        message = "a streaming table: feed the rows to CommittedRows in foreachBatch"
        raise ConfigurationError(message)
    value = functions.col("reserved_value")
    known = table.withColumns(
        {
            "batch_id": functions.shiftrightunsigned(value, BATCH_SHIFT).cast("int"),
            "partition_id": functions.shiftrightunsigned(value, INDEX_BITS)
            .bitwiseAND(functions.lit(PARTITION_MASK))
            .cast("int"),
            "row_index": value.bitwiseAND(functions.lit(MARKER_INDEX)).cast("int"),
        }
    )
    is_marker = functions.col("row_index") == MARKER_INDEX
    group = list(NAMES[:2])
    closed = known.where(is_marker).select(*group).distinct()
    rows = known.where(~is_marker).dropDuplicates(["reserved_value"])
    return rows.join(closed, group, "left_semi")
