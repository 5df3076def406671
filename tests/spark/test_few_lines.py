"""What a process of Spark shows of our errors: what they say, and not the calls before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from aeron_async.errors import ConfigurationError
from aeron_async.spark.batch_reader import ArchivePartition, read_partition
from aeron_async.spark.few_lines import HIDING, few_lines
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.query_schema import settings_for
from aeron_async.spark.sink.source import AeronSink
from aeron_async.spark.source import AeronArchiveSource
from aeron_async.spark.stream_reader import RefusingReader, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import _Environ
    from pathlib import Path

PAYLOAD = StructType([StructField("payload", BinaryType())])


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> _Environ[str]:
    """Return the environment of a process that Spark has started."""
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "4711")
    monkeypatch.setenv(HIDING, "")
    return os.environ


def reader(path: Path, **options: str) -> StreamReader:
    parsed = ArchiveOptions.parse({"path": str(path), **options})
    return StreamReader(parsed, settings_for(parsed, PAYLOAD))


def read_with(decoder: str, path: Path) -> object:
    parsed = ArchiveOptions.parse({"path": str(path)})
    settings = settings_for(parsed, PAYLOAD)
    object.__setattr__(parsed, "decoder", decoder)
    return read_partition(settings, ArchivePartition(()))


REFUSED: dict[str, Callable[[Path], object]] = {
    "a wrong option of a table": lambda _: AeronArchiveSource({"pth": "x"}).schema(),
    "a wrong option of a reader": lambda _: AeronArchiveSource({"pth": "x"}).reader(PAYLOAD),
    "a wrong option of a stream": lambda _: (
        AeronArchiveSource({"pth": "x"}).streamReader(PAYLOAD).initialOffset()
    ),
    "a stream with an end": lambda path: (
        AeronArchiveSource({"path": str(path), "endingPositions": "earliest"})
        .streamReader(PAYLOAD)
        .initialOffset()
    ),
    "a directory that is not there": lambda path: reader(path / "none").initialOffset(),
    "a decoder that cannot be imported": lambda path: read_with("nothing:at_all", path),
    "what was refused": lambda _: RefusingReader("change it").partitions({}, {}),
    "a table that is read from the sink": lambda _: AeronSink({}).schema(),
    "a wrong option of the sink": lambda _: AeronSink({"chanel": "x"}).writer(PAYLOAD, False),
    "a wrong option of its stream": lambda _: AeronSink({"chanel": "x"}).streamWriter(
        PAYLOAD, False
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_of_ours_is_shown_without_calls(
    name: str, environment: _Environ[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError):
        REFUSED[name](tmp_path)
    assert environment[HIDING] == "1"


def test_an_error_of_others_is_shown_with_all(environment: _Environ[str]) -> None:
    with pytest.raises(KeyError), few_lines():
        raise KeyError
    assert environment[HIDING] == ""


def test_a_process_of_the_users_own_is_left_alone(
    environment: _Environ[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_PORT")
    sink: Any = AeronSink({})
    with pytest.raises(ConfigurationError):
        sink.schema()
    assert environment[HIDING] == ""
