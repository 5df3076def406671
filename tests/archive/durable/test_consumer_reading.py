"""What a consumer does when its reading is cancelled, its store fails, or ids are out of order."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_async.archive import Cursor
from aeron_async.archive.durable.consumer import Consumer
from aeron_async.archive.durable.log import in_order
from aeron_async.archive.durable.records import RecordHeader, RecordKind, encode_header
from aeron_async.clock import NS_PER_MS
from aeron_async.errors import DataLossError

LOG = uuid.uuid4()


def recording(recording_id: int, began_ms: int, *, is_active: bool = False) -> Any:
    return SimpleNamespace(
        recording_id=recording_id,
        start_timestamp_ms=began_ms,
        start_position=0,
        stop_position=None if is_active else 0,
        is_active=is_active,
    )


class Recordings:
    """The recordings of a log."""

    stream_id = 7

    def __init__(self, *recordings: Any) -> None:
        self.recordings_ = recordings

    async def recordings(self, _: Any, from_recording_id: int = 0) -> list[Any]:
        return in_order(each for each in self.recordings_ if each.recording_id >= from_recording_id)


class SlowReplay:
    """Suspends before each message and behind some of them, and takes nothing if cancelled."""

    def __init__(self) -> None:
        self.taken = 0
        self.has_more = True

    async def __anext__(self) -> Any:
        for _ in range(2):
            await asyncio.sleep(0)
        self.taken += 1
        self.has_more = self.taken % 10 != 0
        header = RecordHeader(RecordKind.DATA, 1, self.taken, 1)
        return SimpleNamespace(position=32 * self.taken, data=encode_header(header))

    async def aclose(self) -> None:
        pass


def consumer_of(
    names: Any, store: Any = None, *, auto_commit: bool = False, start: Any = "first"
) -> Any:
    nothing: Any = None
    link: Any = SimpleNamespace(why="")
    consumer: Any = Consumer(
        link, nothing, names, start=start, store=store, auto_commit=auto_commit
    )
    consumer._log_id, consumer._recording_id = LOG, 0
    return consumer


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5), st.booleans()), max_size=20))
def test_a_cancelled_read_loses_nothing_and_repeats_nothing(
    cuts: list[tuple[int, int, bool]],
) -> None:
    async def story() -> None:
        consumer = consumer_of(Recordings())
        consumer._replay = SlowReplay()
        got: list[int] = []

        async def take(limit: int, *, is_single: bool) -> None:
            if is_single:
                got.append((await anext(consumer)).sequence)
            else:
                batch = await anext(consumer.batches(limit))
                got.extend(each.sequence for each in batch.records)

        for steps, limit, is_single in cuts:
            task = asyncio.create_task(take(limit, is_single=is_single))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert got == list(range(1, len(got) + 1))
            # What `commit` would store.
            cursor = consumer.cursor
            assert (cursor.position if cursor else 0) == 32 * len(got)
        while len(got) < 200:
            await take(7, is_single=False)
        assert got == list(range(1, len(got) + 1))

    asyncio.run(story())


async def test_what_a_store_raises_reaches_the_reader() -> None:
    async def save(_: Cursor) -> None:
        message = "the connection of the database is closed"
        raise RuntimeError(message)

    consumer = consumer_of(Recordings(), SimpleNamespace(save=save), auto_commit=True)
    consumer._replay = SlowReplay()
    consumer._committer.start(consumer._commit_often(), "test")
    with pytest.raises(RuntimeError, match="database"):  # noqa: PT012 - reads until it raises
        async with asyncio.timeout(10):
            async for _ in consumer:
                pass
    await consumer.aclose()


async def test_what_the_watch_raises_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_async.archive.durable.consumer.LOOK_S", 0)

    class EndlessReplay:
        has_more = False

        def __init__(self) -> None:
            self.closed = asyncio.Event()

        async def __anext__(self) -> Any:
            await self.closed.wait()
            raise StopAsyncIteration

        async def aclose(self) -> None:
            self.closed.set()

    class Broken(Recordings):
        async def recordings(self, _: Any, from_recording_id: int = 0) -> list[Any]:
            raise LookupError(from_recording_id)

    consumer = consumer_of(Broken())
    consumer._replay = EndlessReplay()
    consumer._watcher.start(consumer._watch(None, consumer._replay), "test")
    with pytest.raises(LookupError):
        await asyncio.wait_for(anext(consumer), 10)
    await consumer.aclose()


async def test_the_successor_is_the_next_by_time_and_not_by_id() -> None:
    names = Recordings(recording(5, 100), recording(3, 200), recording(4, 300))
    consumer = consumer_of(names)
    consumer._go_to(recording(5, 100), 0)
    assert await consumer._has_ended(None)
    current, following = await consumer._check_place(None, await names.recordings(None))
    assert (current.recording_id, following.recording_id) == (5, 3)
    # The current one is purged.
    purged = Recordings(*names.recordings_[1:])
    _, following = await consumer._check_place(None, await purged.recordings(None))
    assert following.recording_id == 3
    # Of a stored cursor only the id is known.
    consumer._recording_id, consumer._began_ms = 3, None
    _, following = await consumer._check_place(
        None, await Recordings(*names.recordings_[2:]).recordings(None)
    )
    assert following.recording_id == 4


async def test_a_cursor_knows_its_place_after_its_recording_was_purged() -> None:
    left = Recordings(recording(5, 100), recording(3, 300), recording(4, 400))

    async def begin(cursor: Cursor) -> Any:
        consumer = consumer_of(left, start=cursor)
        consumer._link = SimpleNamespace(get=found, why="")
        await consumer.start()
        return consumer

    async def found() -> tuple[Any, uuid.UUID]:
        return SimpleNamespace(), LOG

    # Recording 2 is the one between 5 and 3.
    consumer = await begin(Cursor(LOG, 2, 64, began_ms=200))
    current, following = await consumer._check_place(None, await left.recordings(None))
    assert (current, following.recording_id) == (None, 3)
    first = f"begin at aeron-log:{LOG}/5/0@100, the first place of the log"
    with pytest.raises(DataLossError, match=f"was purged, .* when it began: .*{first}") as caught:
        await begin(Cursor(LOG, 2, 64))
    assert (caught.value.recording_id, caught.value.position) == (2, 64)
    first = f"it is another one; begin at aeron-log:{LOG}/3/0@300, where that one begins"
    with pytest.raises(DataLossError, match=first):
        await begin(Cursor(LOG, 3, 64, began_ms=299))


async def test_foreign_messages_before_the_time_to_begin_at_are_skipped() -> None:
    consumer = consumer_of(Recordings())
    message = SimpleNamespace(position=64, data=b"of another program")
    consumer._from_ns = 200 * NS_PER_MS
    consumer._go_to(recording(0, 100), 0)
    assert consumer._record_of(message) is None
    consumer._go_to(recording(1, 300), 0)
    assert consumer._record_of(message) is not None
    assert consumer.foreign_count == 2
