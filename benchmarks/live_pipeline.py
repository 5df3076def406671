"""Question: how old is a message when it is in the lake, and does that grow while more come in?

`python -m benchmarks.live_pipeline` starts `aeron-async pipeline ingest`, and a publisher in a
process of its own that offers 50,000 messages of 100 bytes a second for two minutes. Each message
says when it was offered. After each batch, when all its tables are written, the youngest message of
it and the oldest are compared with the clock; and the bytes that were recorded since, and wait for
the next batch, are counted. In the end every number must be in the lake, once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from aeron_async.spark.lake.tables import BRONZE, Lake, silver
from benchmarks.machine import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Batch", "batch_of", "main", "measure"]

ROOT: Final = Path(__file__).parents[1]
STREAM_ID: Final = 1001
KIND: Final = "ticks"
DECODE: Final = f"{STREAM_ID}:{KIND}=struct:<number:q,sent_ns:q"
NS_PER_SECOND: Final = 1_000_000_000
PATIENCE_S: Final = 120
Batch = dict[str, Any]


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return what the publisher said, and a row for each batch.

    Args:
        folder: For archive and lake.
        given: The command line.
    """
    channel = f"aeron:udp?endpoint=127.0.0.1:{given.port}"
    lake = Lake(folder / "lake")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ingest = subprocess.Popen(  # noqa: S603 - of our own making
        [sys.executable, "-m", "aeron_async", *command(folder, channel, given)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    shape = [f"--rate={given.rate}", f"--length={given.length}", f"--seconds={given.seconds}"]
    publisher = subprocess.Popen(  # noqa: S603 - of our own making
        [sys.executable, "-m", "benchmarks.steady_publisher", channel, str(STREAM_ID), *shape],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert ingest.stdout is not None
        expected = round(given.rate * given.seconds)
        batches = list(told(ingest.stdout, lake, expected))
        published = json.loads(publisher.communicate(timeout=PATIENCE_S)[0])
        ingest.send_signal(signal.SIGINT)
        ingest.communicate(timeout=PATIENCE_S)
    finally:
        for each in (publisher, ingest):
            each.kill()
            each.wait()
    return {"published": published, "batches": batches, "missing": missing(lake, expected)}


def command(folder: Path, channel: str, given: argparse.Namespace) -> list[str]:
    """Return the command that records and ingests."""
    return [
        *("pipeline", "ingest", str(folder / "archive"), str(folder / "lake")),
        *(channel, str(STREAM_ID), "--json", "--trigger", given.trigger),
        *("--control", f"aeron:udp?endpoint=127.0.0.1:{given.port + 1}"),
        *("--decode", DECODE, "--sequence", f"{KIND}=number"),
        *("--timestamp-from", "payload:8:int64:ns"),
    ]


def told(lines: IO[str], lake: Lake, expected: int) -> Iterator[Batch]:
    """Yield a row for each batch as it is told, until all messages are there."""
    count = 0
    for line in lines:
        report = json.loads(line)
        row = batch_of(report, lake, time.time_ns())
        print(json.dumps(row), file=sys.stderr, flush=True)
        yield row
        count += row["messages"]
        if count >= expected:
            return
    message = f"the pipeline ended after {count} of {expected} messages: its output says why"
    raise RuntimeError(message)


def batch_of(report: dict[str, Any], lake: Lake, now_ns: int) -> Batch:
    """Return what was seen of a batch when it was told."""
    name = f"/b{report['batch_id']:08}-"
    files = [each for each in lake.files(BRONZE) if name in each]
    edges = [pc.min_max(pq.read_table(file, columns=["timestamp_ns"])[0]) for file in files]
    oldest_ns = min(each["min"].as_py() for each in edges)
    youngest_ns = max(each["max"].as_py() for each in edges)
    return {
        "batch": report["batch_id"],
        "messages": report["messages"],
        "seconds": round(report["seconds"], 2),
        "gaps": report["gaps"],
        "youngest_s": round((now_ns - youngest_ns) / NS_PER_SECOND, 2),
        "oldest_s": round((now_ns - oldest_ns) / NS_PER_SECOND, 2),
        "behind_bytes": sum(report["behind"].values()),
    }


def missing(lake: Lake, expected: int) -> int:
    """Return how many numbers are not in silver exactly once."""
    seen = bytearray(expected)
    for file in lake.files(silver(KIND)):
        for number in pq.ParquetFile(file).read(columns=["number"])[0].to_numpy().tolist():
            seen[number] += 1
    return expected - seen.count(1)


def main() -> None:
    """Print a row for each batch, and what the publisher said."""
    parser = argparse.ArgumentParser(description="How old messages are when they are in the lake.")
    parser.add_argument("--rate", type=int, default=50_000, help="messages a second")
    parser.add_argument("--length", type=int, default=100, help="of a message, in bytes")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--trigger", default="10s", help="between two batches")
    parser.add_argument("--port", type=int, default=20_310, help="this one and the next are used")
    given = parser.parse_args()
    facts = machine()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given)
    print(json.dumps({"machine": facts, **found}))


if __name__ == "__main__":
    main()
