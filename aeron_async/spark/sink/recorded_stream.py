"""Effectively-once: the recording of one partition of one query, and how attempts take turns on it.

An attempt stops whoever records there, reads the last identity, cuts off a message that is not
whole, and goes on behind that with a session of its own. So the recording has each row once and in
order, whatever was killed; what follows the last marker is the unfinished part of a batch.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, final

import anyio

from aeron_async.archive.api import SourceLocation
from aeron_async.errors import AeronTimeoutError, ArchiveError
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.spark.sink.archives import looks, wait_recorded
from aeron_async.spark.sink.identity import Identity
from aeron_async.spark.sink.messages import KnownEnd

if TYPE_CHECKING:
    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.spark.sink.options import SinkOptions

__all__ = ["RecordedStream", "alias_of"]

LARGEST_SESSION: Final = (1 << 31) - 1


def alias_of(query_id: str, partition: int) -> str:
    """Return what the channel of a recording says of whose it is."""
    return f"spark-sink.{query_id}.{partition}"


@final
class RecordedStream:
    """The recording of a partition, opened by one attempt.

    Args:
        aeron: Publishes.
        archive: Records.
        options: Of the query; with channel and stream.
        query_id: Whose rows they are.
        partition: Of the query.
        known: How far the recording was once; None where nobody knows.

    Attributes:
        last: Identity of the last message; None before the first.
        end: Behind that, in bytes.
        recording_id: Of the recording; None before the first row.
        session_id: Of this attempt; 0 while it has published nothing.
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
        self.end = 0
        self.recording_id: int | None = None
        self.session_id = 0

    async def open(self) -> None:
        """Find the recording, stop whoever is at it, and read how far it is.

        Raises:
            ArchiveError: The archive refuses.
        """
        found = None
        fragment = f"alias={self._alias}"
        async for each in self._archive.recordings(channel=fragment, stream_id=self._stream_id):
            # A part of the channel was asked for, and `.1` is one of `.12`.
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
        """Publish one message, waiting for room; the first begins the recording, or extends it.

        Raises:
            AeronError: It cannot be published, or not in time.
        """
        publication = self._publication or await self._begin()
        await publication.offer(payload, reserved_value=reserved_value, timeout=self._timeout_s)
        self._last_offered = reserved_value

    async def finish(self) -> None:
        """Wait until all that was published is recorded, and let the recording go.

        Raises:
            AeronTimeoutError: It takes too long.
            ArchiveError: Another attempt has taken over.
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
        """Return how far the recording is, for whoever opens it next; None if there is none."""
        if self.recording_id is None or self.last is None:
            return None
        return KnownEnd(
            recording_id=self.recording_id,
            started_ms=self._started_ms,
            position=self.end,
            last=self.last,
        )

    def close(self) -> None:
        """Publish no more."""
        if self._publication is not None:
            self._publication.close()

    async def _cut(self, recording_id: int) -> None:
        """Let the recording end behind the last whole message."""
        refused = None
        with anyio.move_on_after(self._timeout_s):
            async for _ in looks():
                try:
                    await self._archive.truncate(recording_id, self.end)
                except ArchiveError as error:
                    # The archive may still linger over the replay that has found the place.
                    refused = error
                else:
                    return
        message = f"recording {recording_id} could not be cut at {self.end}: {refused}"
        raise AeronTimeoutError(message) from refused

    async def _stopped(self, recording_id: int) -> RecordingDescriptor:
        """Return a recording that has been stopped, once the catalog says so."""
        with anyio.move_on_after(self._timeout_s):
            async for _ in looks():
                found = await self._archive.describe(recording_id)
                if not found.is_active:
                    return found
        message = f"recording {recording_id} did not stop within {self._timeout_s} s"
        raise AeronTimeoutError(message)

    async def _read_last(self, found: RecordingDescriptor) -> None:
        """Find the last whole message, from the last term backwards: no message spans two."""
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
        """Let the archive record a new session, and return the publication of that."""
        self.session_id = secrets.randbelow(LARGEST_SESSION) + 1
        recorded = str(self._recorded.replace(session_id=self.session_id))
        channel = self._channel.replace(session_id=self.session_id)
        if self._is_local and channel.media is Media.UDP:
            # The archive spies, and is enough of a subscriber.
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
            # Another attempt has written since `open`, and what would follow is there already.
            message = (
                f"recording {self.recording_id} ends at {publication.position}, and did at "
                f"{self.end} when it was opened: another attempt has taken over"
            )
            publication.close()
            await archive.stop_recording(recorded, stream_id)
            raise ArchiveError(message)
        await publication.wait_connected(self._timeout_s)
        if self.recording_id is None:
            # Now: once another attempt has extended it, it has another session.
            self.recording_id = await self._new_recording(publication)
        return publication

    async def _new_recording(self, publication: ExclusivePublication) -> int:
        """Return the id of the recording that has begun."""
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
