"""Where a driver keeps its state: the files, who may use them, and what is never deleted."""

from __future__ import annotations

import errno
import os
import socket
import stat
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.cli.output import rename_settings_for_cli
from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
from aeron_async.concurrent.cnc_file import CNC_FILE, CNC_VERSION, CncLayout, load_layout
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.driver import storage as storage_module
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.log_creation import create_log_now
from aeron_async.driver.storage import DirectoryStorage, MemoryStorage
from aeron_async.errors import DriverError, ErrorCode, RegistrationError
from aeron_async.logbuffer import log_buffers
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from aeron_async.logbuffer.metadata import LogType
from aeron_async.testing.world import simulate, tell_and_close
from tests.driver.directories import cnc_bytes
from tests.driver.foreign.client import directory_on, small_context
from tests.logbuffer.logs import TERM_LENGTH, make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aeron_async.testing.world import World

NOW_MS = 1_795_473_000_000
OPEN: list[DirectoryStorage] = []
"""Closed at the end of a test, for each holds a descriptor."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


def storage_at(path: Path, now_ms: int = NOW_MS, **changes: Any) -> DirectoryStorage:
    storage = DirectoryStorage(small_context(path, **changes), now_ms)
    OPEN.append(storage)
    return storage


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


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
    assert (storage.error_log.to_bytes(), storage.loss_report.to_bytes()) == (b"", b"")
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
        create_log_now(storage, make_spec())
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
        create_log_now(storage, make_spec(correlation_id=5))
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


def test_the_error_of_a_log_that_cannot_be_made_is_the_first_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(path)
    mappings: list[Mapping] = []

    def make(fd: int, length: int) -> Mapping:
        mappings.append(Mapping(fd, length))
        return mappings[-1]

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(storage_module, "Mapping", make)
    monkeypatch.setattr(log_buffers, "initialise", fail)
    with pytest.raises(MemoryError):
        storage.create_log(make_spec())
    assert not [*path.glob("*/*.logbuffer")]
    # Nothing is mapped any more.
    assert [each.length for each in mappings] == [0]


def test_the_error_of_a_log_that_cannot_be_made_is_not_that_of_its_views(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(path)
    views: list[memoryview] = []

    def fail(_: object, buffer: Mapping, **__: object) -> LogBuffers:
        views.append(memoryview(buffer))
        raise MemoryError

    monkeypatch.setattr(LogBuffers, "create", fail)
    with pytest.raises(MemoryError):
        storage.create_log(make_spec())
    assert not [*path.glob("*/*.logbuffer")]
    assert bytes(views[0][:4]) == bytes(4)


def test_a_log_with_a_view_stays_mapped(path: Path) -> None:
    storage = storage_at(path)
    log = storage.create_log(make_spec(correlation_id=5))
    kept = log.terms[0][:4]
    log.close()
    assert not [*path.glob("*/*.logbuffer")]
    assert bytes(kept) == bytes(4)


# A directory that is there.


def test_the_directory_of_a_live_driver_is_refused(path: Path) -> None:
    storage_at(path).publish(NOW_MS)
    with pytest.raises(DriverError, match="AERON_DIR"):
        storage_at(path, NOW_MS + 10_000)
    assert heartbeat(path) == NOW_MS


def test_the_directory_of_a_killed_driver_says_when_it_may_be_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_at(path).publish(NOW_MS)

    def kill(_pid: int, _signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(DriverError, match="has not ended in order") as refused:
        storage_at(path, NOW_MS + 2_500)
    # It may also live where this process does not see it.
    for said in (
        f"or it runs in another container: there is no process {os.getpid()} here",
        "if it was killed, start again in 7500 ms, or set dir_delete_on_start; if it runs",
    ):
        assert said in str(refused.value)
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


def leave_unfinished(path: Path, content: bytes, *, age_ms: int) -> None:
    """Leave what a driver makes that has not finished its start."""
    path.mkdir()
    (path / CNC_FILE).write_bytes(content)
    os.utime(path / CNC_FILE, ns=(0, (NOW_MS - age_ms) * 1_000_000))


def without_heartbeat() -> bytes:
    """Return the file of a driver that has stored its version, and no heartbeat yet."""
    return bytes(cnc_bytes(heartbeat_ms=0))


@pytest.mark.parametrize("content", [b"", b"short", bytes(127), bytes(4096)])
def test_what_a_driver_left_that_died_at_its_start_is_replaced(path: Path, content: bytes) -> None:
    leave_unfinished(path, content, age_ms=10_001)
    storage_at(path).publish(NOW_MS)
    assert heartbeat(path) == NOW_MS


@pytest.mark.parametrize("age_ms", [-(10**9), 0, 10_000])
@pytest.mark.parametrize("content", [b"", bytes(127), bytes(4096), without_heartbeat()])
def test_the_directory_of_a_driver_that_starts_is_refused(
    path: Path, content: bytes, age_ms: int
) -> None:
    leave_unfinished(path, content, age_ms=age_ms)
    with pytest.raises(DriverError, match="about to start"):
        storage_at(path)
    assert (path / CNC_FILE).read_bytes() == content
    storage_at(path, dir_delete_on_start=True)


def test_what_a_driver_left_that_died_before_its_first_heartbeat_is_replaced(path: Path) -> None:
    leave_unfinished(path, without_heartbeat(), age_ms=10_001)
    storage_at(path).publish(NOW_MS)
    assert heartbeat(path) == NOW_MS


@pytest.mark.parametrize("kind", ["pipe", "socket", "directory", "link"])
def test_what_is_no_file_is_neither_read_nor_waited_for(path: Path, kind: str) -> None:
    path.mkdir()
    file = path / CNC_FILE
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(file))
    elif kind == "directory":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(DriverError, match="no plain file"):
        storage_at(path)
    assert os.path.lexists(file)
    storage_at(path, dir_delete_on_start=True).publish(NOW_MS)
    assert heartbeat(path) == NOW_MS


def test_the_file_of_a_driver_of_another_version_is_refused(path: Path) -> None:
    path.mkdir()
    (path / CNC_FILE).write_bytes(b"\x03\x02\x01\x00" + bytes(4092))
    with pytest.raises(DriverError, match=r"1\.2\.3.*dir_delete_on_start"):
        storage_at(path)
    storage_at(path, dir_delete_on_start=True)


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


def listing(path: Path) -> list[str]:
    return sorted(each.relative_to(path).as_posix() for each in path.rglob("*"))


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("is_published", [False, True])
def test_a_driver_that_was_replaced_leaves_the_files_of_the_other(
    path: Path,
    is_deleted: bool,  # noqa: FBT001 - one meaning
    is_published: bool,  # noqa: FBT001 - as above
) -> None:
    old = storage_at(path, dir_delete_on_shutdown=is_deleted)
    old_log = old.create_log(make_spec(correlation_id=5))
    late_log = old.create_log(make_spec(correlation_id=6))
    if is_published:
        old.publish(NOW_MS)
    new = storage_at(path, NOW_MS + 1, dir_delete_on_start=True)
    new.publish(NOW_MS + 1)
    new_logs = [new.create_log(make_spec(correlation_id=each)) for each in (5, 6)]
    before = listing(path)
    # The first driver makes no log among those of the second.
    with pytest.raises(FileNotFoundError):
        old.create_log(make_spec(correlation_id=7))
    old_log.close()
    old.close()
    late_log.close()
    assert listing(path) == before
    assert heartbeat(path) == NOW_MS + 1
    for each in new_logs:
        each.close()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_driver_that_was_replaced_removes_nothing_that_it_did_not_make(
    path: Path,
    is_deleted: bool,  # noqa: FBT001 - one meaning
) -> None:
    storage = storage_at(path, dir_delete_on_shutdown=is_deleted)
    storage.publish(NOW_MS)
    path.rename(path.with_name("moved"))
    path.mkdir()
    storage.close()
    storage.close()
    assert path.is_dir()
    assert path.with_name("moved").exists()


def test_a_closed_driver_makes_no_log(path: Path) -> None:
    storage = storage_at(path)
    storage.publish(NOW_MS)
    log = storage.create_log(make_spec(correlation_id=5))
    storage.close()
    assert not [*path.glob("*/*.logbuffer")]
    with pytest.raises(OSError, match="has closed"):
        storage.create_log(make_spec(correlation_id=6))
    # The name is free, and may be that of another log by now.
    (path / "publications" / "5.logbuffer").touch()
    log.close()
    assert (path / "publications" / "5.logbuffer").exists()


@pytest.mark.parametrize("file", ["cnc.dat", "loss-report.dat", "images"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    is_there: bool,  # noqa: FBT001 - one meaning
) -> None:
    place = tmp_path / "parent" / "aeron"
    if is_there:
        place.parent.mkdir()
        (place.parent / "kept").touch()
    real_open, real_mkdir = os.open, os.mkdir

    def failing(real: Any) -> Any:
        def call(name: Any, *args: Any, **options: Any) -> Any:
            if name == file:
                raise OSError(errno.ENOSPC, "no room")
            return real(name, *args, **options)

        return call

    before = listing(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(real_open))
        patch.setattr(os, "mkdir", failing(real_mkdir))
        with pytest.raises(DriverError, match="no room"):
            storage_at(place)
    assert listing(tmp_path) == before
    storage_at(place)


def test_a_start_that_fails_at_its_last_step_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(storage_module, "LossReport", fail)
    with pytest.raises(MemoryError):
        storage_at(tmp_path / "parent" / "aeron")
    assert listing(tmp_path) == []


def test_a_driver_that_was_not_published_leaves_nothing(tmp_path: Path) -> None:
    storage_at(tmp_path / "parent" / "aeron").close()
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("is_in_use", "text"),
    [
        (True, "or set dir_delete_on_start"),
        (True, "aeron_directory=..., --directory or AERON_DIR"),
        (False, "aeron_directory=..., --directory or AERON_DIR"),
    ],
)
def test_errors_name_the_settings_of_each_interface(
    path: Path,
    is_in_use: bool,  # noqa: FBT001 - one meaning
    text: str,
) -> None:
    if is_in_use:
        storage_at(path).publish(NOW_MS)
    else:
        path.write_text("a file")
    with pytest.raises(DriverError) as caught:
        storage_at(path)
    assert text in str(caught.value)
    on_the_command_line = rename_settings_for_cli(str(caught.value))
    assert "dir_delete_on_start" not in on_the_command_line
    assert ("AERON_DIR_DELETE_ON_START" in on_the_command_line) is is_in_use
    assert "--directory or AERON_DIR" in on_the_command_line


def test_the_name_of_a_directory_may_be_any_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / os.fsdecode(b"aeron-\xff")

    async def tell(world: World) -> None:
        async with directory_on(world.host("alice"), place, monkeypatch) as directory:
            client = directory.client()
            publisher = await client.add_publication()
            await client.add_subscription()
            assert publisher.ready.log_file.startswith(os.fsencode(place))

    simulate(partial(tell_and_close, tell), limit_s=1e6)


async def test_a_driver_in_the_directory_of_another_does_not_start(path: Path) -> None:
    async with aa.MediaDriver.launch(small_context(path)):
        second = aa.MediaDriver.launch(small_context(path))
        with pytest.raises(DriverError, match="AERON_DIR"):
            await second.start()
        await second.aclose()
    async with aa.MediaDriver.launch(small_context(path, dir_delete_on_shutdown=True)):
        pass
    assert not path.exists()  # noqa: ASYNC240 - a test may wait for a disk
