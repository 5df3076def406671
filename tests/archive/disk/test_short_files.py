"""A segment that is too short is filled up where it lacks nothing, and left alone where it does."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.repair import Repair, RepairKind, Unrepairable, repair
from aeron_async.archive.disk.verify import Finding, Severity, verify
from tests.archive.disk.streams import TERM, described, frame, read_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.archive.disk.conftest import Kept

MIDDLE = "0-131072.rec"


def shorten(path: Path, name: str, length: int) -> bytes:
    """Cut a file off, and return what it holds then."""
    data = (path / name).read_bytes()[:length]
    (path / name).write_bytes(data)
    return data


def test_a_file_that_lacks_frames_is_not_filled_up(kept: Kept) -> None:
    # With zeros behind it, the frame that was cut in two would pass for a whole one.
    starts = [each - 131_072 for each in kept.starts if each >= 131_072]
    cut = next(
        begin for begin, behind in pairwise(starts) if behind - begin > 700 and begin > 50_000
    )
    data = shorten(kept.path, MIDDLE, cut + 600)
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert (each.file, each.offset, each.position) == (MIDDLE, cut, 131_072 + cut)
    assert (kept.path / MIDDLE).read_bytes() == data
    assert not list(kept.path.glob("*.before-repair"))


def test_a_file_before_files_that_are_gone_is_held_to_what_it_should_hold(kept: Kept) -> None:
    data = shorten(kept.path, MIDDLE, 60_000)
    for base in kept.files():
        if base > 131_072:
            kept.directory.remove(f"0-{base}.rec")
    (each,) = repair(kept.directory, consent=True, now_ms=5)
    assert isinstance(each, Unrepairable)
    assert (kept.path / MIDDLE).read_bytes() == data


def test_padding_that_was_cut_off_is_filled_up(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    catalog = Catalog.open(directory, capacity=4_096)
    descriptor = catalog.add(described(segment_length=TERM))
    writer = RecordingWriter(directory, descriptor, position=0)
    writer.write([(memoryview(frame(descriptor, 0, bytes(96))), 0)])
    padding = frame(descriptor, 128, b"", kind=0, length=TERM - 128)
    writer.write([(memoryview(padding), TERM - 128 - 32)])
    writer.write([(memoryview(frame(descriptor, TERM, b"behind")), 0)])
    writer.close()
    catalog.update(0, stop_position=writer.position, stop_timestamp_ms=9)
    shorten(tmp_path, "0-0.rec", 4_096)
    before = read_all(directory, catalog.get(0), TERM, writer.position)
    (each,) = repair(directory, consent=True, now_ms=5)
    assert isinstance(each, Repair)
    assert (each.kind, each.file, each.value) == (RepairKind.LENGTH, "0-0.rec", TERM)
    assert list(repair(directory, consent=True, now_ms=5)) == []
    assert read_all(directory, catalog.get(0), 0, writer.position)[TERM:] == before


@pytest.mark.parametrize("name", ["0-77.rec", "0-1048576.rec"])
def test_a_file_that_is_no_part_of_a_recording_is_let_alone(kept: Kept, name: str) -> None:
    (kept.path / name).write_bytes(b"hello")
    assert list(repair(kept.directory, consent=True, now_ms=5)) == []
    assert (kept.path / name).read_bytes() == b"hello"
    walk = [each for each in verify(kept.directory) if isinstance(each, Finding)]
    (note,) = [each for each in walk if each.file == name]
    assert note.severity is Severity.NOTE
