"""Conflation: the newest value of each key, for a reader that may be slower than its source.

A task of the iterator reads the source as fast as values arrive and keeps the newest value of each
key. So the source is not held back, and the reader gets each key at most once between two looks.

It works only while the event loop runs. A reader that is slow because it awaits leaves the loop to
the task. A reader that blocks the loop stops the task too, and the stream is run over: such a
reader belongs into a process or a thread of its own.

Invariant: a key that waits has one place in the line, and keeps it when its value is replaced. So
the wait of a key is bounded by the number of keys, however often other keys change.

Source: none of Aeron's; conflating queues as in tools4j `nobark`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar, final
from weakref import finalize

from aeron_async.client.arguments import check_limit
from aeron_async.client.batches import Batches
from aeron_async.client.newest_values import Waiting
from aeron_async.errors import BusyError, ConfigurationError
from aeron_async.protocol.arguments import check_function, check_number
from aeron_async.protocol.units import INT32_MAX, INT64_MAX
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Hashable, Iterable
    from types import TracebackType

__all__ = ["Latest", "OnFull", "Taken"]

ValueT = TypeVar("ValueT")

OnFull = Literal["raise", "oldest"]
"""What happens to a new key while as many wait as may: an error, or the oldest one is dropped."""
ON_FULL: Final = ("raise", "oldest")
MAX_KEYS: Final = 100_000
"""Most keys that wait at once, by default."""


class Taken(Protocol):
    """What an iterator over batches may have: it takes the last batch before the next is asked."""

    def take(self) -> None:
        """Take the last batch."""
        ...


def check_key(key: object) -> None:
    """Refuse what can be no key.

    Raises:
        ConfigurationError: It is neither a function nor a slice with both ends.
    """
    if not isinstance(key, slice):
        check_function(key, "key")
        return
    begin = check_number(key.start, "key.start", minimum=0, maximum=INT32_MAX)
    check_number(key.stop, "key.stop", minimum=begin + 1, maximum=INT32_MAX)
    if key.step is not None:
        message = f"key has a step of {key.step!r:.100}: bytes in a row are a key"
        raise ConfigurationError(message)


async def pump(source: AsyncIterable[Iterable[Any]], waiting: Waiting[Any]) -> None:
    """Put everything that a source yields into the line, until it ends or fails."""
    iterator = source.__aiter__()
    take = getattr(iterator, "take", None)
    # A subscription lets others run when its turn is over, which is not with every batch.
    is_yielding = isinstance(iterator, Batches)
    try:
        while True:
            try:
                batch = await anext(iterator)
            except StopAsyncIteration:
                break
            lying = getattr(batch, "_lying", None)
            if lying is not None:
                waiting.put_batch(lying())
            else:
                # A slice of a sequence takes one call; iterating over values takes one for each.
                waiting.put_all(batch[:] if isinstance(batch, Sequence) else batch)
            if take is not None:
                # What is kept here must not come again for another reader.
                take()
            waiting.arrived.notify()
            if not is_yielding:
                # Other sources may never wait, and the reader must have its turn.
                await asyncio.sleep(0)
    except Exception as error:  # noqa: BLE001 - it reaches the reader
        waiting.failure = error
    finally:
        waiting.is_over = True
        waiting.arrived.notify()
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


@final
class Latest(AsyncIterator[ValueT], Generic[ValueT]):
    """The newest value of each key that has changed, in the order of first change.

    `Subscription.latest` makes one over its messages; this class takes any source. The source is
    read from `async with`, or from the first value asked for, until `aclose`, or until the iterator
    is no longer referenced. It is read also while the caller awaits something else.

    After the source has ended, the values that wait are delivered, and the iteration ends. An error
    of the source, of `key` or of `merge` is raised at once, in place of the next value.

    Args:
        source: Yields batches: any iterables of values. If its iterator has `aclose`, that is
            called at the end; if it has `take`, after each batch that was kept.
        key: Returns the key of a value; must be quick, and may be called for each value there is.
            A slice with both ends, such as `slice(8, 16)`, takes these bytes of its payload `data`,
            or those of them that it has; that costs less than a function.
        merge: Called with the value that waits and a newer one of the same key; returns what waits
            from then on. None replaces the older one, which is wrong for values that are changes.
        max_keys: Most keys that wait at once.
        on_full: "raise" ends the iteration with `TooManyKeysError`, "oldest" drops what has waited
            for the longest.

    Raises:
        ConfigurationError: An argument is not valid.
    """

    def __init__(
        self,
        source: AsyncIterable[Iterable[ValueT]],
        *,
        key: Callable[[ValueT], Hashable] | slice,
        merge: Callable[[ValueT, ValueT], ValueT] | None = None,
        max_keys: int = MAX_KEYS,
        on_full: OnFull = "raise",
    ) -> None:
        check_key(key)
        if merge is not None:
            check_function(merge, "merge")
        if on_full not in ON_FULL:
            message = f'on_full is {on_full!r:.100}: "raise" or "oldest" is valid'
            raise ConfigurationError(message)
        self._source = source
        self._waiting: Waiting[ValueT] = Waiting(
            key,
            merge,
            max_keys=check_number(max_keys, "max_keys", minimum=1, maximum=INT64_MAX),
            drops_oldest=on_full == "oldest",
        )
        self._tasks = TaskOwner()
        self._is_started = self._is_closed = self._is_asked = False
        # The task refers to the values that wait, and not to this object.
        finalize(self, self._tasks.cancel).atexit = False

    @property
    def skipped(self) -> int:
        """Return how many values were never delivered by themselves: a newer one came before.

        Values that were merged into a newer one count, and those that `on_full` has dropped.
        """
        return self._waiting.skipped

    @property
    def merged(self) -> int:
        """Return how many of the skipped values were merged into a newer one, and not lost."""
        return self._waiting.merged

    @property
    def dropped(self) -> int:
        """Return how many of the skipped values were dropped, with their key, for lack of room."""
        return self._waiting.dropped

    @property
    def waiting(self) -> int:
        """Return how many keys have a value that waits."""
        return self._waiting.waiting

    def skipped_of(self, key: Hashable) -> int | None:
        """Return how many values of one key were skipped.

        None if that is not known: counts are kept of the first `max_keys` keys that had any.
        """
        return self._waiting.skipped_of(key)

    def take_all(self) -> list[ValueT]:
        """Return all values that wait, without waiting for any: of each key the newest.

        Raises:
            Exception: What has ended the source, once.
        """
        self._start()
        self._raise_failure()
        return self._waiting.take_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ValueT:
        """Wait for a value, and return the one whose key has waited for the longest.

        Raises:
            BusyError: Another task waits for the next value.
            Exception: What has ended the source, once.
        """
        waiting = self._waiting
        if not waiting.waiting or waiting.failure is not None:
            await self._wait()
            if not waiting.waiting:
                raise StopAsyncIteration
        value: ValueT = waiting.take_first()
        return value

    async def take(self, limit: int) -> list[ValueT]:
        """Wait for a value, and return all that wait by then, at most so many.

        Those whose keys have waited for the longest come first. The list is empty only after the
        end of the source, and after `aclose`. A call for many values costs much less than one for
        each of them. A task that is cancelled while it waits loses no value.

        Args:
            limit: Most values; 1 or more.

        Raises:
            ConfigurationError: The limit is not a whole number, or too small.
            BusyError: Another task waits for the next value.
            Exception: What has ended the source, once.
        """
        limit = min(check_limit(limit, "limit"), INT64_MAX)
        waiting = self._waiting
        if not waiting.waiting or waiting.failure is not None:
            await self._wait()
        return waiting.take(limit)

    async def _wait(self) -> None:
        """Wait until a value waits, or none will come; raise what has ended the source."""
        waiting = self._waiting
        self._start()
        if not waiting.waiting and not waiting.is_over and not self._is_closed:
            if self._is_asked:
                message = "another task waits for the next value: one task at a time may"
                raise BusyError(message)
            self._is_asked = True
            try:
                while not waiting.waiting and not waiting.is_over and not self._is_closed:
                    await waiting.arrived.wait()
            finally:
                self._is_asked = False
        self._raise_failure()

    def _start(self) -> None:
        if not self._is_started and not self._is_closed:
            self._is_started = True
            self._tasks.start(pump(self._source, self._waiting), "aeron-latest")

    def _raise_failure(self) -> None:
        failure, self._waiting.failure = self._waiting.failure, None
        if failure is not None:
            self._waiting.clear()
            raise failure

    async def aclose(self) -> None:
        """Read the source no more, and drop the values that wait; the iteration ends."""
        self._is_closed = True
        self._waiting.clear()
        self._waiting.arrived.notify()
        await self._tasks.aclose()

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Latest: {self.waiting} keys wait, {self.skipped} values skipped>"
