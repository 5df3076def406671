"""Question: what does it cost to plan for ten thousand recordings, a million files, ten terabytes?

`python -m benchmarks many_recordings` makes such archives: recordings of one gigabyte and more in
files that are empty, except for the frames at their ends, so that they take little of the disk. A
process of its own plans a batch over all of them, and follows them as a stream. Each figure is
processor time of that process, the system's included. With `--before TREE`, another process does
the same with the package of another tree, by turns; it plans far fewer files if it must.

At last a day is played, minute by minute: seven recordings of a gigabyte begin and end in each, and
50 are active. The stream plans each minute as a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from struct import Struct, pack_into
from time import process_time_ns
from typing import Any, Final

TERM: Final = 16 << 20
FRAME: Final = Struct("<iBBHiiiiq")
FRAME_LENGTH: Final = 64
WHOLE: Final = 0xC0
MTU: Final = 1_408
TERM_ID: Final = 7
SESSION_ID: Final = 5
STREAM_ID: Final = 1001
METADATA_LENGTH: Final = 512
VALUE_LENGTH: Final = 128
COUNTERS: Final = 8_192
CNC: Final = Struct("<iiiii")
CNC_LENGTH: Final = 128
CNC_VERSION: Final = 512
POSITION_COUNTER: Final = 100
MINUTES: Final = 1_440
BEGIN_EACH_MINUTE: Final = 7
ACTIVE: Final = 50
LIMIT: Final = 48 << 30
IDLE_POLLS: Final = 50


class SparseArchive:
    """An archive whose recordings take little room, and the counters of its driver.

    Args:
        path: Of a new folder.
    """

    def __init__(self, path: Path) -> None:
        # Imported here: the process of another tree takes its package, and makes no archive.
        from aeron_async.archive.disk.catalog import Catalog  # noqa: PLC0415
        from aeron_async.archive.disk.files import OsDirectory  # noqa: PLC0415

        self.path = path / "archive"
        self.driver = path / "driver"
        self.driver.mkdir(parents=True)
        self.catalog = Catalog.open(OsDirectory(self.path), capacity=8 << 20)
        self.ends: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._free = list(range(COUNTERS - 1, -1, -1))
        metadata = COUNTERS * METADATA_LENGTH
        values = COUNTERS * VALUE_LENGTH
        self._cnc = os.open(self.driver / "cnc.dat", os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._cnc, CNC_LENGTH + metadata + values)
        os.pwrite(self._cnc, CNC.pack(CNC_VERSION, 0, 0, metadata, values), 0)

    def begin(self, *, started_ms: int, count: int | None = None) -> int:
        """Add an active recording; return its id."""
        from aeron_async.archive.disk.descriptor import RecordingDescriptor  # noqa: PLC0415

        descriptor = self.catalog.add(
            RecordingDescriptor(
                recording_id=0,
                start_position=0,
                start_timestamp_ms=started_ms,
                initial_term_id=TERM_ID,
                term_length=TERM,
                segment_length=TERM,
                mtu_length=MTU,
                session_id=SESSION_ID,
                stream_id=STREAM_ID,
                stripped_channel="aeron:udp?endpoint=224.0.1.1:40456|interface=10.0.0.1",
                original_channel="aeron:udp?endpoint=224.0.1.1:40456|interface=10.0.0.1",
                source_identity="10.0.0.2:40123",
            )
        )
        recording_id = descriptor.recording_id
        self.ends[recording_id] = 0
        if count is None:
            self._count(recording_id)
        return recording_id

    def grow(self, recording_id: int, end: int) -> None:
        """Write what a recording has up to an end: in each term padding, and a message behind."""
        position = self.ends[recording_id]
        while position < end:
            base = position & -TERM
            stop = min(end, base + TERM)
            file = os.open(self._file(recording_id, base), os.O_RDWR | os.O_CREAT)
            last = stop - FRAME_LENGTH
            if last > position:
                os.pwrite(file, frame(position, last - position, kind=0), position - base)
            os.pwrite(file, frame(last, FRAME_LENGTH, kind=1), last - base)
            os.ftruncate(file, TERM)
            os.close(file)
            position = stop
        self.ends[recording_id] = end
        if recording_id in self._places:
            self._show(recording_id)

    def fill(self, recording_id: int, end: int) -> None:
        """Write only the last term; the other files of the recording are empty."""
        last = (end - 1) & -TERM
        for base in range(0, last, TERM):
            os.close(os.open(self._file(recording_id, base), os.O_RDWR | os.O_CREAT))
        self.ends[recording_id] = last
        self.grow(recording_id, end)

    def stop(self, recording_id: int) -> None:
        """Let the catalog know where a recording ends, and free its counter."""
        end = self.ends.pop(recording_id)
        self.catalog.update(recording_id, stop_position=end, stop_timestamp_ms=2)
        place = self._places.pop(recording_id, None)
        if place is not None:
            os.pwrite(self._cnc, b"\xff\xff\xff\xff", CNC_LENGTH + place * METADATA_LENGTH)
            self._free.append(place)

    def _file(self, recording_id: int, base: int) -> str:
        return f"{self.path}/{recording_id}-{base}.rec"

    def _count(self, recording_id: int) -> None:
        place = self._places[recording_id] = self._free.pop()
        record = bytearray(METADATA_LENGTH)
        pack_into("<ii", record, 0, 1, POSITION_COUNTER)
        pack_into("<qiiq", record, 16, recording_id, SESSION_ID, 0, 1)
        os.pwrite(self._cnc, record, CNC_LENGTH + place * METADATA_LENGTH)
        self._show(recording_id)

    def _show(self, recording_id: int) -> None:
        at = CNC_LENGTH + COUNTERS * METADATA_LENGTH + self._places[recording_id] * VALUE_LENGTH
        os.pwrite(self._cnc, self.ends[recording_id].to_bytes(8, "little"), at)


def frame(position: int, length: int, *, kind: int) -> bytes:
    """Return the header of a frame."""
    term, offset = divmod(position, TERM)
    return FRAME.pack(length, 0, WHOLE, kind, offset, SESSION_ID, STREAM_ID, TERM_ID + term, 0)


# The process that plans.


class Planner:
    """Answers requests about one archive after the other."""

    def __init__(self) -> None:
        self._reader: Any = None
        self._start: Any = None

    def plan(self, path: str) -> dict[str, Any]:
        """Plan a batch over all recordings."""
        from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415 - as above
        from aeron_async.spark.planning import partitions_of, plan_batch  # noqa: PLC0415

        options = ArchiveOptions.parse({"path": path, "maxBytesPerPartition": "256m"})
        parts = plan_batch(options)
        groups = partitions_of(parts, max_bytes=256 << 20, min_partitions=None)
        return {"partitions": len(groups), "bytes": sum(each.length for each in parts)}

    def open(self, path: str, driver: str, start: str = "earliest") -> dict[str, Any]:
        """Begin to follow an archive."""
        from aeron_async.spark.columns import project  # noqa: PLC0415 - as above
        from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415
        from aeron_async.spark.ranges import ScanSettings  # noqa: PLC0415
        from aeron_async.spark.stream_reader import StreamReader  # noqa: PLC0415

        given = {"path": path, "aeron.dir": driver, "positionSource": "counter"}
        options = ArchiveOptions.parse({**given, "startingPositions": start})
        settings = ScanSettings(options, project(("position", "length"), "message"))
        self._reader = StreamReader(options, settings)
        self._start = json.loads(json.dumps(self._reader.initialOffset()))
        return {"offsets": len(json.dumps(self._start))}

    def trigger(self, limit: int | None = None) -> dict[str, Any]:
        """Plan a batch of the stream as Spark does."""
        from pyspark.sql.streaming.datasource import (  # noqa: PLC0415 - as above
            ReadAllAvailable,
            ReadMaxBytes,
        )

        limited = ReadAllAvailable() if limit is None else ReadMaxBytes(limit)
        end = self._reader.latestOffset(self._start, limited)
        self._reader.reportLatestOffset()
        text = json.dumps(end)
        if end == self._start:
            return {"offsets": len(text), "bytes": 0}
        found = self._reader.partitions(self._start, end)
        self._start = json.loads(text)
        length = sum(part.length for each in found for part in each.parts)
        return {"offsets": len(text), "bytes": length, "partitions": len(found)}

    def idle(self, polls: int) -> dict[str, Any]:
        """Poll as Spark does while nothing changes."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415 - as above

        for _ in range(polls):
            text = json.dumps(self._start)
            if self._reader.latestOffset(json.loads(text), ReadAllAvailable()) != self._start:
                return {"changed": True}
            self._reader.reportLatestOffset()
        return {}


def serve() -> None:
    """Do what each line of the standard input asks for; print what it took."""
    # Not counted: what a new process imports.
    from aeron_async.spark import planning, stream_reader  # noqa: F401, PLC0415 - as above

    planner = Planner()
    for line in sys.stdin:
        name, given = json.loads(line)
        before = process_time_ns()
        found = getattr(planner, name)(**given)
        found["ms"] = (process_time_ns() - before) / 1e6
        found["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
        print(json.dumps(found), flush=True)


class Process:
    """A process that plans, with the package of this tree or of another."""

    def __init__(self, name: str, tree: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str, **given: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, given]) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def show(process: Process, what: str, found: dict[str, Any], per: int = 1) -> None:
    """Print a line."""
    more = {key: round(value) for key, value in found.items() if key not in {"ms", "mb"}}
    print(
        f"{process.name:<7} {what:<46} {found['ms'] / per:10.2f} ms {found['mb']:6.0f} MB  {more}",
        flush=True,
    )


def stopped_archive(path: Path, recordings: int, segments: int) -> SparseArchive:
    """Return an archive of recordings that have stopped."""
    archive = SparseArchive(path)
    each = segments // recordings
    for number in range(recordings):
        archive.begin(started_ms=number, count=0)
        archive.fill(number, each * TERM - 1_024)
        archive.stop(number)
    return archive


def planned(processes: list[Process], path: Path, recordings: int, segments: int) -> None:
    """Measure batches, and the first triggers of a stream with a limit."""
    path = path / f"many-{recordings}-{segments}"
    if not path.exists():
        stopped_archive(path, recordings, segments)
    given = {"path": str(path / "archive")}
    for process in processes:
        what = f"a batch: {recordings:,} recordings, {segments:,} files"
        for _ in range(2):
            show(process, what, process.ask("plan", **given))
        show(process, "a new stream", process.ask("open", **given, driver=str(path / "driver")))
        for _ in range(3):
            show(process, "a trigger with a limit of 48 GB", process.ask("trigger", limit=LIMIT))


def active_archive(path: Path, recordings: int, active: int) -> SparseArchive:
    """Return an archive some of whose recordings are active."""
    archive = SparseArchive(path)
    for number in range(recordings):
        is_active = number % (recordings // active) == 0
        archive.begin(started_ms=number, count=None if is_active else 0)
        archive.fill(number, TERM - number % 997 * FRAME_LENGTH)
        if not is_active:
            archive.stop(number)
    return archive


def followed(processes: list[Process], path: Path, recordings: int, active: int) -> None:
    """Measure idle polls and changes, with many active recordings among others that are read."""
    archive = active_archive(path, recordings, active)
    which = list(archive.ends)
    what = f"{recordings:,} recordings, {active:,} of them active"
    for process in processes:
        given = {"path": str(archive.path), "driver": str(archive.driver)}
        show(process, f"a new stream: {what}", process.ask("open", **given))
        show(process, "the first trigger reads all", process.ask("trigger"))
        show(process, "the next one", process.ask("trigger"))
    started = recordings
    for changes, said in ((1, "one recording grows"), (len(which), "all active ones grow")):
        for _ in range(2):
            for number in which[:changes]:
                archive.grow(number, archive.ends[number] + 640)
            for process in processes:
                show(process, said, process.ask("trigger"))
    for _ in range(2):
        new = archive.begin(started_ms=started)
        archive.grow(new, 6_400)
        archive.stop(which.pop())
        for process in processes:
            show(process, "one begins and one stops", process.ask("trigger"))
    for process in processes:
        process.ask("trigger")
        process.ask("idle", polls=2)
        show(process, "an idle poll", process.ask("idle", polls=IDLE_POLLS), IDLE_POLLS)


def played(process: Process, path: Path, minutes: int) -> None:
    """Play a day."""
    archive = SparseArchive(path)
    process.ask("open", path=str(archive.path), driver=str(archive.driver))
    length, found = 1 << 30, []
    lasts = ACTIVE // BEGIN_EACH_MINUTE
    for minute in range(minutes):
        for number in list(archive.ends):
            age = minute - number // BEGIN_EACH_MINUTE
            if age > lasts:
                archive.stop(number)
            else:
                step = (age * length // lasts + number * FRAME_LENGTH) & -FRAME_LENGTH
                archive.grow(number, max(step, archive.ends[number]))
        for _ in range(BEGIN_EACH_MINUTE):
            archive.begin(started_ms=minute)
        found.append(process.ask("trigger", limit=LIMIT))
    times = sorted(each["ms"] for each in found)
    total = sum(each["bytes"] for each in found)
    print(
        f"{process.name:<7} a day of {minutes} minutes: {total / 1e12:.2f} TB of "
        f"{minutes * BEGIN_EACH_MINUTE:,} recordings, {sum(times) / 1e3:.1f} s of the processor; a "
        f"trigger {times[len(times) // 2]:.1f} ms, the longest {times[-1]:.1f} ms; offsets of "
        f"at most {max(each['offsets'] for each in found):,} bytes; {found[-1]['mb']:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description="What it costs to plan for many recordings.")
    parser.add_argument("--recordings", type=int, default=10_000)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--active", type=int, default=5_000)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    parser.add_argument("--before", type=Path, help="another tree, to measure the same with")
    parser.add_argument("--before-segments", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where archives are made")
    parser.add_argument("--kept", type=Path, help="where the one with most files stays afterwards")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    ours = Process("now", Path(__file__).parents[1])
    processes = [ours]
    if options.before is not None:
        processes.insert(0, Process("before", options.before.resolve()))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder)
        if options.before is not None:
            planned(processes, path, options.recordings, options.before_segments)
        followed(processes, path / "active", options.recordings, options.active)
        planned([ours], options.kept or path, options.recordings, options.segments)
        played(ours, path / "day", options.minutes)
    for process in processes:
        process.close()


if __name__ == "__main__":
    main()
