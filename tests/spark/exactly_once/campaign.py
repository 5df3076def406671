"""Kills what follows a growing archive, again and again, and counts what has come through.

A feed records numbered messages. A query follows it into Parquet. At random moments the driver is
killed with all its processes, and started again; or an executor, or a Python worker of one, is. In
the end the feed stops, the query reads what is left, and the files hold each number once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal

import attrs
import pyarrow.parquet as pq

from tests.spark.exactly_once.feed import NUMBER, TERM, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Campaign", "Outcome"]

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 240.0
Victim = Literal["driver", "executor"]


@attrs.frozen
class Outcome:
    """What came of it.

    Attributes:
        kills: Processes, or groups of them, that were killed.
        sent: Messages that were recorded.
        rows: Rows that came through.
        batches: That were committed.
        orphans: Files on the disk that no commit names: what killed tasks left.
    """

    kills: int
    sent: int
    rows: int
    batches: int
    orphans: int


class Campaign:
    """One feed, one query, many kills.

    Args:
        folder: For everything.
        master: Of Spark.
        victim: What is killed.
        workers: Processes that executors are started by, where the query itself does not: those
            of a cluster that was there before.
        seed: Of the moments.
    """

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[2]",
        victim: Victim = "driver",
        workers: Sequence[int] = (),
        seed: int = 1,
    ) -> None:
        self._folder = folder
        self._master = master
        self._victim = victim
        self._workers = workers
        self._random = random.Random(seed)
        self._commits = folder / "target" / "checkpoint" / "commits"
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        (folder / "target").mkdir(parents=True)

    def run(self, kills: int) -> Outcome:
        """Return what came of so many kills, once everything has been checked."""
        with work_cleaned(), (self._folder / "log.txt").open("wb") as log:
            feed = self._start_feed()
            try:
                query = self._start_query(log)
                try:
                    query = self._killed(query, kills, log)
                finally:
                    kill(tree(query.pid))
                    query.wait()
                (self._folder / "stop").touch()
                sent = int(feed.communicate(timeout=PATIENCE_S)[0])
            finally:
                feed.kill()
                feed.wait()
            self._read_the_rest(log)
        return self.checked(kills, sent)

    def _read_the_rest(self, log: IO[bytes]) -> None:
        """Read what is left, with other limits than before."""
        last = self._start_query(log, "--bytes", "256m", "--partition-bytes", "32m", "--to-the-end")
        try:
            code = last.wait(4 * PATIENCE_S)
        finally:
            kill(tree(last.pid))
        if code != 0:
            raise RuntimeError((self._folder / "log.txt").read_text()[-4_000:])

    def _start_feed(self) -> subprocess.Popen[bytes]:
        arguments = [str(self._folder / "archive"), str(self._folder / "stop")]
        feed = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.exactly_once.feed", *arguments],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
        )
        wait_until(lambda: any((self._folder / "archive").glob("0-*.rec")), feed)
        return feed

    def _start_query(self, log: IO[bytes], *more: str) -> subprocess.Popen[bytes]:
        arguments = [str(self._folder / "archive"), str(self._folder / "target")]
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.exactly_once.query",
                *arguments,
                "--master",
                self._master,
                *more,
            ],
            cwd=ROOT,
            env=self._environment,
            stdout=log,
            stderr=log,
        )

    def _killed(
        self, query: subprocess.Popen[bytes], kills: int, log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Kill so often, each time after another commit or some; return what runs in the end."""
        for _ in range(kills):
            self._wait_for_commits(self._random.randint(1, 3), query)
            time.sleep(self._random.uniform(0, 1.5))
            if self._victim == "driver":
                kill(tree(query.pid))
                query.wait()
                query = self._start_query(log)
            else:
                kill([self._random.choice(executors(self._workers or [query.pid]))])
        self._wait_for_commits(2, query)
        return query

    def _wait_for_commits(self, count: int, query: subprocess.Popen[bytes]) -> None:
        wanted = self._last_commit() + count
        wait_until(lambda: self._last_commit() >= wanted, query)

    def _last_commit(self) -> int:
        names = [each.name for each in self._commits.glob("*") if each.name.isdigit()]
        return max(map(int, names), default=-1)

    def checked(self, kills: int, sent: int) -> Outcome:
        """Return the outcome, when every row is what was sent, once, and in its place."""
        out = self._folder / "target" / "out"
        files = committed_files(out / "_spark_metadata")
        rows = sorted(row for file in files for row in rows_of(file))
        before = 0
        for number, (position, end_position, found) in enumerate(rows):
            assert found == number, f"message {found} where {number} should be, at {position}"
            is_term = position % TERM == 0
            assert position == before or (is_term and position > before), f"gap at {position}"
            before = end_position
        assert len(rows) == sent, f"{len(rows)} of {sent} messages came through"
        on_disk = sum(1 for each in out.glob("*.parquet"))
        return Outcome(kills, sent, len(rows), self._last_commit() + 1, on_disk - len(files))


def rows_of(file: Path) -> Iterator[tuple[int, int, int]]:
    """Yield position, end and number of each message of a file, which is held against the feed."""
    table = pq.ParquetFile(file).read()
    columns = (table.column(name).to_pylist() for name in ("position", "end_position", "payload"))
    for position, end_position, data in zip(*columns, strict=True):
        (number,) = NUMBER.unpack_from(data)
        assert data == payload(number), f"message {number} is another, at {position}"
        yield position, end_position, number


def committed_files(log: Path) -> list[Path]:
    """Return the files that the sink's own log names: others are of tasks that were killed."""
    compacts = [int(each.stem) for each in log.glob("*.compact")]
    start = max(compacts, default=-1)
    later = [each for each in log.iterdir() if each.name.isdigit() and int(each.name) > start]
    chosen = [*later, *([log / f"{start}.compact"] if start >= 0 else [])]
    lines = [line for each in chosen for line in each.read_text().splitlines()[1:]]
    return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Return when something is so; raise if it never is, or the process ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if process.poll() is not None:
            message = f"{process.args!r} ended with {process.returncode}: see log.txt"
            raise RuntimeError(message)
        if time.monotonic() > deadline:
            message = f"nothing moved in {PATIENCE_S} s: see log.txt"
            raise TimeoutError(message)
        time.sleep(0.05)


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield id, parent's id and command of every process."""
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            stat = (each / "stat").read_text()
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        yield int(each.name), int(stat.rpartition(")")[2].split()[1]), command


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, and they."""
    found, everything = [pid], list(processes())
    for parent in found:
        found += [child for child, of, _ in everything if of == parent]
    return found


def executors(pids: Sequence[int]) -> list[int]:
    """Return the executors among what processes have started, and their Python workers."""
    own = {each for pid in pids for each in tree(pid)}
    jvms = [
        each
        for each, _, command in processes()
        if each in own and "CoarseGrainedExecutorBackend" in command
    ]
    return [each for jvm in jvms for each in tree(jvm)]


def kill(pids: list[int]) -> None:
    """Kill processes without a warning."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def work_cleaned() -> Iterator[None]:
    """Remove what clusters on one machine leave in the folder of PySpark itself."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    work = Path(spec.origin).parent / "work"
    before = set(work.glob("*"))
    try:
        yield
    finally:
        for each in set(work.glob("*")) - before:
            shutil.rmtree(each, ignore_errors=True)
        if work.is_dir() and not any(work.iterdir()):
            work.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--victim", choices=["driver", "executor"], default="driver")
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    campaign = Campaign(
        given.folder,
        master=given.master,
        victim=given.victim,
        workers=given.workers,
        seed=given.seed,
    )
    sys.stdout.write(f"{campaign.run(given.kills)}\n")


if __name__ == "__main__":
    main()
