"""One stream being recorded: out of an image, into files.

Invariant: the image's position moves when what lies before it has been written, and not earlier;
so the publisher is held back by the disk, and what a reader of the recording sees is on it.

Source: Aeron `RecordingSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.disk_errors import reason_of
from aeron_async.archive.recording_lane import open_lane
from aeron_async.client.signal import Signal
from aeron_async.errors import ArchiveError, StorageError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.recording_writer import RecordingWriter
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription
    from aeron_async.counters import Counter

__all__ = ["RecordingSession"]

log = get_logger(__name__)


@final
class RecordingSession:
    """Records one image until it ends, it is stopped, or the disk fails.

    Args:
        descriptor: Of the recording, in the catalog already.
        image: To be recorded.
        subscription: That the image is of.
        writer: Open where the image begins; closed in the end.
        counter: Shows the position; closed in the end.
        disk: Where is written.
        longest_write: Most bytes of one block.

    Attributes:
        recording_id: Of the recording.
        start_position: Where this session began, in bytes; not where the recording did.
        position: Up to where everything has been written, in bytes.
        progress: Rings when the position has moved, and when the session has ended.
        error: Why it ended, if it should not have.
        is_over: Whether nothing more will be written, and `position` is where it has ended.
    """

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
        self.recording_id = descriptor.recording_id
        self.image = image
        self.subscription = subscription
        self.start_position = self.position = writer.position
        self.counter_id = counter.id
        self.progress = Signal()
        self.error: ArchiveError | None = None
        self.is_over = False
        self._writer = writer
        self._counter = counter
        self._disk = disk
        self._lane = open_lane(
            writer,
            disk,
            term_length=image.term_length,
            ring=subscription.progress.ring,
            longest=longest_write,
        )
        self._failures: list[StorageError] = []
        self._is_stopping = False
        counter.set(self.position)

    def stop(self) -> None:
        """Record what is there by now, and then no more."""
        self._is_stopping = True
        self.subscription.progress.ring()

    def mark_stopped(self) -> None:
        """Say that the catalog knows the end."""
        self._counter.close()
        self.progress.ring()

    async def run(self) -> None:
        """Record until there is no more; never raises but for cancellation."""
        try:
            await self._record()
        except StorageError as error:
            # What the writer says has been written is all that there is.
            self._failures.append(error)
        finally:
            try:
                await self._lane.aclose()
            except StorageError:
                # Of a block that was under way; the lane keeps it, also where it is cancelled.
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
        """Find out where the recording ends, now that nothing is under way any more.

        Differs: Aeron believes what it has copied out of a log that did not wait for it.
        """
        writer = self._writer
        if self._lane.failure is not None:
            self._failures.append(self._lane.failure)
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
            # Not before: who replays would take for the end what is not yet written.
            self.position = writer.position
            self._report()
            self.is_over = True
            self.progress.ring()

    async def _record(self) -> None:
        image, lane = self.image, self._lane
        progress = self.subscription.progress
        end: int | None = None
        while end is None or self.position < end:
            was_stopping, was_closed = self._is_stopping, image.is_closed
            if lane.begun > self.position and image.is_let_go:
                # Nobody can tell whether what is under way was read before it was written over.
                return
            self._collect()
            self._begin()
            if lane.is_idle and (was_stopping or was_closed or image.is_end_of_stream):
                return
            if was_stopping and end is None:
                # Whoever goes on publishing would keep it going for ever.
                end = self.position + image.term_length
            await progress.wait()

    def _begin(self) -> None:
        """Let what is there be written, as much as may be under way at once."""
        lane = self._lane
        while room := lane.room():
            block, padding = self.image.peek_block(lane.begun, room)
            if not len(block):
                return
            if not lane.is_idle and len(block) < room // 2 and not padding:
                # It grows while others are under way, and costs as much as a long one.
                return
            lane.begin(block, padding)

    def _collect(self) -> None:
        """Let go of what has been written: readers may have it, and the publisher its room."""
        position = self._lane.collect()
        if position != self.position:
            self.position = position
            self._counter.set(position)
            self.image.take(position)
            self.progress.ring()

    def _report(self) -> None:
        """Tell of what failed, with the position where the recording has ended."""
        fields = {"recording_id": self.recording_id, "position": self.position}
        for error in self._failures:
            self.error = self.error or error
            log.error("recording_failed", error=str(error), **fields)
