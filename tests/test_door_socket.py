"""The socket of a door: its mode, its folder, what it replaces, and what it leaves."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import door_socket
from aeron_async.door import DoorClient
from aeron_async.door_socket import PATH_MAX, DoorSocket, check_path, peer_uid, refusal_of
from aeron_async.errors import ConfigurationError, DoorInUseError, DriverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "door"


@pytest.fixture
def _umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_its_user_may_open_it_whatever_the_umask(path: Path, umask: int) -> None:
    os.umask(umask)
    opened = DoorSocket(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    opened.close()
    assert not path.exists()


@pytest.mark.usefixtures("_umask")
def test_the_file_never_has_another_mode(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def chmod(name: str, _mode: int, *, dir_fd: int) -> None:
        modes.append(os.stat(name, dir_fd=dir_fd).st_mode & 0o777)

    monkeypatch.setattr(os, "chmod", chmod)
    DoorSocket(str(path)).close()
    assert modes == [0o600]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_write_is_refused(path: Path, mode: int) -> None:
    path.parent.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"others may write .* mode {mode:04o}; use a"):
        DoorSocket(str(path))
    assert not path.exists()


def test_a_folder_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_socket, "is_own", lambda _uid: False)
    with pytest.raises(ConfigurationError, match="belongs to user"):
        DoorSocket(str(path))


def test_a_folder_that_is_missing_or_a_file_is_refused(path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="make it with mode 0700"):
            DoorSocket(str(path / "door"))
        path.touch()


def test_a_door_whose_backlog_is_full_is_not_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as client:
        other.bind(str(path))
        other.listen(0)
        client.connect(str(path))
        with pytest.raises(DoorInUseError, match="another process has opened"):
            DoorSocket(str(path))
    assert path.is_socket()


def test_a_socket_of_another_kind_is_not_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(ConfigurationError, match="cannot be opened"):
            DoorSocket(str(path))
    assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "link", "link to nothing"])
def test_what_is_no_socket_is_left(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            with socket.socket(socket.AF_UNIX) as old:
                old.bind(str(path.parent / "old"))
            path.symlink_to(path.parent / "old")
        case _:
            path.symlink_to(path.parent / "nothing")
    before = path.lstat()
    with pytest.raises(ConfigurationError, match="is no socket, and stays as it is"):
        DoorSocket(str(path))
    assert path.lstat().st_ino == before.st_ino


@pytest.mark.parametrize("check", [check_path, DoorClient])
def test_a_path_that_is_too_long_is_refused_with_the_limit(tmp_path: Path, check: Any) -> None:
    long = str(tmp_path / "d").ljust(PATH_MAX, "é")
    assert len(long) == PATH_MAX
    with pytest.raises(ConfigurationError, match=f"bytes, and the system takes {PATH_MAX}"):
        check(long)


@pytest.mark.parametrize("name", ["\0door", "@door"])
def test_an_abstract_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="abstract name"):
        check_path(name)


@pytest.mark.parametrize("name", ["", "/", "folder/", "folder/.", "..", "a\0b"])
def test_a_path_needs_a_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="needs the path of a file"):
        check_path(name)


def test_whoever_locks_the_folder_holds_nothing_up(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        opened = DoorSocket(str(path))
        assert [each.name for each in path.parent.iterdir()] == ["door"]
        opened.close()
    finally:
        os.close(folder)


def test_two_processes_do_not_open_a_door_at_once(path: Path) -> None:
    lock_path = path.with_name(".door.lock")
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(DoorInUseError, match=r"another process opens the door .* just now"):
        DoorSocket(str(path))
    os.close(lock)
    # It was left by a process that has ended.
    assert lock_path.exists()
    DoorSocket(str(path)).close()
    assert not lock_path.exists()


def test_a_lock_that_has_lost_its_name_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(_descriptor: int, _operation: int) -> None:
        path.with_name(".door.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", lock)
    with pytest.raises(DoorInUseError, match="another process opens the door"):
        DoorSocket(str(path))
    assert not path.exists()


@pytest.mark.parametrize("kind", ["link", "open to others", "pipe", "folder"])
def test_a_lock_that_others_may_hold_is_refused(path: Path, kind: str) -> None:
    lock = path.with_name(".door.lock")
    precious = path.with_name("precious")
    precious.write_text("precious")
    match kind:
        case "link":
            lock.symlink_to(precious)
        case "open to others":
            lock.touch()
            lock.chmod(0o644)
        case "pipe":
            os.mkfifo(lock)
            lock.chmod(0o600)
        case _:
            lock.mkdir()
    with pytest.raises(ConfigurationError, match=r"\.door\.lock"):
        DoorSocket(str(path))
    assert precious.read_text() == "precious"
    assert os.path.lexists(lock)
    assert not path.exists()


def test_of_doors_that_replace_a_stale_socket_at_once_one_opens(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    opened: list[DoorSocket] = []
    refused: list[DoorInUseError] = []

    def open_one() -> None:
        try:
            opened.append(DoorSocket(str(path)))
        except DoorInUseError as error:
            refused.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(opened), len(refused)) == (1, 15)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    opened[0].close()
    assert not path.exists()


def test_a_file_in_its_place_is_not_removed(path: Path) -> None:
    opened = DoorSocket(str(path))
    path.rename(path.parent / "elsewhere")
    path.write_text("precious")
    opened.close()
    assert path.read_text() == "precious"


def test_a_file_is_removed_once(path: Path) -> None:
    opened = DoorSocket(str(path))
    opened.remove()
    # It may have the number of the file that was removed.
    other = DoorSocket(str(path))
    opened.close()
    assert path.is_socket()
    other.close()


def test_a_failure_while_it_opens_leaves_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chmod(*_arguments: Any, **_more: Any) -> None:
        raise OSError(5, "Input/output error")

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "chmod", chmod)
    with pytest.raises(ConfigurationError, match="cannot be opened: Input/output error"):
        DoorSocket(str(path))
    assert not path.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("file", "is no socket, and so no door: name the socket"),
        ("directory", r"is a directory, and a door is a socket: .* \(--directory\)"),
        ("pipe", "is no socket, and so no door"),
        ("link to a file", "is no socket, and so no door"),
    ],
)
async def test_a_client_says_what_is_no_socket(path: Path, kind: str, text: str) -> None:
    make: dict[str, Callable[[], None]] = {
        "file": path.touch,
        "directory": path.mkdir,
        "pipe": partial(os.mkfifo, path),
        "link to a file": partial(path.symlink_to, __file__),
    }
    make[kind]()
    with pytest.raises(DriverError, match=text):
        await DoorClient(path).__aenter__()


def test_a_socket_that_goes_while_a_client_comes_has_nobody_either(path: Path) -> None:
    why = refusal_of(str(path), ConnectionRefusedError())
    assert why == f"nobody listens at the door {path}: its process has ended"


def test_the_system_says_whose_process_a_client_is() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_uid(one) == os.geteuid()
