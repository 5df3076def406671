"""The page about the sink says what the code does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.spark.sink.identity import (
    BATCH_LIMIT,
    MARKER_INDEX,
    PARTITION_LIMIT,
    Identity,
    Marker,
)
from aeron_async.spark.sink.rows import COLUMNS
from examples import spark_sink
from tests.examples.pages import DOCS, bare, rows, section

if TYPE_CHECKING:
    import pytest

PAGE = DOCS / "howto" / "spark-sink.md"


def test_the_page_lists_every_column() -> None:
    shown = {bare(name): kind for name, kind, _ in rows(section(PAGE, "Columns"))}
    assert shown == COLUMNS


def test_the_page_names_the_limits() -> None:
    text = PAGE.read_text()
    for limit in (BATCH_LIMIT - 1, PARTITION_LIMIT, MARKER_INDEX):
        assert str(limit) in text


def test_the_example_prints_what_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    marker = Marker(query="q", batch=0, partition=0, rows=1, session_id=1, position=64)
    spark_sink.print_committed(
        [
            (Identity(0, 0, 0).reserved_value, b"one"),
            (Identity.marker(0, 0).reserved_value, marker.encode()),
            (Identity(1, 0, 0).reserved_value, b"two"),
        ]
    )
    assert capsys.readouterr().out == "one\n"
