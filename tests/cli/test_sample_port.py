"""Row A18: the sample feed takes a port that is free."""

from __future__ import annotations

import inspect
import socket

import pytest

from aeron_async.cli.pipeline_demo import demo


def test_the_sample_feed_needs_no_port_of_its_own() -> None:
    """Row A18: 20130 may be taken; whoever wants a port names it."""
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[spark]'")
    from aeron_async.spark.pipeline.sample import free_endpoint  # noqa: PLC0415 - needs Spark

    assert inspect.signature(demo).parameters["endpoint"].default is None
    found = {free_endpoint() for _ in range(3)}
    for endpoint in found:
        host, _, port = endpoint.partition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((host, int(port)))
