"""Files in memory that fail as disks do: a directory of an archive to be crashed.

Reads and writes may be short, any call may fail, the disk may be full, the process may stop in the
middle of a call; and when the machine goes down, whatever was not waited for may be lost, page by
page and name by name. Everything follows from a seed.
"""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.disk.files import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["Faults", "FaultyDirectory", "FaultyFile", "ProcessStopped"]

PAGE: Final = 4_096
SECTOR: Final = 512


class ProcessStopped(BaseException):
    """The process was killed in the middle of a call; nothing of it runs on."""


@attrs.frozen(kw_only=True)
class Faults:
    """How often what goes wrong, from 0 to 1.

    Attributes:
        short_read: A read gives less than was asked for.
        short_write: A write takes less than it was given.
        read_error: A read fails.
        write_error: A write, or a change of length, fails.
        sync_error: Waiting for the disk fails.
        open_error: A file cannot be opened, made, removed or renamed.
        capacity: Bytes that all files together have room for, in pages that were written.
    """

    short_read: float = 0.0
    short_write: float = 0.0
    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    open_error: float = 0.0
    capacity: int | None = None


NO_FAULTS: Final = Faults()


@final
class Content:
    """What a file holds, whatever its name: now, and what of it is on the disk."""

    __slots__ = ("data", "dirty", "length_synced", "lock", "modified_ms", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced: dict[int, bytes] = {}
        self.dirty: set[int] = set()
        self.length_synced = 0
        self.lock: FaultyFile | None = None
        self.modified_ms = 0

    def page(self, number: int) -> bytes:
        return bytes(self.data[number * PAGE : (number + 1) * PAGE])

    def put(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        if not view:
            return
        end = offset + len(view)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[offset:end] = view
        self.dirty.update(range(offset // PAGE, (end - 1) // PAGE + 1))

    def resize(self, length: int) -> None:
        old = len(self.data)
        if length < old:
            del self.data[length:]
            self.dirty.update(range(length // PAGE, (old - 1) // PAGE + 1))
        else:
            self.data.extend(bytes(length - old))

    def sync(self) -> None:
        for number in self.dirty:
            self.synced[number] = self.page(number)
        self.dirty.clear()
        self.length_synced = len(self.data)

    def lose(self, draw: random.Random) -> None:
        """Let each page that was not waited for be as it is, or as it was."""
        length = draw.choice((self.length_synced, len(self.data)))
        survivor = bytearray(length)
        touched = self.dirty | set(self.synced)
        for number in touched:
            is_old = number in self.dirty and draw.random() < 1 / 2
            page = self.synced.get(number, b"") if is_old else self.page(number)
            page = page[: max(0, length - number * PAGE)]
            survivor[number * PAGE : number * PAGE + len(page)] = page
        self.data = survivor
        self.dirty = touched
        self.sync()


@final
class FaultyFile:
    """An open file of a `FaultyDirectory`; see `File`."""

    def __init__(self, directory: FaultyDirectory, name: str, content: Content) -> None:
        self._directory = directory
        self._life = directory.life
        self._content: Content | None = content
        self.name = name

    def number(self) -> None:
        """Return None: the system knows nothing of it."""

    def length(self) -> int:
        """Return how long it is."""
        return len(self._opened().data)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the file."""
        directory, content = self._directory, self._opened()
        directory.step()
        directory.fail(directory.faults.read_error, errno.EIO, self.name)
        count = max(0, min(len(buffer), len(content.data) - offset))
        if count > 1 and directory.draws(directory.faults.short_read):
            count = directory.random.randrange(1, count)
        buffer[:count] = content.data[offset : offset + count]
        return count

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other; return how much was written, which may be less."""
        directory, content = self._directory, self._opened()
        data = b"".join(bytes(each) for each in buffers)
        if directory.stops_now():
            content.put(offset, data[: directory.cut(offset, len(data))])
            directory.stop()
        directory.fail(directory.faults.write_error, errno.EIO, self.name)
        count = directory.room_for(content, offset, len(data))
        if data and not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
        if directory.draws(directory.faults.short_write):
            count = directory.cut(offset, count) or count
        content.put(offset, data[:count])
        content.modified_ms = directory.now_ms
        return count

    def set_length(self, length: int) -> None:
        """Cut it off, or let it go on with zeros that take no room."""
        content = self._opened()
        self._directory.step()
        self._directory.fail(self._directory.faults.write_error, errno.EIO, self.name)
        content.resize(length)

    def sync(self, *, metadata: bool) -> None:
        """Return when what was written is on the disk; the length is part of that."""
        del metadata
        content = self._opened()
        self._directory.step()
        self._directory.fail(self._directory.faults.sync_error, errno.EIO, self.name)
        content.sync()

    def try_lock(self) -> bool | None:
        """Lock it against others until it is closed; return whether it is."""
        content = self._opened()
        if content.lock in (None, self):
            content.lock = self
        return content.lock is self

    def close(self) -> None:
        """Close it; closing twice is closing once."""
        content, self._content = self._content, None
        if content is not None and content.lock is self:
            content.lock = None

    def _opened(self) -> Content:
        if self._content is None or self._life != self._directory.life:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)
        return self._content


@final
class FaultyDirectory:
    """A directory in memory; see `Directory`.

    Args:
        seed: All that happens to it follows from that.
        faults: What goes wrong; may be changed at any time.

    Attributes:
        life: How often it was killed or crashed; files that were open then are closed.
        steps: Calls so far that touched the disk.
        now_ms: The time that files are written at, in milliseconds since 1970.
        stop_at: The call, counted like `steps`, in whose middle the process stops.
    """

    path = "memory"

    def __init__(self, seed: int = 0, faults: Faults = NO_FAULTS) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.life = 0
        self.now_ms = 0
        self.steps = 0
        self.stop_at: int | None = None
        self._names: dict[str, Content] = {}
        self._synced: dict[str, Content] = {}
        # What happened to names since that: (name, what it stands for now, the name it had).
        self._changes: list[tuple[str, Content | None, str | None]] = []

    def names(self) -> list[str]:
        """Return the names of the files in it, in no order."""
        names = list(self._names)
        self.random.shuffle(names)
        return names

    def other_kinds(self) -> dict[str, str]:
        """Return nothing: all that is in it are plain files."""
        return {}

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> FaultyFile:
        """Open a file for reading and writing; see `Directory.open`."""
        content = self._names.get(check_name(name))
        if content is not None and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        if content is None and not (create or exclusive):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.step()
        self.fail(self.faults.open_error, errno.EIO, name)
        if content is None:
            content = Content()
            self._change(name, content)
        return FaultyFile(self, name, content)

    def open_to_read(self, name: str) -> FaultyFile:
        """Open a file for reading."""
        return self.open(name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        if check_name(name) not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.step()
        self.fail(self.faults.open_error, errno.EIO, name)
        self._change(name, None)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of a file that had it."""
        self.step()
        self.fail(self.faults.open_error, errno.EIO, old)
        self._change(check_name(new), self._names[check_name(old)], old)

    def modified_ms(self, name: str) -> int:
        """Return when a file was last written to, in milliseconds since 1970."""
        return self._names[name].modified_ms

    def sync(self) -> None:
        """Return when the names of the files are on the disk."""
        self.step()
        self.fail(self.faults.sync_error, errno.EIO, self.path)
        self._synced = dict(self._names)
        self._changes.clear()

    def kill(self) -> None:
        """Let the process die: whatever was written is there."""
        self.life += 1
        self.stop_at = None
        for content in self._names.values():
            content.lock = None

    def crash(self) -> None:
        """Let the machine go down: what was not waited for may be lost."""
        self.kill()
        names = dict(self._synced)
        for name, content, old in self._changes:
            if self.draws(1 / 2):
                apply(names, name, content, old)
        for content in {id(each): each for each in names.values()}.values():
            content.lose(self.random)
        self._names = names
        self._synced = dict(names)
        self._changes.clear()

    # What its files ask.

    def draws(self, probability: float) -> bool:
        """Return whether something that rarely happens does now."""
        return probability > 0 and self.random.random() < probability

    def stops_now(self) -> bool:
        """Count a call, and return whether the process stops in its middle."""
        self.steps += 1
        return self.stop_at is not None and self.steps >= self.stop_at

    def stop(self) -> None:
        """Stop the process.

        Raises:
            ProcessStopped: Always.
        """
        raise ProcessStopped

    def step(self) -> None:
        """Count a call, and stop before or behind it if it is time."""
        if self.stops_now():
            self.stop()

    def fail(self, probability: float, number: int, name: str) -> None:
        """Fail now and then.

        Raises:
            OSError: It is now.
        """
        if self.draws(probability):
            raise OSError(number, os.strerror(number), name)

    def cut(self, offset: int, count: int) -> int:
        """Return how much of a write is done if it is cut off; no sector is ever divided."""
        end = offset + self.random.randrange(count + 1)
        return max(0, (end & -SECTOR) - offset) if end < offset + count else count

    def room_for(self, content: Content, offset: int, count: int) -> int:
        """Return how much of a write there is room for."""
        capacity = self.faults.capacity
        if capacity is None or not count:
            return count
        taken = sum(len(each.dirty | set(each.synced)) for each in self._names.values())
        free = capacity // PAGE - taken
        mine = content.dirty | set(content.synced)
        end = offset
        while end < offset + count:
            if end // PAGE not in mine:
                free -= 1
            if free < 0:
                break
            end = min((end // PAGE + 1) * PAGE, offset + count)
        return end - offset

    def _change(self, name: str, content: Content | None, old: str | None = None) -> None:
        apply(self._names, name, content, old)
        self._changes.append((name, content, old))


def apply(names: dict[str, Content], name: str, content: Content | None, old: str | None) -> None:
    """Let a change happen to names."""
    if old is not None and names.pop(old, None) is None:
        # Its making was lost, and so it has no other name either.
        return
    if content is None:
        names.pop(name, None)
    else:
        names[name] = content
