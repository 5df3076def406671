"""Where messages end in the files of recordings.

What is damaged, or not there, is passed by: the next term begins with a frame, whatever was before.
Whoever reads that finds the damage, and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.archive.disk.segments import segment_base, segment_name, term_base
from aeron_async.spark.frame_finder import DATA, KIND
from aeron_async.spark.messages import END
from aeron_async.spark.recorded_end import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.frame_finder import Frames

    Longs = NDArray[np.int64]

__all__ = ["DiskBoundaries"]


@final
class DiskBoundaries:
    """Finds the ends of messages, or of frames, on the disk.

    Args:
        directory: Of the archive.
        recordings: By their ids.
        by_message: Whether messages are looked for; frames otherwise.
        with_padding: Whether padding is a row.
    """

    def __init__(
        self,
        directory: Directory,
        recordings: Mapping[int, RecordingDescriptor],
        *,
        by_message: bool = True,
        with_padding: bool = False,
    ) -> None:
        self._directory = directory
        self._recordings = recordings
        self._by_message = by_message
        self._with_padding = with_padding

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return where the last message ends from a start to a limit; the start if none does."""
        descriptor = self._recordings[recording_id]
        found = max(start, term_base(limit, descriptor.term_length))
        for ends, _ in self._walk(descriptor, found, limit):
            if len(ends):
                found = int(ends[-1])
        return found

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return where the first message behind a start ends; the end if none does before it."""
        for ends, _ in self._walk(self._recordings[recording_id], start, end):
            if len(ends):
                return int(ends[0])
        return end

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> int:
        """Return where so many rows behind a start end; the end if there are fewer."""
        for ends, is_row in self._walk(self._recordings[recording_id], start, end):
            count = int(is_row.sum())
            if count >= rows:
                return int(ends[np.flatnonzero(is_row)[rows - 1]])
            rows -= count
        return end

    def _walk(
        self, descriptor: RecordingDescriptor, start: int, limit: int
    ) -> Iterator[tuple[Longs, Any]]:
        """Yield where messages end, piece by piece, and which of those are rows."""
        limit &= -HEADER_LENGTH
        position = start
        while position < limit:
            base = segment_base(
                position,
                start_position=descriptor.start_position,
                term_length=descriptor.term_length,
                segment_length=descriptor.segment_length,
            )
            behind = min(limit, base + descriptor.segment_length)
            for at, frames in self._pieces(descriptor, base, position, behind):
                position = at + frames.end
                yield self._ends(frames, at, limit)
            if position < behind:
                position = term_base(position, descriptor.term_length) + descriptor.term_length
                is_within = position <= limit
                yield np.array([position] * is_within, np.int64), np.array([True] * is_within)

    def _pieces(
        self, descriptor: RecordingDescriptor, base: int, start: int, limit: int
    ) -> Iterator[tuple[int, Frames]]:
        """Yield positions and frames of a file; nothing if it is not there."""
        try:
            file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return
        try:
            for at, _, frames in pieces(file, descriptor, base=base, start=start, limit=limit):
                yield at, frames
        finally:
            file.close()

    def _ends(self, frames: Frames, at: int, limit: int) -> tuple[Longs, Any]:
        kinds = frames.heads[:, KIND]
        is_data = kinds & DATA != 0
        ends = at + frames.ends
        is_end = ends <= limit
        if self._by_message:
            is_end &= (kinds & END != 0) | ~is_data
        is_row = is_data | self._with_padding
        return ends[is_end], is_row[is_end]
