"""Calls of what reads messages, and batches that are used in any order."""

from __future__ import annotations

import copy
import gc
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import DifferenceError, damage
from tests.twins import compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

messages: Final = compiled("messages")

BATCHES: Final = 4


class Image:
    """A source of messages, which does something when it is freed."""

    session_id = 1
    stream_id = 2

    def __init__(self, values: Values) -> None:
        self._values = values

    def __del__(self) -> None:
        self._values.interrupt()


class Held:
    """Batches and a message, which every round uses or replaces."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.image = Image(values)
        self.batches: list[Any] = []
        self.list: list[Any] = []
        self.message: Any = messages.Message(b"data", 0, 0, self.image)
        self.batches = [messages.Batch([], None) for _ in range(BATCHES)]
        values.hook = self.interrupt

    def interrupt(self) -> None:
        """Do what the end of an image does, or anything else, in the middle of a call."""
        if self.v.flag():
            self.one().keep()
        elif self.v.flag():
            self.one().rest()
        else:
            del self.list[:]

    def one(self) -> Any:
        return self.v.rng.choice(self.batches)

    def put(self, batch: Any) -> None:
        self.batches[self.v.rng.randrange(BATCHES)] = batch

    def cycle(self) -> None:
        """Leave garbage for the collector, which calls `interrupt` when it finds it."""
        image: Any = Image(self.v)
        image.itself = image
        if self.v.rarely():
            gc.collect(0)

    def read_whole(self) -> None:
        v = self.v
        if v.rarely():
            compare(v)
        image = (None, self.image)[v.flag()]
        where = (v.buffer(), None, None, v.offset(), v.limit(), v.position())
        messages.read_whole(*where, v.number(), [], image, v.number())

    def open_batch(self) -> None:
        v = self.v
        where = (v.buffer(), None, None, v.offset(), v.limit(), v.position())
        self.put(messages.open_batch(*where, v.number(), self.image)[0])

    def open_batches_that_follow(self) -> None:
        v = self.v
        term, at, base = v.good_term(), 0, v.position()
        for _ in range(2):
            batch, at = messages.open_batch(term, None, None, at, 9_999, base, 3, self.image)
            self.put(batch)
            base = base if v.flag() else v.position()
            term = term if v.flag() else memoryview(term)[:]

    def make_batch(self) -> None:
        self.list = [self.message] * self.v.rng.randrange(5)
        if self.v.rarely():
            self.list.append(self.v.anything())
        batch = messages.Batch(self.list, self.image)
        if self.v.rarely():
            self.one().__init__(self.list, self.image)
        self.put(batch)

    def following(self) -> None:
        self.message = self.one().following() or self.message

    def rest(self) -> None:
        self.one().rest()

    def again(self) -> None:
        self.put(self.one().again())

    def at(self) -> None:
        one = self.one()
        for index in (self.v.rng.randrange(-2, one.left + 2), -1, self.v.number()):
            self.message = one.at(index) or self.message

    def payloads(self) -> None:
        self.one().payloads()

    def places(self) -> None:
        self.one().places()

    def columns(self) -> None:
        self.one().columns(self.v.flag())

    def extend(self) -> None:
        one, other = self.one(), self.one()
        if len(self.list) < 1_000 and one.left + other.left < 1_000:
            one.extend(other)

    def keep(self) -> None:
        self.one().keep()

    def message_is_made(self) -> None:
        v = self.v
        self.message = messages.Message(v.data(), v.position(), v.number(), self.image)

    def message_is_changed(self) -> None:
        name = self.v.rng.choice(("data", "position", "reserved_value", "image", "other"))
        changed = copy.copy(self.message)
        setattr(changed, name, self.v.anything())
        bytes(changed)
        repr(changed)

    def term_is_changed(self) -> None:
        """Change a header under the batches, as another process may."""
        term = self.v.good_term()
        damage(self.v.rng, term, self.v.rng.randrange(0, len(term), 32))

    def image_is_replaced(self) -> None:
        self.image = Image(self.v)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each function and method."""
    held = Held(values)
    return {
        each.__name__: each
        for each in (
            *(held.read_whole, held.open_batch, held.open_batches_that_follow, held.make_batch),
            *(held.following, held.rest, held.again, held.payloads, held.places, held.columns),
            *(held.at, held.extend, held.keep, held.message_is_made, held.message_is_changed),
            *(held.image_is_replaced, held.cycle, held.term_is_changed),
        )
    }


def compare(values: Values) -> None:
    """Read the same messages by both twins, each until it finds no more."""
    term = values.good_term()
    view = memoryview(term)
    where = view, view.cast("i"), view.cast("q")
    found = []
    for twin in (pure_twins(), messages):
        out: list[Any] = []
        at, before = 0, -1
        while at != before:
            before = at
            at = twin.read_whole(*where, at, len(term), 0, 100, out)
        found.append((at, out))
    if found[0] != found[1]:
        message = f"read_whole: {found} in {bytes(term).hex()}"
        raise DifferenceError(message)
