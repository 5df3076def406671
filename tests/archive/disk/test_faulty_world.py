"""What was acknowledged is there, whatever happened: kills, crashes, short writes, a full disk."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.disk import changes
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk.segments import segment_base
from aeron_async.errors import ArchiveError, StorageError
from tests.archive.disk.streams import FrameSource, described, read_all
from tests.support.faulty_files import Faults, FaultyDirectory, ProcessStopped

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

# Each lives six ways. `make long` takes more of them.
SEEDS = range(int(os.environ.get("AERON_ASYNC_DISK_SEEDS", "7")))
SMOOTH = Faults(short_read=0.1, short_write=0.2)
ROUGH = Faults(short_read=0.1, short_write=0.2, write_error=0.01, sync_error=0.01, open_error=0.01)


@attrs.define
class Known:
    """What must be there of a recording."""

    descriptor: RecordingDescriptor
    data: bytearray
    acknowledged: int
    start: int
    stops: set[int] | None = None
    may_be_gone: bool = False

    @property
    def origin(self) -> int:
        return self.descriptor.start_position


class World:
    """One archive that dies again and again, and what it has promised."""

    def __init__(self, seed: int, sync_level: int, faults: Faults, *, power: bool) -> None:
        self.random = random.Random(seed)
        self.disk = FaultyDirectory(seed, SMOOTH)
        self.faults = faults
        self.level = sync_level
        self.power = power
        self.boot = 1
        self.now = 1_000
        self.known: dict[int, Known] = {}
        self.catalog: Any = None

    def live(self) -> None:
        """Start, do this and that, and die."""
        self.now += 100
        self.disk.stop_at = self.disk.steps + self.random.randrange(1, 400)
        try:
            self.start()
            self.check()
            self.disk.faults = self.faults
            for _ in range(self.random.randrange(1, 12)):
                self.act()
        except (ProcessStopped, OSError):
            pass
        self.disk.faults = SMOOTH
        if self.power and self.random.random() < 1 / 2:
            self.disk.crash()
            self.boot += 1
        else:
            self.disk.kill()

    def start(self) -> None:
        mark = MarkFile.open(
            self.disk,
            MarkIdentity(),
            now_ms=self.now + self.boot * 100_000,
            sync_level=self.level,
            boot_id=self.boot,
        )
        self.catalog = Catalog.open(self.disk, sync_level=self.level, capacity=32)
        recover(self.disk, self.catalog, now_ms=self.now, ends_are_whole=mark.ends_are_whole)
        mark.signal_ready(self.now + self.boot * 100_000)

    def check(self) -> None:
        """Hold what is there against what was promised."""
        catalog = self.catalog
        for recording_id, each in list(self.known.items()):
            if recording_id not in catalog:
                assert each.may_be_gone, f"recording {recording_id} is lost"
                del self.known[recording_id]
                continue
            found = catalog.get(recording_id)
            stop = found.stop_position
            assert not found.is_active
            if each.stops is not None:
                assert stop in each.stops or stop >= each.acknowledged, (stop, each.stops)
            else:
                assert stop >= each.acknowledged, (stop, each.acknowledged)
            assert found.start_position >= each.start
            wanted = each.data[found.start_position - each.origin : stop - each.origin]
            assert read_all(self.disk, found, found.start_position, stop) == wanted
            del each.data[stop - each.origin :]
            each.acknowledged, each.stops, each.may_be_gone = stop, None, False

    def act(self) -> None:
        stopped = list(self.known)
        act = self.random.choice((self.record, self.record, self.extend, self.shorten, self.forget))
        if act == self.record or not stopped:
            self.record()
            return
        act(self.random.choice(stopped))  # type: ignore[call-arg]

    def record(self) -> None:
        start = 32 * self.random.randrange(0, 5_000)
        added = self.catalog.add(described(start_position=start, initial_term_id=2**31 - 2))
        self.known[added.recording_id] = Known(added, bytearray(), start, start)
        self.go_on(added)

    def extend(self, recording_id: int) -> None:
        each = self.known[recording_id]
        changes.clear_behind_stop(self.disk, self.catalog, recording_id)
        self.go_on(self.catalog.get(recording_id), each)

    def go_on(self, descriptor: Any, each: Known | None = None) -> None:
        recording_id = descriptor.recording_id
        position = descriptor.start_position if each is None else descriptor.stop_position
        each = self.known[recording_id]
        writer = RecordingWriter(self.disk, descriptor, position=position, sync_level=self.level)
        if not descriptor.is_active:
            self.catalog.update(recording_id, stop_position=-1, stop_timestamp_ms=-1)
        source = FrameSource(each.descriptor, self.random.randrange(1 << 30), position)
        try:
            for _ in range(self.random.randrange(20)):
                block, padding = source.block()
                each.data += block
                each.data += bytes(padding)
                writer.write([(block, padding)])
                assert writer.position == source.position
                each.acknowledged = writer.position
        except StorageError:
            # The disk failed, and the archive lives on.
            self.catalog.update(recording_id, stop_position=writer.position)
            del each.data[writer.position - each.origin :]
            each.acknowledged = writer.position
            writer.close()
            return
        writer.close()
        self.catalog.update(recording_id, stop_position=writer.position, stop_timestamp_ms=self.now)

    def shorten(self, recording_id: int) -> None:
        each = self.known[recording_id]
        found = self.catalog.get(recording_id)
        place = self.random.randrange(found.start_position, found.stop_position + 1) & -65_536
        place = max(place, found.start_position)
        if self.random.random() < 1 / 2:
            each.stops = {place, found.stop_position}
            each.acknowledged = place
            changes.truncate(self.disk, self.catalog, recording_id, place)
            each.stops = {place}
            del each.data[place - each.origin :]
            return
        base = segment_base(
            place, start_position=found.start_position, term_length=65_536, segment_length=131_072
        )
        try:
            changes.purge_segments(self.disk, self.catalog, recording_id, base)
        except ArchiveError:
            return
        each.start = base

    def forget(self, recording_id: int) -> None:
        self.known[recording_id].may_be_gone = True
        changes.purge_recording(self.disk, self.catalog, recording_id)
        del self.known[recording_id]


@pytest.mark.parametrize("faults", [SMOOTH, ROUGH], ids=["smooth", "rough"])
@pytest.mark.parametrize(("level", "power"), [(0, False), (1, True), (2, True)])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_ever_lost(
    seed: int, level: int, *, power: bool, faults: Faults
) -> None:
    world = World(seed, level, faults, power=power)
    for _ in range(8):
        world.live()
    world.disk.stop_at = None
    world.start()
    world.check()
