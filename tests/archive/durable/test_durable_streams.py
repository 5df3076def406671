"""A log in one process: producers continue it and fence each other, and readers begin anywhere."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import (
    ControlServer,
    ControlSettings,
    Cursor,
    DurableStream,
    FileCursorStore,
    RemoteArchive,
)
from aeron_async.archive.durable.log import settled
from aeron_async.archive.durable.records import RecordHeader, RecordKind, encode_header
from aeron_async.errors import (
    ClosedError,
    ConfigurationError,
    DataLossError,
    FencedError,
    ForeignLogError,
    InvalidPositionError,
    MaxPositionExceededError,
    MessageTooLongError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async import Aeron
    from aeron_async.archive import Consumer, LocalArchive, Record

IPC = "aeron:ipc"
STREAM = 7
TERM = 65_536


async def append(log: DurableStream, count: int, name: str = "one") -> None:
    """Append the next numbers."""
    async with log.produce(name) as producer:
        for _ in range(count):
            await producer.append(b"%d" % (producer.last_sequence + 1))


async def read(consumer: Consumer, count: int) -> list[Record]:
    async with asyncio.timeout(10):
        return [await anext(consumer) for _ in range(count)]


async def sequences(log: DurableStream, count: int, **where: Any) -> list[int | None]:
    async with log.consume(**where) as consumer:
        return [each.sequence for each in await read(consumer, count)]


async def test_a_producer_that_comes_back_continues_the_log(open_archive: Any) -> None:
    for life in range(3):
        async with (
            open_archive() as (aeron, archive),
            DurableStream(archive, aeron, IPC, STREAM) as log,
        ):
            async with log.produce("one") as producer:
                assert producer.last_sequence == producer.recorded_sequence == 5 * life
                assert producer.epoch == life + 1
                for number in range(5):
                    await producer.append(b"%d" % number)
            assert await sequences(log, 5 * life + 5) == list(range(1, 5 * life + 6))
            assert len([each async for each in archive.recordings()]) == 1


async def test_a_durable_append_is_recorded(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with log.produce("one", max_in_flight=3) as producer:
            for number in range(1, 100):
                assert await producer.append(bytes(100), durable=number % 2 == 0) == number
                assert producer.in_flight_count <= 3
                if number % 2 == 0:
                    assert producer.recorded_sequence == number
            assert await producer.flush() == 99
            assert producer.why == ""
            with pytest.raises(MessageTooLongError):
                await producer.append(bytes(TERM))
        with pytest.raises(ClosedError):
            await producer.append(b"")


async def test_what_is_sent_and_not_recorded_is_not_told_as_recorded(
    open_archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        wait_recorded = archive.wait_recorded
        limit = 1 << 40
        reached = asyncio.Event()

        async def held(recording_id: int, position: int) -> int:
            """Return where the recording is, but as if it stood still at the limit."""
            recorded: int = await wait_recorded(recording_id, position)
            if recorded > limit:
                reached.set()
            return min(recorded, limit)

        async with log.produce("one") as producer:
            await producer.append(b"1", durable=True)
            limit = await archive.max_recorded_position(0) + 64
            monkeypatch.setattr(archive, "wait_recorded", held)
            for number in (2, 3, 4):
                await producer.append(b"%d" % number)
            await asyncio.wait_for(reached.wait(), 10)
            flushing = asyncio.ensure_future(producer.flush())
            await asyncio.wait_for(producer.append(b"5"), 10)
            assert not flushing.done()
            assert producer.recorded_sequence < 3
            limit = 1 << 40
            assert await asyncio.wait_for(flushing, 10) >= 4


async def test_the_newer_producer_fences_the_older(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with aclosing(await log.produce("old")) as old:
            await old.append(b"1", durable=True)
            async with log.produce("new") as new:
                assert new.last_sequence == 1
                assert new.epoch > old.epoch
                await new.append(b"2", durable=True)
                with pytest.raises(FencedError) as caught:
                    await old.append(b"lost", durable=True)
                assert caught.value.last_sequence == 1
                with pytest.raises(FencedError):
                    await old.append(b"lost")
                await new.append(b"3", durable=True)
        async with log.consume() as consumer:
            assert [each.data for each in await read(consumer, 3)] == [b"1", b"2", b"3"]


async def test_a_position_that_another_producer_has_reached_records_nothing(
    open_archive: Any,
) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with aclosing(await log.produce("old")) as old:
            await old.append(b"1", durable=True)
            async with log.produce("new") as new:
                for _ in range(20):
                    await new.append(b"as long as the old producer's", durable=True)
                # At once: the old one has not looked since, and its position was passed long ago.
                with pytest.raises(FencedError):
                    await old.append(b"lost", durable=True)
                assert old.recorded_sequence == 1


async def test_an_idle_producer_learns_that_it_is_fenced(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with aclosing(await log.produce("old")) as old, log.produce("new"):
            with pytest.raises(FencedError):
                await asyncio.wait_for(old.append(b"lost", durable=True), 10)


async def test_where_a_reader_begins(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 10)
        async with log.consume() as consumer:
            first = await read(consumer, 4)
        cursor = first[-1].cursor
        assert await sequences(log, 6, start=cursor) == [5, 6, 7, 8, 9, 10]
        assert first[1].timestamp_ns is not None
        at = datetime.fromtimestamp(first[1].timestamp_ns // 1_000 / 1e6, UTC)
        assert 2 in await sequences(log, 3, start=at - timedelta(microseconds=1))
        async with log.consume(start="end") as consumer:
            await append(log, 1)
            assert [each.sequence for each in await read(consumer, 1)] == [11]


async def test_the_cursor_is_where_the_reader_left_off(open_archive: Any, tmp_path: Path) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 10)
        async with FileCursorStore(tmp_path / "cursor") as store:
            async with log.consume(cursor=store) as consumer:
                await read(consumer, 3)
                await consumer.commit()
                # Processed or not: nobody has said so.
                await read(consumer, 2)
            async with log.consume(cursor=store, auto_commit=True) as consumer:
                assert [each.sequence for each in await read(consumer, 3)] == [4, 5, 6]
            # The last one counts as processed only when the next one is asked for.
            assert await sequences(log, 1, cursor=store) == [6]


async def test_commits_come_by_time_and_count(open_archive: Any, tmp_path: Path) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 3_000)
        async with (
            FileCursorStore(tmp_path / "cursor") as store,
            log.consume(cursor=store, auto_commit=True) as consumer,
        ):
            await read(consumer, 3_000)
            async with asyncio.timeout(10):
                while store.save_count == 0:
                    await asyncio.sleep(0.01)
            assert store.save_count < 100


async def record_anew(aeron: Aeron, archive: LocalArchive, data: bytes) -> None:
    """Make a recording of one message, which is of a program that knows no log."""
    subscription_id = await archive.start_recording(IPC, STREAM)
    async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
        await publication.offer(data)
    await archive.stop_recording_subscription(subscription_id)


async def test_recordings_follow_one_another_with_a_boundary(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        # Of programs that know no log: each session has a recording of its own.
        for life in range(3):
            await record_anew(aeron, archive, b"life %d" % life)
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with log.consume() as consumer:
            records = await read(consumer, 3)
        assert [each.data for each in records] == [b"life 0", b"life 1", b"life 2"]
        assert [each.sequence for each in records] == [None] * 3
        assert consumer.foreign_count == 3
        assert records[0].boundary is None
        boundary = records[1].boundary
        assert boundary is not None
        assert (boundary.recording_id, boundary.next_recording_id) == (0, 1)
        assert not boundary.is_lost
        assert boundary.stop_position == records[0].cursor.position


async def purged(archive: LocalArchive) -> int:
    """Purge the first segments of a recording, and return where it begins now."""
    stop = (await settled(archive, 0, 10)).stop_position
    start = stop - stop % TERM
    await archive.purge_segments(0, start)
    return start


async def test_what_was_purged_before_it_was_read_is_a_boundary(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with log.produce("one") as producer:
            for _ in range(200):
                await producer.append(bytes(1_000))
        async with log.consume() as consumer:
            early = (await read(consumer, 1))[0].cursor
        start = await purged(archive)
        with capture_logs() as lines:
            async with log.consume(start=early) as consumer:
                record = (await read(consumer, 1))[0]
        boundary = record.boundary
        assert boundary is not None
        assert boundary.is_lost
        assert (boundary.stop_position, boundary.start_position) == (early.position, start)
        assert list(consumer.boundaries) == [boundary]
        assert [each for each in lines if each["event"] == "log_records_purged"] != []


async def test_behind_a_recording_that_was_purged_the_next_one_is_read(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        for life in range(3):
            await record_anew(aeron, archive, b"life %d" % life)
        log = DurableStream(archive, aeron, IPC, STREAM)
        async with log.consume() as consumer:
            (record,) = await read(consumer, 1)
        began_ms = (await archive.describe(0)).start_timestamp_ms
        assert (record.cursor.recording_id, record.cursor.began_ms) == (0, began_ms)
        await archive.purge_recording(0)
        for cursor in (record.cursor, Cursor(await log.log_id(), 0, record.cursor.position)):
            async with log.consume(start=cursor) as consumer:
                (following,) = await read(consumer, 1)
            assert following.data == b"life 1"
            assert following.boundary is not None
            assert following.boundary.is_lost
        other = Cursor(await log.log_id(), 1, 0, began_ms=began_ms + 10**9)
        with pytest.raises(DataLossError, match="it is another one; begin at aeron-log:") as caught:
            await log.consume(start=other)
        place = str(caught.value).partition("begin at ")[2].partition(",")[0]
        async with log.consume(start=Cursor.parse(place)) as consumer:
            assert [each.data for each in await read(consumer, 2)] == [b"life 1", b"life 2"]


async def test_a_cursor_behind_the_end_is_an_error(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 10)
        async with log.consume() as consumer:
            records = await read(consumer, 10)
        await archive.truncate(0, records[4].cursor.position)
        with pytest.raises(InvalidPositionError) as caught:
            await log.consume(start=records[-1].cursor)
        assert caught.value.nearest == records[4].cursor.position
        await append(log, 1)
        assert await sequences(log, 6) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("data", [b"%d", b"of another length %d"])
async def test_a_place_that_was_written_again_is_an_error(open_archive: Any, data: bytes) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 10)
        async with log.consume() as consumer:
            cursors = [each.cursor for each in await read(consumer, 10)]
        await archive.truncate(0, cursors[4].position)
        async with log.produce("two") as producer:
            for number in range(20):
                await producer.append(data % number)
        for cursor in cursors[5:]:
            with pytest.raises(DataLossError, match="written again") as caught:
                await sequences(log, 1, start=cursor)
            assert (caught.value.recording_id, caught.value.position) == (0, cursor.position)
        # What is before the loss is as it was.
        assert await sequences(log, 20, start=cursors[4]) == list(range(6, 26))


@pytest.mark.parametrize("is_same", [False, True])
async def test_the_end_of_a_recording_is_checked_before_the_next_one_is_read(
    open_archive: Any, *, is_same: bool
) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        await append(log, 9)
        async with log.consume() as consumer:
            cursors = [each.cursor for each in await read(consumer, 9)]
        if not is_same:
            # As long as two records are one, and the one of a producer that opens.
            await archive.truncate(0, cursors[6].position)
            await append(log, 1)
        assert (await settled(archive, 0, 10)).stop_position == cursors[8].position
        await record_anew(aeron, archive, b"of the next recording")
        if is_same:
            async with log.consume(start=cursors[8]) as consumer:
                assert (await read(consumer, 1))[0].data == b"of the next recording"
            return
        with pytest.raises(DataLossError, match="written again") as caught:
            await sequences(log, 1, start=cursors[8])
        assert (caught.value.recording_id, caught.value.position) == (0, cursors[8].position)


async def test_a_foreign_log_is_refused(open_archive: Any, tmp_path: Path) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        found = await log.log_id()
        foreign = Cursor(uuid.uuid4(), 0, 0)
        with pytest.raises(ForeignLogError) as caught:
            await log.consume(start=foreign)
        assert (caught.value.expected, caught.value.found) == (found, foreign.log_id)
        assert str(found) in str(caught.value)
        assert str(foreign.log_id) in str(caught.value)
        given = DurableStream(archive, aeron, IPC, STREAM, log_id=uuid.uuid4())
        with pytest.raises(ForeignLogError):
            await given.log_id()


async def test_the_same_log_is_read_from_elsewhere(
    open_archive: Any, unused_udp_port_factory: Callable[[], int]
) -> None:
    control = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    async with (
        open_archive() as (aeron, archive),
        ControlServer(archive, aeron, ControlSettings(control_channel=control)),
    ):
        near = DurableStream(archive, aeron, IPC, STREAM)
        async with DurableStream(
            lambda: RemoteArchive.connect(aeron, control_channel=control), aeron, IPC, STREAM
        ) as far:
            assert await far.log_id() == await near.log_id()
            await append(far, 20)
            assert await sequences(far, 20) == await sequences(near, 20) == list(range(1, 21))
            async with far.consume() as consumer:
                count = 0
                async for batch in consumer.batches(7):
                    assert 1 <= len(batch.records) <= 7
                    count += len(batch.records)
                    if count == 20:
                        break


@pytest.mark.parametrize(
    "header",
    [
        RecordHeader(RecordKind.DATA, 1, (1 << 63) - 1, 5),
        RecordHeader(RecordKind.DATA, 1, 7, (1 << 32) - 1),
    ],
)
async def test_forged_headers_end_a_log_with_an_error_and_no_loop(
    open_archive: Any, header: RecordHeader
) -> None:
    async with open_archive() as (aeron, archive):
        subscription_id = await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(encode_header(header))
        await archive.stop_recording_subscription(subscription_id)
        log = DurableStream(archive, aeron, IPC, STREAM)
        with pytest.raises((ConfigurationError, MaxPositionExceededError)):
            async with log.produce("one") as producer:
                await producer.append(b"one more")


@pytest.mark.parametrize(
    "channel", ["aeron:ipc?session-id=5", "aeron:ipc?init-term-id=1|term-id=1|term-offset=0"]
)
async def test_a_channel_with_a_place_is_refused(open_archive: Any, channel: str) -> None:
    async with open_archive() as (aeron, archive):
        with pytest.raises(ConfigurationError):
            DurableStream(archive, aeron, channel, STREAM)


async def test_arguments_are_checked_by_the_call(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, IPC, STREAM)
        for start in ("middle", 5, datetime(2026, 1, 1)):  # noqa: DTZ001 - has no time zone
            with pytest.raises(ConfigurationError):
                log.consume(start=start)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            log.consume(auto_commit=True)
        with pytest.raises(ConfigurationError):
            log.produce("\x1b")
        with pytest.raises(ConfigurationError):
            log.produce("one", max_in_flight=0)
        with pytest.raises(ConfigurationError):
            DurableStream(None, aeron, IPC, STREAM)  # type: ignore[arg-type]
