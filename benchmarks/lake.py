"""Question: how much processor time does it take to bring a recording into a lake?

`python -m benchmarks.lake` makes a recording of messages of 100 bytes, 52 of which are fields of a
market-data message, the others random. It measures the task alone in this process: only silver,
silver and bronze, and both with gold; and how much more two such processes bring in at once than
one, by the clock on the wall. Then it runs `aeron-async pipeline run` on one core, in this
tree and, with `--old TREE`, in another one, by turns: on a small recording, which tells what a
start costs, and on the whole one. The processor time of Java, of Spark's Python workers, and of all
processes is that of Linux. The data is in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Final

import numpy as np

from aeron_async.spark.columns import default_columns
from aeron_async.spark.lake.places import LocalPlace
from aeron_async.spark.lake.tables import BRONZE, QUARANTINE, silver
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline.query import source_options
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.silver import kinds_of
from aeron_async.spark.pipeline.task import BatchTask, run_plan
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.ranges import ScanSettings
from benchmarks.machine import machine
from benchmarks.spark_sample import TERM_LENGTH, make_sample

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[1]
LENGTH: Final = 100
STRIDE: Final = (LENGTH + 32 + 31) & -32
SPEC: Final = "struct:<seq:q,sent:q,instrument:i,bid:q,ask:q,bids:i,asks:i,venue:4s,flags:i"
FIELDS: Final = np.dtype(
    [
        *(("seq", "<i8"), ("sent", "<i8"), ("instrument", "<i4"), ("bid", "<i8"), ("ask", "<i8")),
        *(("bids", "<i4"), ("asks", "<i4"), ("venue", "S4"), ("flags", "<i4")),
    ]
)
BEGAN_NS: Final = 1_800_000_000 * 10**9
SETTINGS: Final = {"decode": f"1001:quotes={SPEC}"}
GOLD: Final = {
    "timestamp_from": "payload:8:int64:ns",
    "sequence": "quotes=seq",
    "latency": "quotes=sent..timestamp_ns",
}
WAYS: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "silver": ((silver("quotes"),), {}),
    "silver and gold": ((silver("quotes"),), GOLD),
    "bronze and silver": ((BRONZE, QUARANTINE, silver("quotes")), {}),
    "bronze, silver and gold": ((BRONZE, QUARANTINE, silver("quotes")), GOLD),
}


def make_feed(path: Path, length: int) -> int:
    """Record a feed, and return how many messages it has."""
    count = make_sample(path, length, lambda _: LENGTH)
    chance = np.random.default_rng(1)
    done = 0
    for file in sorted(path.glob("*.rec"), key=lambda each: int(each.stem.split("-")[1])):
        data = np.memmap(file, np.uint8, "r+")
        for start in range(0, len(data), TERM_LENGTH):
            many = min(TERM_LENGTH // STRIDE, count - done)
            rows = np.ndarray((many,), FIELDS, data, start + 32, (STRIDE,))
            rows[:] = quotes(chance, done, many)
            done += many
    assert done == count
    return count


def quotes(chance: np.random.Generator, first: int, count: int) -> np.ndarray:
    """Return fields as a feed has them: numbers and times that rise, prices that walk."""
    rows = np.empty(count, FIELDS)
    rows["seq"] = np.arange(first, first + count)
    rows["sent"] = BEGAN_NS + rows["seq"] * 1_000 + chance.integers(0, 900, count)
    rows["instrument"] = chance.integers(0, 500, count)
    rows["bid"] = 10_000_000 + np.cumsum(chance.integers(-5, 6, count))
    rows["ask"] = rows["bid"] + chance.integers(1, 20, count)
    rows["bids"], rows["asks"] = chance.integers(1, 1_000, (2, count))
    rows["venue"] = chance.choice(np.array([b"XETR", b"XLON", b"XPAR"]), count)
    rows["flags"] = chance.integers(0, 4, count)
    return rows


def task_seconds(archive: Path, way: str) -> float:
    """Return the processor time of a task in this process."""
    tables, more = WAYS[way]
    settings = PipelineSettings.parse(SETTINGS | more)
    options = ArchiveOptions.parse(source_options(archive, settings))
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        task = BatchTask(
            batch=0,
            scan=ScanSettings(options, default_columns(options)),
            settings=settings,
            kinds=tuple(kinds_of(settings)),
            folders={table: LocalPlace(Path(folder)) / table for table in tables},
        )
        before = process_time_ns()
        run_plan(task, plan_batch(options), 0)
        return (process_time_ns() - before) / 1e9


def rate_by_clock(archive: Path, way: str, processes: int) -> float:
    """Return how many bytes a second so many tasks bring in at once, by the clock on the wall."""
    length = sum(file.stat().st_size for file in archive.glob("*.rec"))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        passed_s = 0.0
        # The first round starts the processes and imports what they need.
        for _ in range(2):
            began_ns = perf_counter_ns()
            done = [pool.submit(task_seconds, archive, way) for _ in range(processes)]
            for each in done:
                each.result()
            passed_s = (perf_counter_ns() - began_ns) / 1e9
    return processes * length / passed_s


def job_seconds(tree: Path, archive: Path, flags: list[str]) -> dict[str, float]:
    """Return the processor time of a pipeline's job, by kind of process."""
    flags = [*flags, "--master", "local[1]", "--conf", "spark.driver.memory=2g"]
    for name, value in (SETTINGS | GOLD).items():
        flags += [f"--{name.replace('_', '-')}", value]
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        job = subprocess.Popen(  # noqa: S603 - of our own making
            [sys.executable, "-m", "aeron_async", "pipeline", "run", archive, folder, *flags],
            env={**os.environ, "PYTHONPATH": str(tree)},
            cwd=tree,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found: dict[int, tuple[str, float]] = {}
        while job.poll() is None:
            found |= used_by(job.pid)
            time.sleep(0.1)
        assert job.returncode == 0, f"the job of {tree} ended with {job.returncode}"
    sums = dict.fromkeys(("Java", "workers", "driver and planner", "all"), 0.0)
    for kind, seconds in found.values():
        sums[kind] += seconds
        sums["all"] += seconds
    return sums


def used_by(root: int) -> dict[int, tuple[str, float]]:
    """Return kind and processor time of a process, and of all that it has started, and they."""
    known, parents = {}, {}
    tick = os.sysconf("SC_CLK_TCK")
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            command = (each / "cmdline").read_bytes()
        except OSError:
            continue
        kind = "Java" if b"java" in command.split(b"\0")[0] else "driver and planner"
        kind = "workers" if b"pyspark.daemon" in command else kind
        known[int(each.name)] = kind, (int(fields[11]) + int(fields[12])) / tick
        parents[int(each.name)] = int(fields[1])
    found = [root]
    for parent in found:
        found += [pid for pid, of in parents.items() if of == parent]
    return {pid: known[pid] for pid in found if pid in known}


def line(name: str, length: int, count: int, seconds: float) -> str:
    """Return a row of figures."""
    rate = f"{length / seconds / 1e6:6.0f} MB/s {count / seconds / 1e6:6.2f} M messages/s"
    return f"{name:<52} {seconds:7.2f} s {rate}"


def main() -> None:
    """Print a line for each way, and for each job."""
    parser = argparse.ArgumentParser(description="What it costs to bring a recording into a lake.")
    parser.add_argument("--megabytes", type=int, default=256, help="length of the recording")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="rounds of jobs; 0 for none")
    parser.add_argument("--old", type=Path, help="a tree whose job is measured, too")
    given = parser.parse_args()
    length = (given.megabytes << 20) & -TERM_LENGTH
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        count = make_feed(archive, length)
        for way in WAYS:
            seconds = min(task_seconds(archive, way) for _ in range(given.rounds))
            print(line(f"in a process: {way}", length, count, seconds), flush=True)
            rates = [rate_by_clock(archive, way, processes) for processes in (1, 2)]
            print(
                f"{'':<52} two processes at once: {rates[1] / rates[0]:.2f} times one", flush=True
            )
        small = Path(folder) / "small"
        few = make_feed(small, TERM_LENGTH)
        jobs = {"this tree": (ROOT, []), "this tree, no bronze": (ROOT, ["--no-bronze"])}
        if given.old is not None:
            jobs["the other tree"] = (given.old.absolute(), [])
        for _ in range(given.jobs):
            for name, (tree, flags) in jobs.items():
                start = job_seconds(tree, small, flags)
                for kind, seconds in job_seconds(tree, archive, flags).items():
                    more = (length - TERM_LENGTH, count - few, seconds - start[kind])
                    print(line(f"job, {name}: {kind}, behind its start", *more), flush=True)
                    print(f"{'':<52} {start[kind]:7.2f} s for its start", flush=True)


if __name__ == "__main__":
    main()
