"""Recovery: the stop positions of recordings that were active when their archive died.

Source: Aeron `Catalog.refreshCatalog`, `Catalog.computeStopPosition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.segment_scan import DATA, HEADER, HEADER_LENGTH, PADDING, ScanBuffer
from aeron_async.archive.disk.segments import parse_segment_name, segment_name, term_base
from aeron_async.archive.disk.tail_scan import (
    FramesEnd,
    behind_length,
    clear_behind,
    find_frames_end,
)
from aeron_async.errors import ArchiveFileError
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.archive.disk.catalog import Catalog
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File

__all__ = [
    "Recovered",
    "contradicted",
    "contradiction_of",
    "end_on_disk",
    "recover",
    "segments_by_recording",
]


# The stream in the files.


@attrs.frozen
class StreamIdentity:
    """The part of a stream's identity that every frame of a recording shows.

    Attributes:
        initial_term_id: Initial term id; follows from the term id of a frame and its place.
        stream_id: Stream id.
    """

    initial_term_id: int
    stream_id: int

    def __str__(self) -> str:
        return f"stream {self.stream_id} and initial term {self.initial_term_id}"


def contradicted(
    file: File, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> StreamIdentity | None:
    """Return the stream of a file's first frame, if the catalog has another."""
    said = stream_told(file, descriptor, base, buffer)
    return None if said == stream_of(descriptor) else said


def contradiction_of(
    descriptor: RecordingDescriptor, said: StreamIdentity, *, files: Sequence[object]
) -> str:
    """Return an error text: the files begin with frames of another stream."""
    who = "its file begins" if len(files) == 1 else f"all {len(files)} of its files begin"
    return (
        f"recording {descriptor.recording_id} is of {stream_of(descriptor)} in the catalog, "
        f"and {who} with frames of {said}"
    )


def stream_of(descriptor: RecordingDescriptor) -> StreamIdentity:
    """Return the stream of a descriptor."""
    return StreamIdentity(descriptor.initial_term_id, descriptor.stream_id)


def stream_told(
    file: File, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> StreamIdentity | None:
    """Return the stream of a file's first frame; None if that frame does not fit its place."""
    position = max(base, descriptor.start_position)
    if buffer.fill(file, position - base, position - base + HEADER_LENGTH) < HEADER_LENGTH:
        return None
    length, version, _, kind, term_offset, _, stream_id, term_id, _ = HEADER.unpack_from(
        buffer.bytes
    )
    term_length = descriptor.term_length
    wanted_offset = position & (term_length - 1)
    is_frame = HEADER_LENGTH <= length <= term_length - wanted_offset
    if not is_frame or version or kind not in (DATA, PADDING) or term_offset != wanted_offset:
        return None
    return StreamIdentity(wrap_int32(term_id - position // term_length), stream_id)


# Ends of recordings.

REPAIR: Final = "`aeron-async archive repair` ends recordings before such"
WHAT_CAN_BE_DONE: Final = "`aeron-async archive repair` says what can be done"


@attrs.frozen
class Recovered:
    """A recording that was active when its archive died.

    Attributes:
        recording_id: Id in the catalog.
        stop_position: Stop position that was found, in bytes.
        discarded: Bytes behind that which did not form a frame, and were cleared.
    """

    recording_id: int
    stop_position: int
    discarded: int


def recover(
    directory: Directory,
    catalog: Catalog,
    *,
    now_ms: int,
    ends_are_whole: bool = False,
    checksum: Checksum | None = None,
) -> list[Recovered]:
    """Give every recording without a stop position the one its files show; return these recordings.

    Data behind that position is cleared: otherwise it would lie behind what is recorded next.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive, open for writing.
        now_ms: The time, in milliseconds since 1970; it becomes the stop timestamp, as the real one
            is unknown.
        ends_are_whole: No frame can be torn; see `MarkFile.ends_are_whole`.
        checksum: Checksum that data frames carry in place of their session id. If ends may be torn,
            the recording ends before the first frame of the last file whose checksum is wrong. None
            for none.

    Raises:
        ArchiveFileError: An entry is damaged, a file contradicts it, or its last frame may be torn;
            `aeron-async archive repair` ends the recording there.
        OSError: The disk failed.
    """
    ids = [each for each in catalog.unfinished if each in catalog]
    active = [each for each in map(catalog.get, ids) if each.is_active]
    if not active:
        return []
    bases = segments_by_recording(directory)
    buffer = ScanBuffer()
    found = []
    for descriptor in active:
        each = end_on_disk(
            directory,
            descriptor,
            bases.get(descriptor.recording_id, []),
            buffer,
            ends_are_whole=ends_are_whole,
            checksum=checksum,
            sync_level=catalog.sync_level,
        )
        cut_behind(directory, descriptor, each, sync_level=catalog.sync_level)
        catalog.update(
            descriptor.recording_id, stop_position=each.stop_position, stop_timestamp_ms=now_ms
        )
        found.append(each)
    return found


def segments_by_recording(directory: Directory) -> dict[int, list[int]]:
    """Return the base positions of all segment files, by recording id."""
    found: dict[int, list[int]] = {}
    for name in directory.names():
        parsed = parse_segment_name(name)
        if parsed is not None:
            found.setdefault(parsed[0], []).append(parsed[1])
    return found


def end_on_disk(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    buffer: ScanBuffer,
    *,
    ends_are_whole: bool = True,
    checksum: Checksum | None = None,
    sync_level: int = 0,
) -> Recovered:
    """Find where the files of a recording end.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording.
        bases: Base positions of its files.
        buffer: Buffer to read into.
        ends_are_whole: No frame can be torn.
        checksum: Checksum that data frames carry in place of their session id; None for none.
        sync_level: Above 0, wait until the file that was read is on the disk.

    Raises:
        ArchiveFileError: A base is wrong, a file is another stream's, or its end may be torn.
    """
    first = term_base(descriptor.start_position, descriptor.term_length)
    recording_id = descriptor.recording_id
    # Files before the start were detached, and are no longer part of the recording.
    bases = sorted(each for each in bases if each >= first)
    if not bases:
        return Recovered(recording_id, descriptor.start_position, 0)
    base = bases[-1]
    name = segment_name(recording_id, base)
    if (base - first) % descriptor.segment_length:
        message = (
            f"a file that begins at {base}, and the files of recording {recording_id} begin every "
            f"{descriptor.segment_length} bytes from {first} on"
        )
        raise ArchiveFileError(message, file=name, offset=0)
    file = directory.open_to_read(name)
    try:
        start = descriptor.start_position - base if base == first else 0
        check_stream(file, descriptor, base, buffer)
        end = find_frames_end(
            file,
            descriptor,
            base=base,
            start=start,
            buffer=buffer,
            checksum=checksum,
            ends_are_whole=ends_are_whole,
        )
        check_end(file, end, start)
        discarded = behind_length(file, end.offset, buffer)
        if sync_level:
            # What was read may still be in memory only: the archive died before it had waited.
            file.sync(metadata=True)
            directory.sync()
    finally:
        file.close()
    return Recovered(recording_id, max(base + end.offset, descriptor.start_position), discarded)


def check_stream(
    file: File, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> None:
    """Refuse a file whose stream is not that of the catalog: it does not show where to end.

    Raises:
        ArchiveFileError: The streams differ.
    """
    said = contradicted(file, descriptor, base, buffer)
    if said is not None:
        message = f"{contradiction_of(descriptor, said, files=[base])}; {WHAT_CAN_BE_DONE}"
        raise ArchiveFileError(message, file=file.name, offset=0)


def check_end(file: File, end: FramesEnd, start: int) -> None:
    """Refuse an end that may be wrong.

    Raises:
        ArchiveFileError: Valid frames lie behind the end, the last frame may be torn, or the very
            first has a wrong checksum, so that frames were probably recorded without.
    """
    if end.following is not None:
        message = (
            f"{end.problem}, and a whole frame lies behind it, at offset {end.following}; {REPAIR}"
        )
        raise ArchiveFileError(message, file=file.name, offset=end.offset)
    if end.is_checksum_wrong and end.offset == start:
        message = f"{end.problem}: was it recorded without? Change record_checksum, {REPAIR}"
        raise ArchiveFileError(message, file=file.name, offset=end.offset)
    if end.torn is not None:
        message = (
            f"the last frame, up to {end.offset}, may be torn: a page of it is all zeros; {REPAIR}"
        )
        raise ArchiveFileError(message, file=file.name, offset=end.torn)


def cut_behind(
    directory: Directory, descriptor: RecordingDescriptor, found: Recovered, *, sync_level: int
) -> None:
    """Clear everything behind the stop position in its file, and give that its full length."""
    first = term_base(descriptor.start_position, descriptor.term_length)
    position = found.stop_position
    base = first + ((position - first) & -descriptor.segment_length)
    try:
        file = directory.open(segment_name(found.recording_id, base))
    except FileNotFoundError:
        return
    try:
        clear_behind(
            file,
            position - base,
            segment_length=descriptor.segment_length,
            sync_level=sync_level,
        )
    finally:
        file.close()
