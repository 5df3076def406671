"""An archive that is served, and the drivers of both sides in one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from tests.archive.control.fake_archive import FakeArchive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.fixture
async def aeron() -> AsyncIterator[aa.Aeron]:
    context = aa.DriverContext(term_buffer_length=64 * 1024, ipc_term_buffer_length=64 * 1024)
    async with (
        aa.MediaDriver.launch(context, seed=7) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        yield aeron


@pytest.fixture
def archive() -> FakeArchive:
    return FakeArchive()


@pytest.fixture
def channel(unused_udp_port: int) -> str:
    return f"aeron:udp?endpoint=localhost:{unused_udp_port}"


@pytest.fixture
def settings(channel: str) -> ControlSettings:
    return ControlSettings(
        control_channel=channel,
        connect_timeout_ns=1_000_000_000,
        liveness_interval_ns=20_000_000,
        resend_interval_ns=10_000_000,
    )


@pytest.fixture
async def server(
    aeron: aa.Aeron, archive: FakeArchive, settings: ControlSettings
) -> AsyncIterator[ControlServer]:
    async with ControlServer(archive, aeron, settings) as server:
        yield server


@pytest.fixture
async def remote(
    aeron: aa.Aeron, server: ControlServer, channel: str
) -> AsyncIterator[RemoteArchive]:
    async with RemoteArchive.connect(aeron, control_channel=channel) as remote:
        yield remote


@pytest.fixture
def recorded(unused_udp_port_factory: Callable[[], int]) -> str:
    return f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"


@pytest.fixture
async def client(aeron: aa.Aeron, channel: str, tmp_path: Path) -> AsyncIterator[RemoteArchive]:
    context = ArchiveContext(
        directory=str(tmp_path),
        segment_length=65_536,
        low_storage_threshold=65_536,
        control_channel=channel,
        archive_id=88,
    )
    archive = await LocalArchive.open(aeron, context)
    async with (
        archive,
        ControlServer(archive, aeron, ControlSettings.of(context)),
        RemoteArchive.connect(aeron, control_channel=channel) as client,
    ):
        yield client
