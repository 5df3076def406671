"""Where the catalog and the files tell of different streams, nobody guesses which is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk.repair import Repair, Unrepairable, repair
from aeron_async.errors import ArchiveFileError
from tests.archive.disk.conftest import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.archive.disk.conftest import Kept

BODY = 64
INITIAL_TERM_AT = BODY + 56
STREAM_AT = BODY + 76


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


def damage(kept: Kept, name: str, offset: int, data: bytes) -> None:
    file = kept.directory.open(name)
    file.write([data], offset)
    file.close()


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (INITIAL_TERM_AT, "stream 10 and initial term 99 in the catalog"),
        (STREAM_AT, "stream 99 and initial term 7 in the catalog"),
    ],
)
@pytest.mark.parametrize("stops", [False, True])
def test_an_entry_that_all_files_contradict_ends_no_recording(
    tmp_path: Path, offset: int, said: str, *, stops: bool
) -> None:
    kept = recorded(tmp_path, stops=stops)
    damage(kept, CATALOG_NAME, offset, b"\x63")
    before = contents(tmp_path)
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert (each.file, each.offset, each.position) == ("0-0.rec", 4_096, None)
    files = len(kept.files())
    assert f"{said}, and all {files} of its files begin with frames of stream 10" in each.what
    assert each.commands == (f"aeron-async archive purge {tmp_path} 0",)
    if not stops:
        # An archive that starts there would end the recording before its last file, and clear that.
        with pytest.raises(ArchiveFileError, match=r"and its file begins .* says what can be done"):
            recover(kept.directory, Catalog.open(kept.directory, capacity=32), now_ms=1)
    assert contents(tmp_path) == before


def test_a_file_that_the_others_contradict_is_damage_like_other_damage(kept: Kept) -> None:
    damage(kept, "0-131072.rec", 16, b"\x63")
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert each.position == 131_072
    damage(kept, "0-131072.rec", 16, b"\x0a")
    damage(kept, "0-524288.rec", 16, b"\x63")
    (last,) = repair(kept.directory, consent=True, now_ms=5)
    # Whole frames lie behind it: the recording does not end there because of it.
    assert isinstance(last, Unrepairable)
    assert last.position == 524_288
    assert last.commands[0].endswith(f"truncate {kept.path} 0 524288")


def test_files_without_frames_contradict_nothing(tmp_path: Path) -> None:
    kept = recorded(tmp_path, stops=False)
    for base in kept.files():
        (tmp_path / f"0-{base}.rec").write_bytes(bytes(131_072))
    end, damaged = repair(kept.directory, consent=False, now_ms=5)
    assert isinstance(end, Repair)
    assert end.value == 524_288
    assert isinstance(damaged, Unrepairable)
    assert damaged.position == 4_096
