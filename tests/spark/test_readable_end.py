"""Up to where an active recording may be read, and which source is asked."""

from __future__ import annotations

import random
from struct import pack, pack_into
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.recording_counter import RECORDING_POSITION_TYPE_ID, key_and_label
from aeron_async.counters import CountersManager
from aeron_async.errors import ArchiveFileError, ConfigurationError, DataLossError
from aeron_async.spark.boundaries import last_message_end
from aeron_async.spark.position_counters import PositionCounters
from aeron_async.spark.readable_end import ReadableEnds
from tests.spark.recordings import TERM, RecordingMaker, frame, options_for, scanned

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.disk.files import OsDirectory

NOW_MS = 1_700_000_000_000


class Clock:
    """Stands still."""

    def now_ns(self) -> int:
        return 0

    def epoch_ms(self) -> int:
        return NOW_MS

    def epoch_ns(self) -> int:
        return NOW_MS * 1_000_000


def filled(path: Path, count: int = 100, **settings: Any) -> RecordingMaker:
    maker = RecordingMaker(path, **settings)
    for _ in range(count):
        maker.message(b"m" * 900)
    maker.close()
    return maker


def end(maker: RecordingMaker, path: Path, **given: str) -> int:
    ends = ReadableEnds(maker.directory, options_for(path, **given), clock=Clock())
    return ends.of(maker.descriptor)


def alive(directory: OsDirectory, **identity: Any) -> MarkFile:
    mark = MarkFile.open(
        directory, identity=MarkIdentity(**identity), now_ms=NOW_MS - 1_000, boot_id=1
    )
    mark.signal_ready(NOW_MS - 1_000)
    return mark


def test_the_frames_of_the_last_file_tell_where_it_ends(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    assert maker.position > TERM
    assert end(maker, tmp_path) == maker.position
    assert end(maker, tmp_path, positionSource="scan") == maker.position


def test_the_catalog_knows_no_end_of_what_has_none(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    assert end(maker, tmp_path, positionSource="catalog") == 0


def test_a_recording_without_a_file_ends_where_it_starts(tmp_path: Path) -> None:
    maker = filled(tmp_path, 0, start=4_096)
    (tmp_path / "0-0.rec").unlink()
    assert end(maker, tmp_path) == 4_096


def test_a_recording_ends_with_its_last_full_segment(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path, segment_length=TERM)
    maker.message(b"x" * 900)
    maker.padding(TERM - maker.position)
    maker.close()
    (tmp_path / f"0-{TERM}.rec").unlink()
    assert end(maker, tmp_path) == TERM


def test_what_may_be_torn_does_not_count(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path, mtu=8_192)
    before = maker.message(b"m" * 900)
    torn = maker.message(b"m" * 8_000)
    maker.close()
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(4_096)
        file.write(bytes(4_096))
    assert before < end(maker, tmp_path) == torn


def test_padding_over_pages_is_not_torn(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"m" * 900)
    maker.padding(3 * 4_096)
    maker.close()
    assert end(maker, tmp_path) == maker.position


def test_a_checksum_proves_the_last_frame_and_finds_the_first_wrong_one(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path, mtu=8_192, checksum="crc32")
    maker.message(b"m" * 900)
    second = maker.message(bytes(8_000))
    maker.close()
    assert end(maker, tmp_path) == second
    assert end(maker, tmp_path, verifyChecksum="crc32") == maker.position
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(second + 5_000)
        file.write(b"\1")
    assert end(maker, tmp_path, verifyChecksum="crc32") == second


def test_rubbish_behind_the_frames_is_the_end(tmp_path: Path) -> None:
    maker = filled(tmp_path, 10)
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(maker.position)
        file.write(frame(b"foreign", term_offset=0))
    assert end(maker, tmp_path) == maker.position


def test_frames_behind_rubbish_are_data_loss_or_the_end(tmp_path: Path) -> None:
    maker = filled(tmp_path, 10)
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(maker.positions[6] + 8)
        file.write(b"\1\1\1\1")
    with pytest.raises(DataLossError, match="takes this for the end") as caught:
        end(maker, tmp_path)
    assert caught.value.position == maker.positions[6]
    assert end(maker, tmp_path, failOnDataLoss="false") == maker.positions[6]


@pytest.mark.parametrize("checksum", [None, "crc32"])
@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_an_end_is_the_one_that_the_archive_recovers(
    tmp_path: Path, checksum: str | None, seed: int, *, has_more: bool
) -> None:
    draw = random.Random(seed)
    maker = filled(tmp_path, draw.randrange(10, 100), checksum=checksum)
    place = draw.choice(maker.positions[5:-1])
    base = maker.position // (2 * TERM) * 2 * TERM
    place = max(place, min(each for each in maker.positions if each >= base))
    kind, at, junk = draw.choice(
        [
            ("length alone", 0, pack("<i", 2_000) + bytes(28)),
            ("too short", 0, pack("<i", 31)),
            ("too long", 0, pack("<i", TERM + 32)),
            ("version", 4, b"\7"),
            ("type", 6, b"\5\0"),
            ("term offset", 8, b"\xff"),
            ("stream", 16, b"\xff"),
            ("term id", 20, b"\xff"),
            ("nothing", 0, bytes(32)),
        ]
    )
    with (tmp_path / f"0-{base}.rec").open("r+b") as file:
        file.seek(place - base + at)
        file.write(junk)
        if not has_more:
            file.seek(place - base + 32)
            file.write(bytes(2 * TERM - (place - base + 32)))
    given = {} if checksum is None else {"verifyChecksum": checksum}
    try:
        ours: int | str = end(maker, tmp_path, **given)
    except DataLossError as error:
        ours = f"refused at {error.position}"
    catalog = Catalog.open(maker.directory, capacity=4_096)
    try:
        (found,) = recover(
            maker.directory, catalog, now_ms=NOW_MS, checksum=checksum_named(checksum)
        )
        theirs: int | str = found.stop_position
    except ArchiveFileError as error:
        theirs = f"refused at {base + error.offset}"
    finally:
        catalog.close()
    assert ours == theirs, kind


def test_a_live_archive_is_read_from_a_distance(tmp_path: Path) -> None:
    maker = filled(tmp_path, 200)
    mark = alive(maker.directory)
    try:
        found = end(maker, tmp_path)
        assert maker.position - TERM - 1_000 < found <= maker.position - TERM
        assert found in maker.positions
        assert end(maker, tmp_path, safetyLagBytes="0") == maker.position
    finally:
        mark.close()
    assert end(maker, tmp_path) == maker.position


def test_an_end_is_held_back_to_the_end_of_a_message(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"m" * 900)
    long = maker.message(b"m" * 9_000)
    maker.close()
    assert end(maker, tmp_path, safetyLagBytes="2k") == long
    assert end(maker, tmp_path, safetyLagBytes="1g") == 0
    directory = maker.directory
    assert last_message_end(directory, maker.descriptor, long + 17) == long
    assert last_message_end(directory, maker.descriptor, 100) == 0


def test_what_was_found_is_where_the_next_walk_begins(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"m" * 900)
    ends = ReadableEnds(maker.directory, options_for(tmp_path), clock=Clock())
    first = ends.of(maker.descriptor)
    assert first == maker.position
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.write(b"nobody walks here again")
    for _ in range(200):
        maker.message(b"more")
    maker.close()
    ends.invalidate()
    assert ends.of(maker.descriptor) == maker.position


class Counters:
    """Writes counters as a driver does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = bytearray(16 * 128)
        self.metadata = bytearray(16 * 512)
        self.manager = CountersManager(
            self.values, self.metadata, free_to_reuse_timeout_ms=0, epoch_ms=lambda: NOW_MS
        )

    def record(self, maker: RecordingMaker, position: int, archive_id: int = 3) -> None:
        key, label = key_and_label(
            maker.descriptor, session_id=5, source_identity="aeron:ipc", archive_id=archive_id
        )
        counter = self.manager.allocate(RECORDING_POSITION_TYPE_ID, key, label)
        counter.cell[0] = position

    def write(self, *, version: int = 512) -> None:
        metadata, values = bytes(self.metadata), bytes(self.values)
        header = bytearray(128)
        pack_into("<iiiii", header, 0, version, 256, 512, len(metadata), len(values))
        content = bytes(header) + bytes(256 + 512) + metadata + values
        (self.path / "cnc.dat").write_bytes(content)


def test_the_counters_of_a_driver_tell_where_recordings_end(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    (tmp_path / "driver").mkdir()
    counters = Counters(tmp_path / "driver")
    counters.manager.allocate(7, b"", "another counter")
    counters.record(maker, 960)
    counters.write()
    given = {"aeron.dir": str(tmp_path / "driver")}
    assert end(maker, tmp_path, **given, positionSource="counter") == 960
    assert end(maker, tmp_path, **given) == 960
    assert end(maker, tmp_path, **given, safetyLagBytes="100") == 0
    assert end(maker, tmp_path, **given, positionSource="scan") == maker.position
    mark = alive(maker.directory, archive_id=3, aeron_directory=str(tmp_path / "driver"))
    assert end(maker, tmp_path) == 960
    assert PositionCounters().look(str(tmp_path / "driver"), 4) == {}
    mark.close()


def test_counters_of_a_dead_archive_are_only_asked_by_name(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    (tmp_path / "driver").mkdir()
    counters = Counters(tmp_path / "driver")
    counters.record(maker, 960)
    counters.write()
    alive(maker.directory, archive_id=3, aeron_directory=str(tmp_path / "driver")).close()
    assert end(maker, tmp_path) == maker.position
    assert end(maker, tmp_path, positionSource="counter") == 960


def test_counters_of_another_archive_are_not_those_of_a_dead_one(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    (tmp_path / "driver").mkdir()
    counters = Counters(tmp_path / "driver")
    counters.record(maker, 960)
    counters.write()
    alive(maker.directory, archive_id=4, aeron_directory=str(tmp_path / "driver")).close()
    assert end(maker, tmp_path, **{"aeron.dir": str(tmp_path / "driver")}) == maker.position


@pytest.mark.parametrize("version", [0, -1, 1 << 16])
def test_a_driver_of_another_version_says_nothing(tmp_path: Path, version: int) -> None:
    counters = Counters(tmp_path)
    counters.record(filled(tmp_path), 960)
    counters.write(version=version)
    assert PositionCounters().look(str(tmp_path), None) == {}


def test_a_counter_that_is_not_there_is_told(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    for given in ({}, {"aeron.dir": str(tmp_path)}, {"aeron.dir": str(tmp_path / "gone")}):
        with pytest.raises(ConfigurationError, match="no counter shows recording 0"):
            end(maker, tmp_path, positionSource="counter", **given)


def test_a_file_of_counters_that_is_cut_off_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(pack("<i", 512))
    assert PositionCounters().look(str(tmp_path), None) == {}


def test_a_killed_recording_is_read_up_to_its_last_frame(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    found, _ = scanned(options_for(tmp_path))
    assert found["position"] == maker.positions
