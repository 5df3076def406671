"""The mark file: says who has an archive's directory, and when it was last alive.

Whoever has the directory holds a lock on the file too, which the system takes back when a process
dies; so two that start at once are never both let in, and one of ours that died is known to be dead
at once. An official archive holds no lock: it is dead when it has not been heard for 10 s.

Differs: Aeron waits 10 s after any archive that died; here not after one of ours, on this machine.

Source: Aeron `ArchiveMarkFile`; Agrona `MarkFile`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

import attrs

from aeron_async.archive.disk.boot import current_boot
from aeron_async.archive.disk.files import (
    OsDirectory,
    close_quietly,
    read_exactly,
    write_all,
)
from aeron_async.archive.disk.mark_layout import (
    ACTIVITY_AT,
    CLOSED,
    HEADER_LENGTH,
    MAJOR,
    NO_ARCHIVE_ID,
    SBE_LENGTH,
    SIGNATURE_AT,
    STARTING,
    VERSION,
    VERSION_AT,
    MarkFileHeader,
    MarkIdentity,
    Signature,
    chosen_archive_id,
    decode_header,
    encode_header,
)
from aeron_async.errors import ArchiveBusyError, ArchiveFileError

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import Directory, File

__all__ = [
    "LINK_NAME",
    "LIVENESS_TIMEOUT_MS",
    "MARK_FILE_NAME",
    "MarkFile",
    "is_whole",
    "mark_directory_of",
    "read_mark_file",
]

MARK_FILE_NAME: Final = "archive-mark.dat"
LINK_NAME: Final = "archive-mark.lnk"
"""Holds the path of the directory that the mark file is in, where that is another."""
LIVENESS_TIMEOUT_MS: Final = 10_000
"""Without a sign of life for so long, an archive is dead."""
LONGEST_LINK: Final = 4_096


@final
class MarkFile:
    """Holds the directory of an archive for as long as it is open; every call blocks.

    Attributes:
        archive_id: What was given, else what the file said before, else a number drawn now.
        previous: What the file said before; None where there was none.
        ends_are_whole: Whether no frame can be torn of what was recorded here last: it was one of
            ours that did, and the system has not gone down since, or it waited for the disk.
    """

    def __init__(
        self,
        file: File,
        link: File | None,
        *,
        previous: MarkFileHeader | None,
        signature: Signature,
        ends_are_whole: bool,
    ) -> None:
        self._file: File | None = file
        self._link = link
        self._signature = signature
        self.archive_id = NO_ARCHIVE_ID
        self.previous = previous
        self.ends_are_whole = ends_are_whole

    @classmethod
    def open(
        cls,
        directory: Directory,
        identity: MarkIdentity,
        *,
        now_ms: int,
        mark_directory: Directory | None = None,
        sync_level: int = 0,
        boot_id: int | None = None,
    ) -> Self:
        """Take the directory, or refuse to; nothing says yet that the archive is ready.

        Args:
            directory: The archive's.
            identity: What the file says of the archive.
            now_ms: The time, in milliseconds since 1970.
            mark_directory: Where the file is to be; the archive's directory when not given, or
                where the link in that leads.
            sync_level: Of what will be recorded; see `Catalog`.
            boot_id: Of the running system; asked for when not given.

        Raises:
            ArchiveBusyError: Another archive has it, or is starting.
            ArchiveFileError: What is there is no mark file, or one of a version that is not known.
            ConfigurationError: The channels are too long for the file.
            OSError: The disk failed.
        """
        boot_id = current_boot() if boot_id is None else boot_id
        signature = Signature(now_ms, boot_id, sync_level)
        # Refused before anything is made, if it is too long.
        header = encode_header(identity, start_timestamp_ms=now_ms, activity_ms=now_ms)
        target = mark_directory_of(directory) if mark_directory is None else mark_directory
        link, is_last = None, False
        if target.path != directory.path:
            link, is_last = take_link(directory, target, now_ms=now_ms)
        try:
            file, previous = take(target, now_ms=now_ms, boot_id=boot_id)
        except BaseException:
            if link is not None:
                close_quietly(link)
            raise
        mark = cls(file, link, previous=previous, signature=signature, ends_are_whole=False)
        mark.archive_id = chosen_archive_id(identity.archive_id, previous)
        identity = attrs.evolve(identity, archive_id=mark.archive_id)
        header = encode_header(identity, start_timestamp_ms=now_ms, activity_ms=now_ms)
        try:
            if target.path == directory.path:
                is_last = refuse_linked(directory, now_ms=now_ms)
            # Another mark file was used last: what this one says is old.
            mark.ends_are_whole = is_last and is_whole(previous, boot_id)
            # What was found stays true until recovery is over: it may fail, and be tried again.
            unready = signature if mark.ends_are_whole else attrs.evolve(signature, sync_level=-1)
            mark._write_header(header, unready)
        except BaseException:
            close_quietly(file)
            if link is not None:
                close_quietly(link)
            raise
        return mark

    def signal_ready(self, now_ms: int) -> None:
        """Say that the archive is there: recovery is over, and requests are taken.

        Raises:
            ArchiveBusyError: Another archive took the file meanwhile, without minding the lock.
            OSError: The disk failed.
        """
        file = self._opened()
        found = read_header(file)
        if found is None or found.start_timestamp_ms != self._signature.start_timestamp_ms:
            message = f"{file.name}: another archive has started on this directory meanwhile"
            raise ArchiveBusyError(message)
        write_all(file, [self._signature.encode()], SIGNATURE_AT)
        self.refresh(now_ms)
        write_all(file, [VERSION.to_bytes(4, "little")], SBE_LENGTH + VERSION_AT)
        file.sync(metadata=True)

    def refresh(self, now_ms: int) -> None:
        """Say that the archive is alive; to be done once a second."""
        data = now_ms.to_bytes(8, "little", signed=True)
        write_all(self._opened(), [data], SBE_LENGTH + ACTIVITY_AT)

    def close(self) -> None:
        """Say that the archive has ended in order, and let go; closing twice is closing once.

        Also where it never was ready: an official archive takes no file without a version.
        """
        file = self._file
        if file is None:
            return
        try:
            self.refresh(CLOSED)
            write_all(file, [VERSION.to_bytes(4, "little")], SBE_LENGTH + VERSION_AT)
            file.sync(metadata=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without a word, as a process that dies does."""
        file, self._file = self._file, None
        link, self._link = self._link, None
        for each in (file, link):
            if each is not None:
                each.close()

    def _opened(self) -> File:
        if self._file is None:
            message = "the mark file was closed: the directory may be another archive's by now"
            raise ArchiveBusyError(message)
        return self._file

    def _write_header(self, header: bytearray, signature: Signature) -> None:
        file = self._opened()
        data = signature.encode()
        header[SIGNATURE_AT : SIGNATURE_AT + len(data)] = data
        old = self.previous
        if old is not None and old.version and old.offset:
            # If we die before we are ready, an official archive can still take it.
            version = VERSION.to_bytes(4, "little")
            header[SBE_LENGTH + VERSION_AT : SBE_LENGTH + VERSION_AT + 4] = version
        length = HEADER_LENGTH + MarkIdentity.error_buffer_length
        if old is None or old.header_length != HEADER_LENGTH or file.length() != length:
            # Where the error log was none can be any more: an empty one is all zeros.
            file.set_length(0)
        write_all(file, [header], 0)
        file.set_length(length)
        file.sync(metadata=True)


def read_mark_file(directory: Directory) -> MarkFileHeader | None:
    """Return what the mark file of an archive says; None where there is none.

    Raises:
        ArchiveFileError: What is there is no mark file.
        OSError: The disk failed.
    """
    try:
        file = mark_directory_of(directory).open_to_read(MARK_FILE_NAME)
    except FileNotFoundError:
        return None
    try:
        return read_header(file)
    finally:
        file.close()


def mark_directory_of(directory: Directory) -> Directory:
    """Return where the mark file of an archive is: there, or where its link leads.

    Raises:
        ArchiveFileError: The link is none.
        FileNotFoundError: It leads nowhere.
    """
    path = read_link(directory)
    return directory if path is None else OsDirectory(path, create=False)


def read_link(directory: Directory) -> str | None:
    """Return where the link of an archive's directory leads; None where there is none."""
    try:
        file = directory.open_to_read(LINK_NAME)
    except FileNotFoundError:
        return None
    try:
        buffer = bytearray(LONGEST_LINK)
        data = bytes(buffer[: read_exactly(file, memoryview(buffer), 0)])
    finally:
        file.close()
    path = data.decode("utf-8", "replace").strip("\0\r\n ")
    if not path:
        # One that was being written when its archive died.
        return None
    if "\0" in path or len(data) == LONGEST_LINK:
        message = f"{path[:40]!r}... is no path of a directory"
        raise ArchiveFileError(message, file=LINK_NAME, offset=0)
    return path


def read_header(file: File) -> MarkFileHeader | None:
    """Return what a mark file says; None if it is empty."""
    buffer = bytearray(HEADER_LENGTH)
    count = read_exactly(file, memoryview(buffer), 0)
    return decode_header(buffer[:count], file=file.name) if count else None


def take(directory: Directory, *, now_ms: int, boot_id: int) -> tuple[File, MarkFileHeader | None]:
    """Return the mark file, locked, and what it says; refuse if another archive has it."""
    file = directory.open(MARK_FILE_NAME, create=True)
    try:
        is_locked = file.try_lock()
        previous = read_header(file)
        if is_locked is False:
            refuse(directory, previous, "holds it now")
        if previous is not None:
            check_dead(directory, previous, now_ms=now_ms, boot_id=boot_id, is_locked=is_locked)
    except BaseException:
        close_quietly(file)
        raise
    return file, previous


def take_link(directory: Directory, target: Directory, *, now_ms: int) -> tuple[File, bool]:
    """Write a link to where the mark file is, and hold it, unless another archive lives here.

    Returns:
        The link, locked, and whether it led there before.
    """
    file = directory.open(LINK_NAME, create=True)
    is_new = False
    try:
        if file.try_lock() is False:
            refuse(directory, None, "holds it now, by a link to its own mark file")
        path = read_link(directory)
        if path != target.path:
            check_linked(path, now_ms=now_ms)
            is_new = True
            file.set_length(0)
            write_all(file, [target.path.encode()], 0)
            file.sync(metadata=True)
        # Looked for once the link is there: one that comes later will see that.
        check_mark_file(directory, now_ms=now_ms)
    except BaseException:
        close_quietly(file)
        if is_new:
            directory.remove(LINK_NAME)
        raise
    return file, not is_new


def refuse_linked(directory: Directory, *, now_ms: int) -> bool:
    """Refuse if an archive lives here whose mark file is elsewhere; remove the link if not.

    Returns:
        Whether there was no link.
    """
    try:
        file = directory.open(LINK_NAME)
    except FileNotFoundError:
        return True
    try:
        if file.try_lock() is False:
            refuse(directory, None, "holds it now, by a link to its own mark file")
        check_linked(read_link(directory), now_ms=now_ms)
        directory.remove(LINK_NAME)
    finally:
        file.close()
    return False


def check_linked(path: str | None, *, now_ms: int) -> None:
    """Refuse if an archive is alive whose mark file is where a link leads."""
    if path is not None and Path(path).is_dir():
        check_mark_file(OsDirectory(path, create=False), now_ms=now_ms)


def check_mark_file(directory: Directory, *, now_ms: int) -> None:
    """Refuse if an archive is alive whose mark file is in a directory."""
    if MARK_FILE_NAME in directory.names():
        close_quietly(take(directory, now_ms=now_ms, boot_id=current_boot())[0])


def check_dead(
    directory: Directory,
    header: MarkFileHeader,
    *,
    now_ms: int,
    boot_id: int,
    is_locked: bool | None,
) -> None:
    """Refuse if the archive that wrote a mark file is alive, or may be."""
    signature = header.signature
    if header.version and header.version >> 16 != MAJOR:
        message = f"a mark file of version {header.version:#x}, and its major version must be 3"
        raise ArchiveFileError(message, file=MARK_FILE_NAME, offset=header.offset)
    if header.is_ours and is_locked and signature is not None and boot_id == signature.boot_id != 0:
        # It held the lock for as long as it lived.
        return
    if header.activity_timestamp_ms == STARTING:
        refuse(directory, header, "is starting, or died while it did: remove the file if none is")
    last_ms = header.activity_timestamp_ms
    if header.is_blank:
        # A crash leaves this of a file that was being made, and so it looks while it is.
        last_ms = directory.modified_ms(MARK_FILE_NAME)
    elif not header.version:
        last_ms = max(last_ms, header.start_timestamp_ms)
    if now_ms - last_ms < LIVENESS_TIMEOUT_MS and last_ms != CLOSED:
        refuse(directory, header, f"was alive {now_ms - last_ms} ms ago, and is dead after 10 s")


def refuse(directory: Directory, header: MarkFileHeader | None, why: str) -> None:
    """Raise that another archive has a directory."""
    who = "another archive" if header is None else f"another archive, process {header.pid},"
    channel = "" if header is None else header.identity.control_channel
    act = f"use its control channel {channel}, or stop it" if channel else "stop it first"
    message = f"{directory.path}/{MARK_FILE_NAME}: {who} {why}; {act}"
    raise ArchiveBusyError(message)


def is_whole(header: MarkFileHeader | None, boot_id: int) -> bool:
    """Return whether no frame can be torn of what the archive of a mark file recorded."""
    if header is None or header.signature is None or not header.is_ours:
        return False
    level = header.signature.sync_level
    return level > 0 or (level == 0 and boot_id == header.signature.boot_id != 0)
