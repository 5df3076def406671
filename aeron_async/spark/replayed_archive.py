"""Directory of a remote archive whose segments are read by replay.

A `ReplayedDirectory` offers the segments that the listed recordings would have as files. A segment
holds what a replay brings, and ends at the current end of its recording. Frames carry the session
of their replay in place of checksums and of their own sessions.

The session with the archive belongs to the connection of this process and outlasts a task. If the
archive stops answering, the session is closed and the next request opens a new one.

The bytes of the last read are kept, because a reader returns to the frame or message that was not
whole. Everything before is dropped, and nothing is prefetched beyond the receiver window, so memory
stays within what a reader reads at once.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, TypeVar, final

from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.remote_replay import RemoteReplay
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.archive.disk.segments import parse_segment_name, segment_name, term_base
from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.errors import (
    AeronError,
    ArchiveError,
    ConfigurationError,
    InvalidPositionError,
    UnknownRecordingError,
)
from aeron_async.spark.worker import worker_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.worker import WorkerConnection

__all__ = [
    "LINGER_MS",
    "ArchiveLink",
    "ReplayedDirectory",
    "ReplayedFile",
    "Stretch",
    "answer",
]

T = TypeVar("T")
LINGER_MS: Final = 10_000
"""How long the connection of this process stays open after a request."""


@final
class ArchiveLink:
    """Sends requests to an archive; every call blocks.

    Args:
        options: How to reach the archive.
    """

    def __init__(self, options: ArchiveOptions) -> None:
        self.options = options

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return all recordings by id, in order.

        Raises:
            ConfigurationError: The archive does not answer.
        """
        return self._asked(listed, "which recordings it has")

    def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording.

        Raises:
            ConfigurationError: The archive does not answer.
            UnknownRecordingError: No recording has that id.
        """
        return self._asked(
            lambda archive: archive.describe(recording_id), f"what recording {recording_id} is"
        )

    def position(self, recording_id: int) -> int:
        """Return up to where a recording exists, in bytes.

        Raises:
            ConfigurationError: The archive does not answer.
            UnknownRecordingError: No recording has that id.
        """
        return self._asked(
            lambda archive: archive.max_recorded_position(recording_id),
            f"where recording {recording_id} ends",
        )

    def _asked(self, ask: Callable[[RemoteArchive], Awaitable[T]], what: str) -> T:
        failure: AeronError | None = None
        for _ in range(self.options.archive_retries + 1):
            try:
                with worker_connection(LINGER_MS) as connection:
                    found: T = connection.call(answer, connection, self.options, ask)
                    return found
            except (ConfigurationError, UnknownRecordingError, InvalidPositionError):
                raise
            except AeronError as error:
                failure = error
        message = (
            f"the archive at archive.control.channel={self.options.archive_control_channel} does "
            f"not say {what}: {failure}; change archive.control.channel, archive.timeoutMs or "
            "archive.retries"
        )
        raise ConfigurationError(message) from failure


async def answer(
    connection: WorkerConnection,
    options: ArchiveOptions,
    ask: Callable[[RemoteArchive], Awaitable[T]],
) -> T:
    """Send a request in the current session; close the session on failure, so the next is new."""
    archive = await session_with(connection, options)
    try:
        return await ask(archive)
    except (ConfigurationError, UnknownRecordingError, InvalidPositionError):
        raise
    except AeronError:
        if connection.kept.get(name_of(options)) is archive:
            del connection.kept[name_of(options)]
        await archive.aclose()
        raise


async def session_with(connection: WorkerConnection, options: ArchiveOptions) -> RemoteArchive:
    """Return the session of this process with an archive; open one if there is none."""
    name = name_of(options)
    archive: RemoteArchive | None = connection.kept.get(name)
    if archive is None:
        assert options.archive_control_channel is not None, "the options were checked"
        archive = await RemoteArchive.connect(
            connection.aeron,
            control_channel=options.archive_control_channel,
            response_channel=options.archive_response_channel,
            timeout=options.archive_timeout_ms / 1_000,
        )
        connection.kept[name] = archive
        connection.closing[name] = archive.aclose
    return archive


def name_of(options: ArchiveOptions) -> str:
    """Return the key of a session."""
    channels = f"{options.archive_control_channel} {options.archive_response_channel}"
    return f"archive {channels} {options.archive_timeout_ms}"


async def listed(archive: RemoteArchive) -> dict[int, RecordingDescriptor]:
    """Return all recordings of an archive."""
    return {each.recording_id: each async for each in archive.recordings()}


STEP: Final = 2 << 20
"""Bytes to fetch before those that a reader no longer needs are dropped."""
PADDING_PIECE: Final = 1 << 20
"""Padding may be as long as a term; this many bytes of it are made at once."""


@final
class Stretch:
    """Reads a recording from one position to another; every call blocks.

    Args:
        options: How to reach the archive.
        recording_id: The recording.
        begin: Where a frame begins, in bytes.
        limit: End of the replay, in bytes; more needs another `Stretch`.

    Raises:
        InvalidPositionError: No frame begins at `begin`.
        AeronError: The archive does not replay the range.
    """

    def __init__(self, options: ArchiveOptions, recording_id: int, begin: int, limit: int) -> None:
        self.begin: int = begin
        self.limit = limit
        self._bytes = bytearray()
        self._padding = 0
        self._recording_id = recording_id
        self._replay: RemoteReplay | None = None
        self._using = ExitStack()
        self._connection = self._using.enter_context(worker_connection(LINGER_MS))
        try:
            self._connection.call(answer, self._connection, options, self._begin)
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> int:
        """Return the position fetched so far, in bytes."""
        return self.begin + len(self._bytes)

    def read(self, position: int, target: memoryview) -> int:
        """Copy bytes from a position on, drop those before it, and return the count copied.

        Args:
            position: Not before that of the previous call.
            target: Filled up to the end of the replay.

        Raises:
            ArchiveError: The replay broke off.
        """
        end = position + len(target)
        self._forget_before(position)
        while self.end < end and self._connection.call(self._more, min(end - self.end, STEP)):
            self._forget_before(position)
        count = max(min(end, self.end) - position, 0)
        target[:count] = memoryview(self._bytes)[:count]
        return count

    def _forget_before(self, position: int) -> None:
        passed = min(position, self.end) - self.begin
        del self._bytes[:passed]
        self.begin += passed

    async def _begin(self, archive: RemoteArchive) -> None:
        self._replay = RemoteReplay(
            archive,
            self._recording_id,
            self.begin,
            self.limit,
            follow=False,
            is_on_its_stream=True,
        )
        # Fetch the first block now, because it shows whether the range can be replayed.
        await self._more(1)

    async def _more(self, wanted: int) -> bool:
        """Fetch that many more bytes; return False if the replay ended without any."""
        assert self._replay is not None, "it has begun"
        before = len(self._bytes)
        while len(self._bytes) - before < wanted:
            if self._padding:
                made = min(self._padding, PADDING_PIECE)
                self._bytes += bytes(made)
                self._padding -= made
                continue
            found = await self._replay.next_block()
            if found is None:
                break
            block, self._padding = found
            self._bytes += block
            self._replay.take_block(len(block) + self._padding)
        return len(self._bytes) > before

    def close(self) -> None:
        """End the replay; a second call does nothing."""
        replay, self._replay = self._replay, None
        with self._using, suppress(AeronError):
            if replay is not None and not self._connection.aeron.is_closed:
                self._connection.call(replay.aclose)


LIST_AGAIN_NS: Final = NS_PER_SECOND
"""A waiting query asks many times a second; the archive lists its recordings once in this time."""
FARTHEST_SKIP: Final = 1 << 20
"""Bytes to read and drop rather than start a new replay."""


@final
class ReplayedDirectory:
    """Directory of an archive that replays its recordings; see `Directory`.

    Args:
        options: How to reach the archive.
        clock: Tells when to ask the archive again.
    """

    def __init__(self, options: ArchiveOptions, *, clock: Clock | None = None) -> None:
        self._link = ArchiveLink(options)
        self._clock = clock or SystemClock()
        self._recordings: dict[int, RecordingDescriptor] = {}
        self._listed_ns: int | None = None
        self._recorded: dict[int, tuple[int, int]] = {}

    @property
    def path(self) -> str:
        """Return the name for messages."""
        return f"the archive at {self._link.options.archive_control_channel}"

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return the recordings by id, in order; up to a second old.

        Raises:
            ConfigurationError: The archive does not answer.
        """
        now_ns = self._clock.now_ns()
        if self._listed_ns is None or now_ns - self._listed_ns >= LIST_AGAIN_NS:
            self._recordings = self._link.recordings()
            self._listed_ns = now_ns
        return self._recordings

    def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording; the archive is asked if it is not cached."""
        found = self._recordings.get(recording_id)
        if found is None:
            found = self._recordings[recording_id] = self._link.describe(recording_id)
        return found

    def recorded(self, descriptor: RecordingDescriptor, *, beyond: int | None = None) -> int:
        """Return the current end of a recording, in bytes.

        Args:
            descriptor: The recording.
            beyond: A cached end will do if it is greater than this; None to ask the archive.
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

    def open_to_read(self, name: str) -> ReplayedFile:
        """Open a file for reading; see `Directory.open_to_read`."""
        found = parse_segment_name(name)
        try:
            if found is not None:
                descriptor = self.describe(found[0])
                return ReplayedFile(self, self._link.options, descriptor, found[1])
        except UnknownRecordingError as error:
            raise FileNotFoundError(2, "no such recording", name) from error
        raise FileNotFoundError(2, "no file of a recording", name)

    def modified_ms(self, name: str) -> int:
        """Return 0: an archive does not report when a segment was written."""
        self.open_to_read(name)
        return 0


@final
class ReplayedFile:
    """A segment of a recording, read by replay; see `File`."""

    def __init__(
        self,
        directory: ReplayedDirectory,
        options: ArchiveOptions,
        descriptor: RecordingDescriptor,
        base: int,
    ) -> None:
        self.name: str = segment_name(descriptor.recording_id, base)
        self._directory = directory
        self._options = options
        self._descriptor = descriptor
        self._base = base
        self._stretch: Stretch | None = None

    def length(self) -> int:
        """Return the segment length."""
        return self._descriptor.segment_length

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return the count, 0 at the end of the recording."""
        position = self._base + offset
        limit = self._base + self._descriptor.segment_length
        wanted = min(position + len(buffer), limit)
        recorded = self._directory.recorded(self._descriptor, beyond=wanted - 1)
        end = min(wanted, recorded)
        if position >= end:
            return 0
        if position < self._descriptor.start_position:
            # As in a file, whose first term may begin before the recording does.
            count = min(end, self._descriptor.start_position) - position
            buffer[:count] = bytes(count)
            return count
        stretch = self._at(position, min(limit, recorded))
        return stretch.read(position, buffer[: end - position])

    def _at(self, position: int, end: int) -> Stretch:
        """Return a stretch that reads from a position on; begin a new one if necessary."""
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
                return Stretch(self._options, descriptor.recording_id, position, end)
            except ArchiveError:
                # Probably no frame begins there; one does at the beginning of the term.
                pass
        return Stretch(self._options, descriptor.recording_id, first, end)

    def close(self) -> None:
        """End the replay; a second call does nothing."""
        stretch, self._stretch = self._stretch, None
        if stretch is not None:
            stretch.close()
