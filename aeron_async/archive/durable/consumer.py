"""A consumer of a durable stream: its records in order, over all recordings and restarts.

It replays one recording after the other, and follows the last one while it grows. It goes to the
next recording only when the one before has a stop position and is read up to there.

A consumer reads what is recorded and never the live stream. What a publisher has sent and the
archive has not recorded may be lost with either, and its position would then be that of another
record: a consumer that had seen it could neither count on it nor take it back. The archive wakes a
local replay when a block is written, so a follower is behind by the time of that write.

Invariant: each record is returned once and in order by one consumer; `cursor` is the place behind
the record that was returned last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Self, final

import attrs

from aeron_async.archive.durable.cursors import Cursor, check_of
from aeron_async.archive.durable.log import FIRST_DELAY_S
from aeron_async.archive.durable.records import (
    Boundary,
    Record,
    RecordBatch,
    RecordKind,
    decode_header,
)
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    BusyError,
    ConfigurationError,
    DataLossError,
    ForeignLogError,
    InvalidPositionError,
    UnknownRecordingError,
)
from aeron_async.logs import get_logger
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from uuid import UUID

    from aeron_async.archive.api import Archive, Replay
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.durable.cursors import CursorStore
    from aeron_async.archive.durable.log import LogLink, LogName
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Message

__all__ = ["Consumer", "Start"]

Start = Literal["first", "end"] | Cursor | datetime
"""Where a consumer begins that has no stored cursor."""

log: Final = get_logger(__name__)

LOOK_S: Final = 0.25
"""Interval between two checks whether a recording that is followed has a successor."""
COMMIT_COUNT: Final = 1_000
COMMIT_S: Final = 0.05
MOST_BOUNDARIES: Final = 64
MOST_PURGES: Final = 20
"""How often in a row a place may be gone that was there a moment before."""


def written_again(place: Cursor) -> DataLossError:
    """Return the error of a place whose message is no longer the one that was read."""
    message = (
        "the record before this position is no longer the one that was read: the recording was "
        "truncated, or a power failure has taken what was not synced, and it was written again; "
        "begin at a cursor before that"
    )
    return DataLossError(message, recording_id=place.recording_id, position=place.position)


@final
class Consumer:
    """Iterator over the records of a log; made by `DurableStream.consume`.

    Attributes:
        foreign_count: Messages that another program has published; they have no sequence.
        reconnect_count: How often the archive was lost.
        commit_count: How often a cursor was stored.
        boundaries: The last 64 boundaries that were crossed.
    """

    def __init__(
        self,
        link: LogLink,
        aeron: Aeron,
        log_name: LogName,
        *,
        start: Start,
        store: CursorStore | None,
        auto_commit: bool,
    ) -> None:
        self._link = link
        self._aeron = aeron
        self._log_name = log_name
        self._start = start
        self._store = store
        self._auto_commit = auto_commit
        self.foreign_count: int = 0
        self.reconnect_count: int = 0
        self.commit_count: int = 0
        self.boundaries: deque[Boundary] = deque(maxlen=MOST_BOUNDARIES)
        self._log_id: UUID | None = None
        self._recording_id: int | None = None
        # When that recording began, in milliseconds since 1970; None if only its id is known.
        self._began_ms: int | None = None
        self._position = 0
        # The place behind the message that was read last, if its recording is read still.
        self._behind: Cursor | None = None
        # That place, while a replay has still to show that its message is the same.
        self._unchecked: Cursor | None = None
        # The archive that has shown that message, so that it need not at the end of a recording.
        self._shown_by: Archive | None = None
        # Records before this are skipped, in nanoseconds since 1970.
        self._from_ns: int | None = None
        self._boundary: Boundary | None = None
        self._is_waiting_for: str = "the log is being opened"
        self._archive: Archive | None = None
        self._replay: Replay | None = None
        self._stop: int | None = None
        self._returned: Cursor | None = None
        self._processed: Cursor | None = None
        self._processed_count = 0
        self._committed: Cursor | None = None
        self._commit_due = asyncio.Event()
        self._commit_failure: BaseException | None = None
        self._watch_failure: Exception | None = None
        # Records of a batch that was cancelled before it was returned.
        self._given_back: deque[Record] = deque()
        self._is_reading = self._is_closed = False
        self._error_ahead: Exception | None = None
        self._place_error: InvalidPositionError | DataLossError | None = None
        self._purged_count = 0
        self._watcher = TaskOwner(on_failed=lambda _: None)
        self._committer = TaskOwner(on_failed=lambda _: None)
        self._committing = asyncio.Lock()

    @property
    def cursor(self) -> Cursor | None:
        """Return the place behind the record that was returned last; None before the first."""
        return self._returned

    @property
    def why(self) -> str:
        """Return what the consumer waits for, in words; empty if it does not wait."""
        return self._link.why or self._is_waiting_for

    async def start(self) -> None:
        """Load the cursor, open the log, and find where to begin.

        Raises:
            ForeignLogError: The cursor is of another log.
            InvalidPositionError: The cursor is behind the end of its recording.
            ArchiveError: The archive cannot be reached, and nothing opens it again.
        """
        stored = None if self._store is None else await self._store.load()
        self._committed = stored
        place = self._start if stored is None else stored
        if isinstance(place, Cursor):
            self._recording_id, self._position = place.recording_id, place.position
            self._began_ms = place.began_ms or None
            self._behind = place
            self._returned = self._processed = place
        while True:
            archive, log_id = await self._link.get()
            if isinstance(place, Cursor) and place.log_id != log_id:
                raise ForeignLogError(expected=log_id, found=place.log_id)
            self._log_id = log_id
            try:
                await self._find_start(archive, place)
                break
            except (AeronError, OSError) as error:
                await self._lose(archive, error)
        if self._auto_commit:
            self._committer.start(self._commit_often(), "aeron-durable-commit")

    async def _find_start(self, archive: Archive, place: Start) -> None:
        """Set recording and position; None if the log has no recording to begin with yet."""
        recordings = await self._log_name.recordings(archive)
        if isinstance(place, Cursor):
            await self._check_place(archive, recordings)
        elif isinstance(place, datetime):
            self._from_ns = int(place.timestamp() * NS_PER_SECOND)
            begun = [
                each for each in recordings if each.start_timestamp_ms * NS_PER_MS <= self._from_ns
            ]
            if begun:
                self._go_to(begun[-1], begun[-1].start_position)
        elif place == "end" and recordings:
            last = recordings[-1]
            self._go_to(last, await archive.max_recorded_position(last.recording_id))

    def _go_to(self, descriptor: RecordingDescriptor, position: int) -> None:
        self._recording_id, self._position = descriptor.recording_id, position
        self._began_ms = descriptor.start_timestamp_ms
        self._behind = None

    # Reading.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """Return the next record, waiting for it; the iteration ends when the consumer closes.

        With `auto_commit`, the records before it count as processed.

        Raises:
            InvalidPositionError: The recording was truncated before the position of this consumer.
            ForeignLogError: Another archive has taken the place of the log's.
            CursorConflictError: Another consumer has moved the stored cursor.
            DataLossError: The recording is damaged, or the place of this consumer was written
                again; also `ArchiveFileError`.
            ArchiveError: The archive was lost, and nothing opens it again.
            BusyError: Another task reads.
        """
        records = await self._batch(1)
        if not records:
            raise StopAsyncIteration
        return records[0]

    async def _batch(self, limit: int) -> list[Record]:
        """Return at least one record, and others that are there; none once the consumer is closed.

        A call that is cancelled takes nothing: the next one returns what it had read.
        """
        if self._is_reading:
            error_text = "another task reads this consumer: only one may"
            raise BusyError(error_text)
        self._is_reading = True
        records: list[Record] = []
        try:
            self._on_processed()
            record = await self._next()
            while record is not None:
                records.append(record)
                record = await self._more() if len(records) < limit else None
        except BaseException:
            self._given_back.extendleft(reversed(records))
            raise
        finally:
            self._is_reading = False
        if records:
            self._returned = records[-1].cursor
        return records

    async def _next(self) -> Record | None:
        """Return the next record, waiting for it; None once the consumer is closed."""
        while not self._is_closed:
            if self._commit_failure is not None:
                raise self._commit_failure
            if self._given_back:
                return self._given_back.popleft()
            try:
                message = await self._message()
            except (AeronError, OSError) as error:
                archive = self._archive
                await self._stop_replay()
                if archive is None or self._is_closed:
                    raise
                await self._lose(archive, error)
                continue
            record = None if message is None else self._record_of(message)
            if record is not None:
                self._is_waiting_for = ""
                self._purged_count = 0
                return record
        return None

    async def batches(self, limit: int = COMMIT_COUNT) -> AsyncIterator[RecordBatch]:
        """Iterate over batches: all records that are there, at least one and at most `limit`.

        Raises:
            ConfigurationError: The limit is less than 1.
            AeronError: As the iteration over records.
        """
        if limit < 1:
            message = f"limit={limit} must be at least 1"
            raise ConfigurationError(message)
        while records := await self._batch(limit):
            yield RecordBatch(records)

    async def _more(self) -> Record | None:
        """Return the next record if it is there without waiting for the archive."""
        if self._given_back:
            return self._given_back.popleft()
        replay = self._replay
        while replay is not None and replay is self._replay and replay.has_more:
            assert self._unchecked is None, "a message of this replay was returned"
            try:
                message = await anext(replay)
            except StopAsyncIteration:
                return None
            except (AeronError, OSError) as error:
                # After the records that are there already.
                self._error_ahead = error
                return None
            record = self._record_of(message)
            if record is not None:
                return record
        return None

    def _record_of(self, message: Message) -> Record | None:
        """Move behind a message, and return its record; None if the message is not returned."""
        assert self._log_id is not None, "the log is open"
        assert self._recording_id is not None, "a recording is read"
        data = message.data
        length = message.position - self._position
        self._position = message.position
        cursor = Cursor(
            self._log_id,
            self._recording_id,
            message.position,
            length,
            check_of(data),
            max(self._began_ms or 0, 0),
        )
        self._behind = cursor
        self._shown_by = self._archive
        decoded = decode_header(data)
        if decoded is None:
            self.foreign_count += 1
            if self._from_ns is not None and (self._began_ms or 0) * NS_PER_MS < self._from_ns:
                # It has no time, and its recording began before the time to begin at.
                return None
            boundary, self._boundary = self._boundary, None
            return Record(data, cursor, boundary=boundary)
        header, begin = decoded
        if header.kind is RecordKind.OPENED:
            return None
        if self._from_ns is not None:
            if header.timestamp_ns < self._from_ns:
                return None
            self._from_ns = None
        boundary, self._boundary = self._boundary, None
        return Record(
            data[begin:],
            cursor,
            header.sequence,
            header.epoch,
            header.producer_id,
            header.timestamp_ns,
            boundary,
        )

    async def _message(self) -> Message | None:
        """Return the next message; None if the place has changed instead."""
        if self._replay is None:
            await self._begin_replay()
        replay = self._replay
        if replay is None:
            return None
        error, self._error_ahead = self._error_ahead, None
        if error is not None:
            raise error
        try:
            message = await anext(replay)
        except StopAsyncIteration:
            # The end of a stopped recording, or the watching task has seen the next one.
            stop = self._stop
            await self._stop_replay()
            if stop is not None and self._unchecked is not None and not self._is_closed:
                raise written_again(self._unchecked) from None
            if stop is not None:
                # What is behind the last message is padding, or part of a message.
                self._position = max(self._position, stop)
            failure, self._watch_failure = self._watch_failure, None
            if failure is not None:
                raise failure from None
            return None
        unchecked, self._unchecked = self._unchecked, None
        if unchecked is None:
            return message
        if (message.position, check_of(message.data)) == (
            unchecked.position,
            unchecked.record_check,
        ):
            self._shown_by = self._archive
            return None
        raise written_again(unchecked)

    async def _begin_replay(self) -> None:
        """Find what to read next, and begin to replay it; wait if there is nothing yet."""
        self._unchecked = None
        archive, log_id = await self._link.get()
        self._archive = archive
        if log_id != self._log_id:
            raise ForeignLogError(expected=self._log_id, found=log_id)
        recordings = await self._log_name.recordings(archive)
        current, following = await self._check_place(archive, recordings)
        if current is None and following is None:
            self._is_waiting_for = f"stream {self._log_name.stream_id} has no recording yet"
            if self._recording_id is not None:
                self._is_waiting_for = (
                    f"recording {self._recording_id} was purged, and the log has no later one yet"
                )
            await asyncio.sleep(LOOK_S)
            return
        if current is None or (
            following is not None
            and not current.is_active
            and self._position >= current.stop_position
            and (self._shown_by is archive or self._checked_place(current) is None)
        ):
            assert following is not None, "there is one of the two"
            self._cross(current, following)
            return
        if self._is_closed:
            return
        self._is_waiting_for = f"recording {current.recording_id} has nothing new"
        # A recording that has a successor, and no stop position yet, is followed until it has one.
        is_settled = following is not None and not current.is_active
        self._stop = current.stop_position if is_settled else None
        begin = self._checked_place(current)
        if begin is None:
            begin = self._position
        else:
            self._unchecked = self._behind
        self._replay = archive.replay(
            current.recording_id, begin, self._stop, follow=not is_settled
        )
        if not is_settled:
            self._watcher.start(self._watch(archive, self._replay), "aeron-durable-watch")

    def _checked_place(self, current: RecordingDescriptor) -> int | None:
        """Return where the message before begins; None if it is not there to be checked."""
        behind = self._behind
        if behind is None or not behind.record_length:
            return None
        place = behind.position - behind.record_length
        return place if place >= current.start_position else None

    def _cross(self, current: RecordingDescriptor | None, following: RecordingDescriptor) -> None:
        """Go on with the next recording."""
        start = following.start_position
        if self._recording_id is not None:
            self._say(
                Boundary(
                    recording_id=self._recording_id,
                    stop_position=self._position,
                    next_recording_id=following.recording_id,
                    start_position=start,
                    is_lost=current is None,
                )
            )
        self._go_to(following, start)

    def _say(self, boundary: Boundary) -> None:
        # If several are crossed without a record in between, the record tells the whole way.
        earlier = self._boundary
        self.boundaries.append(boundary)
        self._boundary = boundary
        if earlier is not None:
            self._boundary = Boundary(
                recording_id=earlier.recording_id,
                stop_position=earlier.stop_position,
                next_recording_id=boundary.next_recording_id,
                start_position=boundary.start_position,
                is_lost=earlier.is_lost or boundary.is_lost,
            )
        fields = {"stream_id": self._log_name.stream_id, **attrs.asdict(boundary)}
        del fields["is_lost"]
        if boundary.is_lost:
            log.warning("log_records_purged", **fields)
        else:
            log.info("log_boundary_crossed", **fields)

    async def _check_place(
        self, archive: Archive, recordings: list[RecordingDescriptor]
    ) -> tuple[RecordingDescriptor | None, RecordingDescriptor | None]:
        """Return the current recording and the one behind it, after checking the position.

        Raises:
            InvalidPositionError: The position is behind the end of the recording.
            DataLossError: The recording was purged, and what comes behind it is not known; or
                another one has its id.
        """
        if self._recording_id is None:
            return None, recordings[0] if recordings else None
        ids = [each.recording_id for each in recordings]
        if self._recording_id not in ids:
            # Purged as a whole: the next one is the first that began later.
            if self._began_ms is None and ids != sorted(ids):
                what = (
                    "the recording was purged, and a cursor of an earlier version does not say "
                    "when it began: the recordings of this log are not in the order of their ids, "
                    "so what follows is not known"
                )
                raise self._lost_place(what, recordings[0])
            return None, next((each for each in recordings if self._is_later(each)), None)
        index = ids.index(self._recording_id)
        current = recordings[index]
        if self._began_ms not in {None, current.start_timestamp_ms}:
            what = (
                f"the recording of this cursor began {self._began_ms} ms after the beginning of "
                f"1970, and the one of this id at {current.start_timestamp_ms}: it is another one"
            )
            raise self._lost_place(what, current)
        self._began_ms = current.start_timestamp_ms
        following = recordings[index + 1] if index + 1 < len(recordings) else None
        recorded = (
            await archive.max_recorded_position(current.recording_id)
            if current.is_active
            else current.stop_position
        )
        if self._position > recorded:
            message = (
                f"position {self._position} is behind the end {recorded} of recording "
                f"{current.recording_id}: the recording was truncated, or a power failure has "
                "taken what was not synced; begin again at a valid cursor"
            )
            error = self._place_error = InvalidPositionError(message, nearest=recorded)
            raise error
        if self._position < current.start_position:
            self._say(
                Boundary(
                    recording_id=current.recording_id,
                    stop_position=self._position,
                    next_recording_id=current.recording_id,
                    start_position=current.start_position,
                    is_lost=True,
                )
            )
            self._position = current.start_position
        return current, following

    def _lost_place(self, what: str, descriptor: RecordingDescriptor) -> DataLossError:
        """Return the error of a place that the log has not, and say where to begin instead."""
        assert self._log_id is not None, "the log is open"
        assert self._recording_id is not None, "a recording is read"
        began_ms = max(descriptor.start_timestamp_ms, 0)
        first = Cursor(
            self._log_id,
            descriptor.recording_id,
            descriptor.start_position,
            began_ms=began_ms,
        )
        message = f"{what}; begin at {first}, where that one begins"
        if descriptor.recording_id != self._recording_id:
            message = f"{what}; begin at {first}, the first place of the log, or behind it"
        recording_id, position = self._recording_id, self._position
        error = DataLossError(message, recording_id=recording_id, position=position)
        self._place_error = error
        return error

    def _is_later(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether a recording comes after the current one in the order of the log."""
        assert self._recording_id is not None, "a recording is read"
        if self._began_ms is None:
            # Of a stored cursor whose recording was purged, only the id is known.
            return descriptor.recording_id > self._recording_id
        key = (descriptor.start_timestamp_ms, descriptor.recording_id)
        return key > (self._began_ms, self._recording_id)

    async def _watch(self, archive: Archive, replay: Replay) -> None:
        """End a replay that follows a recording once another one has begun."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                if await self._has_ended(archive):
                    break
        except (AeronError, OSError):
            # The reader meets it too, when it looks for what to read next.
            pass
        except Exception as error:  # noqa: BLE001 - the reader raises it
            self._watch_failure = error
        await replay.aclose()

    async def _has_ended(self, archive: Archive) -> bool:
        """Return whether the current recording has a successor, or was purged while it was read."""
        assert self._recording_id is not None, "a recording is read"
        recordings = await self._log_name.recordings(archive, self._recording_id)
        current = next(
            (each for each in recordings if each.recording_id == self._recording_id), None
        )
        if current is None or current.start_position > self._position:
            return True
        if current.is_active:
            return False
        # The ids need not be in the order of the log.
        recordings = await self._log_name.recordings(archive)
        return any(self._is_later(each) for each in recordings)

    async def _stop_replay(self) -> None:
        replay, self._replay = self._replay, None
        self._stop = self._error_ahead = None
        try:
            await self._watcher.aclose()
        finally:
            if replay is not None:
                with suppress(AeronError, OSError):
                    await replay.aclose()

    async def _lose(self, archive: Archive, error: Exception) -> None:
        """Give up an archive, and let the link open it again; raise what stays wrong."""
        if error is self._place_error:
            raise error
        is_purged = isinstance(error, InvalidPositionError | UnknownRecordingError)
        if is_purged and self._purged_count < MOST_PURGES:
            # Purged between two calls: `_check_place` finds where to go on.
            self._purged_count += 1
            await asyncio.sleep(FIRST_DELAY_S)
            return
        if is_purged and self._unchecked is not None:
            # It is not purged, and no message begins where the one before began.
            raise written_again(self._unchecked) from error
        self.reconnect_count += 1
        await self._link.lose(archive, error)

    # Committing.

    def _on_processed(self) -> None:
        """Take the record that was returned last for processed."""
        if self._returned is not None and self._returned != self._processed:
            self._processed = self._returned
            self._processed_count += 1
            if self._processed_count == 1 or self._processed_count >= COMMIT_COUNT:
                self._commit_due.set()

    async def commit(self) -> None:
        """Store the place behind the record that was returned last, and wait until it is stored.

        Raises:
            CursorConflictError: Another consumer has moved the stored cursor.
            StorageError: The store failed.
            ConfigurationError: The consumer has no cursor store.
        """
        if self._store is None:
            message = "the consumer has no cursor store: pass cursor=FileCursorStore(path)"
            raise ConfigurationError(message)
        self._processed = self._returned
        await self._commit()

    async def _commit(self) -> None:
        async with self._committing:
            cursor = self._processed
            self._processed_count = 0
            if self._store is None or cursor is None or cursor == self._committed:
                return
            await self._store.save(cursor)
            self._committed = cursor
            self.commit_count += 1

    async def _commit_often(self) -> None:
        """Store the cursor 50 ms after a record was processed, or after 1,000 of them."""
        try:
            while True:
                await self._commit_due.wait()
                self._commit_due.clear()
                if self._processed_count < COMMIT_COUNT:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(COMMIT_S):
                            await self._commit_due.wait()
                self._commit_due.clear()
                await self._commit()
        except Exception as error:  # noqa: BLE001 - a store of users may raise anything
            self._commit_failure = error
            await self._stop_replay()

    # Closing.

    async def aclose(self) -> None:
        """Stop reading, and store the cursor of the processed records; a second call does nothing.

        The store stays open. The record that was returned last counts as processed only after the
        next one was asked for, or after `commit`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self._committer.aclose()
        try:
            if self._auto_commit and self._commit_failure is None:
                await self._commit()
        finally:
            await self._stop_replay()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
