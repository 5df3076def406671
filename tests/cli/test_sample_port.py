"""The sample feed takes a port that is free."""

from __future__ import annotations

import asyncio
import inspect
import socket
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.cli.pipeline_demo import demo, record

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 10
FRAME_LENGTH = 96


def test_the_sample_feed_needs_no_port_of_its_own(tmp_path: Path) -> None:
    """20130 may be taken; whoever wants a port names it."""
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[spark]'")
    from aeron_async.spark.pipeline.sample import free_endpoint  # noqa: PLC0415 - needs Spark

    endpoint = inspect.signature(demo).parameters["endpoint"].default
    assert endpoint is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(("127.0.0.1", 20130))
        except OSError:
            pytest.skip("somebody else holds port 20130")
        asyncio.run(record(tmp_path, count=COUNT, rate=10**6, endpoint=endpoint))
    catalog = Catalog.open(OsDirectory(tmp_path))
    assert catalog.get(0).stop_position == COUNT * FRAME_LENGTH
    catalog.close()

    found = {free_endpoint() for _ in range(3)}
    for each in found:
        host, _, port = each.partition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((host, int(port)))
