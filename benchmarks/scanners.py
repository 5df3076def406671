"""Question: how much processor time does it take to scan a recording, by NumPy and compiled?

`python -m benchmarks.scanners` makes recordings of 128 MiB each, of small, mixed and fragmented
messages. Two processes scan them by turns, one of them in pure Python, which is NumPy here: into
all default columns, into those without the payload, and into the fields of a struct. The data is in
the page cache; each figure is the best of several rounds, in milliseconds of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time_ns
from typing import TYPE_CHECKING, Any, Final

from aeron_async._speedups import PURE_VARIABLE
from benchmarks.spark_sample import TERM_LENGTH, make_sample

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

SMALL: Final = 100
SPEC: Final = "struct:<seq:q,sent:q,instrument:i,bid:q,ask:q,bids:i,asks:i,venue:4s,flags:i"
FIELDS_LENGTH: Final = 52
COLUMNS: Final = "recording_id,position,end_position,session_id,stream_id,timestamp,length"
SAMPLES: Final[dict[str, Callable[[random.Random], int]]] = {
    "small": lambda _: SMALL,
    "mixed": lambda chance: chance.randrange(FIELDS_LENGTH, 1_200),
    "fragmented": lambda chance: chance.randrange(2_000, 12_000),
}
WAYS: Final[dict[str, dict[str, str]]] = {
    "default columns": {},
    "without payload": {"columns": COLUMNS},
    "position, length": {"columns": "position,length"},
    "struct": {"columns": f"{COLUMNS},payload", "decoder": SPEC},
}


def scan(path: str, given: dict[str, str]) -> int:
    """Scan a recording; return the nanoseconds of the processor."""
    # Imported here: only the processes that scan need it.
    from aeron_async.spark.batch_reader import ArchivePartition, read_partition  # noqa: PLC0415
    from aeron_async.spark.columns import default_columns  # noqa: PLC0415
    from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415
    from aeron_async.spark.planning import plan_batch  # noqa: PLC0415
    from aeron_async.spark.query_schema import decoder_named  # noqa: PLC0415
    from aeron_async.spark.ranges import ScanSettings  # noqa: PLC0415

    options = ArchiveOptions.parse({"path": path, **given})
    columns, decoded = default_columns(options), None
    if options.decoder is not None:
        decoded = decoder_named(options.decoder, columns).schema
    settings = ScanSettings(options, columns, decoded=decoded)
    partition = ArchivePartition(tuple(plan_batch(options)))
    before = process_time_ns()
    for _ in read_partition(settings, partition):
        pass
    return process_time_ns() - before


def serve() -> None:
    """Scan what each line of the standard input names, and print the time it took."""
    for line in sys.stdin:
        path, way = json.loads(line)
        print(scan(path, WAYS[way]), flush=True)


def started(pure: str) -> subprocess.Popen[str]:
    """Start a process that scans."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scanners", "--serve"],
        env={**os.environ, PURE_VARIABLE: pure},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def asked(process: subprocess.Popen[str], path: Path, way: str) -> float:
    """Return how many milliseconds a process needs for a scan."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(path), way]) + "\n")
    process.stdin.flush()
    return int(process.stdout.readline()) / 1e6


def measure(length: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each sample and way."""
    results: list[dict[str, Any]] = []
    both = {"NumPy": started("1"), "compiled": started("0")}
    for sample, length_of in SAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "archive"
            count = make_sample(path, length, length_of)
            for way in WAYS:
                found = dict.fromkeys(both, float("inf"))
                for _ in range(rounds):
                    for name, process in both.items():
                        found[name] = min(found[name], asked(process, path, way))
                results.append({"sample": sample, "way": way, "messages": count, **found})
    for process in both.values():
        process.communicate()
    return results


def main() -> None:
    """Print a line for each sample and way."""
    parser = argparse.ArgumentParser(description="What the scanners of recordings cost.")
    parser.add_argument("--megabytes", type=int, default=128, help="length of each recording")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    length = (options.megabytes << 20) & -TERM_LENGTH
    for each in measure(length, options.rounds):
        rate = length / each["compiled"] / 1e3
        print(
            f"{each['sample']:<11} {each['way']:<17} {each['messages']:>9,} messages "
            f"{each['NumPy']:7.1f} -> {each['compiled']:6.1f} ms "
            f"{each['NumPy'] / each['compiled']:5.1f} x {rate:6,.0f} MB/s"
        )


if __name__ == "__main__":
    main()
