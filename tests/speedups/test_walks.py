"""Both twins of the walks over many objects find the same, and refuse the same."""

from __future__ import annotations

from array import array
from collections.abc import Callable  # noqa: TC003 - hypothesis reads it
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.losses import Arrivals
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

WORD = st.integers(-(1 << 63), (1 << 63) - 1)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Behind:
    """Its attribute is a property, which may raise."""

    def __init__(self, value: object) -> None:
        self._value = value

    @property
    def value(self) -> object:
        if self._value is ZeroDivisionError:
            raise ZeroDivisionError
        return self._value


class Asked:
    """It has no attribute, and answers to all."""

    def __getattr__(self, name: str) -> str:
        return name


class Lower(Slotted):
    """A slot of the class below is hidden by an attribute of this one."""

    value = property(lambda _: "hidden")

    def __init__(self) -> None:
        pass


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_an_attribute_is_read_wherever_it_is(twin: Any) -> None:
    kinds: list[Callable[[Any], Any]] = [
        Slotted,
        Behind,
        lambda value: SimpleNamespace(value=value),
    ]
    objects = [kinds[index % 7 % 3](index) for index in range(100)]
    objects += [Asked(), Lower(), *map(Slotted, range(40))]
    expected = [*range(100), "value", "hidden", *range(40)]
    for each in (objects, tuple(objects)):
        assert twin.fields_of(each, "value") == expected
    assert twin.fields_of([], "value") == []


def test_an_attribute_that_is_missing_is_named(twin: Any) -> None:
    empty = Slotted.__new__(Slotted)
    with pytest.raises(AttributeError, match="value"):
        twin.fields_of([Slotted(1), empty], "value")
    with pytest.raises(AttributeError, match="other"):
        twin.fields_of([Slotted(1)], "other")
    with pytest.raises(ZeroDivisionError):
        twin.fields_of([Behind(ZeroDivisionError)], "value")


@given(words=st.lists(WORD, min_size=1), data=st.data())
@pytest.mark.parametrize("each", TWINS)
def test_words_are_read_at_their_places(
    each: Callable[[], Any], words: list[int], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(words) - 1)))
    memory = memoryview(array("q", words))
    found = array("q", each().values_at(memory, array("q", places)))
    assert list(found) == [words[place] for place in places]


def test_a_place_that_is_not_there_is_refused(twin: Any) -> None:
    with pytest.raises(IndexError):
        twin.values_at(memoryview(array("q", [1, 2])), array("q", [0, 2]))


def test_the_first_entry_is_the_oldest(twin: Any) -> None:
    mappings = [{"a": 1}, {2: "b", "a": 3}, {None: None}] * 20
    assert twin.firsts_of(mappings) == (["a", 2, None] * 20, [1, "b", None] * 20)
    assert twin.firsts_of([]) == ([], [])
    with pytest.raises(ValueError, match="empty"):
        twin.firsts_of([{"a": 1}, {}])


def test_an_entry_that_is_missing_is_none(twin: Any) -> None:
    mappings = [{"a": 1}, {2: "b", "a": 3}, {}] * 20
    assert twin.entries_of(mappings, ["a", 2, "a"] * 20) == [1, "b", None] * 20
    with pytest.raises(ValueError, match=r"."):
        twin.entries_of(mappings, ["a"])


def test_the_numbers_of_images_are_words(twin: Any) -> None:
    images = []
    for number in range(40):
        image, feedback = twin.Rebuilding(), twin.Reporting()
        image.last_packet_ns, image._feedback, feedback.sent_count = 1 << 40, feedback, number
        images.append(image)
    last_packets_ns, sent_counts = twin.intake_of(images)
    assert array("q", last_packets_ns).tolist() == [1 << 40] * 40
    assert array("q", sent_counts).tolist() == list(range(40))
    assert twin.intake_of([]) == (b"", b"")


@given(
    marks=st.lists(st.integers(1, 100), max_size=130),
    readers=st.lists(st.tuples(st.integers(0, 6_000), st.integers(0, 6_000)), max_size=40),
)
@needs_compiled
def test_both_know_when_the_oldest_byte_came(
    marks: list[int], readers: list[tuple[int, int]]
) -> None:
    arrivals = Arrivals(65_536)
    position = now_ns = 0
    for length in marks:
        arrivals.mark(position, position + length, now_ns)
        position += length
        now_ns += length * 1_000_003
    words = [array("q", [each[place] for each in readers]) for place in (0, 1)]
    found = [
        each.oldest_of(*words, [arrivals] * len(readers))
        for each in (pure_twins(), compiled_twins())
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("each", TWINS)
def test_messages_are_those_that_were_taken(each: Callable[[], Any]) -> None:
    twin = each()
    readings = []
    for number in range(40):
        reading, image = twin.Reading(), twin.Taking()
        image._message_count = number
        reading._images = {1: image} if number % 3 else {1: image, 2: image}
        reading._listener = SimpleNamespace(gone_count=1_000)
        reading._lent = None if number % 5 else [None] * 7
        readings.append(reading)
    assert twin.message_counts(readings) == [
        1_000 + number * (1 if number % 3 else 2) - (0 if number % 5 else 7) for number in range(40)
    ]
