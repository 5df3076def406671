"""The interface of an archive, local or remote, and the values in its answers.

`Archive` is implemented by `LocalArchive`, which runs in this event loop over a directory of its
own, and by `RemoteArchive`, which asks another archive, ours or the official one, over its control
channel.

Source: Aeron `AeronArchive`, `RecordingSignal`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Self, final

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

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
"""Length of a replay of everything, and of what is still recorded."""
ALL_AND_STOP: Final = -2
"""Length of a replay of everything that is there when it begins."""


@final
class SourceLocation(IntEnum):
    """Where a stream to be recorded comes from."""

    LOCAL = 0
    """A publication of this driver: over UDP it is spied upon, and not sent twice."""
    REMOTE = 1
    """Whoever sends to the channel."""


@final
class RecordingSignal(IntEnum):
    """What has become of a recording."""

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
    """Something has become of a recording.

    Attributes:
        recording_id: Of the recording.
        subscription_id: That records it; -1 where there is none.
        position: Where it happened, in bytes; -1 where that means nothing.
        signal: What happened.
        correlation_id: Of the request that led to it; -1 where that was none of this client.
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
        subscription_id: As the request to record was answered with.
        stream_id: Of the stream.
        channel: With only what tells streams apart.
    """

    subscription_id: int
    stream_id: int
    channel: str


class Replay(ABC):
    """The messages of a recording, one after the other: an iterator, to be closed when left early.

    Attributes:
        recording_id: Of the recording.
    """

    recording_id: int

    @property
    @abstractmethod
    def position(self) -> int:
        """Return where the message ends that was handed out last, in bytes."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Message:
        """Return the next message; the iteration ends where the replay does.

        Raises:
            ArchiveFileError: A file is damaged; all before it was handed out.
            ArchiveError: The replay ended before it should have.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Read no more; closing twice is closing once."""

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
    """What becomes of recordings, from when it was made: an iterator, to be closed when left early.

    It hears from the moment that `Archive.signals` returns it, whether somebody waits or not: no
    task needs to wait for the first one before the request that leads to it.
    """

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> RecordingSignalEvent:
        """Return the next event; the iteration ends when the archive or this is closed.

        Raises:
            ArchiveError: The archive is gone; or so many were not read that some were lost.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Hear of nothing more, which ends who waits; closing twice is closing once."""

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
    """Records streams, and replays them; see `LocalArchive` and `RemoteArchive`.

    Every call may raise `ArchiveError` with the reason that the archive gives, `ClosedError` once
    it is closed, and `AeronTimeoutError` where one that is elsewhere does not answer.
    """

    # Recording.

    @abstractmethod
    async def start_recording(
        self,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Record a stream from now on: each source of it, one after the other or at once.

        Args:
            channel: As for a subscription.
            stream_id: Within the channel.
            source_location: Whether its publication is of this driver.
            auto_stop: Stop when the first source has ended.
            on_failed: Called with why, where a source is not recorded, or not to its end; without
                it, that is in the log only, and told to whoever stops the recording.

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
        source_location: SourceLocation = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Go on with a recording that has stopped; its publication must begin where that ended.

        `extending_publication` makes such a publication.

        Returns:
            The id of the subscription that records.

        Raises:
            ArchiveError: It is being recorded, or the stream is another.
            UnknownRecordingError: No recording has that id.
        """

    @abstractmethod
    async def extending_publication(
        self, recording_id: int, channel: str, stream_id: int
    ) -> ExclusivePublication:
        """Return a publication that begins where a recording has stopped, to extend it with.

        Raises:
            ArchiveError: It has not stopped.
            UnknownRecordingError: No recording has that id.
        """

    @abstractmethod
    async def stop_recording(self, channel: str, stream_id: int) -> None:
        """Record a stream no more.

        Raises:
            ArchiveError: It was not recorded.
        """

    @abstractmethod
    async def stop_recording_subscription(self, subscription_id: int) -> None:
        """Record no more with a subscription; see `start_recording`.

        Raises:
            ArchiveError: There is none with that id.
        """

    @abstractmethod
    async def stop_recording_by_identity(self, recording_id: int) -> bool:
        """Stop one recording, and return whether it was going on."""

    @abstractmethod
    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return what was asked to be recorded and has not ended, oldest first.

        One may have begun nothing yet, or record several sources at once; any client may stop it.
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
        """Return an iterator over the messages of a recording; it ends, or raises, never stalls.

        Args:
            recording_id: Of the recording.
            from_position: Where to begin, in bytes; its start when not given. A place between two
                fragments begins with the next message.
            to_position: Where to end; where it ends when not given.
            follow: Go on with what is still recorded, and with what a later extension adds.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: A position is outside, or in the middle of a frame; the nearest
                that is not is named.
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
        """Publish a recording anew, for whoever subscribes; return the id of the replay.

        The low half of the id is the session of its publication.

        Args:
            recording_id: Of the recording.
            channel: Where to publish.
            stream_id: Within the channel.
            position: Where to begin, in bytes; -1 is where the recording does.
            length: In bytes; or `ALL_AND_FOLLOW`, or `ALL_AND_STOP`.
            limit_counter_id: A counter whose value the replay does not pass.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: The position is outside, or in the middle of a frame.
        """

    @abstractmethod
    async def stop_replay(self, replay_session_id: int) -> None:
        """Stop a replay; one that has ended is none any more."""

    @abstractmethod
    async def stop_all_replays(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""

    # What is there.

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
            channel: A part of the original channel; any when empty.
            stream_id: Of the stream; any when not given.
        """

    @abstractmethod
    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording.

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
        """Return where a recording begins, in bytes."""

    @abstractmethod
    async def stop_position(self, recording_id: int) -> int | None:
        """Return where a recording has stopped, in bytes; None while it goes on."""

    @abstractmethod
    async def recording_position(self, recording_id: int) -> int | None:
        """Return up to where a recording has been written, in bytes; None when it has stopped."""

    @abstractmethod
    async def max_recorded_position(self, recording_id: int) -> int:
        """Return up to where a recording can be replayed, in bytes, whether it goes on or not."""

    # Making room.

    @abstractmethod
    async def truncate(self, recording_id: int, position: int) -> int:
        """Forget what was recorded from a position on; return how many files that removes.

        Raises:
            ArchiveError: It is being recorded, or replayed beyond the position.
            InvalidPositionError: The position is outside, or in the middle of a frame.
        """

    @abstractmethod
    async def purge_segments(self, recording_id: int, new_start_position: int) -> int:
        """Forget whole files before a position; return how many.

        Raises:
            InvalidPositionError: No file begins there, or something replays what lies before it.
        """

    @abstractmethod
    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Let a recording begin later, and leave the files before that where they are.

        Raises:
            InvalidPositionError: As `purge_segments`.
        """

    @abstractmethod
    async def attach_segments(self, recording_id: int) -> int:
        """Let a recording begin as early as there are files that it follows; return how many."""

    @abstractmethod
    async def delete_detached_segments(self, recording_id: int) -> int:
        """Remove the files before the start of a recording; return how many."""

    @abstractmethod
    async def purge_recording(self, recording_id: int) -> int:
        """Forget a recording and remove its files; return how many. Its id is never used again.

        Raises:
            ArchiveError: It is being recorded or replayed.
        """

    # What happens.

    @abstractmethod
    def signals(self) -> SignalReader:
        """Return an iterator over what becomes of recordings, from now on."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop what it does for this caller, and close; closing twice is closing once."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
