"""Tables and streaming queries of Spark, published on Aeron streams.

Run it with a channel, while `aeron-async sub CHANNEL --stream 1001` listens.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

import aeron_async.spark
from aeron_async.spark.sink import CommittedRows, committed_rows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def publish(table: DataFrame, channel: str) -> None:
    """Publish every row of a table, and wait until all subscribers have taken them."""
    rows = table.selectExpr("CAST(id AS STRING) AS text").selectExpr("CAST(text AS BINARY) payload")
    rows.write.format("aeron").mode("append").options(channel=channel, streamId=1001).save()


def publish_once(rows: DataFrame, channel: str, archives: str, checkpoint: str) -> StreamingQuery:
    """Publish what a streaming query brings, recorded so that each row is there once."""
    return (
        rows.writeStream.format("aeron")
        .options(channel=channel, streamId=1001, delivery="effectively-once")
        .option("archive.path", archives)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def read_back(spark: SparkSession, directory: str) -> DataFrame:
    """Return the rows of closed batches in one partition's archive."""
    frames = spark.read.format("aeron_archive").option("includeHeaders", "true")
    return committed_rows(frames.load(directory))


def print_committed(messages: list[tuple[int, bytes]]) -> None:
    """Print rows as their batches are closed; a message is a reserved value and a payload."""
    committed = CommittedRows()
    for reserved_value, payload in messages:
        for row in committed.feed(reserved_value, payload):
            print(row.decode())


if __name__ == "__main__":
    channel = sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)
    aeron_async.spark.ensure_java()
    aeron_async.spark.ensure_interpreter()
    session = SparkSession.builder.master("local[2]").getOrCreate()
    aeron_async.spark.register(session)
    publish(session.range(1_000), channel)
    session.stop()
