"""Numbers that count messages are compared in the order of positions, whatever day each is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.job import PARTITIONS
from aeron_async.spark.pipeline.runs import GapKind
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.silver import KEPT, kinds_of, silver
from aeron_async.spark.pipeline.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LENGTH = 64
COUNT = 40
DAY_NS = 86_400 * 10**9
LOST = 23
GIVEN = {"decode": "7:quotes=struct:<sequence:q,sent:q", "event_time": "quotes=sent:ns"}


def test_days_that_alternate_are_no_gaps(spark: SparkSession, tmp_path: Path) -> None:
    settings = PipelineSettings.parse(GIVEN)
    numbers = [each for each in range(COUNT) if each != LOST]
    rows = {
        "recording_id": [3] * len(numbers),
        "session_id": [1] * len(numbers),
        "stream_id": [7] * len(numbers),
        "position": [row * LENGTH for row in range(len(numbers))],
        "end_position": [(row + 1) * LENGTH for row in range(len(numbers))],
        "timestamp_ns": [20 * DAY_NS + each for each in numbers],
        "ingest_batch": [0] * len(numbers),
        "sequence": numbers,
        # The clock of who has sent them is about midnight, and goes to and fro.
        "sent": [(20 + each % 3 % 2) * DAY_NS for each in numbers],
        "decode_error": pa.nulls(len(numbers), pa.string()),
        "event_ns": [20 * DAY_NS] * len(numbers),
    }
    assert set(KEPT) < set(rows)
    types = {"session_id": pa.int32(), "stream_id": pa.int32()}
    frame = spark.createDataFrame(
        pa.table({name: pa.array(each, types.get(name)) for name, each in rows.items()})
    )
    tables, table = Tables(spark, settings), tmp_path / "silver" / "quotes"
    tables.write(silver(frame, kinds_of(settings)[0], 2), table, 0, PARTITIONS)
    written = tables.read_batch(table, 0)
    assert written.select("date").distinct().count() > 1
    lengths = {3: 1 << 16}
    found = gold.summary(written, lengths, "quotes.sequence", "sequence")
    runs, gaps = gold.stitched(found, [], lengths)
    assert [(each.kind, each.missing) for each in gaps] == [(GapKind.SEQUENCE, 1)]
    assert [(each.messages, each.gaps) for each in runs] == [(COUNT - 1, 1)]
    assert (runs[0].first_number, runs[0].last_number) == (0, COUNT - 1)
