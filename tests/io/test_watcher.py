"""A watcher on real loops: its callbacks, its end, and processes that write what it watches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

from aeron_async import watcher as watcher_module
from aeron_async.concurrent import atomic_buffer
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.idle_strategy import (
    BackoffIdleStrategy,
    BusySpinIdleStrategy,
    IdleStrategy,
    NoOpIdleStrategy,
    SleepingIdleStrategy,
    YieldingIdleStrategy,
)
from aeron_async.watcher import WatchedWord, Watcher
from tests.io.limit_process import LIMIT, POSITION, SHARED_LENGTH
from tests.speedups.watched import await_that, needs_watcher
from tests.tracing import untraced, untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 120
ROUNDS: Final = 1_500
STRATEGIES: Final[tuple[IdleStrategy, ...]] = (
    BackoffIdleStrategy(),
    BackoffIdleStrategy(0, 0, 1_000, 1_000_000),
    BusySpinIdleStrategy(),
    NoOpIdleStrategy(),
    SleepingIdleStrategy(50_000),
    YieldingIdleStrategy(),
)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


class Signal:
    """A word of its own memory, and an event that its callback sets."""

    def __init__(self, watcher: Watcher) -> None:
        self.memory = bytearray(8)
        self.atomic = atomic_buffer.AtomicBuffer(self.memory)
        self.event = asyncio.Event()
        self.word = watcher.add(self.memory, 0, 64, self.event.set)

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.event.wait()
        self.event.clear()


def entry_count(folder: str) -> int:
    return len(list(Path("/proc/self", folder).iterdir()))


def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_watcher
@every_strategy
async def test_a_store_wakes_the_loop(strategy: IdleStrategy) -> None:
    with Watcher(asyncio.get_running_loop(), strategy) as watcher:
        signal = Signal(watcher)
        for number in range(20):
            signal.word.arm(number)
            signal.atomic.store_release_64(0, number + 1)
            await signal.wait()
        signal.word.arm_at_least(100)
        signal.atomic.store_release_64(0, 99)
        assert (signal.word.is_armed, watcher.counts.fires) == (True, 20)
        signal.atomic.store_release_64(0, 100)
        await signal.wait()
        assert not signal.word.disarm()
        counts = watcher.counts
        assert counts.fires == 21
        assert 0 < counts.wake_ups <= 21
        assert counts.scans >= 21
        assert watcher.word_count == 1


@needs_watcher
async def test_nothing_armed_costs_nothing() -> None:
    with Watcher(asyncio.get_running_loop(), BusySpinIdleStrategy()) as watcher:
        signal = Signal(watcher)
        signal.word.arm(0)
        assert signal.word.disarm()
        await_that(lambda: watcher.is_parked)
        before = attrs.astuple(watcher.counts)
        for _ in range(100):
            await asyncio.sleep(0)
        assert attrs.astuple(watcher.counts) == before
        assert watcher.counts.parks > 0
        assert not watcher.is_napping


@needs_watcher
async def test_an_error_of_a_callback_goes_to_the_loop() -> None:
    loop = asyncio.get_running_loop()
    found: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: found.append(context))
    failure = RuntimeError("it fails")

    def fail() -> None:
        raise failure

    with Watcher(loop) as watcher:
        word = watcher.add(bytearray(8), 0, 64, fail)
        signal = Signal(watcher)
        for each in (word, signal.word):
            each.arm(1)
        await signal.wait()
        while not found:
            await asyncio.sleep(0)
    assert [each["exception"] for each in found] == [failure]


@needs_watcher
async def test_its_limit_is_named() -> None:
    with Watcher(asyncio.get_running_loop(), word_limit=1) as watcher:
        signal = Signal(watcher)
        with pytest.raises(ConfigurationError, match="word_limit"):
            Signal(watcher)
        signal.word.remove()
        Signal(watcher)


@needs_watcher
async def test_closing_releases_all_memory_and_calls_nothing() -> None:
    watcher = Watcher(asyncio.get_running_loop(), BusySpinIdleStrategy())
    called: list[int] = []
    memory = bytearray(16)
    words = [watcher.add(memory, 8 * each, 64, lambda: called.append(1)) for each in range(2)]
    for word in words:
        word.arm(1)
    await_that(lambda: watcher.counts.fires == 2)
    watcher.close()
    watcher.close()
    memory.clear()
    await asyncio.sleep(0)
    assert called == []
    assert not any(word.disarm() for word in words)
    for word in words:
        word.remove()
        with pytest.raises(ClosedError):
            word.arm(0)
    with pytest.raises(ClosedError):
        watcher.add(bytearray(8), 0, 64, print)
    assert watcher.word_count == 0
    assert watcher.counts.fires == 2


@needs_watcher
async def test_a_callback_may_close_its_watcher() -> None:
    watcher = Watcher(asyncio.get_running_loop())
    closed = asyncio.Event()

    def close() -> None:
        watcher.close()
        closed.set()

    word = watcher.add(bytearray(8), 0, 64, close)
    word.arm(1)
    async with asyncio.timeout(PATIENCE_S):
        await closed.wait()
    assert not word.is_armed


@needs_watcher
@pytest.mark.parametrize("is_armed", [True, False])
async def test_it_can_be_closed_after_its_loop(*, is_armed: bool) -> None:
    # The loop of the test is of the kind that is wanted.
    loop = type(asyncio.get_running_loop())()
    watcher = Watcher(loop)
    memory = bytearray(8)
    word = watcher.add(memory, 0, 64, print)
    if is_armed:
        word.arm(0)
    loop.close()
    watcher.close()
    watcher.close()
    memory.clear()


@needs_watcher
async def test_it_ends_with_a_loop_that_was_closed_without_it() -> None:
    loop = type(asyncio.get_running_loop())()
    before = entry_count("task")
    watcher = Watcher(loop, BusySpinIdleStrategy())
    word = watcher.add(bytearray(8), 0, 64, print)
    word.arm(0)
    loop.close()
    del watcher, word, loop
    await_that(lambda: entry_count("task") <= before)


@needs_watcher
async def test_a_loop_that_is_closed_gets_no_watcher() -> None:
    loop = type(asyncio.get_running_loop())()
    loop.close()
    before = entry_count("fd")
    with pytest.raises(RuntimeError):
        Watcher(loop)
    assert entry_count("fd") == before


@needs_watcher
async def test_a_child_closes_its_copy_and_the_parent_is_woken_all_the_same() -> None:
    with Watcher(asyncio.get_running_loop(), BusySpinIdleStrategy()) as watcher:
        signal = Signal(watcher)
        signal.word.arm(0)
        child = os.fork()
        if child == 0:
            answer = 1
            try:
                try:
                    watcher.add(bytearray(8), 0, 64, print)
                except ClosedError:
                    watcher.close()
                    watcher.close()
                    answer = 0
            finally:
                os._exit(answer)
        assert exit_code_of(child) == 0
        for number in range(3):
            signal.atomic.store_release_64(0, number + 1)
            await signal.wait()
            signal.word.arm(number + 1)


@contextmanager
def raising_limits(path: Path, count: int) -> Iterator[tuple[atomic_buffer.Mapping, Any]]:
    """Share a file with a process that raises a limit whenever the position has come to it."""
    with path.open("xb+") as file:
        file.truncate(SHARED_LENGTH)
        mapping = atomic_buffer.Mapping(file.fileno(), SHARED_LENGTH)
    command = [sys.executable, "-m", "tests.io.limit_process", str(path), str(count), "7"]
    process = subprocess.Popen(command, cwd=ROOT, env=untraced_environment())
    try:
        yield mapping, process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


async def follow(shared: atomic_buffer.AtomicBuffer, word: WatchedWord, rung: asyncio.Event) -> int:
    """Go to the limit whenever it is raised; return how often the limit was waited for."""
    position = waits = 0
    while position < ROUNDS:
        limit = shared.load_acquire_64(LIMIT)
        if position >= limit:
            word.arm(limit)
            await rung.wait()
            rung.clear()
            waits += 1
        else:
            position = limit
            shared.store_release_64(POSITION, position)
    return waits


@needs_watcher
@pytest.mark.processes
@pytest.mark.parametrize(
    "strategy", [BackoffIdleStrategy(), BusySpinIdleStrategy()], ids=["backoff", "spin"]
)
async def test_no_limit_is_missed_that_moves_between_refusal_and_arming(
    tmp_path: Path, strategy: IdleStrategy
) -> None:
    with (
        untraced(),
        raising_limits(tmp_path / "limit", ROUNDS) as (mapping, process),
        Watcher(asyncio.get_running_loop(), strategy) as watcher,
    ):
        rung = asyncio.Event()
        word = watcher.add(mapping, LIMIT, 64, rung.set)
        async with asyncio.timeout(PATIENCE_S):
            waits = await follow(atomic_buffer.AtomicBuffer(mapping), word, rung)
        assert process.wait(PATIENCE_S) == 0
        assert 0 < waits == watcher.counts.fires


async def test_without_compiled_code_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", "AERON_ASYNC_PURE is set")
    with pytest.raises(ConfigurationError, match="needs compiled code, and AERON_ASYNC_PURE"):
        Watcher(asyncio.get_running_loop())
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", None)
    monkeypatch.setattr(watcher_module, "WatchThread", None)
    with pytest.raises(ConfigurationError, match="needs Linux"):
        Watcher(asyncio.get_running_loop())
