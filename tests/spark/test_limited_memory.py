"""Workers whose memory Spark limits read recordings that are longer than the limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.java import ensure_java
from tests.by_hand import runs_java
from tests.spark.recordings import RecordingMaker
from tests.tracing import untraced_environment

ROOT: Final = Path(__file__).parents[2]
LIMIT_MIB: Final = 512
"""Nearly all of it are addresses that libraries have mapped, and hardly touch."""
MESSAGE: Final = bytes(100_000)
COUNT: Final = 5_600


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_of_little_memory_read_a_long_recording(tmp_path: Path) -> None:
    try:
        ensure_java()
    except ConfigurationError as error:
        if runs_java():
            raise
        pytest.skip(str(error))
    length = 16 << 20
    maker = RecordingMaker(
        tmp_path / "archive", term_length=length, segment_length=8 * length, mtu=65_504
    )
    for _ in range(COUNT):
        maker.message(MESSAGE)
    maker.stop()
    assert maker.position > LIMIT_MIB << 20
    arguments = [str(tmp_path / "archive"), f"{LIMIT_MIB}m", str(tmp_path / "warehouse")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.limited", *arguments],
        cwd=ROOT,
        env=untraced_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[:4_000]
    found = json.loads(done.stdout)
    assert (found["rows"], found["bytes"]) == (COUNT, COUNT * len(MESSAGE))
    # Spark has set the limit.
    assert [each["limit"] for each in found["workers"]] == [LIMIT_MIB]
    assert max(each["took"] for each in found["workers"]) < 200
