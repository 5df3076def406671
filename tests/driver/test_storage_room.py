"""Room for logs: a sparse log that was accepted can be filled, whatever the others take."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.driver import storage as storage_module
from aeron_async.driver.log_creation import create_log_now
from aeron_async.driver.storage import DirectoryStorage, OwnDirectory
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from tests.concurrent.shared import needs_shared_memory
from tests.driver.foreign.client import small_context
from tests.logbuffer.logs import TERM_LENGTH, make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_shared_memory
NOW_MS = 1_795_473_000_000
LENGTH = file_length(term_length=TERM_LENGTH, page_size=4096)
PAGE = 4096


class Disk:
    """A file system for the logs of one driver alone, of a size that the test sets."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.length = 10**9
        self.looks: list[str] = []
        self._statvfs = os.statvfs
        look = OwnDirectory.allocated_length

        def looked(files: OwnDirectory, name: str) -> int:
            self.looks.append(name)
            return look(files, name)

        monkeypatch.setattr(os, "statvfs", self.statvfs)
        monkeypatch.setattr(OwnDirectory, "allocated_length", looked)

    def statvfs(self, place: Any) -> os.statvfs_result:
        taken = sum(each.stat().st_blocks * 512 for each in self.path.glob("*/*.logbuffer"))
        pages = max(0, self.length - taken) // PAGE
        return os.statvfs_result((PAGE, PAGE, pages, 0, pages, *tuple(self._statvfs(place))[5:]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(path, monkeypatch)


class Driver:
    """The storage of a driver, and the logs that it has made."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.storage = DirectoryStorage(small_context(path, **changes), NOW_MS)
        self.logs: list[LogBuffers] = []

    def add(self, *, sparse: bool = True) -> LogBuffers:
        spec = make_spec(correlation_id=self.storage.next_id(), sparse=sparse)
        self.logs.append(create_log_now(self.storage, spec))
        return self.logs[-1]

    def refuses(self, text: str = "insufficient usable storage") -> None:
        with pytest.raises(RegistrationError, match=text) as caught:
            self.add()
        assert caught.value.code is ErrorCode.STORAGE_SPACE


@pytest.fixture
def driver(path: Path) -> Iterator[Driver]:
    driver = Driver(path)
    yield driver
    for log in driver.logs:
        log.close()
    driver.storage.close()


def fill(log: LogBuffers) -> None:
    for term in log.terms:
        term[:] = bytes([1]) * len(term)


def test_sparse_logs_together_fit_the_file_system(driver: Driver, disk: Disk) -> None:
    disk.length = 3 * LENGTH + LENGTH // 2
    for _ in range(3):
        driver.add()
    driver.refuses("may still take")
    # Each of them can be filled.
    for log in driver.logs:
        fill(log)
    driver.refuses()
    assert disk.statvfs(disk.path).f_bavail * PAGE >= LENGTH // 2 - PAGE


def test_the_refusal_says_what_is_promised_and_which_setting_changes_that(
    driver: Driver, disk: Disk
) -> None:
    disk.length = 2 * LENGTH - PAGE
    driver.add()
    with pytest.raises(OSError, match="perform_storage_checks") as caught:
        driver.storage.create_log(make_spec(correlation_id=9))
    assert caught.value.errno == errno.ENOSPC
    # One page has the metadata.
    assert f"length={LENGTH} usable={2 * LENGTH - 2 * PAGE}" in str(caught.value)
    assert f"may still take {LENGTH - PAGE};" in str(caught.value)


def test_what_a_log_has_taken_counts_once(driver: Driver, disk: Disk) -> None:
    disk.length = 3 * LENGTH
    fill(driver.add())
    fill(driver.add())
    driver.add()
    driver.refuses()


def test_a_log_that_is_half_full_may_take_the_other_half(driver: Driver, disk: Disk) -> None:
    disk.length = 2 * LENGTH
    driver.add().terms[0][:] = bytes([1]) * TERM_LENGTH
    driver.add()
    driver.refuses()


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_log_that_is_closed_gives_back_its_room(
    driver: Driver,
    disk: Disk,
    is_filled: bool,  # noqa: FBT001 - one meaning
) -> None:
    disk.length = 2 * LENGTH
    driver.add()
    driver.add()
    if is_filled:
        fill(driver.logs[0])
    driver.refuses()
    driver.logs[0].close()
    driver.add()
    driver.refuses()


def test_a_log_that_is_not_sparse_has_its_room_already(driver: Driver, disk: Disk) -> None:
    disk.length = 2 * LENGTH
    driver.add(sparse=False)
    driver.add()
    driver.refuses()
    assert disk.looks == []


def test_a_log_that_is_being_allocated_has_its_room_promised(
    driver: Driver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.length = 2 * LENGTH - PAGE
    allocate = os.posix_fallocate

    def meanwhile(*args: int) -> None:
        driver.refuses()
        allocate(*args)

    monkeypatch.setattr(os, "posix_fallocate", meanwhile)
    driver.add(sparse=False)


def test_a_log_that_cannot_be_made_keeps_no_room(
    driver: Driver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.length = LENGTH

    def fail(*_: object, **__: object) -> LogBuffers:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(LogBuffers, "create", fail)
        for sparse in (False, True):
            with pytest.raises(RegistrationError):
                driver.add(sparse=sparse)
    driver.add()


def test_a_log_that_takes_the_name_of_another_leaves_the_room_of_that(
    driver: Driver, disk: Disk
) -> None:
    disk.length = 3 * LENGTH - PAGE
    driver.add()
    with pytest.raises(FileExistsError):
        driver.storage.create_log(make_spec(correlation_id=1))
    driver.add()
    driver.refuses()


def test_a_file_that_somebody_removed_may_still_take_all_of_its_room(
    driver: Driver, disk: Disk
) -> None:
    disk.length = 2 * LENGTH
    fill(driver.add())
    os.unlink(driver.logs[0].file)  # noqa: PTH108 - the path of a log is a text
    disk.length -= LENGTH
    driver.refuses()


def test_no_file_is_looked_at_while_there_is_room_for_all(driver: Driver, disk: Disk) -> None:
    disk.length = 21 * LENGTH
    for _ in range(20):
        driver.add()
    assert disk.looks == []


def test_one_log_looks_at_few_others_and_the_next_at_the_rest(
    driver: Driver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "LOOKS_MAX", 2)
    disk.length = 6 * LENGTH
    for _ in range(4):
        driver.add()
    for log in driver.logs:
        fill(log)
    disk.length -= LENGTH // 2
    first, second, third, fourth = (f"publications/{each}.logbuffer" for each in (1, 2, 3, 4))
    # Less than there is, because the other two seem to need theirs.
    driver.refuses("may still take")
    assert disk.looks == [first, second]
    driver.add()
    assert disk.looks == [first, second, third, fourth]


def test_a_log_that_was_filled_is_not_looked_at_again(driver: Driver, disk: Disk) -> None:
    disk.length = 4 * LENGTH
    fill(driver.add())
    fill(driver.add())
    driver.add()
    driver.add()
    disk.looks.clear()
    driver.refuses()
    assert disk.looks == ["publications/3.logbuffer", "publications/4.logbuffer"]


def test_nothing_is_counted_if_the_context_says_so(path: Path, disk: Disk) -> None:
    driver = Driver(path, perform_storage_checks=False)
    disk.length = 0
    for _ in range(3):
        driver.add()
    for log in driver.logs:
        log.close()
    driver.storage.close()


async def test_a_publication_without_room_is_refused_and_the_driver_lives(
    path: Path, disk: Disk
) -> None:
    async with (
        aa.MediaDriver.launch(small_context(path)) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        disk.length = 2 * LENGTH
        channel = "aeron:ipc?term-length=64k"
        first = await aeron.add_publication(channel, 1001)
        await aeron.add_publication(channel, 1002)
        with pytest.raises(RegistrationError, match="may still take") as caught:
            await aeron.add_publication(channel, 1003)
        assert caught.value.code is ErrorCode.STORAGE_SPACE
        await first.aclose()
        async with aeron.add_subscription(channel, 1002) as subscription:
            await subscription.wait_connected()
