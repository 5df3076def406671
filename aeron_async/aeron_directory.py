"""An existing Aeron directory, of this driver or an official one, opened by another process.

    cnc.dat             commands, answers, counters and errors; see `cnc_file`
    loss-report.dat     what each stream has lost
    publications/       log buffers, ID.logbuffer: ID is the registration id of the publication
    images/             the same, with the correlation id of the image

Invariant: nothing here creates, grows or removes a file, and without `is_writable` nothing changes
one: the files are opened and mapped for reading only. Nothing here waits and nothing reads a clock:
the caller passes the time, and looks again if it wants to.

Every process that may write the directory may be hostile. A file is opened without following a
link and without waiting for one that is no file; its length is what the system says; every number
in it is read once and checked. A process that truncates `cnc.dat` while it is mapped kills this
one: only the permissions of the directory can prevent that.

Source: Aeron `CommonContext`, `aeron_default_path`, `aeron_cnc.c`, `DriverTool`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

import attrs

from aeron_async.concurrent.atomic_buffer import (
    AtomicBuffer,
    Mapping,
    acquire_fence,
    check_shared_memory,
)
from aeron_async.concurrent.cnc_file import (
    CNC_FILE,
    META_DATA_LENGTH,
    CncLayout,
    CncNotReady,
    load_layout,
)
from aeron_async.concurrent.error_log import read_error_log
from aeron_async.concurrent.loss_report import LOSS_REPORT_FILE, read_loss_report
from aeron_async.concurrent.ring_buffer import (
    HEAD_OFFSET,
    HEARTBEAT_OFFSET,
    RING_TRAILER_LENGTH,
    TAIL_OFFSET,
)
from aeron_async.counters import CountersReader
from aeron_async.errors import ConfigurationError, DriverError, ProtocolError
from aeron_async.logbuffer.log_buffers import file_length
from aeron_async.logbuffer.metadata import METADATA_LENGTH, LogMetadata, LogType
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    check_mtu,
    check_page_size,
    check_term_length,
    compute_position,
    position_bits,
    unpack_tail,
)
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections import abc
    from types import TracebackType

    from aeron_async.concurrent.cnc_file import Section
    from aeron_async.concurrent.error_log import ErrorObservation
    from aeron_async.concurrent.loss_report import StreamLoss
    from aeron_async.counters import CounterRecord

__all__ = [
    "DIRECTORY_VARIABLE",
    "DRIVER_TIMEOUT_MS",
    "HEARTBEAT_ENDED",
    "IMAGES_DIRECTORY",
    "PUBLICATIONS_DIRECTORY",
    "AeronDirectory",
    "CncMissing",
    "LogDescription",
    "default_directory",
    "file_in_place_of",
    "lives",
    "open_plain",
]

DIRECTORY_VARIABLE: Final = "AERON_DIR"
PUBLICATIONS_DIRECTORY: Final = "publications"
IMAGES_DIRECTORY: Final = "images"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where Aeron itself puts its directory

READ_LENGTH_MAX: Final = 64 << 20
"""Bytes of an error log or a loss report that are read; Aeron's defaults are 4 MiB and 1 MiB."""
COUNTERS_MAX: Final = 1 << 18
"""Most counters that one call yields: four times those of Aeron's default length."""
ENTRIES_MAX: Final = 10_000
"""Most errors, or entries of a loss report, that one call returns."""
DRIVER_TIMEOUT_MS: Final = 10_000
"""How old the heartbeat of an active driver may be: Aeron's driver timeout."""
HEARTBEAT_ENDED: Final = -1
"""What a driver stores when it ends."""


def default_directory(environ: abc.Mapping[str, str] | None = None) -> Path:
    """Return the directory in which drivers and tools of this user meet unless told another.

    `AERON_DIR` names it; otherwise it is `/dev/shm/aeron-USER` on Linux, and `aeron-USER` in the
    folder for temporary files elsewhere.

    Args:
        environ: Environment variables; None for those of this process.

    Source: Aeron `CommonContext.getAeronDirectoryName`, `aeron_default_path`.
    """
    variables = os.environ if environ is None else environ
    if named := variables.get(DIRECTORY_VARIABLE):
        return Path(named)
    parent = SHARED_MEMORY if sys.platform == "linux" else tempfile.gettempdir()
    return Path(parent, f"aeron-{_user_name(variables)}")


def _user_name(environ: abc.Mapping[str, str]) -> str:
    name = environ.get("USER")
    if name is None and sys.platform != "win32":
        import pwd  # noqa: PLC0415 - Windows has none

        try:
            # The real user, as the official drivers of C and Java ask for.
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = None
    return environ.get("USERNAME", "default") if name is None else name


@attrs.frozen
class CncMissing:
    """A directory without `cnc.dat`: no driver has started there, or its files were removed.

    Attributes:
        reason: What is missing, for the error that ends the waiting.
    """

    reason: str


@attrs.frozen(kw_only=True)
class LogDescription:
    """What the metadata of a log buffer says; lengths in bytes.

    Attributes:
        producer_position: Up to where publishers have claimed the log; None for the log of an
            image, and if the tail is one that no publisher stores.
    """

    log_type: LogType
    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu_length: int
    publication_window_length: int
    receiver_window_length: int
    producer_position: int | None


def file_in_place_of(directory: str | os.PathLike[str]) -> Path | None:
    """Return the file that stands where a directory, or one above it, should be; None without."""
    path = Path(directory)
    try:
        there = next((each for each in (path, *path.parents) if each.exists()), None)
        return None if there is None or there.is_dir() else there
    except OSError:
        # What this user may not look into is another matter.
        return None


@final
class AeronDirectory:
    """The open `cnc.dat` of a driver, and the other files beside it.

    `try_open` and `open` make it. Close it, or use it in a `with` statement; after that every
    access raises.

    Attributes:
        path: The directory.
        layout: What the header said when the file was opened.
        is_writable: Whether the memory may be changed.
        counters: The driver's counters; any process may write them.
    """

    __slots__ = (
        "_buffers",
        "_identity",
        "_mapping",
        "_ring_words",
        "_view",
        "counters",
        "is_writable",
        "layout",
        "path",
    )

    def __init__(
        self, path: Path, mapping: Mapping, layout: CncLayout, identity: tuple[int, int]
    ) -> None:
        self.path: Final = path
        self.layout: Final = layout
        self.is_writable: Final = mapping.is_writable
        self._identity = identity
        self._mapping = mapping
        self._view = memoryview(mapping)
        self._buffers: list[AtomicBuffer] = []
        self._ring_words = layout.to_driver_buffer.of(self._view).cast("q")
        self.counters: Final = CountersReader(
            layout.counters_values_buffer.of(self._view),
            layout.counters_metadata_buffer.of(self._view),
        )

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, is_writable: bool = False) -> Self:
        """Open a directory as it is now; see `try_open`.

        Raises:
            DriverError: There is no driver, or it has not finished its start, or this user may not
                open its file.
            ProtocolError: The file is of another version, damaged, or no plain file.
            ConfigurationError: The compiled code is missing.
        """
        found = cls.try_open(directory, is_writable=is_writable)
        if isinstance(found, CncMissing | CncNotReady):
            raise DriverError(found.reason)
        return found

    @classmethod
    def try_open(
        cls, directory: str | os.PathLike[str], *, is_writable: bool = False
    ) -> Self | CncMissing | CncNotReady:
        """Open a directory, or return why it cannot be used yet.

        A client looks again until its deadline, also while `heartbeat_ms` is 0. If the heartbeat
        is too old it opens the directory again, because a driver that starts replaces the files.

        Args:
            directory: The Aeron directory; it may itself be a link.
            is_writable: Whether the memory may be changed, as a client must; a reader needs no
                permission to write.

        Raises:
            DriverError: This user may not open the file.
            ProtocolError: The file is of another version, damaged, or no plain file.
            ConfigurationError: The compiled code is missing.
        """
        check_shared_memory()
        path = Path(directory)
        try:
            fd = open_plain(path / CNC_FILE, is_writable=is_writable)
        except (FileNotFoundError, NotADirectoryError):
            if (file := file_in_place_of(path)) is not None:
                return CncMissing(f"{_shown(file)} is a file, and an Aeron directory is needed")
            return CncMissing(
                f"no driver has made {_shown(path / CNC_FILE)}: start one there, or name the "
                "directory of another"
            )
        try:
            return cls._map(path, fd, is_writable=is_writable)
        finally:
            os.close(fd)

    @classmethod
    def try_open_active(
        cls, directory: str | os.PathLike[str], *, now_ms: int, timeout_ms: int
    ) -> Self | str:
        """Open a directory to change it if its driver is active; if not, return why not, as a line.

        Args:
            directory: As for `try_open`.
            now_ms: Epoch milliseconds.
            timeout_ms: As for `is_active`.

        Raises:
            AeronError: As for `try_open`.
        """
        found = cls.try_open(directory, is_writable=True)
        if isinstance(found, CncMissing | CncNotReady):
            return found.reason
        why = found.why_not_active(now_ms, timeout_ms)
        if why is None:
            return found
        found.close()
        return why

    @classmethod
    def _map(cls, path: Path, fd: int, *, is_writable: bool) -> Self | CncNotReady:
        status = os.fstat(fd)
        length = status.st_size
        try:
            if length < META_DATA_LENGTH:
                found = load_layout(bytes(length), length)
            else:
                header = Mapping(fd, META_DATA_LENGTH, is_writable=False)
                found = load_layout(header, length)
                header.close()
            if isinstance(found, CncNotReady):
                return CncNotReady(
                    f"{found.reason}; look again, or start a driver in {_shown(path)}"
                )
            # The header decides how much is mapped, and what it may say is limited.
            mapping = Mapping(fd, found.error_log_buffer.end, is_writable=is_writable)
        except ProtocolError as error:
            message = f"{error}: {_shown(path)} needs a driver of another version or a new start"
            raise ProtocolError(message) from None
        except ValueError as error:
            # Another process has cut the file since its length was asked for.
            return CncNotReady(f"{CNC_FILE} in {_shown(path)} changes: {error}; look again")
        return cls(path, mapping, found, (status.st_dev, status.st_ino))

    # The driver.

    @property
    def heartbeat_ms(self) -> int:
        """When the driver was last alive, epoch ms; -1 once it has ended, 0 before it began."""
        return self._ring_word(HEARTBEAT_OFFSET)

    @property
    def producer_position(self) -> int:
        """Up to where clients have claimed the ring of commands, in bytes."""
        return self._ring_word(TAIL_OFFSET)

    @property
    def consumer_position(self) -> int:
        """Up to where the driver has read the ring of commands, in bytes."""
        return self._ring_word(HEAD_OFFSET)

    def _ring_word(self, offset: int) -> int:
        capacity = self.layout.to_driver_buffer_length - RING_TRAILER_LENGTH
        word = self._ring_words[(capacity + offset) // 8]
        acquire_fence()
        return word

    def is_active(self, now_ms: int, timeout_ms: int) -> bool:
        """Return whether the driver was alive within the last `timeout_ms` milliseconds.

        A heartbeat in the future counts as alive: the clock may have been set back. A client that
        must not wait for ever watches whether the heartbeat changes.

        Args:
            now_ms: Epoch milliseconds.
            timeout_ms: Aeron's drivers beat once a second, and its clients allow ten.
        """
        return self.why_not_active(now_ms, timeout_ms) is None

    def why_not_active(self, now_ms: int, timeout_ms: int) -> str | None:
        """Return what is wrong with the driver, in one line; None if it is active.

        Args:
            now_ms: Epoch milliseconds.
            timeout_ms: As for `is_active`.
        """
        heartbeat_ms = self.heartbeat_ms
        who = f"the driver of {_shown(self.path)}, process {self.layout.pid},"
        if heartbeat_ms == HEARTBEAT_ENDED:
            return f"{who} has ended: start it again"
        if heartbeat_ms == 0:
            return f"{who} has not begun its work: look again"
        age_ms = now_ms - heartbeat_ms
        if age_ms <= timeout_ms:
            return None
        return (
            f"{who} has shown no life for {age_ms:,} ms, of {timeout_ms:,} ms that are allowed: it "
            "has died or stands still; start it again"
        )

    @property
    def identity(self) -> tuple[int, int]:
        """What tells this `cnc.dat` from that of a driver that starts later."""
        return self._identity

    def is_replaced(self) -> bool:
        """Return whether the directory has another `cnc.dat` by now, or none.

        A driver that starts makes a new file. What is mapped here stays readable, and no process
        changes it any more.
        """
        try:
            status = (self.path / CNC_FILE).lstat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != self._identity

    # What the driver reports.

    def counter_records(self, *, limit: int = COUNTERS_MAX) -> abc.Iterator[CounterRecord]:
        """Yield the allocated counters, lowest id first, each as it is at that moment.

        Args:
            limit: Most counters to yield.
        """
        return islice(self.counters, limit)

    def errors(self, *, since_ms: int = 0, limit: int = ENTRIES_MAX) -> list[ErrorObservation]:
        """Return the distinct errors of the driver, oldest first.

        Args:
            since_ms: Leave out errors that were last observed before; epoch milliseconds.
            limit: Most errors to return.
        """
        log = self.layout.error_log_buffer.of(self._view)[:READ_LENGTH_MAX]
        with log, closing(read_error_log(log, since_ms=since_ms)) as found:
            return list(islice(found, limit))

    def losses(self, *, limit: int = ENTRIES_MAX) -> list[StreamLoss]:
        """Return the entries of the loss report, oldest first; none if there is no such file.

        Args:
            limit: Most entries to return.

        Raises:
            DriverError: This user may not open the file.
            ProtocolError: It is no plain file.
        """
        try:
            fd = open_plain(self.path / LOSS_REPORT_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            length = min(os.fstat(fd).st_size, READ_LENGTH_MAX)
            if length == 0:
                return []
            mapping = Mapping(fd, length, is_writable=False)
        except ValueError:
            # Another process has cut the file since its length was asked for.
            return []
        finally:
            os.close(fd)
        with (
            closing(mapping),
            memoryview(mapping) as report,
            closing(read_loss_report(report)) as found,
        ):
            return list(islice(found, limit))

    def publication_log(self, registration_id: int) -> LogDescription | None:
        """Return what the log of a publication says; None if it cannot be read, or is no log."""
        return self._log(PUBLICATIONS_DIRECTORY, registration_id)

    def image_log(self, correlation_id: int) -> LogDescription | None:
        """Return what the log of an image says; None if it cannot be read, or is no log."""
        return self._log(IMAGES_DIRECTORY, correlation_id)

    def _log(self, kind: str, log_id: int) -> LogDescription | None:
        try:
            fd = open_plain(self.path / kind / f"{log_id}.logbuffer")
        except (OSError, DriverError, ProtocolError):
            return None
        try:
            length = os.fstat(fd).st_size
            # Read and not mapped: a log is removed at any time, and this needs a copy only.
            block = os.pread(fd, METADATA_LENGTH, max(length - METADATA_LENGTH, 0))
        except OSError:
            return None
        finally:
            os.close(fd)
        return describe_log(block, length)

    # For clients.

    @property
    def memory(self) -> memoryview:
        """The file as bytes, for those who look at single words."""
        return self._view

    def counter_values(self) -> memoryview:
        """Return the values of the counters; the caller releases them before `close`."""
        return self.layout.counters_values_buffer.of(self._view)

    def atomic_buffer(self, section: Section) -> AtomicBuffer:
        """Return one section of the layout for atomic access; `close` releases it.

        Raises:
            ConfigurationError: The directory is open for reading only.
        """
        if not self.is_writable:
            message = f"{_shown(self.path)} is open for reading only: open it with is_writable"
            raise ConfigurationError(message)
        buffer = AtomicBuffer(self._mapping, *section)
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        """Release every view, and unmap the file; a second call does nothing.

        Raises:
            BufferError: The caller still holds a view of its own.
        """
        for buffer in self._buffers:
            buffer.release()
        self._buffers.clear()
        self.counters.release()
        self._ring_words.release()
        self._view.release()
        self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def describe_log(block: bytes, length: int) -> LogDescription | None:
    """Return what the last 4096 bytes of a log say; None if it is no log of that length.

    Args:
        block: The metadata; any bytes will do.
        length: Length of the whole file, in bytes, as the system says it.
    """
    if len(block) != METADATA_LENGTH:
        return None
    metadata = LogMetadata(memoryview(block))
    term_length, page_size = metadata.term_length, metadata.page_size
    try:
        check_term_length(term_length)
        check_page_size(page_size)
        check_mtu(metadata.mtu_length)
        log_type = metadata.log_type
    except ValueError:
        return None
    if length != file_length(term_length=term_length, page_size=page_size):
        return None
    return LogDescription(
        log_type=log_type,
        session_id=metadata.session_id,
        stream_id=metadata.stream_id,
        initial_term_id=metadata.initial_term_id,
        term_length=term_length,
        mtu_length=metadata.mtu_length,
        publication_window_length=metadata.publication_window_length,
        receiver_window_length=metadata.receiver_window_length,
        producer_position=None if log_type is LogType.IMAGE else _tail_position(metadata),
    )


def _tail_position(metadata: LogMetadata) -> int | None:
    """Return the position of the tail; None if no publisher stores such a tail."""
    tail = metadata.tail(metadata.active_term_count % PARTITION_COUNT)
    term_id, offset = unpack_tail(tail, term_length=metadata.term_length)
    position = compute_position(
        term_id,
        offset,
        initial_term_id=metadata.initial_term_id,
        bits=position_bits(metadata.term_length),
    )
    return position if position >= 0 else None


def lives(pid: int) -> bool:
    """Return whether there is a process with an id, as far as this one can see."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def open_plain(path: Path, *, is_writable: bool = False) -> int:
    """Return a descriptor of a plain file.

    Raises:
        FileNotFoundError: It does not exist.
        NotADirectoryError: Its directory is none.
        DriverError: This user may not open it.
        ProtocolError: It is a link, or no plain file.
    """
    flags = os.O_RDWR if is_writable else os.O_RDONLY
    # O_NONBLOCK: opening a named pipe would wait for its other end; it is refused below.
    for flag in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
        flags |= getattr(os, flag, 0)
    try:
        fd = os.open(path, flags)
    except PermissionError:
        what = "read and write" if is_writable else "read"
        message = (
            f"this user may not {what} {_shown(path)}: run as the user of its driver, or let that "
            "user grant it"
        )
        raise DriverError(message) from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise _no_plain_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_plain_file(path)
    return fd


def _no_plain_file(path: Path) -> ProtocolError:
    return ProtocolError(
        f"{_shown(path)} is no plain file, as every driver makes it: remove it, and start the "
        "driver again"
    )


def _shown(path: Path) -> str:
    return printable(str(path))
