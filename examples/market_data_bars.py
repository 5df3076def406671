"""A feed is recorded, Spark makes one-second bars of it and publishes them to a subscriber."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import aeron_async as aa
import aeron_async.spark as aeron_spark
from aeron_async.spark.pipeline.sample import SPEC, record_sample

BARS = "aeron:udp?endpoint=127.0.0.1:20123"


def bars(spark: SparkSession, archive: str) -> DataFrame:
    """Return a bar, as JSON, for each symbol and each second that is over."""
    feed = spark.readStream.format("aeron_archive").options(decoder=SPEC, streamId="1001")
    feed = feed.options(timestampFrom="reserved", maxRowsPerTrigger="30000")
    quotes = feed.load(archive).where("decode_error is null")
    second = sql.window("timestamp", "1 second").alias("second")
    bar = quotes.withWatermark("timestamp", "0 seconds").groupBy("symbol", second)
    ends = [sql.min_by("price", "sequence"), sql.max_by("price", "sequence")]
    inner = [sql.max("price").alias("high"), sql.min("price").alias("low")]
    outer = [ends[1].alias("close"), sql.sum("size").alias("volume")]
    made = bar.agg(ends[0].alias("open"), *inner, *outer)
    dated = made.withColumn("second", sql.col("second.start"))
    return dated.select(sql.to_json(sql.struct("*")).cast("binary").alias("payload"))


async def heard(spark: SparkSession, place: str) -> list[str]:
    """Record a feed, let Spark publish its bars, and return those that a subscriber has heard."""
    await record_sample(Path(place, "archive"), count=60_000, rate=15_000)
    sink = bars(spark, f"{place}/archive").writeStream.format("aeron")
    sink = sink.options(channel=BARS, streamId="2001", checkpointLocation=f"{place}/checkpoint")
    query = sink.trigger(availableNow=True).start()
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(BARS, stream_id=2001)
        done = asyncio.create_task(asyncio.to_thread(query.awaitTermination))
        done.add_done_callback(lambda _: asyncio.create_task(subscription.aclose()))
        found = [message.data.decode() async for message in subscription]
        await done
        return found


if __name__ == "__main__":
    aeron_spark.ensure_java()
    aeron_spark.ensure_interpreter()
    session = SparkSession.builder.master("local[2]").getOrCreate()
    aeron_spark.register(session)
    with tempfile.TemporaryDirectory() as directory:
        print(*asyncio.run(heard(session, directory)), sep="\n")
