"""Where a driver keeps its state: the files, who may use them, and what is never deleted."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
from aeron_async.concurrent.cnc_file import CNC_FILE, CNC_VERSION, CncLayout, load_layout
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.log_creation import create_log
from aeron_async.driver.storage import DirectoryStorage, LogFile, MemoryStorage
from aeron_async.errors import DriverError, ErrorCode, RegistrationError
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from aeron_async.logbuffer.metadata import LogType
from tests.driver.foreign.client import small_context
from tests.logbuffer.logs import TERM_LENGTH, make_spec

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_795_473_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


def storage_at(path: Path, now_ms: int = NOW_MS, **changes: Any) -> DirectoryStorage:
    return DirectoryStorage(small_context(path, **changes), now_ms)


def heartbeat(path: Path) -> int:
    mapping = Mapping(os.open(path / CNC_FILE, os.O_RDWR), (path / CNC_FILE).stat().st_size)
    layout = load_layout(mapping, mapping.length)
    assert isinstance(layout, CncLayout)
    ring = ManyToOneRingBuffer(AtomicBuffer(mapping, *layout.to_driver_buffer))
    return ring.consumer_heartbeat_ms


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Memory.


def test_memory_is_seen_by_this_process_alone() -> None:
    storage = MemoryStorage(DriverContext())
    assert [storage.next_id() for _ in range(3)] == [1, 2, 3]
    assert (storage.error_log, storage.loss_report) == (None, None)
    log = storage.create_log(make_spec())
    assert log.file == ""
    storage.close()
    log.close()


# A new directory.


def test_only_its_owner_may_use_a_directory(path: Path) -> None:
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5))
    image = storage.create_log(make_spec(correlation_id=6, log_type=LogType.IMAGE))
    found = {each.relative_to(path).as_posix(): mode(each) for each in path.rglob("*")}
    assert found == {
        "cnc.dat": 0o600,
        "loss-report.dat": 0o600,
        "publications": 0o700,
        "publications/5.logbuffer": 0o600,
        "images": 0o700,
        "images/6.logbuffer": 0o600,
    }
    assert mode(path) == 0o700
    for each in (log, image):
        each.close()


def test_clients_see_no_version_before_it_is_published(path: Path) -> None:
    storage = storage_at(path)
    assert (path / CNC_FILE).stat().st_size == storage.layout.file_length
    assert storage.memory[:4].cast("i")[0] == 0
    storage.publish(NOW_MS + 5)
    assert storage.memory[:4].cast("i")[0] == CNC_VERSION
    assert storage.commands.consumer_heartbeat_ms == NOW_MS + 5
    storage.close()
    assert storage.commands.consumer_heartbeat_ms == -1
    assert (path / CNC_FILE).exists()


def test_files_that_must_not_end_the_process_have_their_memory(path: Path) -> None:
    storage_at(path)
    for name in ("cnc.dat", "loss-report.dat"):
        status = (path / name).stat()
        assert status.st_blocks * 512 >= status.st_size


def test_ids_begin_at_one_and_are_those_of_clients(path: Path) -> None:
    storage = storage_at(path)
    assert storage.next_id() == 1
    assert storage.commands.next_correlation_id() == 2
    assert storage.next_id() == 3


def test_lengths_are_those_of_the_context(path: Path) -> None:
    storage = storage_at(path, file_page_size=65_536, client_liveness_timeout_ns=5_000_000_000)
    layout = load_layout(storage.memory.tobytes(), storage.layout.file_length)
    assert layout is not None
    storage.publish(NOW_MS)
    loaded = load_layout(storage.memory, storage.layout.file_length)
    assert isinstance(loaded, CncLayout)
    assert loaded == storage.layout
    assert (loaded.file_page_size, loaded.client_liveness_timeout_ns) == (65_536, 5_000_000_000)
    assert loaded.pid == os.getpid()
    assert (path / CNC_FILE).stat().st_size % 65_536 == 0
    assert (path / "loss-report.dat").stat().st_size == 65_536


# Logs.


def test_a_log_goes_with_its_file(path: Path) -> None:
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5))
    file = path / "publications" / "5.logbuffer"
    assert log.file == str(file)
    assert file.stat().st_size == file_length(term_length=TERM_LENGTH, page_size=4096)
    assert log.place_of(3 * TERM_LENGTH + 64) == (0, 64)
    assert log.memory.nbytes == file.stat().st_size
    kept = log.terms[0][:8]
    log.close()
    log.close()
    assert not file.exists()
    # Whoever still has a view reads on.
    assert bytes(kept) == bytes(8)


def test_another_process_maps_what_the_driver_writes(path: Path) -> None:
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5))
    fd = os.open(log.file, os.O_RDWR)
    mapped = LogBuffers.map(Mapping(fd, os.fstat(fd).st_size))
    os.close(fd)
    log.terms[1][:5] = b"hello"
    assert bytes(mapped.terms[1][:5]) == b"hello"
    assert mapped.session_id == log.session_id
    # The mapping is the caller's: its log owns nothing, and names no file.
    assert mapped.file == ""
    mapped.close()
    assert os.path.exists(log.file)  # noqa: PTH110 - the path of a log is a text
    log.close()


@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_sparse_log_has_no_memory_yet(path: Path, is_sparse: bool) -> None:  # noqa: FBT001 - one meaning
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5, sparse=is_sparse))
    status = os.stat(log.file)  # noqa: PTH116 - the path of a log is a text
    assert (status.st_blocks * 512 < TERM_LENGTH) is is_sparse
    log.close()


def room_for(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """Let every file system have so many bytes left."""
    real = os.statvfs

    def statvfs(place: Any) -> Any:
        found = real(place)
        return os.statvfs_result((4096, 4096, length // 4096, 0, length // 4096, *tuple(found)[5:]))

    monkeypatch.setattr(os, "statvfs", statvfs)


def test_a_log_without_room_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_at(path)
    length = file_length(term_length=TERM_LENGTH, page_size=4096)
    room_for(monkeypatch, length - 4096)
    with pytest.raises(OSError, match="insufficient usable storage") as caught:
        storage.create_log(make_spec())
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(RegistrationError) as refused:
        create_log(storage, make_spec())
    assert refused.value.code is ErrorCode.STORAGE_SPACE
    assert not [*path.glob("*/*.logbuffer")]
    room_for(monkeypatch, length)
    storage.create_log(make_spec()).close()


def test_the_room_is_not_looked_at_if_the_context_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(path, perform_storage_checks=False)
    room_for(monkeypatch, 0)
    storage.create_log(make_spec()).close()


def test_a_file_that_cannot_be_filled_is_not_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(path)

    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(OSError, match="no room"):
        storage.create_log(make_spec(sparse=False))
    assert not [*path.glob("*/*.logbuffer")]
    with pytest.raises(DriverError):
        storage_at(path.with_name("other"))


def test_a_log_takes_no_place_of_another(path: Path) -> None:
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5))
    with pytest.raises(RegistrationError):
        create_log(storage, make_spec(correlation_id=5))
    # The one that was there first stays.
    assert os.path.exists(log.file)  # noqa: PTH110 - the path of a log is a text
    log.close()


def test_a_log_follows_no_link(path: Path, tmp_path: Path) -> None:
    storage = storage_at(path)
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (path / "publications" / "5.logbuffer").symlink_to(target)
    with pytest.raises(FileExistsError):
        storage.create_log(make_spec(correlation_id=5))
    assert target.read_bytes() == b"precious"


def test_a_log_that_cannot_be_made_leaves_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(path)

    def fail(*_: object, **__: object) -> LogBuffers:
        raise MemoryError

    monkeypatch.setattr(LogBuffers, "create", fail)
    with pytest.raises(MemoryError):
        storage.create_log(make_spec())
    assert not [*path.glob("*/*.logbuffer")]


def test_a_log_file_with_a_view_stays_mapped(path: Path) -> None:
    storage = storage_at(path)
    file = path / "publications" / "held"
    file.write_bytes(bytes(4096))
    fd = os.open(file, os.O_RDWR)
    mapping = Mapping(fd, 4096)
    os.close(fd)
    log_file = LogFile(mapping, file)
    with memoryview(mapping) as view:
        with pytest.raises(BufferError):
            log_file.close()
        assert bytes(view[:4]) == bytes(4)
    log_file.close()
    assert not file.exists()
    storage.close()


# A directory that is there.


def test_the_directory_of_a_live_driver_is_refused(path: Path) -> None:
    storage_at(path).publish(NOW_MS)
    with pytest.raises(DriverError, match="AERON_DIR"):
        storage_at(path, NOW_MS + 10_000)
    assert heartbeat(path) == NOW_MS


@pytest.mark.parametrize("age_ms", [10_001, 10**9])
def test_what_a_dead_driver_left_is_replaced(path: Path, age_ms: int) -> None:
    before = storage_at(path)
    before.publish(NOW_MS)
    log = before.create_log(make_spec(correlation_id=5))
    storage = storage_at(path, NOW_MS + age_ms)
    assert storage.next_id() == 1
    assert not [*path.glob("*/*.logbuffer")]
    log.close()


def test_what_a_closed_driver_left_is_replaced_at_once(path: Path) -> None:
    storage = storage_at(path)
    storage.publish(NOW_MS)
    storage.close()
    storage_at(path, NOW_MS + 1).publish(NOW_MS + 1)
    assert heartbeat(path) == NOW_MS + 1


@pytest.mark.parametrize("content", [b"", b"short", bytes(127), bytes(4096)])
def test_what_a_driver_left_that_died_at_its_start_is_replaced(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / CNC_FILE).write_bytes(content)
    storage_at(path).publish(NOW_MS)
    assert heartbeat(path) == NOW_MS


def test_the_directory_of_a_live_driver_is_taken_if_the_context_says_so(path: Path) -> None:
    storage_at(path).publish(NOW_MS)
    storage_at(path, dir_delete_on_start=True).publish(NOW_MS + 1)
    assert heartbeat(path) == NOW_MS + 1


@pytest.mark.parametrize("age_ms", [-(10**9), -1])
def test_a_heartbeat_of_the_future_is_one(path: Path, age_ms: int) -> None:
    storage_at(path).publish(NOW_MS)
    with pytest.raises(DriverError):
        storage_at(path, NOW_MS + age_ms)


@pytest.mark.parametrize("is_forced", [False, True])
def test_what_no_driver_made_is_not_deleted(path: Path, is_forced: bool) -> None:  # noqa: FBT001 - one meaning
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(DriverError, match=r"thesis\.tex"):
        storage_at(path, dir_delete_on_start=is_forced)
    assert (path / "thesis.tex").read_text() == "years of work"


def test_an_empty_directory_may_be_used(path: Path) -> None:
    path.mkdir(mode=0o755)
    storage_at(path)
    assert mode(path) == 0o700


def test_a_link_is_no_directory(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / CNC_FILE).write_bytes(b"")
    path.symlink_to(target)
    with pytest.raises(DriverError):
        storage_at(path)
    assert (target / CNC_FILE).exists()


def test_a_file_is_no_directory(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(DriverError):
        storage_at(path)
    assert path.read_text() == "a file"


def test_links_within_a_directory_are_removed_and_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").write_text("kept")
    storage_at(path).publish(NOW_MS)
    (path / "images" / "link").symlink_to(target)
    (path / "link").symlink_to(target / "precious")
    storage_at(path, NOW_MS + 20_000).publish(NOW_MS)
    assert (target / "precious").read_text() == "kept"


def test_a_directory_in_a_place_without_permission_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((DriverError, OSError)):
        storage_at(tmp_path / "file" / "aeron")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_directory_is_deleted_at_the_end_if_the_context_says_so(
    path: Path,
    is_deleted: bool,  # noqa: FBT001 - one meaning
) -> None:
    storage = storage_at(path, dir_delete_on_shutdown=is_deleted)
    storage.publish(NOW_MS)
    (path / "images" / "9.logbuffer").write_bytes(b"left")
    storage.close()
    assert path.exists() is not is_deleted
    assert not [*path.glob("*/*.logbuffer")]


async def test_a_driver_in_the_directory_of_another_does_not_start(path: Path) -> None:
    async with aa.MediaDriver.launch(small_context(path)):
        second = aa.MediaDriver.launch(small_context(path))
        with pytest.raises(DriverError, match="AERON_DIR"):
            await second.start()
        await second.aclose()
    async with aa.MediaDriver.launch(small_context(path, dir_delete_on_shutdown=True)):
        pass
    assert not path.exists()  # noqa: ASYNC240 - a test may wait for a disk
