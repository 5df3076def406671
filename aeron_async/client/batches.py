"""The iterator over batches of messages that `Subscription.batches` returns.

It names neither subscriptions nor images: no three modules are to need each other.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, final

from aeron_async.client.home_loop import current_consumer
from aeron_async.client.reading import NOTHING
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from weakref import ref

    from aeron_async.client.home_loop import HomeLoop
    from aeron_async.logbuffer.message import Batch

__all__ = ["Batches"]

ENDED: Final = "no more batches: the iterator was closed by its aclose()"


class Lent(Protocol):
    """The part of a batch of messages that is needed here."""

    image: Any

    def __len__(self) -> int: ...

    def _extend(self, more: Batch[Any], /) -> bool: ...

    def _length(self) -> int: ...

    def _put_back(self) -> None: ...

    def _take(self) -> bool: ...


LentT = TypeVar("LentT", bound=Lent)


class Lending(Protocol[LentT]):
    """The part of a subscription that lends batches."""

    _batch: Batch[Any]
    _calls_until_check: int
    _check_served: Callable[[], object] | None
    _consumer: ref[asyncio.Task[Any]] | None
    _home: HomeLoop
    _is_closed: bool
    _is_waiting: bool
    _lent: LentT | None

    def _check_loop(self) -> None: ...

    def _count_list(self, count: int, length: int, /) -> None: ...

    def _read_list_fast(self, limit: int, max_bytes: int, /) -> Batch[Any] | None: ...

    async def _next_batch(self, limit: int, *, max_bytes: int) -> None: ...

    async def _wait_for_progress(self) -> None: ...


@final
class Batches(AsyncIterator[LentT], Generic[LentT]):
    """What `Subscription.batches` returns; to end it early, use `async with` or `aclose`.

    Args:
        subscription: Whose messages to deliver.
        lend: Makes what is delivered of what was read.
        max_messages: Most messages in a batch.
        max_bytes: Most bytes of the log in a batch, but for a longer message.
        linger_ns: How long to wait for more messages, in nanoseconds.
    """

    __slots__ = (
        *("_is_ended", "_lend", "_lent", "_linger_ns", "_max_bytes", "_max_messages"),
        *("_subscription", "_waiting_count"),
    )

    def __init__(
        self,
        subscription: Lending[LentT],
        lend: Callable[[Batch[Any]], LentT],
        *,
        max_messages: int,
        max_bytes: int,
        linger_ns: int,
    ) -> None:
        self._subscription = subscription
        self._lend = lend
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._linger_ns = linger_ns
        self._lent: LentT | None = None
        self._is_ended = False
        self._waiting_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LentT:
        """Take the last batch, and return the next one, waiting for messages.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        subscription = self._subscription
        if not subscription._home.is_here():
            subscription._check_loop()
        if self._is_ended:
            raise StopAsyncIteration(ENDED)
        self._take_last()
        task, consumer, batch = None, subscription._consumer, None
        if consumer is not None:
            task = current_task(subscription._home.loop)
            if task is not None and consumer() is task and subscription._lent is None:
                batch = subscription._read_list_fast(self._max_messages, self._max_bytes)
        if batch is None or self._linger_ns:
            lent = await self._wait(batch)
        else:
            lent = subscription._lent = self._lend(batch)
        if task is None or consumer is None or consumer() is not task:
            subscription._consumer = current_consumer()
        subscription._count_list(len(lent), lent._length())
        self._lent = lent
        return lent

    def take(self) -> None:
        """Take the last batch now, as asking for the next one does: it does not come again.

        For a loop that ends with this batch. From then on the batch refuses everything but its
        length. Without a batch to take, nothing happens.

        Raises:
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        if not self._subscription._home.is_here():
            self._subscription._check_loop()
        self._take_last()

    def _take_last(self) -> None:
        """Take the last batch, unless another task has read since and has put it back."""
        subscription = self._subscription
        lent, self._lent = self._lent, None
        if lent is None or subscription._lent is not lent:
            return
        if subscription._check_served is not None:
            subscription._check_served()
        subscription._lent = None
        if lent._take():
            # The driver has work to do, and can do it only when the loop runs other tasks.
            subscription._calls_until_check = -1

    async def aclose(self) -> None:
        """End the iteration now; a last batch that was not taken comes again for the next reader.

        Another task may read at once. Closing twice does nothing.

        Raises:
            BusyError: A task waits for the next batch.
            WrongLoopError: The subscription belongs to another event loop.
        """
        subscription = self._subscription
        if not subscription._home.is_here():
            subscription._check_loop()
        if self._waiting_count:
            message = "a task waits for the next of these batches: cancel it, and close them then"
            raise BusyError(message)
        self._is_ended = True
        lent, self._lent = self._lent, None
        if lent is not None and self._give_back(lent):
            subscription._consumer = None
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _give_back(self, lent: LentT) -> bool:
        """Leave a batch to the next reader; return False if it was taken or given back before."""
        subscription = self._subscription
        if subscription._lent is not lent:
            return False
        lent._put_back()
        subscription._lent = None
        return True

    async def _wait(self, batch: Batch[Any] | None) -> LentT:
        """Return the next batch, waiting for messages if none were read, and then for more."""
        subscription = self._subscription
        self._waiting_count += 1
        try:
            if batch is None:
                await subscription._next_batch(self._max_messages, max_bytes=self._max_bytes)
                batch, subscription._batch = subscription._batch, NOTHING
            lent = subscription._lent = self._lend(batch)
            if self._linger_ns:
                try:
                    await self._linger(lent)
                except BaseException:
                    # It was not delivered.
                    self._give_back(lent)
                    raise
        finally:
            self._waiting_count -= 1
        return lent

    async def _linger(self, lent: LentT) -> None:
        """Add messages that come within a time to a batch, until it is full."""
        subscription, image = self._subscription, lent.image
        end_position = image.position + self._max_bytes
        subscription._is_waiting = True
        try:
            async with asyncio.timeout(self._linger_ns / NS_PER_SECOND):
                while (room := self._max_messages - len(lent)) > 0 and not image.is_closed:
                    more = image._read_on(room, end_position)
                    if more is None:
                        await subscription._wait_for_progress()
                    elif not lent._extend(more):
                        break
        except TimeoutError:
            pass
        finally:
            subscription._is_waiting = False
        if subscription._is_closed:
            # What was not delivered by then never is; this ends the iteration, or says why it ends.
            await subscription._next_batch(self._max_messages, max_bytes=self._max_bytes)
