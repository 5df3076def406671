"""What a client can make an archive send, and say, that nobody else asked for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
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
from aeron_async.archive.api import SourceLocation
from aeron_async.archive.control.messages import CODEC, ReplayRequest
from aeron_async.archive.control.response_channel import unanswered_bound
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.archive.signals import SignalHub
from aeron_async.archive.stalled_recordings import StalledRecordingWarner
from aeron_async.logs import LogBudget
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive
from tests.sim.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async import Aeron
    from aeron_async.testing.world import World

CONTROL = "aeron:udp?endpoint=archive:8010"
RESPONSES = "aeron:udp?endpoint=client:0"
CHANNEL = "aeron:udp?endpoint=archive:9000"
SMALL = DriverContext(term_buffer_length=65_536)


@attrs.frozen
class Recorded:
    """A served archive with twenty messages of one stream, and a client of it."""

    aeron: Aeron
    client: RemoteArchive
    recording_id: int

    @classmethod
    @asynccontextmanager
    async def of(cls, world: World, directory: Path) -> AsyncIterator[Recorded]:
        """Record from the client to the archive, each on a host of its own."""
        context = ArchiveContext(
            directory=str(directory), segment_length=65_536, low_storage_threshold=65_536
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
            yield cls(its_aeron, client, recording_id)


def request_of(channel: str) -> ReplayRequest:
    return ReplayRequest(
        control_session_id=1,
        correlation_id=1,
        recording_id=0,
        position=-1,
        length=-1,
        replay_stream_id=20,
        replay_channel=channel,
    )


def sent_to(wire: Wire, *addresses: str) -> int:
    """Return how many bytes have left for some addresses."""
    return sum(each.datagram_length for each in wire.sent if each.destination[0] in addresses)


def test_a_replay_to_a_host_that_never_answers_sends_three_bytes_for_a_byte(
    tmp_path: Path,
) -> None:
    """Whoever is let in could let the archive send SETUPs to anybody, for seconds each."""

    async def story(world: World) -> None:
        wire, victim = Wire(world), world.host("victim")
        async with Recorded.of(world, tmp_path) as recorded:
            asked_length = 0
            for number in range(5):
                to = f"aeron:udp?endpoint=victim:{9_100 + number}"
                await recorded.client.start_replay(recorded.recording_id, to, 20)
                asked_length += len(CODEC.encode(request_of(to)))
            await world.sleep(20)
            assert 0 < sent_to(wire, victim.address) <= 3 * asked_length
            # The host that takes the answers is known to be there: it may be late.
            late_channel = "aeron:udp?endpoint=client:9200"
            await recorded.client.start_replay(recorded.recording_id, late_channel, 20)
            await world.sleep(3)
            late = await recorded.aeron.add_subscription(late_channel, 20)
            await late.wait_connected(timeout=1)

    simulate(story)


@pytest.mark.parametrize("late_s", [0, 1, 2, 3.4])
def test_a_third_host_is_found_though_it_subscribes_after_its_replay_began(
    tmp_path: Path, late_s: float
) -> None:
    """At 100 ms a SETUP the bound was used up in 700 ms, and the host was never found."""
    channel = "aeron:udp?endpoint=third:9100"

    async def story(world: World) -> None:
        third = world.host("third")
        async with third.aeron(SMALL) as its_aeron, Recorded.of(world, tmp_path) as recorded:
            wire = Wire(world)
            if late_s:
                await recorded.client.start_replay(recorded.recording_id, channel, 20)
                await world.sleep(late_s)
                sent_length = sent_to(wire, third.address)
                assert sent_length <= 3 * len(CODEC.encode(request_of(channel)))
            subscription = await its_aeron.add_subscription(channel, 20)
            if not late_s:
                await recorded.client.start_replay(recorded.recording_id, channel, 20)
            async with asyncio.timeout(2):
                received = [(await anext(subscription)).data for _ in range(20)]
            assert received == [bytes(1_000)] * 20

    simulate(story)


def test_a_replay_to_a_group_is_bounded_until_a_member_answers(tmp_path: Path) -> None:
    channel = "aeron:udp?endpoint=224.20.30.39:9100|interface=10.0.0.0/8"

    async def story(world: World) -> None:
        wire, member = Wire(world), world.host("member")
        async with member.aeron(SMALL) as its_aeron, Recorded.of(world, tmp_path) as recorded:
            await recorded.client.start_replay(recorded.recording_id, channel, 20)
            await world.sleep(20)
            sent_length = sent_to(wire, "224.20.30.39")
            assert 0 < sent_length <= 3 * len(CODEC.encode(request_of(channel)))
            subscription = await its_aeron.add_subscription(channel, 20)
            await recorded.client.start_replay(recorded.recording_id, channel, 20)
            async with asyncio.timeout(2):
                received = [(await anext(subscription)).data for _ in range(20)]
            assert received == [bytes(1_000)] * 20

    simulate(story)


@pytest.mark.parametrize(("host", "is_advised"), [("third", True), ("client", False)])
def test_who_asked_for_a_replay_to_a_silent_third_host_is_told_to_subscribe_first(
    tmp_path: Path,
    host: str,
    is_advised: bool,  # noqa: FBT001 - of a table
) -> None:
    async def story(world: World) -> None:
        world.host("third")
        async with Recorded.of(world, tmp_path) as recorded:
            told = asyncio.get_running_loop().create_future()
            await recorded.client.connection.ask(
                ReplayRequest,
                on_late_error=told.set_result,
                recording_id=recorded.recording_id,
                position=-1,
                length=-1,
                replay_stream_id=20,
                replay_channel=f"aeron:udp?endpoint={host}:9100",
            )
            async with asyncio.timeout(6):
                text = str(await told)
            assert "is its subscriber there?" in text
            assert ("subscribe there first, then request the replay" in text) is is_advised

    simulate(story)


def test_nobody_answers_where_no_archive_listens() -> None:
    """Two lines said that subscriptions wait, and the error named the wrong end; then no line."""

    async def story(world: World) -> None:
        async with world.host("client").aeron(SMALL) as aeron:
            with pytest.raises(AeronTimeoutError) as caught:
                await RemoteArchive.connect(
                    aeron,
                    control_channel="aeron:udp?endpoint=127.0.0.1:8010",
                    control_stream_id=11,
                )
        assert str(caught.value) == (
            "no archive answers at 127.0.0.1:8010 (control channel "
            "aeron:udp?endpoint=127.0.0.1:8010|term-length=64k stream 11) within 5 s: start one "
            "there (`aeron-async archive serve DIRECTORY --control CHANNEL`), or correct the "
            "address, or the control stream id (11 here, default 10); if it only starts late, "
            "raise timeout"
        )
        assert caught.value.why is not None
        assert "or the control stream id (11 here, default 10)" in str(caught.value.why)

    with capture_logs() as lines:
        simulate(story)
    (line,) = [line for line in lines if line["event"] == "wait_lasted_long"]
    assert (line["operation"], line["seconds"], line["cause"]) == ("connect", 2.0, "no_answer")
    assert "or the control stream id (11 here, default 10)" in line["why"]


def test_answers_that_do_not_arrive_are_told_of_while_they_are_waited_for() -> None:
    async def story(world: World) -> None:
        async with (
            world.host("archive").aeron(SMALL) as its_aeron,
            ControlServer(FakeArchive(), its_aeron, ControlSettings(control_channel=CONTROL)),
            world.host("client").aeron(SMALL) as aeron,
        ):
            # The default is a port of localhost, and the archive is another host.
            with pytest.raises(AeronTimeoutError, match="its answers go to"):
                await RemoteArchive.connect(aeron, control_channel=CONTROL)

    with capture_logs() as lines:
        simulate(story)
    (line,) = [
        line
        for line in lines
        if line["event"] == "wait_lasted_long" and line["operation"] == "connect"
    ]
    assert line["cause"] == "nothing_heard"
    assert "its answers go to aeron:udp?endpoint=localhost:" in line["why"]


def test_a_client_that_refuses_the_answers_itself_is_told_its_setting() -> None:
    """It was told to give another response channel, and the limit is its own driver's."""

    async def story(world: World) -> None:
        tiny = attrs.evolve(SMALL, image_log_budget_length=262_144)
        settings = ControlSettings(control_channel=CONTROL, control_term_length=131_072)
        async with (
            world.host("archive").aeron(SMALL) as its_aeron,
            ControlServer(FakeArchive(), its_aeron, settings),
            world.host("client").aeron(tiny) as aeron,
        ):
            with pytest.raises(AeronTimeoutError) as caught:
                await RemoteArchive.connect(
                    aeron, control_channel=CONTROL, response_channel=RESPONSES
                )
        assert "image_log_budget_length" in str(caught.value)
        assert str(caught.value).endswith("change that setting of this driver")

    with capture_logs() as lines:
        simulate(story)
    (line,) = [
        line
        for line in lines
        if line["event"] == "wait_lasted_long" and line["operation"] == "connect"
    ]
    assert line["cause"] == "image_refused"
    assert "image_log_budget_length" in line["why"]
    assert line["why"].endswith("change that setting of this driver")


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
        hints = StalledRecordingWarner(
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
    request = request_of(wanted)
    bound = unanswered_bound(request, ChannelUri.parse(known))
    assert bound == ({"handshake_length": 3 * len(CODEC.encode(request))} if is_bounded else {})
