"""The newest values that wait for a slow reader, by key, and what was skipped of each key.

Every value of a source passes `put_all`, and nearly all of them only replace an older one. So that
takes one look-up: what was skipped of a key is counted where its value waits, and added to the
counts of all keys when it leaves.

Compiled, the messages of a batch are not made if a slice of the payload is the key and nothing is
merged: the newest one of each key is copied from the log, and made when it is taken.

Invariant: a key that waits has one place in the line, and keeps it when its value is replaced.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, final

from aeron_async._speedups import WHY_PURE
from aeron_async.client.waiters import Notify
from aeron_async.errors import TooManyKeysError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from aeron_async.logbuffer.message import Batch

__all__ = ["KeepingNewest", "Waiting"]

ValueT = TypeVar("ValueT")


def cut_by(place: slice) -> Callable[[Any], bytes]:
    """Return a function that returns the bytes of a payload that are the key."""
    return lambda value: bytes(value.data[place])


class KeptValue:
    """A value that waits.

    Attributes:
        key: Its key.
        value: The newest one.
        count: How many were skipped since the key waits.
        is_counted: Whether they are counted by key, too.
    """

    __slots__ = ("count", "is_counted", "key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        self.key = key
        self.value = value
        self.count = 0
        self.is_counted = False


class KeepingNewest:
    """The part of the values that wait that is compiled.

    Args:
        key: Returns the key of a value; or the slice of its payload that is the key.
        merge: Returns what waits instead of a value and a newer one; None for the newer one.
        max_keys: Most keys that wait at once, and of which is counted what was skipped.
        drops_oldest: Whether what waited for the longest makes room; else nothing does.

    Attributes:
        waiting: How many keys have a value that waits.
        skipped: Values that were replaced, merged or dropped.
        merged: Those that were merged.
        dropped: Those that were dropped.
    """

    def __init__(
        self,
        key: Callable[[Any], Hashable] | slice,
        merge: Callable[[Any, Any], Any] | None,
        *,
        max_keys: int,
        drops_oldest: bool,
    ) -> None:
        self._key = cut_by(key) if isinstance(key, slice) else key
        self._merge = merge
        self._max_keys = max_keys
        self._drops_oldest = drops_oldest
        self._entries: dict[Hashable, KeptValue] = {}
        # Not the order of the dictionary: finding its first entry takes a step for each entry
        # removed before it.
        self._line: deque[KeptValue] = deque()
        self._skipped_of: dict[Hashable, int] = {}
        self.skipped = self.merged = self.dropped = 0

    @property
    def waiting(self) -> int:
        """Return how many keys have a value that waits."""
        return len(self._entries)

    def put_all(self, values: Iterable[Any]) -> None:
        """Keep the newest value of each key.

        Raises:
            TooManyKeysError: A key is new, and there is no room.
            Exception: What `key` or `merge` has raised.
        """
        entries, key_of, merge = self._entries, self._key, self._merge
        for value in values:
            key = key_of(value)
            entry = entries.get(key)
            if entry is None:
                if len(entries) >= self._max_keys:
                    self._make_room(key)
                entry = entries[key] = KeptValue(key, value)
                self._line.append(entry)
                continue
            if merge is None:
                entry.value = value
            else:
                entry.value = merge(entry.value, value)
                self.merged += 1
            self._count(entry)

    def put_batch(self, batch: Batch[Any]) -> None:
        """Keep the newest message of each key; the batch stays as it is.

        Raises:
            TooManyKeysError: A key is new, and there is no room.
            Exception: What `key` or `merge` has raised.
        """
        self.put_all(batch.again().rest())

    def take_first(self) -> Any:
        """Return the value that has waited for the longest, and forget it.

        Raises:
            IndexError: None waits.
        """
        entry = self._line.popleft()
        del self._entries[entry.key]
        self._let_go(entry)
        return entry.value

    def take(self, limit: int) -> list[Any]:
        """Return the values that have waited for the longest, at most so many, and forget them."""
        return [self.take_first() for _ in range(min(limit, len(self._line)))]

    def take_all(self) -> list[Any]:
        """Return all values, in the order in which their keys first changed, and forget them."""
        found = [entry.value for entry in self._line]
        self.clear()
        return found

    def clear(self) -> None:
        """Forget the values that wait."""
        for entry in self._line:
            self._let_go(entry)
        self._line.clear()
        self._entries.clear()

    def skipped_of(self, key: Hashable) -> int | None:
        """Return how many values of a key were skipped; None if they are not counted by key."""
        count = self._skipped_of.get(key)
        if count is None:
            return 0 if len(self._skipped_of) < self._max_keys else None
        entry = self._entries.get(key)
        return count if entry is None else count + entry.count

    def _make_room(self, key: Hashable) -> None:
        if not self._drops_oldest:
            self._refuse(key)
        oldest = self._line.popleft()
        del self._entries[oldest.key]
        self.dropped += 1
        self._count(oldest)
        self._let_go(oldest)

    def _count(self, entry: KeptValue) -> None:
        self.skipped += 1
        if not entry.count:
            counts = self._skipped_of
            entry.is_counted = entry.key in counts or len(counts) < self._max_keys
            if entry.is_counted:
                counts.setdefault(entry.key, 0)
        entry.count += 1

    def _let_go(self, entry: KeptValue) -> None:
        if entry.is_counted:
            self._skipped_of[entry.key] += entry.count

    def _refuse(self, key: Hashable) -> NoReturn:
        """Refuse a new key."""
        raise NotImplementedError


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.conflating import KeepingNewest


@final
class Waiting(KeepingNewest, Generic[ValueT]):
    """The values that wait, by key, and what was skipped.

    Attributes:
        arrived: Notified when values have come, or no more do.
        failure: What ended the source; raised once.
        is_over: Whether no more values come.
    """

    def __init__(
        self,
        key: Callable[[ValueT], Hashable] | slice,
        merge: Callable[[ValueT, ValueT], ValueT] | None,
        *,
        max_keys: int,
        drops_oldest: bool,
    ) -> None:
        super().__init__(key, merge, max_keys=max_keys, drops_oldest=drops_oldest)
        self.arrived = Notify()
        self.failure: BaseException | None = None
        self.is_over = False

    def _refuse(self, key: Hashable) -> NoReturn:
        message = (
            f"key {key!r:.200} is new, and {self._max_keys} keys wait, which is the limit: "
            'read faster, raise max_keys, or drop the oldest with on_full="oldest"'
        )
        raise TooManyKeysError(message)
