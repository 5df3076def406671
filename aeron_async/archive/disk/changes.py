"""Truncating, purging and detaching: changes of recordings on disk, and their retention.

Each change is written to the catalog first, in one place, and the files follow. A process that dies
in between leaves files that no longer count; the same call, made again, removes them.

No function here knows what is being replayed or by whom a stream is recorded: the caller checks
that first.

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
    segment_base,
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
    """Refuse to remove files of a recording while something else has the name of one.

    Raises:
        ArchiveFileError: Something has; names it.
    """
    for name, kind in sorted(directory.other_kinds().items()):
        parsed = parse_segment_name(name)
        if parsed is not None and parsed[0] == recording_id:
            raise not_plain(name, kind)


def truncate(directory: Directory, catalog: Catalog, recording_id: int, position: int) -> int:
    """Forget what was recorded from a position on; return how many files that removes.

    Differs: Aeron changes the catalog first and finds out then that no frame begins there.

    Args:
        directory: Of the archive.
        catalog: Its catalog.
        recording_id: Of a recording that has stopped, and is not replayed beyond the position.
        position: Where a frame begins, or the recording ends, in bytes.

    Raises:
        ArchiveFileError: Something else than a plain file has the name of a segment.
        ArchiveError: It is being recorded.
        InvalidPositionError: The position is outside, or in the middle of a frame.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; asking for the same again goes on with it.
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
    """Let zeros follow the end of a recording, and no file; return how many files that removes.

    To be called before it is extended: what a truncation left when its archive died would else
    lie behind what is recorded next.

    Args:
        directory: Of the archive.
        catalog: Its catalog.
        recording_id: Of a recording that has stopped.
        keeps_detached: Whether files before the start stay where nothing is left of the recording.

    Raises:
        ArchiveError: It is being recorded.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed.
    """
    descriptor = stopped(catalog, recording_id, "truncate")
    position = descriptor.stop_position
    base = base_of(descriptor, position)
    names = set(directory.names())
    bases = segment_bases(names, recording_id)
    if position == descriptor.start_position and not keeps_detached:
        # All of them, also those that were detached: so does the official archive.
        behind = bases
    else:
        behind = [each for each in bases if each > base or each == base == position]
    # The last one first: what is left, if that fails, follows what is recorded.
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
    """Let a recording begin later, and leave the files before that where they are.

    Args:
        directory: Of the archive.
        catalog: Its catalog.
        recording_id: Of the recording.
        new_start_position: Where a file begins, in bytes, and nothing replays what lies before it.
        recorded_position: Up to where it has been written, in bytes, while it is recorded.

    Raises:
        InvalidPositionError: No file begins there that could be the first.
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
    """Forget whole files before a position; return how many.

    A position where it begins already removes the files that were detached before that.

    Args:
        directory: Of the archive.
        catalog: Its catalog.
        recording_id: Of the recording.
        new_start_position: Where a file begins, in bytes, and nothing replays what lies before it.
        recorded_position: Up to where it has been written, in bytes, while it is recorded.

    Raises:
        ArchiveFileError: Something else than a plain file has the name of a segment.
        InvalidPositionError: No file begins there that could be the first.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; asking for the same again goes on with it.
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
    """Remove the files before the start of a recording; return how many.

    Raises:
        ArchiveFileError: Something else than a plain file has the name of a segment.
        UnknownRecordingError: No recording has that id.
        OSError: The disk failed; asking for the same again goes on with it.
    """
    descriptor = catalog.get(recording_id)
    check_segments_are_plain(directory, recording_id)
    first = term_base(descriptor.start_position, descriptor.term_length)
    bases = segment_bases(directory.names(), recording_id)
    # The first one first: what is left, if that fails, can still be attached.
    before = [each for each in bases if each < first]
    return remove(directory, recording_id, before, is_synced=catalog.sync_level > 0)


def attach_segments(directory: Directory, catalog: Catalog, recording_id: int) -> int:
    """Let a recording begin as early as there are files that it follows; return how many.

    Differs: Aeron keeps those that it attached before one that it refuses; here it is all or none.

    Raises:
        ArchiveFileError: A file has another length, or holds something else; nothing was attached.
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
    """Forget a recording and remove its files; return how many. Its id is never used again.

    Args:
        directory: Of the archive.
        catalog: Its catalog.
        recording_id: Of a recording that has stopped, and is not replayed.

    Raises:
        ArchiveFileError: Something else than a plain file has the name of a segment.
        ArchiveError: It is being recorded.
        UnknownRecordingError: No recording has that id, nor any file of one that had it.
        OSError: The disk failed; asking for the same again goes on with it.
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
    """Return whether the catalog has a recording that was deleted."""
    file = directory.open_to_read(CATALOG_NAME)
    try:
        return any(
            entry.recording_id == recording_id and entry.state is RecordingState.DELETED
            for entry in scan_entries(file, read_header(file))
        )
    finally:
        file.close()


def stopped(catalog: Catalog, recording_id: int, what: str) -> RecordingDescriptor:
    """Return a recording, and refuse one that goes on.

    Raises:
        ArchiveError: It is being recorded.
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
    """Refuse a new start where no file begins that could be the first.

    Raises:
        InvalidPositionError: None does.
    """
    first = base_of(descriptor, descriptor.start_position)
    end = descriptor.stop_position
    if descriptor.is_active:
        end = descriptor.start_position if recorded_position is None else recorded_position
    length = descriptor.segment_length
    # The first file is no new one, and the last never goes.
    lowest, highest = first + length, base_of(descriptor, end)
    if lowest <= position <= highest and position == base_of(descriptor, position):
        return
    if lowest > highest:
        message = (
            f"invalid new start {position}: recording {descriptor.recording_id} has one file, from "
            f"{first} on, and the last one never goes"
        )
        raise InvalidPositionError(message, nearest=descriptor.start_position)
    before = min(max(base_of(descriptor, position), lowest), highest)
    after = min(before + length, highest) if before <= position else before
    nearest = min(before, after, key=lambda each: abs(each - position))
    good = f"{before}" if before == after else f"{before} and {after}"
    message = (
        f"invalid new start {position}: files of recording {descriptor.recording_id} begin every "
        f"{length} bytes, and those that may be first from {lowest} to {highest}; the nearest: "
        f"{good}"
    )
    raise InvalidPositionError(message, nearest=nearest)


def base_of(descriptor: RecordingDescriptor, position: int) -> int:
    """Return where the file that holds a position of a recording begins."""
    return segment_base(
        position,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )


def remove(
    directory: Directory, recording_id: int, bases: Iterable[int], *, is_synced: bool
) -> int:
    """Remove files of a recording; return how many."""
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
    """Let zeros that take no room be what a segment holds from an offset on."""
    file = directory.open(name)
    try:
        clear_behind(file, offset, segment_length=descriptor.segment_length, sync_level=sync_level)
    finally:
        file.close()


def first_frame(
    directory: Directory, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> int:
    """Return the position of the first frame in a file, which is in its first term.

    Raises:
        ArchiveFileError: The file has another length, or holds something else.
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
    """What is kept; a segment goes when any of these lets it go.

    Attributes:
        max_age_ms: Segments that were last written to longer ago may go.
        max_bytes: So many bytes of a recording are kept, and what shares a segment with them.
        before_position: What lies before it may go, in bytes.

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
    """What may go of a recording.

    Attributes:
        new_start_position: Where it would begin, in bytes.
        bases: Where the files begin that would go.
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
    """Return what of a recording may go; None if nothing may.

    Args:
        directory: Of the archive; None where its files are elsewhere: then all that the recording
            has are taken to be there, and none is too old.
        descriptor: Of the recording.
        retention: What is kept.
        now_ms: The time, in milliseconds since 1970.
        end: Where the recording has stopped, or up to where it has been written, in bytes.
        lowest_replay: The lowest position that something replays, in bytes; None where nothing is.
    """
    first = term_base(descriptor.start_position, descriptor.term_length)
    highest = base_of(descriptor, end)
    if lowest_replay is not None:
        highest = min(highest, base_of(descriptor, max(lowest_replay, first)))
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
    """Return whether a file, behind which a position lies, may go."""
    if retention.before_position is not None and behind <= retention.before_position:
        return True
    if retention.max_bytes is not None and end - behind >= retention.max_bytes:
        return True
    if retention.max_age_ms is None or directory is None:
        return False
    return now_ms - directory.modified_ms(name) > retention.max_age_ms
