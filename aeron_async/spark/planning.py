"""Decides what a batch query reads, and which part of it each partition does.

Parts are cut where terms begin, for frames and messages do too; short recordings share a partition,
for each partition costs as much as some tens of megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.frame_places import check_position
from aeron_async.archive.disk.segments import segment_base, segment_name, term_base
from aeron_async.clock import SystemClock
from aeron_async.errors import ConfigurationError, DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.catalog_reading import is_selective, open_directory, read_recordings
from aeron_async.spark.frame_checksums import has_checksums
from aeron_async.spark.option_values import EARLIEST, LATEST
from aeron_async.spark.ranges import RecordingRange
from aeron_async.spark.recorded_end import is_alive, scanned_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["missing_segments", "partitions_of", "plan_batch"]

log = get_logger(__name__)


def plan_batch(options: ArchiveOptions) -> list[RecordingRange]:
    """Return what a batch query reads of each recording, in order.

    Raises:
        ConfigurationError: There is no such archive, or nothing that was selected.
        DataLossError: What was asked for is no longer there, and that is not to be skipped.
        InvalidPositionError: A position that was given is in the middle of a frame.
        ArchiveFileError: The catalog is damaged.
    """
    directory = open_directory(options)
    recordings = read_recordings(directory, options)
    if not recordings and is_selective(options):
        message = (
            f"no recording in {options.path} is selected by recordingIds, streamId, channel, "
            "channelPattern and streamIds: change them"
        )
        raise ConfigurationError(message)
    names = directory.names()
    alive = is_alive(directory, SystemClock().epoch_ms())
    found = []
    for descriptor in recordings.values():
        end = recorded_end(directory, descriptor, options, names=names, alive=alive)
        part = bounded(directory, descriptor, options, end)
        if part.length > 0:
            check_segments(part, names, options)
            found.append(part)
    return found


def recorded_end(
    directory: Directory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    names: list[str],
    alive: bool,
) -> int:
    """Return up to where a recording may be read."""
    if not descriptor.is_active:
        return descriptor.stop_position
    if options.position_source == "catalog":
        return descriptor.start_position
    return scanned_end(directory, descriptor, options, names=names, alive=alive)


def bounded(
    directory: Directory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> RecordingRange:
    """Return what is to be read of a recording that ends there."""
    start, stop = (
        position_in(directory, descriptor, options, positions.of(descriptor.recording_id), end)
        for positions in (options.starting_positions, options.ending_positions)
    )
    has = options.verify_checksum is not None or (
        start < stop and has_checksums(directory, descriptor, start, end)
    )
    return RecordingRange(descriptor, start, stop, has_checksums=has)


def position_in(
    directory: Directory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    given: int,
    end: int,
) -> int:
    """Return a position that was given: -2 for the start, -1 for the end, else in bytes."""
    if given == EARLIEST:
        return descriptor.start_position
    if given == LATEST:
        return end
    nearest = min(max(given, descriptor.start_position), end)
    if nearest != given:
        message = f"it holds {descriptor.start_position} to {end} only"
        if options.fail_on_data_loss:
            hint = "; failOnDataLoss=false takes the nearest"
            raise DataLossError(
                message + hint, recording_id=descriptor.recording_id, position=given
            )
        log.warning("position_moved", recording_id=descriptor.recording_id, problem=message)
    check_position(directory, descriptor, nearest, end=end)
    return nearest


def check_segments(part: RecordingRange, names: list[str], options: ArchiveOptions) -> None:
    """Refuse a range whose files are not all there."""
    for position, name in missing_segments(part, set(names)):
        if options.fail_on_data_loss:
            message = f"its file {name} is not there; failOnDataLoss=false goes on without it"
            raise DataLossError(
                message, recording_id=part.descriptor.recording_id, position=position
            )


def missing_segments(part: RecordingRange, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield from which position on, and in which file, a range is not there."""
    descriptor = part.descriptor
    base = segment_base(
        part.start,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )
    while base < part.end:
        name = segment_name(descriptor.recording_id, base)
        if name not in names:
            yield max(base, part.start), name
        base += descriptor.segment_length


def partitions_of(
    parts: Iterable[RecordingRange],
    *,
    max_bytes: int,
    min_partitions: int | None,
) -> list[tuple[RecordingRange, ...]]:
    """Return what each partition reads: a piece of a recording, or several that are short.

    Args:
        parts: What is read in all.
        max_bytes: Of a partition; a term is never divided.
        min_partitions: At least so many, where terms let it; None for as few as there may be.
    """
    parts = list(parts)
    total = sum(part.length for part in parts)
    target = min(max_bytes, -(-total // (min_partitions or 1)))
    found: list[tuple[RecordingRange, ...]] = []
    room = 0
    for part in parts:
        for piece in cut(part, target):
            if piece.length <= room:
                found[-1] += (piece,)
            else:
                found.append((piece,))
                room = target
            room -= piece.length
    return found


def cut(part: RecordingRange, target: int) -> Iterator[RecordingRange]:
    """Yield pieces of about equal length, at most a term longer than they should be."""
    term_length = part.descriptor.term_length
    count = -(-part.length // target)
    step = max(-(-part.length // count + term_length - 1) & -term_length, term_length)
    start = part.start
    while start < part.end:
        end = min(term_base(start, term_length) + step, part.end)
        yield attrs.evolve(part, start=start, end=end)
        start = end
