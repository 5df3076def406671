"""What is wrong in a catalog is told, also where everything can be read that it lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.repair import Unrepairable, repair
from aeron_async.archive.disk.verify import Finding, Severity, verify
from tests.archive.disk.streams import described

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = 32
MTU_AT = ENTRY + 32 + 68


def changed(path: Path, offset: int, value: int) -> None:
    with (path / CATALOG_NAME).open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(4, "little", signed=True))


def problems(path: Path) -> list[Finding]:
    walk = [each for each in verify(OsDirectory(path)) if isinstance(each, Finding)]
    return [each for each in walk if each.severity is Severity.PROBLEM]


def second_entry(path: Path) -> int:
    """Return an archive's second entry; each of its two recordings has a file."""
    catalog = Catalog.open(OsDirectory(path), capacity=4_096)
    for number in range(2):
        catalog.add(described(stop_position=0))
        (path / f"{number}-0.rec").write_bytes(bytes(131_072))
    length = int.from_bytes((path / CATALOG_NAME).read_bytes()[ENTRY : ENTRY + 4], "little")
    catalog.close()
    return ENTRY + 32 + length


@pytest.mark.parametrize("length", [0, -1])
@pytest.mark.parametrize("number", [0, 1])
def test_an_entry_that_has_lost_its_length_is_missed(
    tmp_path: Path, number: int, length: int
) -> None:
    offset = (ENTRY, second_entry(tmp_path))[number]
    assert problems(tmp_path) == []
    changed(tmp_path, offset, length)
    (what,) = problems(tmp_path)
    assert (what.file, what.offset, what.recording_id) == (CATALOG_NAME, offset, number)
    assert what.what.startswith(f"an entry of {length} bytes ends the catalog")
    (each,) = repair(OsDirectory(tmp_path), consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert (each.what, each.offset, each.commands) == (what.what, offset, ())


def test_an_entry_that_was_never_finished_is_not_missed(tmp_path: Path) -> None:
    offset = second_entry(tmp_path)
    (tmp_path / "1-0.rec").unlink()
    changed(tmp_path, offset, 0)
    assert problems(tmp_path) == []
    assert list(repair(OsDirectory(tmp_path), consent=True, now_ms=5)) == []


@pytest.mark.parametrize("mtu", [-1, 0, 32, 1_409, 65_536])
def test_an_mtu_that_is_none_is_told(tmp_path: Path, mtu: int) -> None:
    second_entry(tmp_path)
    changed(tmp_path, MTU_AT, mtu)
    (what,) = problems(tmp_path)
    assert what.what == f"mtu length {mtu} is no multiple of 32 from 64 to 65504"
    (each,) = repair(OsDirectory(tmp_path), consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert each.what == what.what


@pytest.mark.parametrize("time_ms", [-5, 253_402_300_800_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_told_and_harms_nothing(
    tmp_path: Path, time_ms: int
) -> None:
    """`verify` found nothing wrong with a year of 300000."""
    catalog = Catalog.open(OsDirectory(tmp_path), capacity=4_096)
    added = catalog.add(described(start_timestamp_ms=time_ms, stop_position=0)).recording_id
    catalog.update(added, stop_timestamp_ms=time_ms)
    catalog.add(described(start_timestamp_ms=253_402_300_799_999, stop_position=0))
    assert catalog.get(added).stop_timestamp_ms == time_ms
    catalog.close()
    (what,) = problems(tmp_path)
    assert what.what == (f"start timestamp {time_ms} is no time from 1970 to 9999, in milliseconds")
    (each,) = repair(OsDirectory(tmp_path), consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert each.what == what.what
    assert Catalog.open_to_read(OsDirectory(tmp_path)).get(added).start_timestamp_ms == time_ms
