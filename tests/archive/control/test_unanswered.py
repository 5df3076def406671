"""A request that is not answered says so while it waits, and why when it is given up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.archive import ControlServer, ControlSettings, RemoteArchive
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping

    from aeron_async.testing.world import World

CONTROL = "aeron:udp?endpoint=archive:8010"
RESPONSES = "aeron:udp?endpoint=client:0"
SMALL = aa.DriverContext(term_buffer_length=65_536, ipc_term_buffer_length=65_536)


class Busy(FakeArchive):
    """Answers after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def stop_recording_subscription(self, *_args: Any, **_fields: Any) -> int:
        await asyncio.sleep(self.seconds)
        return 0


@asynccontextmanager
async def asking(world: World, archive: Busy) -> AsyncIterator[tuple[aa.Aeron, RemoteArchive]]:
    """Serve an archive on a host, and connect to it from another one."""
    async with (
        world.host("archive").aeron(SMALL) as its_aeron,
        ControlServer(archive, its_aeron, ControlSettings(control_channel=CONTROL)),
        world.host("client").aeron(SMALL) as aeron,
        RemoteArchive.connect(aeron, control_channel=CONTROL, response_channel=RESPONSES) as remote,
    ):
        yield aeron, remote


def hints(lines: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == "wait_lasted_long"]


@pytest.mark.parametrize(
    ("gone", "sight", "remedy"),
    [
        (
            (),
            "its driver is there, and no answer has come",
            "does it still run? if it is only busy, raise timeout (5 s)",
        ),
        (
            ("archive",),
            "its driver was last heard 2.",
            (
                "does it still run? if it is gone, this session ends, too, after "
                "image_liveness_timeout_ns"
            ),
        ),
    ],
)
def test_a_request_that_is_not_answered_says_so_while_it_waits(
    gone: tuple[str, ...], sight: str, remedy: str
) -> None:
    """An archive that had been killed was noticed after eleven seconds, without a word before."""

    async def story(world: World) -> None:
        async with asking(world, Busy(60)) as (_, remote):
            hosts = [host for host in world.hosts if host.name in gone]
            with world.partitioned(*hosts), pytest.raises(aa.AeronTimeoutError) as caught:
                await remote.stop_recording_subscription(1)
        error = caught.value
        assert error.why is not None
        assert error.why.reason is aa.WaitReason.NOT_ANSWERED
        assert "did not answer a StopRecordingSubscriptionRequest within 5" in str(error)
        assert str(error).endswith(remedy)

    with capture_logs() as lines:
        simulate(story)
    (line,) = hints(lines)
    assert (line["operation"], line["seconds"], line["cause"]) == ("request", 2.0, "not_answered")
    asked = "stream 10 has not answered a StopRecordingSubscriptionRequest"
    assert f"{asked}: {sight}" in line["why"]
    assert line["why"].endswith(remedy)


def test_over_ipc_nobody_says_that_the_archive_is_there() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("both").aeron(SMALL) as aeron,
            ControlServer(Busy(60), aeron, ControlSettings(control_channel="aeron:ipc")),
            RemoteArchive.connect(
                aeron, control_channel="aeron:ipc", response_channel="aeron:ipc"
            ) as remote,
        ):
            with pytest.raises(aa.AeronTimeoutError, match="no answer has come; does it still run"):
                await remote.stop_recording_subscription(1)

    with capture_logs() as lines:
        simulate(story)
    (line,) = hints(lines)
    assert "the request was offered, and no answer has come; does it still run?" in line["why"]


def test_an_answer_in_time_leaves_no_line_and_no_timer() -> None:
    async def story(world: World) -> None:
        async with asking(world, Busy(1.9)) as (aeron, remote):
            await remote.stop_recording_subscription(1)
            given_up = asyncio.create_task(remote.stop_recording_subscription(1))
            await asyncio.sleep(1)
            given_up.cancel()
            await asyncio.sleep(5)
            assert not aeron._conductor.waits.has_timer

    with capture_logs() as lines:
        simulate(story)
    assert hints(lines) == []
