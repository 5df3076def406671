"""Clients and tools of Aeron's own on a driver of ours that loses datagrams on purpose."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import aeron_async as aa
from aeron_async.cli.main import main
from aeron_async.driver.core.system_counters import SystemCounterId
from tests.concurrent.shared import needs_shared_memory
from tests.interop.official import SHARED_MEMORY
from tests.interop.programs import require, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = needs_shared_memory
STREAM_ID: Final = 1001
COUNT: Final = 2_000
LENGTH: Final = 1_000
INTERCEPTORS: Final = [
    pytest.param({"loss": "rate=0.2|seed=10|recv-msg-mask=0x3"}, id="loss"),
    pytest.param(
        {"fixed-loss": "term-id=0|term-offset=1000|length=30000"},
        id="fixed-loss",
    ),
    pytest.param(
        {"multi-gap-loss": "term-id=0|gap-radix=8192|gap-length=1024|total-gaps=6"},
        id="multi-gap-loss",
    ),
]


@asynccontextmanager
async def losing_driver(losses: dict[str, str]) -> AsyncIterator[tuple[aa.MediaDriver, str]]:
    """Run a driver of ours that serves other processes, and return its directory as well."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="aeron-interop-", dir=parent))
    arguments: dict[str, Any] = {
        f"udp_channel_{name.replace('-', '_')}_args": value for name, value in losses.items()
    }
    context = aa.DriverContext(
        aeron_directory=str(place / "driver"),
        term_buffer_sparse_file=True,
        term_buffer_length=64 * 1024,
        udp_channel_incoming_interceptors=",".join(losses),
        **arguments,
    )
    try:
        async with aa.MediaDriver.launch(context) as driver:
            yield driver, str(place / "driver")
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("losses", INTERCEPTORS)
async def test_what_is_lost_on_purpose_is_repaired_and_in_the_report(
    losses: dict[str, str], unused_udp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    require("checked_subscriber", "checked_publisher", "LossStat")
    endpoint = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    begin = "|init-term-id=0|term-id=0|term-offset=0"
    async with losing_driver(losses) as (driver, directory):
        environ = {"AERON_DIR": directory}
        what = STREAM_ID, COUNT, LENGTH, LENGTH
        async with (
            running("checked_subscriber", endpoint, *what, environ=environ) as subscriber,
            running("checked_publisher", endpoint + begin, *what, environ=environ),
        ):
            assert await subscriber.wait(timeout=60) == 0
        async with running("LossStat", "-d", directory) as tool:
            assert await tool.wait(timeout=10) == 0
        assert driver.counters.value(SystemCounterId.ERRORS) == 0
        assert main(["loss", "--json", "--directory", directory]) == 0
    (ours,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ours["channel"] == endpoint
    assert ours["stream_id"] == STREAM_ID
    assert ours["total_bytes_lost"] >= 1_024
    *_, official, count = tool.stdout.lines
    assert count == "1 entries read"
    cells = official.split(",")
    assert [int(each) for each in cells[:2]] == [
        ours["observation_count"],
        ours["total_bytes_lost"],
    ]
    assert [int(each) for each in cells[4:6]] == [ours["session_id"], ours["stream_id"]]
    assert cells[6:] == [ours["channel"], ours["source"]]
