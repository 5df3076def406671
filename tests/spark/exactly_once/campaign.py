"""Kills what follows a growing archive, again and again, and counts what has come through.

A feed records numbered messages. A query follows it into Parquet; or a pipeline's job into a lake;
or through the sink onto a stream that another archive records. At random moments the driver is
killed with all its processes, and started again; or an executor, or a Python worker of one, is. In
the end the feed stops, the query reads what is left, and the files, or that recording, hold each
number once.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal

import attrs

from tests.spark.exactly_once.feed import AT_ONCE
from tests.spark.exactly_once.query import parsed, started
from tests.spark.exactly_once.targets import LakeTables, Parquet, Sink
from tests.spark.processes import (
    PATIENCE_S,
    executors,
    kill,
    tree,
    wait_until,
    work_cleaned,
)
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tests.spark.exactly_once.targets import Target

__all__ = ["Campaign", "Outcome"]

ROOT: Final = Path(__file__).parents[3]
Victim = Literal["driver", "executor"]
TARGETS: Final[dict[str, type[Parquet | Sink | LakeTables]]] = {
    "parquet": Parquet,
    "sink": Sink,
    "lake": LakeTables,
}


@attrs.frozen
class Outcome:
    """What came of it.

    Attributes:
        kills: Processes, or groups of them, that were killed.
        kills_within_a_batch: Those after which a batch had begun that was not committed.
        sent: Messages that were recorded.
        rows: Rows that came through.
        batches: That were committed.
        orphans: What killed jobs have left, and nobody believes: files, or rows.
        resumed: Batches of a partition that one attempt began to publish, and another ended.
    """

    kills: int
    kills_within_a_batch: int
    sent: int
    rows: int
    batches: int
    orphans: int
    resumed: int


class Campaign:
    """One feed, one query, many kills.

    Args:
        folder: For everything.
        master: Of Spark.
        victim: What is killed.
        workers: Processes that executors are started by, where the query itself does not: those
            of a cluster that was there before.
        seed: Of the moments.
        through: Where messages go: parquet, sink, or lake.
        reader: A session that reads the rest; a program of its own does if there is none.
        at_once: Messages that are recorded at once, fifty times a second.
    """

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[2]",
        victim: Victim = "driver",
        workers: Sequence[int] = (),
        seed: int = 1,
        through: str = "parquet",
        reader: SparkSession | None = None,
        at_once: int = AT_ONCE,
    ) -> None:
        self._folder = folder
        self._master = master
        self._victim = victim
        self._workers = workers
        self._reader = reader
        self._at_once = at_once
        self._random = random.Random(seed)
        self._kills_within_a_batch = 0
        more = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        self._environment = untraced_environment() | more
        (folder / "target").mkdir(parents=True)
        self._target: Target = TARGETS[through](folder)
        self._commits = self._target.checkpoint / "commits"
        self._offsets = self._target.checkpoint / "offsets"

    def run(self, kills: int) -> Outcome:
        """Return what came of so many kills, once everything has been checked."""
        log_file = self._folder / "log.txt"
        with work_cleaned(), self._target.open(), log_file.open("wb") as log:
            feed = self._start_feed()
            try:
                self._kill_again_and_again(kills, log)
                (self._folder / "stop").touch()
                sent = int(feed.communicate(timeout=PATIENCE_S)[0])
            finally:
                feed.kill()
                feed.wait()
            self._read_the_rest(log)
        arrived = self._target.arrived()
        assert arrived.rows == sent, f"{arrived.rows} of {sent} messages came through"
        batches = self._last_commit() + 1
        return Outcome(
            kills=kills,
            kills_within_a_batch=self._kills_within_a_batch,
            sent=sent,
            rows=arrived.rows,
            batches=batches,
            orphans=arrived.orphans,
            resumed=arrived.resumed,
        )

    def _read_the_rest(self, log: IO[bytes]) -> None:
        """Read what is left, with other limits than before."""
        other = ["--bytes", "256m", "--partition-bytes", "32m", "--to-the-end"]
        if self._reader is not None:
            rest = started(self._reader, parsed(self._arguments(*other)))
            try:
                assert rest.awaitTermination(4 * int(PATIENCE_S)), "nothing moved"
            finally:
                rest.stop()
            return
        last = self._start_query(log, *other)
        try:
            code = last.wait(4 * PATIENCE_S)
        finally:
            kill(tree(last.pid))
        if code != 0:
            raise RuntimeError((self._folder / "log.txt").read_text()[-4_000:])

    def _start_feed(self) -> subprocess.Popen[bytes]:
        where = [str(self._folder / "archive"), str(self._folder / "stop")]
        feed = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.exactly_once.feed", *where, str(self._at_once)],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
        )
        wait_until(lambda: any((self._folder / "archive").glob("0-*.rec")), feed)
        return feed

    def _arguments(self, *more: str) -> list[str]:
        """Return what a query is told."""
        where = [str(self._folder / "archive"), str(self._folder / "target")]
        return [*where, "--master", self._master, *self._target.arguments, *more]

    def _start_query(self, log: IO[bytes], *more: str) -> subprocess.Popen[bytes]:
        arguments = self._arguments(*more)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.exactly_once.query", *arguments],
            cwd=ROOT,
            env=self._environment,
            stdout=log,
            stderr=log,
        )

    def _kill_again_and_again(self, kills: int, log: IO[bytes]) -> None:
        """Kill so often, each time after some commits; leave nothing that runs.

        Every other time it is when something of a batch has been written, and not all of it: a
        moment that is hardly ever met by chance.
        """
        query = self._start_query(log)
        try:
            for number in range(kills):
                self._wait_for_commits(self._random.randint(1, 3), query)
                victims = self._victims(query, is_within_a_batch=number % 2 == 0)
                kill(victims)
                if self._victim == "executor":
                    self._kills_within_a_batch += self._is_within_a_batch()
                    continue
                query.wait()
                self._kills_within_a_batch += self._is_within_a_batch()
                # What reads the rest goes on from the last kill.
                if number + 1 < kills:
                    query = self._start_query(log)
            if self._victim == "executor":
                self._wait_for_commits(2, query)
        finally:
            if query.poll() is None:
                kill(tree(query.pid))
                query.wait()

    def _wait_for_commits(self, count: int, query: subprocess.Popen[bytes]) -> None:
        wanted = self._last_commit() + count
        wait_until(lambda: self._last_commit() >= wanted, query)

    def _victims(self, query: subprocess.Popen[bytes], *, is_within_a_batch: bool) -> list[int]:
        """Return what is to be killed, when it is to be killed."""
        while True:
            batch = self._wait_for_part(query) if is_within_a_batch else sys.maxsize
            time.sleep(self._random.uniform(0, 0.15 if is_within_a_batch else 1.5))
            victims = (
                [self._random.choice(executors(self._workers or [query.pid]))]
                if self._victim == "executor"
                else tree(query.pid)
            )
            # A short batch may have been committed meanwhile, and the next one is waited for.
            if self._last_commit() < batch:
                return victims

    def _wait_for_part(self, query: subprocess.Popen[bytes]) -> int:
        """Return a batch when something has come of it; by then it may be committed."""
        wait_until(self._is_within_a_batch, query)
        batch = last_number(self._offsets)
        planned_ns = (self._offsets / str(batch)).stat().st_mtime_ns
        wait_until(
            lambda: self._target.is_written_since(planned_ns) or self._last_commit() >= batch,
            query,
        )
        return batch

    def _is_within_a_batch(self) -> bool:
        """Return whether a batch has begun that is not committed."""
        return last_number(self._offsets) > self._last_commit()

    def _last_commit(self) -> int:
        return last_number(self._commits)


def last_number(folder: Path) -> int:
    """Return the highest number that is the name of a file; -1 if there is none."""
    names = [each.name for each in folder.glob("*") if each.name.isdigit()]
    return max(map(int, names), default=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--victim", choices=["driver", "executor"], default="driver")
    parser.add_argument("--through", choices=list(TARGETS), default="parquet")
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    campaign = Campaign(
        given.folder,
        master=given.master,
        victim=given.victim,
        workers=given.workers,
        seed=given.seed,
        through=given.through,
    )
    sys.stdout.write(f"{campaign.run(given.kills)}\n")


if __name__ == "__main__":
    main()
