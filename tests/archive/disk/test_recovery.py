"""Where recordings end whose archive died: as the official one finds, or refused, never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.errors import ArchiveFileError, StorageError
from tests.archive.disk.conftest import recorded
from tests.archive.disk.streams import FrameSource, described, frame, read_all
from tests.archive.golden import copy_of, golden_path
from tests.support.faulty_files import Faults, FaultyDirectory

if TYPE_CHECKING:
    from pathlib import Path

CRC = CHECKSUMS["crc32"]


def reopened(path: Path) -> tuple[OsDirectory, Catalog]:
    directory = OsDirectory(path)
    return directory, Catalog.open(directory, capacity=32)


def died(path: Path, frames: list[bytes], *, checksum: Any = None) -> Catalog:
    """Return the catalog of an archive that died behind frames."""
    directory = OsDirectory(path)
    catalog = Catalog.open(directory, capacity=4_096)
    writer = RecordingWriter(directory, catalog.add(described()), position=0, checksum=checksum)
    writer.write([(memoryview(each), 0) for each in frames])
    writer.close()
    catalog.close()
    return Catalog.open(directory, capacity=32)


def three(descriptor: Any, fill: bytes = b"x") -> list[bytes]:
    """Return three frames, of which the last lies in two pages."""
    frames, position = [], 0
    for length in (1_376, 1_376, 1_376):
        frames.append(frame(descriptor, position, fill * length))
        position += 1_408
    return frames


def test_an_official_archive_is_recovered_as_it_recovers_itself(tmp_path: Path) -> None:
    path = copy_of("A3-several-recordings", tmp_path)
    directory, catalog = reopened(path)
    found = {each.recording_id for each in recover(directory, catalog, now_ms=5)}
    official = Catalog.open_to_read(OsDirectory(golden_path("A3-recovered"), create=False))
    assert found == {7, 8}
    assert list(catalog.ids()) == list(official.ids())
    for number in official.ids():
        ours, theirs = catalog.get(number), official.get(number)
        assert attrs.evolve(ours, stop_timestamp_ms=theirs.stop_timestamp_ms) == theirs
    assert recover(directory, catalog, now_ms=6) == []


def test_a_recording_goes_on_where_its_frames_end(tmp_path: Path) -> None:
    kept = recorded(tmp_path, stops=False)
    kept.catalog.close()
    directory, catalog = reopened(tmp_path)
    (found,) = recover(directory, catalog, now_ms=77)
    assert (found.stop_position, found.discarded) == (kept.stop, 0)
    assert catalog.get(0).stop_timestamp_ms == 77
    assert read_all(directory, catalog.get(0), 4_096, kept.stop) == kept.data


def test_what_is_no_frame_behind_the_end_is_cut_off(tmp_path: Path) -> None:
    catalog = died(tmp_path, [frame(described(), 0, b"x")])
    directory = OsDirectory(tmp_path)
    file = directory.open("0-0.rec")
    file.write([b"left over"], 100)
    file.close()
    (found,) = recover(directory, catalog, now_ms=1)
    assert (found.stop_position, found.discarded) == (64, 45)
    assert not any((tmp_path / "0-0.rec").read_bytes()[64:])


def test_a_recording_without_files_ends_where_it_began(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096)
    catalog.add(described(start_position=64))
    catalog.close()
    directory, catalog = reopened(tmp_path)
    (found,) = recover(directory, catalog, now_ms=1)
    assert found.stop_position == 64


def test_a_file_that_begins_where_none_can_is_named(tmp_path: Path) -> None:
    catalog = died(tmp_path, [frame(described(), 0, b"x")])
    directory = OsDirectory(tmp_path)
    directory.rename("0-0.rec", "0-65536.rec")
    with pytest.raises(ArchiveFileError, match=r"0-65536\.rec, offset 0"):
        recover(directory, catalog, now_ms=1)


# Torn frames.


def test_a_frame_that_may_be_torn_is_refused_where_others_wrote(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()))
    directory = OsDirectory(tmp_path)
    file = directory.open("0-0.rec")
    file.write([bytes(4_224 - 4_096)], 4_096)
    file.close()
    with pytest.raises(ArchiveFileError, match=r"may be torn.*archive repair") as caught:
        recover(directory, catalog, now_ms=1)
    assert (caught.value.file, caught.value.offset) == ("0-0.rec", 2_816)
    assert catalog.get(0).is_active
    (found,) = recover(directory, catalog, now_ms=1, ends_are_whole=True)
    assert found.stop_position == 4_224


def test_a_frame_with_something_in_each_page_is_whole(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()))
    (found,) = recover(OsDirectory(tmp_path), catalog, now_ms=1)
    assert found.stop_position == 4_224


def test_frames_that_do_not_follow_one_another_are_refused(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()))
    directory = OsDirectory(tmp_path)
    file = directory.open("0-0.rec")
    file.write([b"\1"], 1_408 + 8)
    file.close()
    with pytest.raises(ArchiveFileError, match=r"offset 1408: .*archive repair"):
        recover(directory, catalog, now_ms=1)


# Checksums.


def test_with_checksums_a_recording_ends_before_the_first_that_is_wrong(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()), checksum=CRC)
    directory = OsDirectory(tmp_path)
    file = directory.open("0-0.rec")
    file.write([b"!"], 4_200)
    file.close()
    (found,) = recover(directory, catalog, now_ms=1, checksum=CRC)
    assert (found.stop_position, found.discarded) == (2_816, 1_408)
    assert not any((tmp_path / "0-0.rec").read_bytes()[2_816:])


def test_frames_without_checksums_are_not_taken_for_damaged_ones(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()))
    (found,) = recover(OsDirectory(tmp_path), catalog, now_ms=1, checksum=CRC)
    assert found.stop_position == 4_224


def test_a_last_frame_without_checksum_may_be_torn_for_all_that(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described()))
    directory = OsDirectory(tmp_path)
    file = directory.open("0-0.rec")
    file.write([bytes(4_224 - 4_096)], 4_096)
    file.close()
    with pytest.raises(ArchiveFileError, match=r"may be torn.*archive repair") as caught:
        recover(directory, catalog, now_ms=1, checksum=CRC)
    assert (caught.value.file, caught.value.offset) == ("0-0.rec", 2_816)


def test_frames_of_which_nobody_knows_whether_they_have_checksums_are_refused(
    tmp_path: Path,
) -> None:
    catalog = died(tmp_path, three(described()))
    # As if it had been extended since.
    catalog.update(0, session_id=99)
    directory = OsDirectory(tmp_path)
    with pytest.raises(ArchiveFileError, match=r"0-0\.rec, offset 0.*was it recorded without"):
        recover(directory, catalog, now_ms=1, checksum=CRC)
    assert catalog.get(0).is_active
    # A process that was killed has torn nothing, whatever the settings are by now.
    (found,) = recover(directory, catalog, now_ms=1, checksum=CRC, ends_are_whole=True)
    assert found.stop_position == 4_224


def test_with_checksums_all_that_is_right_is_kept(tmp_path: Path) -> None:
    catalog = died(tmp_path, three(described(), b"\0"), checksum=CRC)
    (found,) = recover(OsDirectory(tmp_path), catalog, now_ms=1, checksum=CRC)
    assert found.stop_position == 4_224


# A disk that is full.


def test_a_full_disk_stops_a_recording_and_all_before_is_there() -> None:
    directory = FaultyDirectory(3, Faults(capacity=200_000))
    catalog = Catalog.open(directory, capacity=4_096)
    descriptor = catalog.add(described())
    writer = RecordingWriter(directory, descriptor, position=0)
    source, data = FrameSource(descriptor, 1), bytearray()

    def write_on() -> None:
        while True:
            block, padding = source.block()
            data.extend(block)
            data.extend(bytes(padding))
            writer.write([(block, padding)])

    with pytest.raises(StorageError, match="recording 0 stopped at position"):
        write_on()
    assert 100_000 < writer.position < 300_000
    directory.faults = Faults()
    again = Catalog.open(directory, capacity=32)
    (found,) = recover(directory, again, now_ms=1)
    assert found.stop_position == writer.position
    got = read_all(directory, again.get(0), 0, writer.position)
    assert got == data[: writer.position]
    writer.close()
    with pytest.raises(StorageError, match="it was closed"):
        writer.write([(memoryview(bytes(32)), 0)])
