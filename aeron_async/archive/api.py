"""The interface of an archive, local or remote, and the values in its answers.

Two classes implement `Archive`. `LocalArchive` runs in this event loop, over a directory of its
own. `RemoteArchive` sends requests to another archive, ours or the official one, over its control
channel.

Source: Aeron `AeronArchive`, `RecordingSignal`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, Self, final

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from uuid import UUID

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import Message
    from aeron_async.errors import ArchiveError

__all__ = [
    "ALL_AND_FOLLOW",
    "ALL_AND_STOP",
    "Archive",
    "RecordingSignal",
    "RecordingSignalEvent",
    "RecordingSubscription",
    "Replay",
    "SignalReader",
    "SourceLocation",
]

ALL_AND_FOLLOW: Final = -1
"""Replay length: replay everything, then follow the recording while it grows."""
ALL_AND_STOP: Final = -2
"""Replay length: replay everything that was recorded when the replay starts, then end."""

FIRST_LOOK_S: Final = 0.0005
LAST_LOOK_S: Final = 0.02
"""First and longest interval between two questions to an archive elsewhere what is recorded."""


@final
class SourceLocation(IntEnum):
    """Where the publisher of a recorded stream is."""

    LOCAL = 0
    """The publication belongs to this driver; over UDP the archive records it through a spy."""
    REMOTE = 1
    """The archive subscribes to the channel and records every publisher that sends to it."""


@final
class RecordingSignal(IntEnum):
    """The change of state that a recording went through."""

    START = 0
    STOP = 1
    EXTEND = 2
    REPLICATE = 3
    MERGE = 4
    SYNC = 5
    DELETE = 6
    REPLICATE_END = 7


@attrs.frozen(kw_only=True)
class RecordingSignalEvent:
    """A change of state of a recording.

    Attributes:
        recording_id: Id of the recording.
        subscription_id: Id of the subscription that records; -1 if there is none.
        position: Position of the change, in bytes; -1 if the signal has no position.
        signal: What happened.
        correlation_id: Id of the request that caused it; -1 if it was not a request of this client.
    """

    recording_id: int
    subscription_id: int
    position: int
    signal: RecordingSignal
    correlation_id: int = -1


@attrs.frozen
class RecordingSubscription:
    """A subscription that records.

    Attributes:
        subscription_id: Id that the request to record returned.
        stream_id: Stream within the channel.
        channel: Channel, reduced to the parameters that tell streams apart.
    """

    subscription_id: int
    stream_id: int
    channel: str


class Replay(ABC):
    """Iterator over the messages of a recording, in order; close it if you leave it early.

    Attributes:
        recording_id: Id of the recording.
    """

    recording_id: int

    @property
    @abstractmethod
    def position(self) -> int:
        """Return the end position of the message returned last, in bytes."""

    @property
    @abstractmethod
    def has_more(self) -> bool:
        """Return whether the next message is in memory already."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Message:
        """Return the next message; the iteration ends where the replay ends.

        Raises:
            ArchiveFileError: A file is damaged; all messages before the damage were returned.
            ArchiveError: The replay ended too early.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Stop reading; a second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class SignalReader(ABC):
    """Iterator over the signals of recordings; close it if you leave it early.

    It collects signals from the moment that `Archive.signals` returns it, even while no task waits
    for the next one. So a caller can make a request first and read the signal of that request
    later.
    """

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> RecordingSignalEvent:
        """Return the next event; the iteration ends when the archive or this reader is closed.

        Raises:
            ArchiveError: The archive is gone, or events were lost because they were read too
                slowly.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Stop collecting and end the waiting task's iteration; a second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class Archive(ABC):
    """An archive that records and replays streams; see `LocalArchive` and `RemoteArchive`.

    Every call may raise `ArchiveError` with the reason that the archive gives, `ClosedError` after
    the archive was closed, and `AeronTimeoutError` if a remote archive does not answer.
    """

    # Recording.

    @abstractmethod
    async def start_recording(
        self,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Record a stream from now on: every source of it, one after the other or at once.

        Args:
            channel: Channel, as for a subscription.
            stream_id: Stream within the channel.
            source_location: Whether the publication belongs to the archive's own driver.
            auto_stop: Stop when the first source has ended.
            on_failed: Called with the error if a source is not recorded, or not to its end. Without
                it the error only reaches the log and the caller that stops the recording.

        Returns:
            The id of the subscription that records.

        Raises:
            ArchiveError: The stream is recorded already.
        """

    @abstractmethod
    async def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Extend a stopped recording; its publication must begin at the recording's stop position.

        `extending_publication` makes such a publication.

        Returns:
            The id of the subscription that records.

        Raises:
            ArchiveError: The recording is active, or belongs to another stream.
            UnknownRecordingError: No recording has that id.
        """

    @abstractmethod
    async def extending_publication(
        self, recording_id: int, channel: str, stream_id: int
    ) -> ExclusivePublication:
        """Return a publication that begins where a recording has stopped, to extend the recording.

        Raises:
            ArchiveError: The recording has not stopped.
            UnknownRecordingError: No recording has that id.
        """

    @abstractmethod
    async def stop_recording(self, channel: str, stream_id: int) -> None:
        """Stop recording a stream.

        Raises:
            ArchiveError: The stream was not being recorded.
        """

    @abstractmethod
    async def stop_recording_subscription(self, subscription_id: int) -> None:
        """Stop a recording subscription; see `start_recording`.

        Raises:
            ArchiveError: No recording subscription has that id.
        """

    @abstractmethod
    async def stop_recording_by_identity(self, recording_id: int) -> bool:
        """Stop one recording, and return whether it was active."""

    @abstractmethod
    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return the recording subscriptions that have not ended, oldest first.

        A subscription may have started no recording yet, or record several sources at once. Any
        client may stop it.
        """

    # Replaying.

    @abstractmethod
    def replay(
        self,
        recording_id: int,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        follow: bool = False,
    ) -> Replay:
        """Return an iterator over the messages of a recording; it ends or raises, but never stalls.

        Args:
            recording_id: Id of the recording.
            from_position: Where to begin, in bytes; the start of the recording if not given. A
                position between two fragments of a message begins with the next message.
            to_position: Where to end, in bytes; the end of the recording if not given.
            follow: Continue with what is recorded later, and with what a later extension adds.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: A position is outside the recording, or inside a frame; the error
                gives the nearest valid position.
        """

    @abstractmethod
    async def start_replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int = -1,
        length: int = ALL_AND_FOLLOW,
        limit_counter_id: int | None = None,
    ) -> int:
        """Publish a recording on a channel and return the id of the replay.

        The low half of the id is the session id of its publication.

        Args:
            recording_id: Id of the recording.
            channel: Channel to publish on.
            stream_id: Stream within the channel.
            position: Where to begin, in bytes; -1 is the start of the recording.
            length: In bytes; or `ALL_AND_FOLLOW`, or `ALL_AND_STOP`.
            limit_counter_id: Counter whose value the replay position does not pass.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: The position is outside the recording, or inside a frame.
        """

    @abstractmethod
    async def stop_replay(self, replay_session_id: int) -> None:
        """Stop a replay; a replay that has ended is ignored."""

    @abstractmethod
    async def stop_all_replays(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""

    # Listing.

    @abstractmethod
    def recordings(
        self,
        from_recording_id: int = 0,
        *,
        channel: str = "",
        stream_id: int | None = None,
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over recordings, in the order of their ids.

        Args:
            from_recording_id: The first id.
            channel: Part of the original channel; empty matches every channel.
            stream_id: Stream id; None matches every stream.
        """

    @abstractmethod
    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording.

        Raises:
            UnknownRecordingError: No recording has that id.
        """

    @abstractmethod
    async def find_last(
        self, *, channel: str, stream_id: int, session_id: int, min_recording_id: int = 0
    ) -> int | None:
        """Return the id of the last recording that matches, or None."""

    @abstractmethod
    async def start_position(self, recording_id: int) -> int:
        """Return the position where a recording begins, in bytes."""

    @abstractmethod
    async def stop_position(self, recording_id: int) -> int | None:
        """Return the position where a recording has stopped, in bytes; None while it is active."""

    @abstractmethod
    async def recording_position(self, recording_id: int) -> int | None:
        """Return the recorded position of an active recording, in bytes; None if it has stopped."""

    @abstractmethod
    async def max_recorded_position(self, recording_id: int) -> int:
        """Return the position up to which a recording can be replayed, in bytes, active or not."""

    async def wait_recorded(self, recording_id: int, position: int) -> int:
        """Wait until a recording has come to a position, or has stopped; return where it is then.

        Args:
            recording_id: Id of the recording.
            position: In bytes.

        Raises:
            UnknownRecordingError: No recording has that id.
        """
        delay_s = FIRST_LOOK_S
        while True:
            recorded = await self.recording_position(recording_id)
            if recorded is None:
                return await self.max_recorded_position(recording_id)
            if recorded >= position:
                return recorded
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_LOOK_S)

    async def wait_recorded_descriptor(
        self, recording_id: int, position: int
    ) -> tuple[int, RecordingDescriptor]:
        """Wait as `wait_recorded` does; return where it is, and the recording as it is then.

        The descriptor may be newer than the position, and is never older.
        """
        recorded = await self.wait_recorded(recording_id, position)
        return recorded, await self.describe(recording_id)

    async def log_id(self) -> UUID | None:
        """Return the id that tells this archive's log from all others; None if it has none.

        An official archive has none.
        """
        return None

    # Freeing disk space.

    @abstractmethod
    async def truncate(self, recording_id: int, position: int) -> int:
        """Discard everything recorded after a position; return how many files were removed.

        Raises:
            ArchiveError: The recording is active, or a replay reads beyond the position.
            InvalidPositionError: The position is outside the recording, or inside a frame.
        """

    @abstractmethod
    async def purge_segments(self, recording_id: int, new_start_position: int) -> int:
        """Delete the segment files before a position; return how many.

        Raises:
            InvalidPositionError: No segment begins there, or a replay reads before the position.
        """

    @abstractmethod
    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Move the start of a recording forward, and keep the segment files before it on disk.

        Raises:
            InvalidPositionError: See `purge_segments`.
        """

    @abstractmethod
    async def attach_segments(self, recording_id: int) -> int:
        """Move the start of a recording back over the detached files before it; return how many."""

    @abstractmethod
    async def delete_detached_segments(self, recording_id: int) -> int:
        """Delete the detached segment files before the start of a recording; return how many."""

    @abstractmethod
    async def purge_recording(self, recording_id: int) -> int:
        """Delete a recording and its files; return how many. Its id is never used again.

        Raises:
            ArchiveError: The recording is active, or a replay reads it.
        """

    # Signals.

    @abstractmethod
    def signals(self) -> SignalReader:
        """Return an iterator over the signals of all recordings, from now on."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop this caller's recordings and replays, and close; a second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
