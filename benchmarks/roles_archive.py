"""The roles around an archive: a stream recorded, read or both, replays, and plain files.

How fast a recording is tells what has been written: its position is looked at every millisecond,
and the marks of the stream are found in it afterwards, by a replay that compares every message.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from bisect import bisect_left
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, SourceLocation
from aeron_async.cli.bench_child import STREAM_ID, StreamPlan, offer_parts, ready, subscribe
from aeron_async.cli.bench_processes import BenchError, check_mark, make_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from aeron_async.cli.bench_child import Role

__all__ = ["ROLES", "LoopLag"]

SAMPLE_S: Final = 0.001
PIECE_LENGTH: Final = 1 << 20
PARTS: Final = 2
QUICK_REPLAYS: Final = 9
SLOW_COUNT: Final = 1_000
SLOW_S: Final = 0.1
IPC: Final = "aeron:ipc?term-length=16m"
MS_PER_SECOND: Final = 1e3


class LoopLag:
    """How late the loop comes to what is due, looked at every millisecond while it is entered.

    Attributes:
        positions: What `where` returned, each with its time, and what the processor had worked for
            this process by then, in seconds.
    """

    def __init__(self, where: Any = lambda: 0) -> None:
        self._where = where
        self.positions: list[tuple[int, float, float]] = []
        self._late_s: list[float] = []
        self._work_s: list[float] = []

    async def watch(self) -> None:
        """Look until it is cancelled."""
        while True:
            due_s, worked_s = time.perf_counter() + SAMPLE_S, time.thread_time()
            await asyncio.sleep(SAMPLE_S)
            now_s = time.perf_counter()
            self._late_s.append(now_s - due_s)
            self._work_s.append(time.thread_time() - worked_s)
            self.passed(self._where(), now_s)

    def passed(self, position: int, now_s: float) -> None:
        """Take a position down; one of a recording that is over, which is 0, is none."""
        if position and (not self.positions or position > self.positions[-1][0]):
            self.positions.append((position, now_s, time.process_time()))

    async def __aenter__(self) -> Self:
        self._watching = asyncio.ensure_future(self.watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()

    def figures(self) -> dict[str, float]:
        """Return the percentile that counts, and the longest, in milliseconds.

        And how long the loop's thread had worked between two looks: the lag that it would have on a
        machine of its own, but for waits.
        """
        late_s, work_s = sorted(self._late_s) or [0.0], sorted(self._work_s) or [0.0]
        return {
            "work_p99_ms": MS_PER_SECOND * work_s[len(work_s) * 99 // 100],
            "lag_p99_ms": MS_PER_SECOND * late_s[len(late_s) * 99 // 100],
            "lag_max_ms": MS_PER_SECOND * late_s[-1],
        }

    def passed_s(self, position: int) -> tuple[float, float]:
        """Return when a position had been reached, to a millisecond, and the work done by then."""
        return self.positions[bisect_left(self.positions, (position, 0.0, 0.0))][1:]


@contextmanager
def folder_in(directory: str, *, settle_s: float) -> Iterator[Path]:
    """Make a directory in another, removed in the end with all that is in it.

    Args:
        directory: The other.
        settle_s: How long to wait first: memory that another process has just freed is allocated
            faster than other memory, and no contender shall get it by chance.
    """
    time.sleep(settle_s)
    with tempfile.TemporaryDirectory(dir=directory, prefix="aeron-async-bench-") as name:
        yield Path(name)


def plain_file(plan: dict[str, Any]) -> dict[str, float]:
    """Write a file for so long, and read it again; return the rate of one of them."""
    with folder_in(plan["directory"], settle_s=plan["settle_s"]) as folder:
        path = folder / "plain"
        data = os.urandom(PIECE_LENGTH)
        length, took_s = 0, 0.0
        started_s = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            while took_s < plan["seconds"]:
                length += file.write(data)
                took_s = time.perf_counter() - started_s
        if plan["is_read"]:
            buffer = bytearray(PIECE_LENGTH)
            started_s = time.perf_counter()
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
            took_s = time.perf_counter() - started_s
    return {"file_mb_per_s": length / took_s / 1e6}


async def record(plan: dict[str, Any]) -> dict[str, float]:
    """Record a stream, subscribe to it, or both; return the rate of the slower of them."""
    stream = StreamPlan(channel=plan["channel"], length=plan["length"], seconds=plan["seconds"])
    records, subscribes = plan["records"], plan["subscribes"]
    with folder_in(plan["directory"], settle_s=plan["settle_s"]) as folder:
        async with (
            aa.Aeron.connect() as aeron,
            await LocalArchive.open(aeron, context_of(folder)) as archive,
            LoopLag(partial(position_of, archive)) as lag,
        ):
            figures: dict[str, float] = {}
            signals = archive.signals()
            if records:
                await archive.start_recording(
                    stream.channel,
                    STREAM_ID,
                    source_location=SourceLocation.REMOTE,
                    auto_stop=True,
                )
            if subscribes:
                figures = await subscribe(aeron, stream, ready=ready)
            else:
                ready()
            if records:
                async for each in signals:
                    if each.signal is RecordingSignal.STOP:
                        lag.passed(each.position, time.perf_counter())
                        break
            figures |= lag.figures()
            if records:
                figures |= await recorded_figures(archive, stream, lag, figures)
    return figures


def context_of(folder: Path) -> ArchiveContext:
    """Return the defaults, in a folder."""
    return ArchiveContext(directory=str(folder / "archive"), low_storage_threshold=0)


def position_of(archive: LocalArchive) -> int:
    """Return how far the first recording is; 0 while none is under way."""
    session = archive.recording_sessions.get(0)
    return 0 if session is None else session.position


async def recorded_figures(
    archive: LocalArchive, plan: StreamPlan, lag: LoopLag, read: Mapping[str, float]
) -> dict[str, float]:
    """Compare all that was recorded; return what the part that counts came to.

    Args:
        archive: With one recording, which has ended.
        plan: Of the stream.
        lag: The loop's lag during the recording.
        read: The figures of the process that read the stream, if one did.
    """
    ends: list[int] = []
    count = 0
    async with archive.replay(0) as replay:
        while len(ends) < PARTS:
            count = await replayed_part(replay, cycle(make_messages(plan.length)))
            ends.append(replay.position)
    (begin_s, begin_work_s), (end_s, end_work_s) = map(lag.passed_s, ends)
    took_s = end_s - begin_s
    rate = min(count / took_s, read.get("messages_per_s", float("inf")))
    return {
        "messages_per_s": rate,
        "mb_per_s": rate * plan.length / 1e6,
        "file_mb_per_s": (ends[1] - ends[0]) / took_s / 1e6,
        "subscriber_share": (end_work_s - begin_work_s) / took_s,
    }


async def replayed_part(replay: AsyncIterator[aa.Message], wanted: Iterator[bytes]) -> int:
    """Take messages up to the next mark, and return how many there were."""
    count, due = 0, wanted.__next__
    async for message in replay:
        if message.data != due():
            check_mark(message.data, count)
            return count
        count += 1
    text = f"the recording ends after {count} messages of this part, and has no mark"
    raise BenchError(text)


async def replay(plan: dict[str, Any]) -> dict[str, float]:
    """Record a stream of this process, and replay it; return the rate of that."""
    stream = StreamPlan(channel=IPC, length=plan["length"], seconds=plan["seconds"])
    with folder_in(plan["directory"], settle_s=0.0) as folder:
        async with (
            aa.Aeron.connect() as aeron,
            await LocalArchive.open(aeron, context_of(folder)) as archive,
        ):
            await archive.start_recording(stream.channel, STREAM_ID)
            publication = await aeron.add_exclusive_publication(stream.channel, STREAM_ID)
            await publication.wait_connected()
            await offer_parts(publication.offer, stream)
            await publication.aclose()
            await archive.stop_recording(stream.channel, STREAM_ID)
            async with LoopLag() as lag, archive.replay(0) as replay:
                await replayed_part(replay, cycle(make_messages(stream.length)))
                position, started_s = replay.position, time.perf_counter()
                count = await replayed_part(replay, cycle(make_messages(stream.length)))
                took_s = time.perf_counter() - started_s
                length = replay.position - position
    rate = count / took_s
    return {
        "messages_per_s": rate,
        "mb_per_s": rate * stream.length / 1e6,
        "file_mb_per_s": length / took_s / 1e6,
        **lag.figures(),
    }


async def replays(plan: dict[str, Any]) -> dict[str, float]:
    """Replay ten times at once, once slowly, while it is recorded; return the others' rate.

    The tenth takes a thousand messages and sleeps, and is far from its end when the others have
    reached theirs.
    """
    stream = StreamPlan(channel=IPC, length=plan["length"], seconds=plan["seconds"])
    with folder_in(plan["directory"], settle_s=0.0) as folder:
        async with (
            aa.Aeron.connect() as aeron,
            await LocalArchive.open(aeron, context_of(folder)) as archive,
        ):
            await archive.start_recording(stream.channel, STREAM_ID)
            publication = await aeron.add_exclusive_publication(stream.channel, STREAM_ID)
            await publication.wait_connected()
            await offer_parts(publication.offer, stream)
            others = [
                asyncio.ensure_future(publish_on(publication, stream.length)),
                asyncio.ensure_future(replay_slowly(archive)),
            ]
            started_s = time.perf_counter()
            async with LoopLag() as lag:
                counts = await asyncio.gather(
                    *(replayed_whole(archive, stream.length) for _ in range(QUICK_REPLAYS))
                )
            rate = sum(counts) / (time.perf_counter() - started_s)
            assert not others[1].done(), "a slow replay delays no other, and is not delayed itself"
            for other in others:
                other.cancel()
            await asyncio.wait(others)
            await publication.aclose()
    return {
        "messages_per_s": rate,
        "mb_per_s": rate * stream.length / 1e6,
        **lag.figures(),
    }


async def publish_on(publication: aa.ExclusivePublication, length: int) -> None:
    """Publish until it is cancelled."""
    for message in cycle(make_messages(length)):
        await publication.offer(message)


async def replay_slowly(archive: LocalArchive) -> None:
    """Replay a thousand messages at a time, with long pauses."""
    count = 0
    async for _ in archive.replay(0, follow=True):
        count += 1
        if count % SLOW_COUNT == 0:
            await asyncio.sleep(SLOW_S)


async def replayed_whole(archive: LocalArchive, length: int) -> int:
    """Replay both parts, and return how many messages they had."""
    async with archive.replay(0, follow=True) as replay:
        messages = make_messages(length)
        return sum([await replayed_part(replay, cycle(messages)) for _ in range(PARTS)])


ROLES: Final[Mapping[str, Role]] = {
    "record": record,
    "replay": replay,
    "replays": replays,
    "plain_file": plain_file,
}
