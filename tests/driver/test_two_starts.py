"""Two drivers that start over one directory: one of them gets it, and no living one loses it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.concurrent.cnc_file import CNC_FILE
from aeron_async.driver import storage as storage_module
from aeron_async.driver.storage import DirectoryStorage, OwnDirectory
from aeron_async.errors import DriverError
from tests.concurrent.shared import needs_shared_memory
from tests.driver.directories import cnc_bytes
from tests.driver.foreign.client import small_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = needs_shared_memory
NOW_MS = 1_795_473_000_000
LATER_MS = NOW_MS + 20_000
"""Long after the last heartbeat of a driver that died at `NOW_MS`."""
MESSAGE = "another driver starts in"
OPEN: list[DirectoryStorage] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def start(path: Path, now_ms: int = LATER_MS, **changes: Any) -> DirectoryStorage:
    storage = DirectoryStorage(small_context(path, **changes), now_ms)
    OPEN.append(storage)
    return storage


def start_whole(path: Path) -> DirectoryStorage:
    storage = start(path)
    storage.publish(LATER_MS)
    return storage


def leave_stale(path: Path) -> None:
    """Leave what a driver of `NOW_MS` leaves that dies."""
    path.mkdir()
    (path / CNC_FILE).write_bytes(bytes(cnc_bytes(heartbeat_ms=NOW_MS)))


def replace_as_official(path: Path) -> None:
    """Do what a driver does at its start that takes no lock."""
    shutil.rmtree(path)
    leave_stale(path)
    (path / CNC_FILE).write_bytes(bytes(cnc_bytes(heartbeat_ms=LATER_MS)))


def after_check(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen once, when a driver has checked that the one before it is dead."""
    real = storage_module.check_is_unused

    def check(*args: Any, **options: Any) -> None:
        real(*args, **options)
        monkeypatch.setattr(storage_module, "check_is_unused", real)
        happens()

    monkeypatch.setattr(storage_module, "check_is_unused", check)


def refused(path: Path) -> None:
    with pytest.raises(DriverError, match=MESSAGE):
        start_whole(path)


def cnc_of(path: Path) -> tuple[int, int]:
    status = (path / CNC_FILE).stat()
    return status.st_dev, status.st_ino


def test_a_driver_does_not_start_while_another_one_deletes_what_it_has_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_stale(path)
    after_check(monkeypatch, lambda: refused(path))
    storage = start_whole(path)
    assert storage.memory[:4].tobytes() == (path / CNC_FILE).read_bytes()[:4]


@pytest.mark.parametrize("is_stale", [False, True])
def test_what_was_put_in_place_since_the_check_stays(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_stale: bool,  # noqa: FBT001 - one meaning
) -> None:
    leave_stale(path)
    if not is_stale:
        (path / CNC_FILE).unlink()
    after_check(monkeypatch, lambda: replace_as_official(path))
    refused(path)
    assert (path / CNC_FILE).read_bytes() == bytes(cnc_bytes(heartbeat_ms=LATER_MS))


def test_what_is_put_in_place_while_the_old_is_deleted_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_stale(path)
    real = OwnDirectory._remove_itself

    def remove(old: OwnDirectory) -> None:
        monkeypatch.setattr(OwnDirectory, "_remove_itself", real)
        replace_as_official(path)
        old._remove_itself()

    monkeypatch.setattr(OwnDirectory, "_remove_itself", remove)
    refused(path)
    assert (path / CNC_FILE).read_bytes() == bytes(cnc_bytes(heartbeat_ms=LATER_MS))


def test_a_directory_that_goes_before_it_is_opened_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_stale(path)
    real = OwnDirectory.try_open

    def try_open(place: Path) -> OwnDirectory | None:
        monkeypatch.setattr(OwnDirectory, "try_open", real)
        shutil.rmtree(place)
        return real(place)

    monkeypatch.setattr(OwnDirectory, "try_open", try_open)
    start_whole(path)
    assert (path / CNC_FILE).exists()


@pytest.mark.parametrize("file", ["publications", "cnc.dat", "loss-report.dat"])
def test_a_driver_that_starts_keeps_its_directory(
    path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Before it has `cnc.dat`, nothing but its lock says that somebody is there."""
    looks = {"publications": "new_directory"}
    name = looks.get(file, "new_file")
    real = getattr(OwnDirectory, name)

    def make(files: OwnDirectory, asked: str) -> Any:
        if asked == file:
            monkeypatch.setattr(OwnDirectory, name, real)
            # It looks as if nobody had been there for long.
            with pytest.raises(
                DriverError, match=MESSAGE if file != "loss-report.dat" else "start"
            ):
                start(path)
        return real(files, asked)

    monkeypatch.setattr(OwnDirectory, name, make)
    start_whole(path)
    assert sorted(each.name for each in path.iterdir()) == [
        "cnc.dat",
        "images",
        "loss-report.dat",
        "publications",
    ]


def before_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen once, when a driver has made its directory and not yet locked it."""
    real = OwnDirectory.try_open

    def try_open(place: Path) -> OwnDirectory | None:
        monkeypatch.setattr(OwnDirectory, "try_open", real)
        happens()
        return real(place)

    monkeypatch.setattr(OwnDirectory, "try_open", try_open)


@pytest.mark.parametrize("begin", [start, start_whole])
def test_a_directory_that_another_driver_gets_first_is_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Path], DirectoryStorage]
) -> None:
    found: list[tuple[int, int]] = []

    def get_first() -> None:
        begin(path)
        found.append(cnc_of(path))

    before_lock(monkeypatch, get_first)
    refused(path)
    assert [cnc_of(path)] == found
    assert (path / "publications").is_dir()


def test_a_directory_that_goes_before_it_is_locked_is_no_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_lock(monkeypatch, lambda: path.rmdir())  # noqa: PLW0108 - the path is there by then only
    refused(path)
    assert not path.exists()


def test_a_directory_that_is_made_by_another_driver_meanwhile_is_no_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_stale(path)
    real = OwnDirectory.release

    def release(files: OwnDirectory) -> None:
        monkeypatch.setattr(OwnDirectory, "release", real)
        real(files)
        start_whole(path)

    monkeypatch.setattr(OwnDirectory, "release", release)
    refused(path)
    assert (path / CNC_FILE).exists()


def test_a_driver_that_lives_holds_no_lock(path: Path) -> None:
    """Its heartbeat counts: a child process that was forked would keep a lock."""
    start_whole(path)
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(DriverError, match="a driver uses"):
        start(path)
    with pytest.raises(DriverError, match=MESSAGE):
        start(path, LATER_MS + 20_000)
    os.close(fd)
    start(path, LATER_MS + 20_000)


def test_a_start_that_is_given_up_holds_no_lock(path: Path) -> None:
    start(path).close()
    start_whole(path)


def test_a_forced_start_waits_for_no_lock(path: Path) -> None:
    start(path)
    start(path, dir_delete_on_start=True).publish(LATER_MS)
    assert (path / CNC_FILE).exists()


def test_a_file_system_without_locks_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    leave_stale(path)
    start_whole(path)
    assert (path / CNC_FILE).exists()
