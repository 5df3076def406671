"""The writer of segment files: frames, byte for byte as they lay in the log.

A reader believes a block when the length of its first frame is there, and the writer writes that
length last: a process that dies in the middle of a block leaves nothing that could be taken for a
frame. From sync level 1 on the writer waits for the disk before that length and after it, so that
not even a power failure leaves a frame whose end is missing.

Differs: Aeron writes a block in one go, and refuses to start after a crash when the last frame
may be torn; here it cannot be.

Source: Aeron `RecordingWriter`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.files import close_quietly, code_of, reason_of, write_all
from aeron_async.archive.disk.segments import segment_base, segment_name
from aeron_async.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File

__all__ = ["Block", "RecordingWriter"]

HEADER_LENGTH: Final = 32
LENGTH_SIZE: Final = 4
TYPE_AT: Final = 6
SESSION_AT: Final = 12
INT: Final = Struct("<i")

Block = tuple[memoryview, int]
"""Whole frames of one term, and how many bytes the last one, if it is padding, goes on for."""


@final
class RecordingWriter:
    """Appends blocks to the files of one recording; every call blocks.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        position: Where to go on: where it starts, or where it stopped, in bytes.
        checksum: Put into each data frame in place of its session; None for none.
        sync_level: 0, 1 or 2; see `Catalog`.

    Attributes:
        position: Up to where everything has been written, in bytes; synced, from level 1 on. Who
            writes blocks to the file by its number moves it.
        sync_level: As given.

    Raises:
        StorageError: The file cannot be had; nothing was written.
    """

    def __init__(
        self,
        directory: Directory,
        descriptor: RecordingDescriptor,
        *,
        position: int,
        checksum: Checksum | None = None,
        sync_level: int = 0,
    ) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._checksum = checksum
        self.sync_level = sync_level
        self.position: int = position
        self._base = segment_base(
            position,
            start_position=descriptor.start_position,
            term_length=descriptor.term_length,
            segment_length=descriptor.segment_length,
        )
        self._file: File | None = None
        try:
            self._file = self._open_segment(is_new=False)
        except OSError as error:
            raise self.failure(error) from error

    def write(self, blocks: Sequence[Block]) -> int:
        """Append blocks that follow one another, and return the position behind them.

        Args:
            blocks: Each within one term, which no segment divides.

        Raises:
            StorageError: The disk is full, or failed; `position` says up to where all is well, and
                nothing behind it looks like a frame, but for one that is whole where the disk
                failed in the very last step, when it was waited for.
        """
        try:
            for block, padding in blocks:
                self._write_block(block, padding)
        except OSError as error:
            raise self.failure(error) from error
        return self.position

    @property
    def segment_end(self) -> int:
        """Return the position behind the file that is written now."""
        return self._base + self._descriptor.segment_length

    @property
    def file_number(self) -> int | None:
        """Return by what the system knows the file; None if blocks must be written by `write`."""
        return None if self._checksum is not None or self._file is None else self._file.number()

    def offset_of(self, position: int) -> int:
        """Return where a position lies in the file, in bytes."""
        return position - self._base

    def roll(self) -> None:
        """Go on in the next file: everything up to the end of this one has been written.

        Raises:
            StorageError: It cannot be had.
        """
        try:
            self._roll()
        except OSError as error:
            raise self.failure(error) from error

    def cut(self, position: int) -> None:
        """Close the file, and let nothing but zeros follow a position: what lies there is wrong.

        Args:
            position: Up to where all is well, in bytes.

        Raises:
            StorageError: The disk failed; `position` is that one all the same.
        """
        self.position = position
        descriptor = self._descriptor
        base = segment_base(
            position,
            start_position=descriptor.start_position,
            term_length=descriptor.term_length,
            segment_length=descriptor.segment_length,
        )
        try:
            self.close()
            while self._base > base:
                self._directory.remove(segment_name(descriptor.recording_id, self._base))
                self._base -= descriptor.segment_length
            self._file = self._open_segment(is_new=False)
            self.close()
        except OSError as error:
            raise self.failure(error) from error

    def failure(self, error: OSError) -> StorageError:
        """Return what tells of an error, and of what there is all the same."""
        recording_id = self._descriptor.recording_id
        message = (
            f"recording {recording_id} stopped at position {self.position}, for its file could not "
            f"be written in {self._directory.path}: {reason_of(error)}; what was recorded before "
            "is there"
        )
        return StorageError(message, code=code_of(error))

    def close(self) -> None:
        """Close the file; closing twice is closing once."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write_block(self, block: memoryview, padding: int) -> None:
        offset = self.position - self._base
        file = self._file
        if file is None:
            message = "the recording is not written any more: it was closed"
            raise StorageError(message)
        if self._checksum is not None:
            block = self._with_checksums(block, self._checksum)
        if len(block) > LENGTH_SIZE:
            write_all(file, [block[LENGTH_SIZE:]], offset + LENGTH_SIZE)
            self._sync(file)
        write_all(file, [block[:LENGTH_SIZE]], offset)
        self._sync(file)
        self.position += len(block) + padding
        if self.position >= self.segment_end:
            # Now and not with the next block: an official archive leaves an empty file as well.
            self._roll()

    def _with_checksums(self, block: memoryview, checksum: Checksum) -> memoryview:
        """Return a copy whose data frames carry their checksums."""
        copy = memoryview(bytearray(block))
        at = 0
        while at < len(copy):
            length = INT.unpack_from(copy, at)[0]
            aligned = (length + 31) & -32
            if copy[at + TYPE_AT] or copy[at + TYPE_AT + 1]:
                payload = copy[at + HEADER_LENGTH : at + aligned]
                INT.pack_into(copy, at + SESSION_AT, checksum(payload))
            at += aligned
        return copy

    def _roll(self) -> None:
        """Go on in the next file."""
        self.close()
        self._base += self._descriptor.segment_length
        try:
            self._file = self._open_segment(is_new=True)
        except BaseException:
            # What is there instead is not ours.
            self._base -= self._descriptor.segment_length
            raise

    def _open_segment(self, *, is_new: bool) -> File:
        """Open the file of the current base; a new one must not be there yet."""
        name = segment_name(self._descriptor.recording_id, self._base)
        directory = self._directory
        file = directory.open(name, create=True, exclusive=is_new)
        try:
            # Whatever lay behind the position is gone, and zeros are there that take no room.
            file.set_length(min(file.length(), self.position - self._base))
            file.set_length(self._descriptor.segment_length)
            if self.sync_level:
                file.sync(metadata=True)
                directory.sync()
        except BaseException:
            close_quietly(file)
            raise
        return file

    def _sync(self, file: File) -> None:
        if self.sync_level:
            file.sync(metadata=self.sync_level > 1)
