"""Truncating, purging and detaching: changes of recordings on disk, and their retention.

Each change is written to the catalog first, in one place, and the files follow. A process that dies
in between leaves files that no longer belong to the recording; the same call, made again, removes
them.

The functions here do not check replays and active sessions: the caller does that first.

`expired_segments` chooses what a `Retention` no longer keeps: whole segments only, the oldest
first, never the one that holds the end, and never one that is being replayed. `purge_segments`
removes them.

Source: Aeron `ArchiveConductor`, `DeleteSegmentsSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.catalog import CATALOG_NAME, read_header, scan_entries
from aeron_async.archive.disk.descriptor import RecordingState
from aeron_async.archive.disk.files import not_plain, read_exactly
from aeron_async.archive.disk.recording_reader import check_position
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, ScanBuffer, check_frame
from aeron_async.archive.disk.segments import (
    parse_segment_name,
    segment_bases,
    segment_name,
    term_base,
)
from aeron_async.archive.disk.tail_scan import clear_behind
from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ArchiveFileError,
    ConfigurationError,
    InvalidPositionError,
    UnknownRecordingError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.archive.disk.catalog import Catalog
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = [
    "Expired",
    "Retention",
    "attach_segments",
    "check_segments_are_plain",
    "clear_behind_stop",
    "delete_detached_segments",
    "detach_segments",
    "expired_segments",
    "purge_recording",
    "purge_segments",
    "truncate",
]


# Changes of one recording.


def check_segments_are_plain(directory: Directory, recording_id: int) -> None:
    """Refuse to remove segments of a recording if something other than a file has such a name.

    Raises:
        ArchiveFileError: Something has; the error names it.
    """
    for name, kind in sorted(directory.other_kinds().items()):
        parsed = parse_segment_name(name)
        if parsed is not None and parsed[0] == recording_id:
            raise not_plain(name, kind)


def truncate(directory: Directory, catalog: Catalog, recording_id: int, position: int) -> int:
    """Discard everything recorded after a position; return how many files were removed.

    Differs: Aeron changes the catalog first, and only then finds that no frame begins there.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive.
        recording_id: Id of a recording that has stopped, and is not replayed beyond the position.
        position: Position of a frame or of the end, in bytes.

    Raises:
        ArchiveFileError: Something other than a plain file has the name of a segment.
        ArchiveError: The recording is active.
        InvalidPositionError: The position is outside the recording, or inside a frame.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; the same call again continues.
    """
    descriptor = stopped(catalog, recording_id, "truncate")
    check_segments_are_plain(directory, recording_id)
    stop = descriptor.stop_position
    check_position(directory, descriptor, position, end=stop)
    if position != stop:
        catalog.update(recording_id, stop_position=position)
    return clear_behind_stop(directory, catalog, recording_id, keeps_detached=False)


def clear_behind_stop(
    directory: Directory, catalog: Catalog, recording_id: int, *, keeps_detached: bool = True
) -> int:
    """Clear everything behind the end of a recording; return how many files were removed.

    Call this before the recording is extended: what an interrupted truncation left would otherwise
    lie behind what is recorded next.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive.
        recording_id: Id of a recording that has stopped.
        keeps_detached: Whether detached files stay if the recording is empty.

    Raises:
        ArchiveError: The recording is active.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed.
    """
    descriptor = stopped(catalog, recording_id, "truncate")
    position = descriptor.stop_position
    base = descriptor.segment_base(position)
    names = set(directory.names())
    bases = segment_bases(names, recording_id)
    if position == descriptor.start_position and not keeps_detached:
        # All files, detached ones too, as in the official archive.
        behind = bases
    else:
        behind = [each for each in bases if each > base or each == base == position]
    # The last one first: if that fails, the remaining files still follow the recorded ones.
    count = remove(directory, recording_id, reversed(behind), is_synced=catalog.sync_level > 0)
    name = segment_name(recording_id, base)
    if name in names and base not in behind:
        cut(directory, descriptor, name, position - base, sync_level=catalog.sync_level)
    return count


def detach_segments(
    directory: Directory,
    catalog: Catalog,
    recording_id: int,
    new_start_position: int,
    *,
    recorded_position: int | None = None,
) -> None:
    """Move the start of a recording forward, and keep the segment files before it.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive.
        recording_id: Id of the recording.
        new_start_position: Base of a segment, in bytes, before which nothing is replayed.
        recorded_position: Position up to which an active recording is written, in bytes.

    Raises:
        InvalidPositionError: No segment begins there that could be the first.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed.
    """
    del directory
    descriptor = catalog.get(recording_id)
    check_new_start(descriptor, new_start_position, recorded_position)
    catalog.update(recording_id, start_position=new_start_position)


def purge_segments(
    directory: Directory,
    catalog: Catalog,
    recording_id: int,
    new_start_position: int,
    *,
    recorded_position: int | None = None,
) -> int:
    """Delete the segment files before a position; return how many.

    If the recording already begins at the position, the files detached before it are removed.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive.
        recording_id: Id of the recording.
        new_start_position: Base of a segment, in bytes, before which nothing is replayed.
        recorded_position: Position up to which an active recording is written, in bytes.

    Raises:
        ArchiveFileError: Something other than a plain file has the name of a segment.
        InvalidPositionError: No segment begins there that could be the first.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; the same call again continues.
    """
    descriptor = catalog.get(recording_id)
    first = term_base(descriptor.start_position, descriptor.term_length)
    if new_start_position == descriptor.start_position == first:
        return delete_detached_segments(directory, catalog, recording_id)
    check_new_start(descriptor, new_start_position, recorded_position)
    check_segments_are_plain(directory, recording_id)
    catalog.update(recording_id, start_position=new_start_position)
    bases = segment_bases(directory.names(), recording_id)
    before = [each for each in bases if first <= each < new_start_position]
    return remove(directory, recording_id, before, is_synced=catalog.sync_level > 0)


def delete_detached_segments(directory: Directory, catalog: Catalog, recording_id: int) -> int:
    """Delete the detached files before the start of a recording; return how many.

    Raises:
        ArchiveFileError: Something other than a plain file has the name of a segment.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; the same call again continues.
    """
    descriptor = catalog.get(recording_id)
    check_segments_are_plain(directory, recording_id)
    first = term_base(descriptor.start_position, descriptor.term_length)
    bases = segment_bases(directory.names(), recording_id)
    # The first one first: if that fails, the remaining files can still be attached.
    before = [each for each in bases if each < first]
    return remove(directory, recording_id, before, is_synced=catalog.sync_level > 0)


def attach_segments(directory: Directory, catalog: Catalog, recording_id: int) -> int:
    """Move the start of a recording back over the detached files before it; return how many.

    Differs: Aeron keeps files that it attached before one that it refuses; here all are attached or
    none.

    Raises:
        ArchiveFileError: A file has the wrong length or content; nothing was attached.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed.
    """
    descriptor = catalog.get(recording_id)
    start = descriptor.start_position
    if start != term_base(start, descriptor.term_length):
        return 0
    there = set(segment_bases(directory.names(), recording_id))
    buffer = ScanBuffer()
    count, position = 0, start
    while start == position and position - descriptor.segment_length in there:
        position -= descriptor.segment_length
        start = first_frame(directory, descriptor, position, buffer)
        count += 1
    if count:
        catalog.update(recording_id, start_position=start)
    return count


def purge_recording(directory: Directory, catalog: Catalog, recording_id: int) -> int:
    """Delete a recording and its files; return how many. Its id is never used again.

    Args:
        directory: Directory of the archive.
        catalog: Catalog of the archive.
        recording_id: Id of a recording that has stopped, and is not replayed.

    Raises:
        ArchiveFileError: Something other than a plain file has the name of a segment.
        ArchiveError: The recording is active.
        UnknownRecordingError: No recording has that id, and no file is left of a deleted one.
        OSError: The disk failed; the same call again continues.
    """
    if recording_id in catalog:
        stopped(catalog, recording_id, "purge")
        check_segments_are_plain(directory, recording_id)
        catalog.delete(recording_id)
        bases = segment_bases(directory.names(), recording_id)
    else:
        bases = segment_bases(directory.names(), recording_id)
        if not bases or not was_deleted(directory, recording_id):
            message = f"unknown recording id: {recording_id}"
            raise UnknownRecordingError(message)
        check_segments_are_plain(directory, recording_id)
    return remove(directory, recording_id, bases, is_synced=catalog.sync_level > 0)


def was_deleted(directory: Directory, recording_id: int) -> bool:
    """Return whether the catalog holds a recording as deleted."""
    file = directory.open_to_read(CATALOG_NAME)
    try:
        return any(
            entry.recording_id == recording_id and entry.state is RecordingState.DELETED
            for entry in scan_entries(file, read_header(file))
        )
    finally:
        file.close()


def stopped(catalog: Catalog, recording_id: int, what: str) -> RecordingDescriptor:
    """Return the descriptor of a recording, and refuse an active one.

    Raises:
        ArchiveError: The recording is active.
        UnknownRecordingError: No recording has that id.
    """
    descriptor = catalog.get(recording_id)
    if descriptor.is_active:
        message = f"cannot {what} active recording {recording_id}: stop it first"
        raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)
    return descriptor


def check_new_start(
    descriptor: RecordingDescriptor, position: int, recorded_position: int | None
) -> None:
    """Refuse a new start position at which no segment begins that could be the first.

    Raises:
        InvalidPositionError: The position is refused; the error gives the nearest valid one.
    """
    first = descriptor.segment_base(descriptor.start_position)
    end = descriptor.stop_position
    if descriptor.is_active:
        end = descriptor.start_position if recorded_position is None else recorded_position
    length = descriptor.segment_length
    # The first file is not a new start, and the last file is never removed.
    lowest, highest = first + length, descriptor.segment_base(end)
    if lowest <= position <= highest and position == descriptor.segment_base(position):
        return
    if lowest > highest:
        message = (
            f"invalid new start {position}: recording {descriptor.recording_id} has one file, from "
            f"{first} on, and the last one is never removed"
        )
        raise InvalidPositionError(message, nearest=descriptor.start_position)
    before = min(max(descriptor.segment_base(position), lowest), highest)
    after = min(before + length, highest) if before <= position else before
    nearest = min(before, after, key=lambda each: abs(each - position))
    good = f"{before}" if before == after else f"{before} and {after}"
    message = (
        f"invalid new start {position}: files of recording {descriptor.recording_id} begin every "
        f"{length} bytes, and those that may be first from {lowest} to {highest}; the nearest: "
        f"{good}"
    )
    raise InvalidPositionError(message, nearest=nearest)


def remove(
    directory: Directory, recording_id: int, bases: Iterable[int], *, is_synced: bool
) -> int:
    """Remove segment files of a recording; return how many."""
    count = 0
    for base in bases:
        directory.remove(segment_name(recording_id, base))
        count += 1
    if count and is_synced:
        directory.sync()
    return count


def cut(
    directory: Directory,
    descriptor: RecordingDescriptor,
    name: str,
    offset: int,
    *,
    sync_level: int,
) -> None:
    """Clear a segment from an offset on; the zeros take no space on disk."""
    file = directory.open(name)
    try:
        clear_behind(file, offset, segment_length=descriptor.segment_length, sync_level=sync_level)
    finally:
        file.close()


def first_frame(
    directory: Directory, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> int:
    """Return the position of the first frame in a file; it must be in the first term.

    Raises:
        ArchiveFileError: The file has the wrong length or content.
    """
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        if file.length() != descriptor.segment_length:
            message = f"{file.length()} bytes, and a segment has {descriptor.segment_length}"
            raise ArchiveFileError(message, file=file.name, offset=0)
        offset = 0
        while offset < descriptor.term_length:
            wanted = min(len(buffer.bytes), descriptor.term_length - offset)
            count = read_exactly(file, buffer.bytes[:wanted], offset)
            data = bytes(buffer.bytes[:count])
            at = (count - len(data.lstrip(b"\0"))) & -HEADER_LENGTH
            if at < count:
                problem, _ = check_frame(
                    buffer.bytes[at:count], descriptor, position=base + offset + at, checksum=None
                )
                if problem is not None:
                    raise ArchiveFileError(problem, file=file.name, offset=offset + at)
                return base + offset + at
            offset += max(count, HEADER_LENGTH)
    finally:
        file.close()
    message = f"no frame in its first term of {descriptor.term_length} bytes"
    raise ArchiveFileError(message, file=file.name, offset=0)


# Retention.


@attrs.frozen(kw_only=True)
class Retention:
    """What is kept of recordings; a segment may be removed if any of the limits allows it.

    Attributes:
        max_age_ms: Segments that were last written longer ago may be removed.
        max_bytes: So many bytes of a recording are kept, rounded up to whole segments.
        before_position: Segments before this position, in bytes, may be removed.

    Raises:
        ConfigurationError: A limit is negative.
    """

    max_age_ms: int | None = None
    max_bytes: int | None = None
    before_position: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("max_age_ms", "max_bytes", "before_position"):
            value = getattr(self, name)
            if value is not None and value < 0:
                message = f"{name} {value} is negative: change it, or leave it out for no limit"
                raise ConfigurationError(message)


@attrs.frozen
class Expired:
    """What may be removed of a recording.

    Attributes:
        new_start_position: Start position after the removal, in bytes.
        bases: Base positions of the files that may be removed.
    """

    new_start_position: int
    bases: tuple[int, ...]


def expired_segments(
    directory: Directory | None,
    descriptor: RecordingDescriptor,
    retention: Retention,
    *,
    now_ms: int,
    end: int,
    lowest_replay: int | None = None,
) -> Expired | None:
    """Return what may be removed of a recording; None if nothing may.

    Args:
        directory: Directory of the archive; None for a remote archive: then every file is taken to
            exist, and age is ignored.
        descriptor: Descriptor of the recording.
        retention: What is kept.
        now_ms: The time, in milliseconds since 1970.
        end: Stop position, or position up to which an active recording is written, in bytes.
        lowest_replay: Lowest position of a replay, in bytes; None without replays.
    """
    first = term_base(descriptor.start_position, descriptor.term_length)
    highest = descriptor.segment_base(end)
    if lowest_replay is not None:
        highest = min(highest, descriptor.segment_base(max(lowest_replay, first)))
    length = descriptor.segment_length
    bases = list(range(first, highest, length))
    if directory is not None:
        there = segment_bases(directory.names(), descriptor.recording_id)
        bases = [each for each in there if first <= each < highest]
    start = first
    for base in bases:
        behind = base + length
        name = segment_name(descriptor.recording_id, base)
        if base != start or not may_go(directory, name, behind, retention, now_ms=now_ms, end=end):
            break
        start = behind
    if start == first:
        return None
    return Expired(start, tuple(each for each in bases if each < start))


def may_go(
    directory: Directory | None,
    name: str,
    behind: int,
    retention: Retention,
    *,
    now_ms: int,
    end: int,
) -> bool:
    """Return whether a file may be removed; `behind` is the position of its end."""
    if retention.before_position is not None and behind <= retention.before_position:
        return True
    if retention.max_bytes is not None and end - behind >= retention.max_bytes:
        return True
    if retention.max_age_ms is None or directory is None:
        return False
    return now_ms - directory.modified_ms(name) > retention.max_age_ms
