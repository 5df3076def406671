"""Replays in the place of files: bytes at any place, only to be read, no more than asked for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.files import read_exactly
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.replayed_archive import STEP, ReplayedDirectory, Stretch
from aeron_async.spark.worker import close_connection
from tests.spark.queries import HandClock
from tests.spark.recordings import TERM, RecordingMaker
from tests.spark.sink.neighbours import served_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START = TERM + 4_096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an archive with a recording that has the session and stream of its replay."""
    maker = RecordingMaker(tmp_path, start=START)
    for number in range(400):
        maker.message(bytes([number % 256]) * (7 * number % 3_000))
    while left := -maker.position % TERM:
        # An archive replays padding that is longer than any message in several pieces.
        maker.padding(min(left, TERM // 8))
    maker.message(b"last")
    maker.stop()
    return tmp_path


@pytest.fixture
def access(path: Path, unused_udp_port_factory: Callable[[], int]) -> Iterator[ArchiveOptions]:
    control = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    with served_archive(path, control):
        yield ArchiveOptions(
            access="replay",
            archive_control_channel=control,
            archive_timeout_ms=120_000,
            archive_retries=0,
        )
        close_connection()


def without_sessions(frames: bytes | bytearray, skip: int = 0) -> bytes:
    """Return frames, from a first one on, with no session."""
    found = bytearray(frames)
    at = skip
    while at + 32 <= len(found):
        length = int.from_bytes(found[at : at + 4], "little", signed=True)
        if length <= 0:
            break
        found[at + 12 : at + 16] = bytes(4)
        at += (length + 31) & -32
    return bytes(found)


def test_a_segment_is_what_its_file_is(path: Path, access: ArchiveOptions) -> None:
    directory = ReplayedDirectory(access)
    names = sorted(each.name for each in path.glob("0-*.rec"))
    assert sorted(directory.names()) == names
    for name in names:
        file = directory.open_to_read(name)
        assert (file.name, file.length()) == (name, 2 * TERM)
        there = (path / name).read_bytes()
        found = bytearray(len(there))
        count = read_exactly(file, memoryview(found), 0)
        file.close()
        skip = 4_096 if name == f"0-{TERM}.rec" else 0
        assert without_sessions(found[:count], skip) == without_sessions(there[:count], skip)
        assert not any(there[count:])


def test_any_place_can_be_read(path: Path, access: ArchiveOptions) -> None:
    name = f"0-{TERM}.rec"
    there = (path / name).read_bytes()
    file = ReplayedDirectory(access).open_to_read(name)
    chance = random.Random(3)
    for _ in range(12):
        offset, length = chance.randrange(4_096, 2 * TERM - 64), chance.randrange(1, 9_000)
        found = bytearray(length)
        count = read_exactly(file, memoryview(found), offset)
        expected = there[offset : offset + length]
        assert count == len(expected)
        differing = [each for each in range(count) if found[each] != expected[each]]
        # Sessions, of four bytes each, and frames are 32 bytes at least.
        assert len(differing) <= 4 * (length // 32 + 2)
    file.close()
    file.close()


def test_what_was_passed_is_not_kept(access: ArchiveOptions) -> None:
    end = ReplayedDirectory(access).describe(0).stop_position
    stretch = Stretch(access, 0, START, end)
    target = memoryview(bytearray(512))
    position = START
    while count := stretch.read(position, target):
        assert stretch.end - stretch.begin <= len(target) + min(STEP, 2 * TERM)
        position += count
    assert position > 8 * TERM
    stretch.close()
    stretch.close()


def test_what_is_replayed_can_only_be_read(access: ArchiveOptions) -> None:
    directory = ReplayedDirectory(access, clock=HandClock())
    name = f"0-{TERM}.rec"
    file = directory.open_to_read(name)
    assert not any(hasattr(directory, each) for each in ("open", "remove", "rename"))
    assert not any(hasattr(file, each) for each in ("write", "set_length"))
    assert directory.modified_ms(name) == 0


@pytest.mark.parametrize("name", ["1-0.rec", "archive.catalog", "0-0.rec.prep"])
def test_there_are_no_other_files(access: ArchiveOptions, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        ReplayedDirectory(access).open_to_read(name)


def test_the_archive_is_asked_for_its_recordings_once_a_second(
    path: Path, access: ArchiveOptions
) -> None:
    clock = HandClock()
    directory = ReplayedDirectory(access, clock=clock)
    first = directory.recordings()
    clock.ns += 999_999_999
    assert directory.recordings() is first
    clock.ns += 1
    again = directory.recordings()
    assert again is not first
    assert again == first
    assert path.name
