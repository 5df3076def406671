"""Up to where a live archive has recorded, as the counters of its driver show it.

They lie in the driver's `cnc.dat`, behind a header that says how long each section is. It is read,
not mapped: what is looked for is a few numbers, and the file is there as long as its driver.

Source: Aeron `CncFileDescriptor`, `CountersReader`, `RecordingPos`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.files import OsDirectory, read_exactly
from aeron_async.archive.recording_counter import RECORDING_POSITION_TYPE_ID

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import File

__all__ = ["recorded_positions"]

CNC_NAME: Final = "cnc.dat"
HEADER: Final = Struct("<iiiii")
HEADER_LENGTH: Final = 128
MAJOR: Final = 0
METADATA_LENGTH: Final = 512
VALUE_LENGTH: Final = 128
RECORD: Final = Struct("<ii")
ALLOCATED: Final = 1
UNUSED: Final = 0
KEY_AT: Final = 16
KEY: Final = Struct("<qii")
KEY_LENGTH: Final = 112
NUMBER: Final = Struct("<q")
LONGEST_SECTION: Final = 1 << 28
"""Of what counters may take, in bytes: half a million of them."""


def recorded_positions(aeron_directory: str, *, archive_id: int | None) -> dict[int, int]:
    """Return the recorded positions by recording id; nothing where no driver is.

    Args:
        aeron_directory: Of the driver.
        archive_id: Of the archive; None for any, where a driver has one only.
    """
    try:
        file = OsDirectory(aeron_directory, create=False).open_to_read(CNC_NAME)
    except FileNotFoundError:
        return {}
    try:
        return positions_in(file, archive_id)
    finally:
        file.close()


def positions_in(file: File, archive_id: int | None) -> dict[int, int]:
    """Return the recorded positions that a file of a driver shows."""
    version, to_driver, to_clients, metadata_length, values_length = HEADER.unpack(
        read(file, 0, HEADER.size)
    )
    metadata_at = HEADER_LENGTH + to_driver + to_clients
    is_known = version > 0 and version >> 16 == MAJOR
    if not is_known or not 0 < metadata_length <= LONGEST_SECTION or values_length <= 0:
        return {}
    values_at = metadata_at + metadata_length
    metadata = read(file, metadata_at, metadata_length)
    found = {}
    for counter_id in range(min(metadata_length // METADATA_LENGTH, values_length // VALUE_LENGTH)):
        at = counter_id * METADATA_LENGTH
        state, kind = RECORD.unpack_from(metadata, at)
        if state == UNUSED:
            # None was ever made behind it.
            break
        if state != ALLOCATED or kind != RECORDING_POSITION_TYPE_ID:
            continue
        recording_id, of_archive = key_of(metadata, at + KEY_AT)
        if archive_id is None or of_archive in {archive_id, None}:
            value_at = values_at + counter_id * VALUE_LENGTH
            (found[recording_id],) = NUMBER.unpack(read(file, value_at, NUMBER.size))
    return found


def key_of(metadata: bytes, at: int) -> tuple[int, int | None]:
    """Return the recording id and the archive's; that is not there in counters of old archives."""
    recording_id, _, source_length = KEY.unpack_from(metadata, at)
    archive_at = KEY.size + source_length
    if not 0 <= source_length <= KEY_LENGTH - KEY.size - NUMBER.size:
        return recording_id, None
    (archive_id,) = NUMBER.unpack_from(metadata, at + archive_at)
    return recording_id, archive_id


def read(file: File, offset: int, length: int) -> bytes:
    """Return what lies there, with zeros where the file ends too early."""
    buffer = bytearray(length)
    read_exactly(file, memoryview(buffer), offset)
    return bytes(buffer)
