"""Follows an archive into Parquet files, or onto a stream, until it is killed or at the end."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from aeron_async.spark.java import ensure_interpreter, ensure_java

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[3]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a query is told: by a list, or on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("archive")
    parser.add_argument("target", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--bytes", default="1m")
    # As small as terms, so that a batch has several partitions and every executor has work.
    parser.add_argument("--partition-bytes", default="256k")
    parser.add_argument("--to-the-end", action="store_true")
    parser.add_argument("--pipeline", action="store_true")
    parser.add_argument("--publish", nargs=3, metavar=("CHANNEL", "STREAM", "CONTROL"))
    return parser.parse_args(arguments)


def started(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Return the query, begun in a session."""
    from aeron_async.spark import register  # noqa: PLC0415 - Java is found first

    if given.pipeline:
        return pipeline(spark, given)
    register(spark)
    frame = (
        spark.readStream.format("aeron_archive")
        .option("maxBytesPerTrigger", given.bytes)
        .option("maxBytesPerPartition", given.partition_bytes)
        .load(given.archive)
    )
    if given.publish:
        channel, stream_id, control = given.publish
        writer = (
            frame.select("payload")
            .writeStream.format("aeron")
            .options(channel=channel, streamId=stream_id, delivery="effectively-once")
            .option("archive.control.channel", control)
        )
    else:
        writer = (
            frame.select("recording_id", "position", "end_position", "payload")
            .writeStream.format("parquet")
            .option("path", str(given.target / "out"))
        )
    writer = writer.option("checkpointLocation", str(given.target / "checkpoint"))
    return (writer.trigger(availableNow=True) if given.to_the_end else writer).start()


def pipeline(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Return the query of a pipeline's job, begun in a session."""
    from aeron_async.spark.lake.tables import Lake  # noqa: PLC0415 - Java is found first
    from aeron_async.spark.pipeline.job import PipelineJob  # noqa: PLC0415 - as above
    from aeron_async.spark.pipeline.query import start_query  # noqa: PLC0415 - as above
    from aeron_async.spark.pipeline.settings import PipelineSettings  # noqa: PLC0415 - as above

    limits = {"maxBytesPerTrigger": given.bytes, "maxBytesPerPartition": given.partition_bytes}
    decode, sequence = "10:numbers=struct:<number:q", "numbers=number"
    settings = PipelineSettings.parse({"decode": decode, "sequence": sequence, "source": limits})
    lake = Lake(given.target)
    job = PipelineJob(Path(given.archive), lake, settings, lambda _: None)
    trigger = None if given.to_the_end else 1
    return start_query(spark, job.begin(), lake.checkpoint, trigger, job.process)


def main() -> None:
    given = parsed()
    ensure_java()
    ensure_interpreter()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Java is found first

    builder = (
        SparkSession.builder.master(given.master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.executor.memory", "600m")
        .config("spark.executor.cores", "1")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.task.maxFailures", "20")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.sql.warehouse.dir", str(given.target / "warehouse"))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    started(spark, given).awaitTermination()
    spark.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
