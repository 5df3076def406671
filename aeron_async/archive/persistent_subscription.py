"""A subscription that reads a recording first, and then joins its live stream.

`PersistentSubscription` replays from the position that the caller gives, and joins the live stream
(`LiveStream`) when the replay has come near the end of the recording. It reads both until they
meet: it takes the first message of the live stream from the recording, and every later one from the
live stream. If the live stream is lost, because this reader was too slow or the source left, it
replays again from the last message.

Invariant: every message comes once and in order, even if the replay or the live stream fails. The
exception is a `RecordingGap`: if the recording has stopped and its stream has continued, the
messages in between are lost. A gap ends the iteration with an error, or it is reported and the live
stream follows behind it.

Differs: Aeron waits for the recording to be extended.

Source: Aeron `PersistentSubscription`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Literal, Self, final, get_args

import attrs

from aeron_async.archive.arguments import check_archive_and_aeron
from aeron_async.client.arguments import check_stream_id, check_whole
from aeron_async.client.waiters import watched_wait
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronError, ClosedError, ConfigurationError, RecordingGapError
from aeron_async.logs import get_logger
from aeron_async.protocol.channel_uri import parse_channel
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.archive.api import Archive, Replay
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image, Message
    from aeron_async.client.subscription import Subscription
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "LiveStream",
    "OnGap",
    "PersistentSubscription",
    "RecordingGap",
    "check_on_gap",
    "end_behind",
    "subscribe",
]


# The live stream.


@final
class LiveStream:
    """The live stream of a recording, joined in the background up to its first message.

    Attributes:
        session_id: Session of the publisher; an extended recording has a new one.
        join_position: Position where the stream was joined, in bytes; None until then.
        first: First message; None until it has arrived.
        is_lost: Whether the stream ended before its first message.
    """

    def __init__(self, aeron: Aeron, channel: ChannelUri, stream_id: int, session_id: int) -> None:
        self._aeron = aeron
        self.session_id = session_id
        self._channel = channel.replace(session_id=session_id)
        self._stream_id = stream_id
        self._subscription: Subscription | None = None
        self._image: Image | None = None
        self.join_position: int | None = None
        self.first: Message | None = None
        self._is_first_taken = False
        self.is_lost: bool = False
        # `check` raises the task's error. If the client closes first, nothing raises it: the owner
        # has looked at it, so asyncio does not log it.
        self._tasks = TaskOwner(on_failed=lambda _: None)
        self._task = self._tasks.start(self._join(), "aeron-persistent-subscription")

    async def _join(self) -> None:
        subscription = self._subscription = await self._aeron.add_subscription(
            self._channel, self._stream_id
        )
        await watched_wait(
            subscription,
            subscription._progress,
            lambda: subscription.is_connected,
            "subscribe",
            None,
        )
        self._image = subscription.images[0]
        self.join_position = self._image.join_position
        try:
            self.first = await anext(self._image)
        except StopAsyncIteration:
            self.is_lost = True

    def check(self) -> None:
        """Raise the error of joining, if there was one.

        Raises:
            AeronError: The live stream cannot be subscribed to.
        """
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def following(self) -> Message | None:
        """Return the next message, beginning with `first`; None if the stream is lost or over."""
        if self._image is None:
            return None
        if not self._is_first_taken:
            # `wait` does not cancel the task: a cancelled caller leaves the message for the next
            # call.
            await asyncio.wait((self._task,))
            self._is_first_taken = True
            self.check()
            return self.first
        try:
            return await anext(self._image)
        except StopAsyncIteration:
            return None

    async def aclose(self) -> None:
        """Leave the live stream."""
        try:
            await self._tasks.aclose()
        finally:
            if self._subscription is not None:
                self._subscription.close()


OnGap = Literal["raise", "report"]
"""What to do at a gap: raise an error, or report it and continue."""


# Gaps.


@final
@attrs.frozen
class RecordingGap:
    """A part of a stream that was neither recorded nor received.

    Attributes:
        recording_id: Id of the recording.
        start_position: Where the recorded or received part ends, in bytes.
        end_position: Where the live stream continues, in bytes.
    """

    recording_id: int
    start_position: int
    end_position: int


def check_on_gap(on_gap: object) -> None:
    """Check the argument `on_gap`.

    Raises:
        ConfigurationError: The value is not one of `OnGap`.
    """
    if on_gap not in get_args(OnGap):
        message = f'on_gap is {on_gap!r}, and must be "raise" or "report"'
        raise ConfigurationError(message)


async def end_behind(
    archive: Archive, recording_id: int, live: LiveStream | None, position: int | None
) -> int | None:
    """Return the stop position of a recording if it has no message after a position, else None.

    None also if the live stream is not joined: then there is nothing to switch to.

    Args:
        archive: Archive that holds the recording.
        recording_id: Id of the recording.
        live: Live stream of the recording.
        position: Position up to which it was replayed, in bytes; None if not at all.
    """
    if live is None or live.join_position is None:
        return None
    descriptor = await archive.describe(recording_id)
    if descriptor.is_active or descriptor.session_id != live.session_id:
        return None
    stop = descriptor.stop_position
    begin = descriptor.start_position if position is None else position
    if begin < stop:
        # The rest may be padding, or messages that a slow disk has not delivered: read it to find
        # out.
        rest = archive.replay(recording_id, begin, stop)
        try:
            async for _ in rest:
                return None
        finally:
            await rest.aclose()
    return stop


# The subscription.

READ: Final = ("describe", "recording_position", "replay")
"""Methods that the archive must have."""
LOOK_INTERVAL_NS: Final = 50_000_000
"""Interval between two checks of the recorded position during a replay."""
IDLE_LOOK_INTERVAL_NS: Final = 250_000_000
"""Interval between two checks whether the recording has stopped, with nothing to replay."""
MOST_GAPS: Final = 64
"""How many gaps `gaps` keeps; the oldest are dropped."""
NEAR_SHIFT: Final = 2
"""The live stream is joined when less than a quarter of a term is still to be replayed."""


log: Final = get_logger(__name__)


@final
class PersistentSubscription:
    """Messages of a recording and of its live stream, each once; made by `subscribe`.

    Args:
        archive: Archive that holds the recording.
        aeron: Client that subscribes to the live stream.
        recording_id: Id of the recording; while it is extended, the live stream is that of the
            extending session.
        live_channel: Channel of the live stream. It is read untethered unless the channel says
            otherwise: a reader that is too slow loses the live stream and replays, and does not
            block the publisher.
        live_stream_id: Stream within that channel.
        from_position: Where to begin, in bytes; the start of the recording if not given.
        on_gap: What to do if the recording has stopped and its stream has continued: "raise" ends
            the iteration with `RecordingGapError`; "report" logs the gap, appends it to `gaps`, and
            continues with the live stream.

    Attributes:
        recording_id: Id of the recording.
        position: End position of the message returned last, in bytes.
        join_count: How often the live stream was joined.
        fallback_count: How often it was lost again.
        gaps: The last 64 reported gaps.

    Raises:
        ChannelUriError: The live channel is not valid.
        ConfigurationError: The live channel names a session, which comes from the recording; or
            another argument is not valid.
    """

    join_count: int
    fallback_count: int

    def __init__(
        self,
        archive: Archive,
        aeron: Aeron,
        recording_id: int,
        live_channel: str,
        live_stream_id: int,
        *,
        from_position: int | None = None,
        on_gap: OnGap = "raise",
    ) -> None:
        check_archive_and_aeron("subscribe", archive, aeron, needs=READ)
        check_on_gap(on_gap)
        self.recording_id: int = check_whole(recording_id, "recording_id")
        self._stream_id = check_stream_id(live_stream_id)
        # -1 is the `position` of a subscription that has not returned a message yet.
        from_position = None if from_position == -1 else from_position
        if from_position is not None:
            from_position = check_whole(from_position, "from_position")
        uri = parse_channel(live_channel)
        if uri.session_id is not None:
            message = f"{live_channel} names a session: leave it out, the recording has it"
            raise ConfigurationError(message)
        self._channel = uri.replace(tether=False) if uri.is_tether is None else uri
        self._channel.check_subscription(self._stream_id)
        self._archive = archive
        self._aeron = aeron
        self.position: int = -1 if from_position is None else from_position
        self.join_count = self.fallback_count = 0
        self._from_position = from_position
        self._replay: Replay | None = None
        self._live: LiveStream | None = None
        self._finished: Replay | None = None
        self.gaps: deque[RecordingGap] = deque(maxlen=MOST_GAPS)
        self._on_gap = on_gap
        self._watching = TaskOwner()
        self._is_looking = False
        self._end_position: int | None = None
        self._failure: AeronError | None = None
        self._next_look_ns = 0
        self._is_closed = False

    @property
    def is_live(self) -> bool:
        """Return whether messages come from the live stream now."""
        return self._live is not None and self._replay is None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it; the iteration ends when the subscription closes.

        Raises:
            RecordingGapError: The recording has stopped, and its stream has continued.
            ArchiveError: The recording cannot be replayed.
            ConfigurationError: Recording and live stream have different stream ids.
            AeronError: The live stream cannot be subscribed to.
        """
        while not self._is_closed:
            live, finished = self._live, self._finished
            if finished is not None:
                await finished.aclose()
                # Not before: if this task is cancelled while it waits, another call closes it.
                self._finished = None
            if live is not None and self._replay is None:
                message = await live.following()
                if message is None:
                    await self._fall_back()
                    continue
                if message.position <= self.position:
                    continue
            else:
                message = await self._replayed()
                if message is None:
                    continue
            self.position = message.position
            return message
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading; a second call does nothing."""
        self._is_closed = True
        # The stack closes all of them, also if the caller is cancelled while one of them closes.
        async with AsyncExitStack() as stack:
            for each in (self._live, self._finished, self._replay):
                if each is not None:
                    stack.push_async_callback(each.aclose)
            self._live = self._finished = self._replay = None
            stack.push_async_callback(self._watching.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _replayed(self) -> Message | None:
        """Return the next message of the recording; switch to the live stream when they meet."""
        if self._replay is None:
            if self.fallback_count and not await self._is_recorded():
                return None
            self._replay = self._archive.replay(self.recording_id, self._from_position, follow=True)
            self._next_look_ns = 0
            self._watching.start(self._watch(self._replay), "aeron-persistent-subscription-watch")
        now_ns = self._aeron.clock.now_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_INTERVAL_NS
            await self._look()
            if self._has_closed():
                return None
        try:
            message = await anext(self._replay)
        except StopAsyncIteration:
            # A replay that follows ends only if it was closed during the await.
            message = None
        if self._has_closed():
            return None
        if message is None:
            await self._on_replay_ended()
            return None
        self._from_position = message.position
        self._go_over(message.position)
        return message

    async def _on_replay_ended(self) -> None:
        """Continue after the end of a replay, or raise why it ended.

        Raises:
            AeronError: The watch task failed.
            RecordingGapError: See `_cross`.
            ClosedError: Another task closed the replay.
        """
        if self._failure is not None:
            raise self._failure
        end_position, self._end_position = self._end_position, None
        if end_position is None:
            error = f"the replay of recording {self.recording_id} ended at {self.position}"
            raise ClosedError(error)
        self._replay = None
        if self._live is not None:
            await self._cross(end_position, self._live)

    def _has_closed(self) -> bool:
        """Return whether the subscription was closed during an await."""
        return self._is_closed

    async def _look(self) -> None:
        """Join the live stream if little is left to replay."""
        live = self._live
        if live is not None:
            live.check()
            if live.first is not None:
                return
        if self._is_looking:
            return
        self._is_looking = True
        try:
            await self._try_join()
        finally:
            self._is_looking = False

    async def _try_join(self) -> None:
        live = self._live
        descriptor = await self._archive.describe(self.recording_id)
        if descriptor.stream_id != self._stream_id:
            message = (
                f"recording {self.recording_id} is of stream {descriptor.stream_id}, but the live "
                f"stream is {self._stream_id}: give the stream that was recorded"
            )
            raise ConfigurationError(message)
        if live is not None:
            if not live.is_lost and live.session_id == descriptor.session_id:
                return
            await self._leave()
        recorded: int | None = descriptor.stop_position
        if descriptor.is_active:
            recorded = await self._archive.recording_position(self.recording_id)
        if self._is_closed:
            return
        at = self._from_position
        at = descriptor.start_position if at is None else at
        if recorded is None or recorded - at > descriptor.term_length >> NEAR_SHIFT:
            return
        self._live = LiveStream(self._aeron, self._channel, self._stream_id, descriptor.session_id)

    def _go_over(self, position: int) -> None:
        """Switch to the live stream once its first message was replayed."""
        live, replay = self._live, self._replay
        if live is None or live.first is None or replay is None or position < live.first.position:
            return
        # The next call closes the replay: awaiting that here could lose the message to a
        # cancellation.
        self._replay, self._finished = None, replay
        self.join_count += 1
        self._watching.cancel()

    # Recordings that have stopped.

    async def _watch(self, replay: Replay) -> None:
        """End a replay at the end of a recording that has stopped while its stream continues."""
        position = None
        try:
            while True:
                await asyncio.sleep(IDLE_LOOK_INTERVAL_NS / NS_PER_SECOND)
                if self._replay is not replay:
                    return
                if self._from_position == position:
                    await self._look()
                    end = await end_behind(self._archive, self.recording_id, self._live, position)
                    if end is not None and self._from_position == position:
                        self._end_position = end
                        break
                position = self._from_position
        except AeronError as error:
            self._failure = error
        await replay.aclose()

    async def _cross(self, end_position: int, live: LiveStream) -> None:
        """Switch to the live stream at the end of the recording.

        Raises:
            RecordingGapError: The live stream was joined later, and `on_gap` is "raise"; the
                subscription is then closed.
        """
        join_position = live.join_position
        if join_position is not None and join_position > end_position:
            gap = RecordingGap(self.recording_id, end_position, join_position)
            if self._on_gap == "raise":
                await self.aclose()
                raise RecordingGapError(
                    recording_id=gap.recording_id,
                    recorded_position=gap.start_position,
                    live_position=gap.end_position,
                )
            self.gaps.append(gap)
            log.warning("recording_gap", **attrs.asdict(gap))
        self.join_count += 1

    async def _is_recorded(self) -> bool:
        """Return whether the recording holds what follows the last message.

        If it stopped before that, join the live stream again and report or raise the gap.
        """
        live: LiveStream | None = None
        try:
            while not self._has_closed():
                descriptor = await self._archive.describe(self.recording_id)
                if descriptor.is_active or self.position <= descriptor.stop_position:
                    return True
                if live is None:
                    live = LiveStream(
                        self._aeron, self._channel, self._stream_id, descriptor.session_id
                    )
                live.check()
                if live.join_position is not None:
                    self._live, joined = live, live
                    live = None
                    await self._cross(self.position, joined)
                    break
                await asyncio.sleep(IDLE_LOOK_INTERVAL_NS / NS_PER_SECOND)
        finally:
            if live is not None:
                await live.aclose()
        return False

    async def _fall_back(self) -> None:
        """Replay again from the last message."""
        self.fallback_count += 1
        self._from_position = self.position
        await self._leave()

    async def _leave(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.aclose()


def subscribe(
    archive: Archive,
    aeron: Aeron,
    recording_id: int,
    live_channel: str,
    live_stream_id: int,
    *,
    from_position: int | None = None,
    on_gap: OnGap = "raise",
) -> PersistentSubscription:
    """Return an iterator over a recording and its live stream; see `PersistentSubscription`."""
    return PersistentSubscription(
        archive,
        aeron,
        recording_id,
        live_channel,
        live_stream_id,
        from_position=from_position,
        on_gap=on_gap,
    )
