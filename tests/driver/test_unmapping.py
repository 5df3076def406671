"""Long logs are unmapped in a thread: the file is gone at once, and the loop does not wait."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.driver import storage as storage_module
from aeron_async.driver.storage import UNMAPPED_AT_ONCE_MAX, DirectoryStorage, Unmapper
from aeron_async.logbuffer.log_buffers import file_length
from tests.concurrent.shared import needs_shared_memory
from tests.driver.foreign.client import small_context
from tests.logbuffer.logs import make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.concurrent.atomic_buffer import Mapping
    from aeron_async.logbuffer.log_buffers import LogBuffers

pytestmark = needs_shared_memory
NOW_MS = 1_795_473_000_000
LONG = 1 << 20
"""Terms of a log that a thread unmaps."""
SHORT = 1 << 16
LENGTH = file_length(term_length=LONG, page_size=4096)
IPC = "aeron:ipc?term-length=1m"
TIMEOUT_S = 60


class Gate:
    """Unmaps logs when the test lets it, and knows which thread did it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_begun = threading.Event()
        self.may_end = threading.Event()
        self.is_waited_for = threading.Event()
        self.threads: list[threading.Thread] = []
        self.mappings: list[Mapping] = []
        self.error: Exception | None = None
        self._unmap = storage_module._unmap
        wait = Unmapper.wait

        def waited(unmapper: Unmapper) -> None:
            self.is_waited_for.set()
            wait(unmapper)

        monkeypatch.setattr(storage_module, "_unmap", self.unmap)
        monkeypatch.setattr(Unmapper, "wait", waited)

    def unmap(self, mapping: Mapping) -> None:
        self.threads.append(threading.current_thread())
        self.mappings.append(mapping)
        self.is_begun.set()
        if threading.current_thread().name.startswith("aeron-unmap"):
            assert self.may_end.wait(TIMEOUT_S)
        error, self.error = self.error, None
        if error is not None:
            raise error
        self._unmap(mapping)

    @property
    def is_done(self) -> bool:
        return all(mapping.length == 0 for mapping in self.mappings)


@pytest.fixture(autouse=True)
def _a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "UNMAPPING_WAIT_S", TIMEOUT_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.may_end.set()


@pytest.fixture
def storage(path: Path) -> Iterator[DirectoryStorage]:
    storage = DirectoryStorage(small_context(path), NOW_MS)
    yield storage
    storage.close()


def add(storage: DirectoryStorage, term_length: int = LONG) -> LogBuffers:
    spec = make_spec(correlation_id=storage.next_id(), term_length=term_length, sparse=True)
    return storage.create_log(spec)


def is_there(log: LogBuffers) -> bool:
    return Path(log.file).exists()


def logs(path: Path) -> list[Path]:
    return [*path.glob("publications/*")]


async def happens(event: threading.Event) -> None:
    with ThreadPoolExecutor(1) as executor:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(executor, event.wait, TIMEOUT_S)


def let_at_wait(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the thread unmap logs once somebody waits for it."""
    wait = Unmapper.wait

    def let(unmapper: Unmapper) -> None:
        gate.may_end.set()
        wait(unmapper)

    monkeypatch.setattr(Unmapper, "wait", let)


# One log.


def test_the_file_of_a_long_log_goes_at_once_and_its_memory_later(
    storage: DirectoryStorage, gate: Gate
) -> None:
    log = add(storage)
    log.close()
    assert not is_there(log)
    assert gate.is_begun.wait(TIMEOUT_S)
    (mapping,) = gate.mappings
    assert mapping.length == LENGTH
    assert threading.current_thread() not in gate.threads
    gate.may_end.set()
    storage._unmapper.wait()
    assert mapping.length == 0


def test_a_short_log_is_unmapped_where_it_is_closed(storage: DirectoryStorage, gate: Gate) -> None:
    log = add(storage, SHORT)
    assert log.memory.nbytes <= UNMAPPED_AT_ONCE_MAX
    log.close()
    assert gate.threads == [threading.current_thread()]
    assert gate.is_done
    assert not storage._unmapper.is_busy


def test_logs_are_unmapped_in_the_order_in_which_they_were_closed(
    storage: DirectoryStorage, gate: Gate
) -> None:
    logs = [add(storage, LONG << each) for each in (1, 0, 2)]
    lengths = [log.memory.nbytes for log in logs]
    found: list[int] = []
    unmap = gate._unmap

    def note(mapping: Mapping) -> None:
        found.append(mapping.length)
        unmap(mapping)

    gate._unmap = note
    for log in logs:
        log.close()
    gate.may_end.set()
    storage._unmapper.wait()
    assert found == lengths


def test_a_view_that_is_left_keeps_the_memory_of_a_long_log(storage: DirectoryStorage) -> None:
    log = add(storage)
    log.terms[0][:5] = b"hello"
    kept = log.terms[0][:5]
    with capture_logs() as lines:
        log.close()
        storage._unmapper.wait()
    assert not is_there(log)
    assert bytes(kept) == b"hello"
    assert lines == []


def test_an_error_of_the_thread_is_logged_and_the_next_log_is_unmapped(
    storage: DirectoryStorage, gate: Gate
) -> None:
    gate.error = OSError("no such mapping")
    gate.may_end.set()
    first, second = add(storage), add(storage)
    with capture_logs() as lines:
        first.close()
        second.close()
        storage.close()
        storage._unmapper._executor.shutdown()
    (line,) = lines
    assert line["event"] == "unmapping_failed"
    assert "no such mapping" in str(line["exc_info"])
    assert [mapping.length for mapping in gate.mappings] == [LENGTH, 0]


def test_a_log_is_unmapped_at_once_if_the_system_has_no_thread(
    storage: DirectoryStorage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(storage._unmapper._executor, "submit", refuse)
    add(storage).close()
    assert gate.threads == [threading.current_thread()]
    assert gate.is_done


def test_a_log_is_unmapped_at_once_after_the_driver_has_closed(
    storage: DirectoryStorage, gate: Gate
) -> None:
    log = add(storage)
    storage.close()
    log.close()
    assert gate.threads == [threading.current_thread()]
    assert gate.is_done


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_leaves_the_file_to_its_parent(
    storage: DirectoryStorage, gate: Gate
) -> None:
    log, other = add(storage), add(storage)
    other.close()
    assert gate.is_begun.wait(TIMEOUT_S)
    # The thread of the parent does not exist there, and may hold a lock for ever.
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log.close()
            code = 0 if is_there(log) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_there(log)
    log.terms[0][:5] = b"hello"
    log.close()
    assert not is_there(log)


def test_room_that_is_about_to_be_free_is_waited_for(
    storage: DirectoryStorage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = add(storage)

    def statvfs(_: object) -> os.statvfs_result:
        pages = LENGTH // 4096 if gate.is_done else 0
        return os.statvfs_result((4096, 4096, pages, 0, pages, 0, 0, 0, 0, 255))

    log.close()
    assert gate.is_begun.wait(TIMEOUT_S)
    monkeypatch.setattr(os, "statvfs", statvfs)
    let_at_wait(gate, monkeypatch)
    add(storage).close()


# A driver.


async def close_a_publication(aeron: aa.Aeron, path: Path, gate: Gate) -> None:
    """Close a publication, and return when the thread is about to unmap its log."""
    publication = await aeron.add_publication(IPC, 1001)
    assert logs(path) != []
    await publication.aclose()
    await happens(gate.is_begun)
    assert logs(path) == []


async def test_a_driver_works_while_a_log_is_unmapped(path: Path, gate: Gate) -> None:
    async with (
        aa.MediaDriver.launch(small_context(path)) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        await close_a_publication(aeron, path, gate)
        async with (
            aeron.add_subscription("aeron:ipc?term-length=64k", 1002) as subscription,
            aeron.add_publication("aeron:ipc?term-length=64k", 1002) as publication,
        ):
            await publication.offer(b"meanwhile")
            assert bytes(await anext(aiter(subscription))) == b"meanwhile"
        assert not gate.may_end.is_set()
        assert gate.mappings[0].length == LENGTH
        gate.may_end.set()


@pytest.mark.parametrize("how", ["aclose", "abort"])
async def test_a_driver_that_closes_waits_for_its_memory(path: Path, gate: Gate, how: str) -> None:
    driver = await aa.MediaDriver.launch(small_context(path))
    aeron = await aa.Aeron.connect(driver)
    await close_a_publication(aeron, path, gate)
    # And one whose log is closed with the driver.
    await aeron.add_publication(IPC, 1002)
    closing = asyncio.ensure_future(getattr(driver, how)())
    await happens(gate.is_waited_for)
    waiting = asyncio.ensure_future(driver.wait_closed())
    gate.is_waited_for.clear()
    await happens(gate.is_waited_for)
    assert not closing.done()
    assert not waiting.done()
    gate.may_end.set()
    await closing
    await waiting
    assert len(gate.mappings) == 2
    assert gate.is_done


async def test_a_driver_that_closes_waits_no_longer_than_it_may(
    path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "UNMAPPING_WAIT_S", 0.001)
    driver = await aa.MediaDriver.launch(small_context(path))
    await close_a_publication(await aa.Aeron.connect(driver), path, gate)
    await asyncio.wait_for(driver.aclose(), TIMEOUT_S)
    assert not gate.is_done


async def test_a_driver_in_a_thread_waits_for_its_memory(path: Path, gate: Gate) -> None:
    driver = await aa.MediaDriver.launch(small_context(path), thread=True)
    aeron = await aa.Aeron.connect(driver)
    await close_a_publication(aeron, path, gate)
    await aeron.aclose()
    closing = asyncio.ensure_future(driver.aclose())
    await happens(gate.is_waited_for)
    assert not closing.done()
    gate.may_end.set()
    await closing
    assert gate.is_done


def test_a_driver_that_is_stepped_waits_for_its_memory(
    path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = aa.MediaDriver.launch(small_context(path), invoker=True)
    driver.start()
    aeron = driver.run(aa.Aeron.connect(driver))
    driver.run(close_a_publication(aeron, path, gate))
    for _ in range(3):
        driver.do_work()
    assert not gate.is_done
    let_at_wait(gate, monkeypatch)
    driver.close()
    assert gate.is_done


def test_the_thread_ends_when_it_has_done_its_work(storage: DirectoryStorage, gate: Gate) -> None:
    """Nobody waits for it if the event loop of the driver has ended."""
    for log in (add(storage), add(storage)):
        log.close()
    assert gate.is_begun.wait(TIMEOUT_S)
    storage.close()
    assert gate.threads[0].is_alive()
    gate.may_end.set()
    gate.threads[0].join(TIMEOUT_S)
    assert not gate.threads[0].is_alive()
    assert len(gate.mappings) == 2
    assert gate.is_done
