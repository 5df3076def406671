"""Ranges that a batch query reads, and their division into partitions.

Spark still applies pushed filters to every row, so pruning too little costs time and nothing else.

Recordings are cut at the beginning of terms, because a frame and a message begin there too. Short
recordings share a partition, because a partition costs as much as reading some tens of megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.archive.disk.recording_reader import check_position
from aeron_async.archive.disk.segments import term_base
from aeron_async.errors import ConfigurationError, DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.catalog import is_selective, open_directory, read_recordings
from aeron_async.spark.option_values import EARLIEST, LATEST
from aeron_async.spark.options import REPLAY
from aeron_async.spark.ranges import RecordingRange
from aeron_async.spark.readable_end import ReadableEnds
from aeron_async.spark.scan import first_not_older
from aeron_async.spark.segment_names import missing_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory
    from aeron_async.spark.lake.conditions import Condition
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "check_segments",
    "partitions_of",
    "plan_batch",
    "pruned",
    "starting_position",
]


OF_RECORDING: Final[Mapping[str, Callable[[RecordingDescriptor], Any]]] = {
    "recording_id": lambda each: each.recording_id,
    "stream_id": lambda each: each.stream_id,
    "channel": lambda each: each.stripped_channel,
}


def pruned(
    parts: Iterable[RecordingRange], conditions: Iterable[Condition]
) -> list[RecordingRange]:
    """Return the ranges without the parts in which no row can fulfil the conditions."""
    found = list(parts)
    for each in conditions:
        get = OF_RECORDING.get(each.column)
        if get is not None:
            found = [part for part in found if each.holds(get(part.descriptor), lambda it: it)]
        elif each.column == "position":
            first, last = bounds(each)
            found = [cut for part in found if (cut := within(part, first, last)).length > 0]
    return found


def bounds(condition: Condition) -> tuple[int | None, int | None]:
    """Return the lowest and highest position that a condition accepts; None for no bound."""
    # Null equals nothing.
    values = [each for each in condition.values if each is not None]
    match condition.operator:
        case "=":
            return (min(values), max(values)) if values else (0, -1)
        case "<" | "<=":
            return None, values[0]
        case _:
            return values[0], None


def within(part: RecordingRange, first: int | None, last: int | None) -> RecordingRange:
    """Return the terms of a range in which a row between two positions can begin."""
    term_length = part.descriptor.term_length
    start, end = part.start, part.end
    if first is not None and first > start:
        start = min(max(term_base(first, term_length), start), end)
    if last is not None and last < end:
        end = max(min(term_base(last, term_length) + term_length, end), start)
    return attrs.evolve(part, start=start, end=end)


log: Final = get_logger(__name__)


def plan_batch(options: ArchiveOptions) -> list[RecordingRange]:
    """Return the range of each recording that a batch query reads, in order of recording id.

    Raises:
        ConfigurationError: There is no such archive, or no recording is selected.
        DataLossError: Requested data is gone, and `failOnDataLoss` is set.
        InvalidPositionError: A given position is in the middle of a frame.
        ArchiveFileError: The catalog is damaged.
    """
    directory = open_directory(options)
    recordings = read_recordings(directory, options)
    if not recordings and is_selective(options):
        message = (
            f"no recording in {directory.path} is selected by recordingIds, streamId, channel, "
            "channelPattern and streamIds: change them"
        )
        raise ConfigurationError(message)
    ends = ReadableEnds(directory, options)
    parts = [
        bounded(directory, descriptor, options, ends.of(descriptor))
        for descriptor in recordings.values()
    ]
    found = [part for part in parts if part.length > 0]
    check_segments(directory, found, options)
    return found


def bounded(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> RecordingRange:
    """Return the range that a query reads of a recording which ends at `end`."""
    start = starting_position(directory, descriptor, options, end)
    stop = ending_position(directory, descriptor, options, end)
    is_replayed = options.access == REPLAY
    return RecordingRange(descriptor, start, max(start, stop), is_replayed=is_replayed)


def starting_position(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> int:
    """Return where a query begins to read a recording that is readable up to `end`.

    Raises:
        ConfigurationError: All messages are older than the given time.
        DataLossError: The recording lacks the given position, and `failOnDataLoss` is set.
        InvalidPositionError: The position is in the middle of a frame.
    """
    recording_id = descriptor.recording_id
    timestamp = options.starting_timestamp
    if timestamp is None:
        timestamp = options.starting_offsets_by_timestamp.get(recording_id)
    if timestamp is None:
        given = options.starting_positions.of(recording_id)
        return position_in(directory, descriptor, options, given, end)
    found = position_of_time(directory, descriptor, options, timestamp, end)
    if found is None and options.starting_offsets_by_timestamp_strategy == "error":
        message = (
            f"recording {recording_id} has no message from {timestamp} ms on: change the "
            "timestamp, or set startingOffsetsByTimestampStrategy=latest"
        )
        raise ConfigurationError(message)
    return end if found is None else found


def ending_position(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> int:
    """Return where a batch query stops reading a recording that is readable up to `end`.

    Raises:
        DataLossError: The recording lacks the given position, and `failOnDataLoss` is set.
        InvalidPositionError: The position is in the middle of a frame.
    """
    if options.ending_timestamp is None:
        given = options.ending_positions.of(descriptor.recording_id)
        return position_in(directory, descriptor, options, given, end)
    found = position_of_time(directory, descriptor, options, options.ending_timestamp, end)
    return end if found is None else found


def position_of_time(
    directory: ReadableDirectory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    timestamp_ms: int,
    end: int,
) -> int | None:
    """Return where the first message begins that is not older than a time; None if none is."""
    whole = RecordingRange(descriptor, descriptor.start_position, end)
    return first_not_older(directory, whole, options, timestamp_ms)


def position_in(
    directory: ReadableDirectory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    given: int,
    end: int,
) -> int:
    """Return the position for an option value: -2 for the start, -1 for the end, else in bytes."""
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


def check_segments(
    directory: ReadableDirectory, parts: Sequence[RecordingRange], options: ArchiveOptions
) -> None:
    """Refuse ranges whose segment files are not all present.

    Raises:
        DataLossError: A file is missing, and `failOnDataLoss` is set.
    """
    # The archive itself checks that it can replay a range.
    if options.access == REPLAY or not options.fail_on_data_loss:
        return
    for part, position, name in missing_segments(directory, parts):
        message = f"its file {name} is not there; failOnDataLoss=false continues without it"
        raise DataLossError(message, recording_id=part.descriptor.recording_id, position=position)


def partitions_of(
    parts: Iterable[RecordingRange],
    *,
    max_bytes: int,
    min_partitions: int | None,
) -> list[tuple[RecordingRange, ...]]:
    """Return the pieces that each partition reads: one of a recording, or several short ones.

    Args:
        parts: Everything to read.
        max_bytes: Limit of a partition; a term is never divided.
        min_partitions: Lower limit, as far as terms allow; None for none.
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
    """Yield pieces of about equal length, none longer than `target` except a single term."""
    term_length = part.descriptor.term_length
    most = max(target & -term_length, term_length)
    if part.length <= most:
        # Most recordings of many are short.
        yield part
        return
    count = -(-part.length // most)
    step = (-(-part.length // count) + term_length - 1) & -term_length
    start = part.start
    while start < part.end:
        end = min(term_base(start, term_length) + step, part.end)
        # As `attrs.evolve`, which takes three times as long, for each of some ten thousand pieces.
        yield RecordingRange(part.descriptor, start, end, part.has_checksums, part.is_replayed)
        start = end
