"""A frame is believed only where it says that it lies, and by everybody who has to decide."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk.repair import Repair, RepairKind, plan_repairs
from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.archive.disk.tail_scan import find_frames_end
from aeron_async.archive.disk.verify import Finding, Severity, verify
from aeron_async.errors import ArchiveFileError
from tests.archive.disk.streams import TERM, described, frame, read_all
from tests.support.faulty_files import FaultyDirectory, FaultyFile

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTOR = described()
GOOD = frame(DESCRIPTOR, 0, b"x" * 100) + frame(DESCRIPTOR, 160, b"", kind=0, length=96)
END = 256
FIELDS = {
    "length of the header alone": (0, pack("<i", 2_000) + bytes(28)),
    "length below a header": (0, pack("<i", 31)),
    "length beyond the term": (0, pack("<i", TERM)),
    "version": (4, b"\1"),
    "type": (6, b"\2\0"),
    "term offset": (8, pack("<i", END + 32)),
    "stream": (16, pack("<i", 11)),
    "term": (20, pack("<i", 8)),
}


def died(path: Path, *, change: tuple[int, bytes], behind: bytes = b"") -> OsDirectory:
    """Return the directory of an archive that died behind a frame with a changed header."""
    directory = OsDirectory(path)
    catalog = Catalog.open(directory, capacity=4_096)
    writer = RecordingWriter(directory, catalog.add(described()), position=0)
    writer.write([(memoryview(GOOD[:192]), 64)])
    last = bytearray(frame(DESCRIPTOR, END, b"y" * 64))
    last[change[0] : change[0] + len(change[1])] = change[1]
    writer.close()
    catalog.close()
    file = directory.open("0-0.rec")
    file.write([bytes(last) + behind], END)
    file.close()
    return directory


@pytest.mark.parametrize("ends_are_whole", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_a_header_that_contradicts_its_place_is_the_end(
    name: str, tmp_path: Path, *, ends_are_whole: bool
) -> None:
    directory = died(tmp_path, change=FIELDS[name])
    walk = [each for each in verify(directory) if isinstance(each, Finding)]
    assert {each.severity for each in walk} == {Severity.NOTE}
    assert "no end" in walk[0].what
    assert "that starts here cuts it off" in walk[1].what
    assert [each.offset for each in walk] == [END, END]
    (planned,) = plan_repairs(directory, ends_are_whole=ends_are_whole)
    assert isinstance(planned, Repair)
    assert (planned.kind, planned.value) == (RepairKind.STOP_POSITION, END)
    catalog = Catalog.open(directory, capacity=32)
    (found,) = recover(directory, catalog, now_ms=1, ends_are_whole=ends_are_whole)
    assert found.stop_position == END
    assert found.discarded > 0
    assert read_all(directory, catalog.get(0), 0, END) == GOOD[:192] + bytes(64)
    assert not any((tmp_path / "0-0.rec").read_bytes()[END:])


@pytest.mark.parametrize("ends_are_whole", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_frames_behind_such_a_header_are_never_lost_silently(
    name: str, tmp_path: Path, *, ends_are_whole: bool
) -> None:
    following = frame(DESCRIPTOR, END + 96, b"z" * 64)
    directory = died(tmp_path, change=FIELDS[name], behind=following)
    before = (tmp_path / "0-0.rec").read_bytes()
    catalog = Catalog.open(directory, capacity=32)
    with pytest.raises(ArchiveFileError, match=r"a whole frame lies behind it, at offset 352") as e:
        recover(directory, catalog, now_ms=1, ends_are_whole=ends_are_whole)
    assert (e.value.file, e.value.offset) == ("0-0.rec", END)
    assert catalog.get(0).is_active
    problems = [
        each
        for each in verify(directory)
        if isinstance(each, Finding) and each.severity is Severity.PROBLEM
    ]
    assert [each.offset for each in problems] == [END]
    (planned,) = plan_repairs(directory, ends_are_whole=ends_are_whole)
    assert isinstance(planned, Repair)
    assert planned.value == END
    assert (tmp_path / "0-0.rec").read_bytes() == before


def ended(data: bytes, *, length: int = 2 * TERM, **changes: int) -> tuple[int, int | None]:
    file = FaultyDirectory().open("0-0.rec", create=True)
    file.write([data], 0)
    file.set_length(length)
    found = find_frames_end(file, described(**changes), base=0, start=0, buffer=ScanBuffer(4_096))
    return found.offset, found.following


def test_a_frame_of_a_later_term_counts_as_one_that_follows() -> None:
    data = (GOOD.ljust(END, b"\0") + b"\1").ljust(TERM, b"\0")
    assert ended(data + frame(DESCRIPTOR, TERM, b"x")) == (END, TERM)
    assert ended(data + frame(DESCRIPTOR, TERM + 32, b"x")) == (END, None)


def test_padding_of_a_file_that_was_cut_off_is_not_believed() -> None:
    data = frame(DESCRIPTOR, 0, b"x") + frame(DESCRIPTOR, 64, b"", kind=0, length=TERM - 64)
    assert ended(data) == (TERM, None)
    assert ended(data, length=4_096) == (64, None)


def test_a_frame_longer_than_any_that_is_sent_is_no_frame() -> None:
    assert ended(frame(DESCRIPTOR, 0, b"x" * 9_000)) == (0, None)


def test_where_stream_and_term_are_zero_a_frame_that_follows_is_found_all_the_same() -> None:
    zero = described(stream_id=0, initial_term_id=0)
    data = frame(zero, 0, b"x") + frame(zero, 32, bytes(1_000)) + frame(zero, 1_120, b"x")
    assert ended(data, stream_id=0, initial_term_id=0) == (64, 1_120)
    # What lies where no header can begin is none.
    assert ended(data[:1_120] + bytes(16) + data[1_120:], stream_id=0, initial_term_id=0) == (
        64,
        None,
    )


@pytest.mark.parametrize("read_count", range(1, 4))
def test_what_is_written_while_one_looks_is_no_damage(
    read_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FaultyDirectory().open("0-0.rec", create=True)
    half = frame(DESCRIPTOR, 64, b"y")
    file.write([frame(DESCRIPTOR, 0, b"x"), half[:4], bytes(28)] if read_count > 1 else [GOOD], 0)
    start = 64 if read_count > 1 else END
    file.set_length(2 * TERM)
    fill, reads = ScanBuffer.fill, []

    def filled(self: ScanBuffer, given: FaultyFile, offset: int, end: int) -> int:
        reads.append(offset)
        # Behind what is looked at there may be more each time.
        if len([each for each in reads if each == start]) == read_count:
            rest = b"".join(frame(DESCRIPTOR, start + at, b"y") for at in (0, 64))
            given.write([rest], start)
        return fill(self, given, offset, end)

    monkeypatch.setattr(ScanBuffer, "fill", filled)
    found = find_frames_end(file, DESCRIPTOR, base=0, start=0, buffer=ScanBuffer())
    assert found.problem is None
    assert found.following is None
    assert found.offset in (start, start + 128)
