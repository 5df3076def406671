"""Workers whose memory Spark limits read recordings that are longer than the limit.

A session of one process has no executors, which `spark.executor.pyspark.memory` is about: the tests
write down what Spark does with it, and do not show that Spark does.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.processes import processes, tree
from tests.spark.recordings import RecordingMaker
from tests.spark.sessions import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_MIB: Final = 512
"""Of addresses, which the kernel holds workers to: one that wants more fails.

Nearly all of it are addresses that libraries have mapped, and hardly touch.
"""
MESSAGE: Final = bytes(100_000)
COUNT: Final = 5_600
LOCAL_LIMIT: Final = "resource.pyspark.memory"
"""Where Spark writes down for each job what `spark.executor.pyspark.memory` says."""
HIGHEST: Final = re.compile(r"VmHWM:\s+(\d+) kB")
LIMIT: Final = re.compile(r"Max address space\s+(\d+)")


def limited_workers() -> list[tuple[int, int]]:
    """Return what each limited Python worker may take, and took at most, in MiB."""
    own = set(tree(os.getpid()))
    found = []
    for pid, _, command in processes():
        if pid not in own or "warm_daemon" not in command:
            continue
        # One that has been idle may end meanwhile.
        with suppress(OSError):
            highest = HIGHEST.search(Path(f"/proc/{pid}/status").read_text())
            limit = LIMIT.search(Path(f"/proc/{pid}/limits").read_text())
            # The daemon, of which they are forked, has no limit.
            if highest is not None and limit is not None:
                found.append((int(limit[1]) >> 20, int(highest[1]) >> 10))
    return found


@LONG
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_of_little_memory_read_a_long_recording(
    spark: SparkSession, tmp_path: Path
) -> None:
    length = 16 << 20
    path = tmp_path / "archive"
    maker = RecordingMaker(path, term_length=length, segment_length=8 * length, mtu=65_504)
    for _ in range(COUNT):
        maker.message(MESSAGE)
    maker.stop()
    assert maker.position > LIMIT_MIB << 20
    reader = spark.read.format("aeron_archive").option("maxBytesPerPartition", "64m")
    # One worker reads all of it, part after part.
    frame = reader.load(str(path)).coalesce(1)
    spark.sparkContext.setLocalProperty(LOCAL_LIMIT, str(LIMIT_MIB))
    try:
        row = frame.selectExpr("count(*)", "sum(octet_length(payload))").first()
        workers = limited_workers()
    finally:
        spark.sparkContext.setLocalProperty(LOCAL_LIMIT, None)  # type: ignore[arg-type] # None removes it, which PySpark's types leave out
    assert row is not None
    assert tuple(row) == (COUNT, COUNT * len(MESSAGE))
    ((limit, took),) = workers
    # Spark has set the limit.
    assert limit == LIMIT_MIB
    assert took < 200
