"""Recordings of an archive as a stream: where each micro-batch ends, and what it reads.

This module does not depend on Spark. `latest` decides the end of a batch, once. The ranges between
its start and its end follow from the offsets alone, because Spark may ask for them again after a
restart and must then read the same data again.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, final

import attrs

from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.spark.admission import Limit, TriggerDelay, UnreadRange, admit
from aeron_async.spark.boundaries import DiskBoundaries, session_start
from aeron_async.spark.catalog import CatalogWatch, open_directory
from aeron_async.spark.frame_finder import has_checksums
from aeron_async.spark.losses import (
    LossPolicy,
    is_extended,
    refuse_other,
    refuse_recreated_archive,
)
from aeron_async.spark.offsets import IdRanges, Offsets, RecordingOffset
from aeron_async.spark.option_values import EARLIEST
from aeron_async.spark.options import REPLAY
from aeron_async.spark.planning import check_segments, starting_position
from aeron_async.spark.ranges import RecordingRange
from aeron_async.spark.readable_end import EndCache, ReadableEnds

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["Follower"]


@final
@attrs.frozen
class Idle:
    """A look at the archive that found nothing to read.

    Attributes:
        start: Offsets up to which everything had been read.
        counted: Positions that counters showed.
    """

    start: Offsets
    counted: Mapping[int, int]


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
        # Offsets that the following belongs to: recordings that are not read to their ends, which
        # of them are active, those that have changed meanwhile, those that were removed, and where
        # recordings ended that the offsets may not list any more.
        self._at: Offsets | None = None
        self._open: set[int] = set()
        self._active: set[int] = set()
        self._missed: set[int] = set()
        self._removed: set[int] = set()
        self._ended: dict[int, int] = {}
        self._idle: Idle | None = None
        # What the counters showed of recordings that were read as far as that.
        self._resting: dict[int, int] = {}
        # When active recordings got less than they had, by turns; see `admission`.
        self._turns: dict[int, int] = {}
        self._available: tuple[Offsets, dict[int, UnreadRange]] | None = None
        self._reported: Offsets | None = None
        self._target: dict[int, int] | None = None

    def initial(self) -> Offsets:
        """Return the offsets at which a new query begins.

        Raises:
            ConfigurationError: All messages are older than the given time.
            UnknownRecordingError: A recording given by id does not exist.
            DataLossError: A recording lacks the given position, and `failOnDataLoss` is set.
            InvalidPositionError: The given position is in the middle of a frame.
        """
        self._missed, now_ns = self._look()
        self._catalog.check_named()
        listed = {}
        new = []
        for recording_id, each in self._catalog.selected.items():
            position = each.start_position
            if not begins_at_start(self._options, recording_id):
                end = self._end_cache.of(each, now_ns)
                given = self._options.starting_positions.of(recording_id)
                if end < given and self._end_cache.holds(each, given):
                    # Who was there before knew that, and what is behind it will catch up.
                    end = given
                position = starting_position(self._directory, each, self._options, end)
                if not each.is_active and position >= end and not is_extended(each):
                    self._ended[recording_id] = end
                    continue
            if position:
                listed[recording_id] = RecordingOffset.of(each, position)
            else:
                new.append(recording_id)
        return self._offsets(Offsets(), listed, new, self._catalog.selected)

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
        changed, now_ns = self._look()
        idle, self._idle = self._idle, None
        if idle and idle.start is start and not changed and self._is_quiet(idle):
            self._idle = idle
            return start
        self._follow(start, changed)
        unread = {
            each: self._unread(self._catalog.selected[each], start, now_ns)
            for each in sorted(
                self._moved(changed), key=lambda each: (self._turns.get(each, 0), each)
            )
        }
        self._available, self._reported = (start, unread), None
        waiting = unread
        if self._target is not None:
            waiting = until(unread, self._target)
        elif limit is not None:
            total = sum(each.length for each in waiting.values())
            if not self._trigger_delay.may_read(total, now_ns // NS_PER_MS):
                return start
        boundaries = FollowedBoundaries(self.boundaries(), self._end_cache, now_ns)
        ends = {key: each.start for key, each in unread.items()}
        admitted = admit(waiting, limit or Limit(), boundaries)
        found = self._after(start, unread, ends | admitted, boundaries.known)
        self._rest(unread, ends | admitted, boundaries.known)
        if found is None:
            self._idle = Idle(start, self._end_cache.counted())
            return start
        self._take_turns(waiting, admitted)
        self._at = found
        self._active = {each for each in self._active if not found.is_done(each)}
        self._open = {each for each in self._open if not found.is_done(each)}
        return found

    def freeze(self) -> None:
        """Make the data that is available now the end of the query."""
        self._missed, now_ns = self._look()
        self._target = {
            key: self._end_cache.of(each, now_ns) if each.is_active else each.stop_position
            for key, each in self._catalog.selected.items()
        }

    def reported(self) -> Offsets | None:
        """Return what was available when the last batch was decided, without reading anything."""
        if self._available is None or self._reported is not None:
            return self._reported
        start, unread = self._available
        listed = {key: each for key, each in start.recordings.items() if not each.is_done}
        for key, each in unread.items():
            descriptor = self._catalog.selected.get(key)
            if each.length and descriptor is not None:
                listed[key] = RecordingOffset.of(descriptor, each.end, first=each.start)
        self._reported = attrs.evolve(start, recordings=listed, cut=None)
        return self._reported

    @property
    def lost_bytes(self) -> int:
        """Return the bytes known to be lost so far, if the query tolerates loss."""
        return self._losses.lost_bytes

    def ranges(self, start: Offsets, end: Offsets) -> list[RecordingRange]:
        """Return the ranges between two offsets.

        Raises:
            DataLossError: Part of a range is gone, and `failOnDataLoss` is set.
        """
        self._missed |= self._catalog.look()
        found: list[RecordingRange] = []
        for recording_id, offset in end.recordings.items():
            before = start.recordings.get(recording_id)
            position = offset.first if before is None else before.position
            if position is not None and offset.position > position:
                part = self._range(recording_id, offset, position)
                found += () if part is None else (part,)
        check_segments(self._directory, found, self._options)
        return found

    def boundaries(self) -> DiskBoundaries:
        """Return the ends of messages in the files."""
        return DiskBoundaries(
            self._directory,
            self._catalog.selected,
            by_message=self._by_message,
            with_padding=self._options.include_padding,
        )

    def _look(self) -> tuple[set[int], int]:
        """Look at the archive again; return the recordings that have changed, and the time."""
        changed = self._catalog.look() | self._missed
        self._missed = set()
        self._end_cache.invalidate()
        return changed, self._clock.now_ns()

    def _is_quiet(self, idle: Idle) -> bool:
        """Return whether no recording has grown since a look that found nothing to read."""
        counted = self._end_cache.counted()
        if counted is not idle.counted:
            return False
        return all(each in counted for each in self._active)

    def _moved(self, changed: set[int]) -> Iterable[int]:
        """Return the recordings of which there may be more to read than at the last look."""
        counted = self._end_cache.counted()
        resting = self._resting
        for each in changed:
            resting.pop(each, None)
        return [each for each in self._open if resting.get(each, -1) != counted.get(each, -2)]

    def _rest(
        self, unread: Mapping[int, UnreadRange], ends: Mapping[int, int], known: Mapping[int, int]
    ) -> None:
        """Take note of the recordings that have been read as far as their counters tell."""
        counted = self._end_cache.counted()
        for recording_id, each in unread.items():
            if recording_id in counted and ends[recording_id] == known.get(recording_id, each.end):
                self._resting[recording_id] = counted[recording_id]

    def _follow(self, start: Offsets, changed: set[int]) -> None:
        """Determine the recordings that are not read to their ends.

        Raises:
            DataLossError: One was removed, or is another one now, and `failOnDataLoss` is set.
        """
        known, self._at = self._at, None
        if known is not start and known != start:
            self._open, self._removed, self._resting = set(), set(), {}
            changed = {*self._catalog.selected, *start.recordings, *start.new}
        recordings, selected = self._catalog.recordings, self._catalog.selected
        for recording_id in sorted(changed):
            descriptor = recordings.get(recording_id)
            self._open.discard(recording_id)
            if descriptor is None:
                self._remove(recording_id, start)
                continue
            offset = start.recordings.get(recording_id)
            if offset is not None:
                refuse_other(offset, descriptor)
            if recording_id in selected:
                refuse_recreated_archive(start, descriptor)
                if self._goes_on(descriptor, start):
                    self._open.add(recording_id)
        if changed:
            self._active = {each for each in self._open if recordings[each].is_active}
        self._at = start

    def _remove(self, recording_id: int, start: Offsets) -> None:
        """Take note of a recording that the catalog does not have any more."""
        self._ended.pop(recording_id, None)
        offset = start.recordings.get(recording_id)
        if recording_id in start.new or (offset is not None and not offset.is_done):
            self._losses.report_removal(recording_id, 0 if offset is None else offset.position)
            self._removed.add(recording_id)

    def _goes_on(self, descriptor: RecordingDescriptor, start: Offsets) -> bool:
        """Return whether a recording may have more than what was read."""
        if not start.is_done(descriptor.recording_id) or descriptor.is_active:
            return True
        offset = start.recordings.get(descriptor.recording_id)
        read = self._ended.get(descriptor.recording_id) if offset is None else offset.position
        return is_extended(descriptor) if read is None else read != descriptor.stop_position

    def _position(self, descriptor: RecordingDescriptor, start: Offsets, end: int) -> int:
        """Return up to where a recording that ends at `end` was read, in bytes."""
        recording_id = descriptor.recording_id
        offset = start.recordings.get(recording_id)
        if offset is not None:
            return offset.position
        if recording_id in start.new:
            return 0
        if recording_id not in start.met:
            return descriptor.start_position
        # It was read to its end some time ago, and has been extended since.
        found = self._ended.get(recording_id)
        if found is None:
            found = self._ended[recording_id] = self._extended_from(descriptor, end)
        return found

    def _extended_from(self, descriptor: RecordingDescriptor, end: int) -> int:
        """Return where the last session of a recording began, which was read up to there."""
        start = descriptor.start_position
        if self._options.access != REPLAY:
            # Not the readable end: of frames that were read, some may not be trusted any more.
            end = self._end_cache.end_of_frames(descriptor, end)
            found = session_start(self._directory, descriptor, end)
            # The frame before the end may be of another session: then nothing was recorded since.
            is_other = found == end and not has_checksums(self._directory, descriptor, start, end)
            if start < found < end or is_other:
                return found
        return self._losses.continue_after_extension(descriptor.recording_id, start, end)

    def _unread(self, descriptor: RecordingDescriptor, start: Offsets, now_ns: int) -> UnreadRange:
        """Return the range of a recording that is still to be read, adjusted for lost data."""
        recording_id = descriptor.recording_id
        end = self._end_cache.reach(descriptor, now_ns)
        position = self._position(descriptor, start, end)
        if position < descriptor.start_position:
            position = self._losses.continue_after_purge(
                recording_id, position, descriptor.start_position
            )
        rewritten_at = self._rewritten_from(
            descriptor, start.recordings.get(recording_id), min(position, end)
        )
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
        self, descriptor: RecordingDescriptor, offset: RecordingOffset | None, position: int
    ) -> int | None:
        """Return from where another session recorded again what was read; None if none did."""
        if offset is None or position <= 0 or offset.is_of_session(descriptor.session_id):
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

    def _after(
        self,
        start: Offsets,
        unread: dict[int, UnreadRange],
        ends: dict[int, int],
        known: dict[int, int],
    ) -> Offsets | None:
        """Return the offsets behind a batch; None if they would be those at its start.

        Args:
            start: Offsets at its start.
            unread: What there was to read.
            ends: Up to where each of these recordings is read.
            known: Readable ends, as far as they had to be found out.
        """
        listed, new, is_changed = self._kept(start, unread)
        for recording_id, each in unread.items():
            descriptor, end = self._catalog.selected[recording_id], ends[recording_id]
            offset = start.recordings.get(recording_id)
            is_read = end >= known.get(recording_id, descriptor.stop_position)
            is_done = is_read and not descriptor.is_active
            position = self._position(descriptor, start, end)
            if offset is not None:
                is_same = (end, is_done) == (offset.position, offset.is_done)
                is_changed = is_changed or not is_same
                listed[recording_id] = (
                    offset.stays(is_done=is_done)
                    if end == position
                    else RecordingOffset.of(descriptor, end, is_done=is_done)
                )
            elif end != position or (start.is_done(recording_id) and not is_done):
                is_changed = True
                first = min(position, end)
                listed[recording_id] = RecordingOffset.of(
                    descriptor, end, first=first, is_done=is_done
                )
            elif recording_id in start.new and not is_done:
                new.append(recording_id)
            elif recording_id in start.new:
                is_changed = True
                self._ended[recording_id] = end
            elif recording_id not in start.met and each.length:
                if position:
                    listed[recording_id] = RecordingOffset.of(descriptor, position, first=position)
                else:
                    new.append(recording_id)
        if not is_changed:
            return None
        self._ended.update((key, each.position) for key, each in listed.items() if each.is_done)
        return self._offsets(start, listed, new, listed.keys() | set(new))

    def _kept(
        self, start: Offsets, unread: Container[int]
    ) -> tuple[dict[int, RecordingOffset], list[int], bool]:
        """Return what is listed and new of recordings that are not looked at, and any removal.

        One that was read to its end is not listed again, unless it could be taken for one that was
        extended only after that.
        """
        listed = {}
        for key, each in start.recordings.items():
            descriptor = self._catalog.recordings.get(key)
            if key in unread or descriptor is None:
                continue
            if each.is_done:
                self._ended[key] = each.position
            if not each.is_done or is_extended(descriptor):
                listed[key] = each.stays(is_done=each.is_done)
        new = [each for each in start.new if each not in unread and each not in self._removed]
        return listed, new, bool(self._removed)

    def _offsets(
        self,
        start: Offsets,
        listed: dict[int, RecordingOffset],
        new: Iterable[int],
        met: Collection[int],
    ) -> Offsets:
        """Return offsets that follow others; `met` are recordings that may be new to the query."""
        self._removed = set()
        added = [each for each in met if each not in start.met]
        spans = []
        if added:
            # No recording will ever have an id that was left out before another one.
            ids = list(self._catalog.recordings)
            for each in added:
                place = bisect_left(ids, each)
                spans.append((ids[place - 1] + 1 if place else 0, each + 1))
        began = [self._catalog.recordings[each].start_timestamp_ms for each in added]
        return Offsets(
            listed,
            None,
            start.met.with_spans(spans),
            IdRanges().with_spans((each, each + 1) for each in new),
            max([start.newest_ms, *began]),
        )

    def _take_turns(self, waiting: Mapping[int, UnreadRange], admitted: Mapping[int, int]) -> None:
        """Let active recordings wait behind the others that got less than they had."""
        turn = max(self._turns.values(), default=0) + 1
        for recording_id, end in admitted.items():
            self._turns.pop(recording_id, None)
            is_active = self._catalog.selected[recording_id].is_active
            if is_active and end < waiting[recording_id].end:
                self._turns[recording_id] = turn

    def _range(
        self, recording_id: int, offset: RecordingOffset, start: int
    ) -> RecordingRange | None:
        end = offset.position
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
        is_replayed = self._options.access == REPLAY
        return RecordingRange(descriptor, start, end, is_replayed=is_replayed)


@final
class FollowedBoundaries:
    """Ends of messages of the recordings that a query follows; see `Boundaries`.

    Attributes:
        known: Readable ends that were found out.
    """

    def __init__(self, disk: DiskBoundaries, ends: EndCache, now_ns: int) -> None:
        self._disk = disk
        self._ends = ends
        self._now_ns = now_ns
        self.last_end = disk.last_end
        self.first_end = disk.first_end
        self.end_of_rows = disk.end_of_rows
        self.known: dict[int, int] = {}

    def readable_end(self, recording_id: int, start: int, end: int) -> int:
        """Return the end of the last message that may be read; `start` if there is none."""
        descriptor = self._disk.recordings[recording_id]
        if end < self._ends.reach(descriptor, self._now_ns):
            return self._disk.last_end(recording_id, start, end)
        self.known[recording_id] = max(self._ends.of(descriptor, self._now_ns), start)
        return self.known[recording_id]


def begins_at_start(options: ArchiveOptions, recording_id: int) -> bool:
    """Return whether a new query reads a recording from its start, wherever that is."""
    is_by_time = options.starting_timestamp is not None or (
        recording_id in options.starting_offsets_by_timestamp
    )
    return not is_by_time and options.starting_positions.of(recording_id) == EARLIEST


def until(waiting: Mapping[int, UnreadRange], target: Mapping[int, int]) -> dict[int, UnreadRange]:
    """Limit what is to be read to a target."""
    found = {}
    for recording_id, each in waiting.items():
        # An empty range if the recording is not in the target.
        end = max(min(each.end, target.get(recording_id, each.start)), each.start)
        found[recording_id] = attrs.evolve(each, end=end)
    return found
