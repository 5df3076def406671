"""The sample feed takes a port that is free, and says which."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.cli import pipeline_demo

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")
pytest.importorskip("deltalake", reason="pip install 'aeron-async[spark]'")

from aeron_async.spark.pipeline.sample import free_endpoint

COUNT = 10
FRAME_LENGTH = 96
NO_JOB = 3


def recorded(directory: Path) -> tuple[str, int]:
    """Return the channel of the first recording of a directory, and where it ends."""
    catalog = Catalog.open(OsDirectory(directory))
    found = catalog.get(0)
    catalog.close()
    return found.original_channel, found.stop_position


def test_the_demo_takes_a_free_port_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """20130 may be taken; whoever wants a port names it."""
    ended = subprocess.CompletedProcess[bytes]([], NO_JOB)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(("127.0.0.1", 20130))
        except OSError:
            pytest.skip("somebody else holds port 20130")
        assert pipeline_demo.demo(tmp_path / "new", count=COUNT, rate=10**6) == NO_JOB
    (endpoint,) = re.findall(r" at (127\.0\.0\.1:\d+), ", capsys.readouterr().err)
    channel, end = recorded(tmp_path / "new" / "archive")
    assert f"endpoint={endpoint}|" in channel
    assert end == COUNT * FRAME_LENGTH


def test_an_endpoint_that_is_free_can_be_bound() -> None:
    for each in {free_endpoint() for _ in range(3)}:
        host, _, port = each.partition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
            found.bind((host, int(port)))
