"""Doorbells: how processes of this package wake each other, in an Aeron directory.

A process that sleeps has a Unix datagram socket `bell-<client id>` in the directory, and a word of
shared memory, `asleep`. A process that has written something for it rings, that is, sends one byte,
but only if the word says so. No wake-up is lost:

    sleeper                                  writer
    1 reads all there is                     1 writes data, with a release store
    2 asleep := 1                            2 full fence
    3 full fence                             3 if asleep, exchanges it for 0
    4 looks again; if there is more,         4 if it was 1, sends a byte
      asleep := 0, and begins again
    5 sleeps until a byte comes

Both store, fence, then load what the other has stored. Whichever fence comes first, the other side
sees the store before it: the writer sees that the reader sleeps, or the reader sees the data.
Without the fences both can miss it, on x86 too.

The exchange makes it one byte for each sleep, however many write. A writer that dies between its
steps 3 and 4 has taken the flag without ringing; so a sleeper also looks at its words from time to
time, as official programs do.

A name of a bell is made of a client id, never read from memory as a path: a process that can write
the shared memory cannot make a process send a byte to a socket outside the directory.

Source: none; official drivers and clients do not signal each other.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.concurrent.atomic_buffer import check_shared_memory, full_fence
from aeron_async.errors import BusyError, ClosedError, ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

__all__ = ["ASLEEP_LENGTH", "BellRinger", "Doorbell", "bell_client_id", "bell_name"]

ASLEEP_LENGTH: Final = 8
"""Bytes of the word `asleep`, as of a counter's value. It should have a cache line of its own."""
AWAKE: Final = 0
ASLEEP: Final = 1
PREFIX: Final = "bell-"
NAME: Final = re.compile(rf"{PREFIX}(0|-?[1-9][0-9]{{0,18}})", re.ASCII)
CLIENT_IDS: Final = range(-(2**63), 2**63)
SOCKET_PATH_LENGTH_MAX: Final = 107
"""Longest path of a Unix socket, in bytes."""
READ_MAX: Final = 64
"""Most bytes that are read in one turn of the loop."""
GONE: Final = frozenset(
    {
        *(errno.ENOENT, errno.ECONNREFUSED, errno.EPIPE, errno.EPROTOTYPE),
        *(errno.EACCES, errno.EPERM, errno.ELOOP),
    }
)
"""Errors of sending to a bell whose owner has ended, or that is no bell."""


def bell_name(client_id: int) -> str:
    """Return the name of a client's bell in its directory.

    Raises:
        ConfigurationError: The id is no 64-bit number.
    """
    if client_id not in CLIENT_IDS:
        message = f"a client id is a 64-bit number, not {printable(client_id, SHORT)}"
        raise ConfigurationError(message)
    return f"{PREFIX}{client_id}"


def bell_client_id(name: str) -> int | None:
    """Return whose bell has this name; None if no bell can have it."""
    match = NAME.fullmatch(name)
    if match is None or int(match[1]) not in CLIENT_IDS:
        return None
    return int(match[1])


class _Directory:
    """An Aeron directory that is open, and the paths of its sockets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def socket_path(self, name: str) -> str:
        """Return a path that is short enough for a socket."""
        path = os.path.join(self._path, name)  # noqa: PTH118 - for each ring
        if len(os.fsencode(path)) <= SOCKET_PATH_LENGTH_MAX:
            return path
        return f"/proc/self/fd/{self.fd}/{name}"

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@final
class Doorbell:
    """The bell of this process: calls back on the loop when another process has rung.

    Args:
        loop: The event loop that runs the callback; of asyncio or uvloop.
        directory: The Aeron directory.
        client_id: Names the bell. One process at a time has it.
        shared: The memory of the word `asleep`, which writers find too.
        offset: Where in it the word begins: a multiple of 8.
        on_ring: Called without arguments when the bell has rung, after the word was cleared. It may
            be called without reason.

    Raises:
        BusyError: A process that has not ended has this bell.
        ConfigurationError: The compiled code is missing; the id is no 64-bit number; or something
            that is no socket has the name of the bell.
        IndexError: The word does not lie within the memory.
        OSError: The system refused.
    """

    __slots__ = (
        *("__weakref__", "_asleep_at", "_directory", "_loop", "_name", "_on_ring", "_process"),
        *("_shared", "_socket"),
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: Path,
        client_id: int,
        *,
        shared: AtomicBuffer,
        offset: int,
        on_ring: Callable[[], object],
    ) -> None:
        check_shared_memory()
        self._name = bell_name(client_id)
        self._loop = loop
        self._shared = shared
        self._asleep_at = offset
        self._on_ring = on_ring
        self._process = os.getpid()
        shared.store_release_64(offset, AWAKE)
        self._directory = _Directory(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind()
        except BaseException:
            self._socket.close()
            self._directory.close()
            raise
        try:
            loop.add_reader(self._socket.fileno(), self._on_readable)
        except BaseException:
            self._remove()
            raise

    def fall_asleep(self, has_more: Callable[[], bool]) -> bool:
        """Say that this process sleeps from now on; return False if it must not sleep.

        Args:
            has_more: Looks at everything that writers may have written since the caller last read.
                If it returns True, the word is cleared again.

        Raises:
            ClosedError: The bell is closed, or belongs to the parent of this process.
        """
        if self._socket.fileno() < 0 or self._process != os.getpid():
            message = "the bell is closed, or belongs to the parent of this process"
            raise ClosedError(message)
        self._shared.store_release_64(self._asleep_at, ASLEEP)
        full_fence()
        if has_more():
            self.wake_up()
            return False
        return True

    def wake_up(self) -> None:
        """Say that this process is awake, so that no other one rings."""
        self._shared.store_release_64(self._asleep_at, AWAKE)

    def close(self) -> None:
        """Remove the bell; a second call does nothing.

        The loop may have been closed before. A child process that is forked closes its copies of
        the descriptors only.
        """
        if self._socket.fileno() < 0:
            return
        if self._process != os.getpid():
            # A child shares the epoll instance of the loop: see `Watcher.close`.
            self._socket.close()
            self._directory.close()
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._remove()

    def _bind(self) -> None:
        path = self._directory.socket_path(self._name)
        # Before it has a name, so that it never has another mode.
        os.fchmod(self._socket.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        try:
            self._socket.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._remove_stale(path)
            self._socket.bind(path)

    def _remove_stale(self, path: str) -> None:
        """Remove the socket of a process that has ended without removing it."""
        found = os.stat(self._name, dir_fd=self._directory.fd, follow_symlinks=False)
        if not stat.S_ISSOCK(found.st_mode):
            message = f"{path} has the name of a bell, and is no socket: remove it"
            raise ConfigurationError(message)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(self._name, dir_fd=self._directory.fd)
            else:
                message = f"another process has the bell {path}: use another client id"
                raise BusyError(message)

    def _remove(self) -> None:
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._directory.fd)
        self._socket.close()
        self._directory.close()

    def _on_readable(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(READ_MAX):
                self._socket.recv(1)
        self.wake_up()
        self._on_ring()


@final
class BellRinger:
    """Rings the bells of other processes in one directory.

    Args:
        directory: The Aeron directory.

    Raises:
        OSError: The system refused.
    """

    __slots__ = ("_directory", "_socket")

    def __init__(self, directory: Path) -> None:
        self._directory = _Directory(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def ring_if_asleep(self, client_id: int, *, shared: AtomicBuffer, offset: int) -> bool:
        """Ring if the owner of the bell sleeps; to be called after data was stored for it.

        Returns:
            False if the owner of the bell has ended, or has none; True otherwise.

        Raises:
            ConfigurationError: The id is no 64-bit number.
        """
        full_fence()
        if shared.load_acquire_64(offset) != ASLEEP:
            return True
        if shared.exchange_64(offset, AWAKE) != ASLEEP:
            return True
        return self.ring(client_id)

    def ring(self, client_id: int) -> bool:
        """Ring, whether the owner of the bell sleeps or not; see `ring_if_asleep`."""
        path = self._directory.socket_path(bell_name(client_id))
        try:
            self._socket.sendto(b"!", path)
        except BlockingIOError:
            # Its queue is full: it has been rung.
            return True
        except OSError as error:
            if error.errno in GONE:
                return False
            raise
        return True

    def close(self) -> None:
        """Close the descriptors; a second call does nothing."""
        self._socket.close()
        self._directory.close()
