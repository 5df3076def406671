"""One directory, one archive: whoever comes second is refused, and a dead one is not in the way."""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import (
    LINK_NAME,
    MARK_FILE_NAME,
    NO_ARCHIVE_ID,
    MarkFile,
    MarkIdentity,
    current_boot,
    read_mark_file,
)
from aeron_async.errors import ArchiveBusyError, ArchiveFileError, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

CHANNELS = {
    "control_channel": "aeron:udp?endpoint=localhost:8010",
    "local_control_channel": "aeron:ipc?term-length=64k",
    "events_channel": "",
    "aeron_directory": "/aeron/directory",
}
IDENTITY = MarkIdentity(archive_id=77, pid=4_711, **CHANNELS)  # type: ignore[arg-type]
BLOCK = Struct("<i4xqqqiiiii4xq")
NOW = 1_700_000_000_000


def opened(path: Path, now_ms: int = NOW, **options: Any) -> MarkFile:
    return MarkFile.open(OsDirectory(path), IDENTITY, now_ms=now_ms, **{"boot_id": 5, **options})


def official(
    path: Path, *, version: int = 0x00030100, activity: int = NOW, start: int = NOW, header: int = 8
) -> None:
    """Write a mark file as an official archive does; before 3.1 the header was left out."""
    sbe = Struct("<HHHH").pack(128, 200, 100, 2) if header else b""
    block = BLOCK.pack(version, activity, start, 99, 10, 10, 30, 8_192, 1 << 20, 3)
    text = b"aeron:ipc"
    strings = (len(text).to_bytes(4, "little") + text) * 4
    data = sbe + block + bytes(64) + strings
    errors = bytes(8) + b"an error"
    (path / MARK_FILE_NAME).write_bytes(data.ljust(8_192, b"\0") + errors.ljust(1 << 20, b"\0"))


def test_a_mark_file_is_laid_out_as_the_official_one(tmp_path: Path) -> None:
    mark = opened(tmp_path)
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert BLOCK.unpack_from(data, 8)[0] == 0
    mark.signal_ready(NOW + 5)
    mark.refresh(NOW + 1_000)
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert len(data) == 8_192 + (1 << 20)
    assert data[:8].hex() == "8000c80064000200"
    assert BLOCK.unpack_from(data, 8) == (
        0x00030100, NOW + 1_000, NOW, 4_711, 10, 10, 30, 8_192, 1 << 20, 77,
    )  # fmt: skip
    at = 8 + 128
    for text in CHANNELS.values():
        assert data[at : at + 4] == len(text).to_bytes(4, "little")
        assert data[at + 4 : at + 4 + len(text)] == text.encode()
        at += 4 + len(text)
    assert not any(data[at:])
    header = read_mark_file(OsDirectory(tmp_path))
    assert header is not None
    assert (header.identity, header.is_ours) == (IDENTITY, True)
    mark.close()
    mark.close()
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert BLOCK.unpack_from(data, 8)[1] == -1


def test_a_second_archive_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for _ in range(2):
        with pytest.raises(ArchiveBusyError, match="process 4711, holds it now"):
            opened(tmp_path, NOW + 1_000_000)
    first.signal_ready(NOW)
    with pytest.raises(ArchiveBusyError, match="holds it now"):
        opened(tmp_path, NOW + 1_000_000)
    first.close()
    opened(tmp_path, NOW + 1).close()


def test_one_of_ours_that_died_is_known_to_be_dead_at_once(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.signal_ready(NOW)
    first.abandon()
    second = opened(tmp_path, NOW + 1)
    assert second.ends_are_whole
    second.abandon()
    third = opened(tmp_path, NOW + 2)
    assert third.ends_are_whole


def test_a_closed_mark_file_says_so_to_who_goes_on_with_it(tmp_path: Path) -> None:
    mark = opened(tmp_path)
    mark.close()
    with pytest.raises(ArchiveBusyError, match="was closed"):
        mark.refresh(NOW)


@pytest.mark.parametrize(("level", "whole"), [(0, False), (1, True), (2, True)])
def test_after_a_power_failure_only_what_was_waited_for_is_whole(
    tmp_path: Path, level: int, *, whole: bool
) -> None:
    mark = opened(tmp_path, sync_level=level)
    mark.signal_ready(NOW)
    mark.abandon()
    with pytest.raises(ArchiveBusyError, match="dead after 10 s"):
        opened(tmp_path, NOW + 9_999, boot_id=6)
    after = opened(tmp_path, NOW + 10_000, boot_id=6)
    assert after.ends_are_whole is whole
    # Recovery fails, say: what was found stays true.
    after.abandon()
    assert opened(tmp_path, NOW + 10_001, boot_id=6).ends_are_whole is whole


def test_where_no_system_tells_its_boots_apart_a_dead_one_is_waited_for(tmp_path: Path) -> None:
    mark = opened(tmp_path, boot_id=0)
    mark.signal_ready(NOW)
    mark.abandon()
    with pytest.raises(ArchiveBusyError, match="was alive 1 ms ago"):
        opened(tmp_path, NOW + 1, boot_id=0)
    assert isinstance(current_boot(), int)


# Official archives.


def test_an_official_archive_that_lives_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    official(tmp_path)
    with pytest.raises(ArchiveBusyError, match="process 99, was alive 9999 ms ago"):
        opened(tmp_path, NOW + 9_999)
    mark = opened(tmp_path, NOW + 10_000)
    assert not mark.ends_are_whole
    assert mark.previous is not None
    assert mark.previous.identity.aeron_directory == "aeron:ipc"
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert data[8_200:8_208] == b"an error"


def test_one_that_closed_is_followed_at_once(tmp_path: Path) -> None:
    official(tmp_path, activity=-1)
    assert not opened(tmp_path, NOW + 1).ends_are_whole


def test_one_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    official(tmp_path, version=0, activity=0)
    with pytest.raises(ArchiveBusyError, match="was alive 5 ms ago"):
        opened(tmp_path, NOW + 5)
    opened(tmp_path, NOW + 10_000).close()
    official(tmp_path, activity=(1 << 63) - 1)
    with pytest.raises(ArchiveBusyError, match="is starting, or died while it did"):
        opened(tmp_path, NOW + 10_000_000)


def test_an_official_one_that_ran_since_is_told_by_its_start(tmp_path: Path) -> None:
    mark = opened(tmp_path)
    mark.signal_ready(NOW)
    mark.close()
    with (tmp_path / MARK_FILE_NAME).open("r+b") as file:
        # It keeps what it does not know.
        file.seek(8 + 8)
        file.write((NOW + 7).to_bytes(8, "little") * 2)
    mark = opened(tmp_path, NOW + 20_000)
    assert not mark.ends_are_whole


def test_a_file_from_before_headers_is_known(tmp_path: Path) -> None:
    official(tmp_path, header=0)
    with pytest.raises(ArchiveBusyError, match="process 99"):
        opened(tmp_path, NOW + 1)
    mark = opened(tmp_path, NOW + 10_000)
    assert mark.previous is not None
    assert (mark.previous.offset, mark.previous.identity.archive_id) == (0, 3)


def test_one_of_ours_that_never_was_ready_leaves_what_an_official_one_takes(tmp_path: Path) -> None:
    opened(tmp_path).close()
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert BLOCK.unpack_from(data, 8)[:2] == (0x00030100, -1)
    official(tmp_path, activity=-1)
    mark = opened(tmp_path, NOW + 1)
    mark.abandon()
    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert BLOCK.unpack_from(data, 8)[:2] == (0x00030100, NOW + 1)
    # What the official one recorded may still be torn.
    assert not opened(tmp_path, NOW + 2).ends_are_whole


def test_another_archive_that_minds_no_lock_is_noticed(tmp_path: Path) -> None:
    mark = opened(tmp_path)
    official(tmp_path, start=NOW + 3)
    with pytest.raises(ArchiveBusyError, match="has started on this directory"):
        mark.signal_ready(NOW + 5)


def test_what_a_crash_left_of_a_new_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / MARK_FILE_NAME
    path.write_bytes(bytes(8_192))
    os.utime(path, ns=(0, NOW * 1_000_000))
    # So it looks too while another archive is about to write into it.
    with pytest.raises(ArchiveBusyError, match="was alive 9999 ms ago"):
        opened(tmp_path, NOW + 9_999)
    opened(tmp_path, NOW + 10_000).close()
    path.write_bytes(b"")
    assert read_mark_file(OsDirectory(tmp_path)) is None
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"x" * 20, "a mark file of 20 bytes"),
        (b"\x80\0\xc8\0\x64\0\2\0" + b"\0\0\4\0" + bytes(9_000), "version 0x40000"),
        (b"\x80\0\xc8\0\x64\0\2\0" + bytes(128) + b"\xff" * 9_000, "a string of 4294967295 bytes"),
        (b"\xff\xff\xc8\0\x64\0\2\0" + bytes(9_000), "extends beyond the header"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes, match: str) -> None:
    (tmp_path / MARK_FILE_NAME).write_bytes(data)
    with pytest.raises(ArchiveFileError, match=match) as caught:
        opened(tmp_path)
    assert caught.value.file == MARK_FILE_NAME


def test_channels_that_are_too_long_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    identity = MarkIdentity(control_channel="x" * 9_000)
    with pytest.raises(ConfigurationError, match="which has room for 8192"):
        MarkFile.open(OsDirectory(tmp_path), identity, now_ms=NOW)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing at all


def test_where_there_is_none_nothing_is_read(tmp_path: Path) -> None:
    assert read_mark_file(OsDirectory(tmp_path)) is None


# Elsewhere.


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    for name in ("archive", "one", "two"):
        (tmp_path / name).mkdir()
    return tmp_path / "archive", tmp_path / "one", tmp_path / "two"


def test_a_mark_file_elsewhere_is_linked_and_found_again(places: tuple[Path, Path, Path]) -> None:
    archive, one, _ = places
    mark = opened(archive, mark_directory=OsDirectory(one))
    mark.signal_ready(NOW)
    assert (archive / LINK_NAME).read_text() == str(one)
    assert (one / MARK_FILE_NAME).is_file()
    assert not (archive / MARK_FILE_NAME).exists()
    assert read_mark_file(OsDirectory(archive)) is not None
    mark.abandon()
    again = opened(archive, NOW + 1)
    assert again.ends_are_whole
    again.close()
    assert (archive / LINK_NAME).exists()


def test_two_archives_with_different_mark_files_refuse_each_other(
    places: tuple[Path, Path, Path],
) -> None:
    archive, one, two = places
    mark = opened(archive, mark_directory=OsDirectory(one))
    for path in (one, two, archive):
        with pytest.raises(ArchiveBusyError, match="holds it now"):
            opened(archive, NOW + 99_999, mark_directory=OsDirectory(path))
    mark.close()
    assert not opened(archive, NOW + 99_999, mark_directory=OsDirectory(two)).ends_are_whole
    assert (archive / LINK_NAME).read_text() == str(two)


def test_one_whose_mark_file_is_here_refuses_one_with_a_link(
    places: tuple[Path, Path, Path],
) -> None:
    archive, one, _ = places
    mark = opened(archive)
    with pytest.raises(ArchiveBusyError, match="holds it now"):
        opened(archive, NOW + 99_999, mark_directory=OsDirectory(one))
    assert not (archive / LINK_NAME).exists()
    mark.close()


def test_an_official_one_behind_a_link_is_refused_while_it_lives(
    places: tuple[Path, Path, Path],
) -> None:
    archive, one, _ = places
    official(one)
    (archive / LINK_NAME).write_text(str(one))
    for options in ({}, {"mark_directory": OsDirectory(archive)}):
        with pytest.raises(ArchiveBusyError, match="was alive"):
            opened(archive, NOW + 1, **options)
    mark = opened(archive, NOW + 10_000, mark_directory=OsDirectory(archive))
    assert not mark.ends_are_whole
    assert not (archive / LINK_NAME).exists()


def test_a_link_that_is_none_is_named(places: tuple[Path, Path, Path]) -> None:
    archive, _, _ = places
    (archive / LINK_NAME).write_text("x" * 5_000)
    with pytest.raises(ArchiveFileError, match="is no path of a directory"):
        opened(archive)
    (archive / LINK_NAME).write_text(str(archive / "gone"))
    with pytest.raises(FileNotFoundError, match="not a directory"):
        opened(archive)
    (archive / LINK_NAME).write_text("")
    opened(archive).close()


def test_an_archive_draws_an_id_and_keeps_it_in_its_directory(tmp_path: Path) -> None:
    """All archives had the id -1."""
    identity = attrs.evolve(IDENTITY, archive_id=NO_ARCHIVE_ID)
    drawn = []
    for name in "ab":
        directory = OsDirectory(tmp_path / name)
        for now_ms in (1_000, 2_000):
            mark = MarkFile.open(directory, identity, now_ms=now_ms)
            mark.signal_ready(now_ms)
            drawn.append(mark.archive_id)
            mark.close()
            header = read_mark_file(directory)
            assert header is not None
            assert header.identity.archive_id == mark.archive_id
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    assert all(0 < each < 2**63 for each in drawn)
    official(tmp_path, activity=-1)
    kept = MarkFile.open(OsDirectory(tmp_path), identity, now_ms=NOW + 1)
    assert kept.archive_id == 3, "that of an official archive is kept too"
    kept.close()
    given = MarkFile.open(
        OsDirectory(tmp_path / "a"), attrs.evolve(IDENTITY, archive_id=-9), now_ms=3_000
    )
    assert given.archive_id == -9
    given.close()
