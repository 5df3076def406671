"""A subscription that misses nothing: what was recorded first, then the live stream.

It replays from where it is told, and joins the live stream once it has come near its end. Both are
read until they meet: the first message that came live is handed out from the recording, and from
the next one on the live stream goes on. Where the live stream is lost, because this reader could
not keep up or its source went away, it is replayed again from the last message.

Every message comes once, in order, whatever happens to either.

Source: Aeron `PersistentSubscription`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self, final

from aeron_async.archive.argument_order import check_archive_and_aeron
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.archive.api import Archive, Replay
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription
    from aeron_async.kernel import Message

__all__ = ["PersistentSubscription", "subscribe"]

READ: Final = ("describe", "recording_position", "replay")
"""What an archive must have to be subscribed to."""
LOOK_INTERVAL_NS: Final = 50_000_000
"""Between two looks at how far the recording has got."""
NEAR_SHIFT: Final = 2
"""The live stream is joined when less than a quarter of a term is still to be replayed."""


@final
class LiveStream:
    """The live stream of a recording, joined in the background up to its first message.

    Attributes:
        session_id: Of the source that is waited for: an extension has another.
        first: The message that came first; None until there is one.
        is_lost: Whether it ended before that.
    """

    def __init__(self, aeron: Aeron, channel: ChannelUri, stream_id: int, session_id: int) -> None:
        self._aeron = aeron
        self.session_id = session_id
        self._channel = channel.replace(session_id=session_id)
        self._stream_id = stream_id
        self._subscription: Subscription | None = None
        self._image: Image | None = None
        self.first: Message | None = None
        self.is_lost = False
        self._task = asyncio.create_task(self._join(), name="aeron-persistent-subscription")

    async def _join(self) -> None:
        subscription = self._subscription = await self._aeron.add_subscription(
            self._channel, self._stream_id
        )
        await subscription.wait_connected()
        self._image = subscription.images[0]
        try:
            self.first = await anext(self._image)
        except StopAsyncIteration:
            self.is_lost = True

    def check(self) -> None:
        """Raise what joining raised.

        Raises:
            AeronError: The live stream cannot be subscribed to.
        """
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def following(self) -> Message | None:
        """Return the next message; None where the stream is lost, or over."""
        if self._image is None:
            return None
        try:
            return await anext(self._image)
        except StopAsyncIteration:
            return None

    async def aclose(self) -> None:
        """Leave the live stream."""
        self._task.cancel()
        try:
            # Awaited itself, it could not be told whose cancellation came back.
            await asyncio.wait((self._task,))
        finally:
            if self._task.done() and not self._task.cancelled():
                # Nobody asks any more why it failed.
                self._task.exception()
            if self._subscription is not None:
                self._subscription.close()


@final
class PersistentSubscription:
    """Messages of a recording and of its live stream, each once; made by `subscribe`.

    Args:
        archive: Where it is recorded.
        aeron: Subscribes to the live stream.
        recording_id: Of the recording; while it is extended the live stream is that of the session
            which extends it.
        live_channel: Of the live stream. Unless it says otherwise it is read untethered: a reader
            that is too slow is left behind, and replays, and holds nobody up.
        live_stream_id: Of the live stream.
        from_position: Where to begin, in bytes; the start of the recording when not given.

    Attributes:
        recording_id: Of the recording.
        position: Where the message ends that was handed out last, in bytes.
        join_count: How often the live stream was joined.
        fallback_count: How often it was lost again.

    Raises:
        ChannelUriError: The live channel cannot be meant.
        ConfigurationError: It names a session, which is the recording's to say.
    """

    def __init__(
        self,
        archive: Archive,
        aeron: Aeron,
        recording_id: int,
        live_channel: str,
        live_stream_id: int,
        *,
        from_position: int | None = None,
    ) -> None:
        check_archive_and_aeron("subscribe", archive, aeron, needs=READ)
        uri = ChannelUri.parse(live_channel)
        if uri.session_id is not None:
            message = f"{live_channel} names a session: it is the recording's to say, leave it out"
            raise ConfigurationError(message)
        self._channel = uri.replace(tether=False) if uri.is_tether is None else uri
        self._channel.check_subscription(live_stream_id)
        self._archive = archive
        self._aeron = aeron
        self._stream_id = live_stream_id
        self.recording_id = recording_id
        self.position = -1 if from_position is None else from_position
        self.join_count = self.fallback_count = 0
        self._from_position = from_position
        self._replay: Replay | None = None
        self._live: LiveStream | None = None
        self._finished: Replay | None = None
        self._next_look_ns = 0
        self._is_closed = False

    @property
    def is_live(self) -> bool:
        """Return whether messages come from the live stream now."""
        return self._live is not None and self._replay is None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it; the iteration ends when this side closes.

        Raises:
            ArchiveError: The recording cannot be replayed.
            ConfigurationError: It is of another stream than the live one.
            AeronError: The live stream cannot be subscribed to.
        """
        while not self._is_closed:
            live, finished = self._live, self._finished
            if finished is not None:
                self._finished = None
                await finished.aclose()
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
        """Read no more; closing twice is closing once."""
        self._is_closed = True
        replay, self._replay = self._replay, None
        live, self._live = self._live, None
        finished, self._finished = self._finished, None
        for each in (replay, finished, live):
            if each is not None:
                await each.aclose()

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
        """Return the next message of the recording, and go over to the live stream in time."""
        if self._replay is None:
            self._replay = self._archive.replay(self.recording_id, self._from_position, follow=True)
            self._next_look_ns = 0
        now_ns = self._aeron.clock.now_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_INTERVAL_NS
            await self._look()
            if self._has_closed():
                return None
        try:
            message = await anext(self._replay)
        except StopAsyncIteration:
            # Only a replay that was closed meanwhile ends.
            message = None
        if self._has_closed():
            return None
        if message is None:
            error = f"the replay of recording {self.recording_id} ended at {self.position}"
            raise ClosedError(error)
        self._from_position = message.position
        self._go_over(message.position)
        return message

    def _has_closed(self) -> bool:
        """Return whether it was closed meanwhile."""
        return self._is_closed

    async def _look(self) -> None:
        """Join the live stream if what is still to be replayed is little."""
        live = self._live
        if live is not None:
            live.check()
            if live.first is not None:
                return
        descriptor = await self._archive.describe(self.recording_id)
        if descriptor.stream_id != self._stream_id:
            message = (
                f"recording {self.recording_id} is of stream {descriptor.stream_id}, and the live "
                f"stream is {self._stream_id}: they would never meet"
            )
            raise ConfigurationError(message)
        if live is not None:
            if not live.is_lost and live.session_id == descriptor.session_id:
                return
            await self._leave()
        recorded = await self._archive.recording_position(self.recording_id)
        if self._is_closed:
            return
        at = self._from_position
        at = descriptor.start_position if at is None else at
        if recorded is None or recorded - at > descriptor.term_length >> NEAR_SHIFT:
            return
        self._live = LiveStream(self._aeron, self._channel, self._stream_id, descriptor.session_id)

    def _go_over(self, position: int) -> None:
        """Let the live stream go on, once what came first on it was replayed."""
        live, replay = self._live, self._replay
        if live is None or live.first is None or replay is None or position < live.first.position:
            return
        # To be closed with the next call: this one has a message that a cancellation would lose.
        self._replay, self._finished = None, replay
        self.join_count += 1

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
) -> PersistentSubscription:
    """Return an iterator over a recording and its live stream; see `PersistentSubscription`."""
    return PersistentSubscription(
        archive, aeron, recording_id, live_channel, live_stream_id, from_position=from_position
    )
