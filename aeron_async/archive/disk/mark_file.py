"""The mark file: which archive holds a directory, and when it was last alive.

Layout, little endian: an 8-byte message header (block length 128, template 200, schema 100, version
2), a block of 128 bytes of numbers, four strings, each after its length in 32 bits, and zeros up to
8192, where a log of errors begins. Files from before Aeron 1.47 begin with the block.

The last 32 bytes of the block, which the official archive does not change, hold our `Signature`. It
repeats the start timestamp of the archive that wrote it. If the header has another start timestamp,
another archive has started since.

An open `MarkFile` also holds a lock on the file, which the operating system releases when the
process dies. So of two archives that start at once only one gets the directory, and one of ours
that died is known to be dead at once. An official archive holds no lock: it counts as dead when it
has shown no activity for 10 s.

Differs: Aeron waits 10 s after any archive that died; here not after one of ours on the same
machine.

Source: Aeron `aeron-archive-mark-codecs.xml`, `ArchiveMarkFile`; Agrona `MarkFile`.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar, final

import attrs

from aeron_async.archive.disk.files import OsDirectory, close_quietly, read_exactly, write_all
from aeron_async.errors import ArchiveBusyError, ArchiveFileError, ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aeron_async.archive.disk.files import Directory, File, ReadableDirectory, ReadableFile

    Found = TypeVar("Found", bound=ReadableDirectory)

__all__ = [
    "ACTIVITY_AT",
    "CLOSED",
    "HEADER_LENGTH",
    "LINK_NAME",
    "LIVENESS_TIMEOUT_MS",
    "MAJOR",
    "MARK_FILE_NAME",
    "NO_ARCHIVE_ID",
    "SBE_LENGTH",
    "SIGNATURE_AT",
    "STARTING",
    "VERSION",
    "VERSION_AT",
    "MarkFile",
    "MarkFileHeader",
    "MarkIdentity",
    "Signature",
    "are_ends_whole",
    "chosen_archive_id",
    "current_boot",
    "decode_header",
    "encode_header",
    "is_whole",
    "mark_directory_of",
    "read_mark_file",
]

# The boot of the operating system.

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def current_boot() -> int:
    """Return a number that identifies this boot of the system; 0 if the system has none."""
    try:
        text = BOOT_ID.read_text()
    except OSError:
        return 0
    return int(text.replace("-", "")[:15], 16)


# Layout.

HEADER_LENGTH: Final = 8_192
SBE: Final = Struct("<HHHH")
SBE_LENGTH: Final = 8
BLOCK: Final = Struct("<i4xqqqiiiii4xq")
BLOCK_LENGTH: Final = 128
TEMPLATE_ID: Final = 200
SCHEMA_ID: Final = 100
SCHEMA_VERSION: Final = 2
VERSION_AT: Final = 0
ACTIVITY_AT: Final = 8
MAJOR: Final = 3
VERSION: Final = 0x00030100
NO_ARCHIVE_ID: Final = -1
CLOSED: Final = -1
"""Activity timestamp of an archive that was closed in order."""
STARTING: Final = (1 << 63) - 1
"""Activity timestamp while an official archive takes over an existing file."""
SIGNATURE: Final = Struct("<8sqqq")
# Within one disk sector with the header that it signs: both are written, or neither.
SIGNATURE_AT: Final = SBE_LENGTH + BLOCK_LENGTH - SIGNATURE.size
MAGIC: Final = b"aeron_as"
STRING_LENGTH: Final = Struct("<I")


@attrs.frozen(kw_only=True)
class MarkIdentity:
    """What a mark file says about its archive.

    Attributes:
        archive_id: Id of the archive; `NO_ARCHIVE_ID` to keep that of the file, or draw one.
        control_stream_id: Stream of requests from other hosts.
        local_control_stream_id: Stream of requests from this host.
        events_stream_id: Stream of recording events.
        control_channel: Channel of requests from other hosts; empty for none.
        local_control_channel: Channel of requests from this host.
        events_channel: Channel of recording events; empty for none.
        aeron_directory: Directory of the media driver; empty for a driver in the process.
        pid: Process id of the archive.
    """

    error_buffer_length: ClassVar[int] = 1 << 20

    archive_id: int = NO_ARCHIVE_ID
    control_stream_id: int = 10
    local_control_stream_id: int = 10
    events_stream_id: int = 30
    control_channel: str = ""
    local_control_channel: str = ""
    events_channel: str = ""
    aeron_directory: str = ""
    pid: int = attrs.field(factory=os.getpid)


@final
@attrs.frozen
class Signature:
    """Signature of our archives, at the end of the block.

    Attributes:
        start_timestamp_ms: When the archive started, as in the header.
        boot_id: Boot of the system it ran in; 0 if unknown.
        sync_level: Sync level it recorded at; -1 until recovery has checked what an earlier archive
            left.
    """

    start_timestamp_ms: int
    boot_id: int
    sync_level: int

    def encode(self) -> bytes:
        """Return the bytes of the signature."""
        return SIGNATURE.pack(MAGIC, self.start_timestamp_ms, self.boot_id, self.sync_level)


@attrs.frozen(kw_only=True)
class MarkFileHeader:
    """The content of a mark file's header.

    Attributes:
        version: Version of the format; 0 while the archive is starting.
        activity_timestamp_ms: When the archive was last alive; -1 if it was closed in order.
        start_timestamp_ms: When the archive started.
        header_length: Where the error log begins, in bytes.
        error_buffer_length: Length of the error log, in bytes.
        offset: Where the block begins: 8, or 0 in old files.
        signature: Signature of the last archive of ours, if there was one.
    """

    version: int
    activity_timestamp_ms: int
    start_timestamp_ms: int
    header_length: int
    error_buffer_length: int
    offset: int
    identity: MarkIdentity
    signature: Signature | None

    @property
    def pid(self) -> int:
        """Return the process id of the archive."""
        return self.identity.pid

    @property
    def is_blank(self) -> bool:
        """Return whether nothing has been written into the file."""
        times = self.activity_timestamp_ms, self.start_timestamp_ms
        return self.version == self.pid == 0 and times == (0, 0)

    @property
    def is_ours(self) -> bool:
        """Return whether one of our archives wrote the header, and no other has since."""
        signature = self.signature
        return signature is not None and signature.start_timestamp_ms == self.start_timestamp_ms


def encode_header(
    identity: MarkIdentity, *, start_timestamp_ms: int, activity_ms: int, version: int = 0
) -> bytearray:
    """Return an encoded header, without a signature.

    Raises:
        ConfigurationError: The channels are too long for it.
    """
    block = BLOCK.pack(
        version,
        activity_ms,
        start_timestamp_ms,
        identity.pid,
        identity.control_stream_id,
        identity.local_control_stream_id,
        identity.events_stream_id,
        HEADER_LENGTH,
        identity.error_buffer_length,
        identity.archive_id,
    )
    header = bytearray(SBE.pack(BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION))
    header += block + bytes(BLOCK_LENGTH - len(block))
    for text in (
        identity.control_channel,
        identity.local_control_channel,
        identity.events_channel,
        identity.aeron_directory,
    ):
        data = text.encode("ascii", "replace")
        header += STRING_LENGTH.pack(len(data)) + data
    if len(header) > HEADER_LENGTH:
        message = (
            f"the channels of the archive and the Aeron directory take {len(header)} bytes of its "
            f"mark file, which has room for {HEADER_LENGTH}: shorten them"
        )
        raise ConfigurationError(message)
    header += bytes(HEADER_LENGTH - len(header))
    return header


def decode_header(data: Buffer, *, file: str) -> MarkFileHeader:
    """Decode a header.

    Raises:
        ArchiveFileError: It is too short, or a string exceeds it.
    """
    view = memoryview(data)
    if len(view) < SBE_LENGTH + BLOCK_LENGTH:
        message = f"a mark file of {len(view)} bytes, which is too short to be one"
        raise ArchiveFileError(message, file=file, offset=0)
    block_length, template_id, schema_id, _ = SBE.unpack_from(view)
    offset = SBE_LENGTH
    if (template_id, schema_id) != (TEMPLATE_ID, SCHEMA_ID):
        offset, block_length = 0, BLOCK_LENGTH
    (
        version,
        activity_ms,
        start_ms,
        pid,
        control_stream_id,
        local_control_stream_id,
        events_stream_id,
        header_length,
        error_buffer_length,
        archive_id,
    ) = BLOCK.unpack_from(view, offset)
    texts = decode_strings(view, offset + block_length, file=file)
    magic, signed_ms, boot_id, sync_level = (
        SIGNATURE.unpack_from(view, SIGNATURE_AT) if offset else (b"", 0, 0, 0)
    )
    return MarkFileHeader(
        version=version,
        activity_timestamp_ms=activity_ms,
        start_timestamp_ms=start_ms,
        header_length=header_length,
        error_buffer_length=error_buffer_length,
        offset=offset,
        identity=MarkIdentity(
            archive_id=archive_id,
            control_stream_id=control_stream_id,
            local_control_stream_id=local_control_stream_id,
            events_stream_id=events_stream_id,
            control_channel=texts[0],
            local_control_channel=texts[1],
            events_channel=texts[2],
            aeron_directory=texts[3],
            pid=pid,
        ),
        signature=Signature(signed_ms, boot_id, sync_level) if magic == MAGIC else None,
    )


def decode_strings(view: memoryview, at: int, *, file: str) -> list[str]:
    """Decode the four strings of a header.

    Raises:
        ArchiveFileError: A string exceeds the header.
    """
    texts = []
    for _ in range(4):
        start = at + STRING_LENGTH.size
        length = STRING_LENGTH.unpack_from(view, at)[0] if start <= len(view) else len(view)
        if start + length > len(view):
            message = f"a string of {length} bytes extends beyond the header of {len(view)}"
            raise ArchiveFileError(message, file=file, offset=min(at, len(view)))
        texts.append(str(view[start : start + length], "ascii", "replace"))
        at = start + length
    return texts


def chosen_archive_id(given: int, previous: MarkFileHeader | None) -> int:
    """Return an archive id: the given one, else that of the mark file, else a new one.

    Differs: Aeron uses the id of the archive's client, which changes with each start.
    """
    if given != NO_ARCHIVE_ID:
        return given
    kept = NO_ARCHIVE_ID if previous is None else previous.identity.archive_id
    # Files from before archive ids have zeros there.
    return kept if kept not in {NO_ARCHIVE_ID, 0} else (int.from_bytes(os.urandom(8)) >> 2) + 1


# The mark file.

MARK_FILE_NAME: Final = "archive-mark.dat"
LINK_NAME: Final = "archive-mark.lnk"
"""File with the path of the directory that holds the mark file, if that is another directory."""
LIVENESS_TIMEOUT_MS: Final = 10_000
"""An archive without activity for so long counts as dead."""
LONGEST_LINK: Final = 4_096


@final
class MarkFile:
    """Holds the directory of an archive while it is open; every call blocks.

    Attributes:
        archive_id: The given id, else that of the file, else a new one.
        previous: Header that the file had before; None if there was no file.
        ends_are_whole: Whether the last frames of recordings cannot be torn: the last archive was
            one of ours, and it waited for the disk, or the system has not gone down since.
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
        """Take the directory, or refuse; until `signal_ready` the archive counts as starting.

        Args:
            directory: Directory of the archive.
            identity: What the file says about the archive.
            now_ms: The time, in milliseconds since 1970.
            mark_directory: Directory for the file; if not given, the archive's directory, or the
                one that its link names.
            sync_level: Sync level of the recordings; see `Catalog`.
            boot_id: Id of the current boot; read from the system if not given.

        Raises:
            ArchiveBusyError: Another archive holds the directory, or is starting.
            ArchiveFileError: There is a file that is not a mark file, or has an unknown version.
            ConfigurationError: The channels are too long for the file.
            OSError: The disk failed.
        """
        boot_id = current_boot() if boot_id is None else boot_id
        signature = Signature(now_ms, boot_id, sync_level)
        # Encoded first, so that channels that are too long are refused before any file is created.
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
            # If another mark file was used last, the content of this one is outdated.
            mark.ends_are_whole = is_last and is_whole(previous, boot_id)
            # Keep the previous state until recovery is over: recovery may fail, and be tried again.
            unready = signature if mark.ends_are_whole else attrs.evolve(signature, sync_level=-1)
            mark._write_header(header, unready)
        except BaseException:
            close_quietly(file)
            if link is not None:
                close_quietly(link)
            raise
        return mark

    def signal_ready(self, now_ms: int) -> None:
        """Declare the archive ready: recovery is over, and requests are accepted.

        Raises:
            ArchiveBusyError: Another archive has taken the file and ignored the lock.
            OSError: The disk failed.
        """
        file = self._opened()
        found = read_header(file)
        if found is None or found.start_timestamp_ms != self._signature.start_timestamp_ms:
            message = f"{file.name}: another archive has started on this directory"
            raise ArchiveBusyError(message)
        write_all(file, [self._signature.encode()], SIGNATURE_AT)
        self.refresh(now_ms)
        write_all(file, [VERSION.to_bytes(4, "little")], SBE_LENGTH + VERSION_AT)
        file.sync(metadata=True)

    def refresh(self, now_ms: int) -> None:
        """Update the activity timestamp; call this once a second."""
        data = now_ms.to_bytes(8, "little", signed=True)
        write_all(self._opened(), [data], SBE_LENGTH + ACTIVITY_AT)

    def close(self) -> None:
        """Mark the archive closed in order, and release the directory; a second call does nothing.

        The version is written even if the archive was never ready: an official archive does not
        take over a file without one.
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
        """Release the directory without writing, as a process that dies does."""
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
            # If this process dies before it is ready, an official archive can still take over the
            # file.
            version = VERSION.to_bytes(4, "little")
            header[SBE_LENGTH + VERSION_AT : SBE_LENGTH + VERSION_AT + 4] = version
        length = HEADER_LENGTH + MarkIdentity.error_buffer_length
        if old is None or old.header_length != HEADER_LENGTH or file.length() != length:
            # The header covers a part of the old error log, so drop that log; an empty log is all
            # zeros.
            file.set_length(0)
        write_all(file, [header], 0)
        file.set_length(length)
        file.sync(metadata=True)


def read_mark_file(directory: ReadableDirectory) -> MarkFileHeader | None:
    """Return the header of an archive's mark file; None if there is no file.

    Raises:
        ArchiveFileError: The file is not a mark file.
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


def mark_directory_of(directory: Found) -> Found | OsDirectory:
    """Return the directory that holds an archive's mark file: its own, or the one its link names.

    Raises:
        ArchiveFileError: The link file does not hold a path.
        FileNotFoundError: The link names a directory that does not exist.
    """
    path = read_link(directory)
    return directory if path is None else OsDirectory(path, create=False)


def read_link(directory: ReadableDirectory) -> str | None:
    """Return the path in the link file of an archive's directory; None if there is none."""
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
        # The archive died while it wrote the link.
        return None
    if "\0" in path or len(data) == LONGEST_LINK:
        message = f"{path[:40]!r}... is no path of a directory"
        raise ArchiveFileError(message, file=LINK_NAME, offset=0)
    return path


def read_header(file: ReadableFile) -> MarkFileHeader | None:
    """Return the header of a mark file; None if the file is empty."""
    buffer = bytearray(HEADER_LENGTH)
    count = read_exactly(file, memoryview(buffer), 0)
    return decode_header(buffer[:count], file=file.name) if count else None


def take(directory: Directory, *, now_ms: int, boot_id: int) -> tuple[File, MarkFileHeader | None]:
    """Return the locked mark file and its header; refuse if another archive holds it."""
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
    """Write and lock a link to the mark file's directory; refuse if another archive is alive here.

    Returns:
        The locked link file, and whether it held that path before.
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
        # Checked after the link is there: an archive that starts later will see the link.
        check_mark_file(directory, now_ms=now_ms)
    except BaseException:
        close_quietly(file)
        if is_new:
            directory.remove(LINK_NAME)
        raise
    return file, not is_new


def refuse_linked(directory: Directory, *, now_ms: int) -> bool:
    """Refuse if an archive is alive here whose mark file is elsewhere; else remove the link.

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
    """Refuse if an archive is alive whose mark file is in the directory that a link names."""
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
        # One of our archives holds the lock while it lives, and this process has the lock now.
        return
    if header.activity_timestamp_ms == STARTING:
        refuse(directory, header, "is starting, or died while it did: remove the file if none is")
    last_ms = header.activity_timestamp_ms
    if header.is_blank:
        # A file that is being created looks like this, and so does one whose creator crashed.
        last_ms = directory.modified_ms(MARK_FILE_NAME)
    elif not header.version:
        last_ms = max(last_ms, header.start_timestamp_ms)
    if now_ms - last_ms < LIVENESS_TIMEOUT_MS and last_ms != CLOSED:
        refuse(directory, header, f"was alive {now_ms - last_ms} ms ago, and is dead after 10 s")


def refuse(directory: Directory, header: MarkFileHeader | None, why: str) -> None:
    """Raise an error that another archive holds a directory."""
    who = "another archive" if header is None else f"another archive, process {header.pid},"
    channel = "" if header is None else header.identity.control_channel
    act = f"use its control channel {channel}, or stop it" if channel else "stop it first"
    message = f"{directory.path}/{MARK_FILE_NAME}: {who} {why}; {act}"
    raise ArchiveBusyError(message)


def is_whole(header: MarkFileHeader | None, boot_id: int) -> bool:
    """Return whether the last frames cannot be torn, judging by a mark file's header."""
    if header is None or header.signature is None or not header.is_ours:
        return False
    level = header.signature.sync_level
    return level > 0 or (level == 0 and boot_id == header.signature.boot_id != 0)


def are_ends_whole(directory: ReadableDirectory, *, boot_id: int | None = None) -> bool:
    """Return whether the last frames in a directory cannot be torn; see `MarkFile.ends_are_whole`.

    Takes no lock; returns False if the mark file cannot be read.

    Args:
        directory: Directory of an archive.
        boot_id: Id of the current boot; read from the system if not given.
    """
    try:
        header = read_mark_file(directory)
    except (ArchiveFileError, OSError):
        return False
    return is_whole(header, current_boot() if boot_id is None else boot_id)
