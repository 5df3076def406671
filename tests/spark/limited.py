"""Reads an archive with executors whose Python workers may have little memory; says what they took.

The limit is of addresses, which the kernel holds workers to: one that wants more fails.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from aeron_async.spark.java import ensure_interpreter, ensure_java
from tests.spark.exactly_once.processes import processes, tree, work_cleaned

ROOT = Path(__file__).parents[2]
HIGHEST = re.compile(r"VmHWM:\s+(\d+) kB")
LIMIT = re.compile(r"Max address space\s+(\d+)")


def workers() -> list[dict[str, int]]:
    """Return what each Python worker of an executor took at most, and may take, in MiB."""
    own = set(tree(os.getpid()))
    found = []
    for pid, _, command in processes():
        if pid in own and "pyspark.daemon" in command:
            highest = HIGHEST.search(Path(f"/proc/{pid}/status").read_text())
            limit = LIMIT.search(Path(f"/proc/{pid}/limits").read_text())
            # The daemon, of which they are forked, has no limit.
            if highest is not None and limit is not None:
                found.append({"took": int(highest[1]) >> 10, "limit": int(limit[1]) >> 20})
    return found


def main(archive: str, memory: str, warehouse: str, *more: str) -> None:
    ensure_java()
    ensure_interpreter()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Java is found first

    from aeron_async.spark import register  # noqa: PLC0415 - likewise

    builder: Any = SparkSession.builder.master("local-cluster[1,1,2048]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.executor.pyspark.memory": memory,
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.sql.warehouse.dir": warehouse,
        **dict(each.split("=", 1) for each in more),
    }.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    frame = spark.read.format("aeron_archive").option("maxBytesPerPartition", "64m").load(archive)
    row = frame.selectExpr("count(*)", "sum(octet_length(payload))").first()
    assert row is not None
    found = {"rows": row[0], "bytes": row[1], "workers": workers()}
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    with work_cleaned():
        main(*sys.argv[1:])
