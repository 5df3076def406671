"""Where a query of the campaign brings messages, and how they are found there again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

import anyio
import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from aeron_async import Aeron
from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.spark.lake.tables import BRONZE, Lake
from aeron_async.spark.pipeline.gold import RUNS
from aeron_async.spark.sink import CommittedRows, Identity
from tests.ports import unused_udp_ports
from tests.spark.exactly_once.feed import NUMBER, TERM, payload
from tests.spark.processes import PATIENCE_S, wait_until
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Arrived", "LakeTables", "Parquet", "Sink", "Target"]

ROOT: Final = Path(__file__).parents[3]
STREAM_ID: Final = 20
PORTS: Final = unused_udp_ports()


@attrs.frozen
class Arrived:
    """What has come through.

    Attributes:
        rows: Messages, each once and in its place.
        orphans: What nobody believes: files of killed jobs, or rows of batches that were not
            closed.
        resumed: Batches of a partition that one attempt began, and another ended.
    """

    rows: int
    orphans: int
    resumed: int = 0


class Target(Protocol):
    """One place."""

    @property
    def arguments(self) -> list[str]:
        """Return what the query is told."""
        ...

    @property
    def checkpoint(self) -> Path:
        """Return the folder of the query's checkpoint."""
        ...

    def open(self) -> AbstractContextManager[None]:
        """Let it be there while the query runs."""
        ...

    def is_written_since(self, moment_ns: int) -> bool:
        """Return whether something has come since then."""
        ...

    def arrived(self) -> Arrived:
        """Return what has come, once every message has been checked."""
        ...


@final
class Parquet:
    """Files, of which Spark's own log says which ones count.

    Args:
        folder: Of the campaign.
    """

    def __init__(self, folder: Path) -> None:
        self._out = folder / "target" / "out"
        self.checkpoint = folder / "target" / "checkpoint"

    @property
    def arguments(self) -> list[str]:
        """Return nothing: it is what the query does unless it is told otherwise."""
        return []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Do nothing."""
        yield

    def is_written_since(self, moment_ns: int) -> bool:
        """Return whether a task has begun a file since then."""
        return is_newer(self._out.rglob("*.parquet"), moment_ns)

    def arrived(self) -> Arrived:
        """Return what has come, when every row is what was sent, once, and in its place."""
        files = committed_files(self._out / "_spark_metadata")
        on_disk = sum(1 for each in self._out.glob("*.parquet"))
        return Arrived(checked_rows(files), on_disk - len(files))


@final
class LakeTables:
    """The Delta tables of a pipeline's job.

    Args:
        folder: Of the campaign.
    """

    def __init__(self, folder: Path) -> None:
        self._lake = Lake(folder / "target")
        self.checkpoint = self._lake.checkpoint

    @property
    def arguments(self) -> list[str]:
        """Return that the query is a pipeline's."""
        return ["--pipeline"]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Do nothing."""
        yield

    def is_written_since(self, moment_ns: int) -> bool:
        """Return whether a task has begun a file since then."""
        return is_newer(Path(str(self._lake.path(BRONZE))).rglob("b*.parquet"), moment_ns)

    def arrived(self) -> Arrived:
        """Return what has come, when bronze, silver and gold agree about it."""
        files = [Path(each) for each in self._lake.files(BRONZE)]
        rows = checked_rows(files)
        numbers = pa.schema([("number", pa.int64())])
        silver = self._lake.read("silver/numbers", numbers).column(0).to_pylist()
        assert sorted(silver) == list(range(rows))
        assert not self._lake.files("gold/gaps")
        counted = self._lake.read("batches", pa.schema([("messages", pa.int64())]))
        assert sum(counted.column(0).to_pylist()) == rows
        runs = self._lake.read("gold/runs", RUNS).to_pylist()
        assert sum(each["messages"] for each in runs) == 2 * rows
        on_disk = sum(1 for _ in Path(str(self._lake.path(BRONZE))).rglob("b*.parquet"))
        return Arrived(rows, on_disk - len(files))


def checked_rows(files: Iterable[Path]) -> int:
    """Return how many messages files have, when every one is there once, and in its place."""
    rows = sorted(row for file in files for row in rows_of(file))
    before = 0
    for number, (position, end_position, found) in enumerate(rows):
        assert found == number, f"message {found} where {number} should be, at {position}"
        is_term = position % TERM == 0
        assert position == before or (is_term and position > before), f"gap at {position}"
        before = end_position
    return len(rows)


def rows_of(file: Path) -> Iterator[tuple[int, int, int]]:
    """Yield position, end and number of each message of a file, which is held against the feed."""
    table = pq.ParquetFile(file).read()
    columns = (table.column(name).to_pylist() for name in ("position", "end_position", "payload"))
    for position, end_position, data in zip(*columns, strict=True):
        yield position, end_position, number_of(data)


def number_of(data: bytes) -> int:
    """Return the number of a message, all of which is held against the feed."""
    number: int = NUMBER.unpack_from(data)[0]
    assert data == payload(number), f"message {number} is another"
    return number


def committed_files(log: Path) -> list[Path]:
    """Return the files that the sink's own log names: others are of tasks that were killed."""
    compacts = [int(each.stem) for each in log.glob("*.compact")]
    start = max(compacts, default=-1)
    later = [each for each in log.iterdir() if each.name.isdigit() and int(each.name) > start]
    chosen = [*later, *([log / f"{start}.compact"] if start >= 0 else [])]
    lines = [line for each in chosen for line in each.read_text().splitlines()[1:]]
    return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]


def is_newer(files: Iterable[Path], moment_ns: int) -> bool:
    """Return whether one of some files was written to since then."""
    for file in files:
        with suppress(FileNotFoundError):
            if file.stat().st_mtime_ns > moment_ns:
                return True
    return False


@final
class Sink:
    """A stream that the sink publishes effectively once, recorded by an archive that is served.

    Args:
        folder: Of the campaign.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.checkpoint = folder / "target" / "checkpoint"
        self._archive = folder / "published"
        self._control = f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}"
        self._channel = f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}|term-length=1m"

    @property
    def arguments(self) -> list[str]:
        """Return where to publish, and who records it; a batch has up to 32 MB, a task 8."""
        where = ["--publish", self._channel, str(STREAM_ID), self._control]
        return ["--bytes", "32m", "--partition-bytes", "8m", *where]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Serve the archive."""
        environment = {
            **untraced_environment(),
            "PYTHONPATH": str(ROOT),
            "AERON_ARCHIVE_SEGMENT_FILE_LENGTH": str(4 * TERM),
        }
        command = ["archive", "serve", str(self._archive), "--control", self._control]
        with (self._folder / "served.txt").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "aeron_async", *command],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
            try:
                wait_until((self._archive / "archive.catalog").exists, server)
                yield
                server.terminate()
                server.wait(PATIENCE_S)
            finally:
                server.kill()
                server.wait()

    def is_written_since(self, moment_ns: int) -> bool:
        """Return whether the archive has recorded something since then."""
        return is_newer(self._archive.glob("*.rec"), moment_ns)

    def arrived(self) -> Arrived:
        """Return what a reader believes, when that is what was sent, once and in order."""
        return anyio.run(self._arrived)

    async def _arrived(self) -> Arrived:
        context = ArchiveContext(directory=str(self._archive), low_storage_threshold=0)
        numbers: list[int] = []
        heard = 0
        sessions: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        async with Aeron.connect() as aeron, await LocalArchive.open(aeron, context) as archive:
            found = [each.recording_id async for each in archive.recordings()]
            # One for all: a partition has two recordings where its first attempt was killed early.
            committed = CommittedRows()
            last: dict[int, int] = {}
            for recording_id in found:
                before = None
                async with archive.replay(recording_id) as messages:
                    async for message in messages:
                        identity = Identity.of(message.reserved_value)
                        assert before is None or before < identity, f"{identity} after {before}"
                        before = identity
                        if not identity.is_marker:
                            heard += 1
                            sessions[identity.batch, identity.partition].add(message.session_id)
                        for row in committed.feed(message.reserved_value, message.data):
                            number = number_of(row)
                            assert last.get(identity.partition, -1) < number, "out of order"
                            last[identity.partition] = number
                            numbers.append(number)
        numbers.sort()
        wrong = next((each for each in enumerate(numbers) if each[0] != each[1]), None)
        assert wrong is None, f"message {wrong[1]} where {wrong[0]} should be"
        resumed = sum(1 for each in sessions.values() if len(each) > 1)
        return Arrived(len(numbers), heard - len(numbers), resumed)
