"""Lists of files for Spark, which then looks at none of them before a query.

Otherwise it looks at each, which takes minutes for tens of thousands. There are two ways:

| way | what it needs |
|---|---|
| `listed_frame`, as Hadoop sends a list | classes of Spark 4.2 and 4.3 that are not public |
| `parsed_frame`, as Spark's file sink writes a list | nothing of that; Spark parses each line |

The second way is taken if Spark lacks what the first one needs.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

__all__ = ["frame_of"]

log: Final = get_logger(__name__)
LONGEST_LIST: Final = 1 << 50
"""Memory of Java that a list of files may take, in bytes: as much as there is."""
IGNORED: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
BLOCK_BYTES: Final = 128 << 20


def frame_of(
    spark: Any, root: Path, files: pa.Table, schema: StructType, partitions: Sequence[str]
) -> DataFrame:
    """Return files as a frame of Spark.

    Args:
        spark: A session, not of Spark Connect.
        root: Folder of the table.
        files: Path, size and time of each, as `deltalake` has them.
        schema: Columns of the table.
        partitions: Those of them that are folders.

    Raises:
        ConfigurationError: The session is one of Spark Connect, or it takes neither list.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only this reader needs it
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    if getattr(spark, "_jvm", None) is None:
        message = (
            "the session is one of Spark Connect, and `read_delta` needs one in this process: read "
            "the table by `TableSnapshot.arrow` or `polars`, or open a session without `remote`"
        )
        raise ConfigurationError(message)
    try:
        return listed_frame(spark, root, files, schema, partitions)
    except (AttributeError, TypeError, Py4JError, PySparkException) as error:
        log.warning("file_list_is_parsed", spark=spark.version, error=printable(error))
    return parsed_frame(spark, root, files, schema)


def parsed_frame(spark: Any, root: Path, files: pa.Table, schema: StructType) -> DataFrame:
    """Return files as a frame of Spark, which parses the list of them at once.

    Raises:
        ConfigurationError: The session ignores such lists.
    """
    if spark.conf.get(IGNORED, "false") != "false":
        message = f"{IGNORED} must be false for `read_delta`: change it in the session"
        raise ConfigurationError(message)
    with tempfile.TemporaryDirectory(prefix="aeron-files-") as folder:
        write_file_list(Path(folder), root, files)
        frame: DataFrame = spark.read.schema(schema).parquet(folder)
        return frame.select([f"`{each}`" for each in schema.names])


def write_file_list(folder: Path, root: Path, files: pa.Table) -> None:
    """Write a list of files as the first batch of Spark's file sink.

    Source: Spark `FileStreamSinkLog`, `SinkFileStatus`.
    """
    sink_log = folder / "_spark_metadata"
    sink_log.mkdir()
    columns = [files.column(name).to_pylist() for name in ("path", "size_bytes")]
    times = files.column("modification_time").to_pylist()
    start = json.dumps(f"{root.as_uri()}/")[:-1]
    rest = '"isDir":false,"modificationTime":%d,"blockReplication":1,"blockSize":%d,"action":"add"}'
    lines = [
        f'{{"path":{start}{quote(path)}","size":{size},{rest % (modified, BLOCK_BYTES)}'
        for path, size, modified in zip(*columns, times, strict=True)
    ]
    (sink_log / "0").write_text("\n".join(["v1", *lines]), encoding="utf-8")


def listed_frame(
    spark: Any, root: Path, files: pa.Table, schema: StructType, partitions: Sequence[str]
) -> DataFrame:
    """Return files as a frame of Spark, which reads the list of them as Hadoop sends one.

    Spark takes two lists of one folder for the same. So this one is that of a new name, under which
    nothing is.

    Source: Spark `InMemoryFileIndex`, `FileStatusCache`; Hadoop `ArrayWritable.readFields`.

    Raises:
        Py4JError: Spark has no such class, constructor or method.
        TypeError: The same, or it looks for the files elsewhere.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415 - only this reader needs it

    jvm, session = spark._jvm, spark._jsparkSession  # noqa: SLF001 - the only way to Java
    java, hadoop = jvm.java, jvm.org.apache.hadoop
    sources = jvm.org.apache.spark.sql.execution.datasources
    scala = jvm.org.apache.spark.api.python.PythonUtils
    none = jvm.scala.Option.empty()

    def of_java(fields: list[StructField]) -> Any:
        return session.parseDataType(type(schema)(fields).json()).asNullable()

    base = f"file:///{root.as_posix().lstrip('/')}"
    status = java.lang.Class.forName("org.apache.hadoop.fs.FileStatus")
    array = hadoop.io.ArrayWritable(status)
    with tempfile.TemporaryDirectory(prefix="aeron-files-") as folder:
        path = Path(folder) / "files"
        path.write_bytes(encoded_list(base, files))
        stream = java.io.FileInputStream(str(path))
        array.readFields(java.io.DataInputStream(java.io.BufferedInputStream(stream)))
        stream.close()
    listed = java.lang.reflect.Array.newInstance(status, files.num_rows)
    java.lang.System.arraycopy(array.get(), 0, listed, 0, files.num_rows)
    name = hadoop.fs.Path(f"{base}/{uuid4().hex}")
    cache = sources.SharedInMemoryCache(LONGEST_LIST, -1).createForNewClient()
    cache.putLeafFiles(name, listed)
    options = scala.toScalaMap(
        {"basePath": base} if partitions else {"recursiveFileLookup": "true"}
    )
    whole = jvm.scala.Option.apply(of_java(schema.fields))
    index = sources.InMemoryFileIndex(
        session, scala.toSeq([name]), options, whole, cache, none, none
    )
    if index.allFiles().size() != files.num_rows:
        message = "Spark did not take the files from the list"
        raise TypeError(message)
    columns = of_java([each for each in schema.fields if each.name not in partitions])
    relation = sources.HadoopFsRelation(
        *(index, index.partitionSchema(), columns, none),
        *(sources.parquet.ParquetFileFormat(), options, session),
    )
    frame = DataFrame(session.baseRelationToDataFrame(relation), spark)
    return frame.select([f"`{each}`" for each in schema.names])


def encoded_list(base: str, files: pa.Table) -> bytes:
    """Return a list of files as Hadoop writes it: how many, and a length and a message for each.

    Source: Hadoop `FileStatusProto`.
    """
    columns = [files.column(name).to_pylist() for name in ("path", "size_bytes")]
    found = [pack(">i", files.num_rows)]
    for path, *numbers in zip(*columns, files.column("modification_time").to_pylist(), strict=True):
        name = f"{base}/{path}".encode()
        length, size, modified = map(varint, (len(name), *numbers))
        # A file, its path, its length, and when it was written.
        message = b"".join((b"\x08\x02\x12", length, name, b"\x18", size, b"\x38", modified))
        found += (pack(">i", len(message)), message)
    return b"".join(found)


def varint(number: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    found = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits in a byte
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
