"""Bells: a thread that sleeps until another process rings, and those who ring."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.concurrent import atomic_buffer
from aeron_async.doorbell import ASLEEP, AWAKE, RESTING
from aeron_async.watcher import BellFlag, Bells
from tests.speedups.bell_process import ANSWER, ASLEEP_AT, DATA, MODE_AT, map_shared
from tests.speedups.watched import (
    HOUR_NS,
    PATIENCE_S,
    SPINNING,
    Watch,
    await_that,
    needs_watcher,
)
from tests.tracing import untraced, untraced_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async._speedups.watching import WatchedWord

pytestmark = needs_watcher

ROOT: Final = Path(__file__).parents[2]
ROUNDS: Final = 20_000
POLLING = 1


class Sleeper:
    """A watching thread with a bell, one armed word, and who rings."""

    def __init__(self, **arguments: Any) -> None:
        self.memory = bytearray(4096)
        self.shared = atomic_buffer.AtomicBuffer(self.memory)
        self.watch = Watch(**arguments)
        self.word: WatchedWord = self.watch.add(self.memory, DATA)
        self.bells = Bells(self.memory)
        self.watch.thread.use_bell(self.memory, ASLEEP_AT, MODE_AT, HOUR_NS)
        self.watch.thread.keep_bell(HOUR_NS)

    @property
    def asleep(self) -> int:
        return self.shared.load_acquire_32(ASLEEP_AT)

    def fall_asleep(self) -> None:
        self.word.arm(self.shared.load_acquire_64(DATA))
        await_that(lambda: self.watch.thread.is_dozing and self.asleep == ASLEEP)

    def close(self) -> None:
        self.bells.close()
        self.watch.close()


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper()
    yield made
    made.close()


def test_who_sleeps_is_woken_once_and_who_is_awake_is_not(sleeper: Sleeper) -> None:
    for number in range(1, 4):
        sleeper.fall_asleep()
        sleeper.shared.store_release_64(DATA, number)
        assert sleeper.bells.ring(ASLEEP_AT)
        assert not sleeper.bells.ring(ASLEEP_AT)
        sleeper.watch.wait(number)
        assert sleeper.asleep == AWAKE
        # Nothing is armed: it sleeps without a bell.
        await_that(lambda: sleeper.watch.thread.is_parked)
        assert not sleeper.bells.ring(ASLEEP_AT)
    assert sleeper.watch.thread.doze_count == 3


def test_a_ring_without_reason_lets_it_look_and_sleep_again(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    thread = sleeper.watch.thread
    seen = thread.doze_count
    assert sleeper.bells.ring(ASLEEP_AT)
    await_that(lambda: thread.doze_count > seen and sleeper.asleep == ASLEEP)
    assert sleeper.watch.called == []


def test_rings_without_reason_wake_it_only_so_often(sleeper: Sleeper) -> None:
    """A busy stream of another reader rings for each message."""
    sleeper.fall_asleep()
    thread = sleeper.watch.thread
    dozes, naps = thread.doze_count, thread.nap_count
    for number in range(1, 6):
        assert sleeper.bells.ring(ASLEEP_AT)
        # It is awake for the time of a nap: who rings has nothing to do.
        await_that(lambda count=number: thread.nap_count == naps + count)  # type: ignore[misc]
        await_that(lambda count=number: thread.doze_count == dozes + count)  # type: ignore[misc]
        await_that(lambda: sleeper.asleep == ASLEEP)
    assert sleeper.watch.called == []
    sleeper.shared.store_release_64(DATA, 1)
    assert sleeper.bells.ring(ASLEEP_AT)
    sleeper.watch.wait(1)
    # It was rung for a reason, and takes no nap.
    assert thread.nap_count == naps + 5


def test_arming_a_word_leaves_it_asleep_until_it_is_rung(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    thread = sleeper.watch.thread
    scans, dozes = thread.scan_count, thread.doze_count
    other = sleeper.watch.add(sleeper.memory, ANSWER, name="other")
    for _ in range(100):
        other.arm(0)
        other.disarm()
    other.arm(0)
    assert (thread.is_dozing, thread.scan_count, thread.doze_count) == (True, scans, dozes)
    assert sleeper.asleep == ASLEEP
    sleeper.shared.store_release_64(ANSWER, 1)
    assert sleeper.bells.ring(ASLEEP_AT)
    sleeper.watch.wait(1)
    assert sleeper.watch.called == ["other"]


def test_arming_a_word_that_has_changed_wakes_it(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    other = sleeper.watch.add(sleeper.memory, ANSWER, name="other")
    other.arm(7)
    sleeper.watch.wait(1)
    assert sleeper.watch.called == ["other"]


def test_who_waits_for_commands_alone_is_woken_by_nothing_of_a_stream(sleeper: Sleeper) -> None:
    command = sleeper.watch.add(sleeper.memory, ANSWER, name="command", is_command=True)
    for number in range(3):
        command.arm(number)
        await_that(lambda: sleeper.watch.thread.is_dozing and sleeper.asleep == RESTING)
        dozes = sleeper.watch.thread.doze_count
        assert not sleeper.bells.ring(ASLEEP_AT)
        assert (sleeper.asleep, sleeper.watch.thread.doze_count) == (RESTING, dozes)
        sleeper.shared.store_release_64(ANSWER, number + 1)
        assert sleeper.bells.ring(ASLEEP_AT, is_command=True)
        sleeper.watch.wait(number + 1)
    assert sleeper.asleep == AWAKE


def test_who_rests_and_then_waits_for_a_stream_is_woken_by_both(sleeper: Sleeper) -> None:
    command = sleeper.watch.add(sleeper.memory, ANSWER, name="command", is_command=True)
    command.arm(0)
    await_that(lambda: sleeper.watch.thread.is_dozing and sleeper.asleep == RESTING)
    sleeper.fall_asleep()
    assert sleeper.bells.ring(ASLEEP_AT, is_command=True)
    sleeper.fall_asleep()
    sleeper.shared.store_release_64(DATA, 1)
    assert sleeper.bells.ring(ASLEEP_AT)
    sleeper.watch.wait(1)
    # The word of the stream has fired, and the other one is left.
    await_that(lambda: sleeper.watch.thread.is_dozing and sleeper.asleep == RESTING)
    # What was stored before the word was armed is seen without a bell.
    sleeper.word.arm(0)
    sleeper.watch.wait(2)


def test_its_own_process_wakes_it_whatever_another_one_has_written(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    sleeper.shared.store_release_32(ASLEEP_AT, AWAKE)
    other = sleeper.watch.add(sleeper.memory, ANSWER, name="other")
    other.arm(7)
    sleeper.watch.wait(1)
    sleeper.fall_asleep()
    sleeper.shared.store_release_32(ASLEEP_AT, 99)
    # It ends, too.


def test_it_looks_while_the_driver_says_that_all_must(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    sleeper.shared.store_release_32(MODE_AT, POLLING)
    sleeper.bells.ring(ASLEEP_AT)
    sleeper.shared.store_release_64(DATA, 1)
    sleeper.watch.wait(1)
    sleeper.word.arm(1)
    sleeper.watch.look_twice()
    assert not sleeper.watch.thread.is_dozing
    assert sleeper.watch.thread.nap_count
    sleeper.shared.store_release_32(MODE_AT, 2)
    await_that(lambda: sleeper.watch.thread.is_dozing)


def test_arming_wakes_it_once_the_driver_says_that_all_must_look(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    # As the driver does for its own bell, which it does not ring.
    sleeper.shared.store_release_32(MODE_AT, POLLING)
    other = sleeper.watch.add(sleeper.memory, ANSWER, name="other")
    other.arm(0)
    sleeper.shared.store_release_64(ANSWER, 1)
    sleeper.watch.wait(1)
    assert sleeper.watch.called == ["other"]


def test_after_a_rest_it_looks_if_the_driver_has_said_so(sleeper: Sleeper) -> None:
    for _ in range(20):
        sleeper.shared.store_release_32(MODE_AT, 2)
        sleeper.fall_asleep()
        naps = sleeper.watch.thread.nap_count
        assert sleeper.bells.ring(ASLEEP_AT)
        await_that(lambda count=naps: sleeper.watch.thread.nap_count > count)  # type: ignore[misc]
        # It rests, or has just begun to sleep: who was awake is not rung.
        sleeper.shared.store_release_32(MODE_AT, 2 | POLLING)
        sleeper.bells.ring(ASLEEP_AT, is_command=True)
        sleeper.watch.look_twice()
        assert not sleeper.watch.thread.is_dozing


def test_it_trusts_its_bell_for_as_long_as_it_was_told(sleeper: Sleeper) -> None:
    sleeper.watch.thread.keep_bell(0)
    sleeper.word.arm(0)
    sleeper.watch.look_twice()
    assert sleeper.watch.thread.doze_count == 0
    sleeper.watch.thread.keep_bell(HOUR_NS)
    await_that(lambda: sleeper.watch.thread.is_dozing)


@pytest.mark.parametrize("value", [0, 1, -1, 64, 2**31 - 1])
def test_a_word_that_is_none_of_a_bell_is_left_as_it_is(sleeper: Sleeper, value: int) -> None:
    """It may be the counter of somebody else by now; and it must not keep the thread busy."""
    sleeper.shared.store_release_32(ASLEEP_AT, value)
    sleeper.word.arm(0)
    sleeper.watch.look_twice()
    assert not sleeper.bells.ring(ASLEEP_AT)
    assert sleeper.watch.thread.doze_count == 0
    assert sleeper.asleep == value
    sleeper.shared.store_release_64(DATA, 1)
    sleeper.watch.wait(1)


def test_a_thread_that_spins_never_sleeps() -> None:
    sleeper = Sleeper(**SPINNING)
    sleeper.word.arm(0)
    sleeper.watch.look_twice()
    assert not sleeper.bells.ring(ASLEEP_AT)
    sleeper.close()


def test_it_ends_while_it_sleeps_and_lets_go_of_the_memory(tmp_path: Path) -> None:
    mapping = map_shared(tmp_path / "shared")
    with Watch() as watch:
        watch.thread.use_bell(mapping, ASLEEP_AT, MODE_AT, HOUR_NS)
        watch.thread.keep_bell(HOUR_NS)
        word = watch.add(mapping, DATA)
        word.arm(0)
        await_that(lambda: watch.thread.is_dozing)
        with pytest.raises(BufferError):
            mapping.close()
    mapping.close()


def test_what_is_no_bell_is_refused() -> None:
    memory = bytearray(64)
    for places in ((61, 0), (0, -4), (2, 0), (64, 0)):
        with Watch() as watch, pytest.raises(IndexError):
            watch.thread.use_bell(memory, *places, HOUR_NS)
    with Watch() as watch:
        with pytest.raises(ValueError, match="cannot sleep"):
            watch.thread.use_bell(memory, 0, 4, 0)
        watch.thread.use_bell(memory, 0, 4, HOUR_NS)
        with pytest.raises(ValueError, match="has a bell"):
            watch.thread.use_bell(memory, 0, 4, HOUR_NS)
    bells = Bells(memory)
    with pytest.raises(IndexError):
        bells.ring(62)
    bells.close()
    bells.close()
    assert not bells.ring(0)


# The flag of a publication.


class Flagged:
    """A flag that rings, and the answers to what it asks."""

    def __init__(self) -> None:
        self.memory = bytearray(128 * 300)
        self.shared = atomic_buffer.AtomicBuffer(self.memory)
        self.places: list[int] | None = []
        self.asked = 0
        self.later: list[Callable[[], object]] = []
        self.flag = BellFlag(self.memory, MODE_AT, self.look, self.later.append)

    def end_turn(self) -> None:
        """Let the loop do what was left for its next turn."""
        calls, self.later[:] = self.later[:], []
        for each in calls:
            each()

    def look(self) -> list[int] | None:
        self.asked += 1
        return self.places

    def change(self, mode: int) -> None:
        self.shared.store_release_32(MODE_AT, mode)

    def sleepers(self) -> list[int]:
        places = range(0, len(self.memory), 128)
        return [each for each in places if self.shared.load_acquire_32(each) == ASLEEP]

    def let_sleep(self, *places: int) -> None:
        for each in places:
            self.shared.store_release_32(each, ASLEEP)


def test_a_flag_asks_again_for_bells_when_the_driver_has_counted_a_change() -> None:
    flagged = Flagged()
    flagged.places = [0, 512]
    flagged.let_sleep(0, 128, 512)
    flagged.flag.set()
    assert not flagged.flag.is_set
    assert flagged.sleepers() == [128]
    flagged.end_turn()
    flagged.places = [128]
    flagged.flag.set()
    assert (flagged.asked, flagged.sleepers()) == (1, [128])
    flagged.change(2)
    flagged.flag.set()
    assert (flagged.asked, flagged.sleepers()) == (2, [])


def test_a_flag_rings_nobody_while_all_look() -> None:
    flagged = Flagged()
    flagged.places = [0]
    flagged.let_sleep(0)
    flagged.change(2 | POLLING)
    flagged.flag.set()
    assert (flagged.asked, flagged.sleepers()) == (0, [0])


def test_a_flag_without_an_answer_asks_each_time_and_rings_those_it_knows() -> None:
    flagged = Flagged()
    flagged.places = [0]
    flagged.flag.set()
    flagged.places = None
    flagged.change(4)
    for count in range(2, 5):
        flagged.end_turn()
        flagged.let_sleep(0, 128)
        flagged.flag.set()
        assert (flagged.asked, flagged.sleepers()) == (count, [128])


def test_a_flag_knows_any_number_of_bells() -> None:
    flagged = Flagged()
    flagged.places = [128 * number for number in range(4, 300)]
    flagged.let_sleep(*flagged.places)
    flagged.flag.set()
    assert flagged.sleepers() == []
    flagged.places = []
    flagged.change(2)
    flagged.flag.set()
    flagged.let_sleep(512)
    flagged.flag.set()
    assert flagged.sleepers() == [512]


def test_a_flag_rings_once_in_a_turn_and_at_its_end_for_the_rest() -> None:
    flagged = Flagged()
    flagged.places = [0]
    flagged.let_sleep(0)
    flagged.flag.set()
    assert (flagged.sleepers(), len(flagged.later)) == ([], 1)
    flagged.let_sleep(0)
    flagged.flag.set()
    flagged.flag.set()
    assert (flagged.sleepers(), len(flagged.later)) == ([0], 1)
    flagged.end_turn()
    # A ring at the end of a turn is the one of the next.
    assert (flagged.sleepers(), len(flagged.later)) == ([], 1)
    flagged.let_sleep(0)
    flagged.end_turn()
    assert (flagged.sleepers(), len(flagged.later)) == ([0], 0)
    flagged.flag.set()
    assert flagged.sleepers() == []


def test_a_flag_that_owes_a_ring_asks_nobody_who_is_awake_by_then() -> None:
    flagged = Flagged()
    flagged.places = [0]
    for _ in range(2):
        flagged.let_sleep(0)
        flagged.flag.set()
    flagged.shared.store_release_32(0, AWAKE)
    flagged.end_turn()
    assert flagged.later == []
    assert flagged.shared.load_acquire_32(0) == AWAKE


def test_a_turn_that_does_not_end_is_over_after_half_a_millisecond() -> None:
    flagged = Flagged()
    flagged.places = [0]
    flagged.let_sleep(0)
    flagged.flag.set()
    flagged.let_sleep(0)
    begun_ns = time.monotonic_ns()
    while flagged.sleepers():
        assert time.monotonic_ns() - begun_ns < PATIENCE_S * 1_000_000_000
        flagged.flag.set()
    assert len(flagged.later) == 1
    flagged.end_turn()


def test_a_flag_that_is_closed_rings_if_it_owes_that() -> None:
    flagged = Flagged()
    flagged.places = [0]
    for _ in range(2):
        flagged.let_sleep(0)
        flagged.flag.set()
    flagged.flag.close()
    assert flagged.sleepers() == []
    flagged.end_turn()


def test_a_flag_without_a_loop_rings_each_time() -> None:
    memory = bytearray(1024)
    shared = atomic_buffer.AtomicBuffer(memory)

    def refuse(_: object) -> None:
        message = "Event loop is closed"
        raise RuntimeError(message)

    flag = BellFlag(memory, MODE_AT, lambda: [512], refuse)
    for _ in range(3):
        shared.store_release_32(512, ASLEEP)
        flag.set()
        assert shared.load_acquire_32(512) == AWAKE


def test_a_flag_that_is_given_no_loop_rings_as_often_as_its_owner_sleeps() -> None:
    memory = bytearray(1024)
    shared = atomic_buffer.AtomicBuffer(memory)
    flag = BellFlag(memory, MODE_AT, lambda: [512], None)
    for _ in range(3):
        shared.store_release_32(512, ASLEEP)
        flag.set()
        assert shared.load_acquire_32(512) == AWAKE


def test_a_signal_in_the_middle_of_a_ring_costs_no_later_one() -> None:
    memory = bytearray(1024)
    shared = atomic_buffer.AtomicBuffer(memory)
    later: list[Callable[[], object]] = []
    signals = [KeyboardInterrupt]

    def call_soon(call: Callable[[], object]) -> None:
        if signals:
            raise signals.pop()
        later.append(call)

    flag = BellFlag(memory, MODE_AT, lambda: [512], call_soon)
    shared.store_release_32(512, ASLEEP)
    with pytest.raises(KeyboardInterrupt):
        flag.set()
    for _ in range(2):
        shared.store_release_32(512, ASLEEP)
        flag.set()
    assert len(later) == 1


def test_a_flag_refuses_places_outside_the_memory_and_is_quiet_when_closed() -> None:
    flagged = Flagged()
    flagged.places = [len(flagged.memory)]
    with pytest.raises(IndexError):
        flagged.flag.set()
    flagged.flag.close()
    flagged.flag.close()
    flagged.flag.set()
    assert flagged.asked == 1
    with pytest.raises(IndexError):
        BellFlag(flagged.memory, -1, flagged.look, flagged.later.append)


def test_a_child_rings_nobody(sleeper: Sleeper) -> None:
    sleeper.fall_asleep()
    flag = BellFlag(sleeper.memory, MODE_AT, lambda: [ASLEEP_AT], lambda call: call())
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            flag.set()
            answer = 2 if sleeper.bells.ring(ASLEEP_AT) else 0
        finally:
            os._exit(answer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


A_FLAG_IN_A_CYCLE: Final = """
import gc
from aeron_async.watcher import BellFlag

class Publication:
    def places(self):
        return None

    def call_soon(self, call):
        pass

def make():
    # The view is in the cycle too, and the collector would clear it first.
    values = memoryview(bytearray(4096))
    publication = Publication()
    publication.values = values
    publication.flag = BellFlag(values, 0, publication.places, publication.call_soon)

make()
gc.collect()
"""


def test_the_collector_does_not_clear_the_memory_of_a_flag() -> None:
    command = [sys.executable, "-c", A_FLAG_IN_A_CYCLE]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=untraced_environment(),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    # The code of a process that crashes is the signal.
    assert (ended.returncode, ended.stderr) == (0, b"")


# Two processes.


@pytest.mark.processes
def test_no_wake_up_is_lost_between_two_processes(tmp_path: Path) -> None:
    """The thread would sleep for an hour: one lost wake-up, and the test does not end in time."""
    path = tmp_path / "shared"
    mapping = map_shared(path)
    shared = atomic_buffer.AtomicBuffer(mapping)
    command = [sys.executable, "-m", "tests.speedups.bell_process", str(path), str(ROUNDS), "7"]
    with Watch(max_spins=0, max_yields=0) as watch:
        watch.thread.use_bell(mapping, ASLEEP_AT, MODE_AT, HOUR_NS)
        watch.thread.keep_bell(HOUR_NS)
        word = watch.add(mapping, DATA)
        process = subprocess.Popen(command, cwd=ROOT, env=untraced_environment())
        try:
            with untraced():
                seen = 0
                while seen < ROUNDS:
                    word.arm(seen)
                    watch.wait(len(watch.called) + 1)
                    seen = shared.load_acquire_64(DATA)
                    shared.store_release_64(ANSWER, seen)
                assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait(PATIENCE_S)
        assert watch.thread.doze_count > 0
        word.remove()
    shared.release()
    mapping.close()
