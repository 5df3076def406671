from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import (
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("0", 0),
        ("1408", 1408),
        ("64k", 65536),
        ("64K", 65536),
        ("1m", 1 << 20),
        ("16M", 16 << 20),
        ("1g", 1 << 30),
        ("007", 7),
        ("8589934591g", 8589934591 << 30),
        (str(INT64_MAX), INT64_MAX),
    ],
)
def test_a_size_is_a_whole_number_with_an_optional_unit(text: str, length: int) -> None:
    assert parse_size(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "1.5m",
        "64kb",
        "-1",
        "+1",
        " 64k",
        "64k ",
        "64k\n",
        "64 k",
        "0x40",
        "1t",
        "٣",
        "1e3",
    ],
)
def test_a_size_with_anything_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["8589934592g", str(INT64_MAX + 1), "9" * 20, "9" * 9999])
def test_a_size_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="largest 64-bit number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0"), (1, "1"), (1408, "1408"), (65536, "64k"), (16 << 20, "16m"), (3 << 30, "3g")],
)
def test_a_size_prints_in_the_largest_exact_unit(length: int, text: str) -> None:
    assert format_size(length) == text


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("100", 100),
        ("100ns", 100),
        ("5us", 5_000),
        ("7ms", 7_000_000),
        ("2s", 2_000_000_000),
        ("2S", 2_000_000_000),
        ("7Ms", 7_000_000),
        ("0", 0),
        ("9223372036s", 9223372036 * 10**9),
    ],
)
def test_a_duration_is_a_whole_number_with_an_optional_unit(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize("text", ["", "1m", "-1s", "1.5s", "5 s", "5min", "5sec", "s", "5n", "1h"])
def test_a_duration_with_anything_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="duration"):
        parse_duration_ns(text)


def test_a_duration_beyond_64_bits_is_refused_rather_than_cut() -> None:
    with pytest.raises(ConfigurationError, match="largest 64-bit number"):
        parse_duration_ns("9223372037s")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0ns"), (1, "1ns"), (5_000, "5us"), (7_000_000, "7ms"), (60 * 10**9, "60s")],
)
def test_a_duration_prints_in_the_largest_exact_unit(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize("value", [-1, INT64_MAX + 1])
def test_what_cannot_be_read_back_is_not_printed(value: int) -> None:
    with pytest.raises(ConfigurationError, match="not between 0 and"):
        format_size(value)
    with pytest.raises(ConfigurationError, match="not between 0 and"):
        format_duration(value)


@given(st.integers(0, INT64_MAX))
def test_every_value_reads_back_as_it_was_printed(value: int) -> None:
    assert parse_size(format_size(value)) == value
    assert parse_duration_ns(format_duration(value)) == value


@given(st.text())
def test_any_text_is_a_number_or_a_configuration_error(text: str) -> None:
    for parse in (parse_size, parse_duration_ns):
        with suppress(ConfigurationError):
            assert 0 <= parse(text) <= INT64_MAX
