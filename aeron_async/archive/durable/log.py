"""A log: which recordings of an archive it consists of, and the connection to that archive.

The recordings of a log are those of its stream and channel; the session, which each publication has
anew, does not count. Their order is that of their start times, and of their ids if two are equal.

`LogLink` is the connection that the consumers and producers of one log share. If the archive is
lost, the first of them that notices opens it again, and the others get the same one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive.api import Archive
from aeron_async.archive.durable.records import decode_header
from aeron_async.errors import (
    AeronError,
    ArchiveBusyError,
    ArchiveError,
    ArchiveFileError,
    ChannelUriError,
    ClosedError,
    ConfigurationError,
    CursorConflictError,
    DataLossError,
    FencedError,
    ForeignLogError,
    InvalidPositionError,
    MaxPositionExceededError,
    MessageTooLongError,
)
from aeron_async.logs import get_logger
from aeron_async.protocol.channel_uri import parse_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.durable.records import RecordHeader
    from aeron_async.client.aeron import Aeron
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "LogLink",
    "LogName",
    "in_order",
    "is_final",
    "last_header",
    "settled",
]

log: Final = get_logger(__name__)


# Which recordings.

NAMING: Final = ("endpoint", "control", "interface", "alias")
MOST_RECORDINGS: Final = 100_000
"""Most recordings of one log; a log of more is refused, since each opening reads them all."""


@final
@attrs.frozen
class LogName:
    """What the recordings of one log have in common.

    Attributes:
        channel: Channel of the stream, without a session.
        stream_id: Stream within the channel.
    """

    channel: ChannelUri
    stream_id: int

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether a recording belongs to this log."""
        return self.is_named(descriptor.stripped_channel, descriptor.stream_id)

    def is_named(self, channel: str, stream_id: int) -> bool:
        """Return whether a channel and a stream id are those of this log."""
        if stream_id != self.stream_id:
            return False
        try:
            found = parse_channel(channel)
        except ChannelUriError:
            # A catalog may hold what another program has put there.
            return False
        mine, other = self.channel.parameters, found.parameters
        return found.media is self.channel.media and all(
            mine.get(each) == other.get(each) for each in NAMING
        )

    async def recordings(
        self, archive: Archive, from_recording_id: int = 0
    ) -> list[RecordingDescriptor]:
        """Return the recordings of this log from an id on, in order.

        Raises:
            ArchiveError: There are more than 100,000.
        """
        found: list[RecordingDescriptor] = []
        async for each in archive.recordings(from_recording_id, stream_id=self.stream_id):
            if self.is_of(each):
                found.append(each)
                if len(found) > MOST_RECORDINGS:
                    message = (
                        f"the log of stream {self.stream_id} has more than {MOST_RECORDINGS} "
                        "recordings: purge old ones"
                    )
                    raise ArchiveError(message)
        return in_order(found)


def in_order(recordings: Iterable[RecordingDescriptor]) -> list[RecordingDescriptor]:
    """Return recordings in the order of a log."""
    return sorted(recordings, key=lambda each: (each.start_timestamp_ms, each.recording_id))


# The end of a log.

FIRST_LOOK_BACK: Final = 1 << 16
LOOK_BACK_FACTOR: Final = 16
FRAME_MASK: Final = 31


async def last_header(archive: Archive, descriptor: RecordingDescriptor) -> RecordHeader | None:
    """Return the header of the last record of a stopped recording; None if it has no record.

    It reads the last 64 KiB, and then 16 times as much until it finds a record, but at most one
    term: the longest message, a broken one and padding together take less than half a term.

    Raises:
        ArchiveError: The last term has messages of other programs only.
    """
    start, stop = descriptor.start_position, descriptor.stop_position
    length = min(FIRST_LOOK_BACK, descriptor.term_length)
    while True:
        begin = max(start, stop - length & ~FRAME_MASK)
        found = await last_header_behind(archive, descriptor, begin)
        if found is not None or begin == start:
            return found
        if length >= descriptor.term_length:
            message = (
                f"the last {length} bytes of recording {descriptor.recording_id} have no record: "
                "another program publishes on this stream; give the log a stream of its own"
            )
            raise ArchiveError(message)
        length = min(length * LOOK_BACK_FACTOR, descriptor.term_length)


async def last_header_behind(
    archive: Archive, descriptor: RecordingDescriptor, begin: int
) -> RecordHeader | None:
    """Return the header of the last record behind a position, which may be inside a frame."""
    try:
        return await last_header_from(archive, descriptor, begin)
    except InvalidPositionError as error:
        nearest = error.nearest
    except ArchiveError:
        # An official archive has no code of its own for a position inside a frame.
        if begin == descriptor.start_position:
            raise
        nearest = None
    if nearest is None or not descriptor.start_position <= nearest < begin:
        # Each term begins with a frame.
        nearest = max(descriptor.start_position, begin - begin % descriptor.term_length)
    return await last_header_from(archive, descriptor, nearest)


async def last_header_from(
    archive: Archive, descriptor: RecordingDescriptor, begin: int
) -> RecordHeader | None:
    """Return the header of the last record behind the begin of a frame."""
    found: RecordHeader | None = None
    replay = archive.replay(descriptor.recording_id, begin, descriptor.stop_position)
    async with replay:
        async for message in replay:
            decoded = decode_header(message.data)
            if decoded is not None:
                found = decoded[0]
    return found


async def settled(archive: Archive, recording_id: int, timeout_s: float) -> RecordingDescriptor:
    """Wait until a recording that was stopped has a stop position; return its descriptor.

    Raises:
        ArchiveError: It is still active after the timeout.
    """
    delay_s = FIRST_DELAY_S
    waited_s = 0.0
    while True:
        descriptor = await archive.describe(recording_id)
        if not descriptor.is_active:
            return descriptor
        if waited_s >= timeout_s:
            message = (
                f"recording {recording_id} was stopped {timeout_s:g} s ago and has no stop "
                "position yet: look at the archive's log"
            )
            raise ArchiveError(message)
        await asyncio.sleep(delay_s)
        waited_s += delay_s
        delay_s = min(2 * delay_s, LAST_DELAY_S)


# The connection.

FIRST_DELAY_S: Final = 0.05
LAST_DELAY_S: Final = 2.0
FINAL: Final = (
    ArchiveFileError,
    ConfigurationError,
    CursorConflictError,
    DataLossError,
    FencedError,
    ForeignLogError,
    MaxPositionExceededError,
    MessageTooLongError,
)
"""Errors that another attempt does not change."""


def is_final(error: BaseException) -> bool:
    """Return whether an error stays the same, however often the archive is opened again."""
    if isinstance(error, ArchiveBusyError):
        return False
    return isinstance(error, FINAL) or not isinstance(error, AeronError | OSError)


Connect = Any
"""An open archive, or a function that returns one, to be entered with `async with`."""


@final
class LogLink:
    """The connection to the archive of one log.

    Args:
        source: An open archive, which this leaves open; or a function that opens one.
        aeron: Client whose end is the end of every attempt.
        log_id: Id of the log for an archive that has none.

    Attributes:
        opened_count: How often the archive was opened.
        why: What the link waits for, in words; empty while it is connected.
    """

    def __init__(
        self,
        source: Archive | Callable[[], AbstractAsyncContextManager[Archive]],
        aeron: Aeron,
        log_id: UUID | None,
    ) -> None:
        self._source = source
        self._aeron = aeron
        self._given_id = log_id
        self._log_id: UUID | None = None
        self._archive: Archive | None = None
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._is_closed = False
        self.opened_count: int = 0
        self.why: str = ""

    @property
    def can_reconnect(self) -> bool:
        """Return whether a lost archive can be opened again."""
        return not isinstance(self._source, Archive)

    async def get(self) -> tuple[Archive, UUID]:
        """Return the open archive and the id of its log; open it if necessary, however long.

        Raises:
            ForeignLogError: Another archive has taken its place.
            ClosedError: The link, or the client, is closed.
            AeronError: The archive cannot be opened, and another attempt would not change that.
        """
        delay_s = FIRST_DELAY_S
        while True:
            async with self._lock:
                try:
                    return await self._open()
                except Exception as error:
                    self.check_open()
                    if is_final(error) or not self.can_reconnect:
                        raise
                    self._wait_for(error)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_DELAY_S)

    def check_open(self) -> None:
        """Refuse to go on once the link or the client is closed.

        Raises:
            ClosedError: One of them is.
        """
        if self._is_closed or self._aeron.is_closed:
            what = "log" if self._is_closed else "client of the log"
            message = f"the {what} is closed"
            raise ClosedError(message)

    async def _open(self) -> tuple[Archive, UUID]:
        self.check_open()
        if self._archive is None:
            source = self._source
            try:
                archive = (
                    source
                    if isinstance(source, Archive)
                    else await self._stack.enter_async_context(source())
                )
                log_id = await self._check_log_id(archive)
            except BaseException:
                await self._drop()
                raise
            # Only now: an archive that is not the log's own must not be there for the next call.
            self._archive, self._log_id = archive, log_id
            self.opened_count += 1
            if self.why:
                log.info("log_archive_found", opened_count=self.opened_count)
            self.why = ""
        assert self._log_id is not None, "each open archive has one"
        return self._archive, self._log_id

    async def _check_log_id(self, archive: Archive) -> UUID:
        found = await archive.log_id()
        given = self._given_id
        if found is None and given is None:
            message = (
                "the archive has no log id, as official archives have none: pass "
                "log_id=uuid.UUID(...), one that you keep for this archive"
            )
            raise ConfigurationError(message)
        log_id = given if found is None else found
        expected = self._log_id if given is None else given
        assert log_id is not None, "one of them is there"
        if expected is not None and expected != log_id:
            raise ForeignLogError(expected=expected, found=log_id)
        return log_id

    def _wait_for(self, error: BaseException) -> None:
        """Say once what is wrong, not at each attempt."""
        if not self.why:
            log.warning("log_archive_lost", error=str(error), opened_count=self.opened_count)
        self.why = f"the archive cannot be reached: {error}"

    async def lose(self, archive: Archive, error: BaseException) -> None:
        """Close an archive that has failed, so that the next `get` opens it again.

        Raises:
            BaseException: The error itself, if it is final or if nothing can open the archive.
        """
        self.check_open()
        if is_final(error) or not self.can_reconnect:
            raise error
        async with self._lock:
            if self._archive is archive:
                self._wait_for(error)
                await self._drop()

    async def _drop(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        self._archive = None
        with suppress(AeronError, OSError):
            await stack.aclose()

    async def aclose(self) -> None:
        """Close the archive if this link has opened it; a second call does nothing."""
        self._is_closed = True
        async with self._lock:
            self._archive = None
            await self._stack.aclose()
