"""Writer of segment files: frames, byte for byte as in the log buffer.

A reader accepts a block when the length of its first frame is there, and the writer writes that
length last. So a process that dies in the middle of a block leaves nothing that looks like a frame.
From sync level 1 on the writer waits for the disk before it writes that length and after it, so
that not even a power failure leaves a frame whose end is missing.

Differs: Aeron writes a block with one call, and refuses to start after a crash if the last frame
may be torn; here the last frame cannot be torn.

Source: Aeron `RecordingWriter`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.files import close_quietly, code_of, reason_of, write_all
from aeron_async.archive.disk.segments import segment_name
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
"""Whole frames of one term, and the bytes of a padding frame at the end beyond its header."""


@final
class RecordingWriter:
    """Appends blocks to the segment files of one recording; every call blocks.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording.
        position: Where to begin, in bytes: the start position, or the stop position of an extended
            recording.
        checksum: Checksum to put into each data frame in place of its session id; None for none.
        sync_level: 0, 1 or 2; see `Catalog`.

    Attributes:
        sync_level: As given.

    Raises:
        StorageError: The file cannot be opened; nothing was written.
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
        self._position = position
        self._base = descriptor.segment_base(position)
        self._file: File | None = None
        try:
            self._file = self._open_segment(is_new=False)
        except OSError as error:
            raise self.failure(error) from error

    def write(self, blocks: Sequence[Block]) -> int:
        """Append consecutive blocks, and return the position behind them.

        Args:
            blocks: Each within one term, and so within one segment.

        Raises:
            StorageError: The disk is full, or failed. `position` is then the end of what was
                written, and nothing behind it looks like a frame; the exception is a whole frame,
                if the disk failed in the last sync.
        """
        try:
            for block, padding in blocks:
                self._write_block(block, padding)
        except OSError as error:
            raise self.failure(error) from error
        return self.position

    @property
    def position(self) -> int:
        """Return up to where everything has been written, in bytes; from level 1 on, synced."""
        return self._position

    @property
    def segment_end(self) -> int:
        """Return the end position of the current segment file."""
        return self._base + self._descriptor.segment_length

    @property
    def file_number(self) -> int | None:
        """Return the descriptor of the file; None if blocks must be written by `write`."""
        return None if self._checksum is not None or self._file is None else self._file.number()

    def on_written(self, length: int) -> None:
        """Advance the position: that many bytes behind it are in the file.

        A caller that writes through `file_number` calls it; `write` does so itself.
        """
        self._position += length

    def offset_of(self, position: int) -> int:
        """Return the offset of a position in the current file, in bytes."""
        return position - self._base

    def roll(self) -> None:
        """Open the next segment file; the current one has been written to its end.

        Raises:
            StorageError: The file cannot be opened.
        """
        try:
            self._roll()
        except OSError as error:
            raise self.failure(error) from error

    def cut(self, position: int) -> None:
        """Close the file, and clear everything behind a position, because that data is wrong.

        Args:
            position: End of the valid data, in bytes.

        Raises:
            StorageError: The disk failed; `position` was changed nevertheless.
        """
        self._position = position
        descriptor = self._descriptor
        base = descriptor.segment_base(position)
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
        """Return an error with the position up to which data was written."""
        recording_id = self._descriptor.recording_id
        message = (
            f"recording {recording_id} stopped at position {self.position}: its file in "
            f"{self._directory.path} could not be written: {reason_of(error)}; everything before "
            "that position is recorded"
        )
        return StorageError(message, code=code_of(error))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write_block(self, block: memoryview, padding: int) -> None:
        offset = self._position - self._base
        file = self._file
        if file is None:
            message = "it was closed"
            raise StorageError(message)
        if self._checksum is not None:
            block = self._with_checksums(block, self._checksum)
        if len(block) > LENGTH_SIZE:
            write_all(file, [block[LENGTH_SIZE:]], offset + LENGTH_SIZE)
            self._sync(file)
        write_all(file, [block[:LENGTH_SIZE]], offset)
        self._sync(file)
        self.on_written(len(block) + padding)
        if self._position >= self.segment_end:
            # Open the next segment now and not with the next block: the official archive also
            # leaves an empty file at the end.
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
        """Open the next segment file."""
        self.close()
        self._base += self._descriptor.segment_length
        try:
            self._file = self._open_segment(is_new=True)
        except BaseException:
            # The file exists already, and does not belong to this recording session.
            self._base -= self._descriptor.segment_length
            raise

    def _open_segment(self, *, is_new: bool) -> File:
        """Open the file at the current base; a new one must not exist yet."""
        name = segment_name(self._descriptor.recording_id, self._base)
        directory = self._directory
        file = directory.open(name, create=True, exclusive=is_new)
        try:
            # Truncate and extend: everything behind the position becomes zeros that take no space.
            file.set_length(min(file.length(), self._position - self._base))
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
