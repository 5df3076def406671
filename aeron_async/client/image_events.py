"""Images that come and go, as something to iterate over.

Source: Aeron `AvailableImageHandler`, `UnavailableImageHandler`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

from aeron_async.client.signal import Signal
from aeron_async.client.wait_watch import Wait

if TYPE_CHECKING:
    from types import TracebackType
    from weakref import WeakSet

    from aeron_async.client.image import Image
    from aeron_async.client.subscription_base import SubscriptionBase
    from aeron_async.driver.commands import ImageEnd, ImageEndReason

__all__ = ["ImageEvent", "ImageEventKind", "ImageEvents"]

MAX_EVENTS: Final = 1024
"""Events that one iterator keeps for a consumer that does not come for them."""


@final
class ImageEventKind(Enum):
    """Whether an image has come or gone."""

    AVAILABLE = auto()
    UNAVAILABLE = auto()
    UNANSWERED = auto()
    """Of a subscription for responses: its image has ended or fallen silent, and for two seconds
    its server has named no session to follow it. `Subscription.last_error` says so, too."""


class ImageEvent(NamedTuple):
    """An image that has come or gone, or fallen silent."""

    kind: ImageEventKind
    image: Image

    @property
    def end(self) -> ImageEnd | None:
        """Return why and where an image that has gone ended: the reason, and the positions."""
        return self.image.end if self.kind is ImageEventKind.UNAVAILABLE else None

    @property
    def reason(self) -> ImageEndReason | None:
        """Return why an image that has gone ended; None of any other event."""
        end = self.end
        return None if end is None else end.reason


@final
class ImageEvents:
    """An iterator over the images of one subscription; it ends when the subscription closes.

    One that is dropped hears no more; `async with`, or `aclose`, ends it at a place of one's own.

    Args:
        listeners: Where the subscription finds those to tell; this one adds and removes itself.
        subscription: Whose images they are.

    Attributes:
        missed_count: Oldest events given up because more than 1024 waited.
    """

    def __init__(self, listeners: WeakSet[ImageEvents], subscription: SubscriptionBase) -> None:
        self._listeners = listeners
        self._subscription = subscription
        self._queue: deque[ImageEvent] = deque()
        self._signal = Signal()
        self._is_closed = False
        self.missed_count = 0
        listeners.add(self)

    def put(self, event: ImageEvent) -> None:
        """Add an event."""
        if len(self._queue) >= MAX_EVENTS:
            self._queue.popleft()
            self.missed_count += 1
        self._queue.append(event)
        self._signal.ring()

    def close(self) -> None:
        """End the iteration after the events that are there."""
        self._is_closed = True
        self._listeners.discard(self)
        self._signal.ring()

    async def aclose(self) -> None:
        """End the iteration now, whatever is still there."""
        self._queue.clear()
        self.close()
        await asyncio.sleep(0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ImageEvent:
        """Return the next event, waiting for it; a long wait without any image is logged."""
        if not self._queue and not self._is_closed:
            await self._wait()
        if not self._queue:
            raise StopAsyncIteration
        return self._queue.popleft()

    async def _wait(self) -> None:
        """Wait for an event, or for the end."""
        subscription, waits = self._subscription, self._subscription.waits
        started_ns = waits.now_ns()
        wait = Wait(
            subscription,
            "image_events",
            lambda: None if subscription.is_connected else started_ns,
        )
        if subscription.logs_waits and not subscription.is_connected:
            waits.begin(wait)
        try:
            while not self._queue and not self._is_closed:
                await self._signal.wait()
        finally:
            waits.end(wait)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
