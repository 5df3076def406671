"""Subscriptions: where messages come from.

`async for` walks through what has arrived without suspending, one small object a message, and gives
the loop a turn after every batch. Each step says that the message before it has been taken, and
moves that image's position: a slow loop body slows the publisher, and nothing is lost.

Invariant: what was read beyond the position belongs to one task, and is read again when another
takes over.

Source: Aeron `Subscription`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, final
from weakref import ref

from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async.client.arguments import check_limit
from aeron_async.client.image import Image
from aeron_async.client.message import Message
from aeron_async.client.streams import STREAM_ERRORS, AeronAttribute, as_anyio
from aeron_async.client.subscription_base import SubscriptionBase
from aeron_async.client.turn import Turn
from aeron_async.errors import BusyError
from aeron_async.kernel import NOTHING, inheriting
from aeron_async.protocol.arguments import check_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import FragmentHandler
    from aeron_async.client.subscription_base import ImageHandler
    from aeron_async.driver.commands import ImageReady
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Subscription"]

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
        aeron: Aeron,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_available_image: ImageHandler | None,
        on_unavailable_image: ImageHandler | None,
    ) -> None:
        super().__init__(
            aeron,
            uri,
            stream_id,
            on_available_image=on_available_image,
            on_unavailable_image=on_unavailable_image,
        )
        self._loop_turn = Turn(aeron.home.loop, aeron.clock)
        self._lent: Message | None = None
        self._is_waiting = False
        self._consumer: ref[asyncio.Task[Any]] | None = None

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
        self.check_open()
        if type(fragment_limit) is not int or fragment_limit < 1:
            fragment_limit = check_limit(fragment_limit, "fragment_limit")
        self.begin_poll()
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
        self.begin_iteration()
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
                self._taken.image.take(self._taken.position)
            message = batch.following()
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
                self._taken.image.look_up_trigger()

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
            self.check_open()
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
                last.image.take(last.position)

    async def next_of(self, image: Image) -> Message:
        """Return the next message of one image; see `Image.__anext__`."""
        if image.is_closed:
            await self._next_batch(MESSAGES_PER_LIST, image)
        return await self._deliver(MESSAGES_PER_LIST, image)

    def begin_iteration(self) -> None:
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

    def begin_poll(self) -> None:
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
            self._taken.image.take(self._taken.position)
            self._taken = None
        if self._lent is not None:
            self._lent.image.rewind()
            self._lent = None
        if self._batch.left and self._batch.image is not None:
            self._batch.image.rewind()
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
        self.begin_poll()
        self._is_waiting = True
        try:
            if self._turn_budget <= 0:
                await self._look()
            self._rotate()
            while not self._is_over(only):
                for image in self._turn if only is None else (only,):
                    batch = image.read(limit)
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
            self.check_open()
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
