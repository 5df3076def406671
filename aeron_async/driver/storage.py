"""Where a driver keeps its state: in memory of its own, or in an Aeron directory.

Counters, log buffers, commands, the error log and the loss report stand behind `DriverStorage`;
nothing else in the driver knows whether other processes can see them.

Invariant: clients find `cnc.dat` only at its full length, and its version is stored last, after the
counters and the heartbeat of the driver. A driver never takes the directory of another one that is
alive, and it follows no symbolic link inside it.

Source: Aeron `MediaDriver.ensureDirectoryIsRecreated`, `MediaDriver.Context.conclude`,
`CommonContext`, `LogFactory`, `aeron_driver_init`, `aeron_raw_log_map`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping, check_shared_memory
from aeron_async.concurrent.broadcast import BroadcastTransmitter
from aeron_async.concurrent.cnc_file import (
    CNC_FILE,
    CNC_VERSION,
    META_DATA_LENGTH,
    VERSION_OFFSET,
    CncLayout,
    CncNotReady,
    Section,
    load_layout,
)
from aeron_async.concurrent.error_log import DistinctErrorLog
from aeron_async.concurrent.loss_report import LossReport
from aeron_async.concurrent.ring_buffer import (
    HEARTBEAT_OFFSET,
    RING_TRAILER_LENGTH,
    ManyToOneRingBuffer,
)
from aeron_async.counters import METADATA_LENGTH, VALUE_LENGTH
from aeron_async.errors import DriverError
from aeron_async.logbuffer.log_buffers import LogBuffers, file_length
from aeron_async.logbuffer.metadata import LogType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.logbuffer.log_buffers import LogSpec

__all__ = ["DirectoryStorage", "DriverStorage", "MemoryStorage"]

LOSS_REPORT_FILE: Final = "loss-report.dat"
PUBLICATIONS: Final = "publications"
IMAGES: Final = "images"
DRIVER_FILES: Final = frozenset({CNC_FILE, LOSS_REPORT_FILE, PUBLICATIONS, IMAGES})
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
NEW_FILE: Final = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
ID_STEP_MAX: Final = 2**32
"""More ids than clients take between two of the driver's: the counter was forged."""
NO_HEARTBEAT: Final = -1
"""Heartbeat of a driver that has closed."""


class DriverStorage(ABC):
    """The state of one driver, which its other parts only read and write.

    Attributes:
        counter_values: 128 bytes for each counter.
        counter_metadata: 512 bytes for each counter.
        error_log: Records distinct errors; None if nobody could read it.
        loss_report: Records the losses of each image; None if nobody could read it.
    """

    counter_values: Buffer
    counter_metadata: Buffer
    error_log: DistinctErrorLog | None = None
    loss_report: LossReport | None = None

    @abstractmethod
    def next_id(self) -> int:
        """Return a registration id that no other request has."""

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


@final
class MemoryStorage(DriverStorage):
    """State that only this process sees; memory that is not touched costs nothing."""

    def __init__(self, context: DriverContext) -> None:
        length = context.counters_buffer_length
        self.counter_values = mmap.mmap(-1, length)
        self.counter_metadata = mmap.mmap(-1, length * (METADATA_LENGTH // VALUE_LENGTH))
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
        try:
            self._prepare(now_ms)
            self._cnc = self._new_file(CNC_FILE, self.layout.file_length)
            self._loss = self._new_file(
                LOSS_REPORT_FILE, self._pages(context.loss_report_buffer_length)
            )
        except OSError as error:
            message = (
                f"no Aeron directory can be made at {self.directory} ({error}): choose another "
                "place, or make room there"
            )
            raise DriverError(message) from error
        cnc = memoryview(self._cnc)
        cnc[:META_DATA_LENGTH] = self.layout.encode()
        self.memory: Final = cnc
        self._header = AtomicBuffer(self._cnc, 0, META_DATA_LENGTH)
        self.commands: Final = ManyToOneRingBuffer(self._atomic(self.layout.to_driver_buffer))
        self.answers: Final = BroadcastTransmitter(self._atomic(self.layout.to_clients_buffer))
        self.counter_metadata = self.layout.counters_metadata_buffer.of(cnc)
        self.counter_values = self.layout.counters_values_buffer.of(cnc)
        self.error_log = DistinctErrorLog(self.layout.error_log_buffer.of(cnc))
        self.loss_report = LossReport(memoryview(self._loss)[: context.loss_report_buffer_length])
        self._last_id = 0
        # As in Aeron, the first id is 1.
        self.commands.next_correlation_id()

    def publish(self, now_ms: int) -> None:
        """Let clients in: the counters are there, and the driver is about to read commands."""
        self.commands.consumer_heartbeat_ms = now_ms
        self._header.store_release_32(VERSION_OFFSET, CNC_VERSION)

    def next_id(self) -> int:
        """Return a registration id that this driver has not given before.

        No other process gets it either, unless a client has changed the counter.
        """
        found, last = self.commands.next_correlation_id(), self._last_id
        if not last < found <= last + ID_STEP_MAX:
            found = last + 1
        self._last_id = found
        return found

    def create_log(self, spec: LogSpec) -> LogBuffers:
        """Return a new log in a file of its own, which goes with it."""
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        kind = IMAGES if spec.log_type is LogType.IMAGE else PUBLICATIONS
        name = f"{kind}/{spec.correlation_id}.logbuffer"
        self._check_room(length)
        mapping = self._new_file(name, length, is_sparse=spec.sparse)
        path = self.directory / name
        try:
            return LogBuffers.create(spec, mapping, owned=LogFile(mapping, path), file=str(path))
        except BaseException:
            path.unlink(missing_ok=True)
            mapping.close()
            raise

    def close(self) -> None:
        """Say that the driver has closed; delete the directory if the context says so."""
        self.commands.consumer_heartbeat_ms = NO_HEARTBEAT
        if self._context.dir_delete_on_shutdown:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        for kind in (PUBLICATIONS, IMAGES):
            for path in (self.directory / kind).glob("*.logbuffer"):
                path.unlink(missing_ok=True)

    # The files.

    def _prepare(self, now_ms: int) -> None:
        """Make an empty directory, in place of what a dead driver has left."""
        directory = self.directory
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            message = f"{directory} is no directory: remove it, or choose another place"
            raise DriverError(message)
        if directory.exists():
            if not self._context.dir_delete_on_start:
                check_is_unused(
                    directory, now_ms=now_ms, timeout_ms=self._context.driver_timeout_ms
                )
            self._check_is_ours()
            # It removes links and never follows them.
            shutil.rmtree(directory)
        directory.mkdir(mode=DIRECTORY_MODE, parents=True)
        for kind in (PUBLICATIONS, IMAGES):
            (directory / kind).mkdir(mode=DIRECTORY_MODE)

    def _check_is_ours(self) -> None:
        """Refuse to delete what no driver has made.

        Differs: Aeron deletes whatever is in the directory that it was told to use.
        """
        names = {each.name for each in self.directory.iterdir()}
        strangers = sorted(names - DRIVER_FILES)
        if strangers and CNC_FILE not in names:
            message = (
                f"{self.directory} holds {strangers[0]!r} and no {CNC_FILE}, so no driver has made "
                "it, and it is not deleted: choose another place with AERON_DIR"
            )
            raise DriverError(message)

    def _new_file(self, name: str, length: int, *, is_sparse: bool = False) -> Mapping:
        """Make and map a file of zeros.

        Memory of a file without room ends the process at the first access, so that all of it is
        allocated here unless it is sparse.
        """
        path = self.directory / name
        fd = os.open(path, NEW_FILE, FILE_MODE)
        try:
            if is_sparse:
                os.ftruncate(fd, length)
            else:
                os.posix_fallocate(fd, 0, length)
            return Mapping(fd, length)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _check_room(self, length: int) -> None:
        """Refuse a log for which the file system has no room, as Aeron does.

        Raises:
            OSError: ENOSPC.
        """
        if not self._context.perform_storage_checks:
            return
        room = os.statvfs(self.directory)
        free = room.f_bavail * room.f_frsize
        if free < length:
            message = f"insufficient usable storage for new log of length={length} usable={free}"
            raise OSError(errno.ENOSPC, message, str(self.directory))

    def _pages(self, length: int) -> int:
        page_size = self._context.file_page_size
        return -(-length // page_size) * page_size

    def _atomic(self, section: Section) -> AtomicBuffer:
        return AtomicBuffer(self._cnc, section.offset, section.length)


@final
class LogFile:
    """The file of one log; closing it removes the file, and unmaps it after its last view.

    Attributes:
        path: Where it is.
    """

    def __init__(self, mapping: Mapping, path: Path) -> None:
        self._mapping = mapping
        self.path: Final = path

    def close(self) -> None:
        """Remove the file, and unmap it unless a view is left.

        Raises:
            BufferError: A view is left; the memory goes with it.
        """
        self.path.unlink(missing_ok=True)
        self._mapping.close()


def check_is_unused(directory: Path, *, now_ms: int, timeout_ms: int) -> None:
    """Refuse the directory of a driver that is alive.

    Raises:
        DriverError: A driver was alive within the timeout.
    """
    try:
        fd = os.open(directory / CNC_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        length = os.fstat(fd).st_size
        if length < META_DATA_LENGTH:
            return
        mapping = Mapping(fd, length, is_writable=False)
    finally:
        os.close(fd)
    with contextlib.closing(mapping), memoryview(mapping) as view:
        layout = load_layout(view, length)
        if isinstance(layout, CncNotReady):
            return
        # The file is mapped for reading only, and a ring buffer writes.
        section = layout.to_driver_buffer
        offset = section.length - RING_TRAILER_LENGTH + HEARTBEAT_OFFSET
        with section.of(view) as ring, ring.cast("q") as words:
            age_ms = now_ms - words[offset // 8]
    if age_ms <= timeout_ms:
        message = (
            f"a driver uses {directory} (process {layout.pid}, heartbeat {age_ms} ms ago): end it, "
            "choose another directory with AERON_DIR, or set aeron.dir.delete.on.start"
        )
        raise DriverError(message)
