"""The page about Spark says what the code does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.spark.columns import COLUMNS
from examples import spark_first_query
from tests.archive.golden import golden_path, recording_facts
from tests.examples.pages import DOCS, bare, rows, section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = DOCS / "howto" / "spark.md"


def test_the_page_lists_every_column() -> None:
    shown = [
        (bare(name), kind.lower(), mode, bare(shown_with), says)
        for name, kind, mode, shown_with, says in rows(section(PAGE, "Columns"))
    ]
    assert shown == [
        (
            each.name,
            each.spark_type,
            "both" if len(each.modes) > 1 else each.modes[0],
            each.shown_with or "always",
            each.says,
        )
        for each in COLUMNS
    ]


def test_the_example_reads_an_archive(spark: SparkSession) -> None:
    found = spark_first_query.summary(spark, str(golden_path("A1-one-finished"))).collect()
    each = recording_facts("A1-one-finished", 0)
    assert [tuple(row) for row in found] == [(0, 2101, each["messages"], each["payload_bytes"])]
    columns = spark_first_query.orders(spark, str(golden_path("A1-one-finished"))).columns
    assert columns == ["position", "timestamp", "payload"]
