"""Where a driver keeps its state: in memory of its own, or in an Aeron directory.

Counters, log buffers, commands, the error log and the loss report stand behind `DriverStorage`;
nothing else in the driver knows whether other processes can see them.

Invariant: clients find `cnc.dat` only at its full length, and its version is stored last, after the
counters and the heartbeat of the driver. Unless `dir_delete_on_start` is set, a driver never takes
the directory of another one that is alive, nor that of one of this package that is being started.
It follows no symbolic link inside it.

How two drivers start over one directory: each opens the directory that is there, locks it with
`flock`, checks that its driver is dead, and deletes through the descriptor, so that it deletes what
it has checked and nothing else. Each locks what it has made in its place until clients may come in.
Who meets a lock, or finds another directory at the path than its own, does not start. Official
drivers take no lock; what they have put at the path since the check stays.

Source: Aeron `MediaDriver.ensureDirectoryIsRecreated`, `MediaDriver.Context.conclude`,
`CommonContext`, `LogFactory`, `aeron_driver_init`, `aeron_raw_log_map`.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

import anyio

from aeron_async.aeron_directory import (
    HEARTBEAT_ENDED,
    IMAGES_DIRECTORY,
    PUBLICATIONS_DIRECTORY,
    AeronDirectory,
    CncMissing,
    lives,
)
from aeron_async.clock import NS_PER_MS
from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping, check_shared_memory
from aeron_async.concurrent.broadcast import BroadcastTransmitter
from aeron_async.concurrent.cnc_file import (
    CNC_FILE,
    CNC_VERSION,
    META_DATA_LENGTH,
    VERSION_OFFSET,
    CncLayout,
    Section,
)
from aeron_async.concurrent.error_log import DistinctErrorLog
from aeron_async.concurrent.loss_report import LOSS_REPORT_FILE, LossReport
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.counters import METADATA_LENGTH, VALUE_LENGTH
from aeron_async.errors import DriverError, ProtocolError
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logs import get_logger
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.logbuffer.log_buffers import LogSpec

__all__ = ["DirectoryStorage", "DriverStorage", "MemoryStorage"]

LOG_DIRECTORIES: Final = (PUBLICATIONS_DIRECTORY, IMAGES_DIRECTORY)
DRIVER_FILES: Final = frozenset({CNC_FILE, LOSS_REPORT_FILE, *LOG_DIRECTORIES})
# Differs: Aeron's are 0777 and 0666, less the umask. Who may write there may read every stream.
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE: Final = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
THREADS_MAX: Final = 4
"""Most threads that create logs: more would only share the same memory bandwidth."""
UNMAPPED_AT_ONCE_MAX: Final = 1 << 20
"""Longest log, in bytes, that is unmapped where it is closed: each MiB takes the system 0.2 ms."""
UNMAPPING_WAIT_S: Final = 0.05
"""How long a new log waits for the memory of closed ones before it is refused."""
LOOKS_MAX: Final = 256
"""Most files that one new log looks at for their memory: SETUPs come in floods."""
BLOCK_LENGTH: Final = 512
"""The unit of `st_blocks`, whatever the file system's own blocks are."""
ID_STEP_MAX: Final = 2**32
"""More ids than clients take between two of the driver's: the counter was forged."""
ANOTHER_PLACE: Final = "choose another place by aeron_directory=..., --directory or AERON_DIR"

log: Final = get_logger(__name__)


class DriverStorage(ABC):
    """The state of one driver, which its other parts only read and write.

    Attributes:
        counter_values: 128 bytes for each counter.
        counter_metadata: 512 bytes for each counter.
        error_log: Records distinct errors.
        loss_report: Records the losses of each image.
        limiter: Limits how many threads create logs at once.
    """

    counter_values: Buffer
    counter_metadata: Buffer
    error_log: DistinctErrorLog
    loss_report: LossReport

    def __init__(self) -> None:
        self.limiter: Final = anyio.CapacityLimiter(THREADS_MAX)

    @abstractmethod
    def next_id(self) -> int:
        """Return a registration id that no other request has."""

    def takes_long(self, spec: LogSpec) -> bool:  # noqa: ARG002 - a file does
        """Return whether `create_log` is to be called in a worker thread."""
        return False

    @abstractmethod
    def create_log(self, spec: LogSpec) -> LogBuffers:
        """Return a new log, which frees its memory when it is closed.

        Raises:
            OSError: There is no memory or no room for it.
            MemoryError: The process has no address space for it.
        """

    @abstractmethod
    def close(self) -> None:
        """Say that the driver has closed, and free what nobody uses any more."""

    async def wait_closed(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait until the memory of closed logs is free; called after `close`."""


@final
class MemoryStorage(DriverStorage):
    """State that only this process sees; memory that is not touched costs nothing."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__()
        length = context.counters_buffer_length
        self.counter_values: Buffer = mmap.mmap(-1, length)
        self.counter_metadata: Buffer = mmap.mmap(-1, length * (METADATA_LENGTH // VALUE_LENGTH))
        # A dump shows them.
        self.error_log = DistinctErrorLog(mmap.mmap(-1, context.error_buffer_length))
        self.loss_report = LossReport(mmap.mmap(-1, context.loss_report_buffer_length))
        self._ids: Iterator[int] = count(1)

    def next_id(self) -> int:
        """Return a registration id that no other request has."""
        return next(self._ids)

    def create_log(self, spec: LogSpec) -> LogBuffers:
        """Return a new log in anonymous memory."""
        return LogBuffers.create(spec)

    def close(self) -> None:
        """Do nothing: the memory goes with its last view."""


@final
class DirectoryStorage(DriverStorage):
    """State in the files of an Aeron directory, which clients map.

    Args:
        context: Names the directory, and has the lengths of its buffers.
        now_ms: The time now, epoch milliseconds.

    Attributes:
        directory: The Aeron directory.
        layout: What the header of `cnc.dat` says.
        memory: The bytes of `cnc.dat`.
        commands: What clients ask for; this driver is the consumer.
        answers: What clients are told; this driver is the only transmitter.

    Raises:
        ConfigurationError: The compiled code is missing.
        DriverError: Another driver uses the directory, or it cannot be made.
    """

    def __init__(self, context: DriverContext, now_ms: int) -> None:
        super().__init__()
        check_shared_memory()
        assert context.aeron_directory is not None, "the caller asks for memory without one"
        self._context = context
        self.directory: Final = Path(context.aeron_directory).absolute()
        self.layout: Final = CncLayout(
            to_driver_buffer_length=context.conductor_buffer_length,
            to_clients_buffer_length=context.clients_buffer_length,
            counters_values_buffer_length=context.counters_buffer_length,
            error_log_buffer_length=context.error_buffer_length,
            client_liveness_timeout_ns=context.client_liveness_timeout_ns,
            start_timestamp_ms=now_ms,
            pid=os.getpid(),
            file_page_size=context.file_page_size,
        )
        self._unmapper = Unmapper()
        with ExitStack() as undo:
            try:
                self._files = self._prepare(now_ms, undo)
                is_checked = context.perform_storage_checks
                self._room = Room(self._files, self._unmapper, is_checked=is_checked)
                self._cnc = self._new_file(CNC_FILE, self.layout.file_length, undo)
                report_length = align(context.loss_report_buffer_length, context.file_page_size)
                report = self._new_file(LOSS_REPORT_FILE, report_length, undo)
            except OSError as error:
                message = (
                    f"no Aeron directory can be made at {self.directory} ({error}): remedy that, "
                    f"or {ANOTHER_PLACE}"
                )
                raise DriverError(message) from error
            cnc = memoryview(self._cnc)
            cnc[:META_DATA_LENGTH] = self.layout.encode()
            self.memory: Final = cnc
            self._header = AtomicBuffer(self._cnc, 0, META_DATA_LENGTH)
            self.commands: Final = ManyToOneRingBuffer(self._atomic(self.layout.to_driver_buffer))
            self.answers: Final = BroadcastTransmitter(self._atomic(self.layout.to_clients_buffer))
            self.counter_metadata: Buffer = self.layout.counters_metadata_buffer.of(cnc)
            self.counter_values: Buffer = self.layout.counters_values_buffer.of(cnc)
            self.error_log = DistinctErrorLog(self.layout.error_log_buffer.of(cnc))
            self.loss_report = LossReport(memoryview(report)[: context.loss_report_buffer_length])
            self._last_id = 0
            # As in Aeron, the first id is 1.
            self.commands.next_correlation_id()
            self._undo_start: ExitStack | None = undo.pop_all()

    def publish(self, now_ms: int) -> None:
        """Let clients in: the counters are there, and the driver is about to read commands."""
        self.commands.consumer_heartbeat_ms = now_ms
        self._undo_start = None
        self._header.store_release_32(VERSION_OFFSET, CNC_VERSION)
        # From now on the heartbeat says that the directory is in use.
        self._files.unlock()

    def next_id(self) -> int:
        """Return a registration id that this driver has not given before.

        No other process gets it either, unless a client has changed the counter.

        Differs: Aeron's drivers take whatever the counter says, also an id that is in use.
        """
        found, last = self.commands.next_correlation_id(), self._last_id
        if not last < found <= last + ID_STEP_MAX:
            found = last + 1
        self._last_id = found
        return found

    def takes_long(self, spec: LogSpec) -> bool:
        """Return whether memory is allocated to the whole file, however long it is."""
        return not spec.sparse

    def create_log(self, spec: LogSpec) -> LogBuffers:
        """Return a new log in a file of its own, which goes with it; any thread may call it."""
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        is_image = spec.log_type is LogType.IMAGE
        kind = IMAGES_DIRECTORY if is_image else PUBLICATIONS_DIRECTORY
        name = f"{kind}/{spec.correlation_id}.logbuffer"
        promise = self._room.promise(name, length)
        with ExitStack() as undo:
            undo.callback(self._room.give_back, promise)
            mapping = self._new_file(name, length, undo, is_sparse=spec.sparse)
            if not spec.sparse:
                # It has taken all of it.
                self._room.give_back(promise)
            owned = LogFile(self, mapping, promise)
            made = LogBuffers.create(spec, mapping, owned=owned, file=str(self.directory / name))
            undo.pop_all()
        return made

    def free_log(self, mapping: Mapping, promise: Promise) -> None:
        """Remove the file of a log, and unmap it unless a view is left; any thread may call it.

        The file is gone at once. A thread unmaps a long log, for which the event loop would stand
        still.
        """
        if os.getpid() == self.layout.pid:
            self._files.remove(promise.name)
            self._room.give_back(promise)
            self._unmapper.unmap(mapping)
        else:
            # In a child process that was forked the file is the parent's, and there is no thread.
            _unmap(mapping)

    def close(self) -> None:
        """Say that the driver has closed; delete the directory if the context says so.

        A directory that was never published goes too: its driver has not started. What another
        driver has put in place of the directory stays.

        Differs: Aeron's drivers delete what is at the path, also if another driver has replaced it.
        """
        self.commands.consumer_heartbeat_ms = HEARTBEAT_ENDED
        if self._undo_start is not None:
            self._undo_start.close()
        elif self._context.dir_delete_on_shutdown:
            self._files.delete()
        else:
            self._files.delete_logs()
        self._unmapper.close()

    async def wait_closed(self) -> None:
        """Wait until the memory of closed logs is free; called after `close`."""
        if self._unmapper.is_busy:
            # No limiter of others: they may wait for a slow disk.
            limiter = anyio.CapacityLimiter(1)
            await anyio.to_thread.run_sync(self._unmapper.wait, limiter=limiter)

    # The files.

    def _prepare(self, now_ms: int, undo: ExitStack) -> OwnDirectory:
        """Make an empty directory, in place of what a dead driver has left."""
        directory = self.directory
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            message = f"{directory} is no directory: remove it, or {ANOTHER_PLACE}"
            raise DriverError(message)
        if directory.exists():
            self._delete_old(now_ms)
        for parent in reversed([each for each in directory.parents if not each.exists()]):
            parent.mkdir()
            undo.callback(_remove_if_empty, parent)
        try:
            directory.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            raise self._is_starting() from None
        files = OwnDirectory.try_open(directory)
        # Another driver may have found it empty, and have put its own in its place.
        if files is None or not files.try_lock() or files.names:
            if files is not None:
                files.release()
            raise self._is_starting()
        undo.callback(files.delete)
        for kind in LOG_DIRECTORIES:
            files.new_directory(kind)
        return files

    def _delete_old(self, now_ms: int) -> None:
        """Delete what a dead driver has left, or whatever is there if the context says so.

        Differs: Aeron's drivers delete what is at the path by then, also a directory that another
        driver has made there since they looked at it.
        """
        old = OwnDirectory.try_open(self.directory)
        if old is None:
            return
        is_forced = self._context.dir_delete_on_start
        try:
            is_locked = old.try_lock()
            if not is_forced:
                timeout_ms = self._context.driver_timeout_ms
                # Before the lock is looked at: this says more about a driver that is alive.
                check_is_unused(self.directory, now_ms=now_ms, timeout_ms=timeout_ms)
                if not is_locked or not old.is_in_place:
                    raise self._is_starting()
            self._check_is_ours(old.names)
            old.remove_all()
        finally:
            old.release()

    def _is_starting(self) -> DriverError:
        return DriverError(
            f"another driver starts in {self.directory} at this moment: start again later, or "
            f"{ANOTHER_PLACE}"
        )

    def _check_is_ours(self, names: list[str]) -> None:
        """Refuse to delete what no driver has made.

        Differs: Aeron deletes whatever is in the directory that it was told to use.
        """
        strangers = sorted({*names} - DRIVER_FILES)
        if strangers and CNC_FILE not in names:
            message = (
                f"{self.directory} holds {strangers[0]!r} and no {CNC_FILE}, so no driver has made "
                f"it, and it is not deleted: {ANOTHER_PLACE}"
            )
            raise DriverError(message)

    def _new_file(
        self, name: str, length: int, undo: ExitStack, *, is_sparse: bool = False
    ) -> Mapping:
        """Make and map a file of zeros; `undo` removes it.

        Memory of a file without room ends the process at the first access, so that all of it is
        allocated here unless it is sparse.
        """
        fd = self._files.new_file(name)
        undo.callback(self._files.remove, name)
        try:
            if is_sparse:
                os.ftruncate(fd, length)
            else:
                os.posix_fallocate(fd, 0, length)
            mapping = Mapping(fd, length)
        finally:
            os.close(fd)
        undo.callback(_unmap, mapping)
        return mapping

    def _atomic(self, section: Section) -> AtomicBuffer:
        return AtomicBuffer(self._cnc, section.offset, section.length)


@final
class OwnDirectory:
    """The directory that this driver has made, or one that it deletes first, held open.

    Another driver may delete it at any time, and make its own at the same path. Every name here is
    looked up in the directory that is open, so that nothing touches the files of that driver.

    Invariant: after `delete`, `delete_logs` or `release` no thread makes or removes a file.

    Attributes:
        path: Where it was made.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._fd = os.open(path, OPEN_DIRECTORY)
        self._is_closed = False
        # Logs are made by worker threads too. No call holds it for longer than a look at a name,
        # but those that end the driver.
        self._lock = threading.Lock()

    @classmethod
    def try_open(cls, path: Path) -> Self | None:
        """Open a directory; return None if there is none any more."""
        try:
            return cls(path)
        except FileNotFoundError:
            return None

    @property
    def names(self) -> list[str]:
        """Return the names of what is in it."""
        return os.listdir(self._fd)  # noqa: PTH208 - a path may lead elsewhere by now

    @property
    def is_in_place(self) -> bool:
        """Return whether the path still leads to it."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def try_lock(self) -> bool:
        """Keep other drivers of this package from deleting it; return False if one keeps us.

        The lock ends with the driver, or with `unlock`. Where the file system has no locks, as
        some networks, two drivers may still meet.
        """
        import fcntl  # noqa: PLC0415 - missing on some systems

        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def unlock(self) -> None:
        """Let other drivers delete it, once this one no longer lives."""
        import fcntl  # noqa: PLC0415 - as above

        # Not only by closing it: a child process that was forked has the descriptor too.
        with suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def new_file(self, name: str) -> int:
        """Make an empty file, and return its descriptor.

        Raises:
            OSError: The file exists, or the directory was deleted or closed.
        """
        with self._lock:
            self._check_open()
            return os.open(name, NEW_FILE, FILE_MODE, dir_fd=self._fd)

    def new_directory(self, name: str) -> None:
        """Make a directory in it."""
        with self._lock:
            self._check_open()
            os.mkdir(name, DIRECTORY_MODE, dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Remove a file, unless that has been done."""
        with self._lock, suppress(FileNotFoundError):
            if not self._is_closed:
                os.unlink(name, dir_fd=self._fd)

    def free_length(self) -> int:
        """Return how much room this user has on the file system, in bytes."""
        with self._lock:
            self._check_open()
            room = os.statvfs(self._fd)
        return room.f_bavail * room.f_frsize

    def allocated_length(self, name: str) -> int:
        """Return how much room a file has taken, in bytes; 0 if it was removed."""
        with self._lock:
            self._check_open()
            try:
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            except FileNotFoundError:
                return 0
        return status.st_blocks * BLOCK_LENGTH

    def delete(self) -> None:
        """Delete the directory with all that is in it, and close it; a second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            for name in self.names:
                with suppress(OSError):
                    self._remove_any(name, ignore_errors=True)
            with suppress(OSError):
                self._remove_itself()
            self._close()

    def remove_all(self) -> None:
        """Delete the directory with all that is in it, but hold it open.

        Raises:
            OSError: Something cannot be deleted.
        """
        for name in self.names:
            with suppress(FileNotFoundError):
                self._remove_any(name)
        self._remove_itself()

    def release(self) -> None:
        """Close the directory and leave what is in it; a second call does nothing."""
        with self._lock:
            if not self._is_closed:
                self._close()

    def delete_logs(self) -> None:
        """Delete all logs, and close the directory; a second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            for kind in LOG_DIRECTORIES:
                with suppress(OSError):
                    self._delete_logs(kind)
            self._close()

    def _delete_logs(self, kind: str) -> None:
        fd = os.open(kind, OPEN_DIRECTORY, dir_fd=self._fd)
        try:
            for name in os.listdir(fd):  # noqa: PTH208 - a path may lead elsewhere by now
                if name.endswith(".logbuffer"):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)

    def _remove_any(self, name: str, *, ignore_errors: bool = False) -> None:
        """Remove a file, or a directory with what is in it; links are never followed."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except IsADirectoryError:
            shutil.rmtree(name, ignore_errors, dir_fd=self._fd)

    def _remove_itself(self) -> None:
        """Remove the directory, which is empty, unless the path leads to another one.

        While it is open, no other directory gets the same inode. If another driver puts its own
        in place after the look, that one is removed only while it is empty, and then that driver
        does not start.
        """
        if self.is_in_place:
            self.path.rmdir()

    def _close(self) -> None:
        self.unlock()
        self._is_closed = True
        os.close(self._fd)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the driver has closed", str(self.path))


@final
class Promise:
    """Room on the file system that one log may still take."""

    __slots__ = ("length", "name")

    def __init__(self, name: str, length: int) -> None:
        self.name: Final = name
        self.length: Final = length


@final
class Room:
    """What the file system has left for new logs, less what those of this driver have yet to take.

    A sparse log takes its memory page by page, when a page is first written. Where none is left,
    the system ends the process that writes (SIGBUS), so that no log is made which could not be
    filled beside all others. What other processes take later cannot be known.

    Args:
        files: The directory of the logs.
        unmapper: Frees what closed logs have taken.
        is_checked: Whether anything is refused.

    Differs: Aeron compares each log with what is free, of which the sparse logs before it have
    taken nothing yet; so together they may exceed it.
    """

    def __init__(self, files: OwnDirectory, unmapper: Unmapper, *, is_checked: bool) -> None:
        self._files = files
        self._unmapper = unmapper
        self._is_checked = is_checked
        # What each log had yet to take when its file was looked at last: it is no more now. Those
        # that were looked at most recently are the last ones.
        self._owed: dict[Promise, int] = {}
        self._owed_length = 0
        # Logs are made by worker threads too.
        self._lock = threading.Lock()

    def promise(self, name: str, length: int) -> Promise:
        """Promise room to a log.

        Args:
            name: Its file in the directory, which need not exist yet.
            length: Its length in bytes.

        Raises:
            OSError: ENOSPC.
        """
        promise = Promise(name, length)
        if self._is_checked:
            with self._lock:
                self._check(length)
                self._owed[promise] = length
                self._owed_length += length
        return promise

    def give_back(self, promise: Promise) -> None:
        """Promise room to a log no more: it has taken all of it, or is closed."""
        with self._lock:
            self._owed_length -= self._owed.pop(promise, 0)

    def _check(self, length: int) -> None:
        free = self._free_length(length)
        if free < length + self._owed_length and self._unmapper.is_busy:
            # What was closed before is not free yet, but in a moment.
            self._unmapper.wait()
            free = self._free_length(length)
        owed = self._owed_length
        if free < length + owed:
            message = f"insufficient usable storage for new log of length={length} usable={free}"
            if owed:
                message += (
                    f", of which sparse logs may still take {owed}; make room, or set "
                    "perform_storage_checks to false and risk that a full file system ends the "
                    "driver"
                )
            raise OSError(errno.ENOSPC, message, str(self._files.path))

    def _free_length(self, length: int) -> int:
        """Return what is free; if that may not do for a log, after a look at what others took."""
        free = self._files.free_length()
        if length <= free < length + self._owed_length:
            self._look(free - length)
            # Once more, and afterwards: what was written in between counts twice, and not never.
            free = self._files.free_length()
        return free

    def _look(self, most: int) -> None:
        """Look what logs have taken by now, until they have yet to take no more than `most` bytes.

        If there are more than `LOOKS_MAX` logs, the next log continues with those that were looked
        at least recently.
        """
        for promise in list(islice(self._owed, LOOKS_MAX)):
            if self._owed_length <= most:
                return
            before = self._owed.pop(promise)
            taken = self._files.allocated_length(promise.name)
            owed = max(0, min(before, promise.length - taken))
            self._owed_length += owed - before
            if owed:
                self._owed[promise] = owed


@final
class LogFile:
    """The file of one log; closing it removes the file, and unmaps it after its last view."""

    def __init__(self, storage: DirectoryStorage, mapping: Mapping, promise: Promise) -> None:
        self._storage = storage
        self._mapping = mapping
        self._promise = promise

    def close(self) -> None:
        """Remove the file, and unmap it unless a view is left: the memory goes with it."""
        self._storage.free_log(self._mapping, self._promise)


@final
class Unmapper:
    """Unmaps closed logs in a thread, so that no event loop waits for the system.

    Any thread may call it. What waits is no more than the logs that there were.
    """

    def __init__(self) -> None:
        # It has no thread before the first long log.
        self._executor = ThreadPoolExecutor(1, "aeron-unmap")
        self._waiting: set[Future[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Return whether some log is not unmapped yet."""
        return bool(self._waiting)

    def unmap(self, mapping: Mapping) -> None:
        """Unmap a log soon, or now if it is short, or if the driver or the system has no thread."""
        if mapping.length > UNMAPPED_AT_ONCE_MAX:
            with suppress(RuntimeError):
                future = self._executor.submit(_unmap, mapping)
                self._waiting.add(future)
                future.add_done_callback(self._on_unmapped)
                return
        _unmap(mapping)

    def wait(self) -> None:
        """Wait until every log that was given is unmapped, or for 50 ms.

        The event loop may stand still for that time, if the file system is nearly full.
        """
        wait(tuple(self._waiting), UNMAPPING_WAIT_S)

    def close(self) -> None:
        """Let the thread end with what waits now; what comes later is unmapped at once."""
        self._executor.shutdown(wait=False)

    def _on_unmapped(self, future: Future[None]) -> None:
        self._waiting.discard(future)
        if error := future.exception():
            log.error("unmapping_failed", exc_info=error)


def _unmap(mapping: Mapping) -> None:
    # A view that is left keeps the memory, which goes with it.
    with suppress(BufferError):
        mapping.close()


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def check_is_unused(directory: Path, *, now_ms: int, timeout_ms: int) -> None:
    """Refuse the directory of a driver that is alive, or that is being started.

    Raises:
        DriverError: A driver was alive within the timeout, or has made its file within it and not
            finished it yet; or this process cannot tell.
    """
    try:
        found = AeronDirectory.try_open(directory)
        if isinstance(found, CncMissing):
            return
        made_ms = (directory / CNC_FILE).lstat().st_mtime_ns // NS_PER_MS
    except FileNotFoundError:
        return
    except ProtocolError as error:
        message = f"{error}; or set dir_delete_on_start, or {ANOTHER_PLACE}"
        raise DriverError(message) from error
    advice = f"end it, {ANOTHER_PLACE}, or set dir_delete_on_start"
    if isinstance(found, AeronDirectory):
        with found:
            if found.is_active(now_ms, timeout_ms):
                pid, age_ms = found.layout.pid, now_ms - found.heartbeat_ms
                message = (
                    f"a driver uses {directory} (process {pid}, heartbeat {age_ms} ms ago): "
                    f"{advice}, which is for a driver that has ended: one that runs goes on in "
                    "files that no new client finds"
                )
                if not lives(pid):
                    # Containers that share the directory do not see each other's processes.
                    message = (
                        f"the driver of {directory} has not ended in order, or it runs in another "
                        f"container: there is no process {pid} here, and its heartbeat is {age_ms} "
                        f"ms old; if it was killed, start again in {timeout_ms - age_ms} ms, or "
                        f"set dir_delete_on_start; if it runs elsewhere, use it, or {ANOTHER_PLACE}"
                    )
                raise DriverError(message)
            if found.heartbeat_ms:
                return
    # Differs: Aeron's drivers wait for the version that the other one stores.
    age_ms = now_ms - made_ms
    if age_ms <= timeout_ms:
        message = (
            f"a driver is about to start in {directory}, or died in its start ({CNC_FILE} is "
            f"{age_ms} ms old, of {timeout_ms} ms that are allowed): start again later; "
            f"otherwise {advice}"
        )
        raise DriverError(message)
