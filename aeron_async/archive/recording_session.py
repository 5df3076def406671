"""One recording session: the blocks of an image, written to segment files in order.

A block is a range of the log of the image: whole frames of one term. A `RecordingSession` gives the
blocks of its image to a `BlockWriteQueue`. There are two kinds. `ThreadWriter` has a native thread
that never takes the GIL, and takes several blocks at once. A Python thread would wait for the GIL
before and after each write; while the event loop is busy each such wait takes milliseconds, in
which a publisher fills its window. `PoolWriter` shares the threads of all other disk work, and
takes one block at a time. It is used if the compiled extension is missing, if the files are not
files of the operating system, or if frames get checksums.

By default (`file_sync_level` 0) no byte is forced to the disk: "written" means that the operating
system has it. At levels 1 and 2 each write is followed by an fdatasync or an fsync, for a
`ThreadWriter` in `_speedups/writing.pyx`, for a `PoolWriter` in `disk/recording_writer.py`.

Invariant: the memory of a block belongs to the log of the image, and a queue reads it until the
block has been collected.

Invariant: the position of the image moves when everything before it has been written, and not
earlier. So a slow disk slows the publisher down, and a reader of the recording sees only what has
been written.

Source: Aeron `RecordingSession`, `ArchiveConductor.startRecordingSession`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async._speedups import BlockWriter
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import reason_of
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk_access import finished
from aeron_async.archive.recording_counter import recording_counter
from aeron_async.client.waiters import Notify
from aeron_async.errors import ArchiveError, ClosedError, StorageError
from aeron_async.logs import get_logger
from aeron_async.stats import RecordingStats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async._speedups.writing import BlockWriter as BlockWriterType
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk_access import Disk
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.counter import Counter
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription

__all__ = [
    "BlockWriteQueue",
    "PoolWriter",
    "RecordingSession",
    "ThreadWriter",
    "open_session",
    "open_write_queue",
]

# Queues.

SMALLEST_WRITE: Final = 1 << 16
LARGEST_WRITE: Final = 1 << 22
"""Longest block, in bytes, if each block costs switches of threads, or waits for the disk."""
MAX_BLOCK_WHEN_PARALLEL: Final = 1 << 18
"""Longest block, in bytes, if several are in progress: short ones free the window sooner."""
MAX_BLOCKS_IN_FLIGHT: Final = 8
PARTS_OF_A_TERM: Final = 16
"""Blocks in a term: the publisher, limited to half a term, continues while one is written."""
WAKE_READ_LENGTH: Final = 64


class BlockWriteQueue(Protocol):
    """Writes blocks, and returns how far it has come.

    Attributes:
        begun: End position of the block that was begun last, in bytes.
        failure: After `aclose`, the disk's error, if `collect` has not raised it already. It is set
            also if `aclose` was cancelled, and so raised the cancellation instead.
    """

    begun: int
    failure: StorageError | None

    @property
    def is_idle(self) -> bool:
        """Return whether every block that was begun has been collected."""
        ...

    def room(self) -> int:
        """Return the greatest length of the next block, in bytes; 0 while none can be begun."""
        ...

    def begin(self, block: memoryview, padding: int) -> None:
        """Begin writing a block, after the blocks that were begun before.

        Args:
            block: Whole frames of one term.
            padding: Bytes of a padding frame at the end beyond its header.
        """
        ...

    def collect(self) -> int:
        """Return the position up to which everything has been written; see `RecordingWriter.write`.

        Raises:
            StorageError: The disk failed, and nothing more will be written.
        """
        ...

    async def aclose(self) -> None:
        """Wait for the blocks that were begun, even if cancelled, and close the file.

        Raises:
            StorageError: The disk failed, and `collect` did not raise it.
            OSError: The file cannot be closed.
        """
        ...


def open_write_queue(
    writer: RecordingWriter,
    disk: Disk,
    *,
    term_length: int,
    wake: Callable[[], object],
    longest: int = LARGEST_WRITE,
) -> BlockWriteQueue:
    """Return a `ThreadWriter` if possible, else a `PoolWriter`.

    Args:
        writer: Writer at the position where the recording begins; the queue closes it.
        disk: Runs all other disk work.
        term_length: Term length of the stream, in bytes.
        wake: Called in the loop when there may be something to collect.
        longest: Longest block, in bytes; at least the longest frame.
    """
    part = min(max(term_length // PARTS_OF_A_TERM, SMALLEST_WRITE), longest)
    if BlockWriter is not None and disk.is_off_loop and writer.file_number is not None:
        # If the loop watches no descriptors, or none are left, a `PoolWriter` does the same work.
        with suppress(NotImplementedError, OSError):
            return ThreadWriter(writer, disk, BlockWriter, part=part, wake=wake)
    return PoolWriter(writer, disk, part=part, wake=wake)


@final
class PoolWriter:
    """Writes one block at a time in the disk's threads; see `BlockWriteQueue`."""

    def __init__(
        self, writer: RecordingWriter, disk: Disk, *, part: int, wake: Callable[[], object]
    ) -> None:
        self.begun: int = writer.position
        self.failure: StorageError | None = None
        self._writer = writer
        self._disk = disk
        self._length = min(part, LARGEST_WRITE)
        self._wake = wake
        self._writing: asyncio.Future[int] | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no block is in progress; see `BlockWriteQueue.is_idle`."""
        return self._writing is None

    def room(self) -> int:
        """Return the greatest length of the next block; see `BlockWriteQueue.room`."""
        return self._length if self._writing is None else 0

    def begin(self, block: memoryview, padding: int) -> None:
        """Begin writing a block; see `BlockWriteQueue.begin`."""
        self.begun += len(block) + padding
        self._writing = self._disk.begin(self._writer.write, [(block, padding)])
        self._writing.add_done_callback(lambda _: self._wake())

    def collect(self) -> int:
        """Return how far the queue has written; see `BlockWriteQueue.collect`."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        return self._writer.position

    async def aclose(self) -> None:
        """Wait for the last block, and close the file; see `BlockWriteQueue.aclose`."""
        writing, self._writing = self._writing, None
        try:
            await close_file(self._writer, self._disk, writing)
        finally:
            self.failure = failure_of(writing)


@final
class ThreadWriter:
    """Writes several blocks at once in a native thread of its own; see `BlockWriteQueue`.

    Args:
        writer: Writer whose file has a descriptor.
        disk: Opens the next segment file.
        native_writer: The compiled writer.
        part: Longest block, in bytes, that leaves the publisher room in its window.
        wake: See `open_write_queue`.

    Raises:
        NotImplementedError: The loop watches no descriptors.
        OSError: There are no descriptors left, or no threads.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        disk: Disk,
        native_writer: type[BlockWriterType],
        *,
        part: int,
        wake: Callable[[], object],
    ) -> None:
        self.begun: int = writer.position
        self.failure: StorageError | None = None
        self._writer = writer
        self._disk = disk
        self._wake = wake
        # If each block waits for the disk, few long blocks are better than many.
        self._length = min(part, LARGEST_WRITE if writer.sync_level else MAX_BLOCK_WHEN_PARALLEL)
        self._most = 1 if writer.sync_level else MAX_BLOCKS_IN_FLIGHT
        self._lengths: deque[int] = deque()
        self._has_failed = False
        self._rolling: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._wake_pipe, end = os.pipe()
        self._pipe_ends = (self._wake_pipe, end)
        try:
            for each in self._pipe_ends:
                os.set_blocking(each, False)
            self._loop.add_reader(self._wake_pipe, self._on_wake_pipe)
            self._native_writer = native_writer(end)
        except BaseException:
            self._close_wake_pipe()
            raise

    @property
    def is_idle(self) -> bool:
        """Return whether no block is in progress; see `BlockWriteQueue.is_idle`."""
        return not self._lengths and self._rolling is None

    def room(self) -> int:
        """Return the greatest length of the next block; see `BlockWriteQueue.room`."""
        if self._rolling is not None or self.begun >= self._writer.segment_end:
            # The next segment file is not open yet, and opening it may fail.
            return 0
        return self._length if len(self._lengths) < self._most else 0

    def begin(self, block: memoryview, padding: int) -> None:
        """Begin writing a block; see `BlockWriteQueue.begin`."""
        writer = self._writer
        file = writer.file_number
        assert file is not None, "a queue of its own has a file of the system"
        self._native_writer.begin(file, block, writer.offset_of(self.begun), writer.sync_level)
        self._lengths.append(len(block) + padding)
        self.begun += len(block) + padding

    def collect(self) -> int:
        """Return how far the queue has written; see `BlockWriteQueue.collect`."""
        writer = self._writer
        failure = self._failure()
        if failure is not None:
            raise failure
        if self._rolling is not None and self._rolling.done():
            rolling, self._rolling = self._rolling, None
            rolling.result()
        elif self._rolling is None and writer.position >= writer.segment_end:
            # Open the next segment now and not with the next block: the official archive also
            # leaves an empty file at the end.
            self._rolling = self._disk.begin(writer.roll)
            self._rolling.add_done_callback(lambda _: self._wake())
        return writer.position

    async def aclose(self) -> None:
        """Wait for the blocks that were begun, and close the file; see `BlockWriteQueue.aclose`."""
        try:
            await self._disk.run(self._native_writer.close)
        except BaseException:
            # Cancelled, or no thread was available to wait in: raise that. `failure` keeps the
            # error of the disk.
            with suppress(StorageError, OSError):
                await self._end()
            raise
        await self._end()

    async def _end(self) -> None:
        # Closed already, unless no thread was available to wait in. The native thread must be gone
        # before its pipe is closed.
        self._native_writer.close()
        was_told, failure = self._has_failed, self._failure()
        self._close_wake_pipe()
        rolling, self._rolling = self._rolling, None
        self.failure = None if was_told else failure
        try:
            await close_file(self._writer, self._disk, rolling, self.failure)
        finally:
            self.failure = self.failure or failure_of(rolling)

    def _failure(self) -> StorageError | None:
        """Count the blocks that were written, and return the error of the disk, if any."""
        number = self._take()
        if not number:
            return None
        self._has_failed = True
        return self._writer.failure(OSError(number, os.strerror(number)))

    def _take(self) -> int:
        """Count the blocks that were written, and return the errno that ended the writing, or 0."""
        count, failure = self._native_writer.collect()
        for _ in range(count):
            self._writer.on_written(self._lengths.popleft())
        return failure

    def _on_wake_pipe(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_pipe, WAKE_READ_LENGTH)
        self._wake()

    def _close_wake_pipe(self) -> None:
        try:
            self._loop.remove_reader(self._wake_pipe)
        finally:
            for each in self._pipe_ends:
                os.close(each)


def failure_of(work: asyncio.Future[Any] | None) -> StorageError | None:
    """Return the storage error of disk work, if the work is done and failed with one."""
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
    """Wait for the work that was begun last, close the file, and raise the first failure.

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


log: Final = get_logger(__name__)


# The session.


@final
class RecordingSession:
    """Records one image until the image ends, the session is stopped, or the disk fails.

    Args:
        descriptor: Descriptor of the recording, already in the catalog.
        image: Image to be recorded.
        subscription: Subscription of the image.
        writer: Writer at the image's join position; the session closes it.
        counter: Shows the recorded position; the session closes it.
        disk: Runs the writes.
        longest_write: Longest block, in bytes.

    Attributes:
        recording_id: Id of the recording.
        start_position: Where this session began, in bytes; an extended recording began earlier.
        position: Position up to which everything has been written, in bytes.
        progress: Notified when the position has moved, and when the session has ended.
        error: Why the session ended too early; None if it did not.
        is_over: Whether nothing more will be written; `position` is then the stop position.
    """

    start_position: int
    position: int

    def __init__(
        self,
        *,
        descriptor: RecordingDescriptor,
        image: Image,
        subscription: Subscription,
        writer: RecordingWriter,
        counter: Counter,
        disk: Disk,
        longest_write: int,
    ) -> None:
        self.descriptor = descriptor
        self.recording_id: int = descriptor.recording_id
        self.image = image
        self.subscription = subscription
        self.start_position = self.position = writer.position
        self.counter_id: int = counter.id
        self.progress: Notify = Notify()
        self.error: ArchiveError | None = None
        self.is_over: bool = False
        self._writer = writer
        self._counter = counter
        self._disk = disk
        self._queue = open_write_queue(
            writer,
            disk,
            term_length=image.term_length,
            wake=subscription._progress.notify,
            longest=longest_write,
        )
        self._failures: list[StorageError] = []
        self._is_stopping = False
        counter.set(self.position)

    @property
    def recorded_bytes(self) -> int:
        """Return how much this session has written, in bytes."""
        return self.position - self.start_position

    @property
    def state(self) -> str:
        """Return what the session does now; see `RecordingStats`."""
        if self._failures:
            return "failed"
        if self.is_over:
            return "ended"
        return "stopping" if self._is_stopping else "recording"

    def stats(self, arrived_positions: Mapping[int, int]) -> RecordingStats:
        """Return the statistics of this moment.

        Args:
            arrived_positions: Up to where streams have arrived, by the ids of their images, as far
                as it cannot be seen from here.
        """
        arrived = self._arrived_position(arrived_positions)
        return RecordingStats(
            recording_id=self.recording_id,
            channel=self.descriptor.original_channel,
            stream_id=self.image.stream_id,
            session_id=self.image.session_id,
            start_position=self.start_position,
            position=self.position,
            image_position=arrived,
            lag_bytes=None if arrived is None else arrived - self.position,
            recorded_bytes=self.recorded_bytes,
            state=self.state,
        )

    def _arrived_position(self, arrived_positions: Mapping[int, int]) -> int | None:
        """Return up to where the stream has arrived; None if only a driver elsewhere knows it.

        Nothing more is read of an image that is closed than the blocks that were begun.
        """
        if self.is_over:
            return self.position
        if self.image.is_closed:
            return max(self._queue.begun, self.position)
        port = self.image._port  # noqa: SLF001 - it is asked for what arrived, and told nothing
        arrived: int | None = getattr(port, "rebuild_position", None)
        if arrived is None:
            arrived = arrived_positions.get(self.image.image_id)
        return None if arrived is None else max(arrived, self.position)

    def stop(self) -> None:
        """Record the data that has arrived by now, then end."""
        self._is_stopping = True
        self.subscription._progress.notify()

    def close_counter(self) -> None:
        """Close the counter, once the catalog holds the stop position, and notify `progress`."""
        self._counter.close()
        self.progress.notify()

    async def run(self) -> None:
        """Record until the end; raise nothing but cancellation."""
        try:
            await self._record()
        except StorageError as error:
            # The position of the writer is the end of what was written.
            self._failures.append(error)
        finally:
            try:
                await self._queue.aclose()
            except StorageError:
                # The error of a block in progress; the queue keeps it in `failure`, also when
                # cancelled.
                pass
            except OSError as error:
                log.warning(
                    "recording_not_closed",
                    recording_id=self.recording_id,
                    error=reason_of(error),
                )
            finally:
                await self._settle()

    async def _settle(self) -> None:
        """Determine where the recording ends, now that no block is in progress.

        Differs: Aeron keeps data that it copied from a log which may have been overwritten during
        the copy.
        """
        writer = self._writer
        if self._queue.failure is not None:
            self._failures.append(self._queue.failure)
        try:
            if writer.position > self.position and self.image.is_let_go:
                log.warning(
                    "recording_run_over",
                    recording_id=self.recording_id,
                    position=self.position,
                    discarded=writer.position - self.position,
                )
                await self._disk.run(writer.cut, self.position)
        except StorageError as error:
            self._failures.append(error)
        finally:
            # Only now: a replay must not take an earlier position for the end.
            self.position = writer.position
            self._report()
            self.is_over = True
            self.progress.notify()

    async def _record(self) -> None:
        image, queue = self.image, self._queue
        end: int | None = None
        while end is None or self.position < end:
            was_stopping, was_closed = self._is_stopping, image.is_closed
            if queue.begun > self.position and image.is_let_go:
                # The stream has continued without this image: a block in progress may have been
                # overwritten before the queue read it.
                return
            self._collect()
            self._begin()
            if queue.is_idle and (was_stopping or was_closed or image.is_end_of_stream):
                return
            if was_stopping and end is None:
                # A publisher that keeps publishing must not keep the session open: end one term
                # later.
                end = self.position + image.term_length
            await self._wait()

    async def _wait(self) -> None:
        """Wait until there may be a block to begin or to collect, or the session is to end."""
        subscription = self.subscription
        if not self._queue.is_idle:
            # The queue wakes the session, and what has arrived by then makes a longer block.
            await subscription._progress.wait()
            return
        await subscription._wait_for_progress()
        if subscription._is_watched:
            # That did not wait if another image has something; let its session run.
            await asyncio.sleep(0)

    def _begin(self) -> None:
        """Begin writing the available blocks, as many as the queue takes."""
        queue = self._queue
        while room := queue.room():
            block, padding = self.image._peek_block(queue.begun, room)
            if not len(block):
                return
            if not queue.is_idle and len(block) < room // 2 and not padding:
                # The block will grow while others are written, and a short block costs as much as a
                # long one.
                return
            queue.begin(block, padding)

    def _collect(self) -> None:
        """Advance the position past the written blocks, for replays and for the publisher."""
        position = self._queue.collect()
        if position != self.position:
            self.position = position
            with suppress(ClosedError):
                # Else a driver in another process is gone; what it had sent is still recorded.
                self._counter.set(position)
            self.image._take(position)
            self.progress.notify()

    def _report(self) -> None:
        """Log the failures, with the position where the recording has ended."""
        fields = {"recording_id": self.recording_id, "position": self.position}
        for error in self._failures:
            self.error = self.error or error
            log.error("recording_failed", error=str(error), **fields)


async def open_session(
    resources: ArchiveResources, image: Image, descriptor: RecordingDescriptor
) -> RecordingSession:
    """Open the session that records an image; on failure everything it opened is closed.

    The descriptor must be in the catalog already.

    Raises:
        StorageError: The file cannot be opened.
        RegistrationError: No counter is left.
    """
    context = resources.context
    opening = resources.disk.begin(
        partial(
            RecordingWriter,
            resources.directory,
            descriptor,
            position=image.join_position,
            checksum=checksum_named(context.record_checksum),
            sync_level=context.file_sync_level,
        )
    )
    try:
        writer = await finished(opening)
    except asyncio.CancelledError:
        if not opening.cancelled() and opening.exception() is None:
            # The file was opened despite the cancellation, and only this task can close it.
            await resources.disk.run(opening.result().close)
        raise
    try:
        counter = await recording_counter(
            resources.aeron,
            descriptor,
            session_id=image.session_id,
            source_identity=image.source_identity,
            archive_id=resources.archive_id,
        )
    except BaseException:
        await resources.disk.run(writer.close)
        raise
    return RecordingSession(
        descriptor=descriptor,
        image=image,
        subscription=image.subscription,
        writer=writer,
        counter=counter,
        disk=resources.disk,
        longest_write=context.file_io_max_length,
    )
