"""The official client drives our archive, over the network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, ControlServer, ControlSettings, LocalArchive
from tests.interop.official import SHARED_MEMORY
from tests.interop.official_archive import java_arguments
from tests.interop.ours import our_client
from tests.interop.programs import running
from tests.interop.shared import shared_directory
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.interop.programs import Program

SOURCE: Final = Path(__file__).with_name("ArchiveClient.java")
COUNT: Final = 200


@pytest.fixture
async def control_channel(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> AsyncIterator[str]:
    channel = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    context = ArchiveContext(
        directory=str(tmp_path),
        segment_length=65_536,
        low_storage_threshold=65_536,
        control_channel=channel,
        archive_id=42,
    )
    async with our_client() as aeron:
        archive = await LocalArchive.open(aeron, context)
        async with archive, ControlServer(archive, aeron, ControlSettings.of(context)) as server:
            yield channel
            assert server.dropped_requests == 0


async def test_an_official_client_records_lists_replays_and_makes_room(
    control_channel: str, channel: str
) -> None:
    directory = SHARED_MEMORY / f"aeron-interop-client-{channel.rpartition(':')[2]}"
    try:
        async with running(
            "java", *java_arguments(), str(SOURCE), control_channel, channel, directory, COUNT
        ) as client:
            code = await client.wait(timeout=60)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    check(client, code, channel)


@needs_compiled
@pytest.mark.parametrize("driver", ["ours", "official"])
@pytest.mark.parametrize("medium", ["ipc", "udp"])
async def test_an_official_client_and_our_archive_share_a_driver(
    tmp_path: Path, channel: str, driver: str, medium: str
) -> None:
    """Requests, answers and replays go over IPC."""
    recorded = "aeron:ipc" if medium == "ipc" else channel
    context = ArchiveContext(
        directory=str(tmp_path / "archive"),
        segment_length=65_536,
        low_storage_threshold=65_536,
        archive_id=42,
    )
    async with (
        shared_directory(driver, tmp_path / "aeron") as directory,
        aa.Aeron.connect(directory=directory) as aeron,
        LocalArchive.open(aeron, context) as archive,
        ControlServer(archive, aeron, ControlSettings.of(context)) as server,
    ):
        arguments = (SOURCE, "aeron:ipc", recorded, directory, COUNT, "aeron:ipc")
        async with running("java", *java_arguments(), *map(str, arguments)) as client:
            code = await client.wait(timeout=60)
        check(client, code, recorded)
        assert server.dropped_requests == 0


def check(client: Program, code: int, channel: str) -> None:
    """Check that the client has seen what it should, and was refused what it should not get."""
    assert code == 0, client.stderr.lines
    end = next(line.split()[1] for line in client.stdout.lines if line.startswith("recorded"))
    recording = f"recording 0 0 {end} 2001 {channel}"
    refused = [line for line in client.stdout.lines if line.startswith("refused")]
    assert [line for line in client.stdout.lines if not line.startswith("refused")] == [
        "archive 42",
        "subscriptions 1",
        f"recorded {end}",
        recording,
        "listed 1",
        recording,
        "listed 1",
        "listed 0",
        recording,
        "listed 1",
        f"replayed {COUNT}",
        f"right {COUNT}",
        f"truncated {int(end) // 65_536}",
        "stopped 65536",
        "purged 1",
        "done 0",
    ]
    assert [line.split()[1] for line in refused] == ["3", "5", "4", "0"]
    assert "recording exists for streamId=2001" in refused[0]
    assert "unknown recording id: 0" in refused[1]
    assert "no recording found for streamId=2001" in refused[2]
    assert "does not support MigrateSegmentsRequest" in refused[3]
