"""Effectively-once: what a task writes of its partition, and how a commit closes it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, final

from aeron_async.errors import ArchiveError
from aeron_async.logs import get_logger
from aeron_async.spark.sink.archives import archive_of_partition
from aeron_async.spark.sink.identity import Identity, first_reserved_value
from aeron_async.spark.sink.messages import Marker, StreamEnd
from aeron_async.spark.sink.recorded_stream import RecordedStream
from aeron_async.spark.sink.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.client.aeron import Aeron
    from aeron_async.spark.sink.messages import KnownEnd, TaskEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows

__all__ = ["OnceWriting", "close_batch"]

MOST_AT_ONCE = 16
"""Partitions that a commit closes at the same time."""
log = get_logger(__name__)


@final
class OnceWriting:
    """The rows of one batch in one partition: what is recorded already is left out.

    Args:
        aeron: Publishes.
        options: Of the query.
        query: Whose rows they are.
        batch: Of the query.
        partition: Of the batch.
        known: How far the recording was once; None where nobody knows.

    Attributes:
        row_count: Rows of the task so far, left out or not.
        skipped_count: Those that were there already.
    """

    def __init__(
        self,
        aeron: Aeron,
        options: SinkOptions,
        query: str,
        batch: int,
        partition: int,
        *,
        known: KnownEnd | None = None,
    ) -> None:
        self._aeron = aeron
        self._options = options
        self._query = query
        self._batch = batch
        self._partition = partition
        self._known = known
        self._stack = AsyncExitStack()
        self._stream: RecordedStream | None = None
        self._done_count = 0
        self.row_count = 0
        self.skipped_count = 0

    async def publish(self, rows: Rows) -> None:
        """Publish those rows of a batch that are not recorded yet, in order.

        Raises:
            AeronError: One cannot be published, or not in time.
        """
        payloads = rows.payloads
        if not payloads:
            return
        first = self.row_count
        reserved = first_reserved_value(self._batch, self._partition, first, len(payloads))
        stream = self._stream or await self._open()
        skipped = min(max(self._done_count - first, 0), len(payloads))
        for offset in range(skipped, len(payloads)):
            await stream.offer(payloads[offset], reserved + offset)
        self.row_count += len(payloads)
        self.skipped_count += skipped

    async def finish(self) -> list[StreamEnd]:
        """Wait until all is recorded, and return where the recording ends.

        Raises:
            AeronError: It is not, or not in time.
        """
        stream, options = self._stream, self._options
        if stream is None:
            return []
        await stream.finish()
        await self.aclose()
        assert options.channel is not None
        assert options.stream_id is not None
        end = StreamEnd(
            channel=options.channel,
            stream_id=options.stream_id,
            session_id=stream.session_id,
            position=stream.end,
            known=stream.known(),
        )
        return [end]

    async def aclose(self) -> None:
        """Let publication and archive go, whatever has become of the rows."""
        if self._stream is not None:
            self._stream.close()
        await self._stack.aclose()

    async def _open(self) -> RecordedStream:
        archive = await self._stack.enter_async_context(
            archive_of_partition(self._aeron, self._options, self._query, self._partition)
        )
        stream = RecordedStream(
            self._aeron,
            archive,
            self._options,
            self._query,
            self._partition,
            known=self._known,
        )
        self._stream = stream
        await stream.open()
        last = stream.last
        if last is not None and last.batch >= self._batch:
            # All of a later batch, or of this one when it was closed, else up to a row.
            is_closed = last.batch > self._batch or last.is_marker
            self._done_count = 1 << 62 if is_closed else last.index + 1
        if last is not None and last.batch > self._batch:
            # Right for who does a batch again; and nobody else would learn that rows are missing.
            log.warning(
                "sink_batch_passed",
                query=self._query,
                batch=self._batch,
                partition=self._partition,
                recorded_batch=last.batch,
                remedy="with a new checkpoint, set another queryId",
            )
        return stream


async def close_batch(
    aeron: Aeron, options: SinkOptions, query: str, batch: int, ends: Sequence[TaskEnd]
) -> None:
    """Put a marker behind the rows of every partition, where there is none yet.

    Raises:
        AeronError: One cannot be closed; those before may be.
    """
    calls = [
        partial(close_partition, aeron, options, query, batch, end) for end in ends if end.row_count
    ]
    await together(calls, at_once=MOST_AT_ONCE)


async def close_partition(
    aeron: Aeron, options: SinkOptions, query: str, batch: int, end: TaskEnd
) -> None:
    """Put a marker behind the rows of one partition, if there is none yet.

    Raises:
        ArchiveError: The recording ends with something else.
    """
    async with archive_of_partition(aeron, options, query, end.partition) as archive:
        stream = RecordedStream(
            aeron, archive, options, query, end.partition, known=end.streams[0].known
        )
        await stream.open()
        marker = Identity.marker(batch, end.partition)
        if stream.last is not None and stream.last >= marker:
            return
        wanted = Identity(batch, end.partition, end.row_count - 1)
        if stream.last != wanted:
            message = (
                f"recording {stream.recording_id} ends with {stream.last}, and the batch to be "
                f"closed with {wanted}: another query writes there; set another queryId"
            )
            raise ArchiveError(message)
        payload = Marker(
            query=query,
            batch=batch,
            partition=end.partition,
            rows=end.row_count,
            session_id=end.streams[0].session_id,
            position=stream.end,
        ).encode()
        try:
            await stream.offer(payload, marker.reserved_value)
            await stream.finish()
        finally:
            stream.close()
