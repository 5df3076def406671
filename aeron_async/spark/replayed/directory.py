"""The files of an archive that is elsewhere, as far as they can be read here: by replays.

There are the recordings that the archive lists, and the segments that they would have; a segment
holds what a replay brings, and ends where its recording does by now. In place of checksums and of
sessions frames have the session of their replay.
"""

from __future__ import annotations

from io import UnsupportedOperation
from typing import TYPE_CHECKING, Final, NoReturn, final

from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.archive.disk.segments import parse_segment_name, segment_name, term_base
from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.errors import ArchiveError, UnknownRecordingError
from aeron_async.spark.replayed.link import ArchiveLink
from aeron_async.spark.replayed.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.clock import Clock
    from aeron_async.spark.replayed.access import ArchiveAccess

__all__ = ["ReplayedDirectory", "ReplayedFile"]

LIST_AGAIN_NS: Final = NS_PER_SECOND
"""A query that waits asks many times a second; the archive is asked for all it has once."""
FARTHEST_SKIP: Final = 1 << 20
"""Read and not wanted, rather than that a replay is begun anew; in bytes."""


@final
class ReplayedDirectory:
    """What stands for the directory of an archive; see `Directory`.

    Args:
        access: To the archive.
        clock: Tells when to ask again.
    """

    def __init__(self, access: ArchiveAccess, *, clock: Clock | None = None) -> None:
        self._link = ArchiveLink(access)
        self._clock = clock or SystemClock()
        self._recordings: dict[int, RecordingDescriptor] = {}
        self._listed_ns: int | None = None
        self._recorded: dict[int, tuple[int, int]] = {}

    @property
    def path(self) -> str:
        """Return what messages call it."""
        return f"the archive at {self._link.access.control_channel}"

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return the recordings by their ids, in order; as they were up to a second ago.

        Raises:
            ConfigurationError: The archive does not answer.
        """
        now_ns = self._clock.now_ns()
        if self._listed_ns is None or now_ns - self._listed_ns >= LIST_AGAIN_NS:
            self._recordings = self._link.recordings()
            self._listed_ns = now_ns
        return self._recordings

    def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording, at the latest since it was first asked for."""
        found = self._recordings.get(recording_id)
        if found is None:
            found = self._recordings[recording_id] = self._link.describe(recording_id)
        return found

    def recorded(self, descriptor: RecordingDescriptor, *, beyond: int | None = None) -> int:
        """Return up to where a recording goes by now, in bytes.

        Args:
            descriptor: Of the recording.
            beyond: What was known of it will do, if that is more than this.
        """
        if not descriptor.is_active:
            return descriptor.stop_position
        session_id, known = self._recorded.get(descriptor.recording_id, (0, -1))
        if session_id == descriptor.session_id and beyond is not None and known > beyond:
            return known
        found = self._link.position(descriptor.recording_id)
        self._recorded[descriptor.recording_id] = descriptor.session_id, found
        return found

    def names(self) -> list[str]:
        """Return the names of the files that the recordings would have."""
        return [
            segment_name(each.recording_id, base)
            for each in self.recordings().values()
            for base in range(
                term_base(each.start_position, each.term_length),
                self.recorded(each),
                each.segment_length,
            )
        ]

    def other_kinds(self) -> dict[str, str]:
        """Return nothing: whatever is not replayed is not seen."""
        return {}

    def open_to_read(self, name: str) -> ReplayedFile:
        """Open a file for reading; see `Directory.open_to_read`."""
        found = parse_segment_name(name)
        try:
            if found is not None:
                descriptor = self.describe(found[0])
                return ReplayedFile(self, self._link.access, descriptor, found[1])
        except UnknownRecordingError as error:
            raise FileNotFoundError(2, "no such recording", name) from error
        raise FileNotFoundError(2, "no file of a recording", name)

    def modified_ms(self, name: str) -> int:
        """Return when a file was written to: nobody says so of these, and so it is always 0."""
        self.open_to_read(name)
        return 0

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> NoReturn:
        """Refuse: nothing is written here."""
        del create, exclusive
        self._refuse(name)

    def remove(self, name: str) -> None:
        """Refuse: nothing is written here."""
        self._refuse(name)

    def rename(self, old: str, new: str) -> None:
        """Refuse: nothing is written here."""
        del new
        self._refuse(old)

    def sync(self) -> None:
        """Do nothing: there is nothing that was written."""

    def _refuse(self, name: str) -> NoReturn:
        message = f"{name}: what is replayed can only be read"
        raise UnsupportedOperation(message)


@final
class ReplayedFile:
    """What stands for a segment of a recording; see `File`."""

    def __init__(
        self,
        directory: ReplayedDirectory,
        access: ArchiveAccess,
        descriptor: RecordingDescriptor,
        base: int,
    ) -> None:
        self.name = segment_name(descriptor.recording_id, base)
        self._directory = directory
        self._access = access
        self._descriptor = descriptor
        self._base = base
        self._stretch: Stretch | None = None

    def number(self) -> None:
        """Return None: it is no file of the system."""

    def length(self) -> int:
        """Return how long it would be."""
        return self._descriptor.segment_length

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the recording."""
        position = self._base + offset
        limit = self._base + self._descriptor.segment_length
        wanted = min(position + len(buffer), limit)
        recorded = self._directory.recorded(self._descriptor, beyond=wanted - 1)
        end = min(wanted, recorded)
        if position >= end:
            return 0
        if position < self._descriptor.start_position:
            # As in a file, whose first term begins before the recording does.
            count = min(end, self._descriptor.start_position) - position
            buffer[:count] = bytes(count)
            return count
        stretch = self._at(position, min(limit, recorded))
        return stretch.read(position, buffer[: end - position])

    def _at(self, position: int, end: int) -> Stretch:
        """Return what can be read from a position on, begun anew if need be."""
        stretch = self._stretch
        if stretch is not None:
            farthest = min(stretch.end + FARTHEST_SKIP, stretch.limit - 1)
            if stretch.begin <= position <= farthest:
                return stretch
        self.close()
        self._stretch = self._begun(position, end)
        return self._stretch

    def _begun(self, position: int, end: int) -> Stretch:
        descriptor = self._descriptor
        first = max(term_base(position, descriptor.term_length), descriptor.start_position)
        if position != first and position % HEADER_LENGTH == 0:
            try:
                return Stretch(self._access, descriptor.recording_id, position, end)
            except ArchiveError:
                # No frame begins there, most likely; one does where the term begins.
                pass
        return Stretch(self._access, descriptor.recording_id, first, end)

    def write(self, buffers: Sequence[Buffer], offset: int) -> NoReturn:
        """Refuse: nothing is written here."""
        del buffers, offset
        self._refuse()

    def set_length(self, length: int) -> None:
        """Refuse: nothing is written here."""
        del length
        self._refuse()

    def sync(self, *, metadata: bool) -> None:
        """Do nothing: there is nothing that was written."""

    def try_lock(self) -> None:
        """Return None: there is nothing to lock."""

    def close(self) -> None:
        """Read no more; closing twice is closing once."""
        stretch, self._stretch = self._stretch, None
        if stretch is not None:
            stretch.close()

    def _refuse(self) -> NoReturn:
        message = f"{self.name}: what is replayed can only be read"
        raise UnsupportedOperation(message)
