"""Files that fail: what was waited for stays, the rest may go, and one seed is one misfortune."""

from __future__ import annotations

import errno

import pytest

from aeron_async.archive.disk.files import read_exactly, write_all
from aeron_async.errors import ArchiveError
from tests.support.faulty_files import Faults, FaultyDirectory, ProcessStopped

PAGES = 64


def made(seed: int = 0) -> FaultyDirectory:
    """Return a directory with a file of which all is on the disk, in pages of ones."""
    directory = FaultyDirectory(seed)
    file = directory.open("a", create=True)
    write_all(file, [b"\1" * 4_096 * PAGES], 0)
    file.sync(metadata=True)
    directory.sync()
    return directory


def content(directory: FaultyDirectory, name: str = "a") -> bytes:
    file = directory.open_to_read(name)
    buffer = bytearray(file.length())
    read_exactly(file, memoryview(buffer), 0)
    return bytes(buffer)


def test_a_kill_loses_nothing_and_closes_all() -> None:
    directory = made()
    file = directory.open("a")
    assert file.try_lock()
    file.write([b"\2" * 5_000], 100)
    directory.open("b", exclusive=True)
    directory.kill()
    with pytest.raises(OSError, match="descriptor"):
        file.length()
    assert content(directory)[100:5_100] == b"\2" * 5_000
    assert sorted(directory.names()) == ["a", "b"]
    assert directory.open("a").try_lock()


def test_a_crash_loses_some_of_what_was_not_waited_for() -> None:
    directory = made(5)
    file = directory.open("a")
    write_all(file, [b"\2" * 4_096 * (PAGES - 1)], 4_096)
    directory.crash()
    data = content(directory)
    pages = {data[at : at + 4_096] for at in range(4_096, len(data), 4_096)}
    assert pages == {b"\1" * 4_096, b"\2" * 4_096}
    assert data[:4_096] == b"\1" * 4_096
    # What survived is on the disk now.
    directory.crash()
    assert content(directory) == data


def test_what_was_waited_for_survives_every_crash() -> None:
    for seed in range(20):
        directory = made(seed)
        file = directory.open("a")
        file.write([b"\3" * 9_000], 0)
        file.sync(metadata=False)
        directory.crash()
        assert content(directory)[:9_000] == b"\3" * 9_000


def test_names_that_were_not_waited_for_come_and_go() -> None:
    outcomes = set()
    for seed in range(40):
        directory = made(seed)
        directory.open("b", create=True)
        directory.rename("b", "c")
        directory.remove("a")
        directory.crash()
        outcomes.add(tuple(sorted(directory.names())))
    assert {(), ("a",), ("c",), ("b",), ("a", "c"), ("a", "b")} == outcomes


def test_a_length_that_was_not_waited_for_may_be_the_old_one() -> None:
    lengths = set()
    for seed in range(20):
        directory = made(seed)
        directory.open("a").set_length(5_000)
        directory.crash()
        data = content(directory)
        lengths.add(len(data))
        assert data[:4_096] == b"\1" * 4_096
    assert lengths == {5_000, 4_096 * PAGES}


def test_faults_come_as_often_as_asked_for() -> None:
    directory = made()
    file = directory.open("a")
    buffer = memoryview(bytearray(8_192))
    directory.faults = Faults(short_read=1.0, short_write=1.0)
    assert file.read_into(buffer, 0) < 8_192
    assert 0 < file.write([bytes(100_000)], 0) <= 100_000
    assert read_exactly(file, buffer, 0) == 8_192
    for faults, act in (
        (Faults(read_error=1.0), lambda: file.read_into(buffer, 0)),
        (Faults(write_error=1.0), lambda: file.write([b"x"], 0)),
        (Faults(write_error=1.0), lambda: file.set_length(1)),
        (Faults(sync_error=1.0), lambda: file.sync(metadata=True)),
        (Faults(sync_error=1.0), directory.sync),
        (Faults(open_error=1.0), lambda: directory.open("a")),
        (Faults(open_error=1.0), lambda: directory.remove("a")),
        (Faults(open_error=1.0), lambda: directory.rename("a", "b")),
    ):
        directory.faults = faults
        with pytest.raises(OSError, match="Input/output") as caught:
            act()
        assert caught.value.errno == errno.EIO
    assert directory.names() == ["a"]


def test_a_full_disk_takes_what_there_is_room_for() -> None:
    directory = FaultyDirectory(faults=Faults(capacity=3 * 4_096))
    file = directory.open("a", create=True)
    assert file.write([bytes(10_000)], 4_000) == 3 * 4_096 - 4_000
    with pytest.raises(OSError, match="No space left"):
        file.write([b"x"], 3 * 4_096)
    assert file.write([b"x"], 0) == 1
    assert file.write([b""], 0) == 0
    # A hole takes no room.
    file.set_length(1 << 20)


def test_a_process_stops_in_the_middle_of_the_call_that_was_said() -> None:
    directory = made(3)
    file = directory.open("a")
    directory.stop_at = directory.steps + 2
    file.write([b"\2"], 0)
    with pytest.raises(ProcessStopped):
        file.write([b"\4" * 50_000], 0)
    with pytest.raises(ProcessStopped):
        file.sync(metadata=True)
    directory.kill()
    data = content(directory)
    done = data.count(b"\4")
    assert data[:done] == b"\4" * done
    # No sector is ever divided.
    assert done % 512 == 0


def test_names_are_those_of_files_that_are_there() -> None:
    directory = FaultyDirectory()
    directory.now_ms = 77
    with pytest.raises(FileNotFoundError):
        directory.open("a")
    with pytest.raises(FileNotFoundError):
        directory.remove("a")
    with pytest.raises(ArchiveError):
        directory.open("../a", create=True)
    file = directory.open("a", exclusive=True)
    with pytest.raises(FileExistsError):
        directory.open("a", exclusive=True)
    file.write([b"x"], 0)
    assert directory.modified_ms("a") == 77
    other = directory.open("a")
    assert file.try_lock()
    assert other.try_lock() is False
    file.close()
    file.close()
    assert other.try_lock()
