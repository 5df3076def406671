"""Bells between processes: who is woken, what a name may be, and what is left when one ends."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async import doorbell
from aeron_async.concurrent import atomic_buffer
from aeron_async.doorbell import BellRinger, Doorbell, bell_client_id, bell_name
from aeron_async.errors import BusyError, ClosedError, ConfigurationError
from tests.concurrent.shared import needs_shared_memory, watched
from tests.io.bell_process import (
    ANSWER,
    ASLEEP_AT,
    CLIENT_ID,
    DATA,
    random_pauses,
    share,
)
from tests.tracing import untraced, untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 120
ROUNDS: Final = 20_000
IDS: Final = (-(2**63), -1, 0, 7, 2**63 - 1)


class Sleeper:
    """A bell with memory of its own, and an event for its callback."""

    def __init__(self, folder: Path, client_id: int = CLIENT_ID) -> None:
        self.shared = atomic_buffer.AtomicBuffer(bytearray(8))
        self.rung = asyncio.Event()
        self.rings = 0
        self.bell = Doorbell(
            asyncio.get_running_loop(),
            folder,
            client_id,
            shared=self.shared,
            offset=0,
            on_ring=self.on_ring,
        )

    def on_ring(self) -> None:
        self.rings += 1
        self.rung.set()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.rung.wait()
        self.rung.clear()


@pytest.fixture
def ringer(tmp_path: Path) -> Iterator[BellRinger]:
    made = BellRinger(tmp_path)
    yield made
    made.close()
    made.close()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def entry_count() -> int:
    return len(names_in(Path("/proc/self/fd")))


def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def sleeps() -> bool:
    return False


# Names.


def test_a_name_is_made_of_a_client_id() -> None:
    for client_id in IDS:
        assert bell_client_id(bell_name(client_id)) == client_id
    for no_id in (2**63, -(2**63) - 1):
        with pytest.raises(ConfigurationError, match="64-bit"):
            bell_name(no_id)


@pytest.mark.parametrize(
    "name",
    [
        *("", "bell-", "bell", "7", "bell-07", "bell--0", "bell-+7", "bell- 7", "bell-7\n"),
        *("bell-7/../x", "../bell-7", "/bell-7", "bell-\u0667", "Bell-7", "bell-7\x00"),
        *("bell-9223372036854775808", "bell--9223372036854775809", "bell-" + "9" * 5_000),
    ],
)
def test_no_other_name_is_that_of_a_bell(name: str) -> None:
    assert bell_client_id(name) is None


# Rings.


@needs_shared_memory
async def test_who_sleeps_is_rung_once_and_who_is_awake_is_not(
    tmp_path: Path, ringer: BellRinger
) -> None:
    sleeper = Sleeper(tmp_path)
    assert ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
    for number in range(1, 4):
        assert sleeper.bell.fall_asleep(sleeps)
        for _ in range(5):
            assert ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
        await sleeper.wait()
        assert sleeper.rings == number
    sleeper.bell.close()


@needs_shared_memory
async def test_who_finds_more_stays_awake(tmp_path: Path, ringer: BellRinger) -> None:
    sleeper = Sleeper(tmp_path)
    assert not sleeper.bell.fall_asleep(lambda: True)
    assert sleeper.shared.load_acquire_64(0) == 0
    assert sleeper.bell.fall_asleep(sleeps)
    sleeper.bell.wake_up()
    ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
    await asyncio.sleep(0)
    assert sleeper.rings == 0
    sleeper.bell.close()


@needs_shared_memory
async def test_the_look_comes_after_the_word(tmp_path: Path, ringer: BellRinger) -> None:
    """What was written before the look keeps the sleeper awake; what comes later rings."""
    sleeper = Sleeper(tmp_path)
    seen: list[int] = []

    def look() -> bool:
        seen.append(sleeper.shared.load_acquire_64(0))
        return False

    assert sleeper.bell.fall_asleep(look)
    assert seen == [1]
    calls: list[str] = []
    ringer.ring_if_asleep(CLIENT_ID, shared=watched(sleeper.shared, calls.append), offset=0)
    assert calls == ["load_acquire_64", "exchange_64"]
    ringer.ring_if_asleep(CLIENT_ID, shared=watched(sleeper.shared, calls.append), offset=0)
    assert calls[2:] == ["load_acquire_64"]
    sleeper.bell.close()


@needs_shared_memory
async def test_a_bell_that_was_rung_too_often_is_not_an_error(
    tmp_path: Path, ringer: BellRinger
) -> None:
    sleeper = Sleeper(tmp_path)
    assert all(ringer.ring(CLIENT_ID) for _ in range(2_000))
    await sleeper.wait()
    sleeper.bell.close()


@needs_shared_memory
async def test_a_forged_word_only_costs_a_ring(tmp_path: Path, ringer: BellRinger) -> None:
    sleeper = Sleeper(tmp_path)
    for value in (2, -1, 2**63 - 1):
        sleeper.shared.store_release_64(0, value)
        assert ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
    assert sleeper.bell.fall_asleep(sleeps)
    ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
    await sleeper.wait()
    sleeper.bell.close()


# The directory.


@needs_shared_memory
async def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 8)
    folder.mkdir(parents=True)
    ringer = BellRinger(folder)
    sleeper = Sleeper(folder)
    assert len(os.fsencode(folder)) > 107
    assert stat.S_IMODE((folder / bell_name(CLIENT_ID)).stat().st_mode) == 0o600
    assert sleeper.bell.fall_asleep(sleeps)
    assert ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
    await sleeper.wait()
    sleeper.bell.close()
    assert names_in(folder) == []
    assert not ringer.ring(CLIENT_ID)
    ringer.close()


@needs_shared_memory
async def test_a_bell_is_gone_with_its_owner(tmp_path: Path, ringer: BellRinger) -> None:
    assert not ringer.ring(CLIENT_ID)
    sleeper = Sleeper(tmp_path)
    sleeper.bell.close()
    sleeper.bell.close()
    assert names_in(tmp_path) == []
    assert not ringer.ring(CLIENT_ID)
    with pytest.raises(ClosedError):
        sleeper.bell.fall_asleep(sleeps)
    (tmp_path / bell_name(CLIENT_ID)).write_bytes(b"")
    assert not ringer.ring(CLIENT_ID)


@needs_shared_memory
async def test_what_a_dead_process_has_left_is_replaced(tmp_path: Path, ringer: BellRinger) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / bell_name(CLIENT_ID)))
    assert not ringer.ring(CLIENT_ID)
    sleeper = Sleeper(tmp_path)
    assert ringer.ring(CLIENT_ID)
    await sleeper.wait()
    sleeper.bell.close()


@needs_shared_memory
async def test_a_bell_of_another_is_not_taken(tmp_path: Path) -> None:
    before = entry_count()
    sleeper = Sleeper(tmp_path)
    with pytest.raises(BusyError, match="another client id"):
        Sleeper(tmp_path)
    other = Sleeper(tmp_path, 7)
    for each in (sleeper, other):
        each.bell.close()
    (tmp_path / bell_name(7)).write_bytes(b"precious")
    with pytest.raises(ConfigurationError, match="no socket"):
        Sleeper(tmp_path, 7)
    assert (tmp_path / bell_name(7)).read_bytes() == b"precious"
    assert entry_count() == before


@needs_shared_memory
async def test_a_bell_can_be_closed_after_its_loop(tmp_path: Path) -> None:
    loop = type(asyncio.get_running_loop())()
    shared = atomic_buffer.AtomicBuffer(bytearray(8))
    bell = Doorbell(loop, tmp_path, 7, shared=shared, offset=0, on_ring=print)
    loop.close()
    bell.close()
    assert names_in(tmp_path) == []
    with pytest.raises(RuntimeError):
        Doorbell(loop, tmp_path, 7, shared=shared, offset=0, on_ring=print)
    assert names_in(tmp_path) == []


@needs_shared_memory
async def test_a_word_outside_the_memory_leaves_nothing_behind(tmp_path: Path) -> None:
    before = entry_count()
    shared = atomic_buffer.AtomicBuffer(bytearray(8))
    loop: Any = asyncio.get_running_loop()
    for offset in (-8, 1, 8):
        with pytest.raises(IndexError):
            Doorbell(loop, tmp_path, 7, shared=shared, offset=offset, on_ring=print)
    assert names_in(tmp_path) == []
    assert entry_count() == before


@needs_shared_memory
async def test_a_child_leaves_the_bell_of_its_parent_alone(
    tmp_path: Path, ringer: BellRinger
) -> None:
    sleeper = Sleeper(tmp_path)
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            try:
                sleeper.bell.fall_asleep(sleeps)
            except ClosedError:
                sleeper.bell.close()
                sleeper.bell.close()
                answer = 0
        finally:
            os._exit(answer)
    assert exit_code_of(child) == 0
    for _ in range(3):
        assert sleeper.bell.fall_asleep(sleeps)
        ringer.ring_if_asleep(CLIENT_ID, shared=sleeper.shared, offset=0)
        await sleeper.wait()
    sleeper.bell.close()


# The order of the accesses.

Step = tuple[str, str, int]
"""What a processor does: `store` or `exchange` a value, `load` a word, or `fence`."""


def recorded(shared: atomic_buffer.AtomicBuffer, steps: list[Step], word: str) -> Any:
    """Return memory that writes down its accesses as steps."""
    kinds = {"store_release_64": "store", "load_acquire_64": "load", "exchange_64": "exchange"}
    values = {"store": 1, "load": 0, "exchange": 0}
    return watched(shared, lambda name: steps.append((kinds[name], word, values[kinds[name]])))


async def steps_of_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Step], list[Step]]:
    """Let the code fall asleep, and write and ring; return what each side did, in order."""
    steps: list[Step] = []
    monkeypatch.setattr(doorbell, "full_fence", lambda: steps.append(("fence", "", 0)))
    data = atomic_buffer.AtomicBuffer(bytearray(8))
    asleep = atomic_buffer.AtomicBuffer(bytearray(8))
    bell = Doorbell(
        asyncio.get_running_loop(),
        folder,
        CLIENT_ID,
        shared=recorded(asleep, steps, "asleep"),
        offset=0,
        on_ring=print,
    )
    steps.clear()
    read = recorded(data, steps, "data")
    assert bell.fall_asleep(lambda: read.load_acquire_64(0) != 0)
    sleeper = steps.copy()
    steps.clear()
    ringer = BellRinger(folder)
    read.store_release_64(0, 1)
    ringer.ring_if_asleep(CLIENT_ID, shared=recorded(asleep, steps, "asleep"), offset=0)
    ringer.close()
    bell.close()
    return sleeper, steps


def moves(
    steps: list[Step], side: tuple[int, Any, int | None], memory: dict[str, int]
) -> Iterator[tuple[dict[str, int], Any]]:
    """Yield what one side can do next: what memory and the side are then."""
    at, buffer, loaded = side
    if buffer:
        yield {**memory, buffer[0][0]: buffer[0][1]}, (at, buffer[1:], loaded)
    if at == len(steps):
        return
    kind, word, value = steps[at]
    if kind == "store":
        yield memory, (at + 1, (*buffer, (word, value)), loaded)
    elif kind == "load":
        found = dict(buffer).get(word, memory[word])
        yield memory, (at + 1, buffer, found if loaded is None else loaded)
    elif not buffer:
        changed = {**memory, word: value} if kind == "exchange" else memory
        yield changed, (at + 1, buffer, loaded)


def outcomes(sides: tuple[list[Step], list[Step]]) -> set[tuple[int, int]]:
    """Return what the first loads of both sides can find, if each side's stores are delayed.

    A processor keeps its stores, in order, in a buffer of its own, from which it may put them into
    memory at any later time; a fence and an exchange wait until it is empty. That is x86, of which
    weaker processors allow more.
    """
    found = set()
    # Of each side: its next step, its buffer, and what its first load has found.
    waiting: list[Any] = [((("asleep", 0), ("data", 0)), ((0, (), None), (0, (), None)))]
    seen = set()
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        memory, both = dict(state[0]), state[1]
        if all(each[2] is not None for each in both):
            found.add((both[0][2], both[1][2]))
        for side in range(2):
            for new_memory, new_side in moves(sides[side], both[side], memory):
                new_both = (new_side, both[1]) if side == 0 else (both[0], new_side)
                waiting.append((tuple(sorted(new_memory.items())), new_both))
    return found


@needs_shared_memory
async def test_the_fences_let_at_least_one_side_see_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper, writer = await steps_of_both(tmp_path, monkeypatch)
    assert outcomes((sleeper, writer)) == {(0, 1), (1, 0), (1, 1)}
    # Without the fence of either side, both can miss what the other has stored.
    for missing in range(2):
        sides = [sleeper, writer]
        sides[missing] = [step for step in sides[missing] if step[0] != "fence"]
        assert (0, 0) in outcomes((sides[0], sides[1]))


# Two processes.


@needs_shared_memory
@pytest.mark.processes
async def test_no_wake_up_is_lost_between_two_processes(tmp_path: Path) -> None:
    shared = share(tmp_path / "shared")
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answered = sleep_count = 0
    pauses = random_pauses(8)

    def has_more() -> bool:
        return shared.load_acquire_64(DATA) > answered

    def read() -> None:
        nonlocal answered, sleep_count
        while True:
            while has_more():
                answered = shared.load_acquire_64(DATA)
                shared.store_release_64(ANSWER, answered)
            if answered == ROUNDS:
                if not over.done():
                    over.set_result(None)
                return
            for _ in pauses[answered % len(pauses)]:
                pass
            if bell.fall_asleep(has_more):
                sleep_count += 1
                return

    bell = Doorbell(
        asyncio.get_running_loop(),
        tmp_path,
        CLIENT_ID,
        shared=shared,
        offset=ASLEEP_AT,
        on_ring=read,
    )
    command = [sys.executable, "-m", "tests.io.bell_process", str(tmp_path), str(ROUNDS), "7"]
    process = subprocess.Popen(command, cwd=ROOT, env=untraced_environment())  # noqa: ASYNC220
    try:
        with untraced():
            read()
            async with asyncio.timeout(PATIENCE_S):
                await over
            assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        bell.close()
    assert answered == ROUNDS
    assert sleep_count > 0
