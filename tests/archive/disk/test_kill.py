"""A process that records is killed at any moment, again and again: what it promised is there."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.recovery import recover
from tests import warm
from tests.archive.disk.streams import FrameSource, described, read_all
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("AERON_ASYNC_KILLS", "10"))
MODULE = "tests.archive.disk.recorder_process"
BUDGET = 20_000_000


class Promises:
    """What killed processes said of their recordings."""

    def __init__(self) -> None:
        self.data: dict[int, bytearray] = {}
        self.start: dict[int, int] = {}
        self.position: dict[int, int] = {}

    def hear(self, line: str) -> None:
        word, *numbers = line.split()
        if word == "started":
            return
        recording_id, position, *rest = map(int, numbers)
        if word == "records":
            self.start.setdefault(recording_id, position)
            self.position.setdefault(recording_id, position)
            data = self.data.setdefault(recording_id, bytearray())
            assert len(data) == position - self.start[recording_id]
            descriptor = described(recording_id=recording_id, start_position=position)
            source = FrameSource(descriptor, rest[0], position)
            for _ in range(60):
                block, padding = source.block()
                data += block
                data += bytes(padding)
        elif word == "wrote":
            self.position[recording_id] = position
        else:
            self.position[recording_id] = position
            del self.data[recording_id][position - self.start[recording_id] :]

    def check(self, directory: OsDirectory, catalog: Catalog) -> None:
        for recording_id, position in self.position.items():
            found = catalog.get(recording_id)
            assert found.stop_position >= position
            start = self.start[recording_id]
            assert found.start_position == start
            del self.data[recording_id][found.stop_position - start :]
            self.position[recording_id] = found.stop_position
            data = read_all(directory, found, start, found.stop_position)
            assert data == self.data[recording_id]


def killed_at(path: Path, level: int, seed: int, lines: int) -> list[str]:
    """Let a process record, kill it after so many lines, and return all that it had said."""
    arguments, environment = (str(path), str(level), str(seed)), untraced_environment()
    process = warm.start(MODULE, arguments, environment)
    assert process.stdout is not None
    with process:
        heard = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        heard += process.stdout.readlines()
    assert process.returncode == -9, heard
    # The last line may have been cut off.
    return [each for each in heard if each.endswith("\n")]


@pytest.mark.processes
@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_a_killed_process_promised_is_there(level: int, tmp_path: Path) -> None:
    draw = random.Random(level)
    promises = Promises()
    for kill in range(KILLS):
        for line in killed_at(tmp_path, level, kill, draw.choice((1, 2, 3, 20, 90, 150))):
            promises.hear(line)
        directory = OsDirectory(tmp_path)
        now_ms = 1_000 * (kill + 1)
        mark = MarkFile.open(directory, MarkIdentity(), now_ms=now_ms, sync_level=level)
        catalog = Catalog.open(directory, sync_level=level)
        recover(directory, catalog, now_ms=now_ms, ends_are_whole=mark.ends_are_whole)
        promises.check(directory, catalog)
        catalog.close()
        mark.signal_ready(now_ms)
        mark.close()
