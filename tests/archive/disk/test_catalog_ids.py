"""No recording gets the id of another whose files are there, whatever became of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.errors import ArchiveFileError
from tests.archive.disk.streams import described

if TYPE_CHECKING:
    from pathlib import Path

    from tests.archive.disk.conftest import Kept


def test_a_catalog_that_was_lost_is_not_made_anew(kept: Kept) -> None:
    kept.catalog.close()
    kept.directory.remove(CATALOG_NAME)
    before = sorted(kept.directory.names())
    with pytest.raises(ArchiveFileError, match=r"0-0\.rec one of 5, .* put a copy of the catalog"):
        Catalog.open(kept.directory)
    assert sorted(kept.directory.names()) == before


def test_a_catalog_of_before_gives_no_id_that_has_files(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096)
    catalog.add(described(stop_position=0))
    old = (tmp_path / CATALOG_NAME).read_bytes()
    catalog.add(described(stop_position=0))
    catalog.close()
    (tmp_path / "1-0.rec").write_bytes(bytes(131_072))
    (tmp_path / CATALOG_NAME).write_bytes(old)
    catalog = Catalog.open(directory, capacity=32)
    assert list(catalog.ids()) == [0]
    assert catalog.add(described()).recording_id == 2
    catalog.close()
    assert Catalog.open(directory, capacity=32).next_recording_id == 3


def test_a_name_that_nobody_counts_up_to_uses_no_ids_up(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    Catalog.open(directory, capacity=4_096).close()
    (tmp_path / f"{(1 << 63) - 1}-0.rec").write_bytes(b"")
    assert Catalog.open(directory, capacity=32).add(described()).recording_id == 0
