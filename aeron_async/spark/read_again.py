"""Bytes of a file that is read again and again, to see whether they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.files import read_exactly

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import ReadableFile

__all__ = ["ReadAgain"]


@final
class ReadAgain:
    """Part of a file, as it was read last and before.

    Two pieces of memory take turns: to ask the system for some megabytes each time takes as long as
    to read them.

    Attributes:
        data: The bytes that were read last; zeros behind the end of the file.
        before: Those that were read before.
    """

    def __init__(self) -> None:
        self.data: bytearray = bytearray()
        self.before: bytearray = bytearray()

    def read(self, file: ReadableFile, offset: int, length: int) -> bool:
        """Read that many bytes; return whether they are others than those that were read last."""
        if len(self.before) != length:
            self.before = bytearray(length)
        count = read_exactly(file, memoryview(self.before), offset)
        self.before[count:] = bytes(length - count)
        self.data, self.before = self.before, self.data
        return self.data != self.before
