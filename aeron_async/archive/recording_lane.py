"""Where the blocks of one recording are written, in their order and off the event loop.

There are two lanes. One is a thread of its own that the interpreter never holds up, and takes
several blocks at once: a thread of the interpreter waits for its turn before and after each write,
and while the event loop is busy a turn takes milliseconds, in which a publisher fills its window.
The other is the threads for everything else, one block at a time; it serves where there is no
compiled kernel, where files are not the system's, and where frames get checksums.

Invariant: memory of a block is somebody's, and is looked at until the block has been collected.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async.archive.disk_threads import finished
from aeron_async.errors import StorageError
from aeron_async.kernel import BlockWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.disk.recording_writer import RecordingWriter
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.kernel._writing import BlockWriter as BlockWriterType

__all__ = ["PoolLane", "RecordingLane", "ThreadLane", "open_lane"]

SMALLEST_WRITE: Final = 1 << 16
LARGEST_WRITE: Final = 1 << 22
"""Bytes of a block where each costs turns of threads, or waits for the disk."""
LARGEST_OF_MANY: Final = 1 << 18
"""Bytes of a block where several may be under way: their publisher goes on sooner."""
MOST_AT_ONCE: Final = 8
PARTS_OF_A_TERM: Final = 16
"""Who publishes may go on while the next part is written; half a term is all that may wait."""
BELL_LENGTH: Final = 64


class RecordingLane(Protocol):
    """Writes blocks, and says how far it is.

    Attributes:
        begun: Position behind the last block that was begun, in bytes.
        failure: What the disk failed with, once it is closed, if `collect` has not said so; also
            where the closing was cancelled, and could not raise it.
    """

    begun: int
    failure: StorageError | None

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way that was not collected."""
        ...

    def room(self) -> int:
        """Return how long the next block may be, in bytes; 0 while none can be begun."""
        ...

    def begin(self, block: memoryview, padding: int) -> None:
        """Let a block be written, behind those that were begun before.

        Args:
            block: Whole frames of one term.
            padding: How far the last one, if it is padding, goes on.
        """
        ...

    def collect(self) -> int:
        """Return up to which position everything has been written; see `RecordingWriter.write`.

        Raises:
            StorageError: The disk failed, and nothing more will be written.
        """
        ...

    async def aclose(self) -> None:
        """Wait for what was begun, cancelled or not, and close the file.

        Raises:
            StorageError: The disk failed, and `collect` has not said so.
            OSError: The file cannot be closed.
        """
        ...


def open_lane(
    writer: RecordingWriter,
    disk: Disk,
    *,
    term_length: int,
    ring: Callable[[], object],
    longest: int = LARGEST_WRITE,
) -> RecordingLane:
    """Return the lane that suits best.

    Args:
        writer: Open where the recording goes on; the lane closes it.
        disk: Where else is written.
        term_length: Of the stream, in bytes.
        ring: Called in the loop when there may be something to collect.
        longest: Longest block, in bytes; the longest frame at least.
    """
    part = min(max(term_length // PARTS_OF_A_TERM, SMALLEST_WRITE), longest)
    if BlockWriter is not None and disk.is_apart and writer.file_number is not None:
        # A loop that watches no descriptors, or none that are left: the other lane does as well.
        with suppress(NotImplementedError, OSError):
            return ThreadLane(writer, disk, BlockWriter, part=part, ring=ring)
    return PoolLane(writer, disk, part=part, ring=ring)


@final
class PoolLane:
    """One block at a time, by `RecordingWriter.write`; see `RecordingLane`."""

    def __init__(
        self, writer: RecordingWriter, disk: Disk, *, part: int, ring: Callable[[], object]
    ) -> None:
        self.begun = writer.position
        self.failure: StorageError | None = None
        self._writer = writer
        self._disk = disk
        self._length = min(part, LARGEST_WRITE)
        self._ring = ring
        self._writing: asyncio.Future[int] | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way; see `RecordingLane.is_idle`."""
        return self._writing is None

    def room(self) -> int:
        """Return how long the next block may be; see `RecordingLane.room`."""
        return self._length if self._writing is None else 0

    def begin(self, block: memoryview, padding: int) -> None:
        """Let a block be written; see `RecordingLane.begin`."""
        self.begun += len(block) + padding
        self._writing = self._disk.begin(self._writer.write, [(block, padding)])
        self._writing.add_done_callback(lambda _: self._ring())

    def collect(self) -> int:
        """Return how far it is; see `RecordingLane.collect`."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        return self._writer.position

    async def aclose(self) -> None:
        """Wait, and close the file; see `RecordingLane.aclose`."""
        writing, self._writing = self._writing, None
        try:
            await close_file(self._writer, self._disk, writing)
        finally:
            self.failure = failure_of(writing)


@final
class ThreadLane:
    """Several blocks at once, by a thread of its own; see `RecordingLane`.

    Args:
        writer: Whose file has a number.
        disk: Where the next file is opened.
        blocks: The compiled writer.
        part: Longest block, in bytes, that leaves who publishes room to go on.
        ring: As for `open_lane`.

    Raises:
        NotImplementedError: The loop watches no descriptors.
        OSError: There are no descriptors left, or no threads.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        disk: Disk,
        blocks: type[BlockWriterType],
        *,
        part: int,
        ring: Callable[[], object],
    ) -> None:
        self.begun = writer.position
        self.failure: StorageError | None = None
        self._writer = writer
        self._disk = disk
        self._ring = ring
        # Where each block waits for the disk, few long ones are better than many.
        self._length = min(part, LARGEST_WRITE if writer.sync_level else LARGEST_OF_MANY)
        self._most = 1 if writer.sync_level else MOST_AT_ONCE
        self._lengths: deque[int] = deque()
        self._has_failed = False
        self._rolling: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._bell, end = os.pipe()
        self._ends = (self._bell, end)
        try:
            for each in self._ends:
                os.set_blocking(each, False)
            self._loop.add_reader(self._bell, self._on_bell)
            self._blocks = blocks(end)
        except BaseException:
            self._close_bell()
            raise

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way; see `RecordingLane.is_idle`."""
        return not self._lengths and self._rolling is None

    def room(self) -> int:
        """Return how long the next block may be; see `RecordingLane.room`."""
        if self._rolling is not None or self.begun >= self._writer.segment_end:
            # There is no file to write to, or it is not sure that there will be one.
            return 0
        return self._length if len(self._lengths) < self._most else 0

    def begin(self, block: memoryview, padding: int) -> None:
        """Let a block be written; see `RecordingLane.begin`."""
        writer = self._writer
        file = writer.file_number
        assert file is not None, "a lane of its own has a file of the system"
        self._blocks.begin(file, block, writer.offset_of(self.begun), writer.sync_level)
        self._lengths.append(len(block) + padding)
        self.begun += len(block) + padding

    def collect(self) -> int:
        """Return how far it is; see `RecordingLane.collect`."""
        writer = self._writer
        failure = self._failure()
        if failure is not None:
            raise failure
        if self._rolling is not None and self._rolling.done():
            rolling, self._rolling = self._rolling, None
            rolling.result()
        elif self._rolling is None and writer.position >= writer.segment_end:
            # Now and not with the next block: an official archive leaves an empty file as well.
            self._rolling = self._disk.begin(writer.roll)
            self._rolling.add_done_callback(lambda _: self._ring())
        return writer.position

    async def aclose(self) -> None:
        """Wait, and close the file; see `RecordingLane.aclose`."""
        try:
            await self._disk.run(self._blocks.close)
        except BaseException:
            # Cancelled, or no thread could be had to wait in: that is to be heard of. What the
            # disk failed with is kept.
            with suppress(StorageError, OSError):
                await self._end()
            raise
        await self._end()

    async def _end(self) -> None:
        # Done already, unless no thread could be had to wait in: it rings no closed bell.
        self._blocks.close()
        was_told, failure = self._has_failed, self._failure()
        self._close_bell()
        rolling, self._rolling = self._rolling, None
        self.failure = None if was_told else failure
        try:
            await close_file(self._writer, self._disk, rolling, self.failure)
        finally:
            self.failure = self.failure or failure_of(rolling)

    def _failure(self) -> StorageError | None:
        """Take what has been written, and return what ended it, if anything did."""
        number = self._take()
        if not number:
            return None
        self._has_failed = True
        return self._writer.failure(OSError(number, os.strerror(number)))

    def _take(self) -> int:
        """Count what has been written, and return the number of the error that ended it, or 0."""
        count, failure = self._blocks.collect()
        for _ in range(count):
            self._writer.position += self._lengths.popleft()
        return failure

    def _on_bell(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, BELL_LENGTH)
        self._ring()

    def _close_bell(self) -> None:
        try:
            self._loop.remove_reader(self._bell)
        finally:
            for each in self._ends:
                os.close(each)


def failure_of(work: asyncio.Future[Any] | None) -> StorageError | None:
    """Return what work on the disk that is done, if it is, failed with."""
    if work is None or not work.done() or work.cancelled():
        return None
    error = work.exception()
    return error if isinstance(error, StorageError) else None


async def close_file(
    writer: RecordingWriter,
    disk: Disk,
    last: asyncio.Future[Any] | None,
    failure: StorageError | None = None,
) -> None:
    """Wait for the work that was begun last, close the file, and raise what failed first.

    Raises:
        StorageError: The disk had failed before, or the last work did.
        OSError: The file cannot be closed.
    """
    try:
        if last is not None:
            await finished(last)
    except StorageError as error:
        failure = failure or error
    except BaseException:
        with suppress(OSError):
            await disk.run(writer.close)
        raise
    try:
        await disk.run(writer.close)
    except OSError as error:
        if failure is None:
            raise
        raise failure from error
    if failure is not None:
        raise failure
