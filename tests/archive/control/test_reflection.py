"""Requests that name somebody else as the receiver of the answers: a flood changes little.

The archive sends little to a host that never answers, keeps little for it, and has
time and room for honest clients all the while.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from aeron_async import Aeron, DriverContext
from aeron_async.archive import ControlServer, ControlSettings, RemoteArchive
from aeron_async.archive.control.messages import CODEC, PROTOCOL_VERSION, AuthConnectRequest
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive
from tests.sim.wire import Wire

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

CONTROL: Final = "aeron:udp?endpoint=archive:8010"
MIB: Final = 1 << 20
PAGE: Final = 4_096
DRIVER: Final = DriverContext(term_buffer_length=65_536)
GREEDY: Final = "aeron:udp?endpoint=victim:9999|term-length=1g|sparse=false|mtu=1408|linger=1h"
PLAIN: Final = "aeron:udp?endpoint=victim:9999"


class Scene:
    """An archive that is served, its network, and a host that never asked for anything."""

    def __init__(self, world: World, settings: ControlSettings) -> None:
        self.world = world
        self.settings = settings
        self.wire = Wire(world)
        self.archive, self.victim = world.host("archive"), world.host("victim")
        self.asked_length = 0
        self.most_mapped = 0
        self.server: ControlServer | None = None

    async def serve(self, driver: Any, aeron: Aeron) -> None:
        async with ControlServer(FakeArchive(), aeron, self.settings) as self.server:
            while True:
                self.most_mapped = max(self.most_mapped, mapped(driver))
                await self.world.sleep(0.01)

    async def flood(
        self, host: Host, channel: str, *, pace_s: float, until_s: float, stream_id: int = 20
    ) -> None:
        """Ask to be let in again and again; never answer."""
        async with host.aeron(DRIVER) as aeron:
            publication = await aeron.add_exclusive_publication(CONTROL, 10)
            while self.world.now_ns < until_s * 1e9:
                request = CODEC.encode(connect_request(channel, stream_id))
                await publication.offer(request)
                self.asked_length += len(request)
                await self.world.sleep(pace_s)

    def reflected_length(self) -> int:
        """Return how many bytes went to the victim."""
        return sum(
            each.datagram_length
            for each in self.wire.sent
            if each.destination[0] == self.victim.address
        )


def connect_request(channel: str, stream_id: int = 20) -> AuthConnectRequest:
    return AuthConnectRequest(
        correlation_id=1,
        response_stream_id=stream_id,
        version=PROTOCOL_VERSION,
        response_channel=channel,
    )


def mapped(driver: Any) -> int:
    """Return how many bytes the logs of a driver's publications take."""
    publications = driver.conductor.network_publications
    return sum(3 * each.log.term_length + PAGE for each in publications)


def scene(story: Any, *, settings: ControlSettings | None = None, seed: int = 0) -> None:
    """Play a story beside an archive that is served."""

    async def play(world: World) -> None:
        stage = Scene(world, settings or ControlSettings(control_channel=CONTROL))
        driver = stage.archive.driver(DRIVER)
        async with driver, Aeron.connect(driver) as aeron:
            serving = asyncio.create_task(stage.serve(driver, aeron))
            await story(stage)
            serving.cancel()
            await asyncio.wait((serving,))

    simulate(play, seed=seed)


@pytest.mark.parametrize("channel", [PLAIN, GREEDY], ids=["plain", "greedy"])
def test_a_host_that_never_answers_is_sent_three_bytes_for_a_byte_at_most(channel: str) -> None:
    """A hundred requests at once, and a minute to count."""

    async def story(stage: Scene) -> None:
        mallory = stage.world.host("mallory")
        until_s = stage.world.now_ns / 1e9 + 0.5
        await stage.flood(mallory, channel, pace_s=0.005, until_s=until_s)
        await stage.world.sleep(60)
        assert stage.server is not None
        assert 0 < stage.reflected_length() <= 3 * stage.asked_length
        assert stage.most_mapped <= stage.settings.max_unconnected_sessions_per_image * MIB // 4
        assert stage.server.session_count == 0

    scene(story)


@pytest.mark.untraced
@pytest.mark.parametrize("source_count", [1, 60])
def test_honest_clients_connect_during_a_flood(source_count: int) -> None:
    """1,000 requests a second that nobody answers, from few sources and from many."""

    async def story(stage: Scene) -> None:
        world, begin_s = stage.world, stage.world.now_ns / 1e9
        floods = [
            asyncio.create_task(
                stage.flood(
                    world.host(f"mallory{number}"),
                    GREEDY,
                    pace_s=source_count / 1_000,
                    until_s=begin_s + 2,
                )
            )
            for number in range(source_count)
        ]
        async with world.host("honest").aeron(DRIVER) as aeron:
            for _ in range(3):
                await world.sleep(0.5)
                asked_s = world.now_ns / 1e9
                async with RemoteArchive.connect(
                    aeron,
                    control_channel=CONTROL,
                    response_channel="aeron:udp?endpoint=honest:0",
                    replay_channel="aeron:udp?endpoint=honest:0",
                ) as remote:
                    assert remote.archive_id == 77
                assert world.now_ns / 1e9 - asked_s < 1.0
            assert not any(flood.done() for flood in floods)
        await asyncio.wait(floods)
        assert stage.server is not None
        assert stage.server.refused_sessions > 1_250
        await world.sleep(2)
        assert stage.reflected_length() <= 3 * stage.asked_length // 10, "most are not let in"
        assert stage.most_mapped < 8 * MIB
        assert stage.server.session_count == 0

    scene(story)


@pytest.mark.untraced
@pytest.mark.parametrize("source_count", [1, 20])
@pytest.mark.parametrize("channel", ["aeron:ipc", CONTROL])
def test_the_archive_takes_nothing_for_a_client_that_answers_itself(
    channel: str, source_count: int
) -> None:
    """Strangers name the archive's own control channel as their own."""

    async def story(stage: Scene) -> None:
        world, begin_s = stage.world, stage.world.now_ns / 1e9
        floods = [
            asyncio.create_task(
                stage.flood(
                    world.host(f"mallory{number}"),
                    channel,
                    stream_id=10,
                    pace_s=source_count / 100,
                    until_s=begin_s + 1.2,
                )
            )
            for number in range(source_count)
        ]
        async with world.host("honest").aeron(DRIVER) as aeron:
            for _ in range(2):
                await world.sleep(0.4)
                assert stage.server is not None
                assert stage.server.session_count <= stage.settings.max_unconnected_sessions
                asked_s = world.now_ns / 1e9
                async with RemoteArchive.connect(
                    aeron,
                    control_channel=CONTROL,
                    response_channel="aeron:udp?endpoint=honest:0",
                    replay_channel="aeron:udp?endpoint=honest:0",
                ):
                    assert world.now_ns / 1e9 - asked_s < 1.0
            assert not any(flood.done() for flood in floods)
        await asyncio.wait(floods)
        await world.sleep(6)
        assert stage.server is not None
        assert stage.server.session_count == 0

    scene(story)


@pytest.mark.parametrize("is_answered_elsewhere", [False, True])
def test_a_client_that_never_uses_its_session_loses_it(*, is_answered_elsewhere: bool) -> None:
    """Somebody takes the answers, and that is not the client that asked."""

    async def story(stage: Scene) -> None:
        world = stage.world
        async with (
            stage.victim.aeron(DRIVER) as victim,
            world.host("mallory").aeron(DRIVER) as aeron,
        ):
            if is_answered_elsewhere:
                await victim.add_subscription(PLAIN, 20)
            publication = await aeron.add_exclusive_publication(CONTROL, 10)
            for _ in range(4):
                await publication.offer(CODEC.encode(connect_request(PLAIN)))
            await world.sleep(0.5)
            assert stage.server is not None
            assert stage.server.session_count == 4
            await world.sleep(5.5 if is_answered_elsewhere else 1.5)
            assert stage.server.session_count == 0

    scene(story)


def test_requests_that_mean_nothing_cost_few_log_lines() -> None:
    """From however many sources, whose addresses differ."""

    async def babble(stage: Scene, host: Host) -> None:
        async with host.aeron(DRIVER) as aeron:
            publication = await aeron.add_exclusive_publication(CONTROL, 10)
            for _ in range(20):
                await publication.offer(bytes(10))
                await stage.world.sleep(0.25)

    async def story(stage: Scene) -> None:
        hosts = [stage.world.host(f"mallory{number}") for number in range(40)]
        await asyncio.gather(*(babble(stage, each) for each in hosts))
        assert stage.server is not None
        assert stage.server.dropped_requests == 800

    with capture_logs() as lines:
        scene(story)
    assert 5 <= sum(each["event"] == "archive_request_dropped" for each in lines) <= 5 * 7
    assert any("archive_request_dropped" in each.get("events", "") for each in lines)


def test_many_honest_clients_that_come_at_once_are_all_let_in() -> None:
    """More than may wait for an answer at once: those beyond wait for their turn."""

    async def story(stage: Scene) -> None:
        world = stage.world
        async with world.host("honest").aeron(DRIVER) as aeron:
            remotes = [
                RemoteArchive.connect(
                    aeron,
                    control_channel=CONTROL,
                    response_channel="aeron:udp?endpoint=honest:0",
                    replay_channel="aeron:udp?endpoint=honest:0",
                )
                for _ in range(60)
            ]
            await asyncio.gather(*(each.start() for each in remotes))
            assert {each.archive_id for each in remotes} == {77}
            for each in remotes:
                await each.aclose()

    scene(story)
