"""Files, and names that stay in their directory."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk.files import (
    OsDirectory,
    check_name,
    close_quietly,
    read_exactly,
    write_all,
)
from aeron_async.archive.disk.segments import (
    parse_segment_name,
    segment_base,
    segment_bases,
    segment_name,
)
from aeron_async.errors import ArchiveError, ArchiveFileError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b", ".hidden", "x" * 256]
)
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    directory = OsDirectory(tmp_path / "archive")
    with pytest.raises(ArchiveError, match="no name of a file"):
        check_name(name)
    for act in (directory.open, directory.open_to_read, directory.remove):
        with pytest.raises(ArchiveError):
            act(name)
    with pytest.raises(ArchiveError):
        directory.rename("0-0.rec", name)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    directory = OsDirectory(tmp_path / "archive")
    (tmp_path / "archive" / "0-0.rec").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveFileError, match="a symbolic link, and an archive reads"):
        directory.open("0-0.rec", create=True)
    assert directory.names() == []
    assert directory.other_kinds() == {"0-0.rec": "a symbolic link"}


@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a socket"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A named pipe in place of a segment was waited for until SIGKILL."""
    directory, path = OsDirectory(tmp_path), tmp_path / "0-0.rec"
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "a named pipe":
            os.mkfifo(path)
        elif kind == "a directory":
            path.mkdir()
        else:
            other.bind(str(path))
        for act in (directory.open, directory.open_to_read):
            with pytest.raises(ArchiveFileError, match=f"0-0.rec, offset 0: {kind}, and"):
                act("0-0.rec")
    assert directory.names() == []
    assert directory.other_kinds() == {"0-0.rec": kind}


def test_a_file_is_written_read_cut_and_removed(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    assert directory.path == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        directory.open("0-0.rec")
    file = directory.open("0-0.rec", exclusive=True)
    with pytest.raises(FileExistsError):
        directory.open("0-0.rec", exclusive=True)
    file.set_length(100)
    assert write_all(file, [b"abc", b"", memoryview(b"def")], 10) == 16
    file.sync(metadata=False)
    file.sync(metadata=True)
    buffer = memoryview(bytearray(200))
    assert read_exactly(file, buffer, 9) == 91
    assert bytes(buffer[:8]) == b"\0abcdef\0"
    assert file.length() == 100
    file.close()
    file.close()
    close_quietly(file)
    directory.rename("0-0.rec", "1-0.rec")
    directory.sync()
    assert directory.names() == ["1-0.rec"]
    directory.remove("1-0.rec")
    assert directory.names() == []


def test_a_directory_that_is_not_there_is_made_or_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a directory"):
        OsDirectory(tmp_path / "a" / "b", create=False)
    assert OsDirectory(tmp_path / "a" / "b").names() == []


class Stutterer:
    """A file that does a little at a time."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, buffers: Any, offset: int) -> int:
        piece = bytes(buffers[0][:3])
        self.data[offset : offset + len(piece)] = piece
        return len(piece)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        piece = self.data[offset : offset + 2][: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


def test_short_writes_and_reads_are_gone_on_with() -> None:
    file: Any = Stutterer()
    assert write_all(file, [b"abcdefgh", b"ijk"], 0) == 11
    assert bytes(file.data) == b"abcdefghijk"
    buffer = memoryview(bytearray(20))
    assert read_exactly(file, buffer, 1) == 10
    assert bytes(buffer[:10]) == b"bcdefghijk"


# Segments.


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("0-131072.rec", (0, 131_072)),
        ("9223372036854775807-0.rec", (2**63 - 1, 0)),
        ("9223372036854775808-0.rec", None),
        ("00-0.rec", None),
        ("0-007.rec", None),
        ("-1-0.rec", None),
        ("0--1.rec", None),
        ("0-0.rec.del", None),
        ("0-.rec", None),
        ("٣-0.rec", None),
        ("archive.catalog", None),
    ],
)
def test_only_names_that_we_could_have_given_are_segments(
    name: str, found: tuple[int, int] | None
) -> None:
    assert parse_segment_name(name) == found
    if found is not None:
        assert segment_name(*found) == name


def test_the_files_of_a_recording_come_in_order() -> None:
    names = ["1-65536.rec", "1-1048576.rec", "11-0.rec", "x", "1-131072.rec"]
    assert segment_bases(names, 1) == [65_536, 131_072, 1_048_576]


@pytest.mark.parametrize(
    ("position", "base"),
    [(200_704, 196_608), (327_679, 196_608), (327_680, 327_680), (458_752, 458_752)],
)
def test_segments_follow_from_the_term_of_the_start(position: int, base: int) -> None:
    found = segment_base(
        position, start_position=200_704, term_length=65_536, segment_length=131_072
    )
    assert found == base
