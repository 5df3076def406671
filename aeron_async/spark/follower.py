"""The recordings of an archive as a stream: the end of each micro-batch, and lost data.

An archive that was made anew is an error in any case: positions of other recordings say nothing.

Knows nothing of Spark. The end of a batch is decided in `latest`, once; which ranges lie between
its start and its end is in the offsets alone, for Spark may ask for them again after a restart, and
what was read must be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.errors import DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.admission import Limit, Patience, Waiting, admit
from aeron_async.spark.boundaries import DiskBoundaries, session_start
from aeron_async.spark.catalog import CatalogWatch, open_directory, read_recordings
from aeron_async.spark.offsets import Offsets, RecordingOffset
from aeron_async.spark.options import REPLAY
from aeron_async.spark.planning import check_segments, missing_segments, range_of, starting_position
from aeron_async.spark.readable_end import SafeEnds, Tails

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange

__all__ = [
    "Follower",
    "LossPolicy",
    "refuse_other",
    "refuse_reborn",
]

log: Final = get_logger(__name__)


@final
class LossPolicy:
    """Fails on data loss, or logs it once.

    Args:
        fails: The option `failOnDataLoss`.

    Attributes:
        lost_bytes: What is known to be lost so far.
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[tuple[int, str, int]] = set()
        self.lost_bytes: int = 0

    def purged(self, recording_id: int, position: int, start: int) -> int:
        """Return where to go on when a recording begins later than it was read to.

        Raises:
            DataLossError: It is not to be skipped.
        """
        what = f"purged: it begins at {start} by now, so {start - position} bytes are gone"
        self._tell(recording_id, position, what, "begins there", start - position)
        return start

    def rolled_back(self, recording_id: int, position: int, end: int) -> int:
        """Return where to go on when a recording ends before what was read of it.

        Raises:
            DataLossError: It is not to be taken for granted.
        """
        what = (
            f"rolled back: it ends at {end} by now, for it was truncated, or its host lost what "
            "was not on the disk"
        )
        self._tell(recording_id, position, what, "goes on from that end", 0)
        return end

    def rewritten(self, recording_id: int, position: int, start: int) -> int:
        """Return where to go on when what was read of a recording has been recorded anew.

        Raises:
            DataLossError: It is not to be taken for granted.
        """
        what = (
            f"rolled back: it was cut at {start} or before, and another session has recorded what "
            "follows"
        )
        self._tell(recording_id, position, what, "reads that too", 0)
        return start

    def removed(self, recording_id: int, position: int) -> None:
        """Let a recording go that was not read to its end.

        Raises:
            DataLossError: It is not to be let go.
        """
        what = "removed: the catalog does not have it any more, and it was not read to its end"
        self._tell(recording_id, position, what, "goes on without it", 0)

    def _tell(
        self, recording_id: int, position: int, what: str, otherwise: str, lost_bytes: int
    ) -> None:
        if self._fails:
            message = f"{what}; failOnDataLoss=false {otherwise}"
            raise DataLossError(message, recording_id=recording_id, position=position)
        key = (recording_id, what, position)
        if key in self._told:
            return
        self._told.add(key)
        self.lost_bytes += lost_bytes
        log.warning(
            "data_lost",
            recording_id=recording_id,
            position=position,
            problem=what,
            lost_bytes=lost_bytes,
        )


def refuse_other(offset: RecordingOffset, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording that has the id of another one.

    Raises:
        DataLossError: It is another.
    """
    if offset.is_of(descriptor):
        return
    message = (
        f"another recording has this id: it began at {descriptor.start_timestamp_ms} ms with term "
        f"{descriptor.initial_term_id}, and the one that was read at {offset.start_timestamp_ms} "
        f"ms with term {offset.initial_term_id}; the archive was made anew, so change "
        "checkpointLocation"
    )
    raise DataLossError(message, recording_id=descriptor.recording_id, position=offset.position)


def refuse_reborn(gone: tuple[int, int] | None, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording whose id is too low for one that began so late: ids are never used again.

    Args:
        gone: The highest id of those that were read and removed, and when that recording began.
        descriptor: Of a recording that was not met before.

    Raises:
        DataLossError: It is one of another archive.
    """
    if gone is None or descriptor.recording_id > gone[0]:
        return
    if descriptor.start_timestamp_ms <= gone[1]:
        return
    message = (
        f"it began at {descriptor.start_timestamp_ms} ms, after recording {gone[0]} did at "
        f"{gone[1]} ms, which was read and removed; the archive was made anew, so change "
        "checkpointLocation"
    )
    raise DataLossError(
        message, recording_id=descriptor.recording_id, position=descriptor.start_position
    )


@final
class Follower:
    """Follows one archive for one query.

    Args:
        options: Of the query.
        clock: For what may wait, and whether an archive is alive.

    Raises:
        ConfigurationError: There is no such archive.
    """

    def __init__(self, options: ArchiveOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._directory = open_directory(options, clock=self._clock)
        self._by_message = options.fragment_mode == "message"
        self._catalog = CatalogWatch(self._directory, options)
        ends = SafeEnds(self._directory, options, clock=self._clock)
        self._tails = Tails(self._directory, ends, by_message=self._by_message)
        self._patience = Patience(options.min_bytes_per_trigger, options.max_trigger_delay_ms)
        self._extended: dict[int, tuple[tuple[int, int], int]] = {}
        self._losses = LossPolicy(fails=options.fail_on_data_loss)
        self._available: Offsets | None = None
        self._target: Offsets | None = None

    def initial(self) -> Offsets:
        """Return where a new query begins.

        Raises:
            ConfigurationError: No message is as young as the time that was given.
            UnknownRecordingError: One that is named by its id is not there.
            DataLossError: It begins later by now, and that is not to be skipped.
            InvalidPositionError: The position is in the middle of a frame.
        """
        found = {}
        now_ns = self._look()
        for descriptor in read_recordings(self._directory, self._options).values():
            end = self._tails.of(descriptor, now_ns)
            start = starting_position(self._directory, descriptor, self._options, end)
            found[descriptor.recording_id] = RecordingOffset.begun(descriptor, start)
        return Offsets(found)

    def latest(self, start: Offsets, limit: Limit | None) -> Offsets:
        """Return the end of the batch that begins there; the start if there is nothing to read.

        Args:
            start: Up to where everything was read.
            limit: Of the batch; None for everything at once, whatever the options say.

        Raises:
            DataLossError: What is to be read is not there, and that is not to be skipped.
            ConfigurationError: Nobody says where recordings end.
        """
        now_ns = self._look()
        known = {key: self._known(key, each) for key, each in start.recordings.items()}
        waiting = {}
        for recording_id, descriptor in self._catalog.selected.items():
            offset = known.get(recording_id) or begun(descriptor, start)
            end = self._tails.of(descriptor, now_ns)
            waiting[recording_id] = self._waiting(descriptor, offset, end)
            known[recording_id] = attrs.evolve(offset, position=waiting[recording_id].start)
        ends = {key: each.end for key, each in waiting.items()}
        self._available = self._at(known, ends, start).without_gone(self._catalog.recordings)
        if self._target is not None:
            waiting = until(waiting, self._target)
        elif limit is not None:
            total = sum(each.length for each in waiting.values())
            if not self._patience.is_over(total, now_ns // NS_PER_MS):
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
        # Only then: a batch is not made for that alone.
        return found.without_gone(self._catalog.recordings)

    def freeze(self) -> None:
        """Let what is there now be all there will ever be."""
        now_ns = self._look()
        found = {}
        for recording_id, descriptor in self._catalog.selected.items():
            end = self._tails.of(descriptor, now_ns)
            found[recording_id] = RecordingOffset.begun(descriptor, end)
        self._target = Offsets(found)

    def reported(self) -> Offsets | None:
        """Return what there was to be read when the last batch was decided; looks at nothing."""
        return self._available

    @property
    def lost_bytes(self) -> int:
        """Return what is known to be lost so far, where that is no error."""
        return self._losses.lost_bytes

    def ranges(self, start: Offsets, end: Offsets) -> list[RecordingRange]:
        """Return what lies between two offsets.

        Raises:
            DataLossError: Something of it is not there, and that is not to be skipped.
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
        self._tails.look()
        return self._clock.now_ns()

    def _known(self, recording_id: int, offset: RecordingOffset) -> RecordingOffset:
        """Return the offset of a recording, which is checked to be that one, and to be there."""
        descriptor = self._catalog.recordings.get(recording_id)
        if descriptor is not None:
            refuse_other(offset, descriptor)
            return offset
        if not offset.is_done:
            self._losses.removed(recording_id, offset.position)
        return attrs.evolve(offset, is_done=True)

    def _waiting(
        self, descriptor: RecordingDescriptor, offset: RecordingOffset, end: int
    ) -> Waiting:
        """Return what of a recording is to be read, wherever it begins and ends by now."""
        recording_id, position = descriptor.recording_id, offset.position
        if position < descriptor.start_position:
            position = self._losses.purged(recording_id, position, descriptor.start_position)
        anew = self._rewritten_from(descriptor, offset, min(position, end))
        if anew is not None:
            # Nothing is read with this batch, and all from there with the next one: a batch is
            # what lies behind the offset before.
            position = end = self._losses.rewritten(recording_id, position, anew)
        elif end < position and not self._tails.holds(descriptor, position):
            position = self._losses.rolled_back(recording_id, position, end)
        return Waiting(position, max(end, position), descriptor.term_length)

    def _rewritten_from(
        self, descriptor: RecordingDescriptor, offset: RecordingOffset, position: int
    ) -> int | None:
        """Return from where on a session has recorded again what was read; None if none has."""
        if offset.session_id in {None, descriptor.session_id} or position <= 0:
            return None
        if self._options.access == REPLAY:
            # What is replayed has the session of its replay.
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
        """Return offsets with those positions, which follow on others."""
        found = {}
        for recording_id, offset in known.items():
            position = positions.get(recording_id)
            if position is None:
                found[recording_id] = offset
                continue
            descriptor = self._catalog.selected[recording_id]
            is_done = not descriptor.is_active and position >= self._tails.of(descriptor, 0)
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
            self._losses.removed(recording_id, start)
            return None
        refuse_other(offset, descriptor)
        if start < descriptor.start_position:
            start = self._losses.purged(recording_id, start, descriptor.start_position)
        if not descriptor.is_active and end > descriptor.stop_position:
            end = self._losses.rolled_back(recording_id, end, descriptor.stop_position)
        if end <= start:
            return None
        part = range_of(self._directory, descriptor, self._options, start=start, end=end)
        check_segments(part, self._present(part), self._options)
        return part

    def _present(self, part: RecordingRange) -> list[str]:
        """Return which of the files of a range are there; others are not looked for."""
        return [name for _, name in missing_segments(part, set()) if self._is_there(name)]

    def _is_there(self, name: str) -> bool:
        try:
            self._directory.modified_ms(name)
        except FileNotFoundError:
            return False
        return True


def begun(descriptor: RecordingDescriptor, start: Offsets) -> RecordingOffset:
    """Return the offset of a recording that was not met before.

    Raises:
        DataLossError: The archive was made anew.
    """
    refuse_reborn(start.gone, descriptor)
    return RecordingOffset.begun(descriptor, descriptor.start_position)


def until(waiting: dict[int, Waiting], target: Offsets) -> dict[int, Waiting]:
    """Return what is to be read up to a target, and nothing of what came later."""
    found = {}
    for recording_id, each in waiting.items():
        last = target.recordings.get(recording_id)
        end = each.start if last is None else max(min(each.end, last.position), each.start)
        found[recording_id] = attrs.evolve(each, end=end)
    return found
