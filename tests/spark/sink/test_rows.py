"""Which tables can be published, and what becomes of their rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.options import SinkOptions
from aeron_async.spark.sink.rows import RowLayout

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
OTHER = "aeron:udp?endpoint=127.0.0.1:20122"
GIVEN = SinkOptions(channel=CHANNEL, stream_id=7)
ONCE = SinkOptions(channel=CHANNEL, stream_id=7, delivery="effectively-once", archive_path="/a")
ALL: dict[str, DataType] = {
    "payload": BinaryType(),
    "stream_id": IntegerType(),
    "channel": StringType(),
    "reserved_value": LongType(),
}


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def table() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "channel": pa.array([CHANNEL, OTHER]),
            "payload": pa.array([b"one", b""]),
            "reserved_value": pa.array([5, -6]),
            "stream_id": pa.array([1, 2], pa.int32()),
        }
    )


def test_columns_say_where_a_row_goes() -> None:
    rows = RowLayout.of(schema(**ALL).fields, SinkOptions()).read(table())
    found: list[object] = list(rows.messages(None, None))
    assert found == [(CHANNEL, 1, b"one", 5), (OTHER, 2, b"", -6)]


def test_an_option_beats_the_column() -> None:
    rows = RowLayout.of(schema(**ALL).fields, GIVEN).read(table())
    found: list[object] = list(rows.messages(CHANNEL, 7))
    assert found == [(CHANNEL, 7, b"one", 5), (CHANNEL, 7, b"", -6)]


def test_a_payload_is_enough_with_options() -> None:
    rows = RowLayout.of(schema(payload=BinaryType()).fields, GIVEN).read(table())
    found: list[object] = [each[2:] for each in rows.messages(CHANNEL, 7)]
    assert found == [(b"one", 0), (b"", 0)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_payloads_are_slices_wherever_the_batch_begins(kind: pa.DataType) -> None:
    values = [b"a" * length for length in range(20)]
    batch = pa.record_batch({"payload": pa.array(values, kind)}).slice(3, 9)
    rows = RowLayout.of(schema(payload=BinaryType()).fields, GIVEN).read(batch)
    assert [bytes(each) for each in rows.payloads] == values[3:12]
    assert all(isinstance(each, memoryview) for each in rows.payloads)


@pytest.mark.parametrize("values", [[], [b"", b""]])
def test_rows_may_be_empty_or_none(values: list[bytes]) -> None:
    batch = pa.record_batch({"payload": pa.array(values, pa.binary())})
    rows = RowLayout.of(schema(payload=BinaryType()).fields, GIVEN).read(batch)
    assert [bytes(each[2]) for each in rows.messages(CHANNEL, 7)] == values


@pytest.mark.parametrize(
    ("types", "options", "says"),
    [
        ({}, GIVEN, "no column payload: the table has no columns"),
        ({"stream_id": IntegerType()}, GIVEN, "no column payload: the table has stream_id"),
        ({"payload": StringType()}, GIVEN, "payload is STRING, and must be BINARY: cast it"),
        ({**ALL, "stream_id": LongType()}, GIVEN, "stream_id is BIGINT, and must be INT"),
        ({**ALL, "paylod": BinaryType()}, GIVEN, "did you mean payload"),
        ({**ALL, "zzz": BinaryType()}, GIVEN, "drop it"),
        ({"payload": BinaryType()}, SinkOptions(stream_id=1), "nothing says the channel"),
        ({"payload": BinaryType()}, SinkOptions(channel=CHANNEL), "set streamId, or select"),
        (ALL, ONCE, "holds the identity of a row"),
    ],
)
def test_a_table_that_cannot_be_published_is_refused(
    types: dict[str, DataType], options: SinkOptions, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RowLayout.of(schema(**types).fields, options)


@pytest.mark.parametrize("name", ["payload", "stream_id", "channel", "reserved_value"])
def test_null_is_refused(name: str) -> None:
    batch = table()
    at = batch.schema.get_field_index(name)
    broken = batch.set_column(at, name, pa.array([None, None], batch.column(at).type))
    layout = RowLayout.of(schema(**ALL).fields, SinkOptions())
    with pytest.raises(ConfigurationError, match=f"2 rows have NULL as {name}"):
        layout.read(broken)
