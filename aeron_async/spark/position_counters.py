"""Counters of recorded positions, in the `cnc.dat` of an archive's driver.

They lie behind a header with the length of each section. The file is read and not mapped: a query
needs a few numbers only, and the file exists as long as its driver.

Source: Aeron `CncFileDescriptor`, `CountersReader`, `RecordingPos`.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, final

import numpy as np

from aeron_async.archive.disk.files import OsDirectory, read_exactly
from aeron_async.archive.recording_counter import RECORDING_POSITION_TYPE_ID
from aeron_async.spark.read_again import ReadAgain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.archive.disk.files import ReadableFile

__all__ = ["PositionCounters"]

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
RECORD_STATE_LENGTH: Final = 4
NUMBER: Final = Struct("<q")
NUMBER_LENGTH: Final = 8
LONGEST_SECTION: Final = 1 << 28
"""Upper limit on the counters' metadata, in bytes: half a million counters."""


@final
class PositionCounters:
    """Recorded positions in a driver's `cnc.dat`, kept up to date by one read of what is in use."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._metadata = ReadAgain()
        self._values = ReadAgain()
        self._used = 0
        self._ids: list[int] = []
        self._places: list[int] = []
        self._positions: dict[int, int] = {}

    def look(self, aeron_directory: str, archive_id: int | None) -> Mapping[int, int]:
        """Return the positions by recording id; the same object as before if none has changed.

        Args:
            aeron_directory: Directory of the driver; the positions are empty if there is none.
            archive_id: Id of the archive; None for any, if the driver has only one.
        """
        seen: tuple[object, ...] = ()
        is_moved = is_other = False
        with suppress(FileNotFoundError):
            file = OsDirectory(aeron_directory, create=False).open_to_read(CNC_NAME)
            try:
                is_other, is_moved = self._read(file)
            finally:
                file.close()
            seen = (aeron_directory, archive_id)
        if seen == self._seen and not is_other and not is_moved:
            return self._positions
        if is_other or seen != self._seen:
            metadata = memoryview(self._metadata.data)[
                : self._used * METADATA_LENGTH if seen else 0
            ]
            counters = list(position_counters(metadata, archive_id))
            self._ids = [each for each, _ in counters]
            self._places = [place for _, place in counters]
        self._seen = seen
        numbers = np.frombuffer(self._values.data, "<i8")[:: VALUE_LENGTH // NUMBER_LENGTH]
        found = dict(zip(self._ids, numbers[self._places].tolist(), strict=True))
        if found != self._positions:
            self._positions = found
        return self._positions

    def _read(self, file: ReadableFile) -> tuple[bool, bool]:
        """Read what is in use; return whether the metadata are others, and whether the values."""
        header = bytearray(HEADER.size)
        read_exactly(file, memoryview(header), 0)
        version, to_driver, to_clients, metadata_length, values_length = HEADER.unpack(header)
        metadata_at = HEADER_LENGTH + to_driver + to_clients
        is_known = version > 0 and version >> 16 == MAJOR
        if not is_known or not 0 < metadata_length <= LONGEST_SECTION or values_length <= 0:
            metadata_length = 0
        most = min(metadata_length // METADATA_LENGTH, values_length // VALUE_LENGTH)
        # As many as the last time, and one that shows whether there are more by now.
        count = min(self._used + 1, most) if self._used else most
        is_other = self._metadata.read(file, metadata_at, count * METADATA_LENGTH)
        used = used_in(self._metadata.data)
        if used == count < most:
            is_other = self._metadata.read(file, metadata_at, most * METADATA_LENGTH)
            used = used_in(self._metadata.data)
        self._used = used
        length = used * VALUE_LENGTH
        return is_other, self._values.read(file, metadata_at + metadata_length, length)


def used_in(metadata: bytearray) -> int:
    """Return how many counters the driver has ever allocated: none behind an unused record."""
    states = np.frombuffer(metadata, "<i4")[:: METADATA_LENGTH // RECORD_STATE_LENGTH]
    unused = np.flatnonzero(states == UNUSED)
    return int(unused[0]) if len(unused) else len(states)


def position_counters(metadata: memoryview, archive_id: int | None) -> Iterator[tuple[int, int]]:
    """Yield the recording id and the number of each counter that shows a recorded position."""
    for at in range(0, len(metadata), METADATA_LENGTH):
        state, kind = RECORD.unpack_from(metadata, at)
        if state == ALLOCATED and kind == RECORDING_POSITION_TYPE_ID:
            recording_id, of_archive = key_of(metadata, at + KEY_AT)
            if archive_id is None or of_archive in {archive_id, None}:
                yield recording_id, at // METADATA_LENGTH


def key_of(metadata: memoryview, at: int) -> tuple[int, int | None]:
    """Return the recording id and the archive id; old archives do not write the latter."""
    recording_id, _, source_length = KEY.unpack_from(metadata, at)
    archive_at = KEY.size + source_length
    if not 0 <= source_length <= KEY_LENGTH - KEY.size - NUMBER.size:
        return recording_id, None
    (archive_id,) = NUMBER.unpack_from(metadata, at + archive_at)
    return recording_id, archive_id
