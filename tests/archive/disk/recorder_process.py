"""Records until it is killed, and says on its output what it has promised; see `test_kill`."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time

from aeron_async.archive.disk import changes
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk_access import DiskThreads
from aeron_async.archive.recording_session import open_write_queue
from tests.archive.disk.streams import FrameSource, described


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write_by_queue(writer: RecordingWriter, source: FrameSource, count: int) -> None:
    """Write as a recording does, several blocks at once where that can be."""
    woken = asyncio.Event()
    disk = DiskThreads()
    descriptor = source.descriptor
    queue = open_write_queue(writer, disk, term_length=descriptor.term_length, wake=woken.set)
    said = position = writer.position
    left = count
    while left or not queue.is_idle:
        while left and queue.room():
            queue.begin(*source.block())
            left -= 1
        woken.clear()
        position = queue.collect()
        if position != said:
            said = position
            say("wrote", descriptor.recording_id, position)
        if not queue.is_idle and not (left and queue.room()):
            await woken.wait()
    await queue.aclose()
    await disk.aclose()


def main(path: str, sync_level: int, seed: int) -> None:
    draw = random.Random(seed)
    say("started")
    directory = OsDirectory(path)
    now_ms = time.time_ns() // 1_000_000
    mark = MarkFile.open(directory, MarkIdentity(), now_ms=now_ms, sync_level=sync_level)
    catalog = Catalog.open(directory, sync_level=sync_level, capacity=4_096)
    recover(directory, catalog, now_ms=now_ms, ends_are_whole=mark.ends_are_whole)
    mark.signal_ready(now_ms)
    while True:
        if len(catalog) and draw.random() < 1 / 2:
            recording_id = draw.choice(list(catalog.ids()))
            changes.clear_behind_stop(directory, catalog, recording_id)
            descriptor = catalog.get(recording_id)
            position = descriptor.stop_position
        else:
            descriptor = catalog.add(described(start_position=32 * draw.randrange(5_000)))
            recording_id, position = descriptor.recording_id, descriptor.start_position
        number = draw.randrange(1 << 30)
        # Said before it begins: what was not promised may be there all the same.
        say("records", recording_id, position, number)
        writer = RecordingWriter(directory, descriptor, position=position, sync_level=sync_level)
        if not descriptor.is_active:
            catalog.update(recording_id, stop_position=-1, stop_timestamp_ms=-1)
        source = FrameSource(descriptor, number, position)
        count = draw.randrange(60)
        if draw.random() < 1 / 2:
            asyncio.run(write_by_queue(writer, source, count))
        else:
            for _ in range(count):
                writer.write([source.block()])
                say("wrote", recording_id, writer.position)
        writer.close()
        catalog.update(recording_id, stop_position=writer.position, stop_timestamp_ms=now_ms)
        say("stopped", recording_id, writer.position)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
