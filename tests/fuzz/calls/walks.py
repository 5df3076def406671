"""Calls of the walks over many objects, some of which run code when they are looked at."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.streams import Feedback, Image, Key, Thing
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

paths: Final = compiled("paths")
walks: Final = compiled("walks")
MOST: Final = 40


class Slotted:
    """An object whose number is in a slot, or is not there."""

    __slots__ = ("number",)


class Wide:
    """Another one, whose number is at another place."""

    __slots__ = ("a", "b", "c", "number")


class Reader(paths.Reading):  # type: ignore[misc,name-defined] # without types
    """A subscription that has counted something."""


class Walks:
    """What is walked over."""

    def __init__(self, values: Values) -> None:
        self.v = values
        values.hook = self.disturb
        self.lists: list[list[Any]] = []

    def disturb(self) -> None:
        """Change what a call may be walking over."""
        for each in self.lists:
            if self.v.flag():
                each.clear()
        self.lists.clear()

    def some(self, make: Callable[[], object]) -> Any:
        """Return a few of what is nearly right."""
        count = self.v.rng.randrange(MOST)
        made = [self.v.anything() if self.v.rarely() else make() for _ in range(count)]
        self.lists.append(made)
        return self.v.anything() if self.v.rarely() else made

    def make_object(self) -> object:
        """Return an object that has a number, or does something when it is asked."""
        if self.v.rarely():
            return Thing(hidden={"number": (self.v.number(), self.v)})
        if self.v.rarely():
            return Slotted()
        made: Any = self.v.rng.choice((Slotted, Wide, SimpleNamespace))()
        made.number = self.v.number()
        return made

    def make_mapping(self) -> dict[Any, Any]:
        """Return a dictionary with something in it, or nothing."""
        if self.v.rarely():
            return {}
        key: Any = Key(self.v, 7) if self.v.rarely() else 7
        return {key: self.v.anything()}

    def make_image(self) -> object:
        """Return an image, which may have no feedback."""
        image: Any = Image()
        if not self.v.rarely():
            image._feedback = Feedback()
        return image

    def make_arrivals(self) -> object:
        """Return arrivals with marks, or with anything."""
        positions = array("q", sorted(self.v.rng.randrange(100) for _ in range(5)))
        times: Any = array("q", range(self.v.rng.randrange(7)))
        if self.v.rarely():
            times = self.v.rng.choice((array("d", [1.0] * 5), None, self.v.anything()))
        fields: dict[str, Any] = {"_positions": positions, "_times_ns": times}
        if self.v.rarely():
            return Thing(hidden={name: (value, self.v) for name, value in fields.items()})
        return Thing(**fields, arrived_ns=lambda _: 0)

    def make_reader(self) -> object:
        """Return a subscription that may lack what is counted."""
        reader: Any = Reader()
        if not self.v.rarely():
            reader._images = {number: paths.Taking() for number in range(self.v.rng.randrange(3))}
            reader._listener = SimpleNamespace(gone_count=self.v.number())
        if self.v.rarely():
            reader._lent = self.v.anything()
        return reader

    def fields_of(self) -> None:
        """Read a number of many."""
        walks.fields_of(self.some(self.make_object), self.v.rng.choice(("number", "number", "b")))

    def values_at(self) -> None:
        """Read words."""
        words: Any = array("q", range(64))
        places: Any = array("q", [self.v.rng.randrange(64) for _ in range(9)])
        if self.v.rarely():
            places[3] = self.v.rng.choice((64, -1, 1 << 62, -(1 << 63)))
        words = self.v.buffer() if self.v.rarely() else words
        walks.values_at(words, self.v.buffer() if self.v.rarely() else places)

    def firsts_of(self) -> None:
        """Read the first entries."""
        walks.firsts_of(self.some(self.make_mapping))

    def entries_of(self) -> None:
        """Read some entries."""
        mappings = self.some(self.make_mapping)
        keys = self.some(lambda: 7) if self.v.rarely() else [7] * len(mappings or ())
        walks.entries_of(mappings, keys)

    def intake_of(self) -> None:
        """Read what has come."""
        walks.intake_of(self.some(self.make_image))

    def oldest_of(self) -> None:
        """Read when it came."""
        arrivals = self.some(self.make_arrivals)
        count = self.v.rng.randrange(MOST) if self.v.rarely() else len(arrivals)
        positions = array("q", [self.v.rng.randrange(100) for _ in range(count)])
        consumed: Any = array("q", [self.v.rng.randrange(100) for _ in range(count)])
        consumed = self.v.buffer() if self.v.rarely() else consumed
        walks.oldest_of(positions, consumed, arrivals)

    def message_counts(self) -> None:
        """Count messages."""
        walks.message_counts(self.some(self.make_reader))


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each walk."""
    made = Walks(values)
    return {
        each.__name__: each
        for each in (
            *(made.fields_of, made.values_at, made.firsts_of, made.entries_of),
            *(made.intake_of, made.oldest_of, made.message_counts),
        )
    }
