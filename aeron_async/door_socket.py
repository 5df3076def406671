"""The socket of a door: a Unix socket with a file that only its own user can open.

Invariant: the file has mode 0600 before it has a name, its folder can be written by nobody else,
and nobody can connect before both are known to be so. A file that is no socket is never removed,
nor is a socket at which a process listens.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from aeron_async.errors import ConfigurationError, DoorInUseError
from aeron_async.text import SHORT, printable

__all__ = [
    "DoorSocket",
    "check_path",
    "close_in_child",
    "is_own",
    "peer_uid",
    "refusal_of",
]

PATH_MAX: Final = 107
"""Bytes of the path of a Unix socket that the system takes."""
MODE: Final = 0o600
WRITABLE_BY_OTHERS: Final = 0o022
OPEN_TO_OTHERS: Final = 0o077
LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BACKLOG: Final = 64
"""Clients that the system lets wait: it tells one more that it may not even try."""
ROOT: Final = 0

_CREDENTIALS: Final = struct.Struct("3i")


def check_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a door as a text.

    Raises:
        ConfigurationError: No socket of a file system can have it.
    """
    name = os.fspath(path)
    if name.startswith(("\0", "@")):
        message = (
            f"the door {printable(name, SHORT)!r} has an abstract name, which anybody on this "
            "machine may use: name a path in a folder of your own"
        )
        raise ConfigurationError(message)
    length = len(os.fsencode(name))
    if length > PATH_MAX:
        message = (
            f"the path of the door has {length} bytes, and the system takes {PATH_MAX}: choose a "
            f"shorter one than {printable(name)}"
        )
        raise ConfigurationError(message)
    if "\0" in name or os.path.split(name)[1] in {"", ".", ".."}:
        message = f"the door needs the path of a file, got {printable(name, SHORT)!r}"
        raise ConfigurationError(message)
    return name


@final
class DoorSocket:
    """A Unix socket that listens at a path, whose file goes with it.

    Raises:
        ConfigurationError: Others may write the folder, or what is at the path is no socket.
        DoorInUseError: A process listens at the path.
    """

    def __init__(self, path: str) -> None:
        folder, self._name = os.path.split(path)
        self._path = path
        try:
            self._folder = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            message = (
                f"the folder of the door {printable(path)} cannot be opened: {error.strerror}; "
                "make it with mode 0700"
            )
            raise ConfigurationError(message) from None
        try:
            self._check_folder()
            self._has_file = False
            self.listener, self._identity = self._listen_alone()
        except BaseException:
            os.close(self._folder)
            raise

    def _check_folder(self) -> None:
        status = os.fstat(self._folder)
        if not is_own(status.st_uid) or status.st_mode & WRITABLE_BY_OTHERS:
            message = (
                f"others may write the folder of the door {printable(self._path)}: it belongs to "
                f"user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}; use a "
                "folder of your own with mode 0700"
            )
            raise ConfigurationError(message)

    def _listen_alone(self) -> tuple[socket.socket, tuple[int, int]]:
        """Listen, while no other process removes an old socket of this path.

        The lock is a file of its own: a process that may read the folder can lock that.
        """
        shown = printable(self._path)
        lock_name = f".{self._name}.lock"
        try:
            lock = os.open(lock_name, LOCK_FLAGS, MODE, dir_fd=self._folder)
        except OSError as error:
            message = (
                f"the door {shown} needs the file {printable(lock_name)} in its folder while it "
                f"opens, and that cannot be opened: {error.strerror}"
            )
            raise ConfigurationError(message) from None
        try:
            self._check_lock(lock, lock_name)
            try:
                return self._listen()
            except OSError as error:
                message = f"the door {shown} cannot be opened: {error.strerror}"
                raise ConfigurationError(message) from None
            finally:
                # Before it is unlocked: who has opened this file then sees that it is gone.
                with suppress(OSError):
                    os.unlink(lock_name, dir_fd=self._folder)
        finally:
            os.close(lock)

    def _check_lock(self, lock: int, name: str) -> None:
        """Lock a file, if only this user can open it and it still has its name."""
        status = os.fstat(lock)
        is_file = stat.S_ISREG(status.st_mode)
        if not is_file or not is_own(status.st_uid) or status.st_mode & OPEN_TO_OTHERS:
            message = (
                f"others may lock the file {printable(name)} in the folder of the door "
                f"{printable(self._path)}: it belongs to user {status.st_uid} and has mode "
                f"{stat.S_IMODE(status.st_mode):04o}; remove it"
            )
            raise ConfigurationError(message)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_named = os.path.samestat(status, self._status(name))
        except OSError:
            is_named = False
        if not is_named:
            message = (
                f"another process opens the door {printable(self._path)} just now: choose another "
                "path, or try again"
            )
            raise DoorInUseError(message)

    def _listen(self) -> tuple[socket.socket, tuple[int, int]]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Before it has a name: the file then never has another mode, whatever the umask, which
            # belongs to all threads of the process.
            os.fchmod(listener.fileno(), MODE)
            try:
                listener.bind(self._path)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                self._remove_stale()
                listener.bind(self._path)
            self._has_file = True
            # A umask may have taken rights away.
            os.chmod(self._name, MODE, dir_fd=self._folder)
            status = self._status(self._name)
            # Nobody can connect before this.
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            if self._has_file:
                with suppress(OSError):
                    os.unlink(self._name, dir_fd=self._folder)
            raise
        return listener, (status.st_dev, status.st_ino)

    def _status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._folder, follow_symlinks=False)

    def _remove_stale(self) -> None:
        """Remove the socket of a process that has ended, and nothing else."""
        shown = printable(self._path)
        if not stat.S_ISSOCK(self._status(self._name).st_mode):
            message = (
                f"{shown} is no socket, and stays as it is: remove it, or choose another path for "
                "the door"
            )
            raise ConfigurationError(message)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            try:
                probe.connect(self._path)
            except ConnectionRefusedError:
                os.unlink(self._name, dir_fd=self._folder)
                return
            except BlockingIOError:
                pass
        message = f"another process has opened the door {shown}: choose another path"
        raise DoorInUseError(message)

    def remove(self) -> None:
        """Remove the file, if it is still that of this socket; nobody finds the door then.

        A second call does nothing: the system may have given a new file the number of this one.
        """
        if not self._has_file:
            return
        self._has_file = False
        with suppress(OSError):
            status = self._status(self._name)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self._name, dir_fd=self._folder)

    def close(self) -> None:
        """Remove the file and stop listening."""
        self.remove()
        self.listener.close()
        os.close(self._folder)

    def on_forked(self) -> None:
        """Listen no more, and leave the file to the parent; called in a child process."""
        self._has_file = False
        close_in_child(self.listener.fileno())
        close_in_child(self._folder)


def close_in_child(descriptor: int) -> None:
    """Give up what a descriptor stands for, in a child process that is forked.

    The number stays in use: what holds it may close it later, and must then not close another file.
    """
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # The number may be used again, but a socket that stays open would hold up the parent.
        with suppress(OSError):
            os.close(descriptor)
        return
    try:
        os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


def peer_uid(sock: socket.socket) -> int:
    """Return the user of the process at the other end, as it was when that connected."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def refusal_of(path: str, error: OSError) -> str:
    """Return why a client could not connect to a door, and what to change."""
    shown = printable(path)
    if isinstance(error, FileNotFoundError):
        return f"there is no door {shown}: start the program that opens it"
    if isinstance(error, PermissionError):
        return f"this user may not use the door {shown}: run as the user of its process"
    if not isinstance(error, ConnectionRefusedError):
        return f"the door {shown} cannot be used: {error.strerror}"
    # The system refuses in the same way a socket without a process, and what is no socket.
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # It has just gone.
        mode = stat.S_IFSOCK
    if stat.S_ISDIR(mode):
        return (
            f"{shown} is a directory, and a door is a socket: name the socket in it, or give an "
            "Aeron directory as such (--directory)"
        )
    if not stat.S_ISSOCK(mode):
        return f"{shown} is no socket, and so no door: name the socket that the program opens"
    return f"nobody listens at the door {shown}: its process has ended"


def is_own(uid: int) -> bool:
    """Return whether a user is the one of this process, or root."""
    return uid in {os.geteuid(), ROOT}
