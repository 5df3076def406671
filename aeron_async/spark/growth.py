"""Whether a recording has grown: what its files say, or the archive where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import ScanBuffer, find_end
from aeron_async.archive.disk.segments import segment_base, segment_name

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = ["Growing", "Growth", "growth_of"]

LENGTH_SIZE: Final = 4


class Growth(Protocol):
    """Sees frames before it is known that they may be read."""

    def has_frame(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether a frame begins at a position, behind another."""
        ...

    def end_of_frames(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return the position behind the last frame that is there, from a frame on."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A directory that is told up to where recordings go."""

    def recorded(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording goes by now, in bytes."""
        ...


def growth_of(directory: Directory) -> Growth:
    """Return what sees how the recordings of an archive grow."""
    return ToldGrowth(directory) if isinstance(directory, Growing) else DiskGrowth(directory)


@final
class ToldGrowth:
    """What the archive says; see `Growth`."""

    def __init__(self, directory: Growing) -> None:
        self._directory = directory

    def has_frame(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether it goes on there; see `Growth.has_frame`."""
        return self._directory.recorded(descriptor) > position

    def end_of_frames(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return up to where it goes; see `Growth.end_of_frames`."""
        return max(self._directory.recorded(descriptor), position)


@final
class DiskGrowth:
    """What is in the files; see `Growth`."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._buffer = ScanBuffer()

    def has_frame(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether there is a length; see `Growth.has_frame`."""
        base = base_of(descriptor, position)
        length = memoryview(bytearray(LENGTH_SIZE))
        try:
            file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return False
        try:
            read_exactly(file, length, position - base)
        finally:
            file.close()
        return any(length)

    def end_of_frames(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return where the frames end, file by file; see `Growth.end_of_frames`."""
        while True:
            base = base_of(descriptor, position)
            try:
                file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
            except FileNotFoundError:
                return position
            try:
                end = base + find_end(file, position - base, self._buffer)
            finally:
                file.close()
            if end < base + descriptor.segment_length:
                return end
            position = end


def base_of(descriptor: RecordingDescriptor, position: int) -> int:
    """Return where the file begins that holds a position."""
    return segment_base(
        position,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )
