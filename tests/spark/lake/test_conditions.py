"""Conditions select files by statistics and rows by readers."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from operator import ge
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.conditions import (
    CONDITIONS_MAX,
    Condition,
    fitting_files,
    parse_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = pa.schema(
    [
        ("date", pa.date32()),
        ("stream_id", pa.int32()),
        ("position", pa.int64()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("local_time", pa.timestamp("us")),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("odd name", pa.int64()),
    ]
)
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("position < 4096", [Condition("position", "<", (4096,))]),
        ("position == -1", [Condition("position", "=", (-1,))]),
        ("date = '2026-11-18'", [Condition("date", "=", (date(2026, 11, 18),))]),
        ("stream_id in (1001, 1002)", [Condition("stream_id", "=", (1001, 1002))]),
        (
            "position BETWEEN 1 AND 2 and symbol='it''s and'",
            [
                Condition("position", ">=", (1,)),
                Condition("position", "<=", (2,)),
                Condition("symbol", "=", ("it's and",)),
            ],
        ),
        ("event_time >= '2026-11-18 12:00'", [Condition("event_time", ">=", (NOON,))]),
        ("event_time >= '2026-11-18T13:00+01:00'", [Condition("event_time", ">=", (NOON,))]),
        (
            "local_time > '2026-11-18 12:00'",
            [Condition("local_time", ">", (NOON.replace(tzinfo=None),))],
        ),
        ('"odd name" = 1', [Condition("odd name", "=", (1,))]),
        (None, []),
    ],
)
def test_conditions_are_read(text: str | None, found: list[Condition]) -> None:
    assert parse_conditions(text, SCHEMA) == found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "must name a column"),
        ("volume = 1", "'volume'"),
        ("position", "must have one of"),
        ("position like 1", "must have one of"),
        ("position = 1 or position = 2", "must have 'and'"),
        ("position = 1 and", "must name a column"),
        ("position = 1; drop table x", "cannot be read from ';"),
        ("position in (1, 2", "must have ')'"),
        ("position in ()", "compares position"),
        ("position = 1.5", "cannot be read"),
        ("position = 9223372036854775808", "compares position"),
        ("stream_id < 5000000000", "compares stream_id"),
        ("position = '1'", "compares position"),
        ("date = '2026-13-01'", "compares date"),
        ("date = 20261118", "compares date"),
        ("price = 1", "compares price"),
        ("price = 'x'", "compares price"),
        ("symbol = 1", "compares symbol"),
        ("position in (" + ",".join("1" * (CONDITIONS_MAX + 1)) + ")", "at most"),
        (" and ".join(["position = 1"] * (CONDITIONS_MAX + 1)), "more than"),
        ("position = \x1b[2J", "\\x1b"),
    ],
)
def test_other_text_is_refused_and_quoted_safely(text: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_conditions(text, SCHEMA)
    assert part in str(raised.value)
    assert str(raised.value).isprintable()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigurationError):
        parse_conditions(text, SCHEMA)


def actions(*ranges: tuple[int | None, int | None]) -> pa.Table:
    return pa.table(
        {
            "path": [str(place) for place in range(len(ranges))],
            "min.position": pa.array([low for low, _ in ranges], pa.int64()),
            "max.position": pa.array([high for _, high in ranges], pa.int64()),
        }
    )


FILES = st.lists(st.lists(st.integers(-3, 9), min_size=1), min_size=1, max_size=6)


@given(
    FILES,
    st.sampled_from(["=", "<", "<=", ">", ">="]),
    st.lists(st.integers(-4, 10), min_size=1, max_size=3),
)
def test_a_file_with_a_fitting_row_is_never_left_out(
    files: Sequence[Sequence[int]], operator: str, values: list[int]
) -> None:
    values = values if operator == "=" else values[:1]
    condition = Condition("position", operator, tuple(values))
    kept = fitting_files(actions(*((min(rows), max(rows)) for rows in files)), [condition])
    holding = {
        str(place)
        for place, rows in enumerate(files)
        if any(condition.holds(row, int) for row in rows)
    }
    assert holding <= set(kept["path"].to_pylist())
    if operator != "=":
        assert holding == set(kept["path"].to_pylist())


def test_a_file_without_statistics_stays() -> None:
    condition = Condition("position", ">", (5,))
    kept = fitting_files(actions((0, 5), (None, None), (0, 6)), [condition])
    assert kept["path"].to_pylist() == ["1", "2"]
    assert fitting_files(actions((0, 1)), [Condition("sequence", "=", (9,))]).num_rows == 1


def test_partitions_select_exactly_and_times_may_be_cut_off() -> None:
    files = pa.table(
        {
            "path": ["a", "b"],
            "partition.date": pa.array([date(2026, 11, 18), date(2026, 11, 19)], pa.date32()),
            "min.event_time": pa.array([NOON, NOON], pa.timestamp("us", tz="UTC")),
            "max.event_time": pa.array([NOON, NOON], pa.timestamp("us", tz="UTC")),
        }
    )

    def kept(text: str) -> list[Any]:
        return list(fitting_files(files, parse_conditions(text, SCHEMA))["path"].to_pylist())

    assert kept("date = '2026-11-19'") == ["b"]
    assert kept("date < '2026-11-19'") == ["a"]
    assert kept("date in ('2026-11-18', '2026-11-19')") == ["a", "b"]
    assert kept("event_time > '2026-11-18T12:00:00.000900'") == ["a", "b"]
    assert kept("event_time > '2026-11-18T12:00:00.002'") == []


def test_expressions_are_those_of_the_reader() -> None:
    assert Condition("position", "=", (1, 2)).holds(2, int)
    assert not Condition("position", "=", (1, 2)).holds(3, int)
    assert Condition("position", ">=", (2,)).holds(2, int) is ge(2, 2)
