"""Question: how fast are recordings read, by the parser alone and in Spark?

`python -m benchmarks.spark_scan` makes a recording of 512 MiB, reads it with the parser in this
process, from its files and as another process replays it, and then with Spark on one core and on
two, beside a source that builds a tuple for each frame. Each figure is the best of several rounds,
the data in the page cache; the query is the sum of the lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from aeron_async.spark import ensure_java, register
from aeron_async.spark.columns import default_columns
from aeron_async.spark.java import ensure_interpreter
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner
from benchmarks.spark_sample import TERM_LENGTH, make_sample
from benchmarks.spark_tuples import TUPLE_COLUMNS, TupleSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TEN: Final = ",".join(each.split()[0] for each in TUPLE_COLUMNS.split(", "))
VARIANTS: Final = {
    "ten columns": {"columns": TEN},
    "every column": {"includeHeaders": "true", "includeChannel": "true"},
    "position, payload": {"columns": "position,payload"},
    "position, length": {"columns": "position,length"},
}


def best(rounds: int, work: Callable[[], object]) -> float:
    """Return how many seconds the fastest of several rounds takes."""
    found = []
    for _ in range(rounds):
        before = perf_counter()
        work()
        found.append(perf_counter() - before)
    return min(found)


def parser_seconds(given: dict[str, str], rounds: int) -> float:
    """Return how long the parser takes in this process."""
    options = ArchiveOptions.parse(given)
    settings = ScanSettings(options, default_columns(options))
    parts = plan_batch(options)
    return best(rounds, lambda: sum(batch.num_rows for batch in Scanner(settings).batches(parts)))


def replayed_seconds(path: Path, rounds: int) -> float:
    """Return how long it takes while another process replays it over loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        control = f"aeron:udp?endpoint=127.0.0.1:{taken.getsockname()[1]}"
    serve = [sys.executable, "-m", "aeron_async", "archive", "serve", str(path)]
    given = {"access": "replay", "archive.control.channel": control}
    with subprocess.Popen([*serve, "--control", control], stdout=subprocess.DEVNULL) as server:  # noqa: S603 - ourselves
        try:
            # The first request waits until the archive answers.
            return parser_seconds(given, rounds)
        finally:
            server.terminate()


def session_on(cores: int, java_options: str) -> SparkSession:
    """Return a session that has so many cores; the first one starts Java."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after Java has been found

    builder = SparkSession.builder.master(f"local[{cores}]").appName("spark_scan")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java_options,
    }.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    session.dataSource.register(TupleSource)
    return session


def spark_seconds(path: Path, cores: int, rounds: int, java_options: str) -> dict[str, float]:
    """Return how long each way takes in Spark: round by round, so that noise meets all of them."""
    session = session_on(cores, java_options)
    # One partition for each core, twice: what a query of this size would have.
    size = {"maxBytesPerPartition": "128m"}

    def query(source: str, given: dict[str, str]) -> Any:
        frame = session.read.format(source).options(**size, **given).load(str(path))
        column = "length" if "length" in frame.columns else "octet_length(payload)"
        return frame.selectExpr(f"sum({column})").collect()

    ways = {"tuples, ten columns": partial(query, "tuples", {})}
    ways |= {name: partial(query, "aeron_archive", given) for name, given in VARIANTS.items()}
    found = dict.fromkeys(ways, float("inf"))
    for number in range(rounds + 1):
        for name, way in ways.items():
            seconds = best(1, way)
            if number > 0:
                found[name] = min(found[name], seconds)
    session.stop()
    return found


def measure(
    path: Path, count: int, length: int, rounds: int, java_options: str
) -> list[dict[str, Any]]:
    """Return a row for each way and place."""
    results: list[dict[str, Any]] = []
    for name, given in VARIANTS.items():
        seconds = parser_seconds({"path": str(path), **given}, rounds)
        results.append({"where": "parser", "what": name, "seconds": seconds, "ratio": None})
    seconds = replayed_seconds(path, rounds)
    what = {"where": "replayed", "what": "default columns"}
    results.append(what | {"seconds": seconds, "ratio": None})
    for cores in (1, 2):
        timed = spark_seconds(path, cores, rounds, java_options)
        base = timed["tuples, ten columns"]
        results += [
            {
                "where": f"Spark, {cores} core{'s' if cores > 1 else ''}",
                "what": name,
                "seconds": seconds,
                "ratio": base / seconds,
            }
            for name, seconds in timed.items()
        ]
    for each in results:
        each["rows_per_second"] = count / each["seconds"]
        each["bytes_per_second"] = length / each["seconds"]
    return results


def main() -> None:
    """Print one line for each way to read."""
    parser = argparse.ArgumentParser(description="How fast recordings are read in Spark.")
    parser.add_argument("--megabytes", type=int, default=512, help="length of the recording")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java-options", default="", help="spark.driver.extraJavaOptions")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options = parser.parse_args()
    ensure_java()
    ensure_interpreter()
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    length = (options.megabytes << 20) & -TERM_LENGTH
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        count = make_sample(path, length)
        results = measure(path, count, length, options.rounds, options.java_options)
    if options.json:
        print(json.dumps({"rows": count, "bytes": length, "results": results}))
        return
    print(f"{count:,} frames, {length / count:.0f} bytes each on disk")
    for each in results:
        ratio = "" if each["ratio"] is None else f"{each['ratio']:5.1f} x tuples"
        print(
            f"{each['where']:<14} {each['what']:<20} {each['rows_per_second'] / 1e6:6.2f} M rows/s "
            f"{each['bytes_per_second'] / 1e9:6.2f} GB/s {ratio}"
        )


if __name__ == "__main__":
    main()
