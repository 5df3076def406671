"""A look at words for a moment, and whether a reader thinks that it is worth it."""

from __future__ import annotations

import threading

import pytest

from aeron_async.concurrent.atomic_buffer import AtomicBuffer
from aeron_async.watcher import SHORT_NS, SKIPS_MAX, SPINNING_WORDS_MAX, Spinner, spin
from tests.speedups.watched import HOUR_NS, needs_watcher

pytestmark = needs_watcher


def test_a_word_that_is_another_is_seen_at_once() -> None:
    memory = bytearray(64)
    AtomicBuffer(memory).store_release_32(12, -7)
    assert not spin([], 1)
    assert not spin([(memory, 12, -7)], 1)
    assert spin([(memory, 12, 0)], HOUR_NS)
    assert spin([(memory, 0, 0), (memory, 12, -7), (memory, 60, 1)], HOUR_NS)
    assert not spin([(memory, 4 * each, 0) for each in range(4, SPINNING_WORDS_MAX)], 1)


def test_another_thread_runs_in_the_meantime() -> None:
    memory = bytearray(64)
    thread = threading.Thread(target=AtomicBuffer(memory).store_release_32, args=(8, 1))
    thread.start()
    assert spin([(memory, 8, 0)], HOUR_NS)
    thread.join()


def test_the_memory_is_held_and_let_go_of() -> None:
    memory = bytearray(64)
    assert not spin([(memory, 0, 0)] * SPINNING_WORDS_MAX, 1)
    memory.extend(b"it can grow: nothing holds it")


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (-4, 0, IndexError),
        (61, 0, IndexError),
        (2**62, 0, IndexError),
        (2, 0, ValueError),
        (0, 2**31, OverflowError),
        ("0", 0, TypeError),
    ],
)
def test_what_is_no_word_is_refused(offset: int, value: int, error: type[Exception]) -> None:
    memory = bytearray(64)
    with pytest.raises(error):
        spin([(memory, 0, 0), (memory, offset, value)], 1)
    memory.extend(b"nothing holds it")


def test_too_many_words_are_refused() -> None:
    memory = bytearray(64)
    with pytest.raises(ValueError, match="17 words"):
        spin([(memory, 0, 0)] * (SPINNING_WORDS_MAX + 1), 1)


# Whether it is worth it.


class Reader:
    """A reader with a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.memory = bytearray(64)
        self.spinner = Spinner(lambda: self.now_ns)

    def waits(self, duration_ns: int = 1_000, *, finds: bool = False) -> bool:
        """Wait once; return whether the reader looked before it slept."""
        looks = self.spinner.begin()
        if looks:
            assert self.spinner.spin([(self.memory, 0, 1 if finds else 0)]) is finds
        self.now_ns += duration_ns
        self.spinner.end()
        return looks


def test_a_reader_looks_as_long_as_it_finds_something() -> None:
    reader = Reader()
    assert all(reader.waits(finds=True) for _ in range(100))


def test_a_reader_looks_ever_more_rarely_if_it_finds_nothing() -> None:
    reader = Reader()
    looks = [number for number in range(2_000) if reader.waits()]
    assert looks[:5] == [0, 2, 6, 14, 30]
    assert looks[-1] - looks[-2] == SKIPS_MAX + 1
    # One that finds something begins from the start.
    while not reader.waits(finds=True):
        pass
    assert [reader.waits() for _ in range(4)] == [True, False, True, False]


def test_a_reader_that_waited_long_sleeps_at_once() -> None:
    reader = Reader()
    assert reader.waits(SHORT_NS, finds=True)
    assert not reader.waits(SHORT_NS)
    assert not reader.waits(SHORT_NS - 1)
    assert reader.waits(finds=True)
