"""What is wrong in a catalog that can be walked all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.catalog_file import START_OF_ENTRY
from aeron_async.archive.disk.descriptor import ACTIVE, RecordingState
from aeron_async.archive.disk.files import read_exactly
from aeron_async.protocol.header import FRAME_ALIGNMENT, MAX_UDP_PAYLOAD_LENGTH

if TYPE_CHECKING:
    from collections.abc import Container

    from aeron_async.archive.disk.catalog_file import CatalogHeader, Entry
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import File

__all__ = ["LostEntry", "find_lost_entry", "mtu_problem", "time_problem"]

YEAR_10000_MS: Final = 253_402_300_800_000
"""The first millisecond that no calendar of Python's has, since 1970."""
SMALLEST_MTU: Final = 2 * FRAME_ALIGNMENT


@attrs.frozen
class LostEntry:
    """An entry without a length, which ends the catalog, of a recording that has files.

    Attributes:
        offset: Of its header, in bytes.
        recording_id: Of its recording.
        length: As it is stored: 0, or negative.
    """

    offset: int
    recording_id: int
    length: int

    def __str__(self) -> str:
        return (
            f"an entry of {self.length} bytes ends the catalog, and recording "
            f"{self.recording_id}, which it is about, has files: nobody knows of it, nor of "
            "those behind it, and the next recording takes its place"
        )


def find_lost_entry(
    catalog: File, header: CatalogHeader, last: Entry | None, has_files: Container[int]
) -> LostEntry | None:
    """Return what lies where the entries end, if that is another entry.

    One that was never finished has no files yet: a recording begins when its entry is whole.

    Args:
        catalog: The file.
        header: What it says of itself.
        last: The last entry; None if there is none.
        has_files: The ids of recordings that have files, and were not come by.
    """
    offset = header.first_offset if last is None else last.offset + last.length
    data = bytearray(START_OF_ENTRY.size)
    if read_exactly(catalog, memoryview(data), offset) < len(data):
        return None
    length, state, _, recording_id, _ = START_OF_ENTRY.unpack(data)
    last_id = -1 if last is None else last.recording_id
    is_entry = state == RecordingState.VALID and last_id < recording_id < header.next_recording_id
    if length > 0 or not is_entry or recording_id not in has_files:
        return None
    return LostEntry(offset, recording_id, length)


def mtu_problem(descriptor: RecordingDescriptor) -> str | None:
    """Return what is wrong with the MTU of a recording, without which no publication goes on."""
    mtu = descriptor.mtu_length
    if SMALLEST_MTU <= mtu <= MAX_UDP_PAYLOAD_LENGTH and mtu % FRAME_ALIGNMENT == 0:
        return None
    return (
        f"mtu length {mtu} is no multiple of {FRAME_ALIGNMENT} from {SMALLEST_MTU} to "
        f"{MAX_UDP_PAYLOAD_LENGTH}"
    )


def time_problem(descriptor: RecordingDescriptor) -> str | None:
    """Return what is wrong with the times of a recording: no clock has shown them."""
    start_ms, stop_ms = descriptor.start_timestamp_ms, descriptor.stop_timestamp_ms
    for name, time_ms, is_open in (
        ("start", start_ms, False),
        ("stop", stop_ms, stop_ms == ACTIVE),
    ):
        if not is_open and not 0 <= time_ms < YEAR_10000_MS:
            return f"{name} timestamp {time_ms} is no time from 1970 to 9999, in milliseconds"
    return None
