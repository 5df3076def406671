"""Python code that runs in the middle of a compiled call, and changes what the call works with."""

from __future__ import annotations

import gc
import os
from array import array
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from tests.speedups.watched import needs_watcher
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = needs_watcher

ASLEEP = 0x6C6C6563


class Number:
    """A number that does something when it is asked for its value."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._number = number
        self._act = act

    def __index__(self) -> int:
        self._act()
        return self._number


class Memory(bytearray):
    """Memory that does something when nothing holds it any more."""

    act: Callable[[], object]

    def __del__(self) -> None:
        self.act()


def make_memory(act: Callable[[], object]) -> Memory:
    memory = Memory(8)
    memory.act = act
    return memory


# Bells.


def make_flag(values: Any, refresh: Callable[[], Any]) -> Any:
    return compiled("bells").BellFlag(values, 0, refresh, None)


def test_a_flag_that_could_not_be_made_rings_nobody() -> None:
    kind = compiled("bells").BellFlag
    flag = kind.__new__(kind)
    values = bytearray(8)
    with pytest.raises(IndexError):
        flag.__init__(values, 8, list, None)
    flag.set()
    # One that is still exported could not grow.
    values.append(0)


def test_a_flag_may_be_closed_while_it_asks_for_the_places_of_bells() -> None:
    values = array("i", (2, ASLEEP, 0, 0))
    flag = make_flag(values, lambda: [Number(4, flag.close), 4])
    flag.set()
    assert values[1] == ASLEEP
    # One that is still exported could not grow.
    values.append(0)


def test_there_may_be_more_places_than_there_were_said_to_be() -> None:
    class Places:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            return range(4, 400, 4)[index]

    values = array("i", (2, *(ASLEEP,) * 99))
    flag = make_flag(values, Places)
    flag.set()
    assert ASLEEP not in values
    flag.close()


# Words.


def test_a_list_of_words_may_grow_while_it_is_read() -> None:
    spin = compiled("spinning").spin
    memory = array("i", (0,))
    words: list[Any] = []
    words.append((memory, Number(0, lambda: words.extend([(memory, 0, 0)] * 400)), 0))
    assert not spin(words, 0)
    assert len(words) == 401


def test_a_look_that_may_take_for_ever_ends_with_the_first_change() -> None:
    spin = compiled("spinning").spin
    memory = array("i", (0,))
    timer = Timer(0.05, memory.__setitem__, (0, 1))
    timer.start()
    assert spin([(memory, 0, 0)], 2**63 - 1)
    timer.join()


def test_a_word_may_be_dropped_by_the_memory_that_it_held() -> None:
    naps = {"min_nap_ns": 1_000, "max_nap_ns": 1_000, "silent_nap_ns": 0, "silence_ns": 0}
    thread = compiled("watching").WatchThread(
        max_spins=0, max_yields=0, **naps, pauses=False, word_limit=9
    )
    words: list[Any] = []
    for _ in range(3):
        words.append(thread.add(make_memory(words.clear), 0, 32, int))
    thread.close()
    assert not words
    assert thread.word_count == 0


# Waits.


def test_who_is_told_of_the_end_of_a_wait_is_whole_then() -> None:
    told = []

    class Subscription(compiled("paths").Reading):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self.name = "whole"

        def _begin_wait(self) -> Any:
            return self

        def __await__(self) -> Iterator[str]:
            yield "waits"

        def _end_wait(self, _: object) -> None:
            told.append(self.name)

    subscription: Any = Subscription()
    subscription.itself = subscription.__anext__()
    assert subscription.itself.send(None) == "waits"
    del subscription
    gc.collect()
    assert told == ["whole"]


# Blocks.


def test_blocks_are_counted_once_when_the_end_of_one_collects_the_others() -> None:
    reader, bell = os.pipe()
    file = os.memfd_create("blocks")
    writer = compiled("writing").BlockWriter(bell)
    found = []

    def collect() -> None:
        found.append(writer.collect()[0])

    for _ in range(3):
        writer.begin(file, make_memory(collect), 0, 0)
    writer.close()
    collect()
    assert sum(found) == 3
    assert writer.in_flight == 0
    for each in (reader, bell, file):
        os.close(each)
