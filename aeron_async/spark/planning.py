"""The ranges that a batch query reads, and how they are divided into partitions.

Filters that come here are still applied by Spark to every row, so leaving out too little costs time
and nothing else. Positions are cut where terms begin, where messages do too.

Parts are cut where terms begin, for frames and messages do too; short recordings share a partition,
for each partition costs as much as some tens of megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive.disk.recording_reader import check_position
from aeron_async.archive.disk.segments import segment_base, segment_name, term_base
from aeron_async.errors import ConfigurationError, DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.catalog import is_selective, open_directory, read_recordings
from aeron_async.spark.frame_finder import has_checksums
from aeron_async.spark.option_values import EARLIEST, LATEST
from aeron_async.spark.options import REPLAY
from aeron_async.spark.ranges import RecordingRange
from aeron_async.spark.readable_end import SafeEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "Predicate",
    "check_segments",
    "missing_segments",
    "partitions_of",
    "plan_batch",
    "pruned",
    "range_of",
    "starting_position",
]


@final
@attrs.frozen
class Predicate:
    """A filter that every row must pass.

    Attributes:
        column: Whose value is looked at.
        operator: `=`, `<`, `<=`, `>`, `>=` or `in`.
        value: What it is compared with; several for `in`.
    """

    column: str
    operator: str
    value: Any


OF_RECORDING: Final[Mapping[str, Callable[[RecordingDescriptor], Any]]] = {
    "recording_id": lambda each: each.recording_id,
    "stream_id": lambda each: each.stream_id,
    "channel": lambda each: each.stripped_channel,
}
HOLDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, wanted: bool(value == wanted),
    "<": lambda value, wanted: bool(value < wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">": lambda value, wanted: bool(value > wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
    "in": lambda value, wanted: value in wanted,
}


def pruned(
    parts: Iterable[RecordingRange], predicates: Iterable[Predicate]
) -> list[RecordingRange]:
    """Return what is left of ranges when rows that fail a predicate need not be there."""
    found = list(parts)
    for each in predicates:
        get = OF_RECORDING.get(each.column)
        if get is not None:
            holds = HOLDS[each.operator]
            found = [part for part in found if holds(get(part.descriptor), each.value)]
        elif each.column == "position":
            first, last = bounds(each)
            found = [cut for part in found if (cut := within(part, first, last)).length > 0]
    return found


def bounds(predicate: Predicate) -> tuple[int | None, int | None]:
    """Return the smallest and the largest position that a predicate lets pass; None for any."""
    value = predicate.value
    match predicate.operator:
        case "=":
            return value, value
        case "in":
            # What is null equals nothing.
            values = [each for each in value if each is not None]
            return (min(values), max(values)) if values else (0, -1)
        case "<" | "<=":
            return None, value
        case _:
            return value, None


def within(part: RecordingRange, first: int | None, last: int | None) -> RecordingRange:
    """Return the terms of a range in which rows from a first to a last position can begin."""
    term_length = part.descriptor.term_length
    start, end = part.start, part.end
    if first is not None and first > start:
        start = min(max(term_base(first, term_length), start), end)
    if last is not None and last < end:
        end = max(min(term_base(last, term_length) + term_length, end), start)
    return attrs.evolve(part, start=start, end=end)


log: Final = get_logger(__name__)


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
            f"no recording in {directory.path} is selected by recordingIds, streamId, channel, "
            "channelPattern and streamIds: change them"
        )
        raise ConfigurationError(message)
    # What is replayed is there if the archive says so.
    names = None if options.access == REPLAY else directory.names()
    ends = SafeEnds(directory, options)
    found = []
    for descriptor in recordings.values():
        part = bounded(directory, descriptor, options, ends.of(descriptor))
        if part.length > 0:
            if names is not None:
                check_segments(part, names, options)
            found.append(part)
    return found


def bounded(
    directory: Directory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> RecordingRange:
    """Return what is to be read of a recording that ends there."""
    start = starting_position(directory, descriptor, options, end)
    stop = ending_position(directory, descriptor, options, end)
    return range_of(directory, descriptor, options, start=start, end=max(start, stop))


def range_of(
    directory: Directory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    start: int,
    end: int,
) -> RecordingRange:
    """Return a range of a recording, with what a reader must know of its frames."""
    if options.access == REPLAY:
        return RecordingRange(descriptor, start, end, is_replayed=True)
    has = options.verify_checksum is not None or (
        start < end and has_checksums(directory, descriptor, start, end)
    )
    return RecordingRange(descriptor, start, end, has_checksums=has)


def starting_position(
    directory: Directory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> int:
    """Return where a query begins to read a recording that may be read up to an end.

    Raises:
        ConfigurationError: No message is as young as the time that was given.
        DataLossError: It begins later by now, and that is not to be skipped.
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
    directory: Directory, descriptor: RecordingDescriptor, options: ArchiveOptions, end: int
) -> int:
    """Return up to where a batch query reads a recording that may be read up to an end.

    Raises:
        DataLossError: It ends earlier by now, and that is not to be skipped.
        InvalidPositionError: The position is in the middle of a frame.
    """
    if options.ending_timestamp is None:
        given = options.ending_positions.of(descriptor.recording_id)
        return position_in(directory, descriptor, options, given, end)
    found = position_of_time(directory, descriptor, options, options.ending_timestamp, end)
    return end if found is None else found


def position_of_time(
    directory: Directory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    timestamp_ms: int,
    end: int,
) -> int | None:
    """Return where the first message begins that is not older; None if there is none."""
    # Here, for it takes numpy and pyarrow, and hardly any query asks for times.
    from aeron_async.spark.scan import first_not_older  # noqa: PLC0415

    whole = RecordingRange(descriptor, descriptor.start_position, end)
    return first_not_older(directory, whole, options, timestamp_ms)


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
    """Yield pieces of about equal length, none longer than it should be, but for a single term."""
    term_length = part.descriptor.term_length
    most = max(target & -term_length, term_length)
    count = -(-part.length // most)
    step = (-(-part.length // count) + term_length - 1) & -term_length
    start = part.start
    while start < part.end:
        end = min(term_base(start, term_length) + step, part.end)
        yield attrs.evolve(part, start=start, end=end)
        start = end
