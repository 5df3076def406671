"""What Spark makes of options and columns before any task runs; without Spark."""

from __future__ import annotations

import importlib
import pickle

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from structlog.testing import capture_logs

from aeron_async.errors import ConfigurationError
from aeron_async.spark import sink
from aeron_async.spark.sink.identity import TaskEnd
from aeron_async.spark.sink.source import AeronSink
from aeron_async.spark.sink.writers import BatchWriter, StreamWriter, Written

PAYLOAD = StructType([StructField("payload", BinaryType())])
OPTIONS = {"channel": "aeron:udp?endpoint=127.0.0.1:20121", "streamid": "7"}


def made() -> AeronSink:
    return AeronSink(OPTIONS)


def test_writers_travel_between_processes() -> None:
    for writer in (made().writer(PAYLOAD, False), made().streamWriter(PAYLOAD, True)):
        assert isinstance(writer, BatchWriter | StreamWriter)
        again = pickle.loads(pickle.dumps(writer))  # noqa: S301 - our own bytes
        assert (again.options, again.layout) == (writer.options, writer.layout)


def test_a_stream_is_not_overwritten() -> None:
    with pytest.raises(ConfigurationError, match="cannot be taken back"):
        made().writer(PAYLOAD, True)


def test_columns_are_looked_at_before_any_task() -> None:
    with pytest.raises(ConfigurationError, match="cast it"):
        made().writer(StructType([StructField("payload", StringType())]), False)


def test_a_sink_is_not_read() -> None:
    with pytest.raises(ConfigurationError, match="format aeron_archive"):
        made().schema()


def test_an_aborted_batch_says_what_stays() -> None:
    end = TaskEnd(query=None, batch=None, partition=0, row_count=9, streams=())
    for writer in (made().writer(PAYLOAD, False), made().streamWriter(PAYLOAD, False)):
        with capture_logs() as logs:
            if isinstance(writer, BatchWriter):
                writer.abort([Written(end), None])
            elif isinstance(writer, StreamWriter):
                writer.abort([Written(end), None], 3)
        (line,) = logs
        assert (line["published_rows"], line["failed_partitions"]) == (9, 1)


def test_spark_finds_the_sink_by_itself() -> None:
    module = importlib.import_module("pyspark_aeron_sink")
    assert module.DefaultSource is AeronSink
    assert AeronSink.name() == "aeron"


def test_every_name_of_the_folder_is_there() -> None:
    for name in sink.__all__:
        assert getattr(sink, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        sink.Kafka  # noqa: B018 - asking is the test
