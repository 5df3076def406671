"""How a mark file lies on the disk.

Layout, little endian: 8 bytes that say what follows (block length 128, template 200, schema 100,
version 2), a block of 128 bytes of numbers, four strings, each with its length in 32 bits before
it, and zeros up to 8192, where a log of errors begins. Files of before Aeron 1.47 begin with the
block.

The last 32 bytes of the block, which the official archive leaves alone, hold a signature of ours:
with the start of the archive that wrote them, so that one by another that started since is told.

Source: Aeron `aeron-archive-mark-codecs.xml`, `ArchiveMarkFile`.
"""

from __future__ import annotations

import os
import secrets
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, final

import attrs

from aeron_async.errors import ArchiveFileError, ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ACTIVITY_AT",
    "CLOSED",
    "HEADER_LENGTH",
    "MAJOR",
    "NO_ARCHIVE_ID",
    "SBE_LENGTH",
    "SIGNATURE_AT",
    "STARTING",
    "VERSION",
    "VERSION_AT",
    "MarkFileHeader",
    "MarkIdentity",
    "Signature",
    "chosen_archive_id",
    "decode_header",
    "encode_header",
]

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
"""Activity of an archive that has ended in order."""
STARTING: Final = (1 << 63) - 1
"""Activity while an official archive takes a file that was there."""
SIGNATURE: Final = Struct("<8sqqq")
# In one sector with what it signs: both are written, or neither.
SIGNATURE_AT: Final = SBE_LENGTH + BLOCK_LENGTH - SIGNATURE.size
MAGIC: Final = b"aeron_as"
STRING_LENGTH: Final = Struct("<I")


@attrs.frozen(kw_only=True)
class MarkIdentity:
    """What a mark file says of its archive.

    Attributes:
        archive_id: Of the archive; `NO_ARCHIVE_ID` where it is to be found or drawn.
        control_stream_id: Where requests come from elsewhere.
        local_control_stream_id: Where requests come from this machine.
        events_stream_id: Where recording events go.
        control_channel: Likewise; empty for none.
        local_control_channel: Likewise.
        events_channel: Likewise; empty for none.
        aeron_directory: Of the driver; empty for one in the process.
        pid: Of the process.
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
    """What an archive of ours says of itself at the end of the block.

    Attributes:
        start_timestamp_ms: When it started, as the header says it.
        boot_id: Which run of the system it was in; 0 where that is not known.
        sync_level: At which it recorded; -1 while what others left is still to be looked at.
    """

    start_timestamp_ms: int
    boot_id: int
    sync_level: int

    def encode(self) -> bytes:
        """Return it as it lies in the file."""
        return SIGNATURE.pack(MAGIC, self.start_timestamp_ms, self.boot_id, self.sync_level)


@attrs.frozen(kw_only=True)
class MarkFileHeader:
    """What a mark file says.

    Attributes:
        version: Of its format; 0 while its archive is starting.
        activity_timestamp_ms: When its archive was last alive; -1 when it has ended in order.
        start_timestamp_ms: When that started.
        header_length: Where the log of errors begins, in bytes.
        error_buffer_length: Of that log, in bytes.
        offset: Where its numbers begin: 8, or 0 in old files.
        signature: Of one of ours, if there ever was one.
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
        """Return the process of its archive."""
        return self.identity.pid

    @property
    def is_blank(self) -> bool:
        """Return whether nothing has been written into it."""
        times = self.activity_timestamp_ms, self.start_timestamp_ms
        return self.version == self.pid == 0 and times == (0, 0)

    @property
    def is_ours(self) -> bool:
        """Return whether an archive of ours wrote it, and no other has since."""
        signature = self.signature
        return signature is not None and signature.start_timestamp_ms == self.start_timestamp_ms


def encode_header(
    identity: MarkIdentity, *, start_timestamp_ms: int, activity_ms: int, version: int = 0
) -> bytearray:
    """Return a header, without a signature.

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
    """Return what a header says.

    Raises:
        ArchiveFileError: It is too short, or its strings go on beyond it.
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
    """Return the four strings of a header.

    Raises:
        ArchiveFileError: One goes on beyond it.
    """
    texts = []
    for _ in range(4):
        start = at + STRING_LENGTH.size
        length = STRING_LENGTH.unpack_from(view, at)[0] if start <= len(view) else len(view)
        if start + length > len(view):
            message = f"a string of {length} bytes goes on beyond the header of {len(view)}"
            raise ArchiveFileError(message, file=file, offset=min(at, len(view)))
        texts.append(str(view[start : start + length], "ascii", "replace"))
        at = start + length
    return texts


def chosen_archive_id(given: int, previous: MarkFileHeader | None) -> int:
    """Return the id of an archive: what is given, else what its mark file says, else a new one.

    Differs: Aeron takes the id of the archive's client, another one after each start.
    """
    if given != NO_ARCHIVE_ID:
        return given
    kept = NO_ARCHIVE_ID if previous is None else previous.identity.archive_id
    # A file of before there were archive ids has zeros there.
    return kept if kept not in {NO_ARCHIVE_ID, 0} else secrets.randbits(62) + 1
