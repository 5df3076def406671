"""An archive is killed at any moment, again and again: what it had said was recorded is there."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.segments import segment_bases, segment_name
from aeron_async.archive.disk.verify import Finding, Severity, verify
from tests.archive.killed_archive import Worker, main, opened
from tests.archive.lives import Run, runs_of
from tests.warm import CONTEXT

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async import Aeron
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.local_archive import LocalArchive

KILLS = int(os.environ.get("AERON_ASYNC_ARCHIVE_KILLS", "4"))
KEPT = 6
"""Recordings that are left when a round is over: each is read again in each."""
CHECKS_OWN = 1 << 20
"""Lives of those that this process records are from here on."""


class Promises:
    """What archives that were killed had said of their recordings."""

    def __init__(self) -> None:
        self.written: dict[int, int] = {}
        self.ends: dict[int, dict[tuple[int, int], int]] = {}
        self.runs: dict[int, list[Run]] = {}

    def hear(self, line: str) -> None:
        word, *rest = line.split()
        numbers = list(map(int, rest))
        if word == "sent":
            recording_id, life, number, end = numbers
            self.ends.setdefault(recording_id, {})[life, number] = end
        elif word == "wrote":
            recording_id, position = numbers
            self.written[recording_id] = max(self.written.get(recording_id, 0), position)

    async def check(self, path: Path, archive: LocalArchive) -> None:
        """Hold every recording against what was said of it, and against what it was before."""
        found = {each.recording_id: each async for each in archive.recordings()}
        assert self.written.keys() <= found.keys()
        for recording_id, each in found.items():
            assert not each.is_active
            assert each.stop_position >= self.written.get(recording_id, 0)
            self.written[recording_id] = each.stop_position
            runs = await runs_of(archive.replay(recording_id))
            for before, now in zip(self.runs.get(recording_id, ()), runs, strict=False):
                assert before == now
            self.runs[recording_id] = runs
            said = self.ends.pop(recording_id, {})
            for run in runs:
                for number, end in enumerate(run.ends, run.first):
                    assert said.get((run.life, number), end) == end
            assert not any(behind_the_end(path, each))

    def forget(self, recording_id: int) -> None:
        del self.written[recording_id], self.runs[recording_id]


def behind_the_end(path: Path, descriptor: RecordingDescriptor) -> bytes:
    """Return what the files of a recording hold behind where that ends."""
    directory = OsDirectory(path)
    stop, recording_id = descriptor.stop_position, descriptor.recording_id
    out = bytearray()
    for base in segment_bases(directory.names(), recording_id):
        data = (path / segment_name(recording_id, base)).read_bytes()
        assert len(data) == descriptor.segment_length
        assert base <= stop
        out += data[stop - base :]
    return bytes(out)


def killed(
    path: Path, level: int, checksum: str | None, seed: int, draw: random.Random
) -> list[str]:
    """Let an archive record, kill it some time, and return all that it had said."""
    assert CONTEXT is not None
    out, end = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=main, args=(end, str(path), level, checksum, seed))
    process.start()
    end.close()
    heard = []
    try:
        for _ in range(draw.choice((1, 1, 2, 10, 100, 400, 900))):
            assert out.poll(30)
            heard.append(out.recv_bytes().decode())
        # Most moments are none at which it says anything.
        time.sleep(draw.random() * draw.choice((0.0, 0.005, 0.05)))
    finally:
        process.kill()
    try:
        while True:
            heard.append(out.recv_bytes().decode())
    except (EOFError, OSError):
        # The last line may have been cut off.
        pass
    process.join()
    assert process.exitcode == -9, heard[-1]
    process.close()
    out.close()
    return heard


async def goes_on(aeron: Aeron, archive: LocalArchive, promises: Promises, seed: int) -> None:
    """Record a new stream, extend an old one, and forget the oldest."""
    begin = CHECKS_OWN + seed * 10
    worker = Worker(aeron, archive, range(begin, begin + 10), set())
    await worker.record()
    recordings = [each async for each in archive.recordings()]
    await worker.extend(recordings[seed % len(recordings)])
    for recording_id in [each.recording_id for each in recordings[:-KEPT]]:
        await archive.purge_recording(recording_id)
        if recording_id in promises.runs:
            promises.forget(recording_id)


@pytest.mark.parametrize(("level", "checksum"), [(0, None), (1, "crc32"), (2, None)])
async def test_what_a_killed_archive_had_recorded_is_there(
    level: int, checksum: str | None, tmp_path: Path
) -> None:
    draw = random.Random(level)
    promises = Promises()
    for kill in range(KILLS):
        for line in killed(tmp_path, level, checksum, kill, draw):
            promises.hear(line)
        async with opened(str(tmp_path), level, checksum) as (aeron, archive):
            await promises.check(tmp_path, archive)
            await goes_on(aeron, archive, promises, kill)
        found = verify(OsDirectory(tmp_path), checksum=checksum_named(checksum))
        problems = [each for each in found if isinstance(each, Finding)]
        assert [each for each in problems if each.severity is Severity.PROBLEM] == []
