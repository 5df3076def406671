"""The live stream of a recording, joined in the background.

Source: Aeron `PersistentSubscription`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from aeron_async.client.watched_wait import watched_wait

if TYPE_CHECKING:
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription
    from aeron_async.kernel import Message
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["LiveStream"]


@final
class LiveStream:
    """The live stream of a recording, joined in the background up to its first message.

    Attributes:
        session_id: Of the source that is waited for: an extension has another.
        join_position: Where it was joined, in bytes; None until then.
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
        self.join_position: int | None = None
        self.first: Message | None = None
        self._is_first_taken = False
        self.is_lost = False
        self._task = asyncio.create_task(self._join(), name="aeron-persistent-subscription")
        # Seen by `check`; where the client closes first, nothing asks any more why it failed.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _join(self) -> None:
        subscription = self._subscription = await self._aeron.add_subscription(
            self._channel, self._stream_id
        )
        await watched_wait(
            subscription,
            subscription.progress,
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
        """Raise what joining raised.

        Raises:
            AeronError: The live stream cannot be subscribed to.
        """
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def following(self) -> Message | None:
        """Return the next message, the first one first; None where the stream is lost, or over."""
        if self._image is None:
            return None
        if not self._is_first_taken:
            # Waited for by itself: whoever is cancelled here leaves it for the next call.
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
        self._task.cancel()
        try:
            # Awaited itself, it could not be told whose cancellation came back.
            await asyncio.wait((self._task,))
        finally:
            if self._subscription is not None:
                self._subscription.close()
