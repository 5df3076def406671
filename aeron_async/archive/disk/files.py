"""A directory of files as the archive sees it: few operations, each of which may fail.

The archive reaches the disk through `File` and `Directory`, so that a test can stand in between:
with short reads and writes, with errors, or with pages that a crash loses. `OsFile` and
`OsDirectory` are the system's own.

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
    """Return in one line what failed, and what can be done where that is known."""
    act = ACTS.get(error.errno or 0)
    return str(error) if act is None else f"{error}; {act}"


def code_of(error: OSError) -> ArchiveErrorCode:
    """Return what clients of the archive hear.

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
    """Return what is no plain file, in words, by its mode."""
    return KINDS.get(stat.S_IFMT(mode), "no plain file")


def not_plain(name: str, kind: str) -> ArchiveFileError:
    """Return the error of something that has the name of a file."""
    message = f"{kind}, and an archive reads and removes plain files only: take it away yourself"
    return ArchiveFileError(message, file=name, offset=0)


# Files and directories.

LONGEST_NAME: Final = 255
NO_FILE: Final = {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}
"""What opening something else than a plain file fails with."""
MODE: Final = 0o644


class File(Protocol):
    """An open file; every offset and length is in bytes."""

    @property
    def name(self) -> str:
        """Return its name in the directory."""
        ...

    def number(self) -> int | None:
        """Return by what the system knows it while it is open; None if it is no file of that."""
        ...

    def length(self) -> int:
        """Return how long it is."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the file."""
        ...

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other; return how much was written, which may be less."""
        ...

    def set_length(self, length: int) -> None:
        """Cut it off, or let it go on with zeros that take no room."""
        ...

    def sync(self, *, metadata: bool) -> None:
        """Return when what was written is on the disk, and the file's own facts, if asked for."""
        ...

    def try_lock(self) -> bool | None:
        """Lock it against others until it is closed; return whether it is, None if none can be."""
        ...

    def close(self) -> None:
        """Close it; closing twice is closing once."""
        ...


class Directory(Protocol):
    """Where an archive lives."""

    @property
    def path(self) -> str:
        """Return what messages call it."""
        ...

    def names(self) -> list[str]:
        """Return the names of the files in it, in no order."""
        ...

    def other_kinds(self) -> dict[str, str]:
        """Return what is no plain file, such as a link, by name, and what it is in words."""
        ...

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open a file for reading and writing.

        Args:
            name: Of the file.
            create: Make it if it is not there.
            exclusive: Make it, and fail if it is there.

        Raises:
            FileNotFoundError: It is not there, and was not to be made.
            FileExistsError: It is there, and was to be made anew.
            ArchiveFileError: It is no plain file.
            OSError: The disk failed.
        """
        ...

    def open_to_read(self, name: str) -> File:
        """Open a file for reading.

        Raises:
            FileNotFoundError: It is not there.
            ArchiveFileError: It is no plain file.
            OSError: The disk failed.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of a file that had it."""
        ...

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to, in milliseconds since 1970."""
        ...

    def sync(self) -> None:
        """Return when the names of the files are on the disk."""
        ...


def check_name(name: str) -> str:
    """Return a name that stays in its directory.

    Raises:
        ArchiveError: It has a separator, is hidden, empty or too long.
    """
    is_plain = name == Path(name).name and "\0" not in name and "\\" not in name
    if not is_plain or name.startswith(".") or not 0 < len(name) <= LONGEST_NAME:
        message = f"{name!r} is no name of a file in an archive's directory"
        raise ArchiveError(message)
    return name


def write_all(file: File, buffers: Sequence[Buffer], offset: int) -> int:
    """Write buffers whole, however often that takes; return the offset behind them.

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


def read_exactly(file: File, buffer: memoryview, offset: int) -> int:
    """Fill a buffer as far as the file goes; return how much that was."""
    count = 0
    while count < len(buffer):
        read = file.read_into(buffer[count:], offset + count)
        if read == 0:
            break
        count += read
    return count


# Those of the operating system.


@final
class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "name")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name: str = name
        self._descriptor = descriptor

    def number(self) -> int | None:
        """Return by what the system knows it; see `File.number`."""
        return self._descriptor

    def length(self) -> int:
        """Return how long it is."""
        return os.fstat(self._descriptor).st_size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the file."""
        return os.preadv(self._descriptor, [buffer], offset)

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other; return how much was written, which may be less."""
        return os.pwritev(self._descriptor, buffers, offset)

    def set_length(self, length: int) -> None:
        """Cut it off, or let it go on with zeros that take no room."""
        os.ftruncate(self._descriptor, length)

    def sync(self, *, metadata: bool) -> None:
        """Return when what was written is on the disk, and the file's own facts, if asked for."""
        if metadata or not hasattr(os, "fdatasync"):
            os.fsync(self._descriptor)
        else:
            os.fdatasync(self._descriptor)

    def try_lock(self) -> bool | None:
        """Lock it against others until it is closed; return whether it is, None if none can be."""
        if sys.platform == "win32":
            return None
        import fcntl  # noqa: PLC0415 - not there on every system

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A file system that knows no locks.
            return None
        return True

    def close(self) -> None:
        """Close it; closing twice is closing once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@final
class OsDirectory:
    """A directory of the operating system, made if it is not there.

    Args:
        path: Of the directory.
        create: Whether to make it.

    Raises:
        FileNotFoundError: It is not there, and was not to be made.
        NotADirectoryError: Something else has its name.
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
        """Return what messages call it."""
        return str(self._path)

    def names(self) -> list[str]:
        """Return the names of the files in it, in no order."""
        with os.scandir(self._path) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def other_kinds(self) -> dict[str, str]:
        """Return what is no plain file, by name; see `Directory.other_kinds`."""
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
        """Give a file another name, in place of a file that had it."""
        (self._path / check_name(old)).replace(self._path / check_name(new))

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to, in milliseconds since 1970."""
        return (self._path / check_name(name)).lstat().st_mtime_ns // 1_000_000

    def sync(self) -> None:
        """Return when the names of the files are on the disk."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> OsFile:
        # A link could lead anywhere: whoever may write here must not write elsewhere through us.
        # And a named pipe is opened at once, to be refused then: else its other end is waited for.
        for flag in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
            flags |= getattr(os, flag, 0)
        path = self._path / check_name(name)
        try:
            descriptor = os.open(path, flags, MODE)
        except OSError as error:
            if error.errno in NO_FILE:
                raise not_plain(name, kind_of_file(path.lstat().st_mode)) from error
            raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise not_plain(name, kind_of_file(mode))
        return OsFile(name, descriptor)


def close_quietly(file: File) -> None:
    """Close a file on the way out of an error, which is the one to be told."""
    with contextlib.suppress(OSError):
        file.close()
