"""Readable end of each recording: the position up to which a query may read it.

A recording that has stopped ends where the catalog says. For an active one, a live archive knows
its position best, then the counters of the archive's driver. If neither can be asked, the frames in
the files determine the end.

| question | who answers |
|---|---|
| What proves that a recording grows? | `Growth` |
| Up to where may it be read? | `ReadableEnds` |
| Is the end found last still the end? | `EndCache`, which asks the two above if it must |

A waiting query asks again every few milliseconds. Therefore an end is cached until the counter of
the recording moves; all counters are one read. Without a counter, it is cached until a frame header
appears behind the last known frame, which is one small read for each recording. If frames are there
that may not be read yet, the end is also determined again after a while, because the archive may
lag behind the files, or the writer may have died. That interval starts short and doubles each time
that nothing has changed.

Source: Aeron `RecordingPos`.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.mark_file import read_mark_file
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, ScanBuffer, find_end
from aeron_async.archive.disk.segments import segment_name, term_base
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, SystemClock
from aeron_async.errors import ArchiveError, ConfigurationError, DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.boundaries import (
    DiskBoundaries,
    ends_message,
    is_alive,
    last_message_end,
    scanned_end,
    whole_end,
)
from aeron_async.spark.catalog import LiveDirectory
from aeron_async.spark.position_counters import PositionCounters
from aeron_async.spark.segment_names import SegmentNames, is_there

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory
    from aeron_async.archive.disk.mark_file import MarkFileHeader
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "GRACE_NS",
    "LONGEST_WAIT_NS",
    "SHORTEST_WAIT_NS",
    "EndCache",
    "Ends",
    "Growth",
    "ReadableEnds",
]

LENGTH_SIZE: Final = 4


@final
class Growth:
    """Frames before it is known whether they may be read: as a live archive says, or the files."""

    def __init__(self, directory: ReadableDirectory) -> None:
        self._directory = directory
        self._live = directory if isinstance(directory, LiveDirectory) else None
        self._buffer = ScanBuffer()

    def has_frame(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether a frame begins at a position that is the end of another frame."""
        if self._live is not None:
            return self._live.recorded(descriptor) > position
        base = descriptor.segment_base(position)
        length = memoryview(bytearray(LENGTH_SIZE))
        try:
            file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return False
        try:
            read_exactly(file, length, position - base)
        finally:
            file.close()
        return any(length)

    def end_of_frames(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return the end of the last frame that is present, starting at a frame."""
        if self._live is not None:
            return max(self._live.recorded(descriptor), position)
        while True:
            base = descriptor.segment_base(position)
            try:
                file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
            except FileNotFoundError:
                return position
            try:
                end = base + find_end(file, position - base, self._buffer)
            finally:
                file.close()
            if end < base + descriptor.segment_length:
                return end
            position = end


log: Final = get_logger(__name__)
NO_COUNTERS: Final[Mapping[int, int]] = MappingProxyType({})


@final
class ReadableEnds:
    """Determines up to where each recording may be read.

    Positions stay cached until `invalidate` is called. A search walks the files from the last known
    end on, so a query that asks often does not read the same frames often.

    Args:
        directory: Directory of the archive.
        options: `positionSource`, `safetyLagBytes` and the options that these need.
        clock: Tells whether an archive is alive.
    """

    def __init__(
        self, directory: ReadableDirectory, options: ArchiveOptions, *, clock: Clock | None = None
    ) -> None:
        self._directory = directory
        self._options = options
        self._clock = clock or SystemClock()
        self._known: dict[int, tuple[int, int]] = {}
        # What the archive has answered, and what the counters of its driver show.
        self._asked_positions: dict[int, int] = {}
        self._counters = PositionCounters()
        self._counter_positions: Mapping[int, int] | None = None
        self._live = directory if isinstance(directory, LiveDirectory) else None
        self._asks_counters = self._live is None and (
            options.position_source == "counter"
            or (options.position_source == "auto" and not options.archive_control_channel)
        )
        self._names: SegmentNames | None = None
        self._is_alive: bool | None = None

    def invalidate(self) -> None:
        """Discard the cached positions, and the names of files."""
        self._asked_positions.clear()
        self._counter_positions = None
        self._names = self._is_alive = None

    def counted(self) -> Mapping[int, int]:
        """Return the positions that the driver's counters show, if they tell where recordings end.

        It is the same object as before if nothing has changed since.
        """
        return self._counted() if self._asks_counters else NO_COUNTERS

    def of(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording may be read, in bytes.

        Raises:
            ConfigurationError: The chosen `positionSource` does not know the recording.
            DataLossError: The frames at its end are damaged, and `failOnDataLoss` is set.
        """
        if not descriptor.is_active:
            return descriptor.stop_position
        end = self._end_where_there_are_files(descriptor)
        # An end never moves back: a reader may already have read up to it.
        end = max(end, self._known_end(descriptor) or descriptor.start_position)
        self._known[descriptor.recording_id] = descriptor.session_id, end
        return end

    def _known_end(self, descriptor: RecordingDescriptor) -> int | None:
        """Return the cached end, unless another session has extended the recording since."""
        session_id, end = self._known.get(descriptor.recording_id, (None, None))
        return end if session_id == descriptor.session_id else None

    def _end_where_there_are_files(self, descriptor: RecordingDescriptor) -> int:
        """Return where a recording ends; the last known end if its file is missing."""
        try:
            return self._active_end(descriptor)
        except FileNotFoundError as error:
            position = self._known_end(descriptor) or descriptor.start_position
            message = f"its file {error.filename} is not there"
            if self._options.fail_on_data_loss:
                hint = "; failOnDataLoss=false continues with the last known end"
                raise DataLossError(
                    message + hint, recording_id=descriptor.recording_id, position=position
                ) from error
            log.warning(
                "recording_end_unknown", recording_id=descriptor.recording_id, problem=message
            )
            return position

    def _active_end(self, descriptor: RecordingDescriptor) -> int:
        source = self._options.position_source
        if source == "catalog":
            return descriptor.start_position
        recorded: int | None = None
        if self._live is not None:
            recorded = self._live.recorded(descriptor)
        elif source == "control" or (source == "auto" and self._options.archive_control_channel):
            recorded = self._asked(descriptor)
        elif source in {"auto", "counter"}:
            recorded = self._counted().get(descriptor.recording_id)
            if recorded is None and source == "counter":
                message = (
                    f"no counter shows recording {descriptor.recording_id}: its archive is not at "
                    "work, or its driver is not in aeron.dir; set aeron.dir or positionSource=scan"
                )
                raise ConfigurationError(message)
        if recorded is None:
            return self._scanned(descriptor)
        return self._held_back(descriptor, recorded)

    def _held_back(self, descriptor: RecordingDescriptor, recorded: int) -> int:
        """Return the last message end at least `safetyLagBytes` before the recorded position."""
        lag = self._options.safety_lag_bytes
        if not lag:
            return recorded
        limit = max(recorded - lag, descriptor.start_position)
        return last_message_end(self._directory, descriptor, limit)

    def _asked(self, descriptor: RecordingDescriptor) -> int:
        known = self._asked_positions.get(descriptor.recording_id)
        if known is None:
            known = asked_position(self._options, descriptor.recording_id)
            self._asked_positions[descriptor.recording_id] = known
        return known

    def _counted(self) -> Mapping[int, int]:
        """Return the positions that the driver's counters show; empty if there is no driver."""
        if self._counter_positions is None:
            mark = self._mark()
            # A killed archive leaves its counters behind; then the files decide.
            is_asked = self._options.position_source == "counter"
            is_asked = is_asked or is_alive(self._directory, self._clock.epoch_ms())
            where = mark.identity.aeron_directory if mark and is_asked else ""
            where = self._options.aeron_directory or where
            # Also for a dead archive: its driver may have counters of other archives with the same
            # ids.
            archive_id = mark.identity.archive_id if mark else None
            found = self._counters.look(where, archive_id) if where else NO_COUNTERS
            self._counter_positions = found
        return self._counter_positions

    def _mark(self) -> MarkFileHeader | None:
        try:
            return read_mark_file(self._directory)
        except (ArchiveError, FileNotFoundError):
            return None

    def _scanned(self, descriptor: RecordingDescriptor) -> int:
        known = self._known_end(descriptor)
        base = self._last_base(descriptor, known)
        if base is None:
            return known or descriptor.start_position
        if self._is_alive is None:
            self._is_alive = is_alive(self._directory, self._clock.epoch_ms())
        return scanned_end(
            self._directory,
            descriptor,
            self._options,
            base=base,
            alive=self._is_alive,
            known=known,
        )

    def _last_base(self, descriptor: RecordingDescriptor, known: int | None) -> int | None:
        """Return where the last file of a recording begins; None if no file goes on."""
        if known is None:
            if self._names is None:
                self._names = SegmentNames(self._directory.names())
            bases = self._names.bases(descriptor.recording_id)
            first = term_base(descriptor.start_position, descriptor.term_length)
            return int(bases[-1]) if len(bases) and bases[-1] >= first else None
        # Whoever knows an end need not list the directory: one file follows the other.
        found, base = None, descriptor.segment_base(known)
        while is_there(self._directory, segment_name(descriptor.recording_id, base)):
            found, base = base, base + descriptor.segment_length
        return found


def asked_position(options: ArchiveOptions, recording_id: int) -> int:
    """Ask the archive up to which position a recording exists.

    Raises:
        ConfigurationError: The archive does not answer.
        UnknownRecordingError: The archive has no such recording.
    """
    # Imported here because it starts a driver, and few queries need it.
    from aeron_async.spark.replayed_archive import ArchiveLink  # noqa: PLC0415

    return ArchiveLink(options).position(recording_id)


SHORTEST_WAIT_NS: Final = 10 * NS_PER_MS
LONGEST_WAIT_NS: Final = 2 * NS_PER_SECOND
GRACE_NS: Final = 10 * NS_PER_SECOND
"""How long a recording may be unknown to every position source that knew it before."""


class Ends(Protocol):
    """Finds up to where a recording may be read; that may be slow."""

    def invalidate(self) -> None:
        """Discard what was cached."""
        ...

    def counted(self) -> Mapping[int, int]:
        """Return the positions of those recordings whose counters tell where they end."""
        ...

    def of(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording may be read, in bytes."""
        ...


@final
@attrs.define
class CachedEnd:
    """Cached end of a recording.

    Attributes:
        session_id: Session that made it; another session may have cut and extended the recording.
        readable_end: Up to where the recording may be read, in bytes; a message ends there.
        present_end: End of the last frame that is present.
        counted: Position that the counter of the recording showed; None if it had none.
        found_ns: When these were determined.
        wait_ns: How long they are trusted while `readable_end` is less than `present_end`.
    """

    session_id: int
    readable_end: int
    present_end: int
    found_ns: int
    wait_ns: int
    counted: int | None = None


@final
class EndCache:
    """Caches the readable end of each recording and detects growth.

    Args:
        directory: Directory of the archive.
        ends: Determines an end.
        by_message: Whether an end must be the end of a message; else that of any frame.
    """

    def __init__(
        self, directory: ReadableDirectory, ends: Ends, *, by_message: bool = True
    ) -> None:
        self._directory = directory
        self._ends = ends
        self._by_message = by_message
        self._cached: dict[int, CachedEnd] = {}
        self._growth = Growth(directory)
        self._held: dict[int, tuple[int, int]] = {}
        self._stopped: dict[int, tuple[int, int]] = {}
        self._first_met_ns: dict[tuple[int, int], int] = {}
        self._began_ns: int | None = None
        self.search_count: int = 0
        """How often an end was determined and not taken from the cache."""

    def invalidate(self) -> None:
        """Look at files and counters again, once for all recordings."""
        self._ends.invalidate()

    def counted(self) -> Mapping[int, int]:
        """Return the positions that counters show; the same object if none has changed."""
        return self._ends.counted()

    def reach(self, descriptor: RecordingDescriptor, now_ns: int) -> int:
        """Return up to where a recording goes; where its last whole message ends, files tell.

        No file is looked at if the catalog or a counter knows. See `of`.
        """
        if not descriptor.is_active:
            return descriptor.stop_position
        counted = self._ends.counted().get(descriptor.recording_id)
        cached = self._known(descriptor)
        if counted is None:
            return self.of(descriptor, now_ns)
        if cached is None:
            return max(counted, descriptor.start_position)
        # What was found out stays valid until the counter moves.
        is_same = counted == cached.counted
        return cached.readable_end if is_same else max(counted, cached.readable_end)

    def of(self, descriptor: RecordingDescriptor, now_ns: int) -> int:
        """Return up to where a recording may be read, in bytes.

        Args:
            descriptor: The recording.
            now_ns: Monotonic time.

        Raises:
            ConfigurationError: The chosen `positionSource` did not know the recording when the
                query began, or has not known it for ten seconds.
            DataLossError: The frames at its end are damaged, and `failOnDataLoss` is set.
        """
        recording_id = descriptor.recording_id
        if not descriptor.is_active:
            self._cached.pop(recording_id, None)
            return self._end_of_stopped(descriptor)
        if self._began_ns is None:
            self._began_ns = now_ns
        cached = self._known(descriptor)
        counted = self._ends.counted().get(recording_id)
        if cached is not None and counted is not None:
            if counted == cached.counted:
                return cached.readable_end
        elif cached is not None:
            is_all_readable = cached.readable_end == cached.present_end
            is_believed = is_all_readable or now_ns - cached.found_ns < cached.wait_ns
            if is_believed and not self._growth.has_frame(descriptor, cached.present_end):
                return cached.readable_end
        return self._search(descriptor, cached, now_ns).readable_end

    def _known(self, descriptor: RecordingDescriptor) -> CachedEnd | None:
        cached = self._cached.get(descriptor.recording_id)
        return cached if cached and cached.session_id == descriptor.session_id else None

    def end_of_frames(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return where the frames of a recording end that are there, whether they may be read."""
        if not descriptor.is_active:
            return descriptor.stop_position
        return self._growth.end_of_frames(descriptor, position)

    def holds(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether the files of a recording reach a position.

        The readable end may still be before it: because an archive has begun to write since, or
        because the last message is not whole.
        """
        if not descriptor.is_active:
            return position <= descriptor.stop_position
        held = descriptor.session_id, position
        if self._held.get(descriptor.recording_id) != held:
            start = max(term_base(position - 1, descriptor.term_length), descriptor.start_position)
            if self._growth.end_of_frames(descriptor, start) < position:
                return False
            self._held[descriptor.recording_id] = held
        return True

    def _end_of_stopped(self, descriptor: RecordingDescriptor) -> int:
        """Return the end of a stopped recording, without a message that is not whole at its end.

        A publisher that extends the recording may cut that message off and write other data there,
        which the query must not miss.
        """
        stop = descriptor.stop_position
        if not self._by_message:
            return stop
        known = self._stopped.get(descriptor.recording_id)
        if known is None or known[0] != stop:
            known = stop, whole_end(self._directory, descriptor)
            self._stopped[descriptor.recording_id] = known
        return known[1]

    def _search(
        self, descriptor: RecordingDescriptor, cached: CachedEnd | None, now_ns: int
    ) -> CachedEnd:
        self.search_count += 1
        recording_id = descriptor.recording_id
        known = descriptor.start_position if cached is None else cached.readable_end
        try:
            readable_end = max(self._ends.of(descriptor), known)
        except ConfigurationError:
            # The counter goes when the recording stops, and an archive may be restarting: the
            # catalog or the archive knows more in a moment. A new recording is in the catalog
            # before it has a counter. But a recording that existed when the query began may never
            # get one, so that is an error at once.
            known_end = cached or self._first_met_end(descriptor, now_ns)
            was_there = cached is None and known_end.found_ns == self._began_ns
            if was_there or now_ns - known_end.found_ns >= GRACE_NS:
                raise
            return known_end
        counted = self._ends.counted().get(recording_id)
        if not self._is_known_whole(descriptor, counted, readable_end):
            boundaries = DiskBoundaries(
                self._directory, {recording_id: descriptor}, by_message=self._by_message
            )
            readable_end = boundaries.last_end(recording_id, known, readable_end)
        present_end = counted
        if present_end is None:
            present_end = self._growth.end_of_frames(descriptor, readable_end)
        wait_ns = SHORTEST_WAIT_NS
        ends = readable_end, present_end
        if cached is not None and ends == (cached.readable_end, cached.present_end):
            wait_ns = min(2 * cached.wait_ns, LONGEST_WAIT_NS)
        cached = CachedEnd(descriptor.session_id, *ends, now_ns, wait_ns, counted)
        self._cached[recording_id] = cached
        self._first_met_ns.pop((recording_id, descriptor.session_id), None)
        return cached

    def _is_known_whole(
        self, descriptor: RecordingDescriptor, counted: int | None, end: int
    ) -> bool:
        """Return whether an end is that of a message, or of a frame, without walking the frames."""
        if counted != end or end % HEADER_LENGTH:
            return False
        with suppress(FileNotFoundError):
            # A counter is where a frame ends.
            return not self._by_message or ends_message(self._directory, descriptor, end)
        return False

    def _first_met_end(self, descriptor: RecordingDescriptor, now_ns: int) -> CachedEnd:
        """Return the start of a recording with unknown position, from when it was first met."""
        start = descriptor.start_position
        key = descriptor.recording_id, descriptor.session_id
        return CachedEnd(
            descriptor.session_id, start, start, self._first_met_ns.setdefault(key, now_ns), 0
        )
