"""What a worker does once, and what it does when a task has come."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from copy import copy
from typing import TYPE_CHECKING, Final, final

import pytest

from aeron_async.spark import batch_reader
from aeron_async.spark.batch_reader import SentToWorkers, settle
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def frozen() -> Iterator[None]:
    """Let what a test froze be collected again."""
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_who_is_no_worker_of_spark_keeps_its_garbage_collector() -> None:
    settle()
    assert gc.get_freeze_count() == 0


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a worker that has a task."""

    class InTask:
        @staticmethod
        def get() -> object:
            return object()

    monkeypatch.setattr(batch_reader, "TaskContext", InTask)


@final
class Sent(SentToWorkers):
    def __init__(self, value: int) -> None:
        self.value = value


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[socket.AddressFamily, tuple[int, ...]]]:
    """Return the options that sockets are given, with the family of each; none is given any."""
    found: list[tuple[socket.AddressFamily, tuple[int, ...]]] = []

    class Noted(socket.socket):
        def setsockopt(self, *given: int) -> None:  # type: ignore[override]
            found.append((self.family, given))

    monkeypatch.setattr(socket, "socket", Noted)
    return found


QUICK: Final = (socket.IPPROTO_TCP, batch_reader.QUICK_ACK, 1)


@pytest.mark.usefixtures("in_task")
def test_what_comes_to_a_worker_is_acknowledged(
    asked: list[tuple[socket.AddressFamily, tuple[int, ...]]],
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()[:2]):
        before = sorted(batch_reader.OPEN_FILES.iterdir())
        asked.clear()
        assert copy(Sent(7)).value == 7
        assert (socket.AF_INET, QUICK) in asked
        # None that it looked at stays open.
        assert sorted(batch_reader.OPEN_FILES.iterdir()) == before


def test_nothing_is_acknowledged_where_there_is_no_task(
    asked: list[tuple[socket.AddressFamily, tuple[int, ...]]],
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        asked.clear()
        assert copy(Sent(7)).value == 7
        assert asked == []


@pytest.mark.usefixtures("in_task")
def test_sockets_that_know_no_acknowledging_do_no_harm() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert copy(Sent(7)).value == 7
        ours.sendall(b"still open")
        assert theirs.recv(10) == b"still open"


@pytest.mark.usefixtures("frozen", "in_task")
def test_a_worker_spares_what_has_been_imported_once() -> None:
    settle()
    spared = gc.get_freeze_count()
    assert spared > 10_000
    more: list[list[int]] = [[] for _ in range(1_000)]
    settle()
    assert gc.get_freeze_count() <= spared
    assert len(more) == 1_000


def test_a_worker_imports_no_driver_and_no_event_loop() -> None:
    program = (
        "import sys, aeron_async.spark.batch_reader; "
        "print([each for each in ('asyncio', 'aeron_async.driver') if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        env=untraced_environment(),
        text=True,
    )
    assert done.stdout == "[]\n"
