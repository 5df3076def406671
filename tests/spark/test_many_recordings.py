"""A stream of many recordings costs what has changed, and not what there is."""

from __future__ import annotations

import json
import random
from struct import pack, pack_into
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.recording_counter import RECORDING_POSITION_TYPE_ID, key_and_label
from aeron_async.errors import ArchiveFileError, DataLossError
from aeron_async.spark import stream_reader
from aeron_async.spark.admission import Limit
from aeron_async.spark.catalog import CatalogWatch
from aeron_async.spark.columns import project
from aeron_async.spark.offsets import Offsets
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.position_counters import PositionCounters
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.stream_reader import StreamReader
from tests.archive.disk.streams import TERM, described, frame
from tests.logs import captured_logs
from tests.spark.growing import NUMBER, GrowingArchive, GrowingRecording
from tests.spark.queries import ALL, MS, Query
from tests.spark.test_extended import cut_and_extend

if TYPE_CHECKING:
    from pathlib import Path

METADATA_LENGTH = 512
VALUE_LENGTH = 128
COUNT = 64


class CounterFile:
    """A driver's `cnc.dat` with the position counters of some recordings."""

    def __init__(self, path: Path, archive: GrowingArchive) -> None:
        self.path = path
        self._archive = archive
        self._places: dict[int, int] = {}
        path.mkdir()
        self._file = path / "cnc.dat"
        head = pack("<iiiii", 512, 0, 0, COUNT * METADATA_LENGTH, COUNT * VALUE_LENGTH)
        self._file.write_bytes(head.ljust(128 + COUNT * (METADATA_LENGTH + VALUE_LENGTH), b"\0"))

    def count(self, recording: GrowingRecording, *, position: int | None = None) -> None:
        """Let the counter of a recording show its position, or another one."""
        recording_id = recording.recording_id
        place = self._places.setdefault(recording_id, len(self._places))
        key, _ = key_and_label(
            self._archive.catalog.get(recording_id),
            session_id=1,
            source_identity="aeron:ipc",
            archive_id=4,
        )
        record = bytearray(METADATA_LENGTH)
        pack_into("<ii8x", record, 0, 1, RECORDING_POSITION_TYPE_ID)
        record[16 : 16 + len(key)] = key
        values_at = 128 + COUNT * METADATA_LENGTH
        with self._file.open("r+b") as file:
            file.seek(128 + place * METADATA_LENGTH)
            file.write(record)
            file.seek(values_at + place * VALUE_LENGTH)
            position = recording.position if position is None else position
            file.write(position.to_bytes(8, "little"))

    def free(self, recording: GrowingRecording) -> None:
        """Let the driver free the counter of a recording."""
        with self._file.open("r+b") as file:
            file.seek(128 + self._places[recording.recording_id] * METADATA_LENGTH)
            file.write(b"\xff\xff\xff\xff")


class WatchedDirectory:
    """Notes which files are opened or looked up."""

    def __init__(self, directory: Any) -> None:
        self._directory = directory
        self.touched: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def names(self) -> list[str]:
        self.touched.append("names")
        found: list[str] = self._directory.names()
        return found

    def open_to_read(self, name: str) -> Any:
        self.touched.append(name)
        return self._directory.open_to_read(name)

    def modified_ms(self, name: str) -> int:
        self.touched.append(name)
        found: int = self._directory.modified_ms(name)
        return found


def watched(query: Query) -> WatchedDirectory:
    """Let a query that has read nothing yet use a directory that notes what is touched."""
    follower: Any = query.follower
    directory = WatchedDirectory(follower._directory)
    for each in (
        follower,
        follower._catalog,
        follower._end_cache,
        follower._end_cache._ends,
        follower._end_cache._growth,
    ):
        each._directory = directory
    return directory


def segments(directory: WatchedDirectory) -> list[str]:
    """Return the segments that were touched since the last call."""
    found = [each for each in directory.touched if each.endswith(".rec") or each == "names"]
    directory.touched.clear()
    return found


@pytest.fixture
def archive(tmp_path: Path) -> GrowingArchive:
    return GrowingArchive(tmp_path / "archive")


def test_a_look_touches_what_has_changed(archive: GrowingArchive, tmp_path: Path) -> None:
    counters = CounterFile(tmp_path / "driver", archive)
    recordings = [archive.record(stream_id=each) for each in range(12)]
    for each in recordings:
        each.write(3, 100)
        if each.recording_id < 6:
            counters.count(each)
        else:
            each.stop()
    given = {"aeron.dir": str(counters.path), "positionSource": "counter"}
    query = Query(archive.path, **given)
    directory = watched(query)
    assert query.batch() == 36
    assert [query.batch(), query.batch()] == [-1, -1]
    segments(directory)
    for _ in range(100):
        query.clock.ns += 20 * MS
        assert query.batch() == -1
    assert segments(directory) == []
    # What is in the files is read only when a counter tells of it.
    recordings[2].write(1, 100)
    assert query.batch() == -1
    assert segments(directory) == []
    counters.count(recordings[2])
    assert query.batch() == 1
    assert set(segments(directory)) == {"2-0.rec"}
    recordings[4].stop()
    counters.free(recordings[4])
    assert [query.batch(), query.batch()] == [0, -1]
    assert segments(directory) == []
    # A message whose end is not there yet is looked for once.
    long = NUMBER.pack(4) * 600
    recordings[1].write_first_half(long)
    counters.count(recordings[1])
    assert [query.batch() for _ in range(5)] == [-1] * 5
    assert len(segments(directory)) <= 3
    recordings[1].write_second_half(long)
    counters.count(recordings[1])
    assert query.batch() == 1
    new = archive.record(stream_id=50)
    new.write(2, 100)
    counters.count(new)
    assert query.batch() == 2
    assert query.numbers == {
        **{each: [0, 1, 2] for each in range(12)},
        1: [0, 1, 2, 4],
        2: [0, 1, 2, 3],
        12: [0, 1],
    }


@pytest.mark.parametrize("mode", ["message", "frame"])
def test_a_counter_within_a_frame_is_no_end(
    archive: GrowingArchive, tmp_path: Path, mode: str
) -> None:
    recording = archive.record()
    recording.write(4, 100)
    counters = CounterFile(tmp_path / "driver", archive)
    counters.count(recording, position=recording.ends[2] + 7)
    given = {"aeron.dir": str(counters.path), "positionSource": "counter", "fragmentMode": mode}
    query = Query(archive.path, **given)
    assert [query.batch(), query.batch()] == [3, -1]
    assert query.at.recordings[0].position == recording.ends[2]
    query.restart()
    assert query.batch() == -1


def test_a_limit_leaves_the_files_of_those_that_wait_alone(archive: GrowingArchive) -> None:
    for stream_id in range(10):
        recording = archive.record(stream_id=stream_id)
        recording.write(100, 1_000)
        recording.stop()
    query = Query(archive.path)
    directory = watched(query)
    sizes = []
    while query.batch(Limit(max_bytes=3 * TERM)) >= 0:
        touched = {name.partition("-")[0] for name in segments(directory)}
        sizes.append(len(touched))
        query.restart()
        directory = watched(query)
    assert max(sizes) <= 4
    assert query.numbers == {each: list(range(100)) for each in range(10)}


def test_a_recording_that_outgrows_the_limit_starves_no_other(archive: GrowingArchive) -> None:
    fast = archive.record()
    slow = [archive.record(stream_id=each) for each in (11, 12)]
    query = Query(archive.path)
    for _ in range(4):
        fast.write(100, 1_000)
        for each in slow:
            each.write(1, 100)
        query.batch(Limit(max_bytes=TERM))
    assert len(query.numbers[1]) >= 3
    assert len(query.numbers[2]) >= 3
    while query.batch(Limit(max_bytes=TERM)) >= 0:
        pass
    assert query.numbers == {0: list(range(400)), 1: list(range(4)), 2: list(range(4))}


def test_what_waits_is_no_text_and_its_loss_is_found(archive: GrowingArchive) -> None:
    for stream_id in range(50):
        recording = archive.record(stream_id=stream_id)
        recording.write(10, 1_000)
        recording.stop()
    query = Query(archive.path)
    assert query.batch(Limit(max_bytes=1)) == 1
    assert (list(query.at.recordings), query.at.new.bounds) == ([0], (1, 50))
    archive.catalog.delete(30)
    with pytest.raises(DataLossError, match="recording 30, position 0: removed"):
        query.batch()
    query.restart()
    with pytest.raises(DataLossError, match="recording 30, position 0: removed"):
        query.batch()
    lenient = Query(archive.path, failOnDataLoss="false")
    lenient.at = query.at
    assert [lenient.batch(), lenient.batch()] == [9 + 48 * 10, -1]


def done_some_time_ago(archive: GrowingArchive, query: Query) -> GrowingRecording:
    """Return a recording that was read to its end, and that the offsets do not list any more."""
    recording = archive.record()
    recording.write(20, 100)
    recording.stop()
    other = archive.record(stream_id=11)
    assert query.batch() == 20
    for _ in range(2):
        other.write(1, 100)
        assert query.batch() == 1
    assert 0 not in query.at.recordings
    assert query.at.is_done(0)
    return recording


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_an_extension_is_read_on_though_its_start_is_not_listed(
    archive: GrowingArchive, *, restarts: bool, stops: bool
) -> None:
    query = Query(archive.path)
    recording = done_some_time_ago(archive, query)
    cut_and_extend(archive, recording, recording.position, 20, 21)
    if stops:
        end = recording.position + 2 * 64
        archive.catalog.update(0, stop_position=end, stop_timestamp_ms=11, correlation_id=1)
    if restarts:
        query.restart()
    assert query.batch() == 2
    assert query.batch() in {0, -1}
    assert query.numbers[0] == [*range(20), 20, 21]


def test_an_extension_of_which_nothing_was_recorded_yet_is_waited_for(
    archive: GrowingArchive,
) -> None:
    query = Query(archive.path)
    recording = done_some_time_ago(archive, query)
    extended = archive.catalog.update(0, stop_position=-1, stop_timestamp_ms=-1, session_id=77)
    query.restart()
    assert [query.batch(), query.batch()] == [0, -1]
    query.restart()
    block = frame(extended, recording.position, NUMBER.pack(20), flags=0xC0)
    writer = RecordingWriter(
        archive.directory, extended, position=recording.position, checksum=None
    )
    writer.write([(memoryview(block), 0)])
    assert [query.batch(), query.batch()] == [1, -1]
    assert query.numbers[0] == list(range(21))


@pytest.mark.parametrize("fails", [True, False])
def test_an_extension_by_the_same_session_cannot_be_told_after_a_restart(
    archive: GrowingArchive, *, fails: bool
) -> None:
    query = Query(archive.path, failOnDataLoss=str(fails).lower())
    done_some_time_ago(archive, query)
    archive.catalog.update(0, stop_position=-1, stop_timestamp_ms=-1)
    query.restart()
    if fails:
        with pytest.raises(DataLossError, match=r"recording 0.*extended.*do not show since where"):
            query.batch()
        return
    assert query.batch() in {0, -1}
    assert query.numbers[0] == list(range(20))


def test_a_recording_that_began_after_all_that_were_read_is_of_another_archive(
    archive: GrowingArchive,
) -> None:
    query = Query(archive.path)
    done_some_time_ago(archive, query)
    query.restart()
    for file in archive.path.iterdir():
        file.unlink()
    GrowingArchive(archive.path).record(start_timestamp_ms=77).write(500)
    with pytest.raises(DataLossError, match=r"another recording has this id.*checkpointLocation"):
        query.batch()


def test_a_checkpoint_of_version_1_is_gone_on_with(archive: GrowingArchive) -> None:
    recordings = [archive.record(stream_id=each) for each in range(3)]
    for each in recordings:
        each.write(10, 100)
    recordings[0].stop()
    listed = {}
    for each, read in zip(recordings, (10, 4, 0), strict=True):
        descriptor = archive.catalog.get(each.recording_id)
        listed[str(each.recording_id)] = {
            "pos": each.ends[read - 1] if read else 0,
            "from": 0,
            "began": descriptor.start_timestamp_ms,
            "term": descriptor.initial_term_id,
            "session": descriptor.session_id,
            **({"done": True} if read == 10 else {}),
        }
    query = Query(archive.path)
    query.at = Offsets.from_json({"v": 1, "recs": listed, "cut": [1 << 28]})
    assert query.batch() == 16
    assert query.numbers == {1: list(range(4, 10)), 2: list(range(10))}
    query.restart()
    assert query.batch() == -1
    assert query.at.to_json()["v"] == 2
    assert list(query.at.recordings) == [1, 2]


def test_large_offsets_are_told_once_with_what_helps(
    archive: GrowingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "LARGE", 60)
    recordings = [archive.record(stream_id=each) for each in range(9)]
    options = ArchiveOptions.parse({"path": str(archive.path)})
    reader = StreamReader(options, ScanSettings(options, project(("position",), "message")))
    offsets = reader.initialOffset()
    with captured_logs() as lines:
        for _ in range(5):
            for each in recordings:
                each.write(1, 100)
            offsets = reader.latestOffset(json.loads(json.dumps(offsets)), ReadAllAvailable())
    assert [(line["event"], line["recordings"]) for line in lines] == [("offsets_large", 9)]
    assert "streamIds" in lines[0]["hint"]


# The catalog.


def watch(path: Path, **given: str) -> CatalogWatch:
    options = ArchiveOptions.parse({"path": str(path), **given})
    return CatalogWatch(OsDirectory(path), options)


def test_only_entries_that_have_changed_are_decoded_again(
    archive: GrowingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = CatalogWatch._take

    def counted(self: CatalogWatch, found: Any) -> set[int]:
        decoded.append(len(found))
        return decode(self, found)

    monkeypatch.setattr(CatalogWatch, "_take", counted)
    catalog = archive.catalog
    for stream_id in range(30):
        catalog.add(described(stream_id=stream_id))
    found = watch(archive.path, streamIds="4,5,31", channelPattern=".*")
    assert found.look() == set(range(30))
    assert found.look() == set()
    other = watch(archive.path)
    assert other.look() == set(range(30))
    catalog.update(5, stop_position=640)
    assert found.look() == {5}
    catalog.add(described(stream_id=31))
    catalog.delete(4)
    assert found.look() == {4, 30}
    # An entry has changed, and another is new, since the first look.
    assert other.look() == {4, 5, 30}
    assert found.look() == set()
    assert list(found.selected) == [5, 30]
    assert found.recordings == {each: catalog.get(each) for each in catalog.ids()}
    assert [each for each in decoded if each] == [30, 30, 1, 2, 3]
    # Beyond what the file had room for.
    for stream_id in range(100):
        catalog.add(described(stream_id=stream_id))
    assert found.look() == set(range(31, 131))
    assert found.recordings == {each: catalog.get(each) for each in catalog.ids()}


def test_a_catalog_that_is_replaced_is_read_as_a_whole(
    archive: GrowingArchive, tmp_path: Path
) -> None:
    for stream_id in range(5):
        archive.catalog.add(described(stream_id=stream_id))
    found = watch(archive.path)
    found.look()
    other = Catalog.open(OsDirectory(tmp_path / "other"), capacity=4_096)
    for _ in range(3):
        other.add(described(original_channel="aeron:ipc?alias=another-one"))
    (tmp_path / "other" / "archive.catalog").replace(archive.path / "archive.catalog")
    assert found.look() == set(range(5))
    assert found.recordings == {each: other.get(each) for each in range(3)}


def test_a_catalog_that_is_damaged_for_a_while_is_refused_each_time(
    archive: GrowingArchive,
) -> None:
    for stream_id in range(5):
        archive.catalog.add(described(stream_id=stream_id))
    found = watch(archive.path)
    found.look()
    path = archive.path / "archive.catalog"
    data = path.read_bytes()
    at = data.index(archive.catalog.get(3).stripped_channel.encode(), len(data) // 100) - 4
    path.write_bytes(data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :])
    for _ in range(2):
        with pytest.raises(ArchiveFileError, match="a string of"):
            found.look()
    path.write_bytes(data)
    found.look()
    assert found.recordings == {each: archive.catalog.get(each) for each in range(5)}


# The counters.


def test_counters_are_the_same_object_until_one_moves(
    archive: GrowingArchive, tmp_path: Path
) -> None:
    file = CounterFile(tmp_path / "driver", archive)
    counters = PositionCounters()
    assert counters.look(str(tmp_path / "nowhere"), None) == {}
    assert counters.look(str(file.path), None) == {}
    recordings = [archive.record(stream_id=each) for each in range(5)]
    for each in recordings:
        each.write(1)
        file.count(each)
        found = counters.look(str(file.path), 4)
        assert found[each.recording_id] == each.position
        assert counters.look(str(file.path), 4) is found
    recordings[3].write(1)
    file.count(recordings[3])
    assert counters.look(str(file.path), 4) == {
        each.recording_id: each.position for each in recordings
    }
    file.free(recordings[1])
    assert set(counters.look(str(file.path), 4)) == {0, 2, 3, 4}
    assert counters.look(str(file.path), 5) == {}
    (file.path / "cnc.dat").unlink()
    assert counters.look(str(file.path), 4) == {}


# All of it together.


def extend(archive: GrowingArchive, recording: GrowingRecording, session_id: int) -> None:
    """Let another session go on with a stopped recording."""
    descriptor = archive.catalog.update(
        recording.recording_id,
        stop_position=-1,
        stop_timestamp_ms=-1,
        session_id=session_id,
        correlation_id=session_id,
    )
    position = recording.position
    recording._descriptor = descriptor
    recording._writer = RecordingWriter(
        archive.directory, descriptor, position=position, checksum=None
    )


class Recorders:
    """Recordings that begin, grow, stop and are extended, by chance; with counters or without."""

    def __init__(self, archive: GrowingArchive, draw: random.Random, path: Path | None) -> None:
        self._archive = archive
        self._draw = draw
        self._counters = None if path is None else CounterFile(path, archive)
        self._active: list[GrowingRecording] = []
        self._stopped: list[GrowingRecording] = []
        self.everything: list[GrowingRecording] = []

    def go_on(self) -> None:
        """Do anything."""
        draw = self._draw
        what = draw.choice([self._begin, self._write, self._write, self._write, self._stop])
        if draw.random() < 0.1:
            what = self._extend
        what()
        for each in self._active if self._counters is not None else ():
            self._counters.count(each)  # type: ignore[union-attr] # there are some

    def _begin(self) -> None:
        if len(self._active) < 6:
            start = self._draw.choice([0, 0, 320])
            count = len(self.everything)
            new = self._archive.record(stream_id=count, start_position=start)
            self._active.append(new)
            self.everything.append(new)

    def _write(self) -> None:
        if self._active:
            self._draw.choice(self._active).write(self._draw.choice([1, 3, 40]))

    def _stop(self) -> None:
        if self._active:
            each = self._active.pop(self._draw.randrange(len(self._active)))
            each.stop()
            self._stopped.append(each)
            if self._counters is not None:
                self._counters.free(each)

    def _extend(self) -> None:
        if self._stopped:
            each = self._stopped.pop(self._draw.randrange(len(self._stopped)))
            extend(self._archive, each, self._draw.randrange(1, 1 << 30))
            self._active.append(each)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_message_is_read_once(
    archive: GrowingArchive, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    driver = tmp_path / "driver" if seed % 2 else None
    recorders = Recorders(archive, draw, driver)
    given = {"aeron.dir": str(driver), "positionSource": "counter"} if driver else {}
    query = Query(archive.path, **given)
    limits = [None, ALL, Limit(max_bytes=20_000), Limit(max_rows=30)]
    for _ in range(150):
        recorders.go_on()
        if draw.random() < 0.3:
            query.batch(draw.choice(limits))
        if draw.random() < 0.1:
            query.restart()
    query.restart()
    while query.batch(Limit(max_bytes=50_000)) >= 0:
        pass
    assert query.numbers == {
        each.recording_id: list(range(each.count)) for each in recorders.everything if each.count
    }
