"""Recordings of an archive as a stream: where each micro-batch ends, and how lost data is handled.

This module does not depend on Spark. `latest` decides the end of a batch, once. The ranges between
its start and its end follow from the offsets alone, because Spark may ask for them again after a
restart and must then read the same data again.

An archive that was deleted and created again is an error in any case, also with
`failOnDataLoss=false`: positions in the old recordings mean nothing in the new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.errors import DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.admission import Limit, TriggerDelay, UnreadRange, admit
from aeron_async.spark.boundaries import DiskBoundaries, session_start
from aeron_async.spark.catalog import CatalogWatch, open_directory, read_recordings
from aeron_async.spark.offsets import Offsets, RecordingOffset
from aeron_async.spark.options import REPLAY
from aeron_async.spark.planning import check_segments, missing_segments, range_of, starting_position
from aeron_async.spark.readable_end import EndCache, ReadableEnds

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange

__all__ = [
    "Follower",
    "LossPolicy",
    "refuse_other",
    "refuse_recreated_archive",
]

log: Final = get_logger(__name__)


@final
class LossPolicy:
    """Raises an error on data loss, or logs each loss once.

    Attributes:
        lost_bytes: Bytes known to be lost so far.
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._logged: set[tuple[int, str, int]] = set()
        self.lost_bytes: int = 0

    def continue_after_purge(self, recording_id: int, position: int, start: int) -> int:
        """Return where to continue if a recording now begins after the position read so far.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = f"purged: it now begins at {start}, so {start - position} bytes are gone"
        self._raise_or_log(recording_id, position, what, "begins there", start - position)
        return start

    def continue_after_rollback(self, recording_id: int, position: int, end: int) -> int:
        """Return where to continue if a recording now ends before the position read so far.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = (
            f"rolled back: it now ends at {end}; it was truncated, or its host lost data that was "
            "not on the disk"
        )
        self._raise_or_log(recording_id, position, what, "continues from that end", 0)
        return end

    def continue_after_rewrite(self, recording_id: int, position: int, start: int) -> int:
        """Return where to continue if part of what was read has been cut off and recorded again.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = (
            f"rolled back: it was cut at {start} or before, and another session has recorded what "
            "follows"
        )
        self._raise_or_log(recording_id, position, what, "reads that too", 0)
        return start

    def report_removal(self, recording_id: int, position: int) -> None:
        """Report a recording that was removed before it was read to its end.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = "removed: the catalog does not have it any more, and it was not read to its end"
        self._raise_or_log(recording_id, position, what, "continues without it", 0)

    def _raise_or_log(
        self, recording_id: int, position: int, what: str, otherwise: str, lost_bytes: int
    ) -> None:
        """Raise an error if the query does not tolerate loss; else log each loss once."""
        if self._fails:
            message = f"{what}; failOnDataLoss=false {otherwise}"
            raise DataLossError(message, recording_id=recording_id, position=position)
        key = (recording_id, what, position)
        if key in self._logged:
            return
        self._logged.add(key)
        self.lost_bytes += lost_bytes
        log.warning(
            "data_lost",
            recording_id=recording_id,
            position=position,
            problem=what,
            lost_bytes=lost_bytes,
        )


def refuse_other(offset: RecordingOffset, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording that has the id of the one read before, but is a different recording.

    Raises:
        DataLossError: The start timestamp or the initial term id differs.
    """
    if offset.is_of(descriptor):
        return
    message = (
        f"another recording has this id: it began at {descriptor.start_timestamp_ms} ms with term "
        f"{descriptor.initial_term_id}, and the one that was read at {offset.start_timestamp_ms} "
        f"ms with term {offset.initial_term_id}; the archive was created again, so change "
        "checkpointLocation"
    )
    raise DataLossError(message, recording_id=descriptor.recording_id, position=offset.position)


def refuse_recreated_archive(gone: tuple[int, int] | None, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording with a low id that began late: an archive never uses an id twice.

    Args:
        gone: Highest id among the removed recordings, and the time in milliseconds when that
            recording began.
        descriptor: A recording that is new to the query.

    Raises:
        DataLossError: The recording belongs to another archive.
    """
    if gone is None or descriptor.recording_id > gone[0]:
        return
    if descriptor.start_timestamp_ms <= gone[1]:
        return
    message = (
        f"it began at {descriptor.start_timestamp_ms} ms, after recording {gone[0]} did at "
        f"{gone[1]} ms, which was read and removed; the archive was created again, so change "
        "checkpointLocation"
    )
    raise DataLossError(
        message, recording_id=descriptor.recording_id, position=descriptor.start_position
    )


@final
class Follower:
    """Follows one archive for one query.

    Args:
        options: Options of the query.
        clock: Times waiting queries and tells whether the archive is alive.

    Raises:
        ConfigurationError: There is no such archive.
    """

    def __init__(self, options: ArchiveOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._directory = open_directory(options, clock=self._clock)
        self._by_message = options.fragment_mode == "message"
        self._catalog = CatalogWatch(self._directory, options)
        ends = ReadableEnds(self._directory, options, clock=self._clock)
        self._end_cache = EndCache(self._directory, ends, by_message=self._by_message)
        self._trigger_delay = TriggerDelay(
            options.min_bytes_per_trigger, options.max_trigger_delay_ms
        )
        self._extended: dict[int, tuple[tuple[int, int], int]] = {}
        self._losses = LossPolicy(fails=options.fail_on_data_loss)
        self._available: Offsets | None = None
        self._target: Offsets | None = None

    def initial(self) -> Offsets:
        """Return the offsets at which a new query begins.

        Raises:
            ConfigurationError: All messages are older than the given time.
            UnknownRecordingError: A recording given by id does not exist.
            DataLossError: A recording lacks the given position, and `failOnDataLoss` is set.
            InvalidPositionError: The given position is in the middle of a frame.
        """
        found = {}
        now_ns = self._look()
        for descriptor in read_recordings(self._directory, self._options).values():
            end = self._end_cache.of(descriptor, now_ns)
            start = starting_position(self._directory, descriptor, self._options, end)
            found[descriptor.recording_id] = RecordingOffset.begun(descriptor, start)
        return Offsets(found)

    def latest(self, start: Offsets, limit: Limit | None) -> Offsets:
        """Return the end of the batch that begins at `start`; `start` itself if nothing is there.

        Args:
            start: Offsets up to which everything was read.
            limit: Limit of the batch; None for everything at once, also before the configured
                minimum is there.

        Raises:
            DataLossError: Data to be read is gone, and `failOnDataLoss` is set.
            ConfigurationError: No source of positions tells where a recording ends.
        """
        now_ns = self._look()
        known = {key: self._known(key, each) for key, each in start.recordings.items()}
        waiting = {}
        for recording_id, descriptor in self._catalog.selected.items():
            offset = known.get(recording_id) or first_offset(descriptor, start)
            end = self._end_cache.of(descriptor, now_ns)
            waiting[recording_id] = self._unread(descriptor, offset, end)
            known[recording_id] = attrs.evolve(offset, position=waiting[recording_id].start)
        ends = {key: each.end for key, each in waiting.items()}
        self._available = self._at(known, ends, start).without_gone(self._catalog.recordings)
        if self._target is not None:
            waiting = until(waiting, self._target)
        elif limit is not None:
            total = sum(each.length for each in waiting.values())
            if not self._trigger_delay.may_read(total, now_ns // NS_PER_MS):
                return start
        boundaries = DiskBoundaries(
            self._directory,
            self._catalog.selected,
            by_message=self._by_message,
            with_padding=self._options.include_padding,
        )
        admitted = admit(waiting, limit or Limit(), boundaries)
        met = {
            key: each
            for key, each in known.items()
            if key in start.recordings or admitted.get(key, 0) > each.position
        }
        found = self._at(met, admitted, start)
        if found.recordings == start.recordings:
            return start
        # Removed recordings alone do not justify a batch, so they are dropped only if there is one.
        return found.without_gone(self._catalog.recordings)

    def freeze(self) -> None:
        """Make the data that is available now the end of the query."""
        now_ns = self._look()
        found = {}
        for recording_id, descriptor in self._catalog.selected.items():
            end = self._end_cache.of(descriptor, now_ns)
            found[recording_id] = RecordingOffset.begun(descriptor, end)
        self._target = Offsets(found)

    def reported(self) -> Offsets | None:
        """Return what was available when the last batch was decided, without reading anything."""
        return self._available

    @property
    def lost_bytes(self) -> int:
        """Return the bytes known to be lost so far, if the query tolerates loss."""
        return self._losses.lost_bytes

    def ranges(self, start: Offsets, end: Offsets) -> list[RecordingRange]:
        """Return the ranges between two offsets.

        Raises:
            DataLossError: Part of a range is gone, and `failOnDataLoss` is set.
        """
        self._catalog.look()
        found = []
        for recording_id, offset in end.recordings.items():
            before = start.recordings.get(recording_id)
            position = offset.first if before is None else before.position
            part = self._range(recording_id, offset, position)
            if part is not None:
                found.append(part)
        return found

    def _look(self) -> int:
        self._catalog.look()
        self._end_cache.invalidate()
        return self._clock.now_ns()

    def _known(self, recording_id: int, offset: RecordingOffset) -> RecordingOffset:
        """Return the offset of a recording, checked to be the same recording and still present."""
        descriptor = self._catalog.recordings.get(recording_id)
        if descriptor is not None:
            refuse_other(offset, descriptor)
            return offset
        if not offset.is_done:
            self._losses.report_removal(recording_id, offset.position)
        return attrs.evolve(offset, is_done=True)

    def _unread(
        self, descriptor: RecordingDescriptor, offset: RecordingOffset, end: int
    ) -> UnreadRange:
        """Return the range of a recording that is still to be read, adjusted for lost data."""
        recording_id, position = descriptor.recording_id, offset.position
        if position < descriptor.start_position:
            position = self._losses.continue_after_purge(
                recording_id, position, descriptor.start_position
            )
        rewritten_at = self._rewritten_from(descriptor, offset, min(position, end))
        if rewritten_at is not None:
            # This batch reads nothing of the recording and the next one reads everything from
            # `rewritten_at`: a batch is what lies behind the previous offset.
            position = end = self._losses.continue_after_rewrite(
                recording_id, position, rewritten_at
            )
        elif end < position and not self._end_cache.holds(descriptor, position):
            position = self._losses.continue_after_rollback(recording_id, position, end)
        # An empty range if the readable end is behind what was read: it will catch up.
        return UnreadRange(position, max(end, position), descriptor.term_length)

    def _rewritten_from(
        self, descriptor: RecordingDescriptor, offset: RecordingOffset, position: int
    ) -> int | None:
        """Return from where another session recorded again what was read; None if none did."""
        if offset.session_id in {None, descriptor.session_id} or position <= 0:
            return None
        if self._options.access == REPLAY:
            # Frames of a replay carry the session of the replay.
            return None
        known = self._extended.get(descriptor.recording_id)
        key = descriptor.session_id, position
        if known is None or known[0] != key:
            known = key, session_start(self._directory, descriptor, position)
            self._extended[descriptor.recording_id] = known
        return known[1] if known[1] < position else None

    def _at(
        self, known: dict[int, RecordingOffset], positions: dict[int, int], start: Offsets
    ) -> Offsets:
        """Return offsets at the given positions, based on those of `start`."""
        found = {}
        for recording_id, offset in known.items():
            position = positions.get(recording_id)
            if position is None:
                found[recording_id] = offset
                continue
            descriptor = self._catalog.selected[recording_id]
            # The end of a stopped recording does not depend on the time, so 0 will do.
            is_done = not descriptor.is_active and position >= self._end_cache.of(descriptor, 0)
            session_id = descriptor.session_id if position != offset.position else offset.session_id
            found[recording_id] = attrs.evolve(
                offset, position=position, is_done=is_done, session_id=session_id
            )
        return Offsets(found, gone=start.gone)

    def _range(
        self, recording_id: int, offset: RecordingOffset, start: int
    ) -> RecordingRange | None:
        end = offset.position
        if end <= start:
            return None
        descriptor = self._catalog.recordings.get(recording_id)
        if descriptor is None:
            self._losses.report_removal(recording_id, start)
            return None
        refuse_other(offset, descriptor)
        if start < descriptor.start_position:
            start = self._losses.continue_after_purge(
                recording_id, start, descriptor.start_position
            )
        if not descriptor.is_active and end > descriptor.stop_position:
            end = self._losses.continue_after_rollback(recording_id, end, descriptor.stop_position)
        if end <= start:
            return None
        part = range_of(self._directory, descriptor, self._options, start=start, end=end)
        check_segments(part, self._present(part), self._options)
        return part

    def _present(self, part: RecordingRange) -> list[str]:
        """Return which files of a range exist; no other file is looked up."""
        return [name for _, name in missing_segments(part, set()) if self._is_there(name)]

    def _is_there(self, name: str) -> bool:
        try:
            self._directory.modified_ms(name)
        except FileNotFoundError:
            return False
        return True


def first_offset(descriptor: RecordingDescriptor, start: Offsets) -> RecordingOffset:
    """Return the offset of a recording that is new to the query.

    Raises:
        DataLossError: The archive was deleted and created again.
    """
    refuse_recreated_archive(start.gone, descriptor)
    return RecordingOffset.begun(descriptor, descriptor.start_position)


def until(waiting: dict[int, UnreadRange], target: Offsets) -> dict[int, UnreadRange]:
    """Limit what is to be read to a target."""
    found = {}
    for recording_id, each in waiting.items():
        last = target.recordings.get(recording_id)
        # An empty range if the recording is not in the target.
        end = each.start if last is None else max(min(each.end, last.position), each.start)
        found[recording_id] = attrs.evolve(each, end=end)
    return found
