"""What a client can make an archive send, and say, that nobody else asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async import AeronTimeoutError, DriverContext
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RemoteArchive,
)
from aeron_async.archive.begin_hints import BeginHints
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.requests import ReplayRequest
from aeron_async.archive.control.response_channel import unanswered_bound
from aeron_async.archive.disk_threads import InlineDisk
from aeron_async.archive.signal_hub import SignalHub
from aeron_async.archive.values import SourceLocation
from aeron_async.logs import LogBudget
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive
from tests.sim.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.testing.world import World

CONTROL = "aeron:udp?endpoint=archive:8010"
RESPONSES = "aeron:udp?endpoint=client:0"
CHANNEL = "aeron:udp?endpoint=archive:9000"
SMALL = DriverContext(term_buffer_length=65_536)


def test_a_replay_to_a_host_that_never_answers_sends_three_bytes_for_a_byte(
    tmp_path: Path,
) -> None:
    """Row B3: whoever is let in could let the archive send SETUPs to anybody, for seconds each."""

    async def story(world: World) -> None:
        wire, victim = Wire(world), world.host("victim")
        context = ArchiveContext(
            directory=str(tmp_path), segment_length=65_536, low_storage_threshold=65_536
        )
        async with (
            world.host("archive").aeron(SMALL) as aeron,
            LocalArchive.open(aeron, context, disk=InlineDisk()) as archive,
            ControlServer(archive, aeron, ControlSettings(control_channel=CONTROL)),
            world.host("client").aeron(SMALL) as its_aeron,
            RemoteArchive.connect(
                its_aeron, control_channel=CONTROL, response_channel=RESPONSES
            ) as client,
        ):
            signals = archive.signals()
            await archive.start_recording(CHANNEL, 10, source_location=SourceLocation.REMOTE)
            publication = await its_aeron.add_exclusive_publication(CHANNEL, 10)
            await publication.offer_many([bytes(1_000)] * 20, timeout=5)
            recording_id = (await anext(signals)).recording_id
            await world.sleep(1)
            asked_length = 0
            for number in range(5):
                to = f"aeron:udp?endpoint=victim:{9_100 + number}"
                await client.start_replay(recording_id, to, 20)
                asked_length += len(
                    CODEC.encode(
                        ReplayRequest(
                            control_session_id=1,
                            correlation_id=1,
                            recording_id=recording_id,
                            position=-1,
                            length=-1,
                            replay_stream_id=20,
                            replay_channel=to,
                        )
                    )
                )
            await world.sleep(20)
            sent_length = sum(
                each.datagram_length for each in wire.sent if each.destination[0] == victim.address
            )
            assert 0 < sent_length <= 3 * asked_length
            # The host that takes the answers is known to be there: it may be late.
            await client.start_replay(recording_id, "aeron:udp?endpoint=client:9200", 20)
            await world.sleep(3)
            late = await its_aeron.add_subscription("aeron:udp?endpoint=client:9200", 20)
            await late.wait_connected(timeout=1)

    simulate(story)


def test_nobody_answers_where_no_archive_listens() -> None:
    """Two lines said that subscriptions wait, and the error named the wrong end."""

    async def story(world: World) -> None:
        async with world.host("client").aeron(SMALL) as aeron:
            with pytest.raises(AeronTimeoutError) as caught:
                await RemoteArchive.connect(
                    aeron, control_channel="aeron:udp?endpoint=127.0.0.1:8010"
                )
        assert str(caught.value) == (
            "nobody answers at 127.0.0.1:8010 (control channel aeron:udp?endpoint=127.0.0.1:8010|"
            "term-length=64k stream 10) within 5 s: is an archive with its control channel there? "
            "if it only starts late, raise timeout"
        )

    with capture_logs() as lines:
        simulate(story)
    assert not [line for line in lines if line["event"] == "wait_lasted_long"]


def test_requests_that_fail_unforeseen_are_logged_within_the_budget() -> None:
    class Broken(FakeArchive):
        async def stop_recording_subscription(self, *_args: Any, **_fields: Any) -> int:
            message = "a bug"
            raise ValueError(message)

    async def story(world: World) -> None:
        async with (
            world.host("archive").aeron(SMALL) as aeron,
            ControlServer(Broken(), aeron, ControlSettings(control_channel=CONTROL)),
            world.host("client").aeron(SMALL) as its_aeron,
            RemoteArchive.connect(
                its_aeron, control_channel=CONTROL, response_channel=RESPONSES
            ) as client,
        ):
            asked = [client.stop_recording_subscription(1) for _ in range(100)]
            assert len(await asyncio.gather(*asked, return_exceptions=True)) == 100

    with capture_logs() as lines:
        simulate(story)
    assert 1 <= sum(line["event"] == "archive_request_failed" for line in lines) <= 5


def test_recordings_that_do_not_begin_are_logged_within_the_budget() -> None:
    """Clients of a served archive ask for any number of them."""

    async def story(world: World) -> None:
        hints = BeginHints(
            SignalHub(),
            hint_ns=1_000_000_000,
            is_elsewhere=True,
            log_budget=LogBudget(lambda: world.now_ns),
        )
        for number in range(100):
            hints.expect(number, CHANNEL, 10, SourceLocation.LOCAL)
        await world.sleep(2)
        hints.close()

    with capture_logs() as lines:
        simulate(story)
    assert [line["event"] for line in lines] == ["recording_waits"] * 5


@pytest.mark.parametrize(
    ("known", "wanted", "is_bounded"),
    [
        ("aeron:udp?endpoint=client:0", "aeron:udp?endpoint=client:9000", False),
        ("aeron:udp?endpoint=client:0", "aeron:udp?endpoint=victim:9000", True),
        ("aeron:udp?endpoint=localhost:0", "aeron:udp?endpoint=127.0.0.1:9000", False),
        ("aeron:udp?endpoint=127.0.0.2:0", "aeron:udp?endpoint=[::1]:9000", False),
        ("aeron:udp?endpoint=10.0.0.1:0", "aeron:udp?endpoint=10.0.0.2:9000", True),
        ("aeron:udp?endpoint=[fe80::1]:0", "aeron:udp?endpoint=[FE80:0::1]:9000", False),
        ("aeron:udp?endpoint=[fe80::1%a]:0", "aeron:udp?endpoint=[fe80::1%b]:9000", True),
        ("aeron:udp?endpoint=10.0.0.1:0", "aeron:udp?endpoint=224.0.1.1:9000", True),
        ("aeron:udp?endpoint=client:0", "aeron:ipc", False),
        # Who reaches the archive through shared memory is no stranger.
        ("aeron:ipc", "aeron:udp?endpoint=other:9000", False),
    ],
)
def test_only_replays_to_hosts_that_have_not_answered_are_bounded(
    known: str,
    wanted: str,
    is_bounded: bool,  # noqa: FBT001 - of a table
) -> None:
    request = ReplayRequest(
        control_session_id=1,
        correlation_id=1,
        recording_id=0,
        position=-1,
        length=-1,
        replay_stream_id=20,
        replay_channel=wanted,
    )
    bound = unanswered_bound(request, ChannelUri.parse(known))
    assert bound == ({"handshake_length": 3 * len(CODEC.encode(request))} if is_bounded else {})
