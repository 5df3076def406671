"""The identity of an archive's log: a random id in a small file beside the catalog.

Recording ids are unique in one archive only. A cursor that is kept elsewhere therefore names the
archive by this id, too.

Layout of the file `log-id`, little endian, 32 bytes: eight bytes `AALOGID1`, the 16 bytes of the
UUID in network order, the CRC32 of these 24 bytes in 32 bits, and four bytes of zeros.

Invariant: the file is created once, when the id is first asked for, and never changes. It is
written under another name, synced, and renamed, so a crash leaves either a whole file or none.
Official archives ignore it: its name is not that of a segment file.
"""

from __future__ import annotations

import uuid
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from aeron_async.archive.disk.files import close_quietly, read_exactly, write_all
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.disk.files import Directory

__all__ = ["LOG_ID_NAME", "read_log_id", "read_or_create_log_id"]

LOG_ID_NAME: Final = "log-id"
NEW_NAME: Final = "log-id.new"
MAGIC: Final = b"AALOGID1"
CONTENT: Final = Struct("<8s16sI4x")
SIGNED_LENGTH: Final = 24


def encode_log_id(log_id: uuid.UUID) -> bytes:
    """Return the content of the file."""
    signed = MAGIC + log_id.bytes
    return CONTENT.pack(MAGIC, log_id.bytes, crc32(signed))


def read_log_id(directory: Directory) -> uuid.UUID | None:
    """Return the id in an archive's directory; None if there is no file yet.

    Raises:
        ArchiveFileError: The file is damaged.
        OSError: The disk failed.
    """
    try:
        file = directory.open_to_read(LOG_ID_NAME)
    except FileNotFoundError:
        return None
    data = bytearray(CONTENT.size + 1)
    try:
        length = read_exactly(file, memoryview(data), 0)
    finally:
        close_quietly(file)
    found = bytes(data[: CONTENT.size])
    magic, number, checksum = CONTENT.unpack(found)
    is_whole = (
        length == CONTENT.size and magic == MAGIC and checksum == crc32(found[:SIGNED_LENGTH])
    )
    if not is_whole:
        message = (
            f"{length} bytes are not a log id of {CONTENT.size} bytes with a valid checksum: "
            "restore the file from a backup; without it no cursor can be told to be of this archive"
        )
        raise ArchiveFileError(message, file=LOG_ID_NAME, offset=0)
    return uuid.UUID(bytes=number)


def read_or_create_log_id(
    directory: Directory, new_id: Callable[[], uuid.UUID] = uuid.uuid4
) -> uuid.UUID:
    """Return the id in an archive's directory, and create the file if there is none.

    Args:
        directory: Directory of an archive that this process holds.
        new_id: Draws an id.

    Raises:
        ArchiveFileError: The file is damaged.
        OSError: The disk is full, or failed.
    """
    found = read_log_id(directory)
    if found is not None:
        return found
    log_id = new_id()
    file = directory.open(NEW_NAME, create=True)
    try:
        file.set_length(0)
        write_all(file, [encode_log_id(log_id)], 0)
        file.sync(metadata=True)
    finally:
        close_quietly(file)
    directory.rename(NEW_NAME, LOG_ID_NAME)
    directory.sync()
    return log_id
