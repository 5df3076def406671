"""Connection of a Spark worker process: a driver, a client, and the thread that runs both.

Spark's workers are synchronous and the package is not: one thread owns the event loop, and a batch
enters it in one call. Spark reuses workers, so the connection survives a task and closes when no
task has used it for a while. Spark may kill a worker at any time; nothing breaks if the connection
is not closed.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import anyio
from anyio.from_thread import BlockingPortal

from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

__all__ = [
    "WorkerConnection",
    "close_connection",
    "together",
    "worker_connection",
]

T = TypeVar("T")
START_TIMEOUT_S = 30

log: Final = get_logger(__name__)


@final
class WorkerConnection:
    """A driver, a client, and the thread that owns both.

    Attributes:
        aeron: The client.
        kept: Objects that tasks leave for later tasks, by name; used in the event loop only.
        closing: Functions that close some of these before the client closes, by the same name.
    """

    aeron: Aeron

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.closing: dict[str, Callable[[], Awaitable[object]]] = {}
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._users = 0
        self._idle_at_ns = 0
        self._is_over = False
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="aeron-spark", daemon=True)
        self._thread.start()
        self._started.result(START_TIMEOUT_S)

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run a coroutine function in the event loop and return its result."""
        return self._portal.call(function, *args)

    def enter(self) -> bool:
        """Register a user; return False if the connection is closed or closing."""
        with self._lock:
            if self._is_over or self.aeron.is_closed:
                return False
            self._users += 1
            return True

    def leave(self, linger_ms: int) -> None:
        """Unregister a user; the connection closes after that long without users."""
        with self._lock:
            self._users -= 1
            self._idle_at_ns = self._clock.now_ns() + linger_ms * (NS_PER_SECOND // 1_000)
        self._wake()

    def close(self) -> None:
        """Close the connection even if it is in use, and wait for the thread."""
        with self._lock:
            self._is_over = True
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        # The loop may have ended by itself; then there is nothing to wake.
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self._portal.start_task_soon(self._changed_now)

    def _run(self) -> None:
        try:
            anyio.run(self._live, backend_options={"use_uvloop": sys.platform != "win32"})
        except BaseException as error:  # the constructor raises it, or it is logged
            if self._started.done():
                log.warning("worker_driver_failed", exc_info=error)
            else:
                self._started.set_exception(error)
        finally:
            with self._lock:
                self._is_over = True

    async def _live(self) -> None:
        self._changed = anyio.Event()
        async with Aeron.connect() as self.aeron, BlockingPortal() as self._portal:
            self._started.set_result(None)
            while not self._try_end():
                with anyio.move_on_after(self._idle_s()):
                    await self._changed.wait()
                self._changed = anyio.Event()
            # A call can only be running here if `close` was called.
            await self._portal.stop(cancel_remaining=True)
            for close in list(self.closing.values()):
                await close()

    def _try_end(self) -> bool:
        with self._lock:
            is_idle = self._users == 0 and 0 < self._idle_at_ns <= self._clock.now_ns()
            self._is_over = self._is_over or is_idle
            return self._is_over

    def _idle_s(self) -> float:
        """Return the seconds until the connection may become idle for too long."""
        with self._lock:
            if self._users or not self._idle_at_ns:
                return float("inf")
            return max(0, self._idle_at_ns - self._clock.now_ns()) / NS_PER_SECOND

    async def _changed_now(self) -> None:
        self._changed.set()


class Kept:
    """The connection of this process, if there is one."""

    connection: WorkerConnection | None = None
    lock: threading.Lock = threading.Lock()


@contextmanager
def worker_connection(linger_ms: int) -> Iterator[WorkerConnection]:
    """Lend the connection of this process; open one if there is none.

    Args:
        linger_ms: How long the connection stays open after this use.
    """
    with Kept.lock:
        connection = Kept.connection
        if connection is None or not connection.enter():
            connection = Kept.connection = WorkerConnection()
            connection.enter()
    try:
        yield connection
    finally:
        connection.leave(linger_ms)


def close_connection() -> None:
    """Close the connection of this process."""
    with Kept.lock:
        connection, Kept.connection = Kept.connection, None
    if connection is not None:
        connection.close()


def forget_connection() -> None:
    """Drop the connection of the parent process after a fork: its thread does not exist here."""
    Kept.connection = None
    Kept.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_connection)


async def together(calls: Iterable[Callable[[], Awaitable[object]]], *, at_once: int) -> None:
    """Await all calls, and raise the error of the first that failed.

    Args:
        calls: Functions to call.
        at_once: Upper limit on calls that run at the same time.
    """
    limiter = anyio.CapacityLimiter(at_once)
    failures: list[Exception] = []

    async def attempt(call: Callable[[], Awaitable[object]]) -> None:
        async with limiter:
            try:
                await call()
            except Exception as error:  # noqa: BLE001 - the first is raised below
                failures.append(error)

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(attempt, call)
    if failures:
        raise failures[0]
