"""The thread that watches words: when it fires, what it holds, and how it ends."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.concurrent import atomic_buffer
from aeron_async.errors import ClosedError, ConfigurationError
from tests.speedups.watched import (
    BACKING_OFF,
    HOUR_NS,
    LADDERS,
    LOOKS,
    NAPPING,
    SPINNING,
    Watch,
    await_that,
    needs_watcher,
    watch_thread,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async._speedups.watching import WatchedWord

pytestmark = needs_watcher

PAGE: Final = mmap.PAGESIZE
WORDS: Final = 16
# Of each act; more of them where there is time.
ENOUGH: Final = int(os.environ.get("AERON_ASYNC_WATCH_COUNT", "500"))
every_ladder = pytest.mark.parametrize("ladder", LADDERS.values(), ids=LADDERS)


def memory_of(length: int = 64) -> tuple[bytearray, atomic_buffer.AtomicBuffer]:
    memory = bytearray(length)
    return memory, atomic_buffer.AtomicBuffer(memory)


def map_anew(path: Path) -> atomic_buffer.Mapping:
    with path.open("ab+") as file:
        file.truncate(PAGE)
        return atomic_buffer.Mapping(file.fileno(), PAGE)


def watcher_tasks() -> list[Path]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        # Another thread, of a test before, may end in this moment.
        with suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "aeron-watcher\n":
                found.append(task)
    return found


def watcher_count() -> int:
    return len(watcher_tasks())


def descriptor_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Fires.


@every_ladder
def test_a_word_fires_once_for_each_time_it_is_armed(ladder: dict[str, int]) -> None:
    memory, atomic = memory_of()
    # A nap of an hour would miss a store to a word that was armed before.
    is_late = ladder is not NAPPING
    with Watch(**ladder) as watch:
        word = watch.add(memory, 8)
        for number in range(50):
            if is_late:
                word.arm(number)
                assert word.is_armed
                watch.look_twice()
            atomic.store_release_64(8, number + 1)
            if not is_late:
                word.arm(number)
            watch.wait(number + 1)
            assert not word.is_armed
            atomic.store_release_64(8, -1)
            watch.look_twice()
            assert not watch.is_rung()
            atomic.store_release_64(8, number + 1)
        assert watch.thread.fire_count == len(watch.called) == 50


@pytest.mark.parametrize(("width", "edge"), [(32, 2**31), (64, 2**63)])
def test_at_least_compares_signed_numbers(width: int, edge: int) -> None:
    memory, atomic = memory_of()
    store = getattr(atomic, f"store_release_{width}")
    with Watch(**BACKING_OFF) as watch:
        word = watch.add(memory, 8, width)
        for number, (value, below) in enumerate([(0, -1), (5, -edge), (edge - 1, 7), (-3, -4)]):
            store(8, below)
            word.arm_at_least(value)
            watch.look_twice()
            assert word.is_armed
            assert not watch.is_rung()
            store(8, value)
            watch.wait(number + 1)
        store(8, -edge)
        word.arm_at_least(-edge)
        watch.wait(5)


def test_a_word_of_32_bits_does_not_see_its_neighbours() -> None:
    memory, atomic = memory_of()
    with Watch(**BACKING_OFF) as watch:
        word = watch.add(memory, 8, 32)
        word.arm(0)
        atomic.store_release_32(4, 1)
        atomic.store_release_32(12, 1)
        watch.look_twice()
        assert not watch.is_rung()
        atomic.store_release_32(8, -(2**31))
        watch.wait(1)
        word.arm(-(2**31))
        watch.look_twice()
        assert word.is_armed


def test_a_store_between_the_look_and_the_arming_fires() -> None:
    memory, atomic = memory_of()
    with Watch(**NAPPING) as watch:
        word = watch.add(memory)
        seen = atomic.load_acquire_64(0)
        atomic.store_release_64(0, 7)
        word.arm(seen)
        watch.wait(1)


def test_arming_anew_forgets_what_was_waited_for_before() -> None:
    memory, atomic = memory_of()
    with Watch(**SPINNING) as watch:
        word = watch.add(memory)
        word.arm(1)
        await_that(watch.is_rung)
        word.arm(0)
        watch.turn()
        assert watch.called == []
        atomic.store_release_64(0, 1)
        watch.wait(1)


def test_nothing_is_called_after_it_was_disarmed() -> None:
    memory, _ = memory_of()
    with Watch(**SPINNING) as watch:
        word = watch.add(memory)
        assert not word.disarm()
        word.arm(1)
        await_that(watch.is_rung)
        assert word.disarm()
        assert not word.disarm()
        watch.turn()
        assert watch.called == []
        assert watch.thread.fire_count == 1


def test_arming_one_word_ends_a_long_nap() -> None:
    memory, atomic = memory_of()
    with Watch(**NAPPING) as watch:
        first, second = watch.add(memory, 0, name=1), watch.add(memory, 8, name=2)
        first.arm(0)
        await_that(lambda: watch.thread.is_napping)
        atomic.store_release_64(0, 1)
        second.arm(0)
        watch.wait(1)
        assert watch.called == [1]
        assert second.is_armed


def test_naps_become_longer_and_longest_in_silence() -> None:
    memory, _ = memory_of()
    with Watch(max_nap_ns=8_000, silent_nap_ns=HOUR_NS, silence_ns=HOUR_NS) as watch:
        watch.add(memory).arm(0)
        word = watch.add(memory, 8)
        word.arm(0)
        await_that(lambda: watch.thread.nap_count > 100)
        assert watch.thread.last_nap_ns == 8_000
    with Watch(max_nap_ns=8_000, silent_nap_ns=10**9, silence_ns=0) as watch:
        word = watch.add(memory, 8)
        word.arm(0)
        await_that(lambda: watch.thread.last_nap_ns > 1_000_000)

        naps = watch.thread.nap_count
        # It looks for this already.
        word.arm(0)
        await_that(lambda: watch.thread.nap_count > naps)
        assert watch.thread.last_nap_ns > 1_000_000

        def is_quick_again() -> bool:
            word.disarm()
            word.arm(0)
            return watch.thread.last_nap_ns < 100_000

        await_that(is_quick_again)


@every_ladder
def test_the_thread_sleeps_while_no_word_is_armed(ladder: dict[str, int]) -> None:
    memory, _ = memory_of()
    with Watch(**ladder) as watch:
        await_that(lambda: watch.thread.is_parked)
        word = watch.add(memory)
        word.arm(1)
        watch.wait(1)
        await_that(lambda: watch.thread.is_parked)
        scans = watch.thread.scan_count
        for _ in range(1_000):
            os.sched_yield()
        assert watch.thread.is_parked
        assert watch.thread.scan_count == scans
        assert not watch.is_rung()


# Words and their memory.


@pytest.mark.parametrize("width", [32, 64])
def test_a_word_lies_within_its_buffer_and_at_a_multiple_of_its_size(width: int) -> None:
    memory = bytearray(64)
    size = width // 8
    with Watch() as watch:
        for offset in (-(2**63), -size, -1, 64, 65, 64 - size + 1, 2**62, 2**63 - 1):
            with pytest.raises(IndexError):
                watch.add(memory, offset, width)
        for offset in (1, size // 2, size + 2):
            with pytest.raises(ValueError, match="no multiple"):
                watch.add(memory, offset, width)
        with pytest.raises(IndexError):
            watch.add(bytearray(size - 1), 0, width)
        watch.add(memory, 64 - size, width).remove()
        memory.clear()
        assert watch.thread.word_count == 0


def test_what_is_no_word_is_refused() -> None:
    memory = bytearray(64)
    with Watch() as watch:
        for width in (0, 8, 31, 33, 128, -32):
            with pytest.raises(ValueError, match="32 or 64 bits"):
                watch.add(memory, 0, width)
        with pytest.raises(BufferError):
            watch.add(memoryview(memory)[::2])
        for no_buffer in (None, "text", 7):
            with pytest.raises(TypeError):
                watch.add(no_buffer)
        with pytest.raises(TypeError):
            watch.thread.add(memory, 0, 64, None)  # type: ignore[arg-type]
        word = watch.add(memory, 0, 32)
        for value in (2**31, -(2**31) - 1, 2**63):
            for arm in (word.arm, word.arm_at_least):
                with pytest.raises(OverflowError):
                    arm(value)
        assert not word.is_armed
        word.remove()
        memory.clear()


def test_a_word_holds_its_memory_until_it_is_removed() -> None:
    memory = bytearray(8)
    with Watch() as watch:
        word = watch.add(memory)
        word.arm(0)
        with pytest.raises(BufferError):
            memory.clear()
        word.remove()
        word.remove()
        memory.clear()
        assert not word.disarm()
        with pytest.raises(ClosedError):
            word.arm(0)


def test_a_word_that_nothing_refers_to_is_removed() -> None:
    class Reader:
        def __init__(self, watch: Watch, memory: bytearray) -> None:
            self.word = watch.thread.add(memory, 0, 64, self.read)
            self.word.arm(0)

        def read(self) -> None: ...

    memory, other = bytearray(8), bytearray(8)
    with Watch(**SPINNING) as watch:
        word = watch.add(memory)
        word.arm(0)
        del word
        memory.clear()
        Reader(watch, other)
        gc.collect()
        other.clear()
        assert watch.thread.word_count == 0


def test_memory_can_be_unmapped_as_soon_as_its_word_is_removed(tmp_path: Path) -> None:
    with Watch(**SPINNING) as watch:
        # A second word keeps the thread looking.
        busy = watch.add(bytearray(8))
        busy.arm(0)
        for number in range(2_000):
            mapping = map_anew(tmp_path / "file")
            word = watch.add(mapping, PAGE - 8)
            if number % 2:
                word.arm(0)
            else:
                # It fires, perhaps just now.
                word.arm(1)
            with pytest.raises(BufferError):
                mapping.close()
            word.remove()
            mapping.close()
        assert watch.thread.word_count == 1


def test_the_number_of_words_doubles_up_to_its_limit() -> None:
    memory, _ = memory_of(8 * 300)
    with Watch(**BACKING_OFF, word_limit=300) as watch:
        words = [watch.add(memory, 8 * number, name=number) for number in range(300)]
        with pytest.raises(ConfigurationError, match=r"all 300 words .* word_limit"):
            watch.add(memory)
        for word in words:
            word.arm(1)
        watch.wait(300)
        assert sorted(watch.called, key=str) == sorted(range(300), key=str)
        for word in words[100:200]:
            word.remove()
        words[100:200] = [watch.add(memory, 8 * number, name=number) for number in range(100, 200)]
        with pytest.raises(ConfigurationError):
            watch.add(memory)
        for word in words:
            word.arm(1)
        watch.wait(600)
        assert watch.thread.word_count == 300


def test_a_watcher_without_room_holds_no_memory() -> None:
    memory = bytearray(8)
    with Watch(word_limit=0) as watch:
        with pytest.raises(ConfigurationError):
            watch.add(memory)
        memory.clear()


# Callbacks.


def test_a_callback_that_fails_stops_no_other() -> None:
    memory, _ = memory_of()
    failure = RuntimeError("it fails")

    def fail() -> None:
        raise failure

    with Watch() as watch:
        words = [watch.thread.add(memory, 0, 64, fail), watch.add(memory, name=2)]
        for word in reversed(words):
            word.arm(1)
        while not (watch.called and watch.errors):
            watch.turn()
        assert (watch.called, watch.errors) == ([2], [failure])


def test_an_interrupt_in_a_callback_leaves_the_others_for_the_next_turn() -> None:
    memory, _ = memory_of()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with Watch() as watch:
        words = [watch.thread.add(memory, 0, 64, interrupt), watch.add(memory, name=2)]
        for word in words:
            word.arm(1)
        await_that(lambda: watch.thread.fire_count == 2)
        with pytest.raises(KeyboardInterrupt):
            watch.turn()
        assert watch.called == []
        watch.wait(1)
        assert watch.called == [2]


def test_a_callback_may_remove_other_words_and_close_the_watcher() -> None:
    memory = bytearray(8)
    with Watch() as watch:
        others: list[Any] = []

        def remove() -> None:
            others.pop().remove()

        first = watch.thread.add(memory, 0, 64, remove)
        others += [watch.add(memory)]
        third = watch.thread.add(memory, 0, 64, watch.thread.close)
        last = watch.add(memory)
        for word in (first, *others, third, last):
            word.arm(1)
        await_that(lambda: watch.thread.fire_count == 4)
        watch.turn()
        assert watch.called == []
        assert watch.thread.is_closed
        memory.clear()


# The end.


@every_ladder
@pytest.mark.parametrize("is_armed", [True, False])
def test_the_thread_ends_whatever_it_does(ladder: dict[str, int], *, is_armed: bool) -> None:
    memory = bytearray(8)
    before = watcher_count()
    watch = Watch(**ladder)
    await_that(lambda: watcher_count() == before + 1)
    word = watch.add(memory)
    if is_armed:
        word.arm(0)
        if ladder in (NAPPING, BACKING_OFF):
            await_that(lambda: watch.thread.is_napping)
        else:
            watch.look_twice()
    else:
        await_that(lambda: watch.thread.is_parked)
    watch.close()
    assert watcher_count() == before
    memory.clear()
    watch.thread.close()
    assert watch.thread.is_closed
    word.remove()
    with pytest.raises(ClosedError):
        word.arm(0)
    with pytest.raises(ClosedError):
        watch.add(bytearray(8))
    watch.thread.dispatch(watch.errors.append)


def test_a_thread_can_be_stopped_as_soon_as_it_was_started() -> None:
    threads, descriptors = watcher_count(), descriptor_count()
    for _ in range(200):
        thread = watch_thread()
        thread.close()
    for _ in range(200):
        # It ends with its last reference too.
        watch_thread()
    assert (watcher_count(), descriptor_count()) == (threads, descriptors)


def test_a_ladder_that_cannot_be_climbed_is_refused() -> None:
    for arguments in ({"min_nap_ns": 0}, {"min_nap_ns": 2_000, "max_nap_ns": 1_999}):
        with pytest.raises(ValueError, match="cannot nap"):
            watch_thread(**arguments)


def test_signals_reach_other_threads_only() -> None:
    with Watch() as watch:
        await_that(lambda: watch.thread.is_parked)
        blocked = [
            int(line.split()[1], 16)
            for task in watcher_tasks()
            for line in (task / "status").read_text().splitlines()
            if line.startswith("SigBlk:")
        ]
        assert len(blocked) == 1
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
            assert blocked[0] >> (number - 1) & 1


def test_a_child_has_no_watcher_and_leaves_that_of_its_parent_alone() -> None:
    memory, atomic = memory_of()
    with Watch(**SPINNING) as watch:
        word, rung = watch.add(memory, name="parent"), watch.add(memory)
        word.arm(0)
        rung.arm(1)
        await_that(watch.is_rung)
        child = os.fork()
        if child == 0:
            answer = 1
            try:
                refused = 0
                calls: list[Callable[[], object]] = [
                    lambda: word.arm(0),
                    lambda: word.arm_at_least(0),
                    word.disarm,
                    lambda: watch.add(memory),
                ]
                for call in calls:
                    try:
                        call()
                    except ClosedError:
                        refused += 1
                watch.thread.dispatch(watch.errors.append)
                word.remove()
                watch.thread.close()
                watch.thread.close()
                answer = 0 if (refused, watch.called, watch.errors) == (4, [], []) else 2
            finally:
                os._exit(answer)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert watch.is_rung()
        watch.wait(1)
        atomic.store_release_64(0, 1)
        watch.wait(2)
        assert watch.called == [None, "parent"]


# All at once.


class Crowd:
    """Three threads that change, arm, disarm and remove words, beside the one that calls back."""

    def __init__(self, watch: Watch) -> None:
        self.memory, self.atomic = memory_of(8 * WORDS)
        self.thread = watch.thread
        # Each of these is written by one thread.
        self.armed = self.disarmed = self.fired = 0
        self.lock = threading.Lock()
        self.words = [self.add(number) for number in range(WORDS)]
        self.acts = (self.arm, self.disarm, self.change)

    def add(self, number: int) -> WatchedWord:
        return self.thread.add(self.memory, 8 * number, 64, self.on_fire)

    def on_fire(self) -> None:
        self.fired += 1

    def is_over(self) -> bool:
        return min(self.armed, self.disarmed, self.fired) >= ENOUGH

    def arm(self, number: int) -> None:
        with self.lock:
            word = self.words[number % WORDS]
            if not word.is_armed:
                word.arm(self.atomic.load_acquire_64(8 * (number % WORDS)))
                self.armed += 1

    def disarm(self, number: int) -> None:
        at = number * 7 % WORDS
        if number % 3:
            self.disarmed += self.words[at].disarm()
        else:
            with self.lock:
                self.disarmed += self.words[at].disarm()
                self.words[at].remove()
                self.words[at] = self.add(at)

    def change(self, number: int) -> None:
        self.atomic.fetch_add_64(number * 5 % WORDS * 8, 1)


@pytest.mark.parametrize("ladder", [SPINNING, BACKING_OFF], ids=["spinning", "backing off"])
def test_three_threads_change_arm_disarm_and_remove(ladder: dict[str, int]) -> None:
    """Every word that was armed has either fired or been disarmed, and each once."""
    failures: list[BaseException] = []
    with Watch(**ladder) as watch:
        crowd = Crowd(watch)
        numbers = count()

        def run(act: Callable[[int], None]) -> None:
            try:
                while not crowd.is_over() and not failures and next(numbers) < LOOKS:
                    for number in range(200):
                        act(number)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                failures.append(error)

        threads = [threading.Thread(target=run, args=(act,)) for act in crowd.acts]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for each in threads:
                each.start()
            while any(each.is_alive() for each in threads):
                watch.thread.dispatch(watch.errors.append)
                os.sched_yield()
        finally:
            sys.setswitchinterval(interval)
        for each in threads:
            each.join()
        watch.look_twice()
        watch.thread.dispatch(watch.errors.append)
        assert failures == watch.errors == []
        assert crowd.is_over()
        left = sum(word.is_armed for word in crowd.words)
        assert crowd.armed == crowd.fired + crowd.disarmed + left
        for number in range(WORDS):
            crowd.atomic.fetch_add_64(8 * number, 1)
        await_that(lambda: watch.thread.is_parked)
        watch.thread.dispatch(watch.errors.append)
        assert crowd.armed == crowd.fired + crowd.disarmed
