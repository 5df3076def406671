"""What was lost, and what came late, in an archive: cell by cell, as in a notebook.

Run it with the directory of an archive: `python examples/archive_outliers.py /var/archive`.
Here a message says its number and when it was sent, and the recorded channel had
`media-rcv-ts-offset=reserved`, so that each frame says when it arrived.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

import aeron_async.spark
from aeron_async.spark.pipeline.sample import SPEC


# %% The messages, with columns of their own.
def messages(spark: SparkSession, archive: str) -> DataFrame:
    """Return what could be decoded."""
    source = spark.read.format("aeron_archive").options(decoder=SPEC, timestampFrom="reserved")
    return source.option("streamId", "1001").load(archive).where("decode_error is null")


# %% Numbers that were never recorded.
def losses(rows: DataFrame) -> DataFrame:
    """Return how many numbers are missing before which message."""
    before = sql.lag("sequence").over(Window.partitionBy("recording_id").orderBy("position"))
    found = rows.withColumn("missing", rows["sequence"] - before - 1)
    return found.where("missing > 0").select("recording_id", "position", "timestamp", "missing")


# %% Messages that took more than ten times the median, the slowest first.
def late(rows: DataFrame) -> DataFrame:
    """Return the latest messages, with the time that each took."""
    timed = rows.withColumn("latency_ns", rows["timestamp_ns"] - rows["sent_ns"])
    usual = timed.groupBy("recording_id").agg(sql.median("latency_ns").alias("usual_ns"))
    found = timed.join(usual, "recording_id").where("latency_ns > 10 * usual_ns")
    columns = ("recording_id", "position", "timestamp", "latency_ns", "usual_ns")
    return found.select(*columns).orderBy(sql.desc("latency_ns"))


# %% Both, for one archive.
if __name__ == "__main__":
    directory = sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)
    aeron_async.spark.ensure_java()
    aeron_async.spark.ensure_interpreter()
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    aeron_async.spark.register(spark)
    losses(messages(spark, directory)).show(truncate=False)
    late(messages(spark, directory)).show(truncate=False)
    spark.stop()
