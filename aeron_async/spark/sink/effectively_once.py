"""Effectively-once delivery: the recording of a partition, and the commit of a batch.

An attempt stops any other attempt that still records, reads the last identity, cuts off a message
that is not whole, and extends the recording with a session of its own. So the recording holds each
row once and in order, whatever was killed. Rows behind the last marker belong to an unfinished
batch.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, final

import anyio

from aeron_async.archive.api import SourceLocation
from aeron_async.errors import AeronTimeoutError, ArchiveError, ArchiveErrorCode
from aeron_async.logs import get_logger
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.spark.sink.archives import archive_of_partition, looks, wait_recorded
from aeron_async.spark.sink.identity import (
    Identity,
    KnownEnd,
    Marker,
    StreamEnd,
    first_reserved_value,
)
from aeron_async.spark.worker import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.spark.sink.identity import TaskEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows

__all__ = [
    "OnceWriting",
    "RecordedStream",
    "alias_of",
    "close_batch",
]

LARGEST_SESSION: Final = (1 << 31) - 1


def alias_of(query_id: str, partition: int) -> str:
    """Return the channel alias that identifies the recording of a partition."""
    return f"spark-sink.{query_id}.{partition}"


@final
class RecordedStream:
    """The recording of a partition, opened by one attempt.

    Args:
        aeron: Client that publishes.
        archive: Archive that records.
        options: Options of the query; they set channel and stream.
        query_id: Query that writes the rows.
        partition: Partition of the query.
        known: An earlier end of the recording; None if unknown.

    Attributes:
        last: Identity of the last message; None before the first.
        end: End of the last message, in bytes.
        recording_id: Id of the recording; None before the first row.
        session_id: Session of this attempt; 0 before it publishes.
    """

    def __init__(
        self,
        aeron: Aeron,
        archive: Archive,
        options: SinkOptions,
        query_id: str,
        partition: int,
        *,
        known: KnownEnd | None = None,
    ) -> None:
        assert options.channel is not None
        assert options.stream_id is not None
        self._aeron = aeron
        self._archive = archive
        self._timeout_s = options.timeout_s
        self._is_local = options.archive_path is not None
        self._alias = alias_of(query_id, partition)
        self._channel = ChannelUri.parse(options.channel).replace(alias=self._alias)
        recording_channel = options.archive_recording_channel or options.channel
        self._recorded = ChannelUri.parse(recording_channel).replace(alias=self._alias)
        self._stream_id = options.stream_id
        self._publication: ExclusivePublication | None = None
        self._session_before: int | None = None
        self._known = known
        self._last_offered = 0
        self._started_ms = 0
        self.last: Identity | None = None
        self.end: int = 0
        self.recording_id: int | None = None
        self.session_id: int = 0

    async def open(self) -> None:
        """Find the recording, stop any other attempt that records to it, and find its last message.

        Raises:
            ArchiveError: The archive refuses a request.
        """
        found = None
        fragment = f"alias={self._alias}"
        async for each in self._archive.recordings(channel=fragment, stream_id=self._stream_id):
            # The archive matches a substring of the channel, and alias `.1` is a substring of
            # `.12`.
            if ChannelUri.parse(each.original_channel).alias == self._alias:
                found = each
        if found is None:
            return
        self.recording_id = found.recording_id
        self._session_before = found.session_id
        await self._archive.stop_recording_by_identity(found.recording_id)
        found = await self._stopped(found.recording_id)
        self._started_ms = found.start_timestamp_ms
        await self._read_last(found)
        if self.end < found.stop_position:
            await self._cut(found.recording_id)

    async def offer(self, payload: memoryview | bytes, reserved_value: int) -> None:
        """Publish one message with back pressure; the first one starts or extends the recording.

        Raises:
            AeronError: The message cannot be published, or not in time.
        """
        publication = self._publication or await self._begin()
        await publication.offer(payload, reserved_value=reserved_value, timeout=self._timeout_s)
        self._last_offered = reserved_value

    async def finish(self) -> None:
        """Wait until everything published is recorded, and stop the recording.

        Raises:
            AeronTimeoutError: That takes too long.
            ArchiveError: Another attempt has taken over the recording.
        """
        publication = self._publication
        if publication is None:
            return
        assert self.recording_id is not None, "there is one since the first message"
        self.end = publication.position
        await wait_recorded(
            self._archive,
            self.recording_id,
            self.session_id,
            self.end,
            session_before=self._session_before,
            timeout_s=self._timeout_s,
        )
        self.last = Identity.of(self._last_offered)
        await self._archive.stop_recording_by_identity(self.recording_id)
        if not self._started_ms:
            self._started_ms = (await self._archive.describe(self.recording_id)).start_timestamp_ms
        self.close()

    def known(self) -> KnownEnd | None:
        """Return the end of the recording for the next attempt; None if there is no recording."""
        if self.recording_id is None or self.last is None:
            return None
        return KnownEnd(
            recording_id=self.recording_id,
            started_ms=self._started_ms,
            position=self.end,
            last=self.last,
        )

    def close(self) -> None:
        """Close the publication."""
        if self._publication is not None:
            self._publication.close()

    async def _cut(self, recording_id: int) -> None:
        """Truncate the recording behind the last whole message."""
        refused = None
        with anyio.move_on_after(self._timeout_s):
            async for _ in looks():
                try:
                    await self._archive.truncate(recording_id, self.end)
                except ArchiveError as error:
                    # The replay that found the place may still be open in the archive.
                    refused = error
                else:
                    return
        message = f"recording {recording_id} could not be cut at {self.end}: {refused}"
        raise AeronTimeoutError(message) from refused

    async def _stopped(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording once the catalog shows that it stopped."""
        with anyio.move_on_after(self._timeout_s):
            async for _ in looks():
                found = await self._archive.describe(recording_id)
                if not found.is_active:
                    return found
        message = f"recording {recording_id} did not stop within {self._timeout_s} s"
        raise AeronTimeoutError(message)

    async def _read_last(self, found: RecordingDescriptor) -> None:
        """Find the last whole message, term by term from the end: no message spans two terms."""
        start, stop, known = found.start_position, found.stop_position, self._known
        if (
            known is not None
            and (known.recording_id, known.started_ms) == (found.recording_id, self._started_ms)
            and start <= known.position <= stop
        ):
            start, self.last = known.position, known.last
        self.end = start
        term_length = found.term_length
        begin = stop
        while begin > start:
            stop, begin = begin, max(start, (begin - 1) // term_length * term_length)
            if await self._read_term(found.recording_id, begin, stop):
                return

    async def _read_term(self, recording_id: int, begin: int, stop: int) -> bool:
        reserved_value = None
        async with self._archive.replay(recording_id, begin, stop) as messages:
            async for message in messages:
                reserved_value = message.reserved_value
                self.end = message.position
        if reserved_value is None:
            return False
        self.last = Identity.of(reserved_value)
        return True

    async def _begin(self) -> ExclusivePublication:
        """Record a new session, and return its publication."""
        self.session_id = secrets.randbelow(LARGEST_SESSION) + 1
        recorded = str(self._recorded.replace(session_id=self.session_id))
        channel = self._channel.replace(session_id=self.session_id)
        if self._is_local and channel.media is Media.UDP:
            # The archive uses a spy subscription, which must count as a subscriber.
            channel = channel.replace(spies_simulate_connection=True)
        location = SourceLocation.LOCAL if self._is_local else SourceLocation.REMOTE
        archive, stream_id = self._archive, self._stream_id
        if self.recording_id is None:
            await archive.start_recording(
                recorded, stream_id, source_location=location, auto_stop=True
            )
            publication = await self._aeron.add_exclusive_publication(channel, stream_id)
        else:
            await archive.extend_recording(
                self.recording_id, recorded, stream_id, source_location=location, auto_stop=True
            )
            publication = await archive.extending_publication(
                self.recording_id, str(channel), stream_id
            )
        self._publication = publication
        if publication.position != self.end:
            # Another attempt has written since `open`; the next rows are already there.
            message = (
                f"recording {self.recording_id} ends at {publication.position}, and did at "
                f"{self.end} when it was opened: another attempt has taken over"
            )
            await self._give_up(publication, recorded)
            raise ArchiveError(message)
        await publication.wait_connected(self._timeout_s)
        if self.recording_id is None:
            # Look the id up now: when another attempt extends the recording, its session changes.
            self.recording_id = await self._new_recording(publication)
        return publication

    async def _give_up(self, publication: ExclusivePublication, recorded: str) -> None:
        """Stop the recording request of this attempt, and close its publication."""
        try:
            await self._archive.stop_recording(recorded, self._stream_id)
        except ArchiveError as error:
            # The attempt that has taken over stops every other recording request, this one too.
            if error.code is not ArchiveErrorCode.UNKNOWN_SUBSCRIPTION:
                raise
        finally:
            publication.close()

    async def _new_recording(self, publication: ExclusivePublication) -> int:
        """Return the id of the new recording."""
        with anyio.move_on_after(self._timeout_s):
            async for _ in looks():
                found = await self._archive.find_last(
                    channel=f"alias={self._alias}",
                    stream_id=self._stream_id,
                    session_id=publication.session_id,
                )
                if found is not None:
                    return found
        message = (
            f"the archive has not begun to record {publication.channel} stream "
            f"{self._stream_id} within {self._timeout_s} s: does it hear the channel? Set "
            "archive.recording.channel"
        )
        raise AeronTimeoutError(message)


MOST_AT_ONCE = 16
"""Upper limit on partitions that a commit closes at the same time."""
log: Final = get_logger(__name__)


@final
class OnceWriting:
    """Writes the rows of one batch in one partition, except those already recorded.

    Args:
        aeron: Client that publishes.
        options: Options of the query.
        query: Query that writes the rows.
        batch: Batch of the query.
        partition: Partition of the batch.
        known: An earlier end of the recording; None if unknown.

    Attributes:
        row_count: Rows of the task so far, skipped or not.
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
        self.row_count: int = 0

    async def publish(self, rows: Rows) -> None:
        """Publish those rows of a batch that are not recorded yet, in order.

        Raises:
            AeronError: A row cannot be published, or not in time.
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

    async def finish(self) -> list[StreamEnd]:
        """Wait until everything is recorded, and return where the recording ends.

        Raises:
            AeronError: The rows are not recorded, or not in time.
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
        """Close publication and archive, also after a failure."""
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
            # Rows done: all if a later batch is recorded or this one is closed, else up to the last
            # row.
            is_closed = last.batch > self._batch or last.is_marker
            self._done_count = 1 << 62 if is_closed else last.index + 1
        if last is not None and last.batch > self._batch:
            # This is right for a batch that Spark repeats. Otherwise rows are missing, and only
            # this warning shows it.
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
    """Publish a marker behind the rows of every partition that is not closed yet.

    Raises:
        AeronError: A partition cannot be closed; others may be closed by then.
    """
    calls = [
        partial(close_partition, aeron, options, query, batch, end) for end in ends if end.row_count
    ]
    await together(calls, at_once=MOST_AT_ONCE)


async def close_partition(
    aeron: Aeron, options: SinkOptions, query: str, batch: int, end: TaskEnd
) -> None:
    """Publish a marker behind the rows of one partition, if it is not closed yet.

    Raises:
        ArchiveError: The recording does not end with the last row of the batch.
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
