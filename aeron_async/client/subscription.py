"""Subscriptions: where messages come from.

`async for` walks through what has arrived without suspending, one small object a message, and gives
the loop a turn after every batch. Each step says that the message before it has been taken, and
moves that image's position: a slow loop body slows the publisher, and nothing is lost.

Source: Aeron `Subscription`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, final

from aeron_async.client.image import Image
from aeron_async.client.image_events import ImageEvent, ImageEventKind, ImageEvents
from aeron_async.client.signal import Signal
from aeron_async.errors import AeronTimeoutError, BusyError, ClosedError, WrongLoopError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import FragmentHandler
    from aeron_async.client.message import Message
    from aeron_async.driver.commands import ImageReady, SubscriptionReady
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["ImageHandler", "Subscription"]

MESSAGES_PER_TURN: Final = 64
"""Messages after which the loop gets a turn, however many more have arrived."""

ImageHandler = Callable[[Image], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


@final
class Subscription:
    """One stream to receive; made by `Aeron.add_subscription`.

    One task consumes it; a second one that tries is told so.

    Attributes:
        channel: As it was asked for.
        stream_id: Within the channel.
        local_address: What the socket is bound to, as `host:port`.
    """

    def __init__(
        self,
        aeron: Aeron,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_available_image: ImageHandler | None,
        on_unavailable_image: ImageHandler | None,
    ) -> None:
        self.channel = str(uri)
        self.stream_id = stream_id
        self._aeron = aeron
        self._on_available_image = on_available_image
        self._on_unavailable_image = on_unavailable_image
        self._images: dict[int, Image] = {}
        self._announced: dict[int, Image] = {}
        self._turn: list[Image] = []
        self._batch: list[Message] = []
        self._index = 0
        self._taken: Message | None = None
        self._is_consuming = False
        self._is_closed = False
        self._closed_because: Exception | None = None
        self._progress = Signal()
        self._events: set[ImageEvents] = set()

    def _start(self, ready: SubscriptionReady) -> None:
        """Take what the driver has made; called once, before anybody else has the object."""
        self._ready = ready
        self.local_address = ready.local_address

    @property
    def images(self) -> tuple[Image, ...]:
        """Return the sources there are now, oldest first."""
        return tuple(self._images.values())

    @property
    def is_connected(self) -> bool:
        """Return whether there is any source."""
        return bool(self._images)

    @property
    def is_closed(self) -> bool:
        """Return whether the subscription is closed, by whomever."""
        return self._is_closed

    def image_by_session_id(self, session_id: int) -> Image | None:
        """Return the source with that session, if there is one."""
        for image in self._images.values():
            if image.session_id == session_id:
                return image
        return None

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until there is a source.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The subscription was closed, before or meanwhile.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._images:
                    self._check_open()
                    await self._progress.wait()
        except TimeoutError:
            message = (
                f"no publication on {self.channel} stream {self.stream_id} within {timeout} s: is "
                "one there, and does its channel name this endpoint?"
            )
            raise AeronTimeoutError(message) from None

    def image_events(self) -> ImageEvents:
        """Return an iterator over images that come and go, those there already included."""
        events = ImageEvents(self._events)
        for image in self._images.values():
            events.put(ImageEvent(ImageEventKind.AVAILABLE, image))
        if self._is_closed:
            events.close()
        return events

    # Consuming.

    def poll(self, handler: FragmentHandler, fragment_limit: int = 10) -> int:
        """Call a handler with fragments that are there, without waiting; return how many.

        Args:
            handler: Called with the payload, a view that is valid until it returns, and a header
                that is the same object every time for one image.
            fragment_limit: Most fragments to deliver, over all images.

        Raises:
            BusyError: Another task iterates the subscription.
            ClosedError: The subscription is closed.
        """
        self._check_open()
        self.begin_poll()
        count = 0
        for image in self._in_turn():
            if count >= fragment_limit:
                break
            count += image.poll(handler, fragment_limit - count)
        return count

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it; the iteration ends when this side closes.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
        """
        taken = self._taken
        if taken is not None:
            self._taken = None
            taken.image.take(taken.position)
        index = self._index
        if index >= len(self._batch) or self._is_closed or self._is_consuming:
            await self._next_batch(self._in_turn, MESSAGES_PER_TURN)
            index = 0
        message = self._taken = self._batch[index]
        self._index = index + 1
        return message

    async def batches(self, limit: int = MESSAGES_PER_TURN) -> AsyncIterator[list[Message]]:
        """Iterate over what has arrived, a list of up to `limit` messages of one image at a time.

        The position moves when the next list is asked for.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
        """
        while True:
            try:
                await self._next_batch(self._in_turn, limit)
            except StopAsyncIteration:
                return
            batch, self._batch = self._batch, []
            try:
                yield batch
            finally:
                batch[-1].image.take(batch[-1].position)

    async def next_of(self, image: Image) -> Message:
        """Return the next message of one image; see `Image.__anext__`."""
        taken = self._taken
        if taken is not None:
            self._taken = None
            taken.image.take(taken.position)
        batch = self._batch
        is_fresh = self._index < len(batch) and batch[self._index].image is image
        if not is_fresh or image.is_closed or self._is_consuming:
            await self._next_batch(
                lambda: None if image.is_closed or image.is_end_of_stream else [image],
                MESSAGES_PER_TURN,
            )
        message = self._taken = self._batch[self._index]
        self._index += 1
        return message

    def begin_poll(self) -> None:
        """Take what was delivered last, and put back what was only read ahead.

        Raises:
            BusyError: Another task waits for a message.
        """
        if self._is_consuming:
            message = (
                f"another task consumes the subscription on {self.channel} stream "
                f"{self.stream_id}: one task consumes it, and may hand messages to others"
            )
            raise BusyError(message)
        if self._taken is not None:
            self._taken.image.take(self._taken.position)
            self._taken = None
        if self._index < len(self._batch):
            self._batch[self._index].image.rewind()
        self._batch = []

    async def _next_batch(self, sources: Callable[[], list[Image] | None], limit: int) -> None:
        """Give the loop a turn and read more, waiting for it.

        Args:
            sources: The images to read from, in turn; None when there will be no more.
            limit: Most messages to read.

        Raises:
            StopAsyncIteration: There is no more to come.
        """
        if asyncio.get_running_loop() is not self._aeron.loop:
            message = f"{self!r} belongs to another event loop"
            raise WrongLoopError(message)
        self.begin_poll()
        self._is_consuming = True
        try:
            await asyncio.sleep(0)
            while (images := sources()) is not None and not self._is_closed:
                for image in images:
                    batch = image.read(limit)
                    if batch:
                        self._batch = batch
                        self._index = 0
                        return
                # Reading nothing may still have passed the padding before the end of a stream.
                if sources() is not None:
                    await self._progress.wait()
        finally:
            self._is_consuming = False
        if self._closed_because is not None:
            self._check_open()
        raise StopAsyncIteration

    def _in_turn(self) -> list[Image]:
        """Return the images, another one first each time, so that none starves the others."""
        turn = self._turn
        if len(turn) > 1:
            turn.append(turn.pop(0))
        return list(turn)

    # Closing.

    def close(self) -> None:
        """Close now; whoever iterates comes to an end. Closing twice is closing once."""
        if not self._is_closed:
            self._mark_closed(None)
            self._aeron.release_subscription(self, self._ready.registration_id)

    async def aclose(self) -> None:
        """Close now; whoever iterates comes to an end. Closing twice is closing once."""
        self.close()
        await asyncio.sleep(0)

    # What the driver says.

    def on_available_image(self, ready: ImageReady) -> None:
        """Make an image; it is announced, and can be read, from the next turn of the loop on."""
        image = Image(self, ready)
        self._announced[ready.image_id] = image
        asyncio.get_running_loop().call_soon(self._announce, image)

    def on_image_progress(self, image_id: int) -> None:
        """Wake whoever waits for a message."""
        del image_id
        self._progress.ring()

    def on_unavailable_image(self, image_id: int) -> None:
        """Let go of an image."""
        image = self._images.pop(image_id, None) or self._announced.pop(image_id, None)
        if image is None:
            return
        image.mark_closed()
        if image in self._turn:
            self._turn.remove(image)
        loop = asyncio.get_running_loop()
        loop.call_soon(self._tell, ImageEventKind.UNAVAILABLE, image, self._on_unavailable_image)
        self._progress.ring()

    def on_driver_closed(self, error: Exception | None) -> None:
        """Close without asking the driver: it is gone."""
        self._mark_closed(error)

    def _announce(self, image: Image) -> None:
        """Tell of an image, and only then let it be read."""
        if self._is_closed or self._announced.pop(image.image_id, None) is None:
            return
        self._images[image.image_id] = image
        self._tell(ImageEventKind.AVAILABLE, image, self._on_available_image)
        if image.is_closed:
            return
        self._turn.append(image)
        self._progress.ring()

    def _tell(self, kind: ImageEventKind, image: Image, handler: ImageHandler | None) -> None:
        for events in list(self._events):
            events.put(ImageEvent(kind, image))
        if handler is None:
            return
        try:
            handler(image)
        except Exception as error:  # noqa: BLE001 - it is reported; no handler may stop an agent
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"image handler of {self!r} failed", "exception": error}
            )

    def _mark_closed(self, because: Exception | None) -> None:
        self._is_closed = True
        self._closed_because = because
        for image in (*self._images.values(), *self._announced.values()):
            image.mark_closed()
        self._images.clear()
        self._announced.clear()
        self._turn.clear()
        for events in list(self._events):
            events.close()
        self._progress.ring()

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the subscription on {self.channel} stream {self.stream_id} is closed"
            raise ClosedError(message) from self._closed_because

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._images)} images"
        return f"<Subscription {self.channel} stream {self.stream_id}, {state}>"
