"""The official archive's recordings as tables: what is in them is what is known of them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from tests.archive.golden import ARCHIVES, facts, golden_path
from tests.spark.stores import s3_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE = [name for name in ARCHIVES if name != "A3-recovered"]
VALID = 1


def table(spark: SparkSession, name: str, **options: Any) -> DataFrame:
    reader = spark.read.format("aeron_archive").options(**options)
    return reader.load(str(golden_path(name)))


def framed(payloads: list[bytes]) -> str:
    return sha256(b"".join(len(each).to_bytes(4, "little") + each for each in payloads)).hexdigest()


@pytest.mark.parametrize("name", WHOLE)
def test_every_message_of_an_official_archive_is_a_row(spark: SparkSession, name: str) -> None:
    rows = table(spark, name).collect()
    for each in facts()[name]["recordings"]:
        if each["state"] != VALID:
            continue
        mine = [row for row in rows if row.recording_id == each["recording_id"]]
        assert [row.length for row in mine] == each["message_lengths"]
        assert [row.end_position for row in mine] == each["message_end_positions"]
        assert framed([bytes(row.payload) for row in mine]) == each["framed_messages_sha256"]
        assert {row.stream_id for row in mine} <= {each["stream_id"]}


def test_workers_read_an_archive_in_a_store(spark: SparkSession) -> None:
    path = golden_path("A4-crc32")
    with s3_server() as s3:
        found = spark.read.format("aeron_archive").load(s3.copy(path)).collect()
    assert found == table(spark, path.name).collect()
