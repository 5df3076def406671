"""Which columns a query gets: by options, by name, or by a schema of its own."""

from __future__ import annotations

from itertools import combinations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    TimestampType,
)

from aeron_async.errors import ConfigurationError
from aeron_async.spark.columns import COLUMNS, default_columns, projection_of
from aeron_async.spark.options import ArchiveOptions

TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}


def options(**given: str) -> ArchiveOptions:
    return ArchiveOptions.parse({"path": "/somewhere", **given})


def fields(ddl: str) -> list[StructField]:
    """Return the fields of a schema; Spark's own parser would want a session."""
    found = []
    for each in ddl.split(", "):
        name, kind, *not_null = each.split()
        found.append(StructField(name, TYPES[kind.lower()], not not_null))
    return found


def test_a_query_without_wishes_gets_what_messages_have() -> None:
    assert default_columns(options()).names == (
        "recording_id",
        "position",
        "end_position",
        "session_id",
        "stream_id",
        "fragment_count",
        "timestamp",
        "length",
        "payload",
    )


def test_frames_have_a_type_and_no_count() -> None:
    names = default_columns(options(fragmentMode="frame")).names
    assert "frame_type" in names
    assert "fragment_count" not in names


def test_options_show_the_channel_headers_and_nanoseconds() -> None:
    given = {"includeChannel": "true", "includeHeaders": "TRUE", "timestampFrom": "reserved"}
    names = default_columns(options(**given)).names
    assert {"channel", "term_id", "term_offset", "flags", "reserved_value"} <= set(names)
    assert "timestamp_ns" in names


def test_columns_are_built_in_the_order_they_were_asked_for() -> None:
    assert default_columns(options(columns="payload, position")).names == ("payload", "position")


@pytest.mark.parametrize("mode", ["message", "frame"])
def test_every_subset_has_an_arrow_schema_of_its_own(mode: str) -> None:
    known = [column for column in COLUMNS if mode in column.modes]
    for pair in combinations(known, 2):
        for chosen in (pair, pair[::-1]):
            ddl = ", ".join(f"{column.name} {column.spark_type}" for column in chosen)
            projection = projection_of(fields(ddl), mode)
            assert projection.ddl() == ddl
            assert projection.arrow_schema().names == [column.name for column in chosen]


def test_a_column_that_must_not_be_null_says_so_to_arrow() -> None:
    schema = projection_of(fields("position BIGINT NOT NULL, length INT"), "message").arrow_schema()
    assert schema == pa.schema(
        [pa.field("position", pa.int64(), nullable=False), pa.field("length", pa.int32())]
    )


@pytest.mark.parametrize(
    ("ddl", "mode", "says"),
    [
        ("positon BIGINT", "message", "did you mean position"),
        ("zzz BIGINT", "message", "There are recording_id, position"),
        ("position INT", "message", "position is BIGINT, and the schema has INT"),
        ("payload STRING", "message", "payload is BINARY"),
        ("frame_type INT", "message", "set fragmentMode=frame"),
        ("fragment_count INT", "frame", "set fragmentMode=message"),
    ],
)
def test_a_schema_that_no_recording_has_is_refused(ddl: str, mode: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        projection_of(fields(ddl), mode)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        projection_of([], "message")


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name one twice"):
        default_columns(options(columns="position,position"))
