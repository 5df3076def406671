"""Catalogs: the official ones read to their facts, ours are the same bytes, damage is named."""

from __future__ import annotations

import errno
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.disk.catalog import (
    CATALOG_NAME,
    LARGEST_CAPACITY,
    Catalog,
    grown_capacity,
    read_header,
    scan_entries,
    version_text,
)
from aeron_async.archive.disk.checksums import CHECKSUMS, checksum_named
from aeron_async.archive.disk.descriptor import RecordingDescriptor, RecordingState
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.errors import ArchiveFileError, ConfigurationError, UnknownRecordingError
from tests.archive.golden import ARCHIVES, RECORDINGS, copy_of, facts, golden_path, recording_facts
from tests.support.faulty_files import FaultyDirectory, FaultyFile, ProcessStopped

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {
    "segment_length": "segment_file_length",
    "term_length": "term_buffer_length",
    "start_timestamp_ms": "start_timestamp",
    "stop_timestamp_ms": "stop_timestamp",
}
WRITTEN_ONCE = [name for name in ARCHIVES if name not in {"A3-recovered", "A7-catalog-growth"}]
"""The others were recovered, or have channels that were replaced: old bytes stay behind those."""
FIRST = RecordingDescriptor(
    recording_id=-1,
    start_position=0,
    start_timestamp_ms=1_700_000_000_000,
    initial_term_id=5,
    term_length=65_536,
    segment_length=131_072,
    mtu_length=1_408,
    session_id=-77,
    stream_id=10,
    stripped_channel="aeron:ipc",
    original_channel="aeron:ipc?term-length=64k",
    source_identity="aeron:ipc",
)


def described(each: dict[str, Any]) -> RecordingDescriptor:
    """Return the descriptor that the facts of a recording are of."""
    names = [field.name for field in attrs.fields(RecordingDescriptor)]
    return RecordingDescriptor(**{name: each[FIELDS.get(name, name)] for name in names})


def opened(path: Path, **options: Any) -> Catalog:
    return Catalog.open(OsDirectory(path), **options)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return opened(tmp_path)


# What the official archive wrote.


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_official_catalog_says_what_is_known_of_it(name: str) -> None:
    directory = OsDirectory(golden_path(name), create=False)
    catalog = Catalog.open_to_read(directory)
    known = facts()[name]["catalog"]
    assert catalog.next_recording_id == known["next_recording_id"]
    assert (catalog.alignment, catalog.capacity) == (known["alignment"], known["file_length"])
    assert version_text(catalog.version) == known["version"]
    file = directory.open_to_read(CATALOG_NAME)
    entries = list(scan_entries(file, read_header(file)))
    end = known.get("end_of_entries_offset", known.get("end_of_entries"))
    assert entries[-1].offset + entries[-1].length == end
    for each in facts()[name].get("recordings", []):
        (entry,) = [one for one in entries if one.recording_id == each["recording_id"]]
        assert (entry.offset, entry.length) == (each["entry_offset"], each["entry_length"])
        assert (entry.state, entry.checksum) == (each["state"], each["entry_checksum"])
    catalog.close()


@pytest.mark.parametrize(("name", "recording_id"), RECORDINGS)
def test_an_official_descriptor_says_what_is_known_of_it(name: str, recording_id: int) -> None:
    catalog = Catalog.open_to_read(OsDirectory(golden_path(name), create=False))
    each = recording_facts(name, recording_id)
    if each["state"] != RecordingState.VALID:
        assert recording_id not in catalog
        with pytest.raises(UnknownRecordingError):
            catalog.get(recording_id)
        return
    assert catalog.get(recording_id) == described(each)
    assert len(catalog.body(recording_id)) == each["length_field"]
    if each["record_checksum"] == "CRC-32":
        assert catalog.checksum_problem(recording_id, CHECKSUMS["crc32"]) is None


@pytest.mark.parametrize("name", WRITTEN_ONCE)
def test_our_catalog_of_the_same_recordings_is_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Each recording is added as it began, and then becomes what the official archive left."""
    official = golden_path(name)
    known = facts()[name]
    checksum = checksum_named("crc32") if known["checksum"] == "CRC-32" else None
    capacity = known["catalog"].get("configured_capacity", 4_096)
    catalog = opened(tmp_path, capacity=capacity, checksum=checksum)
    for each in known["recordings"]:
        end = described(each)
        start = attrs.evolve(
            end, stop_position=-1, stop_timestamp_ms=-1, control_session_id=0, correlation_id=0
        )
        assert catalog.add(start).recording_id == each["recording_id"]
        catalog.update(
            end.recording_id,
            stop_position=end.stop_position,
            stop_timestamp_ms=end.stop_timestamp_ms,
            control_session_id=end.control_session_id,
            correlation_id=end.correlation_id,
        )
        if each["state"] == RecordingState.DELETED:
            catalog.delete(end.recording_id)
    catalog.close()
    data = (tmp_path / CATALOG_NAME).read_bytes()
    assert data == (official / CATALOG_NAME).read_bytes()
    assert hashlib.sha256(data).hexdigest() == known["catalog_sha256"]


def test_an_official_catalog_takes_more_recordings(tmp_path: Path) -> None:
    path = copy_of("A7-catalog-growth", tmp_path)
    catalog = opened(path, capacity=32)
    before = {each: catalog.get(each) for each in catalog.ids()}
    added = catalog.add(FIRST)
    assert added.recording_id == 14
    catalog.close()
    again = Catalog.open_to_read(OsDirectory(path))
    assert {each: again.get(each) for each in again.ids()} == before | {14: added}


# What ours does.


def test_a_new_catalog_is_empty_and_as_long_as_asked_for(tmp_path: Path) -> None:
    catalog = opened(tmp_path, capacity=4_096, sync_level=2)
    assert (len(catalog), list(catalog.ids()), catalog.next_recording_id) == (0, [], 0)
    assert [each.name for each in tmp_path.iterdir()] == [CATALOG_NAME]
    assert (tmp_path / CATALOG_NAME).stat().st_size == 4_096
    assert (tmp_path / CATALOG_NAME).read_bytes()[:32].hex() == (
        "0001030020000000000000000000000040000000000000000000000000000000"
    )


@pytest.mark.parametrize("sync_level", [0, 1, 2])
def test_what_was_added_is_there_when_it_is_opened_again(tmp_path: Path, sync_level: int) -> None:
    catalog = opened(tmp_path, sync_level=sync_level)
    added = [catalog.add(attrs.evolve(FIRST, stream_id=number)) for number in range(5)]
    catalog.delete(2)
    stopped = catalog.update(3, stop_position=4_096, stop_timestamp_ms=9)
    assert (stopped.stop_position, stopped.is_active) == (4_096, False)
    catalog.close()
    catalog.close()
    again = opened(tmp_path)
    assert list(again.ids()) == [0, 1, 3, 4]
    assert list(again.ids(2)) == [3, 4]
    assert again.next_recording_id == 5
    assert [again.get(each) for each in again.ids()] == [added[0], added[1], stopped, added[4]]
    assert "x" not in again


def test_a_catalog_grows_by_a_half(tmp_path: Path) -> None:
    catalog = opened(tmp_path, capacity=1_024)
    lengths = set()
    for _ in range(20):
        catalog.add(FIRST)
        lengths.add(catalog.capacity)
    assert sorted(lengths) == [1_024, 1_536, 2_304, 3_456, 5_184]
    assert (tmp_path / CATALOG_NAME).stat().st_size == 5_184
    assert len(catalog) == 20


def test_a_catalog_has_an_end() -> None:
    assert grown_capacity(1 << 30, LARGEST_CAPACITY) == LARGEST_CAPACITY
    assert grown_capacity(1 << 30, LARGEST_CAPACITY + 1) is None


def test_the_checksum_of_an_entry_is_that_of_all_of_it(tmp_path: Path) -> None:
    catalog = opened(tmp_path, checksum=checksum_named("crc32c"))
    for number in range(3):
        catalog.add(attrs.evolve(FIRST, stream_id=number))
    catalog.update(1, stop_position=4_096)
    assert catalog.checksum_problem(1, CHECKSUMS["crc32c"]) is None
    assert "is" in (catalog.checksum_problem(1, CHECKSUMS["crc32"]) or "")


@pytest.mark.parametrize("fails_at", [1, 2])
@pytest.mark.parametrize("stops_at", range(1, 9))
def test_an_entry_that_could_not_be_written_makes_room_for_the_next(
    fails_at: int, stops_at: int
) -> None:
    for seed in range(10):
        write_after_a_failure(fails_at, stops_at, seed)


def write_after_a_failure(fails_at: int, stops_at: int, seed: int) -> None:
    disk = FaultyDirectory(seed)
    catalog = Catalog.open(disk, sync_level=1)
    first = catalog.add(FIRST)
    sync, left = FaultyFile.sync, fails_at

    def fails(self: FaultyFile, *, metadata: bool) -> None:
        nonlocal left
        left -= 1
        sync(self, metadata=metadata)
        if not left:
            raise OSError(errno.EIO, "Input/output error")

    half = attrs.evolve(FIRST, recording_id=1, original_channel="aeron:ipc?alias=" + "x" * 2_500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "sync", fails)
        with pytest.raises(OSError, match="Input/output"):
            catalog.add(half)
    assert list(catalog.ids()) == [0]
    disk.stop_at = disk.steps + stops_at
    other = "aeron:ipc?alias=" + "y" * 1_500
    following = attrs.evolve(FIRST, recording_id=1, stripped_channel=other)
    with suppress(ProcessStopped):
        assert catalog.add(following) == following
    disk.kill()
    again = Catalog.open(disk)
    found = [again.get(each) for each in again.ids()]
    # Whole, whichever it is.
    assert found in ([first], [first, half], [first, following]), f"seed {seed}"


def test_what_is_no_ascii_travels_as_question_marks(catalog: Catalog) -> None:
    catalog.add(attrs.evolve(FIRST, source_identity="größe"))
    assert catalog.get(0).source_identity == "gr??e"


@pytest.mark.parametrize("capacity", [31, LARGEST_CAPACITY + 1])
def test_a_capacity_that_is_none_is_refused_before_anything_is_made(
    tmp_path: Path, capacity: int
) -> None:
    with pytest.raises(ConfigurationError, match="catalog_capacity"):
        opened(tmp_path, capacity=capacity)
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_of_before_alignments_is_read(tmp_path: Path) -> None:
    """Its entries are 1024 bytes apart, and the first begins at 1024."""
    catalog = opened(tmp_path, capacity=8_192)
    catalog.add(FIRST)
    catalog.close()
    path = tmp_path / CATALOG_NAME
    data = bytearray(path.read_bytes())
    entry = data[32:1_056]
    entry[:4] = (1_024 - 32).to_bytes(4, "little")
    second = bytearray(entry)
    second[48:56] = (1).to_bytes(8, "little")
    data[8:20] = bytes(12)
    path.write_bytes(data[:32] + bytes(992) + entry + second + bytes(5_000))
    again = opened(tmp_path)
    assert (again.alignment, list(again.ids()), again.next_recording_id) == (1_024, [0, 1], 2)
    assert again.get(1) == attrs.evolve(FIRST, recording_id=1)
    assert again.add(FIRST).recording_id == 2


# Damage.


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0, b"\0\1\4\0", "version 4.1.0"),
        (0, b"PK\3\4", "only those of major version 3"),
        (8, b"\xff" * 8, "offset 8: the next recording id is -1"),
        (8, b"\1" + bytes(7), "next recording id is 1, and 1 is used"),
        (16, b"\x30\0\0\0", "aligned to 48"),
        (16, b"\0\0\0\1", "aligned to 16777216"),
        (32, b"\x40\0\0\0", "offset 32: an entry of 64 bytes"),
        (32, b"\xff\xff\xff\x7f", "offset 32: an entry of 2147483647 bytes"),
        (36, b"\x07\0\0\0", "offset 36: an entry of state 7"),
        (272, b"\0" * 8, "recording 0 comes after 0"),
        (272, b"\xff" * 8, "recording -1 comes after 0"),
    ],
)
def test_a_damaged_catalog_is_named_with_the_offset(
    tmp_path: Path, at: int, value: bytes, match: str
) -> None:
    catalog = opened(tmp_path, capacity=1_024)
    catalog.add(FIRST)
    catalog.add(FIRST)
    catalog.close()
    path = tmp_path / CATALOG_NAME
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ArchiveFileError, match=match) as caught:
        opened(tmp_path, capacity=32)
    assert caught.value.file == CATALOG_NAME
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (144, b"\xff\xff\xff\x7f", "a string of 2147483647 bytes"),
        (104, b"\x11", "start position 17"),
        (112, b"\x20\xff\xff\xff\xff\xff\xff\xff", "stop position -224"),
        (128, b"\0\0\0\0", "term length 0"),
        (124, b"\0\0\0\x70", "segment length 1879048192"),
    ],
)
def test_a_damaged_descriptor_is_named_when_it_is_asked_for(
    tmp_path: Path, at: int, value: bytes, match: str
) -> None:
    catalog = opened(tmp_path, capacity=1_024)
    catalog.add(FIRST)
    other = catalog.add(FIRST)
    path = tmp_path / CATALOG_NAME
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ArchiveFileError, match=match):
        catalog.get(0)
    assert catalog.get(1) == other


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 63, 100, 143])
def test_a_catalog_that_was_cut_off_is_no_crash(tmp_path: Path, length: int) -> None:
    catalog = opened(tmp_path, capacity=1_024)
    catalog.add(FIRST)
    catalog.close()
    path = tmp_path / CATALOG_NAME
    path.write_bytes(path.read_bytes()[:length])
    if length < 32:
        with pytest.raises(ArchiveFileError, match="a header of 32 bytes"):
            Catalog.open_to_read(OsDirectory(tmp_path))
    elif length < 64:
        assert len(Catalog.open_to_read(OsDirectory(tmp_path))) == 0
    else:
        with pytest.raises(ArchiveFileError, match="the file ends after"):
            Catalog.open_to_read(OsDirectory(tmp_path))
        # Nor is it made longer, with an entry of zeros that would pass for a whole one.
        with pytest.raises(ArchiveFileError, match="the file ends after"):
            Catalog.open(OsDirectory(tmp_path), capacity=1_024)
        assert path.stat().st_size == length


def test_an_entry_that_shrinks_under_the_catalog_is_named(catalog: Catalog, tmp_path: Path) -> None:
    catalog.add(FIRST)
    with (tmp_path / CATALOG_NAME).open("r+b") as file:
        file.seek(32)
        file.write(bytes(4))
    with pytest.raises(ArchiveFileError, match="which had another length before"):
        catalog.get(0)


def test_a_checksum_that_nobody_knows_is_refused() -> None:
    assert checksum_named(None) is checksum_named("none") is None
    with pytest.raises(ConfigurationError, match="no checksum is named 'md5'"):
        checksum_named("md5")
    assert CHECKSUMS["crc32c"](b"123456789") == 0xE3069283 - (1 << 32)
