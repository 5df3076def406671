"""What a reader believes: each row once, in order, and only what a marker has closed."""

from __future__ import annotations

from random import Random

import pytest

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.sink.committed import CommittedRows
from aeron_async.spark.sink.identity import Identity, Marker

Message = tuple[int, bytes]


def row(batch: int, partition: int, index: int) -> Message:
    return Identity(batch, partition, index).reserved_value, f"{batch}.{index}".encode()


def rows(batch: int, count: int, partition: int = 0, first: int = 0) -> list[Message]:
    return [row(batch, partition, index) for index in range(first, count)]


def marker(batch: int, count: int, partition: int = 0) -> Message:
    said = Marker(query="q", batch=batch, partition=partition, rows=count, session_id=1, position=0)
    return Identity.marker(batch, partition).reserved_value, said.encode()


def read(messages: list[Message], reader: CommittedRows | None = None) -> list[bytes]:
    reader = reader or CommittedRows()
    return [each for message in messages for each in reader.feed(*message)]


def test_rows_come_out_with_their_marker() -> None:
    reader = CommittedRows()
    assert read(rows(0, 3), reader) == []
    assert reader.feed(*marker(0, 3)) == [b"0.0", b"0.1", b"0.2"]


def test_an_unfinished_tail_stays_in() -> None:
    assert read([*rows(0, 2), marker(0, 2), *rows(1, 5)]) == [b"0.0", b"0.1"]


def test_what_an_earlier_attempt_has_sent_is_left_out() -> None:
    heard = [*rows(0, 4), *rows(0, 6, first=2), marker(0, 6), marker(0, 6), *rows(0, 3)]
    assert read(heard) == [f"0.{index}".encode() for index in range(6)]


def test_an_attempt_that_is_still_alive_does_no_harm() -> None:
    """Two sessions of one batch, in any order between them."""
    random = Random(7)
    for _ in range(50):
        sessions = [rows(0, random.randrange(1, 20)), rows(0, 20)]
        heard = []
        while any(sessions):
            heard.append(random.choice([each for each in sessions if each]).pop(0))
        assert read([*heard, marker(0, 20)]) == [f"0.{index}".encode() for index in range(20)]


def test_partitions_are_closed_one_by_one() -> None:
    heard = [*rows(3, 2), *rows(3, 1, partition=9), marker(3, 1, partition=9)]
    assert read(heard) == [b"3.0"]


def test_a_batch_that_never_was_closed_is_forgotten_with_the_next() -> None:
    assert read([*rows(0, 3), *rows(1, 1), marker(1, 1)]) == [b"1.0"]


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ([row(0, 0, 1)], "where row 0 of the batch should"),
        ([row(0, 0, 0), row(0, 0, 2)], "where row 1 of the batch should"),
        ([*rows(0, 2), marker(0, 3)], "has 3 rows, and 2 came"),
        ([marker(0, 3)], "has 3 rows, and 0 came"),
        ([*rows(0, 3), marker(1, 3)], "has 3 rows, and 0 came"),
    ],
)
def test_a_gap_is_told(heard: list[Message], says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        read(heard)


def test_what_waits_for_a_marker_is_bounded() -> None:
    reader = CommittedRows(most_pending=3)
    read([*rows(0, 3), marker(0, 3), *rows(1, 2), *rows(1, 1, partition=1)], reader)
    with pytest.raises(ConfigurationError, match="3 rows wait"):
        reader.feed(*row(1, 0, 2))
    with pytest.raises(ConfigurationError, match="at least 1"):
        CommittedRows(most_pending=0)


def test_a_marker_that_is_none_is_refused() -> None:
    for payload in (b"{}", b"no", b"[]", b"\xff"):
        with pytest.raises(ConfigurationError, match="identity of a marker"):
            CommittedRows().feed(Identity.marker(0, 0).reserved_value, payload)
