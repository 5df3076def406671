"""Subscriptions: their images, the one task that consumes them, and what it has taken.

Invariant: `SubscriptionBase` announces an image before it can be read, and announces none before
the caller that added the subscription could have it.

`async for` over a `Subscription` walks through what has arrived without suspending, one small
object a message, and lets the loop run other tasks after every batch. Each step says that the
message before it has been taken, and moves the position of its image: a slow loop body slows the
publisher, and nothing is lost.

Invariant: what a `Subscription` has read beyond the position belongs to one task, and is read again
when another task takes over.

Source: Aeron `Subscription`, `ClientConductor`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final
from weakref import WeakSet, ref

import attrs
from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async._speedups import WHY_PURE
from aeron_async.client.arguments import (
    check_image_handler,
    check_limit,
    check_reason,
    check_session_id,
    destination_uri,
)
from aeron_async.client.home_loop import Turn
from aeron_async.client.image import Image, ImageEvent, ImageEventKind, ImageEvents, Message
from aeron_async.client.streams import STREAM_ERRORS, AeronAttribute, as_anyio
from aeron_async.client.waiters import Signal, Wait, watched_wait
from aeron_async.client.why import explain_subscription, stream_named
from aeron_async.errors import BusyError, ClosedError, WrongLoopError
from aeron_async.logbuffer.message import Batch
from aeron_async.protocol.arguments import check_function
from aeron_async.protocol.channel_uri import ControlMode
from aeron_async.waits import SubscriptionSeen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from types import TracebackType
    from typing import SupportsIndex

    from aeron_async.client.client_conductor import ClientConductor
    from aeron_async.client.image import FragmentHandler
    from aeron_async.driver.commands import ImageEnd, ImageReady, SubscriptionReady
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import Why

__all__ = [
    "NOTHING",
    "ImageHandler",
    "Reading",
    "Subscription",
    "SubscriptionBase",
    "inheriting",
]

Kind = TypeVar("Kind")


NOTHING: Final[Batch[Any]] = Batch([], None)
"""Where nothing has been read."""


class Reading:
    """Where messages are read.

    Attributes:
        _batch: Messages that have been read, and not all been delivered.
        _taken: The one delivered last; taken when the next is asked for.
        _turn_budget: Messages that may be delivered before the loop's turn is looked at again;
            negative when it is due.
        _is_closed: Whether the subscription is closed.
    """

    _batch: Batch[Any] = NOTHING
    _taken: Message | None = None
    _turn_budget: int = 0
    _is_closed: bool

    def _anext_waiting(self) -> Coroutine[Any, Any, Message]:
        """Return the next message, whatever it takes."""
        raise NotImplementedError

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it; the iteration ends when this side closes.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: It belongs to another event loop.
        """
        if not self._batch.left or self._turn_budget <= 0 or self._is_closed:
            return await self._anext_waiting()
        taken = self._taken
        if taken is not None:
            image, position = taken.image, taken.position
            image._take(position)
            if position > image._trigger:  # noqa: SLF001 - twins of one module
                # The driver has something to say, and cannot before the loop has had its turn.
                self._turn_budget = 0
        message: Message | None = self._batch.following()
        if message is None:
            # Taking rang a bell, and whoever answered it closed the subscription.
            return await self._anext_waiting()
        self._turn_budget -= 1
        self._taken = message
        return message


def inheriting(kind: type[Kind]) -> type[Kind]:
    """Return a class that inherits from `Reading`; the compiled twin saves a call by name."""
    return kind


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import NOTHING, Reading, inheriting


ImageHandler = Callable[[Image], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


@attrs.define(eq=False)
class SubscriptionEvents:
    """What the driver says of one subscription: its `SubscriptionListener`."""

    on_available_image: Callable[[ImageReady], None]
    on_image_progress: Callable[[], None]
    on_unavailable_image: Callable[..., None]
    on_unanswered: Callable[[str | None], None]


class SubscriptionBase(Reading, ABC):
    """One stream to receive; made by `Aeron.add_subscription`.

    Attributes:
        channel: As it was asked for.
        stream_id: Within the channel.
        local_address: What the socket is bound to, as `host:port`.
        last_error: Of a subscription for responses, why nothing answers; None while a session does.
        logs_waits: Whether a wait without any source is logged when it lasts for long; a server
            that has no client for hours may not want that.
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
        self._is_closed = False
        self._closed_because: Exception | None = None
        # Rings when there may be more to read, or an image has come or gone.
        self._progress = Signal()
        self._events: WeakSet[ImageEvents] = WeakSet()
        self._is_for_responses = uri.control_mode is ControlMode.RESPONSE
        self._listener = SubscriptionEvents(
            self._add_image, self._progress.ring, self._remove_image, self._on_unanswered
        )
        self._last_image: Image | None = None
        self.last_error: str | None = None
        self._waits = conductor.waits
        self._waits_since_ns: int | None = None
        self._image_wait = Wait(self, "anext", self._waits_since)

    @abstractmethod
    def _make_image(self, ready: ImageReady) -> Image: ...

    def _start(self, ready: SubscriptionReady) -> None:
        """Take what the driver has made, and announce the images that it has joined already.

        A handler may close the subscription, and then it is closed when this returns.
        """
        self._ready = ready
        self.local_address: str = ready.local_address
        self._is_started = True
        for image in list(self._unannounced.values()):
            self._announce(image)

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

    def image_by_session_id(self, session_id: SupportsIndex) -> Image | None:
        """Return the source with that session, if there is one.

        Raises:
            ConfigurationError: It is no whole number, or does not fit signed 32 bits.
        """
        session_id = check_session_id(session_id)
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
        await watched_wait(
            self, self._progress, lambda: bool(self._images), "wait_connected", timeout
        )

    def _watch_for_image(self) -> None:
        """Watch a wait that has no source to wait for; it ends with one, or with the wait."""
        if self._waits_since_ns is None:
            self._waits_since_ns = self._waits.now_ns()
        if self.logs_waits and not self._image_wait.is_watched:
            self._waits.begin(self._image_wait)

    def _waits_since(self) -> int | None:
        """Return since when a task waits for any source, in nanoseconds; None where none does."""
        return None if self._images else self._waits_since_ns

    def _explain(self) -> Why:
        """Return why the subscription waits; see `aeron_async.why`."""
        is_open = self._is_started and not self._is_closed
        seen = self._ready.seen() if is_open else SubscriptionSeen()
        seen = attrs.evolve(seen, last_error=self.last_error)
        stream = stream_named(self.channel, self.stream_id)
        return explain_subscription(stream, seen, is_closed=self._is_closed)

    def image_events(self) -> ImageEvents:
        """Return an iterator over images that come and go, those there already included."""
        events = ImageEvents(self._events, self)
        for image in self._images.values():
            events.put(ImageEvent(ImageEventKind.AVAILABLE, image))
        if self._is_closed:
            events.close()
        return events

    # Destinations.

    async def add_destination(self, channel: str | ChannelUri) -> int:
        """Receive at one more place, of a channel with `control-mode=manual`; return its id.

        Args:
            channel: Such as `aeron:udp?endpoint=127.0.0.1:20121`.

        Raises:
            ChannelUriError: The channel cannot be meant, or is no destination.
            RegistrationError: The subscription's channel takes none, or the socket cannot be had.
            ClosedError: The subscription was closed, before or meanwhile.
        """
        self._check_open()
        return await self._conductor.add_subscription_destination(
            self._ready.registration_id, destination_uri(channel, is_sent_to=False)
        )

    async def remove_destination(self, destination: str | ChannelUri | int) -> None:
        """Receive at a place no more.

        Args:
            destination: The channel that was added, or the id that adding it returned.

        Raises:
            RegistrationError: It is none of the subscription's destinations.
            ClosedError: The subscription was closed, before or meanwhile.
        """
        self._check_open()
        await self._conductor.remove_subscription_destination(
            self._ready.registration_id,
            destination
            if isinstance(destination, int)
            else destination_uri(destination, is_sent_to=False),
        )

    async def _reject_image(self, image: Image, reason: str) -> None:
        """Let an image take nothing more; see `Image.reject`."""
        self._check_open()
        await self._conductor.reject_image(image.image_id, check_reason(reason))

    @property
    def registration_id(self) -> int:
        """Return the id that a request for responses names this subscription by."""
        return self._ready.registration_id

    # Closing.

    def close(self) -> None:
        """Close now; whoever iterates comes to an end. Closing twice is closing once.

        Raises:
            WrongLoopError: The event loop it belongs to is not running here; it stays open.
        """
        if not self._is_closed:
            self._check_loop()
            self._mark_closed(None)
            self._conductor.release_subscription(self._ready.registration_id)

    async def aclose(self) -> None:
        """Close now; whoever iterates comes to an end. Closing twice is closing once.

        Raises:
            WrongLoopError: It belongs to another event loop; it stays open.
        """
        self.close()
        await asyncio.sleep(0)

    # What the driver says.

    def _add_image(self, ready: ImageReady) -> None:
        """Make an image; it is announced, and can be read, from the next turn of the loop on."""
        image = self._unannounced[ready.image_id] = self._make_image(ready)
        # Before the start there is nobody to tell: the driver answers with images already joined.
        if self._is_started:
            asyncio.get_running_loop().call_soon(self._announce, image)

    def _remove_image(self, image_id: int, end: ImageEnd | None = None) -> None:
        """Let go of an image."""
        unannounced = self._unannounced.pop(image_id, None)
        if unannounced is not None:
            unannounced._mark_closed(end)
        image = self._images.pop(image_id, None)
        if image is not None:
            if image in self._turn:
                self._turn.remove(image)
            self._retire(image, end)
            self._progress.ring()

    def _on_unanswered(self, reason: str | None) -> None:
        """Remember why nothing answers, and tell of it; None where something does again."""
        self.last_error = reason
        image = next(reversed(self._images.values()), self._last_image)
        if reason is not None and image is not None:
            self._put_event(ImageEventKind.UNANSWERED, image)

    def _on_driver_closed(self, error: Exception | None) -> None:
        """Close without asking the driver: it is gone."""
        self._mark_closed(error)

    def _announce(self, image: Image) -> None:
        """Tell of an image, and only then let it be read."""
        if self._unannounced.pop(image.image_id, None) is None:
            return
        self._images[image.image_id] = image
        self._last_image = self.last_error = None
        self._put_event(ImageEventKind.AVAILABLE, image)
        self._call(self._on_available_image, image)
        if image.is_closed:
            return
        self._turn.append(image)
        self._progress.ring()

    def _retire(self, image: Image, end: ImageEnd | None = None) -> None:
        """Close an image that was announced, and tell of it in the next turn of the loop."""
        if self._batch.image is image:
            self._batch.keep()
        image._mark_closed(end)
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

    def _mark_closed(self, because: Exception | None) -> None:
        self._is_closed = True
        self._closed_because = because
        # Messages know their image, and it its subscription: a circle that nobody else breaks.
        self._batch = NOTHING
        self._taken = self._last_image = None
        for image in self._unannounced.values():
            image._mark_closed()
        for image in self._images.values():
            self._retire(image)
        self._images.clear()
        self._unannounced.clear()
        self._turn.clear()
        for events in list(self._events):
            events.close()
        self._progress.ring()

    def _check_open(self) -> None:
        """Raise `ClosedError` where it is closed."""
        if self._is_closed:
            message = f"the subscription on {self.channel} stream {self.stream_id} is closed"
            raise ClosedError(message) from self._closed_because

    def _check_loop(self) -> None:
        if not self._home.is_here():
            message = f"{self!r} belongs to another event loop, or thread: use and close it there"
            raise WrongLoopError(message)

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
"""Messages in one list of `batches`, if nothing else is asked for."""
MESSAGES_PER_BATCH: Final = 1024
"""Messages that are read ahead at most; after them the loop has a turn in any case."""


@inheriting
@final
class Subscription(SubscriptionBase, ObjectReceiveStream[Message]):
    """One stream to receive; made by `Aeron.add_subscription`.

    One task at a time consumes it. While a task that iterates waits, or holds what it was given,
    another gets `BusyError`: at once if it iterates or polls, and where it calls `anext` itself, as
    soon as that needs another batch. It may follow when the first is done, or has used `poll` last,
    for then it holds nothing. Single calls of `anext` may come from any task, one after another.

    It is a stream of anyio's too, with `receive` for `anext`.
    """

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
        self._loop_turn = Turn(conductor.home.loop, conductor.clock)
        self._lent: Message | None = None
        self._is_waiting = False
        self._consumer: ref[asyncio.Task[Any]] | None = None

    if TYPE_CHECKING:

        async def __anext__(self) -> Message:
            """Return the next message, waiting for it; the iteration ends when this side closes.

            Raises:
                BusyError: Another task consumes the subscription.
                ClosedError: The driver failed.
                WrongLoopError: It belongs to another event loop.
            """

    def poll(self, handler: FragmentHandler, fragment_limit: int = 10) -> int:
        """Call a handler with fragments that are there, without waiting; return how many.

        A handler may close the subscription; it is then not called again.

        Args:
            handler: Called with the payload, a view that is valid until it returns, and a header
                that is the same object every time for one image.
            fragment_limit: Most fragments to deliver, over all images; 1 or more.

        Raises:
            ConfigurationError: The handler cannot be called or is an `async def`, or the limit is
                no whole number of 1 or more; nothing was taken.
            BusyError: Another task consumes the subscription.
            ClosedError: The subscription is closed.
            WrongLoopError: It belongs to another event loop.
        """
        self._check_open()
        if type(fragment_limit) is not int or fragment_limit < 1:
            fragment_limit = check_limit(fragment_limit, "fragment_limit")
        self._begin_poll()
        self._rotate()
        count = 0
        for image in list(self._turn):
            if count >= fragment_limit:
                break
            count += image.poll(handler, fragment_limit - count)
        if not self._turn:
            check_function(handler, "handler")
        return count

    def __aiter__(self) -> Self:
        self._begin_iteration()
        return self

    async def _anext_waiting(self) -> Message:
        """Return the next message, whatever it takes; see `__anext__`."""
        if self._batch.left and self._turn_budget <= 0 and not self._is_closed:
            await self._look()
        return await self._deliver(MESSAGES_PER_BATCH)

    async def _deliver(self, limit: int, only: Image | None = None) -> Message:
        """Return the next of the batch, or of another one; see `_next_batch`."""
        while True:
            batch = self._batch
            if not batch.left or self._is_closed or only not in (None, batch.image):
                await self._next_batch(limit, only)
                batch = self._batch
            elif self._taken is not None:
                self._taken.image._take(self._taken.position)
            message: Message | None = batch.following()
            if message is not None:
                self._turn_budget -= 1
                self._taken = message
                return message

    async def _look(self) -> None:
        """Give the loop a turn if it is time, or if the driver waits for it."""
        turn = self._loop_turn
        is_due = self._turn_budget < 0
        is_over = turn.is_over()
        self._turn_budget = turn.stride
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
        """Return the next message as `anext` does; for code that is written for anyio's streams.

        The end of one publication is not the end of the stream: others may come.

        Raises:
            EndOfStream: The subscription was closed meanwhile.
            ClosedResourceError: It was closed before.
            BrokenResourceError: The driver failed.
            BusyResourceError: Another task consumes the subscription.
        """
        await checkpoint_if_cancelled()
        try:
            self._check_open()
            return await self.__anext__()
        except StopAsyncIteration:
            raise EndOfStream from None
        except STREAM_ERRORS as error:
            raise as_anyio(error) from error

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return what `extra` can be asked for; see `AeronAttribute`."""
        return {
            AeronAttribute.channel: lambda: self.channel,
            AeronAttribute.stream_id: lambda: self.stream_id,
            AeronAttribute.local_address: lambda: self.local_address,
        }

    def batches(self, limit: int = MESSAGES_PER_LIST) -> AsyncIterator[list[Message]]:
        """Iterate over what has arrived, a list of up to `limit` messages of one image at a time.

        A list counts as taken, and the position moves, when this iterator is asked for the next
        one. A list whose loop body failed, or that was the last before leaving the loop, has not
        been taken: whoever reads next gets its messages again. Iterate over single messages where
        each must come once.

        Raises:
            ConfigurationError: The limit is not a whole number of 1 or more.
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: It belongs to another event loop.
        """
        return self._batches(check_limit(limit, "limit"))

    async def _batches(self, limit: int) -> AsyncIterator[list[Message]]:
        while True:
            try:
                await self._next_batch(limit)
            except StopAsyncIteration:
                return
            self._consumer = current_consumer()
            messages = self._batch.rest()
            if not messages:
                continue
            self._turn_budget -= len(messages)
            last = self._lent = messages[-1]
            yield messages
            # Somebody else may have read meanwhile, and has then put the list back.
            if self._lent is last:
                self._lent = None
                last.image._take(last.position)

    async def _next_of(self, image: Image) -> Message:
        """Return the next message of one image; see `Image.__anext__`."""
        if image.is_closed:
            await self._next_batch(MESSAGES_PER_LIST, image)
        return await self._deliver(MESSAGES_PER_LIST, image)

    def _begin_iteration(self) -> None:
        """Let this task be the one that consumes; see `Image.__aiter__`.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_consumer()
        self._consumer = current_consumer()

    def _check_consumer(self) -> None:
        """Refuse a task while another consumes the subscription.

        Raises:
            BusyError: Another task waits for a message, or holds what it was given.
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
        message = (
            f"another task consumes the subscription on {self.channel} stream {self.stream_id}: "
            "one task consumes it, may hand messages to others, and is followed when it is done"
        )
        raise BusyError(message)

    def _begin_poll(self) -> None:
        """Take what was delivered last, and put back what was lent or only read ahead.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._check_loop()
        consumer = None if self._consumer is None else self._consumer()
        is_ours = consumer is not None and consumer is asyncio.current_task(self._home.loop)
        if self._is_waiting or not is_ours:
            self._check_consumer()
        if self._taken is not None:
            self._taken.image._take(self._taken.position)
            self._taken = None
        if self._lent is not None:
            self._lent.image._rewind()
            self._lent = None
        if self._batch.left and self._batch.image is not None:
            self._batch.image._rewind()
        self._batch = NOTHING
        if not is_ours:
            self._consumer = None

    async def _next_batch(self, limit: int, only: Image | None = None) -> None:
        """Read more, waiting for it.

        Args:
            limit: Most messages to read.
            only: The image to read from; all in turn when not given.

        Raises:
            StopAsyncIteration: There is no more to come.
        """
        self._begin_poll()
        self._is_waiting = True
        try:
            if self._turn_budget <= 0:
                await self._look()
            self._rotate()
            while not self._is_over(only):
                for image in self._turn if only is None else (only,):
                    batch = image._read(limit)
                    if batch is not None:
                        self._batch = batch
                        return
                # Reading nothing may still have passed the padding before the end of a stream.
                if not self._is_over(only):
                    if self._images:
                        self._waits_since_ns = None
                    else:
                        self._watch_for_image()
                    await self._progress.wait()
        finally:
            self._is_waiting = False
            self._waits_since_ns = None
        if self._closed_because is not None:
            self._check_open()
        raise StopAsyncIteration

    def _make_image(self, ready: ImageReady) -> Image:
        return Image(self, ready)

    def _is_over(self, only: Image | None) -> bool:
        """Return whether nothing more is to come: of one image, or of all."""
        if only is not None and (only.is_closed or only.is_end_of_stream):
            return True
        return self._is_closed

    def _rotate(self) -> None:
        """Let another image be the first, so that none starves the others."""
        turn = self._turn
        if len(turn) > 1:
            turn.append(turn.pop(0))


def current_consumer() -> ref[asyncio.Task[Any]] | None:
    """Return the running task, weakly: nobody else may keep it once it is done."""
    task = asyncio.current_task()
    return None if task is None else ref(task)
