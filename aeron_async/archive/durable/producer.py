"""A producer of a durable stream: it appends records, and knows which of them are recorded.

One task owns the publication. It opens the log, sends what was appended, and waits for the recorded
position. If the archive is lost, it opens the log again, reads the last record, and sends again
what is not recorded. So a producer that lives has each record in the log once and in order.

Opening fences the producer before it: its recording is stopped, and the same recording is extended
from its stop position by a publication of this producer. The recording request names the session of
that publication, so nothing that an older producer still sends is recorded. The archive lets only
one session extend a recording from one position, so of two that open at once one succeeds.

Invariant: a record counts as recorded only if the recorded position has passed it while the
recording belongs to a session of this producer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final

import attrs

from aeron_async.archive.durable.log import (
    FIRST_DELAY_S,
    LAST_DELAY_S,
    is_final,
    last_header,
    settled,
)
from aeron_async.archive.durable.records import (
    HEADER_LENGTH,
    MOST_EPOCH,
    MOST_SEQUENCE,
    RecordHeader,
    RecordKind,
    encode_header,
    producer_id_of,
)
from aeron_async.archive.recording_channels import extending_channel
from aeron_async.client.publication import OfferOutcome
from aeron_async.client.waiters import Notify
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ClosedError,
    ConfigurationError,
    FencedError,
    MaxPositionExceededError,
    MessageTooLongError,
)
from aeron_async.logs import get_logger
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from typing_extensions import Buffer

    from aeron_async.archive.api import Archive, SourceLocation
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.durable.log import LogLink, LogName
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Producer"]

log: Final = get_logger(__name__)

IDLE_LOOK_S: Final = 1.0
"""Interval between two checks of an idle producer whether the recording is still its own."""
OPEN_TIMEOUT_S: Final = 10.0
"""How long one attempt to open waits for the archive to stop one recording and begin the next."""
CLOSE_TIMEOUT_S: Final = 5.0
MOST_BYTES_IN_FLIGHT: Final = 16 << 20
MOST_FIRST_ATTEMPTS: Final = 3
"""How often the first opening is tried if the archive does not record."""


class StoppedError(ArchiveError):
    """The recording has stopped, or has not begun; the archive itself answers."""


@attrs.define(eq=False)
class UnrecordedRecord:
    """A record that is not known to be recorded.

    Attributes:
        sequence: Number of the record.
        data: The data.
        timestamp_ns: When it was appended.
        position: Where its message ends, in bytes; None while it is not sent.
    """

    sequence: int
    data: bytes
    timestamp_ns: int
    position: int | None = None


@final
class Producer:
    """Appends records to a log; made by `DurableStream.produce`.

    Attributes:
        last_sequence: Sequence of the last record that was appended, by this producer or before it.
        recorded_sequence: Sequence of the last record that is known to be recorded.
        epoch: Number of this opening of the log.
        opened_count: How often this producer has opened the log: 1, and once for each archive that
            it lost.
        resent_count: Records that were sent again because the archive was lost.
        recording_id: Recording that holds the records; None until the log is open.
    """

    def __init__(
        self,
        link: LogLink,
        aeron: Aeron,
        log_name: LogName,
        channel: ChannelUri,
        *,
        name: str,
        source_location: SourceLocation,
        max_in_flight: int,
    ) -> None:
        self._link = link
        self._aeron = aeron
        self._log_name = log_name
        self._channel = channel
        self._name = name
        self._producer_id = producer_id_of(name)
        self._source_location = source_location
        self._max_in_flight = max_in_flight
        self.last_sequence: int = 0
        self.recorded_sequence: int = 0
        self.epoch: int = 0
        self.opened_count: int = 0
        self.resent_count: int = 0
        self.recording_id: int | None = None
        self._sessions: set[int] = set()
        self._attempt_count = 0
        self._publication: ExclusivePublication | None = None
        # Known once the log is open, and also while it is opened again.
        self._longest = 0
        self._pending: deque[UnrecordedRecord] = deque()
        self._pending_bytes = 0
        self._unsent: deque[UnrecordedRecord] = deque()
        self._in_line = asyncio.Lock()
        self._progress = Notify()
        self._work = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._tasks = TaskOwner(on_failed=lambda _: None)
        self._run_task: asyncio.Task[None] | None = None

    @property
    def in_flight_count(self) -> int:
        """Return how many records are appended and not known to be recorded."""
        return len(self._pending)

    @property
    def why(self) -> str:
        """Return what the producer waits for, in words; empty if it waits for nothing."""
        if self._link.why:
            return self._link.why
        if self._publication is None and not self._is_closed:
            return "the log is being opened"
        count = len(self._pending)
        return f"{count} records are not recorded yet" if count else ""

    async def start(self) -> None:
        """Open the log, fencing the producer before this one.

        Raises:
            ArchiveError: The log cannot be opened.
        """
        self._run_task = self._tasks.start(self._run(), "aeron-durable-producer")
        try:
            await self._until(lambda: self.opened_count > 0)
        except BaseException:
            await self._tasks.aclose()
            await self._leave()
            raise

    # Appending.

    async def append(self, data: Buffer, *, durable: bool = False) -> int:
        """Append a record, and return its sequence.

        It waits while `max_in_flight` records, or 16 MiB, are not recorded yet. If the call is
        cancelled while it waits for that, nothing is appended; later, the record is appended and
        only the waiting ends.

        Args:
            data: The data; it is copied.
            durable: Return only when the record is recorded. At `file_sync_level` 1 or 2 of the
                archive it is then on the disk.

        Raises:
            FencedError: A newer producer has taken over the log.
            MessageTooLongError: The data does not fit into a message.
            MaxPositionExceededError: The recording, or the sequence, is at its end.
            ClosedError: The producer is closed.
        """
        content = bytes(data)
        async with self._in_line:
            await self._until(lambda: self._has_room(len(content)))
            self._check_length(content)
            if self.last_sequence >= MOST_SEQUENCE:
                message = f"the log is at its last sequence {MOST_SEQUENCE}: begin a new log"
                raise MaxPositionExceededError(message)
            self.last_sequence += 1
            sequence = self.last_sequence
            pending = UnrecordedRecord(sequence, content, self._aeron.clock.epoch_ns())
            self._pending.append(pending)
            self._pending_bytes += len(content)
            self._unsent.append(pending)
            try:
                self._send()
            except BaseException:
                if pending.position is None:
                    self._take_back(pending)
                raise
            self._work.set()
        if durable:
            await self._until(lambda: self.recorded_sequence >= sequence)
        return sequence

    def _take_back(self, last: UnrecordedRecord) -> None:
        """Forget the record that was appended last, which was not sent."""
        self._unsent.pop()
        self._pending.pop()
        self._pending_bytes -= len(last.data)
        self.last_sequence -= 1

    async def flush(self) -> int:
        """Wait until everything that was appended is recorded; return the last sequence.

        Raises:
            FencedError: A newer producer has taken over the log.
            ClosedError: The producer was closed.
        """
        sequence = self.last_sequence
        await self._until(lambda: self.recorded_sequence >= sequence)
        return sequence

    def _has_room(self, length: int) -> bool:
        if not self._pending:
            return True
        is_short = self._pending_bytes + length <= MOST_BYTES_IN_FLIGHT
        return len(self._pending) < self._max_in_flight and is_short

    def _check_length(self, content: bytes) -> None:
        longest = self._longest
        if len(content) > longest:
            message = (
                f"a record of {len(content)} bytes is longer than {longest}: raise term-length of "
                "the channel for a new log, or divide the record"
            )
            raise MessageTooLongError(message)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; raise why that will never be."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                message = "the producer is closed"
                raise ClosedError(message)
            if is_so():
                return
            await self._progress.wait()

    def _send(self) -> None:
        """Send what was appended, as far as there is room.

        Raises:
            AeronError: The publication is closed, or at its last position.
        """
        publication, unsent = self._publication, self._unsent
        if publication is None:
            return
        while unsent:
            each = unsent[0]
            header = RecordHeader(
                RecordKind.DATA, self._producer_id, each.sequence, self.epoch, each.timestamp_ns
            )
            try:
                outcome = publication.try_offer(encode_header(header) + each.data)
            except ClosedError:
                # The task opens the log again.
                return
            if isinstance(outcome, OfferOutcome):
                return
            each.position = outcome
            unsent.popleft()

    # The task.

    async def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            archive: Archive | None = None
            try:
                archive, _ = await self._link.get()
                await self._open(archive)
                delay_s = FIRST_DELAY_S
                await self._serve(archive)
            except asyncio.CancelledError:
                raise
            except (AeronError, OSError) as error:
                if not await self._may_try_again(archive, error):
                    return
            except BaseException as error:
                self._fail(error)
                raise
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_DELAY_S)

    async def _may_try_again(self, archive: Archive | None, error: Exception) -> bool:
        """Return whether the log is to be opened again; if not, the producer has failed."""
        await self._leave()
        try:
            if archive is None or is_final(error):
                raise error
            if isinstance(error, StoppedError):
                # The archive is there, and has something against this recording.
                self._attempt_count += 1
                if not self.opened_count and self._attempt_count >= MOST_FIRST_ATTEMPTS:
                    raise error
                log.warning("log_producer_interrupted", name=self._name, error=str(error))
                return True
            await self._link.lose(archive, error)
        except (AeronError, OSError) as final_error:
            self._fail(final_error)
            return False
        return True

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, FencedError):
            error.last_sequence = self.recorded_sequence
            log.warning("log_producer_fenced", name=self._name, last_sequence=error.last_sequence)
        self._failure = error
        self._progress.notify()

    async def _leave(self) -> None:
        """Close the publication."""
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()

    # Opening.

    async def _open(self, archive: Archive) -> None:
        """Take over the log, and continue it behind its last record."""
        recordings = await self._take_over(archive)
        last = recordings[-1] if recordings else None
        self._continue(await self._last_record(archive, recordings))
        publication = await self._record(archive, last)
        try:
            await self._check_last(archive, is_first=last is None)
            await self._send_opened(archive, publication)
        except BaseException:
            publication.close()
            raise
        self._publication = publication
        self._longest = publication.max_message_length - HEADER_LENGTH
        self.opened_count += 1
        log.info(
            "log_opened",
            name=self._name,
            recording_id=self.recording_id,
            epoch=self.epoch,
            last_sequence=self.recorded_sequence,
        )
        self._progress.notify()

    async def _check_last(self, archive: Archive, *, is_first: bool) -> None:
        """Check that no later recording was begun at the same time, by one that saw none.

        Of producers that begin the log at the same time, the one that began last goes on, behind
        the records of the others.

        Raises:
            FencedError: That is not this producer.
        """
        recordings = await self._log_name.recordings(archive)
        if not recordings or recordings[-1].recording_id != self.recording_id:
            raise FencedError(self._fenced_by("has begun a recording later"))
        if not is_first:
            return
        before = [
            await self._stopped(archive, each.recording_id)
            for each in recordings
            if each.recording_id != self.recording_id
        ]
        self._continue(await self._last_record(archive, before))

    async def _take_over(self, archive: Archive) -> list[RecordingDescriptor]:
        """Stop what records the log, and return its recordings, all stopped."""
        if self.recording_id is not None:
            self._check_own(await self._log_name.recordings(archive))
        for each in await archive.recording_subscriptions():
            if self._log_name.is_named(each.channel, each.stream_id):
                with suppress(ArchiveError):
                    # It may have ended by itself.
                    await archive.stop_recording_subscription(each.subscription_id)
        recordings = [
            each if not each.is_active else await self._stopped(archive, each.recording_id)
            for each in await self._log_name.recordings(archive)
        ]
        if self.recording_id is not None:
            self._check_own(recordings)
        return recordings

    def _check_own(self, recordings: list[RecordingDescriptor]) -> None:
        """Refuse to open the log again if another producer has done so since."""
        last = recordings[-1] if recordings else None
        if last is None or last.recording_id != self.recording_id:
            raise FencedError(self._fenced_by("has another recording"))
        if last.session_id not in self._sessions:
            raise FencedError(self._fenced_by("extends the recording"))

    def _fenced_by(self, what: str) -> str:
        return (
            f"a newer producer {what} of stream {self._log_name.stream_id}: this one, "
            f"{self._name!r}, epoch {self.epoch}, appends nothing more; end one of the two"
        )

    async def _stopped(self, archive: Archive, recording_id: int) -> RecordingDescriptor:
        with suppress(ArchiveError):
            await archive.stop_recording_by_identity(recording_id)
        return await settled(archive, recording_id, OPEN_TIMEOUT_S)

    async def _last_record(
        self, archive: Archive, recordings: list[RecordingDescriptor]
    ) -> RecordHeader | None:
        for each in reversed(recordings):
            header = await last_header(archive, each)
            if header is not None:
                return header
        return None

    def _continue(self, header: RecordHeader | None) -> None:
        """Take the last record of the log for the one to continue behind."""
        sequence, epoch = (0, 0) if header is None else (header.sequence, header.epoch)
        if epoch >= MOST_EPOCH:
            message = f"the log was opened {MOST_EPOCH} times, and no more is possible"
            raise ConfigurationError(message)
        self.epoch = epoch + 1
        if not self.opened_count:
            self.last_sequence = self.recorded_sequence = sequence
            return
        if not self.recorded_sequence <= sequence <= self.last_sequence:
            message = (
                f"the log ends with record {sequence}, but this producer has appended up to "
                f"{self.last_sequence}, of which {self.recorded_sequence} were recorded: the "
                "archive has lost records, or another producer has added some"
            )
            raise FencedError(message)
        self._resolve(sequence)
        for each in self._pending:
            self.resent_count += each.position is not None
            each.position = None
        self._unsent = deque(self._pending)

    async def _record(
        self, archive: Archive, last: RecordingDescriptor | None
    ) -> ExclusivePublication:
        """Add a publication, and let the archive record its session; return it."""
        stream_id = self._log_name.stream_id
        # From where the last record was looked for, and not from where the recording ends by now:
        # if another producer has appended since, the archive refuses the extension.
        channel_from = self._channel if last is None else extending_channel(last, self._channel)
        publication = await self._aeron.add_exclusive_publication(channel_from, stream_id)
        session_id = publication.session_id
        failures: list[ArchiveError] = []
        settings: dict[str, Any] = {
            "source_location": self._source_location,
            "auto_stop": True,
            "on_failed": failures.append,
        }
        try:
            # Before the request: if its answer is lost, the recording may still be of this session.
            self._sessions.add(session_id)
            channel = str(self._log_name.channel.replace(session_id=session_id))
            if last is None:
                await archive.start_recording(channel, stream_id, **settings)
            else:
                await archive.extend_recording(last.recording_id, channel, stream_id, **settings)
            self.recording_id = await self._recorded_by(archive, session_id, last, failures)
        except BaseException:
            publication.close()
            raise
        return publication

    async def _recorded_by(
        self,
        archive: Archive,
        session_id: int,
        last: RecordingDescriptor | None,
        failures: list[ArchiveError],
    ) -> int:
        """Wait until the archive records a session; return the id of the recording."""
        delay_s = FIRST_DELAY_S / 50
        waited_s = 0.0
        stream_id = self._log_name.stream_id
        while waited_s < OPEN_TIMEOUT_S:
            if failures:
                raise StoppedError(str(failures[0]))
            if last is None:
                found = await archive.find_last(
                    channel="", stream_id=stream_id, session_id=session_id
                )
                if found is not None:
                    return found
            else:
                descriptor = await archive.describe(last.recording_id)
                if descriptor.session_id == session_id and descriptor.is_active:
                    return last.recording_id
            await asyncio.sleep(delay_s)
            waited_s += delay_s
            delay_s = min(2 * delay_s, FIRST_DELAY_S)
        message = (
            f"the archive does not record session {session_id} of stream {stream_id} after "
            f"{OPEN_TIMEOUT_S:g} s: check source_location, and the archive's log"
        )
        raise StoppedError(message)

    async def _send_opened(self, archive: Archive, publication: ExclusivePublication) -> None:
        """Append the first record of the epoch, and wait until it is recorded."""
        header = RecordHeader(
            RecordKind.OPENED,
            self._producer_id,
            self.recorded_sequence,
            self.epoch,
            self._aeron.clock.epoch_ns(),
        )
        try:
            position = await publication.offer(
                encode_header(header) + self._name.encode(), timeout=OPEN_TIMEOUT_S
            )
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await self._recorded(archive, position)
        except (AeronTimeoutError, TimeoutError) as error:
            message = f"the first record is not recorded after {OPEN_TIMEOUT_S:g} s: {error}"
            raise StoppedError(message) from error

    # Watching.

    async def _serve(self, archive: Archive) -> None:
        """Send what is appended and wait until it is recorded, until the recording ends."""
        while True:
            self._send()
            self._work.clear()
            oldest = self._pending[0].position if self._pending else None
            if oldest is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_DELAY_S if self._pending else IDLE_LOOK_S):
                        await self._work.wait()
                if self._pending and self._pending[0].position is not None:
                    continue
                await self._recorded(archive, 0)
                continue
            recorded = await self._recorded(archive, oldest)
            sequence = self.recorded_sequence
            for each in self._pending:
                if each.position is None or each.position > recorded:
                    break
                sequence = each.sequence
            self._resolve(sequence)
            if recorded < oldest:
                await asyncio.sleep(FIRST_DELAY_S)

    async def _recorded(self, archive: Archive, position: int) -> int:
        """Wait until the own recording has come to a position; return where it is.

        Raises:
            FencedError: The recording belongs to another session.
            StoppedError: The recording has stopped before that position.
        """
        assert self.recording_id is not None, "the log is open"
        # The position is older than the session: a recording never comes back to a session that it
        # has left, so the position was reached in one of this producer.
        recorded, descriptor = await archive.wait_recorded_descriptor(self.recording_id, position)
        if descriptor.session_id not in self._sessions:
            raise FencedError(self._fenced_by("extends the recording"))
        if not descriptor.is_active and (not position or recorded < position):
            message = f"recording {self.recording_id} has stopped at {descriptor.stop_position}"
            raise StoppedError(message)
        return recorded

    def _resolve(self, sequence: int) -> None:
        """Take all records up to a sequence for recorded."""
        pending = self._pending
        while pending and pending[0].sequence <= sequence:
            self._pending_bytes -= len(pending.popleft().data)
        if sequence > self.recorded_sequence:
            self.recorded_sequence = sequence
            self._progress.notify()

    # Closing.

    async def aclose(self) -> None:
        """Wait up to 5 s until everything is recorded, and close; a second call does nothing.

        What is not recorded by then may be lost: `recorded_sequence` tells. The end of
        `async with` raises in that case.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None and self.opened_count:
                with suppress(TimeoutError, AeronError, OSError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await self.flush()
        finally:
            self._is_closed = True
            self._progress.notify()
            await self._tasks.aclose()
            await self._leave()

    def check_complete(self) -> None:
        """Raise if records are not known to be recorded; the end of `async with` does it.

        Raises:
            FencedError: A newer producer has taken over the log before they were recorded.
            ArchiveError: The archive has not recorded them.
        """
        if not self._pending:
            return
        if self._failure is not None:
            raise self._failure
        why = self._link.why or "the archive did not record them in time"
        message = (
            f"{len(self._pending)} records are not known to be recorded: the last that is has "
            f"sequence {self.recorded_sequence}; {why}"
        )
        raise ArchiveError(message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; if the block has not raised, raise for records that are not recorded.

        Raises:
            FencedError: A newer producer has taken over the log before they were recorded.
            ArchiveError: They were not recorded within 5 s.
        """
        await self.aclose()
        if exc is None:
            self.check_complete()
