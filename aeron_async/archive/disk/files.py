"""A directory of files as the archive sees it: few operations, each of which may fail.

The archive reaches the disk through `File` and `Directory`, so that a test can replace them: with
short reads and writes, with errors, or with pages that a crash loses. `OsFile` and `OsDirectory`
are those of the operating system.

Every call blocks. Names are plain: no separator, nothing hidden, so that no name leads out of the
directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.errors import ArchiveError, ArchiveErrorCode, ArchiveFileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

__all__ = [
    "Directory",
    "File",
    "OsDirectory",
    "OsFile",
    "ReadableDirectory",
    "ReadableFile",
    "check_name",
    "close_quietly",
    "code_of",
    "kind_of_file",
    "not_plain",
    "read_exactly",
    "reason_of",
    "write_all",
]

# Errors.

ACTS: Final[Mapping[int, str]] = {
    errno.ENOSPC: "make room there, for instance with `aeron-async archive prune`",
    errno.EDQUOT: "raise the quota, or make room with `aeron-async archive prune`",
    errno.EROFS: "mount that file system writable",
    errno.EIO: "the disk is broken, or gone: look at the log of the system",
}
FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def reason_of(error: OSError) -> str:
    """Return what failed in one line, with what can be done if that is known."""
    act = ACTS.get(error.errno or 0)
    return str(error) if act is None else f"{error}; {act}"


def code_of(error: OSError) -> ArchiveErrorCode:
    """Return the error code for clients of the archive.

    Source: Aeron `RecordingWriter.checkErrorType`.
    """
    is_full = error.errno in FULL
    return ArchiveErrorCode.STORAGE_SPACE if is_full else ArchiveErrorCode.GENERIC


KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of_file(mode: int) -> str:
    """Return the kind of a non-plain file, in words, by its mode."""
    return KINDS.get(stat.S_IFMT(mode), "no plain file")


def not_plain(name: str, kind: str) -> ArchiveFileError:
    """Return the error about something that is not a plain file."""
    message = f"{kind}, and an archive reads and removes plain files only: take it away yourself"
    return ArchiveFileError(message, file=name, offset=0)


# Files and directories.

LONGEST_NAME: Final = 255
SEPARATORS: Final = frozenset("/\\\0")
NO_FILE: Final = {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}
"""Error numbers of opening something other than a plain file."""
MODE: Final = 0o644


class ReadableFile(Protocol):
    """An open file to read; every offset and length is in bytes."""

    @property
    def name(self) -> str:
        """Return its name in the directory."""
        ...

    def length(self) -> int:
        """Return its length."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the file."""
        ...

    def close(self) -> None:
        """Close it; a second call does nothing."""
        ...


class File(ReadableFile, Protocol):
    """An open file to read and write."""

    def number(self) -> int | None:
        """Return its file descriptor while it is open; None if it is not a file of the system."""
        ...

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other; return how much was written, which may be less."""
        ...

    def set_length(self, length: int) -> None:
        """Truncate it, or extend it with zeros that take no space."""
        ...

    def sync(self, *, metadata: bool) -> None:
        """Wait until written data is on the disk, and, if asked for, the file's metadata."""
        ...

    def try_lock(self) -> bool | None:
        """Lock it until it is closed; return whether that worked, None if locks are unsupported."""
        ...


class ReadableDirectory(Protocol):
    """The directory of an archive, for those who change nothing."""

    @property
    def path(self) -> str:
        """Return its path, for error texts."""
        ...

    def names(self) -> list[str]:
        """Return the names of the plain files in it, in no order."""
        ...

    def open_to_read(self, name: str) -> ReadableFile:
        """Open a file for reading.

        Raises:
            FileNotFoundError: It does not exist.
            ArchiveFileError: It is not a plain file.
            OSError: The disk failed.
        """
        ...

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written, in milliseconds since 1970."""
        ...


class Directory(ReadableDirectory, Protocol):
    """The directory of an archive."""

    def other_kinds(self) -> dict[str, str]:
        """Return everything else in it, such as links: the kind in words, by name."""
        ...

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open a file for reading and writing.

        Args:
            name: Name of the file.
            create: Create it if it does not exist.
            exclusive: Create it, and fail if it exists.

        Raises:
            FileNotFoundError: It does not exist, and was not to be created.
            FileExistsError: It exists, and `exclusive` is set.
            ArchiveFileError: It is not a plain file.
            OSError: The disk failed.
        """
        ...

    def open_to_read(self, name: str) -> File:
        """Open a file for reading; see `ReadableDirectory`."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file that has the new name."""
        ...

    def sync(self) -> None:
        """Wait until the names of the files are on the disk."""
        ...


def check_name(name: str) -> str:
    """Return a name that stays in its directory.

    Raises:
        ArchiveError: The name has a separator, is hidden, empty or too long.
    """
    # Of a colon, Windows would make a drive.
    is_plain = SEPARATORS.isdisjoint(name) and (sys.platform != "win32" or ":" not in name)
    if not is_plain or name.startswith(".") or not 0 < len(name) <= LONGEST_NAME:
        message = f"{name!r} is no name of a file in an archive's directory"
        raise ArchiveError(message)
    return name


def write_all(file: File, buffers: Sequence[Buffer], offset: int) -> int:
    """Write buffers completely, in several writes if necessary; return the offset behind them.

    Raises:
        OSError: The disk is full, or failed; what had been written stays.
    """
    left = [memoryview(buffer).cast("B") for buffer in buffers]
    while left:
        written = file.write(left, offset)
        offset += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]
    return offset


def read_exactly(file: ReadableFile, buffer: memoryview, offset: int) -> int:
    """Fill a buffer as far as the file goes; return how much that was."""
    count = 0
    while count < len(buffer):
        read = file.read_into(buffer[count:], offset + count)
        if read == 0:
            break
        count += read
    return count


# Implementation for the operating system.


@final
class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "name")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name: str = name
        self._descriptor = descriptor

    def number(self) -> int | None:
        """Return its file descriptor; see `File.number`."""
        return self._descriptor

    def length(self) -> int:
        """Return its length."""
        return os.fstat(self._descriptor).st_size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the file."""
        return os.preadv(self._descriptor, [buffer], offset)

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other; return how much was written, which may be less."""
        return os.pwritev(self._descriptor, buffers, offset)

    def set_length(self, length: int) -> None:
        """Truncate it, or extend it with zeros that take no space."""
        os.ftruncate(self._descriptor, length)

    def sync(self, *, metadata: bool) -> None:
        """Wait until written data is on the disk, and, if asked for, the file's metadata."""
        if metadata or not hasattr(os, "fdatasync"):
            os.fsync(self._descriptor)
        else:
            os.fdatasync(self._descriptor)

    def try_lock(self) -> bool | None:
        """Lock it until it is closed; return whether that worked, None if locks are unsupported."""
        if sys.platform == "win32":
            return None
        import fcntl  # noqa: PLC0415 - missing on some systems

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # The file system does not support locks.
            return None
        return True

    def close(self) -> None:
        """Close it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@final
class OsDirectory:
    """A directory of the operating system, created if it does not exist.

    Args:
        path: Path of the directory.
        create: Whether to create it.

    Raises:
        FileNotFoundError: It does not exist, and was not to be created.
        NotADirectoryError: Something else has that path.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._path = Path(path)
        if create and self._path.exists() and not self._path.is_dir():
            message = f"{self._path} is not a directory, and an archive is one"
            raise NotADirectoryError(message)
        if create:
            self._path.mkdir(parents=True, exist_ok=True)
        elif not self._path.is_dir():
            message = f"{self._path} is not a directory, and an archive is one"
            raise FileNotFoundError(message)

    @property
    def path(self) -> str:
        """Return its path, for error texts."""
        return str(self._path)

    def names(self) -> list[str]:
        """Return the names of the plain files in it, in no order."""
        with os.scandir(self._path) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def other_kinds(self) -> dict[str, str]:
        """Return everything else in it, by name; see `Directory.other_kinds`."""
        with os.scandir(self._path) as entries:
            return {
                entry.name: kind_of_file(entry.stat(follow_symlinks=False).st_mode)
                for entry in entries
                if not entry.is_file(follow_symlinks=False)
            }

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> OsFile:
        """Open a file for reading and writing; see `Directory.open`."""
        flags = os.O_RDWR | (os.O_CREAT if create or exclusive else 0)
        return self._open(name, flags | (os.O_EXCL if exclusive else 0))

    def open_to_read(self, name: str) -> OsFile:
        """Open a file for reading."""
        return self._open(name, os.O_RDONLY)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / check_name(name)).unlink()

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file that has the new name."""
        (self._path / check_name(old)).replace(self._path / check_name(new))

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written, in milliseconds since 1970."""
        return os.lstat(f"{self._path}{os.sep}{check_name(name)}").st_mtime_ns // 1_000_000

    def sync(self) -> None:
        """Wait until the names of the files are on the disk."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> OsFile:
        # O_NOFOLLOW: a link planted in this directory must not make the archive write elsewhere.
        # O_NONBLOCK: opening a named pipe would wait for its other end; this opens it at once, to
        # be refused.
        for flag in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
            flags |= getattr(os, flag, 0)
        # No `Path`: it takes longer to make than the file takes to open.
        path = f"{self._path}{os.sep}{check_name(name)}"
        try:
            descriptor = os.open(path, flags, MODE)
        except OSError as error:
            if error.errno in NO_FILE:
                raise not_plain(name, kind_of_file(os.lstat(path).st_mode)) from error
            raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise not_plain(name, kind_of_file(mode))
        return OsFile(name, descriptor)


def close_quietly(file: File) -> None:
    """Close a file while another error is handled, which is the one to raise."""
    with contextlib.suppress(OSError):
        file.close()
