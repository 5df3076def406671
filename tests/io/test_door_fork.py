"""A door in a child process that is forked: the child holds nothing of it, and removes nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.door import DoorClient, StatsDoor
from aeron_async.door_socket import DoorSocket, close_in_child
from aeron_async.errors import ClosedError, DriverError
from tests.snapshots import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
PATIENCE_S = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "door"


def door_at(path: Path) -> StatsDoor:
    return StatsDoor(path, stats, version="1.2.3", pid=42)


@contextmanager
def child(call: Callable[[], Any] = lambda: None) -> Iterator[str]:
    """Yield what a call returns or raises in a forked child, which lives as long as the block."""
    said_read, said_write = os.pipe()
    stop_read, stop_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(said_read)
            os.close(stop_write)
            try:
                text = f"returned {call()!r}"
            except BaseException as error:  # noqa: BLE001 - it is reported
                text = f"{type(error).__name__}: {error}"
            os.write(said_write, text.encode())
            os.close(said_write)
            os.read(stop_read, 1)
        finally:
            os._exit(0)
    os.close(said_write)
    os.close(stop_read)
    try:
        with os.fdopen(said_read) as pipe:
            text = pipe.read()
        yield text
    finally:
        os.close(stop_write)
        os.waitpid(pid, 0)


def sockets() -> list[str]:
    """Return the Unix sockets of this process that have the path of a door, and their peers."""
    with open("/proc/self/net/unix") as file:  # noqa: PTH123 - it is no file of a disk
        names = {
            line.split()[6]: line.split()[-1] for line in file if line.rstrip().endswith("/door")
        }
    found = []
    for each in os.listdir("/proc/self/fd"):  # noqa: PTH208 - in a child, as little as can be
        try:
            target = os.readlink(f"/proc/self/fd/{each}")  # noqa: PTH115 - as above
        except OSError:
            continue
        if target.startswith("socket:["):
            found += [names[number]] if (number := target[8:-1]) in names else []
    return found


async def test_a_child_holds_no_socket_of_the_door(path: Path) -> None:
    async with door_at(path), DoorClient(path) as client:
        await client.get_stats()
        assert sockets() == [str(path)] * 2
        with child(sockets) as said:
            assert said == "returned []"
            # The parent's door goes on.
            assert await client.get_stats() == stats()
            async with DoorClient(path) as other:
                assert await other.get_stats() == stats()


async def test_clients_see_the_end_of_the_door_while_a_child_lives(path: Path) -> None:
    door = door_at(path)
    await door.start()
    async with DoorClient(path) as client:
        await client.get_stats()
        with child():
            await door.aclose()
            with pytest.raises(DriverError, match="has closed"):
                async with asyncio.timeout(PATIENCE_S):
                    await client.get_stats()


async def test_a_parent_that_was_killed_opens_its_door_again_while_a_child_lives(
    path: Path,
) -> None:
    opened = DoorSocket(str(path))
    door = door_at(path)
    door._socket = opened
    with child(door.on_forked):
        # As the system does: the file stays.
        opened.listener.close()
        async with door_at(path), DoorClient(path) as client:
            assert await client.get_stats() == stats()
    door._socket = None
    os.close(opened._folder)


async def test_the_door_sees_a_client_leave_while_a_child_of_it_lives(path: Path) -> None:
    """Or the child would keep its place, one of few, for as long as it lives."""
    async with door_at(path) as door, DoorClient(path) as client:
        await client.get_stats()

        def ask() -> None:
            with pytest.raises(ClosedError, match="belongs to the parent of this process"):
                client.get_stats().send(None)

        with child(ask) as said:
            assert said == "returned None"
            # The connection of the parent goes on.
            assert await client.get_stats() == stats()
            assert door.client_count == 1
            await client.aclose()
            async with asyncio.timeout(PATIENCE_S):
                while door.client_count:
                    await asyncio.sleep(0)


async def test_a_child_that_closes_the_door_leaves_its_file(path: Path) -> None:
    async with door_at(path) as door, DoorClient(path) as client:
        await client.get_stats()
        with child(door.close) as said:
            assert said == "returned None"
            async with DoorClient(path) as other:
                assert await other.get_stats() == stats()
        assert await client.get_stats() == stats()


async def test_a_child_cannot_open_the_door_again(path: Path) -> None:
    async with door_at(path) as door:

        def start() -> None:
            with pytest.raises(ClosedError, match="was closed"):
                door.start().send(None)

        with child(start) as said:
            assert said == "returned None"


def test_a_number_that_is_given_up_stays_in_use() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        number = one.fileno()
        close_in_child(number)
        assert other.recv(1) == b""
        assert stat.S_ISCHR(os.fstat(number).st_mode)
        assert not os.get_inheritable(number)


def test_a_socket_is_given_up_without_a_file_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_more: Any) -> int:
        raise OSError(24, "Too many open files")

    one, other = socket.socketpair(socket.AF_UNIX)
    with other:
        monkeypatch.setattr(os, "open", refuse)
        close_in_child(one.detach())
        assert other.recv(1) == b""
