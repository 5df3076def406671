"""Frames of a segment are walked to their end, and what does not belong is named."""

from __future__ import annotations

import pytest

from aeron_async.archive.disk.segment_scan import Problem, ScanBuffer, check_frames, find_end
from aeron_async.archive.disk.tail_scan import find_last, find_torn
from tests.archive.disk.streams import described, frame
from tests.support.faulty_files import FaultyDirectory, FaultyFile

DESCRIPTOR = described()


def holding(data: bytes, length: int = 131_072) -> FaultyFile:
    file = FaultyDirectory().open("0-0.rec", create=True)
    file.write([data], 0)
    file.set_length(length)
    return file


def walked(file: FaultyFile, end: int, *, buffer_length: int = 4_096) -> list[Problem | int]:
    walk = check_frames(
        file,
        DESCRIPTOR,
        base=0,
        start=0,
        end=end,
        checksum=None,
        buffer=ScanBuffer(buffer_length),
    )
    return list(walk)


def test_padding_that_is_longer_than_the_buffer_is_stepped_over() -> None:
    data = frame(DESCRIPTOR, 0, b"", kind=0, length=40_000)
    file = holding(data)
    file.write([frame(DESCRIPTOR, 40_000, b"x")], 40_000)
    assert find_end(file, 0, ScanBuffer(4_096)) == 40_064
    assert walked(file, 40_064) == [40_000, 40_064]
    assert find_last(file, 0, 40_064, ScanBuffer(4_096)) == 40_000


def test_a_frame_that_goes_on_beyond_the_file_is_none() -> None:
    file = holding(frame(DESCRIPTOR, 0, b"x") + frame(DESCRIPTOR, 64, b"", length=200_000))
    assert find_end(file, 0, ScanBuffer(4_096)) == 64
    assert find_end(holding(b"", 16), 0, ScanBuffer(4_096)) == 0


@pytest.mark.parametrize(
    ("data", "length", "end", "offset", "what"),
    [
        (frame(DESCRIPTOR, 0, bytes(100)), 131_072, 96, 0, "extends beyond the end of the"),
        (frame(DESCRIPTOR, 0, bytes(9_000)), 131_072, 131_072, 0, "longer than any that is sent"),
        (frame(DESCRIPTOR, 0, bytes(3_000)), 2_000, 4_000, 0, "the file ends 2000 bytes too early"),
        (frame(DESCRIPTOR, 0, b"x"), 64, 128, 64, "the file ends 64 bytes too early"),
        (frame(DESCRIPTOR, 0, b"x"), 131_072, 128, 64, "a frame of 0 bytes"),
        (frame(DESCRIPTOR, 0, b"", kind=0, length=128), 131_072, 64, 0, "extends beyond the end"),
    ],
)
def test_what_ends_a_walk_is_named(
    data: bytes, length: int, end: int, offset: int, what: str
) -> None:
    last = walked(holding(data, length), end)[-1]
    assert isinstance(last, Problem)
    assert (last.file, last.offset) == ("0-0.rec", offset)
    assert what in str(last)


def test_a_frame_whose_pages_were_never_written_is_torn() -> None:
    data = frame(DESCRIPTOR, 0, b"x" * 9_000)
    assert find_torn(holding(data), 0, 9_056, ScanBuffer()) is None
    assert find_torn(holding(data[:4_096]), 0, 9_056, ScanBuffer()) == 0
    assert find_torn(holding(data[:4_096], 5_000), 0, 9_056, ScanBuffer()) == 0
    assert find_last(holding(b"", 0), 0, 64, ScanBuffer()) == 0
