"""Modules of metrics whose extra is not installed say which one it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tracing import untraced_environment
from tests.without import without


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")],
)
def test_the_extra_is_named(module: str, package: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{without([package])}import aeron_async.metrics.{module}"],
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: metrics ")
    assert last.endswith(f": pip install 'aeron-async[{extra}]'")
    assert package in last
