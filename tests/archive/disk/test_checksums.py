"""Checksums by their names."""

from __future__ import annotations

from importlib import util

import pytest

from aeron_async.archive.disk import checksums
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("crc32", -873_187_034),
        ("crc32c", -486_108_541),
        ("org.agrona.checksum.Crc32c", -486_108_541),
    ],
)
def test_a_checksum_is_that_of_its_name(name: str, expected: int) -> None:
    checksum = checksum_named(name)
    assert checksum is not None
    assert checksum(b"123456789") == expected


@pytest.mark.parametrize("name", [None, "none"])
def test_there_may_be_none(name: str | None) -> None:
    assert checksum_named(name) is None


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no checksum is named 'md5'"):
        checksum_named("md5")


def test_what_has_no_package_says_which_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == "crc32c" else util.find_spec(name)

    monkeypatch.setattr(checksums, "find_spec", found)
    with pytest.raises(ConfigurationError, match=r"pip install 'aeron-async\[crc32c\]'"):
        checksum_named("crc32c")
    assert checksum_named("crc32") is not None
