"""Copies what an archive holds into Parquet files, each message once, and says how far it is.

Run it again to continue: `python examples/spark_follow.py /var/archive /var/lake`.
On a cluster, hand it to `spark-submit`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import aeron_async.spark
from aeron_async.spark import LagListener, QueryLag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def say(lag: QueryLag) -> None:
    """Print an alert."""
    print(f"batch {lag.batch_id}: {lag.total} bytes behind", flush=True)


def follow(spark: SparkSession, archive: str, lake: str) -> StreamingQuery:
    """Start to copy; return what can be waited for."""
    spark.streams.addListener(LagListener(say))
    messages = (
        spark.readStream.format("aeron_archive")
        .option("maxBytesPerTrigger", "256m")
        .option("maxBytesPerPartition", "128m")
        .load(archive)
    )
    return (
        messages.writeStream.format("parquet")
        .option("path", f"{lake}/messages")
        .option("checkpointLocation", f"{lake}/checkpoint")
        # Up to what is there now; `processingTime="1 minute"` runs without end.
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """Copy, and count."""
    if not sys.argv[2:]:
        sys.exit(__doc__)
    aeron_async.spark.ensure_java()
    aeron_async.spark.ensure_interpreter()
    spark = SparkSession.builder.getOrCreate()
    aeron_async.spark.register(spark)
    follow(spark, *sys.argv[1:3]).awaitTermination()
    print(spark.read.parquet(f"{sys.argv[2]}/messages").count(), "messages in all")
    spark.stop()


if __name__ == "__main__":
    main()
