"""What Spark is given: partitions, batches, filters and schemas, without a session."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    InputPartition,
    IsNotNull,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from aeron_async.errors import ConfigurationError
from aeron_async.spark.batch_reader import ArchiveBatchReader, ArchivePartition, PruningBatchReader
from aeron_async.spark.columns import project
from aeron_async.spark.lake.conditions import Condition
from aeron_async.spark.query_schema import declared_schema, decoder_named, settings_for
from aeron_async.spark.source import AeronArchiveSource
from tests.archive.golden import golden_path
from tests.spark.recordings import RecordingMaker, options_for

if TYPE_CHECKING:
    from pathlib import Path

POSITION = StructType([StructField("position", LongType())])
NUMBERS = "tests.spark.decoders:first_bytes"


def reader(path: Path, schema: StructType = POSITION, **given: str) -> ArchiveBatchReader:
    made = AeronArchiveSource({"path": str(path), **given}).reader(schema=schema)
    assert isinstance(made, ArchiveBatchReader)
    return made


def test_making_a_reader_touches_no_file() -> None:
    found = reader("/not/there")  # type: ignore[arg-type] # a path of nothing
    with pytest.raises(ConfigurationError, match="is no directory"):
        found.partitions()


def test_partitions_are_a_list_and_travel() -> None:
    made = reader(golden_path("A2-mid-term-start"), maxBytesPerPartition="64k")
    partitions = made.partitions()
    assert isinstance(partitions, list)
    far = pickle.loads(pickle.dumps((made, partitions)))  # noqa: S301 - as Spark does
    batches = [batch for each in far[1] for batch in far[0].read(each)]
    assert sum(batch.num_rows for batch in batches) == 100
    assert {str(batch.schema) for batch in batches} == {"position: int64"}


def test_the_partition_that_spark_makes_of_nothing_is_empty() -> None:
    found = reader(golden_path("A1-one-finished")).read(InputPartition(None))
    assert next(found, None) is None
    assert isinstance(ArchivePartition(()), InputPartition)


def test_only_a_reader_that_was_asked_to_takes_filters() -> None:
    path = golden_path("A1-one-finished")
    assert type(reader(path)) is ArchiveBatchReader
    assert type(reader(path, filterPushdown="true")) is PruningBatchReader


def test_filters_are_used_and_all_given_back() -> None:
    made = reader(golden_path("A3-several-recordings"), filterPushdown="true")
    assert isinstance(made, PruningBatchReader)
    filters = [
        IsNotNull(("recording_id",)),
        EqualTo(("recording_id",), 5),
        GreaterThan(("position",), -1),
        In(("stream_id",), (2306, 7)),
        Not(EqualTo(("stream_id",), 1)),
        EqualTo(("length",), None),
        StringStartsWith(("channel",), "aeron"),
    ]
    assert list(made.pushFilters(filters)) == filters
    assert made.conditions == (
        Condition("recording_id", "=", (5,)),
        Condition("position", ">", (-1,)),
        Condition("stream_id", "=", (2306, 7)),
    )
    assert [part.descriptor.recording_id for part in made.planned()] == [5]
    made.pushFilters([])
    assert len(made.planned()) == 7


@pytest.mark.parametrize(
    ("columns", "decoder", "used"),
    [
        ("position,payload", NUMBERS, []),
        ("position,payload", "struct:<number:i", ["position"]),
        ("payload", "struct:<position:q", []),
    ],
)
def test_a_filter_on_what_a_decoder_makes_leaves_nothing_out(
    columns: str, decoder: str, used: list[str]
) -> None:
    path = golden_path("A1-one-finished")
    made = reader(path, columns=columns, decoder=decoder, filterPushdown="true")
    assert isinstance(made, PruningBatchReader)
    filters: list[Filter] = [GreaterThan(("position",), 1 << 40)]
    assert list(made.pushFilters(filters)) == filters
    assert [each.column for each in made.conditions] == used
    assert bool(made.planned()) is not bool(used)


def test_the_source_is_found_by_its_name() -> None:
    module = importlib.import_module("pyspark_aeron")
    assert module.DefaultSource is AeronArchiveSource
    assert AeronArchiveSource.name() == "aeron_archive"


def test_finding_the_source_takes_neither_numpy_nor_pyarrow() -> None:
    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_aeron; "
        "new = set(sys.modules) - before; "
        "assert not {'numpy', 'pyarrow'} & new"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_the_schema_is_that_of_the_options() -> None:
    assert declared_schema(options_for("/a", columns="position,length")) == (
        "position bigint NOT NULL, length int NOT NULL"
    )
    assert AeronArchiveSource({"path": "/a", "columns": "payload"}).schema() == (
        "payload binary NOT NULL"
    )


def test_a_decoder_declares_the_schema() -> None:
    found = declared_schema(options_for("/a", decoder=NUMBERS))
    assert isinstance(found, StructType)
    assert found.simpleString() == "struct<position:bigint,number:bigint>"
    sized = options_for("/a", decoder="tests.spark.decoders:sized")
    assert declared_schema(sized) == "size BIGINT"
    packed = declared_schema(options_for("/a", columns="payload", decoder="struct:<n:I"))
    assert isinstance(packed, StructType)
    assert packed.fieldNames() == ["n", "decode_error"]


def test_a_decoder_is_applied_where_rows_are_read() -> None:
    schema = StructType([StructField("number", LongType())])
    made = reader(golden_path("A1-one-finished"), schema, decoder=NUMBERS)
    batches = [batch for each in made.partitions() for batch in made.read(each)]
    numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
    assert numbers[:3] == [0, 1, None]
    assert len(numbers) == 300


def test_columns_that_a_decoder_does_not_make_are_refused() -> None:
    options = options_for("/a", decoder=NUMBERS)
    for name, kind in (("number", IntegerType()), ("other", LongType())):
        with pytest.raises(ConfigurationError, match="makes position BIGINT, number BIGINT"):
            settings_for(options, StructType([StructField(name, kind)]))
    undeclared = options_for("/a", decoder="tests.spark.decoders:sized")
    assert settings_for(undeclared, POSITION).decoded.names == ["position"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "must be module:callable"),
        (":f", "must be module:callable"),
        ("no_such_module:f", "cannot be imported"),
        ("tests.spark.decoders:absent", "cannot be imported"),
        ("tests.spark.decoders:no_schema", "must be callable and have an attribute"),
        ("struct:nonsense", "struct"),
    ],
)
def test_a_decoder_that_is_none_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        decoder_named(name, project(("payload",), "message"))


def test_a_decoder_made_by_a_callable_is_used() -> None:
    columns = project(("position", "payload"), "message")
    found = decoder_named("tests.spark.decoders:made", columns)
    assert found.schema.names == ["position", "n", "decode_error"]


def test_a_schema_that_spark_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a schema that Spark cannot have"):
        declared_schema(options_for("/a", decoder="tests.spark.decoders:strange"))


def batches_of(decoder: str, wanted: Any) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int32())], names=["length"])
    found = decoder_named(f"tests.spark.decoders:{decoder}", project(("length",), "message"))
    return list(found.decoded(iter([batch]), wanted))


@pytest.mark.parametrize(
    ("decoder", "kind", "says"),
    [
        ("no_batch", pa.int64(), "returned a int, and not a RecordBatch"),
        ("liar", pa.int64(), "returned size as string, and Spark wants int64"),
        ("liar", None, "returned no column other"),
    ],
)
def test_a_decoder_that_returns_something_else_is_told(decoder: str, kind: Any, says: str) -> None:
    name = "other" if kind is None else "size"
    with pytest.raises(ConfigurationError, match=says):
        batches_of(decoder, pa.schema([(name, kind or pa.int64())]))


def test_what_a_decoder_returns_is_put_into_order() -> None:
    (found,) = batches_of("sized", pa.schema([pa.field("size", pa.int64(), nullable=False)]))
    assert found.column("size").to_pylist() == [1, 2]


MEMORY = """
import re, resource, sys
from pathlib import Path
from aeron_async.spark.batch_reader import ArchiveBatchReader
from aeron_async.spark.columns import default_columns
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark import record_batches

options = ArchiveOptions.parse({"path": sys.argv[1], "includeHeaders": "true"})
made = ArchiveBatchReader(options, ScanSettings(options, default_columns(options)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (160 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
rows = sum(batch.num_rows for each in made.partitions() for batch in made.read(each))
# What `getrusage` tells may be the memory of the process that this one was forked off from.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(rows, int(peak[1]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_worker_needs_little_memory_however_long_terms_are(tmp_path: Path) -> None:
    length = 64 << 20
    maker = RecordingMaker(tmp_path, term_length=length, segment_length=2 * length, mtu=65_504)
    payload = bytes(1 << 20)
    for _ in range(96):
        maker.message(payload)
    maker.stop()
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows, megabytes = map(int, done.stdout.split())
    assert rows == 96
    assert megabytes < 200
