"""A lake in Spark SQL: `python examples/spark_lake.py /var/lake 2026-11-18`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import aeron_async.spark
from aeron_async.spark.lake import read_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def symbols(spark: SparkSession, lake: str, day: str) -> DataFrame:
    """Return how many messages each symbol had on a day."""
    quotes = read_delta(spark, f"{lake}/silver/quotes", where=f"date = '{day}'")
    quotes.createOrReplaceTempView("quotes")
    return spark.sql("SELECT symbol, count(*) AS messages FROM quotes GROUP BY symbol ORDER BY 1")


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    aeron_async.spark.ensure_java()
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    symbols(spark, *sys.argv[1:3]).show()
    spark.stop()
