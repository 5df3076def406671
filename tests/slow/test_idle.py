"""Silence costs nothing worth mentioning."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_idle_connected_stream_uses_less_than_a_hundredth_of_a_core(loop: str) -> None:
    program = [sys.executable, "-m", "benchmarks.idle", "--seconds", "10", "--loop", loop]
    # Coverage of the measured process would be measured too.
    environment = {"PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        program, capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert json.loads(result.stdout)["share_of_core"] < 0.01
