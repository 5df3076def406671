"""Batch, partition and index in a reserved value, and their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.identity import MARKER_INDEX, Identity, first_reserved_value

BATCHES = st.integers(0, (1 << 28) - 1)
PARTITIONS = st.integers(0, (1 << 12) - 1)
INDEXES = st.integers(0, MARKER_INDEX)


@given(BATCHES, PARTITIONS, INDEXES)
def test_an_identity_survives_the_way_through_a_message(
    batch: int, partition: int, index: int
) -> None:
    identity = Identity(batch, partition, index)
    assert -(1 << 63) <= identity.reserved_value < 1 << 63
    assert Identity.of(identity.reserved_value) == identity


@given(BATCHES, BATCHES, PARTITIONS, INDEXES, INDEXES)
def test_identities_of_a_partition_grow_with_its_rows(
    batch: int, other: int, partition: int, index: int, second: int
) -> None:
    one, two = Identity(batch, partition, index), Identity(other, partition, second)
    unsigned = [each.reserved_value & (1 << 64) - 1 for each in (one, two)]
    assert (one < two) == (unsigned[0] < unsigned[1])


def test_the_layout_is_28_and_12_and_24_bits() -> None:
    assert Identity(1, 2, 3).reserved_value == 1 << 36 | 2 << 24 | 3
    assert Identity((1 << 28) - 1, 4095, MARKER_INDEX).reserved_value == -1


def test_a_marker_comes_behind_every_row() -> None:
    marker = Identity.marker(4, 5)
    assert marker.is_marker
    assert Identity(4, 5, MARKER_INDEX - 1) < marker < Identity(5, 5, 0)


@pytest.mark.parametrize(
    ("batch", "partition", "index", "says"),
    [
        (1 << 28, 0, 0, "from 0 to 268435455: start the query again"),
        (-1, 0, 0, "batch -1"),
        (0, 4096, 0, "from 0 to 4095: repartition"),
        (0, 0, 1 << 24, "from 0 to 16777215: repartition"),
    ],
)
def test_what_has_no_identity_is_refused_with_the_limit(
    batch: int, partition: int, index: int, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Identity(batch, partition, index)


def test_rows_in_a_row_have_identities_in_a_row() -> None:
    first = first_reserved_value(1, 2, 10, 5)
    assert [Identity.of(first + offset).index for offset in range(5)] == [10, 11, 12, 13, 14]


def test_the_last_index_is_kept_for_the_marker() -> None:
    assert first_reserved_value(0, 0, MARKER_INDEX - 3, 3)
    for first, count in ((MARKER_INDEX - 3, 4), (MARKER_INDEX, 1), (0, MARKER_INDEX + 1)):
        with pytest.raises(ConfigurationError, match="repartition"):
            first_reserved_value(0, 0, first, count)
