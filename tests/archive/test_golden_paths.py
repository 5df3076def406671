"""Tests get no original of the official archive's directories, and spoil no other test's copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.archive.golden import copy_of, golden_path, kept, seal_of
from tests.captures import captures_dir

if TYPE_CHECKING:
    from pathlib import Path

NAME = "A1-one-finished"


def test_what_is_handed_out_is_no_original(tmp_path: Path) -> None:
    original = captures_dir() / "archives" / NAME
    path = golden_path(NAME)
    assert path != original
    assert golden_path(NAME) is path
    names = sorted(each.name for each in original.iterdir())
    for each in (path, copy_of(NAME, tmp_path)):
        assert sorted(found.name for found in each.iterdir()) == names
        assert all((each / name).read_bytes() == (original / name).read_bytes() for name in names)


def test_a_test_that_writes_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = copy_of(NAME, tmp_path / "archives")
    path, seal = kept(original)
    assert seal_of(path) == seal
    monkeypatch.setenv("AERON_CAPTURES", str(tmp_path))
    assert golden_path(NAME) == path
    (path / "archive-mark.dat").write_bytes(b"")
    with pytest.raises(AssertionError, match=r"a test has written to .*: it wants `copy_of`"):
        golden_path(NAME)
