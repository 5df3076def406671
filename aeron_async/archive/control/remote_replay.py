"""A replay of a remote archive: a subscription to a stream that the archive publishes for it.

Invariant: a `RemoteReplay` ends at the requested position, or raises. It never takes a replay that
the archive breaks off for a complete one.

Source: Aeron `AeronArchive.replay`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.api import ALL_AND_FOLLOW, Replay
from aeron_async.archive.control.messages import (
    ReplayRequest,
    ReplayTokenRequest,
    StopReplayRequest,
)
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ClosedError,
    InvalidPositionError,
)
from aeron_async.protocol.address import Address
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media
from aeron_async.protocol.header import (
    FRAME_ALIGNMENT,
    HEADER,
    HEADER_LENGTH,
    DataFlags,
    FrameType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.archive.control.client import RemoteArchive
    from aeron_async.archive.control.connection import ControlConnection
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.client.image import Image, Message
    from aeron_async.client.publication import Publication
    from aeron_async.client.subscription import Subscription

__all__ = [
    "RemoteReplay",
    "ReplayPlaces",
    "end_all",
    "replays_beside",
    "resolved",
    "session_of",
    "straddles",
]


@final
@attrs.frozen
class ReplayPlaces:
    """The requested range of a replay.

    Attributes:
        recording_id: Id of the recording.
        from_position: Where to begin, in bytes; the start of the recording if None.
        to_position: Where to end, in bytes; the end of the recording if None.
    """

    recording_id: int
    from_position: int | None
    to_position: int | None

    def begin(self, descriptor: RecordingDescriptor, *, is_following: bool) -> int:
        """Return the position where the replay begins.

        Args:
            descriptor: Descriptor of the recording.
            is_following: Whether the replay follows the recording.

        Raises:
            InvalidPositionError: The begin or the end is outside the recording.
        """
        start = descriptor.start_position
        begin = start if self.from_position is None else self.from_position
        last = None if descriptor.is_active else descriptor.stop_position
        for name, position in (("from", begin), ("to", self.to_position)):
            if position is None:
                continue
            nearest = max(start, position - position % FRAME_ALIGNMENT)
            if last is not None and not is_following:
                nearest = min(nearest, last)
            if position != nearest:
                message = (
                    f"{name}_position {position} is outside of recording {self.recording_id}, "
                    f"which is from {start} to {'now' if last is None else last}, or no "
                    f"multiple of {FRAME_ALIGNMENT}: {nearest} is the nearest"
                )
                raise InvalidPositionError(message, nearest=nearest)
        if self.to_position is not None and self.to_position < begin:
            message = f"the replay would end at {self.to_position}, before it begins at {begin}"
            raise InvalidPositionError(message, nearest=begin)
        return begin

    def check_recorded(self, begin: int, recorded: int, *, is_resumed: bool) -> None:
        """Refuse to begin behind the recorded position: that would look like an empty replay.

        Args:
            begin: Where the replay is to begin, in bytes.
            recorded: Position up to which the recording is written, in bytes.
            is_resumed: Whether the replay has come to `begin` by replaying.

        Raises:
            InvalidPositionError: `begin` is behind `recorded`, perhaps because of a truncation.
        """
        if begin <= recorded:
            return
        if is_resumed:
            what = f"was truncated to {recorded} after it was replayed up to {begin}"
        else:
            what = f"is recorded up to {recorded}, and its replay would begin at {begin}"
        message = f"recording {self.recording_id} {what}"
        raise InvalidPositionError(message, nearest=recorded)


def straddles(recording_id: int, to_position: int, frame_end: int) -> InvalidPositionError:
    """Return the error of a replay that would have to end inside a frame.

    Differs: Aeron returns such a frame.
    """
    message = (
        f"position {to_position} is in the middle of a frame of recording {recording_id}, which "
        f"ends at {frame_end}"
    )
    return InvalidPositionError(message, nearest=frame_end)


def is_whole_message(block: memoryview) -> bool:
    """Return whether a block begins with a message of one frame."""
    whole = DataFlags.BEGIN_FRAGMENT | DataFlags.END_FRAGMENT
    if len(block) < HEADER_LENGTH:
        return False
    _, _, flags, frame_type = HEADER.unpack_from(block)
    return bool(frame_type == FrameType.DATA and flags & whole == whole)


LATE_ERROR_S: Final = 0.25
LOOK_AGAIN_S: Final = 0.25
"""Interval between two checks whether a stopped recording was extended."""


class RemoteReplay(Replay):
    """The messages of a recording of a remote archive; see `Archive.replay`.

    Args:
        archive: Client of the archive.
        recording_id: Id of the recording.
        from_position: Where to begin; None for the start of the recording.
        to_position: Where to end; None for the end of the recording.
        follow: Continue with what is recorded later.
        is_on_its_stream: Whether to use the stream id of the recording, not the archive client's
            stream id for replays.
    """

    def __init__(
        self,
        archive: RemoteArchive,
        recording_id: int,
        from_position: int | None,
        to_position: int | None,
        *,
        follow: bool,
        is_on_its_stream: bool = False,
    ) -> None:
        self.recording_id = recording_id
        self._archive = archive
        self._from = from_position
        self._to = to_position
        self._is_following = follow
        self._stream_id = archive.replay_stream_id
        self._is_on_its_stream = is_on_its_stream
        self._position = -1 if from_position is None else from_position
        self._image: Image | None = None
        self._subscription: Subscription | None = None
        self._requests: Publication | None = None
        self._replay_session_id: int | None = None
        self._is_over = self._has_replayed = False
        self._closed_because: ClosedError | None = None
        self._late_error: ArchiveError | None = None
        self._has_late_error = asyncio.Event()
        self._tolerance = 0

    @property
    def position(self) -> int:
        """Return the end position of the message returned last, in bytes."""
        return self._position

    @property
    def has_more(self) -> bool:
        """Return whether the next message is in memory already."""
        image = self._image
        if image is None or self._is_over:
            return False
        # The image moves behind a message only when the next one is asked for.
        begin = max(self._position, image.position)
        block, _ = image._peek_block(begin, image.mtu_length)
        return is_whole_message(block)

    async def __anext__(self) -> Message:
        """Return the next message; the iteration ends where the replay ends."""
        while not self._has_ended():
            image = self._image
            if image is None:
                await self._begin()
                if self._has_ended():
                    # Closed during `_begin`: stop what that has started.
                    await self._stop()
                continue
            try:
                message = await image.__anext__()
            except StopAsyncIteration:
                if not self._has_ended():
                    await self._end_of_image(image)
            else:
                if self._to is not None and message.position > self._to:
                    # The archive sends a frame that straddles the end whole.
                    await self.aclose()
                    raise straddles(self.recording_id, self._to, message.position)
                self._position = message.position
                return message
        self._check_whole()
        raise StopAsyncIteration

    async def next_block(self) -> tuple[memoryview, int] | None:
        """Return whole frames as recorded, except session and stream id; None at the end.

        Use either this or the iteration. A padding frame ends its block: the block holds its
        header, and the second value is the rest of its length. A block is valid until `take_block`.

        Raises:
            ArchiveError: The replay ended too early.

        Source: Aeron `Image.blockPoll`.
        """
        while not self._has_ended():
            if self._image is None:
                await self._begin()
                if self._has_ended():
                    await self._stop()
                continue
            image, subscription = self._image, self._subscription
            assert subscription is not None, "an image is one of a subscription"
            is_over = image.is_closed or image.is_end_of_stream
            block, padding = image._peek_block(image.position, image.term_length)
            if len(block):
                return block, padding
            if is_over:
                await self._end_of_image(image)
            else:
                await subscription._wait_for_progress()
        self._check_whole()
        return None

    def take_block(self, length: int) -> None:
        """Consume a part of the block that `next_block` returned.

        Args:
            length: In bytes, of whole frames, padding included.
        """
        if self._image is not None:
            self._position = self._image.position + length
            self._image._take(self._position)

    def _check_whole(self) -> None:
        """Finish; raise if the archive's client was closed before the reader ended the replay."""
        self._archive.forget_replay(self)
        if self._closed_because is not None:
            raise self._closed_because

    def _has_ended(self) -> bool:
        """Return whether the replay has ended, or was closed during an await."""
        return self._is_over

    async def _begin(self) -> None:
        """Start the next part of the replay; if it follows, wait for the recording to grow."""
        descriptor = await self._archive.describe(self.recording_id)
        places = ReplayPlaces(self.recording_id, self._from, self._to)
        begin = places.begin(descriptor, is_following=self._is_following)
        if self._is_on_its_stream:
            self._stream_id = descriptor.stream_id
        recorded = await self._archive.max_recorded_position(self.recording_id)
        places.check_recorded(begin, recorded, is_resumed=self._has_replayed)
        end = self._to
        if end is None and not (self._is_following and descriptor.is_active):
            end = recorded
        self._tolerance = descriptor.mtu_length if self._to is not None else 0
        if begin == recorded and not descriptor.is_active:
            if not self._is_following or begin == self._to:
                self._is_over = True
            else:
                await asyncio.sleep(LOOK_AGAIN_S)
            return
        if end is not None and end <= begin:
            self._is_over = True
            return
        self._end = end
        length = ALL_AND_FOLLOW if end is None else end - begin
        try:
            await self._subscribe(begin, length)
        except BaseException:
            await self._stop()
            raise

    async def _subscribe(self, begin: int, length: int) -> None:
        """Start the replay, and wait until its stream is connected."""
        archive = self._archive
        channel = ChannelUri.parse(archive.replay_channel)
        stream_id = self._stream_id
        endpoint = channel.endpoint
        if channel.control_mode is ControlMode.RESPONSE:
            self._subscription = await archive.aeron.add_subscription(channel, stream_id)
            self._replay_session_id = await self._ask_for_response(begin, length, channel)
        elif channel.media is Media.UDP and endpoint is not None and endpoint.port == 0:
            self._subscription = await archive.aeron.add_subscription(channel, stream_id)
            to = resolved(channel, self._subscription)
            self._replay_session_id = await self._ask(begin, length, to)
        else:
            # The stream is shared: only the session id, known after the answer, identifies the
            # replay.
            self._replay_session_id = await self._ask(begin, length, channel)
            mine = channel.replace(session_id=session_of(self._replay_session_id))
            self._subscription = await archive.aeron.add_subscription(mine, stream_id)
        try:
            await self._subscription.wait_connected(timeout=archive.connection.timeout)
        except AeronTimeoutError:
            if self._late_error is not None:
                raise self._late_error from None
            raise
        self._image = self._subscription.images[0]

    async def _ask(
        self,
        begin: int,
        length: int,
        channel: ChannelUri,
        *,
        token: int = -1,
        through: Publication | None = None,
    ) -> int:
        return await self._archive.connection.ask(
            ReplayRequest,
            on_late_error=self._on_late_error,
            through=through,
            recording_id=self.recording_id,
            position=begin,
            length=length,
            replay_stream_id=self._stream_id,
            replay_channel=str(channel),
            replay_token=token,
        )

    async def _ask_for_response(self, begin: int, length: int, channel: ChannelUri) -> int:
        """Request through a publication that names the subscription: the replay answers that."""
        archive = self._archive
        assert self._subscription is not None, "it is what the request names"
        token = await archive.connection.ask(ReplayTokenRequest, recording_id=self.recording_id)
        requests = ChannelUri.parse(archive.connection.publication.channel).replace(
            response_correlation_id=self._subscription.registration_id, session_id=None
        )
        self._requests = await archive.aeron.add_exclusive_publication(
            requests, archive.connection.publication.stream_id
        )
        await self._requests.wait_connected(timeout=archive.connection.timeout)
        return await self._ask(begin, length, channel, token=token, through=self._requests)

    def _on_late_error(self, error: ArchiveError) -> None:
        self._late_error = error
        self._has_late_error.set()

    async def _end_of_image(self, image: Image) -> None:
        """Check whether the replay is complete, and continue it if it follows.

        Raises:
            ArchiveError: The replay is not complete.
            ClosedError: This client closed the replay.
        """
        position = image.position
        end = image.end_of_stream_position
        if self._subscription is None or self._subscription.is_closed:
            self._is_over = True
            message = "the client was closed while it replayed"
            raise ClosedError(message)
        is_whole = end is not None and position >= end and not image.is_publication_revoked
        self._replay_session_id = None
        if not is_whole:
            await self._hear_why()
        await self._stop()
        wanted = self._end
        if is_whole and wanted is not None and position < wanted - self._tolerance:
            # The recording may have stopped before the requested end.
            is_whole = position == await self._archive.stop_position(self.recording_id)
        if not is_whole:
            self._is_over = True
            if self._late_error is not None:
                raise self._late_error
            where = "what is recorded" if wanted is None else str(wanted)
            message = (
                f"the replay of recording {self.recording_id} ended at position {position}, before "
                f"{where}: the archive has stopped it, or is gone"
            )
            raise ArchiveError(message)
        self._from, self._has_replayed = position, True
        if not self._is_following or (self._to is not None and position >= self._to):
            self._is_over = True

    async def _hear_why(self) -> None:
        """Wait for the archive's error: the stream may end before the error arrives."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE_ERROR_S):
                await self._has_late_error.wait()

    async def _stop(self) -> None:
        """Close everything, and stop the replay at the archive if it is still active."""
        session_id = self._let_go()
        if session_id is not None:
            with suppress(AeronError):
                await self._archive.stop_replay(session_id)

    def _let_go(self) -> int | None:
        """Close everything on this side; return the replay still to be stopped at the archive."""
        with suppress(ClosedError):
            self._archive.connection.forget(self._on_late_error)
        self._image = None
        session_id, self._replay_session_id = self._replay_session_id, None
        subscription, self._subscription = self._subscription, None
        requests, self._requests = self._requests, None
        for each in (subscription, requests):
            if each is not None:
                each.close()
        return session_id

    def end(self, because: ClosedError) -> int | None:
        """End because the archive's client was closed; return the id as `_let_go` does."""
        if not self._is_over:
            self._closed_because = because
        self._is_over = True
        return self._let_go()

    async def aclose(self) -> None:
        """Stop reading; a second call does nothing."""
        self._is_over = True
        try:
            await self._stop()
        finally:
            self._archive.forget_replay(self)


async def end_all(replays: Iterable[RemoteReplay], connection: ControlConnection | None) -> None:
    """End the replays of a client that is being closed, and stop them at the archive."""
    because = ClosedError("the client of the archive was closed while it replayed")
    # All before the first await: a cancelled caller leaves nothing open.
    ended = [each.end(because) for each in replays]

    async def tell(replay_session_id: int) -> None:
        if connection is not None:
            with suppress(AeronError):
                await connection.ask(StopReplayRequest, replay_session_id=replay_session_id)

    await asyncio.gather(*(tell(each) for each in ended if each is not None))


def resolved(channel: ChannelUri, subscription: Subscription) -> ChannelUri:
    """Return a channel with the port that the system chose for its subscription."""
    endpoint = channel.endpoint
    if endpoint is None or endpoint.port != 0:
        return channel
    port = Address.parse(subscription.local_address).port
    return channel.replace(endpoint=Address.of(endpoint.host, port))


def session_of(replay_session_id: int) -> int:
    """Return the session id of a replay's publication: the low half of the replay id, signed."""
    return (replay_session_id + (1 << 31)) % (1 << 32) - (1 << 31)


def replays_beside(response: ChannelUri) -> ChannelUri:
    """Return the default replay channel for a response channel."""
    endpoint = response.endpoint
    if endpoint is None or response.control_mode is ControlMode.RESPONSE:
        return response
    port_chosen = type(endpoint).of(endpoint.host, 0)
    return response.replace(endpoint=port_chosen, session_id=None, term_length=None)
