"""Calls of what keeps the newest values, whose keys and functions do anything meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

conflating: Final = compiled("conflating")
messages: Final = compiled("messages")
Message: Final = messages.Message
MOST: Final = 40


class Keeping(conflating.KeepingNewest):  # type: ignore[misc,name-defined] # without types
    """What keeps values, and may let a key in that it should refuse."""

    def _refuse(self, key: Any) -> None:
        if isinstance(key, bytes):
            self.disturb()
        elif key % 4:
            raise OverflowError

    disturb: Any = staticmethod(int)


class Key:
    """A key that does something when it is compared."""

    def __init__(self, values: Values, number: int) -> None:
        self._values = values
        self._number = number

    def __hash__(self) -> int:
        return self._number % 5

    def __eq__(self, other: object) -> bool:
        if self._values.rarely():
            self._values.hook()
        return isinstance(other, Key) and other._number == self._number

    def __mod__(self, other: int) -> int:
        return self._number % other


class Source:
    """A source of messages, which does something when it is freed."""

    session_id = 1
    stream_id = 2

    def __init__(self, values: Values) -> None:
        self._values = values

    def __del__(self) -> None:
        self._values.interrupt()


class Kept:
    """What every round uses or replaces."""

    kept: Any
    batch: Any = None

    def __init__(self, values: Values) -> None:
        self.v = values
        values.hook = self.disturb
        self.make()

    def disturb(self) -> None:
        """Change what waits."""
        act = self.v.rng.choice(("clear", "take_all", "take_first", "__init__", "batch", "keep"))
        if act == "__init__":
            self.kept.__init__(self.key_of, None, max_keys=self.v.rng.randrange(9), drops_oldest=1)
        elif act == "batch":
            self.put_batch()
        elif act == "keep":
            if self.batch is not None:
                self.batch.keep()
        elif act != "take_first" or self.kept.waiting:
            getattr(self.kept, act)()

    def make(self) -> None:
        v = self.v
        functions = (None, self.merge, self.merge, v.anything() if v.rarely() else None)
        self.kept = Keeping(
            self.key_of if v.flag() else self.place(),
            v.rng.choice(functions),
            max_keys=v.rng.randrange(1, 12),
            drops_oldest=v.flag(),
        )
        self.kept.disturb = v.interrupt

    def make_by_slice(self) -> None:
        v = self.v
        self.kept = Keeping(
            self.place(), None, max_keys=v.rng.randrange(1, 90), drops_oldest=v.flag()
        )
        self.kept.disturb = v.interrupt

    def put_batch(self) -> None:
        """Put messages that lie in a log, or that once did."""
        v = self.v
        if self.batch is None or v.flag():
            where = (v.buffer(), None, None, v.offset(), v.limit(), v.position())
            self.batch = messages.open_batch(*where, v.number(), self.source())[0]
        if v.rarely():
            self.batch.keep()
        self.kept.put_batch(v.anything() if v.rarely() else self.batch)

    def source(self) -> Any:
        """Return an image, or anything; a cycle is found by the garbage collector."""
        source: Any = Source(self.v)
        if self.v.flag():
            source.itself = source
        elif self.v.flag():
            source.kept = self.kept
        return self.v.rng.choice((source, source, source, 1, ()))

    def take(self) -> None:
        number = self.v.rng.randrange(-1, 9)
        self.kept.take(self.v.anything() if self.v.rarely() else number)

    def place(self) -> slice:
        begin = self.v.rng.randrange(9)
        return slice(begin, begin + self.v.rng.randrange(9))

    def message(self) -> Any:
        if self.v.rarely():
            return Message.__new__(Message)
        return Message(bytes(self.v.rng.randrange(12)), 0, 0, None)

    def put_messages(self) -> None:
        self.kept.put_all([self.message() for _ in range(self.v.rng.randrange(MOST))])

    def key_of(self, value: Any) -> Any:
        if self.v.rarely():
            self.v.interrupt()
        if self.v.rarely():
            raise ValueError
        return Key(self.v, value) if self.v.flag() else value

    def merge(self, older: int, newer: int) -> int:
        if self.v.rarely():
            self.v.interrupt()
        return older + newer

    def some(self) -> Any:
        rng = self.v.rng
        made = [rng.randrange(20) for _ in range(rng.randrange(MOST))]
        return self.v.anything() if self.v.rarely() else made

    def put_all(self) -> None:
        self.kept.put_all(self.some())

    def take_first(self) -> None:
        self.kept.take_first()

    def take_all(self) -> None:
        self.kept.take_all()

    def clear(self) -> None:
        self.kept.clear()

    def skipped_of(self) -> None:
        key = self.v.rng.randrange(20)
        if self.v.flag():
            self.kept.skipped_of(bytes(key))
        self.kept.skipped_of(self.v.anything() if self.v.rarely() else Key(self.v, key))

    def waiting(self) -> int:
        return int(self.kept.waiting + self.kept.skipped)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    kept = Kept(values)
    acts = (
        *(kept.make, kept.make_by_slice, kept.put_all, kept.put_messages, kept.put_batch),
        *(kept.take_first, kept.take, kept.take_all, kept.clear, kept.skipped_of, kept.waiting),
    )
    return {each.__name__: each for each in acts}
