"""The newest snapshot for other threads, also where the loop does not answer."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.metrics.latest import LatestStats
from tests.metrics.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aeron_async.stats import Stats

# Nobody waits as long: a busy machine is no reason to fail.
LONG_S = 60.0
SHORT_S = 0.01


class Driver:
    """Takes snapshots one second apart, and knows the threads that asked."""

    def __init__(self) -> None:
        self.count = 0
        self.threads: set[int] = set()
        self.is_closed = False

    def take(self) -> Stats:
        self.threads.add(threading.get_ident())
        if self.is_closed:
            message = "the driver has been closed"
            raise ClosedError(message)
        self.count += 1
        return snapshot(at_s=self.count)


def called_beside(call: Callable[[], object]) -> None:
    """Run something in a thread while the loop, in which this is called, stands still."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()


async def test_a_thread_gets_what_the_loop_takes() -> None:
    driver = Driver()
    latest = LatestStats(driver.take, timeout_s=LONG_S)

    stats = await asyncio.to_thread(latest)

    assert stats == snapshot(at_s=1)
    assert driver.threads == {threading.get_ident()}
    assert latest.late_count == 0


async def test_the_loop_itself_takes_one_at_once() -> None:
    driver = Driver()
    assert LatestStats(driver.take)() == snapshot(at_s=1)


async def test_a_loop_that_stands_still_leaves_the_snapshot_before_or_none() -> None:
    driver, got = Driver(), list[object]()
    latest = LatestStats(driver.take, timeout_s=SHORT_S)

    called_beside(lambda: got.append(latest()))
    assert got == [None]
    first = latest()
    called_beside(lambda: got.append(latest()))

    assert got == [None, first]
    assert latest.late_count == 2


async def test_threads_that_wait_for_a_loop_share_one_request() -> None:
    driver = Driver()
    latest = LatestStats(driver.take, timeout_s=SHORT_S)
    for _ in range(5):
        called_beside(latest)
    assert driver.count == 0

    await asyncio.sleep(0)
    assert driver.count == 1
    patient = LatestStats(driver.take, timeout_s=LONG_S)
    assert await asyncio.to_thread(patient) is not None


def test_a_loop_that_was_closed_leaves_the_snapshot_before() -> None:
    driver = Driver()

    async def make() -> LatestStats:
        latest = LatestStats(driver.take, timeout_s=LONG_S)
        latest()
        return latest

    latest, got = asyncio.run(make()), list[object]()
    called_beside(lambda: got.append(latest()))
    assert got == [snapshot(at_s=1)]
    assert latest.late_count == 1


def test_a_loop_that_closes_with_a_request_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, is_asked = Driver(), threading.Event()
    asked: list[Future[Stats | None]] = []

    def ask(_answer: object, pending: Future[Stats | None]) -> None:
        asked.append(pending)
        is_asked.set()

    async def make() -> LatestStats:
        latest = LatestStats(driver.take, timeout_s=LONG_S)
        latest()
        return latest

    loop = asyncio.SelectorEventLoop()
    latest, got = loop.run_until_complete(make()), list[object]()
    monkeypatch.setattr(loop, "call_soon_threadsafe", ask)
    waiting = threading.Thread(target=latest)
    waiting.start()
    assert is_asked.wait(LONG_S)
    loop.close()
    # Longer than a test may take: a call that waits would not come back.
    latest._timeout_s = 10 * LONG_S

    called_beside(lambda: got.append(latest()))

    assert got == [snapshot(at_s=1)]
    assert latest.late_count == 1
    asked[0].set_result(None)
    waiting.join(LONG_S)


async def test_no_call_waits_for_a_request_that_was_given_up_until_it_is_answered() -> None:
    driver = Driver()
    latest = LatestStats(driver.take, timeout_s=SHORT_S)
    called_beside(latest)
    # Longer than a test may take: a call that waits would not come back.
    latest._timeout_s = 10 * LONG_S

    called_beside(latest)
    assert (latest.late_count, driver.count) == (2, 0)

    await asyncio.sleep(0)
    assert driver.count == 1
    assert await asyncio.to_thread(latest) == snapshot(at_s=2)
    assert latest.late_count == 2


async def test_a_request_that_was_interrupted_is_followed_by_another() -> None:
    driver, interrupts = Driver(), [asyncio.CancelledError()]

    def take() -> Stats:
        if interrupts:
            raise interrupts.pop()
        return driver.take()

    latest = LatestStats(take, timeout_s=LONG_S)
    assert await asyncio.to_thread(latest) is None
    assert await asyncio.to_thread(latest) == snapshot(at_s=1)


async def test_what_cannot_be_taken_is_counted_and_said_once_until_it_can() -> None:
    driver = Driver()
    latest = LatestStats(driver.take, timeout_s=LONG_S)
    first = latest()
    driver.is_closed = True
    with capture_logs() as lines:
        assert await asyncio.to_thread(latest) is first
        assert await asyncio.to_thread(latest) is first
    assert [line["event"] for line in lines] == ["stats_not_taken"]
    assert latest.failed_count == 2

    driver.is_closed = False
    assert await asyncio.to_thread(latest) == snapshot(at_s=2)
    driver.is_closed = True
    with capture_logs() as lines:
        await asyncio.to_thread(latest)
    assert [line["event"] for line in lines] == ["stats_not_taken"]


async def test_what_is_no_snapshot_is_said_to_be_none() -> None:
    take: Any = dict
    latest = LatestStats(take, timeout_s=LONG_S)
    with capture_logs() as lines:
        assert latest() is None
    assert "what `take` returns must be a snapshot" in lines[0]["error"]
    assert "got dict" in lines[0]["error"]


async def test_the_timeout_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="timeout_s=0 must be above 0"):
        LatestStats(Driver().take, timeout_s=0)


async def test_a_function_that_has_to_be_awaited_is_refused() -> None:
    async def take() -> Stats:
        return snapshot()

    with pytest.raises(ConfigurationError, match="take"):
        LatestStats(take)  # type: ignore[arg-type]
