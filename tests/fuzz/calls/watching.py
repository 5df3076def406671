"""Calls of the thread that watches words: armed, removed and closed in any order."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

watching: Final = compiled("watching")

LENGTH: Final = 256
MOST_WORDS: Final = 80
"""More than the first chunk of slots has."""
OPTIONS: Final = {
    "max_spins": 0,
    "max_yields": 2,
    "min_nap_ns": 1_000,
    "max_nap_ns": 100_000,
    "silent_nap_ns": 0,
    "silence_ns": 0,
    "pauses": False,
    "word_limit": MOST_WORDS,
}


class Memory(bytearray):
    """Memory that does something when nothing holds it any more."""

    values: Values

    def __del__(self) -> None:
        self.values.interrupt()


class Held:
    """A thread and its words, which every round uses or replaces."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.memory = array("i", bytes(LENGTH))
        self.at = values.mixed(lambda: values.rng.randrange(0, LENGTH, 8), values.any_number)
        self.near = values.mixed(lambda: values.rng.randrange(-8, LENGTH + 8), self.at)
        self.words: list[Any] = []
        self.thread: Any = watching.WatchThread(**OPTIONS)
        values.hook = self.interrupt

    def __del__(self) -> None:
        self.v.hook = int
        self.thread.close()

    def interrupt(self) -> None:
        """Remove a word in the middle of a call, or all of them."""
        if self.v.flag():
            self.words.clear()
        elif self.v.flag():
            self.drop()
        else:
            self.thread.close()

    def one(self) -> Any:
        return self.v.rng.choice(self.words)

    def make(self) -> None:
        """Make a thread, which takes long."""
        if self.v.rng.randrange(64):
            return
        options = dict(OPTIONS)
        if self.v.rarely():
            options[self.v.rng.choice(list(options))] = self.v.any_number()
        self.thread.close()
        self.words.clear()
        self.thread = watching.WatchThread(**options)

    def add(self) -> None:
        source: Any = self.memory if self.v.flag() else self.v.buffer()
        if self.v.rarely():
            source = Memory(LENGTH)
            source.values = self.v
        width = self.v.rng.choice((32, 64, 64, 16)) if self.v.flag() else self.v.number()
        at = self.at() if self.v.flag() else self.near()
        word = self.thread.add(source, at, width, self.call_back, is_command=self.v.flag())
        self.words.append(word)

    def call_back(self) -> None:
        match self.v.rng.randrange(16):
            case 0:
                self.v.hook()
            case 1:
                raise ValueError
            case 2:
                self.one().arm(self.v.word())
            case _:
                pass

    def on_error(self, _: Exception) -> None:
        if self.v.rarely():
            raise KeyError

    def arm(self) -> None:
        self.one().arm(self.v.rng.choice((0, 0, 1)) if self.v.flag() else self.v.word())

    def arm_at_least(self) -> None:
        self.one().arm_at_least(self.v.rng.choice((0, 3)) if self.v.flag() else self.v.word())

    def disarm(self) -> None:
        self.one().disarm()

    def remove(self) -> None:
        self.one().remove()

    def drop(self) -> None:
        """Let go of a word that is not removed."""
        if self.words:
            self.words.pop(self.v.rng.randrange(len(self.words)))

    def dispatch(self) -> None:
        self.thread.dispatch(self.on_error)

    def store(self) -> None:
        self.memory[self.v.rng.randrange(len(self.memory))] = self.v.rng.randrange(5)

    def use_bell(self) -> None:
        if self.v.rarely():
            source = self.memory if self.v.flag() else self.v.buffer()
            self.thread.use_bell(source, self.near(), self.near(), 1_000)

    def keep_bell(self) -> None:
        self.thread.keep_bell(self.v.number())

    def close(self) -> None:
        if self.v.rarely():
            self.thread.close()

    def read(self) -> None:
        for name in dir(type(self.thread)):
            if name.startswith(("is_", "word_", "nap_", "last_")):
                getattr(self.thread, name)
        self.thread.fileno()


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    return {
        each.__name__: each
        for each in (
            *(held.make, held.add, held.arm, held.arm_at_least, held.disarm, held.remove),
            *(held.drop, held.dispatch, held.store, held.use_bell, held.keep_bell, held.close),
            held.read,
        )
    }
