"""Subscriptions: their images, and the one task that consumes them.

`async for` over a `Subscription` delivers messages that have arrived without suspending, one small
object per message, and lets the loop run other tasks after every batch. Asking for the next message
means that the previous one was taken, and moves the position of its image: a slow loop body slows
the publisher, and nothing is lost.

Invariant: an image is announced before it can be read, and not before `Aeron.add_subscription` has
set up the subscription.

Invariant: messages that were read ahead of the position belong to one task; when another task takes
over, they are read again.

Source: Aeron `Subscription`, `ClientConductor`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, final
from weakref import WeakSet, ref

import attrs
from anyio import ClosedResourceError
from anyio.abc import ObjectReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async.client.arguments import (
    check_image_handler,
    check_limit,
    check_reason,
    check_session_id,
    check_whole,
    destination_uri,
)
from aeron_async.client.batches import Batches
from aeron_async.client.client_conductor import BY_FORK, Closing, check_process
from aeron_async.client.home_loop import YieldBudget, current_consumer, refuse_elsewhere
from aeron_async.client.image import (
    READ_AHEAD_LENGTH,
    Image,
    ImageEvent,
    ImageEventKind,
    ImageEvents,
    Message,
    MessageBatch,
)
from aeron_async.client.market_reading import MarketReading
from aeron_async.client.message_delivery import MessageDelivery
from aeron_async.client.reading import NOTHING, Reading, SubscriptionEvents, inheriting
from aeron_async.client.streams import STREAM_ERRORS, AeronAttribute, as_anyio
from aeron_async.client.typed import TypedReading
from aeron_async.client.waiters import Notify, Wait, watched_wait
from aeron_async.client.why import explain_subscription, stream_named
from aeron_async.errors import BusyError, RegistrationError
from aeron_async.protocol.arguments import check_function
from aeron_async.protocol.channel_uri import ControlMode
from aeron_async.protocol.units import INT64_MAX
from aeron_async.waits import SubscriptionSeen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import SupportsIndex

    from aeron_async.client.client_conductor import ClientConductor
    from aeron_async.client.image import FragmentHandler
    from aeron_async.client.waiters import WaitWatch
    from aeron_async.driver.commands import ImageEnd, ImageReady, SubscriptionReady
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import Why

__all__ = [
    "ImageHandler",
    "Subscription",
    "SubscriptionBase",
]

ImageHandler = Callable[[Image], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


class SubscriptionBase(Reading, ABC):
    """One stream to receive, created by `Aeron.add_subscription`.

    Attributes:
        channel: The channel as requested.
        stream_id: Stream id within the channel.
        last_error: For a subscription for responses, why no server answers; None while one does.
        logs_waits: Whether a long wait without any image is logged; a server that may have no
            client for hours can switch this off.
    """

    logs_waits = True

    def __init__(
        self,
        conductor: ClientConductor,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_available_image: ImageHandler | None,
        on_unavailable_image: ImageHandler | None,
    ) -> None:
        self.channel: str = str(uri)
        self.stream_id = stream_id
        self._conductor = conductor
        self._home = conductor.home
        self._on_available_image = check_image_handler(on_available_image, "on_available_image")
        self._on_unavailable_image = check_image_handler(
            on_unavailable_image, "on_unavailable_image"
        )
        self._images: dict[int, Image] = {}
        self._unannounced: dict[int, Image] = {}
        self._turn: list[Image] = []
        self._is_started = False
        self._check_served: Callable[[], object] | None = None
        self._is_closed = False
        self._closed: Closing | None = None
        # Rings when there may be more to read, or an image was added or removed.
        self._progress = Notify()
        self._events: WeakSet[ImageEvents] = WeakSet()
        self._is_for_responses = uri.control_mode is ControlMode.RESPONSE
        self._listener = SubscriptionEvents(
            self._add_image,
            self._progress.notify,
            self._remove_image,
            self._on_unanswered,
            self._on_lapsed,
            self,
        )
        self._lent: MessageBatch | None = None
        self._last_image: Image | None = None
        self.last_error: str | None = None
        self._waits_since_ns: int | None = None
        self._image_wait = Wait(self, "anext", self._waits_since)

    @abstractmethod
    def _make_image(self, ready: ImageReady) -> Image: ...

    def _start(self, ready: SubscriptionReady) -> None:
        """Set up the subscription with what the driver has created; announce its first images.

        An image handler may close the subscription; it is then closed when this returns.
        """
        self._ready = ready
        self._check_served = ready.check_served
        self._is_started = True
        for image in list(self._unannounced.values()):
            self._announce(image)

    @property
    def images(self) -> tuple[Image, ...]:
        """Return the images there are now, oldest first."""
        return tuple(self._images.values())

    @property
    def is_connected(self) -> bool:
        """Return whether there is any image."""
        return bool(self._images)

    @property
    def is_closed(self) -> bool:
        """Return whether the subscription is closed: by the caller, its client or its driver."""
        return self._is_closed

    def image_by_session_id(self, session_id: SupportsIndex) -> Image | None:
        """Return the image with this session id; None if there is none.

        Raises:
            ConfigurationError: The session id is no whole number, or does not fit signed 32 bits.
        """
        session_id = check_session_id(session_id)
        for image in self._images.values():
            if image.session_id == session_id:
                return image
        return None

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until there is an image.

        Args:
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The subscription was closed, before or during the call.
        """
        await watched_wait(
            self, self._progress, lambda: bool(self._images), "wait_connected", timeout
        )

    @property
    def _is_watched(self) -> bool:
        """Return whether a driver in another process is watched, which wakes no reader itself."""
        return self._ready.arm is not None

    async def _wait_for_progress(self) -> None:
        """Wait until there may be more to read, or an image was added or removed."""
        arm, disarm = self._ready.arm, self._ready.disarm
        if arm is None or disarm is None:
            await self._progress.wait()
            return
        # A driver in another process wakes no reader: its words are watched.
        try:
            if not arm():
                await self._progress.wait()
            elif self._calls_until_check:
                # No turn of the loop has passed: `_look` finds out whether one is due.
                self._calls_until_check = 0
            else:
                # Whatever is there again and again cannot be read, and must not stop the loop.
                await asyncio.sleep(0)
        finally:
            disarm()

    def _watch_for_image(self) -> None:
        """Log the current wait if it becomes long; called while there is no image."""
        if self._waits_since_ns is None:
            self._waits_since_ns = self._waits.now_ns()
        if self.logs_waits and not self._image_wait.is_watched:
            self._waits.begin(self._image_wait)

    @property
    def local_address(self) -> str:
        """Return the address the socket is bound to, as `host:port`; empty without a socket."""
        return self._ready.local_address

    @property
    def _waits(self) -> WaitWatch:
        return self._conductor.waits

    def _waits_since(self) -> int | None:
        """Return when a task began to wait without any image, in nanoseconds; None if none does."""
        return None if self._images else self._waits_since_ns

    def _explain(self) -> Why:
        """Return why the subscription waits; see `aeron_async.why`."""
        is_open = self._is_started and not self._is_closed
        seen = self._ready.seen() if is_open else SubscriptionSeen()
        seen = attrs.evolve(seen, last_error=self.last_error)
        stream = stream_named(self.channel, self.stream_id)
        return explain_subscription(stream, seen, is_closed=self._is_closed)

    def image_events(self) -> ImageEvents:
        """Return an iterator over images that come and go; it begins with the present images."""
        events = ImageEvents(self._events, self)
        for image in self._images.values():
            events.put(ImageEvent(ImageEventKind.AVAILABLE, image))
        if self._is_closed:
            events.close()
        return events

    # Destinations.

    async def add_destination(self, channel: str | ChannelUri) -> int:
        """Receive at one more destination, with `control-mode=manual`; return its id.

        Args:
            channel: Channel of the destination, such as `aeron:udp?endpoint=127.0.0.1:20121`.

        Raises:
            ChannelUriError: The channel is invalid, or cannot be a destination.
            RegistrationError: The subscription's channel takes no destinations, or the socket
                cannot be opened.
            ClosedError: The subscription was closed, before or during the call.
        """
        self._check_open()
        return await self._conductor.add_subscription_destination(
            self._ready.registration_id, destination_uri(channel, is_sent_to=False)
        )

    async def remove_destination(self, destination: str | ChannelUri | int) -> None:
        """Stop receiving at a destination.

        Args:
            destination: The channel that was added, or the id that `add_destination` returned.

        Raises:
            RegistrationError: The subscription has no such destination. A driver in another process
                does not say so, if its channel is `aeron:udp`.
            ClosedError: The subscription was closed, before or during the call.
        """
        self._check_open()
        await self._conductor.remove_subscription_destination(
            self._ready.registration_id,
            destination
            if isinstance(destination, int)
            else destination_uri(destination, is_sent_to=False),
        )

    async def _reject_image(self, image: Image, reason: str) -> None:
        """Reject an image; see `Image.reject`."""
        self._check_open()
        if image.is_closed:
            # Another driver may have given its id to another image.
            message = f"image {image.image_id} of session {image.session_id} has ended"
            raise RegistrationError(message)
        await self._conductor.reject_image(image.image_id, check_reason(reason))

    @property
    def registration_id(self) -> int:
        """Return the id that requests for responses give as `response-correlation-id`."""
        return self._ready.registration_id

    # Closing.

    def close(self) -> None:
        """Close now; iterations end. Closing a closed subscription does nothing.

        Raises:
            WrongLoopError: Its event loop is not running in this thread; it stays open.
        """
        check_process(self._closed, self)
        if not self._is_closed:
            self._check_loop()
            self._mark_closed(self._conductor.closing)
            self._conductor.release_subscription(self._ready.registration_id)

    async def aclose(self) -> None:
        """Close now; iterations end. Closing a closed subscription does nothing.

        Raises:
            WrongLoopError: The subscription belongs to another event loop; it stays open.
        """
        self.close()
        await asyncio.sleep(0)

    # Events of the driver.

    def _add_image(self, ready: ImageReady) -> None:
        """Create an image; it is announced, and can be read, from the loop's next turn on."""
        image = self._unannounced[ready.image_id] = self._make_image(ready)
        # Images that the driver joins before the start are announced by `_start`.
        if self._is_started:
            asyncio.get_running_loop().call_soon(self._announce, image)

    def _remove_image(self, image_id: int, end: ImageEnd | None = None) -> None:
        """Remove an image and close it."""
        unannounced = self._unannounced.pop(image_id, None)
        if unannounced is not None:
            unannounced._mark_closed(end)
        image = self._images.pop(image_id, None)
        if image is not None:
            if image in self._turn:
                self._turn.remove(image)
            self._retire(image, end)
            self._progress.notify()

    def _on_unanswered(self, reason: str | None) -> None:
        """Store why no server answers, and add an event; the reason is None once one answers."""
        self.last_error = reason
        image = next(reversed(self._images.values()), self._last_image)
        if reason is not None and image is not None:
            self._put_event(ImageEventKind.UNANSWERED, image)

    def _on_lapsed(self) -> None:
        """Let the next message wait for the check of the turn; called in another thread."""
        self._calls_until_check = 0

    def _on_driver_closed(self, error: Exception | None) -> None:
        """Close without a request to the driver, which is closed."""
        self._mark_closed(Closing.by_driver(error))

    def _on_forked(self) -> None:
        """Close in a child process, without waking the parent's tasks and without its handlers."""
        self._is_closed = True
        self._closed = BY_FORK
        self._batch = NOTHING
        self._taken = None
        if self._lent is not None:
            self._lent._on_forked()
            self._lent = None
        for image in (*self._unannounced.values(), *self._images.values()):
            image._on_forked()

    def _announce(self, image: Image) -> None:
        """Announce an image, and only then allow it to be read."""
        if self._unannounced.pop(image.image_id, None) is None:
            return
        self._images[image.image_id] = image
        self._last_image = self.last_error = None
        self._put_event(ImageEventKind.AVAILABLE, image)
        self._call(self._on_available_image, image)
        if image.is_closed:
            return
        self._turn.append(image)
        self._progress.notify()

    def _retire(self, image: Image, end: ImageEnd | None = None) -> None:
        """Close an announced image; call `on_unavailable_image` in the loop's next turn."""
        if self._batch.image is image:
            self._batch.keep()
        if self._lent is not None and self._lent.image is image:
            self._lent._keep()
        image._mark_closed(end)
        self._listener.gone_count += image._message_count  # noqa: SLF001 - two halves of one reader
        if self._is_for_responses and not self._is_closed:
            self._last_image = image
        self._put_event(ImageEventKind.UNAVAILABLE, image)
        asyncio.get_running_loop().call_soon(self._call, self._on_unavailable_image, image)

    def _put_event(self, kind: ImageEventKind, image: Image) -> None:
        for events in list(self._events):
            events.put(ImageEvent(kind, image))

    def _call(self, handler: ImageHandler | None, image: Image) -> None:
        if handler is None:
            return
        try:
            handler(image)
        except Exception as error:  # noqa: BLE001 - it is reported; no handler may stop an agent
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"image handler of {self!r} failed", "exception": error}
            )

    def _mark_closed(self, closed: Closing) -> None:
        self._is_closed = True
        self._closed = closed
        # A message refers to its image, and the image to its subscription: break that cycle.
        self._batch = NOTHING
        self._taken = self._last_image = None
        for image in self._unannounced.values():
            image._mark_closed()
        for image in self._images.values():
            self._retire(image)
        # After its image has closed: the caller that has the batch keeps a copy.
        self._lent = None
        self._images.clear()
        self._unannounced.clear()
        self._turn.clear()
        for events in list(self._events):
            events.close()
        self._progress.notify()

    def _check_open(self) -> None:
        """Raise `ClosedError` if the subscription is closed."""
        if self._closed is not None:
            self._closed.raise_error(f"the subscription on {self.channel} stream {self.stream_id}")

    def _check_loop(self) -> None:
        if not self._home.is_here():
            refuse_elsewhere(self)

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


MESSAGES_PER_LIST: Final = 64
"""Messages in one list of `batches` by default."""
MESSAGES_PER_BATCH: Final = 1024
"""Most messages read ahead; after these the loop runs other tasks in any case."""


@inheriting
@final
class Subscription(
    SubscriptionBase, TypedReading, MarketReading[Message], ObjectReceiveStream[Message]
):
    """One stream to receive, created by `Aeron.add_subscription`.

    Only one task at a time may consume it. While an iterating task waits for a message, or holds
    messages, another task gets `BusyError`: at once if it iterates or polls; if it calls `anext`
    itself, as soon as that needs a new batch. Another task may take over when the first has ended,
    or has called `poll` last, which leaves it without messages. Single calls of `anext` may come
    from any task, one after another.

    A subscription is also an anyio stream, with `receive` in place of `anext`.
    """

    _delivery: MessageDelivery[Message] | None = None

    def __init__(
        self,
        conductor: ClientConductor,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_available_image: ImageHandler | None,
        on_unavailable_image: ImageHandler | None,
    ) -> None:
        super().__init__(
            conductor,
            uri,
            stream_id,
            on_available_image=on_available_image,
            on_unavailable_image=on_unavailable_image,
        )
        self._yield_budget = YieldBudget(conductor.home.loop, conductor.clock)
        self._is_waiting = False
        self._consumer: ref[asyncio.Task[Any]] | None = None

    if TYPE_CHECKING:

        async def __anext__(self) -> Message:
            """Wait for the next message and return it; iteration ends when the subscription closes.

            Raises:
                BusyError: Another task consumes the subscription.
                ClosedError: The driver failed.
                WrongLoopError: The subscription belongs to another event loop.
            """

    def poll(self, handler: FragmentHandler, fragment_limit: int = 10) -> int:
        """Call a handler with each available fragment, without waiting; return how many.

        The handler may close the subscription; it is then not called again.

        Args:
            handler: Called with the payload, a read-only view until the handler returns, and a
                header, which is the same object for all fragments of one image.
            fragment_limit: Most fragments to deliver, over all images; 1 or more.

        Raises:
            ConfigurationError: The handler cannot be called or is an `async def`, or the limit is
                no whole number of 1 or more; nothing was taken.
            BusyError: Another task consumes the subscription.
            ClosedError: The subscription is closed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_open()
        if type(fragment_limit) is not int or fragment_limit < 1:
            fragment_limit = check_limit(fragment_limit, "fragment_limit")
        check_function(handler, "handler")
        self._begin_poll()
        self._rotate()
        count = 0
        for image in list(self._turn):
            if count >= fragment_limit:
                break
            count += image._poll(handler, fragment_limit - count)
        return count

    def on_message(self, handler: Callable[[Message], object] | None) -> None:
        """Call a handler with each message as it arrives, instead of iterating; None ends that.

        The handler is called in the event loop, in the context of this call, at most 64 times in a
        row. It may offer by `try_offer`. A message is taken when its handler is called; what that
        raises goes to the loop's exception handler.

        Args:
            handler: Called with each `Message`; replaces another one.

        Raises:
            ConfigurationError: The handler cannot be called, or is an `async def`.
            BusyError: A task consumes the subscription.
            ClosedError: The subscription is closed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        if handler is not None:
            check_function(handler, "handler")
        self._check_open()
        self._check_loop()
        if self._delivery is not None:
            self._delivery.end()
        elif handler is None:
            return
        self._begin_poll()
        if handler is not None:
            self._consumer, self._is_waiting = None, True
            self._delivery = MessageDelivery(
                self,
                handler,
                check_open=self._check_open,
                take=self._next_at_once,
                hand_out_fast=self._hand_out_fast,
                watch=self._watch,
                on_end=self._end_delivery,
                events=self._listener,
            )
            self._progress.add(self._delivery)
            self._listener.deliver = self._delivery.deliver_now
            self._delivery.wake()

    def _next_at_once(self, limit: int) -> Message | None:
        if self._check_served is not None:
            self._check_served()
        if not limit and self._batch.left and self._batch.image is not None:
            self._batch.image._rewind(self._batch.left)
            self._batch = NOTHING
        elif not self._batch.left:
            self._rotate()
            found = (image._read(limit) for image in tuple(self._turn))
            self._batch = next((batch for batch in found if batch is not None), NOTHING)
        if (message := self._batch.following()) is not None:
            message.image._take(message.position)
        return message

    def _watch(self) -> tuple[bool, Callable[[], object] | None]:
        self._note_wait()
        arm, disarm = self._ready.arm, self._ready.disarm
        return (False, None) if arm is None else (arm(), disarm)

    def _end_delivery(self, delivery: MessageDelivery[Message]) -> None:
        self._progress.remove(delivery)
        self._listener.deliver = None
        self._delivery, self._waits_since_ns, self._is_waiting = None, None, False

    def _note_wait(self) -> None:
        if self._images:
            self._waits_since_ns = None
        else:
            self._watch_for_image()

    def __aiter__(self) -> Self:
        self._begin_iteration()
        return self

    def _begin_wait(self) -> asyncio.Future[None] | None:
        """Begin to wait for a message; None leaves that, and what there is, to `_anext_waiting`."""
        if self._batch.left or self._calls_until_check <= 0 or self._is_watched or self._is_closed:
            return None
        self._begin_poll()
        if len(self._turn) != 1:
            return None
        self._batch = self._turn[0]._read(MESSAGES_PER_BATCH) or NOTHING
        # Reading padding may have closed the image, or the subscription.
        if self._batch.left or not self._turn:
            return None
        waiter, self._is_waiting = self._home.loop.create_future(), True
        self._progress.add(waiter)
        return waiter

    def _end_wait(self, waiter: asyncio.Future[None]) -> None:
        self._progress.remove(waiter)
        self._is_waiting = False

    async def _anext_waiting(
        self, limit: int = MESSAGES_PER_BATCH, only: Image | None = None
    ) -> Message:
        """Return the next message in all other cases; see `__anext__` and `_next_batch`."""
        if only is None and self._batch.left and self._calls_until_check <= 0:
            await self._look()
        while True:
            batch = self._batch
            if not batch.left or self._is_closed or only not in (None, batch.image):
                await self._next_batch(limit, only)
                batch = self._batch
            elif self._taken is not None:
                self._taken.image._take(self._taken.position)
            message: Message | None = batch.following()
            if message is not None:
                self._calls_until_check -= 1
                self._taken = message
                return message

    async def _look(self) -> None:
        """Yield to the loop if the turn is over, or if the driver needs the loop."""
        if self._check_served is not None:
            self._check_served()
        turn = self._yield_budget
        is_due = self._calls_until_check < 0
        is_over = turn.is_over()
        self._calls_until_check = turn.stride
        if is_due or is_over:
            was_waiting, self._is_waiting = self._is_waiting, True
            try:
                await asyncio.sleep(0)
            finally:
                self._is_waiting = was_waiting
            turn.begin()
            if self._taken is not None:
                self._taken.image._look_up_trigger()

    async def receive(self) -> Message:
        """Return the next message as `anext` does; for code that is written for anyio streams.

        The end of one publication is not the end of the stream, because others may follow:
        `ImageStream` reads one of them to its end.

        Raises:
            ClosedResourceError: The subscription was closed, before or during the call.
            BrokenResourceError: The driver failed.
            BusyResourceError: Another task consumes the subscription.
        """
        check_process(self._closed, self)
        await checkpoint_if_cancelled()
        try:
            self._check_open()
            return await self.__anext__()
        except StopAsyncIteration as over:
            raise ClosedResourceError(str(over)) from None
        except STREAM_ERRORS as error:
            raise as_anyio(error) from error

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return the attributes that `extra` can read; see `AeronAttribute`."""
        return {
            AeronAttribute.channel: lambda: self.channel,
            AeronAttribute.stream_id: lambda: self.stream_id,
            AeronAttribute.local_address: lambda: self.local_address,
        }

    def batches(
        self,
        max_messages: int = MESSAGES_PER_LIST,
        *,
        max_bytes: int = READ_AHEAD_LENGTH,
        linger_ns: int = 0,
    ) -> Batches[MessageBatch]:
        """Iterate over batches of messages that have arrived, each of one image.

        A batch is taken, and the position moves, when the iterator is asked for the next one. If
        the loop body raises, or leaves the loop, its batch is not taken: the next reader gets the
        same messages again; `aclose` of the iterator lets another task be that reader, and `take`
        takes the batch before. To get each message exactly once, iterate over single messages.

        Args:
            max_messages: Most messages in one batch; 1 or more.
            max_bytes: Most bytes of the log in one batch, headers included; a single message may be
                longer.
            linger_ns: How long to wait, in nanoseconds, for more messages of the same image than
                have arrived. The wait ends when the batch is full; and before a fragmented message,
                padding, or the end of a term. Until then other images wait, and so does a publisher
                whose window is shorter than `max_bytes`.

        Raises:
            ConfigurationError: An argument is not a whole number, or too small.
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        return Batches(
            self,
            MessageBatch,
            # Compiled code takes no larger ones, and none of them would ever be reached.
            max_messages=min(check_limit(max_messages, "max_messages"), INT64_MAX),
            max_bytes=min(check_limit(max_bytes, "max_bytes"), INT64_MAX),
            linger_ns=min(check_whole(linger_ns, "linger_ns"), INT64_MAX),
        )

    async def _next_of(self, image: Image) -> Message:
        """Return the next message of one image; see `Image.__anext__`."""
        if image.is_closed:
            await self._next_batch(MESSAGES_PER_LIST, image)
        return await self._anext_waiting(MESSAGES_PER_LIST, image)

    def _begin_iteration(self) -> None:
        """Make the current task the one that consumes; see `Image.__aiter__`.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_consumer()
        self._consumer = current_consumer()

    def _check_consumer(self) -> None:
        """Refuse the current task while another consumes the subscription.

        Raises:
            BusyError: Another task waits for a message, or holds messages.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_loop()
        if self._is_closed:
            return
        if not self._is_waiting:
            if self._taken is None and self._lent is None and not self._batch.left:
                return
            consumer = None if self._consumer is None else self._consumer()
            if (
                consumer is None
                or consumer.done()
                or consumer is asyncio.current_task(self._home.loop)
            ):
                return
        which = "another task"
        remedy = (
            "one task at a time may, and may pass messages to others; one that has left its loop "
            "gives it up by poll()"
        )
        if self._delivery is not None:
            which, remedy = "a handler", "take it away by on_message(None) before"
        stream = f"the subscription on {self.channel} stream {self.stream_id}"
        message = f"{which} consumes {stream}: {remedy}"
        raise BusyError(message)

    def _begin_poll(self) -> None:
        """Take the message delivered last; put back a list of `batches`, and what was read ahead.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_loop()
        consumer = None if self._consumer is None else self._consumer()
        is_ours = consumer is not None and consumer is asyncio.current_task(self._home.loop)
        if self._is_waiting or not is_ours:
            self._check_consumer()
        if self._check_served is not None:
            self._check_served()
        if self._taken is not None:
            self._taken.image._take(self._taken.position)
            self._taken = None
        if self._lent is not None:
            self._lent._put_back()
            self._lent = None
        if self._batch.left and self._batch.image is not None:
            self._batch.image._rewind(self._batch.left)
        self._batch = NOTHING
        if not is_ours:
            self._consumer = None

    async def _next_batch(
        self, limit: int, only: Image | None = None, *, max_bytes: int = READ_AHEAD_LENGTH
    ) -> None:
        """Read another batch, waiting for messages.

        Args:
            limit: Most messages to read.
            only: The image to read from; None reads from all in turn.
            max_bytes: Most bytes to read, but for a longer message.

        Raises:
            StopAsyncIteration: No more messages will come.
        """
        self._begin_poll()
        self._is_waiting = True
        try:
            if self._calls_until_check <= 0:
                await self._look()
            self._rotate()
            while not self._is_over(only):
                for image in self._turn if only is None else (only,):
                    batch = image._read(limit, max_bytes)
                    if batch is not None:
                        self._batch = batch
                        return
                # Reading no message may still have passed padding at the end of a stream.
                if not self._is_over(only):
                    self._note_wait()
                    await self._wait_for_progress()
        finally:
            self._is_waiting = False
            self._waits_since_ns = None
        if self._closed is not None and self._closed.error is not None:
            self._check_open()
        raise StopAsyncIteration(self._why_over(only))

    def _make_image(self, ready: ImageReady) -> Image:
        return Image(self, ready)

    def _put_event(self, kind: ImageEventKind, image: Image) -> None:
        super()._put_event(kind, image)
        self._follow(kind.name, image)

    def _is_over(self, only: Image | None) -> bool:
        """Return whether no more messages will come: of one image, or of the subscription."""
        is_over = only is not None and (only.is_closed or only.is_end_of_stream)
        if self._interrupt is not None and self._interrupt():
            return True
        return is_over or self._is_closed

    def _why_over(self, only: Image | None) -> str:
        """Return why no more messages will come, for a caller of `anext` outside a loop."""
        of = f"stream {self.stream_id} on {self.channel}"
        if self._closed is not None:
            return f"no more messages of {of}: the subscription is closed; {self._closed.text}"
        if only is None:
            return f"the images of {of} have changed"
        return f"no more messages of session {only.session_id}, {of}: its image has ended"

    def _rotate(self) -> None:
        """Begin with another image, so that none starves the others."""
        turn = self._turn
        if len(turn) > 1:
            turn.append(turn.pop(0))
