"""Up to where growing recordings may be read, when that is asked many times a second.

A query that waits asks again every few milliseconds. So what was found is kept until the files tell
that it is old: a header behind the last known frame. That is one small read. Where frames are there
that may not be read yet, the end is found anew after a while nevertheless: who says that they may
has not said so yet, or whoever writes may have gone. That while is short, and twice as long each
time that nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async.archive.disk.segments import term_base
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.spark.boundaries import DiskBoundaries
from aeron_async.spark.growth import growth_of
from aeron_async.spark.stopped_end import whole_end

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = ["GRACE_NS", "LONGEST_WAIT_NS", "SHORTEST_WAIT_NS", "Ends", "Tails"]

SHORTEST_WAIT_NS: Final = 10 * NS_PER_MS
LONGEST_WAIT_NS: Final = 2 * NS_PER_SECOND
GRACE_NS: Final = 10 * NS_PER_SECOND
"""How long nobody needs to say where a recording ends of which that was known."""


class Ends(Protocol):
    """Finds up to where a recording may be read; that may take its time."""

    def look(self) -> None:
        """Forget what files and counters there were."""
        ...

    def of(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording may be read, in bytes."""
        ...


@final
@attrs.define
class Tail:
    """What is known of the end of a recording.

    Attributes:
        session_id: Of who made it: another has extended it since, and may have cut it before.
        safe: Up to where it may be read, in bytes; a message ends there.
        seen: Behind the last frame that is there.
        found_ns: When that was found.
        wait_ns: How long it is believed while not all that is there may be read.
    """

    session_id: int
    safe: int
    seen: int
    found_ns: int
    wait_ns: int


@final
class Tails:
    """Knows up to where each recording may be read, and finds out when there is more.

    Args:
        directory: Of the archive.
        ends: Finds it.
        by_message: Whether messages are read whole; frames one by one otherwise.
    """

    def __init__(self, directory: Directory, ends: Ends, *, by_message: bool = True) -> None:
        self._directory = directory
        self._ends = ends
        self._by_message = by_message
        self._tails: dict[int, Tail] = {}
        self._growth = growth_of(directory)
        self._held: dict[int, tuple[int, int]] = {}
        self._stopped: dict[int, tuple[int, int]] = {}
        self._has_looked = False
        self._met: dict[tuple[int, int], int] = {}
        self._began_ns: int | None = None
        self.found = 0
        """How often an end had to be found, and was not just the last one."""

    def look(self) -> None:
        """Find out about growth once for all that is asked from now on."""
        self._has_looked = False

    def of(self, descriptor: RecordingDescriptor, now_ns: int) -> int:
        """Return up to where a recording may be read, in bytes.

        Args:
            descriptor: Of the recording.
            now_ns: Monotonic time.

        Raises:
            ConfigurationError: Nobody is there who could say it, of those who were to be asked; or
                nobody is any more, or yet of a recording that is new, since ten seconds.
            DataLossError: The frames at its end are damaged, and that is not to be skipped.
        """
        recording_id = descriptor.recording_id
        if not descriptor.is_active:
            self._tails.pop(recording_id, None)
            return self._end_of_stopped(descriptor)
        if self._began_ns is None:
            self._began_ns = now_ns
        tail = self._tails.get(recording_id)
        if tail is not None and tail.session_id != descriptor.session_id:
            tail = None
        if tail is not None:
            is_believed = tail.safe == tail.seen or now_ns - tail.found_ns < tail.wait_ns
            if is_believed and not self._growth.has_frame(descriptor, tail.seen):
                return tail.safe
        return self._find(descriptor, tail, now_ns).safe

    def holds(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Return whether the files of a recording go up to a position.

        They may, and yet what may be read end before it: who writes was not there before, or the
        last message is not whole.
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
        """Return where a recording ends that has stopped: before a message that is not whole.

        Whoever extends it may cut that off, and nothing that was read is to be missing then.
        """
        stop = descriptor.stop_position
        if not self._by_message:
            return stop
        known = self._stopped.get(descriptor.recording_id)
        if known is None or known[0] != stop:
            known = stop, whole_end(self._directory, descriptor)
            self._stopped[descriptor.recording_id] = known
        return known[1]

    def _find(self, descriptor: RecordingDescriptor, tail: Tail | None, now_ns: int) -> Tail:
        if not self._has_looked:
            self._ends.look()
            self._has_looked = True
        self.found += 1
        recording_id = descriptor.recording_id
        known = descriptor.start_position if tail is None else tail.safe
        try:
            safe = max(self._ends.of(descriptor), known)
        except ConfigurationError:
            # Its counter goes when it stops, and an archive may be started again: the catalog, or
            # the archive, says more in a moment. And a recording is in the catalog before it is
            # counted; but of one that was there when this began nobody may ever say anything.
            known_tail = tail or self._met_tail(descriptor, now_ns)
            was_there = tail is None and known_tail.found_ns == self._began_ns
            if was_there or now_ns - known_tail.found_ns >= GRACE_NS:
                raise
            return known_tail
        boundaries = DiskBoundaries(
            self._directory, {recording_id: descriptor}, by_message=self._by_message
        )
        safe = boundaries.last_end(recording_id, known, safe)
        seen = self._growth.end_of_frames(descriptor, safe)
        wait_ns = SHORTEST_WAIT_NS
        if tail is not None and (safe, seen) == (tail.safe, tail.seen):
            wait_ns = min(2 * tail.wait_ns, LONGEST_WAIT_NS)
        tail = Tail(descriptor.session_id, safe, seen, now_ns, wait_ns)
        self._tails[recording_id] = tail
        self._met.pop((recording_id, descriptor.session_id), None)
        return tail

    def _met_tail(self, descriptor: RecordingDescriptor, now_ns: int) -> Tail:
        """Return what is known of a recording that nobody says anything of, since it was met."""
        start = descriptor.start_position
        key = descriptor.recording_id, descriptor.session_id
        return Tail(descriptor.session_id, start, start, self._met.setdefault(key, now_ns), 0)
