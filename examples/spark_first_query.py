"""What an archive holds, as Spark sees it: a line for each recording.

Run it with the directory of an archive: `python examples/spark_first_query.py /var/archive`.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import aeron_async.spark


def summary(spark: SparkSession, directory: str) -> DataFrame:
    """Return how much there is of each recording."""
    recorded = spark.read.format("aeron_archive").load(directory)
    return (
        recorded.groupBy("recording_id", "stream_id")
        .agg(sql.count("*").alias("messages"), sql.sum("length").alias("bytes"))
        .orderBy("recording_id")
    )


def orders(spark: SparkSession, directory: str) -> DataFrame:
    """Return the messages of one stream, with the time that they begin with."""
    return (
        spark.read.format("aeron_archive")
        .option("streamId", 1001)
        .option("timestampFrom", "payload:0:int64:ns")
        .schema("position BIGINT, timestamp TIMESTAMP, payload BINARY")
        .load(directory)
    )


def replayed(spark: SparkSession, control: str) -> DataFrame:
    """Return all that an archive has whose files are not here."""
    return (
        spark.read.format("aeron_archive")
        .option("access", "replay")
        .option("archive.control.channel", control)
        .load()
    )


def main() -> None:
    """Show how much there is of each recording."""
    directory = sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)
    aeron_async.spark.ensure_java()
    aeron_async.spark.ensure_interpreter()
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    aeron_async.spark.register(spark)
    summary(spark, directory).show()
    spark.stop()


if __name__ == "__main__":
    main()
