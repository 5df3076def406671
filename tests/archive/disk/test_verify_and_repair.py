"""An archive is held against its catalog, and mended where a crash left it; nothing is silent."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.changes import purge_segments, truncate
from aeron_async.archive.disk.checksums import CHECKSUMS, Checksum
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk.repair import Repair, RepairKind, Unrepairable, plan_repairs, repair
from aeron_async.archive.disk.verify import Finding, Progress, Severity, verify
from aeron_async.errors import ArchiveFileError
from tests.archive.disk.conftest import Kept, recorded
from tests.archive.disk.streams import described, frame, read_all
from tests.archive.golden import ARCHIVES, golden_path

if TYPE_CHECKING:
    from pathlib import Path

CRC = CHECKSUMS["crc32"]


def found(path: Path, checksum: Checksum | None = None) -> list[str]:
    walk = verify(OsDirectory(path), checksum=checksum)
    return [str(each) for each in walk if isinstance(each, Finding)]


def contents(path: Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in path.iterdir()}


def spoil(kept: Kept, name: str, offset: int, data: bytes) -> None:
    file = kept.directory.open(name)
    file.write([data], offset)
    file.close()


# Verifying.


@pytest.mark.parametrize("name", [each for each in ARCHIVES if each != "A3-recovered"])
def test_official_archives_are_as_they_should_be(name: str) -> None:
    path = golden_path(name)
    before = contents(path)
    findings = list(verify(OsDirectory(path), checksum=CRC if "crc32" in name else None))
    bad = [each for each in findings if isinstance(each, Finding)]
    assert [each for each in bad if each.severity is Severity.PROBLEM] == []
    assert any(isinstance(each, Progress) for each in findings)
    assert contents(path) == before


def test_segments_that_are_gone_are_named(tmp_path: Path) -> None:
    assert found(golden_path("A3-recovered"))[0] == (
        "problem: 0-0.rec, offset 0: no file holds positions 0 to 24320 of recording 0"
    )
    kept = recorded(tmp_path)
    kept.directory.remove("0-131072.rec")
    assert found(tmp_path) == [
        "problem: 0-131072.rec, offset 0: no file holds positions 131072 to 262144 of recording 0"
    ]


def test_an_empty_recording_needs_no_file(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory)
    catalog.add(described(start_position=70_000 & -32, stop_position=70_000 & -32))
    assert found(tmp_path) == []
    assert list(plan_repairs(directory)) == []


def test_progress_goes_up_to_the_end(kept: Kept) -> None:
    steps = [each for each in verify(kept.directory) if isinstance(each, Progress)]
    assert steps[-1] == Progress(0, kept.stop)
    assert [each.position for each in steps] == sorted(each.position for each in steps)


def test_a_damaged_frame_is_named(kept: Kept) -> None:
    place = next(each for each in kept.starts if each > 200_000)
    spoil(kept, "0-131072.rec", place - 131_072 + 8, b"\1\1\1\1")
    (what,) = found(kept.path)
    assert what.startswith(f"problem: 0-131072.rec, offset {place - 131_072}: a frame at term")


def test_checksums_are_held_against_the_frames(tmp_path: Path) -> None:
    kept = recorded(tmp_path, CRC)
    assert found(tmp_path, CRC) == []
    place = next(
        each
        for each in kept.starts
        if each > 200_000 and kept.data[each - 4_096 : each - 4_095] > b"\x3f"
    )
    old = (tmp_path / "0-131072.rec").read_bytes()[place - 131_072 + 32]
    spoil(kept, "0-131072.rec", place - 131_072 + 32, bytes([old ^ 1]))
    (what,) = found(tmp_path, CRC)
    assert f"offset {place - 131_072}: a frame of" in what
    assert "with checksum" in what
    assert found(tmp_path) == []


def test_frames_without_checksums_are_counted(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    data_count = sum(1 for each in kept.starts if kept.data[each - 4_096 + 6])
    (what,) = found(tmp_path, CRC)
    assert what == (
        f"note: 0-0.rec, offset 0: {data_count} frames of recording 0 have no checksum to check"
    )
    # The session of before it was extended, and none at all.
    kept.catalog.update(0, session_id=99)
    assert found(tmp_path, CRC) == [what]
    assert mended(tmp_path, checksum=CRC) == []
    place = next(each for each in kept.starts if kept.data[each - 4_096 + 6])
    spoil(kept, "0-0.rec", place + 12, bytes(4))
    assert found(tmp_path, CRC) == [what]


def test_a_lone_frame_of_an_earlier_session_is_no_damage(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    before = found(tmp_path, CRC)
    place = next(each for each in kept.starts if kept.data[each - 4_096 + 6])
    spoil(kept, "0-0.rec", place + 12, b"\1\2\3\4")
    assert found(tmp_path, CRC) == before != []


def test_damage_before_padding_is_damage(tmp_path: Path) -> None:
    kept = recorded(tmp_path, CRC)
    padding = next(each for each in kept.starts if not kept.data[each - 4_096 + 6])
    place = max(each for each in kept.starts if each < padding)
    at = place % 131_072
    name = f"0-{place - at}.rec"
    spoil(kept, name, at + 32, bytes([kept.data[place - 4_096 + 32] ^ 1]))
    (what,) = found(tmp_path, CRC)
    assert what.startswith(f"problem: {name}, offset {at}: a frame of")


def test_damage_beside_frames_without_checksums_is_named_as_damage(tmp_path: Path) -> None:
    kept = recorded(tmp_path, CRC)
    places = [each for each in kept.starts if kept.data[each - 4_096] > 32]
    place = next(each for each in places if kept.data[each - 4_096 + 6])
    spoil(kept, "0-0.rec", place + 32, bytes([kept.data[place - 4_096 + 32] ^ 1]))
    (what,) = found(tmp_path, CRC)
    assert what.startswith(f"problem: 0-0.rec, offset {place}: a frame of")


def test_the_kind_of_checksum_that_fits_is_named(tmp_path: Path) -> None:
    kept = recorded(tmp_path, CRC)
    catalog = Catalog.open(kept.directory, capacity=32, checksum=CRC)
    catalog.update(0, stop_timestamp_ms=5)
    entry, *frames = found(tmp_path, CHECKSUMS["crc32c"])
    assert entry.startswith("note: ")
    assert len(frames) == len(kept.files())
    for each in (entry, *frames):
        assert each.endswith(", which matches crc32: is that the kind?")


def test_files_that_do_not_count_are_noted(kept: Kept) -> None:
    for name in ("5-0.rec", "0-655360.rec", "0-77.rec", "letter.txt", "x.before-repair"):
        (kept.path / name).write_bytes(b"")
    gone = kept.catalog.add(described())
    kept.catalog.delete(gone.recording_id)
    (kept.path / "1-0.rec").write_bytes(b"")
    kept.catalog.update(0, start_position=131_072)
    assert sorted(found(kept.path)) == [
        "note: 0-0.rec, offset 0: detached from recording 0, which begins at 131072",
        f"note: 0-655360.rec, offset 0: no part of recording 0, which ends at {kept.stop}",
        "note: 0-77.rec, offset 0: detached from recording 0, which begins at 131072",
        "note: 1-0.rec, offset 0: of recording 1, which is deleted in the catalog",
        "note: 5-0.rec, offset 0: of recording 5, which is not in the catalog",
        "note: letter.txt, offset 0: a file that belongs to no archive",
    ]


def test_a_damaged_catalog_is_told_as_far_as_it_goes(kept: Kept) -> None:
    kept.catalog.add(described())
    spoil(kept, CATALOG_NAME, 32 + 96, b"\0\0\0\0")
    (what,) = found(kept.path)[:1]
    assert what.startswith("problem: archive.catalog, offset 64: term length 0")
    spoil(kept, CATALOG_NAME, 32 + 4, b"\7")
    assert "an entry of state 7" in found(kept.path)[0]


def test_a_stop_position_beyond_belief_takes_no_memory(kept: Kept) -> None:
    kept.catalog.update(0, stop_position=(1 << 62))
    what = found(kept.path)
    assert f"no file holds positions 655360 to {1 << 62}" in what[-1]
    assert len(what) == 2


def test_the_checksum_of_an_entry_is_noted_if_it_is_old(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096, checksum=CRC)
    catalog.add(described())
    catalog.update(0, stop_position=0)
    assert found(tmp_path, CRC) == []
    Catalog.open(directory, capacity=32).update(0, stop_timestamp_ms=5)
    (what,) = found(tmp_path, CRC)
    assert what.startswith("note: archive.catalog, offset 32: an entry with checksum")


# Repairing.


def mended(path: Path, *, consent: bool = True, checksum: Checksum | None = None) -> list[str]:
    walk = repair(OsDirectory(path), consent=consent, now_ms=55, checksum=checksum)
    return [str(each) for each in walk]


def test_what_needs_no_repair_is_left_alone(kept: Kept) -> None:
    before = contents(kept.path)
    assert mended(kept.path) == []
    assert contents(kept.path) == before


def test_without_consent_nothing_changes(tmp_path: Path) -> None:
    recorded(tmp_path, stops=False)
    before = contents(tmp_path)
    (what,) = mended(tmp_path, consent=False)
    assert what.startswith("archive.catalog: recording 0 has no end: it ends at")
    assert contents(tmp_path) == before


def test_a_torn_end_is_cut_off_and_a_copy_stays(tmp_path: Path) -> None:
    kept = recorded(tmp_path, stops=False)
    last = next(each for each in reversed(kept.starts) if each >> 12 != (each + 600) >> 12)
    last = max(each for each in kept.starts if each <= last)
    following = kept.starts[kept.starts.index(last) + 1 :]
    cut = following[0] if following else kept.stop
    base = last & -131_072
    page = (last // 4_096 + 1) * 4_096
    if page < cut:
        spoil(kept, f"0-{base}.rec", page - base, bytes(cut - page))
    spoil(kept, f"0-{base}.rec", cut - base, bytes(131_072 - (cut - base)))
    before = contents(tmp_path)
    directory = OsDirectory(tmp_path)
    if page < cut:
        with pytest.raises(ArchiveFileError, match="archive repair"):
            recover(directory, Catalog.open(directory, capacity=32), now_ms=1)
    (what,) = mended(tmp_path)
    assert "recording 0 has no end: it ends at" in what
    after = contents(tmp_path)
    for name in (CATALOG_NAME, f"0-{base}.rec"):
        assert after[f"{name}.before-repair"] == before[name]
    descriptor = Catalog.open(directory, capacity=32).get(0)
    assert descriptor.stop_position == (last if page < cut else cut)
    assert descriptor.stop_timestamp_ms == 55
    stop = descriptor.stop_position
    assert read_all(directory, descriptor, 4_096, stop) == kept.data[: stop - 4_096]
    assert [each for each in found(tmp_path) if "problem" in each] == []
    assert mended(tmp_path) == []


def test_a_frame_of_ours_that_is_all_zeros_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096)
    descriptor = catalog.add(described())
    writer = RecordingWriter(directory, descriptor, position=0)
    writer.write([(memoryview(frame(descriptor, 0, bytes(9_000))), 0)])
    writer.close()
    (torn,) = repair(directory, consent=False, now_ms=1)
    (whole,) = repair(directory, consent=False, now_ms=1, ends_are_whole=True)
    assert isinstance(torn, Repair)
    assert isinstance(whole, Repair)
    assert (torn.value, whole.value) == (0, 9_056)


def test_a_next_id_that_is_used_is_derived_anew(kept: Kept) -> None:
    kept.catalog.add(described())
    kept.catalog.update(1, stop_position=0)
    spoil(kept, CATALOG_NAME, 8, b"\1")
    assert "the next recording id is 1, and 1 is used" in found(kept.path)[0]
    with pytest.raises(ArchiveFileError, match="archive repair"):
        Catalog.open(kept.directory)
    assert mended(kept.path) == [
        "archive.catalog: the next recording id is 1, and 1 is used: it becomes 2"
    ]
    assert Catalog.open(kept.directory, capacity=32).next_recording_id == 2


def test_a_segment_that_is_too_short_is_filled_up(kept: Kept) -> None:
    file = kept.directory.open("0-524288.rec")
    file.set_length(kept.stop - 524_288)
    file.close()
    assert "and a segment has 131072" in found(kept.path)[0]
    (what,) = mended(kept.path)
    assert what.endswith("and a segment has 131072: zeros follow")
    assert found(kept.path) == []


def test_a_stop_that_the_files_do_not_reach_becomes_one_that_they_do(kept: Kept) -> None:
    place = next(each for each in kept.starts if each > 560_000)
    spoil(kept, "0-524288.rec", place - 524_288, bytes(600_000 - 560_000))
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Repair)
    assert (each.kind, each.value, each.recording_id) == (RepairKind.STOP_POSITION, place, 0)
    assert [each for each in found(kept.path) if "problem" in each] == []


def test_damage_in_the_middle_is_left_as_it_is_and_named(kept: Kept) -> None:
    place = next(each for each in kept.starts if each > 200_000)
    spoil(kept, "0-131072.rec", place - 131_072, bytes(4))
    before = contents(kept.path)
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert (each.recording_id, each.file, each.offset) == (0, "0-131072.rec", place - 131_072)
    assert each.position == place
    assert each.commands == (
        f"aeron-async archive truncate {kept.path} 0 {place}",
        f"aeron-async archive purge {kept.path} 0 --before 262144",
        f"aeron-async archive purge {kept.path} 0",
    )
    assert f"recording 0 is good up to position {place}; `{each.commands[0]}` keeps" in str(each)
    assert contents(kept.path) == before
    truncate(kept.directory, kept.catalog, 0, place)
    assert mended(kept.path) == []
    assert found(kept.path) == []


def test_what_lies_behind_damage_can_be_kept(kept: Kept) -> None:
    spoil(kept, "0-0.rec", 4_096, bytes(4))
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert each.position == 4_096
    assert [command.split()[-2:] for command in each.commands] == [
        ["--before", "131072"],
        [str(kept.path), "0"],
    ]
    purge_segments(kept.directory, kept.catalog, 0, 131_072)
    assert mended(kept.path) == []


def test_files_that_are_gone_are_named_with_what_can_be_done(kept: Kept) -> None:
    for base in (131_072, 524_288):
        kept.directory.remove(f"0-{base}.rec")
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert "no file holds positions 131072 to 262144 of recording 0 (and 1 more" in each.what
    assert each.position == 131_072
    assert [command.split()[2] for command in each.commands] == ["truncate", "purge"]
    truncate(kept.directory, kept.catalog, 0, 131_072)
    assert mended(kept.path) == []


def test_a_file_that_begins_where_none_can_is_to_be_moved_away(tmp_path: Path) -> None:
    kept = recorded(tmp_path, stops=False)
    kept.directory.rename("0-524288.rec", "0-524320.rec")
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert "a file that begins at 524320, and the files of recording 0 begin every" in each.what
    assert "move it out of the directory" in str(each)
    assert each.commands == ()


def test_padding_that_passes_the_end_does_not_end_a_recording_early(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096)
    descriptor = catalog.add(described())
    writer = RecordingWriter(directory, descriptor, position=0)
    writer.write([(memoryview(frame(descriptor, 0, bytes(100))), 0)])
    writer.write([(memoryview(frame(descriptor, 160, b"", kind=0, length=320)), 288)])
    writer.close()
    catalog.update(0, stop_position=192, stop_timestamp_ms=9)
    (each,) = repair(directory, consent=False, now_ms=1)
    assert isinstance(each, Repair)
    assert each.value == 160


def test_recordings_without_checksums_are_not_taken_for_damaged(kept: Kept) -> None:
    assert mended(kept.path, checksum=CRC) == []


def test_copies_never_replace_one_another(kept: Kept) -> None:
    for number in range(2):
        file = kept.directory.open("0-524288.rec")
        file.set_length(100_000 + number)
        file.close()
        assert len(mended(kept.path)) == 1
    assert (kept.path / "0-524288.rec.before-repair").stat().st_size == 100_000
    assert (kept.path / "0-524288.rec.before-repair.2").stat().st_size == 100_001


def test_what_no_entry_can_tell_is_named(kept: Kept) -> None:
    kept.catalog.add(described())
    kept.catalog.add(described())
    kept.catalog.delete(1)
    spoil(kept, CATALOG_NAME, 32 + 96, b"\0\0\0\0")
    entry, other = plan_repairs(kept.directory)
    assert isinstance(entry, Unrepairable)
    assert (entry.recording_id, entry.offset, entry.position) == (0, 64, None)
    assert "nothing else says what recording 0 is" in str(entry)
    assert isinstance(other, Repair)
    assert other.recording_id == 2
