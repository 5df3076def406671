"""What is left of a server that could not start, and of clients and their replays that end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import RegistrationError

if TYPE_CHECKING:
    import aeron_async as aa
    from tests.archive.control.fake_archive import FakeArchive


async def test_a_server_that_cannot_start_hears_nothing_and_leaves_no_task(
    aeron: aa.Aeron, archive: FakeArchive, channel: str
) -> None:
    settings = ControlSettings(
        control_channel=channel, local_control_channel="aeron:udp?endpoint=192.0.2.1:1"
    )
    before = asyncio.all_tasks()
    server = ControlServer(aeron, archive, settings)
    with pytest.raises(RegistrationError):
        async with server:
            pass
    assert asyncio.all_tasks() == before
    async with ControlServer(aeron, archive, ControlSettings(control_channel=channel)) as server:
        assert server.session_count == 0
