"""Requests that name hosts whose names take long to look up: they hold up nobody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async import Aeron, RegistrationError
from aeron_async.archive import ControlServer, ControlSettings, RemoteArchive
from aeron_async.archive.control import response_channel
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.response_channel import LOOK_UPS_MAX, LookUps
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive
from tests.archive.control.test_reflection import CONTROL, DRIVER, connect_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

SLOW_S = 4.0


class SlowResolver:
    """Knows the hosts of a world; names that begin with `slow` take four seconds.

    As with the system's resolver, who no longer waits for an answer stops nothing.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.under_way = self.most_under_way = self.slow_count = 0

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> tuple[str, int]:
        del is_re_resolution
        if not host.startswith("slow"):
            return self.world.network.names[host], port
        await asyncio.shield(asyncio.ensure_future(self._take_long()))
        message = f"nobody is called {host}"
        raise RegistrationError(message)

    async def _take_long(self) -> None:
        self.slow_count += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(SLOW_S)
        self.under_way -= 1


def play(story: Callable[[World, ControlServer, SlowResolver], Awaitable[None]]) -> None:
    """Play a story beside an archive whose driver has a slow resolver."""

    async def begin(world: World) -> None:
        resolver = SlowResolver(world)
        context = attrs.evolve(DRIVER, name_resolver_supplier=resolver)
        settings = ControlSettings(control_channel=CONTROL)
        driver = world.host("archive").driver(context)
        async with (
            driver,
            Aeron.connect(driver) as aeron,
            ControlServer(FakeArchive(), aeron, settings) as server,
        ):
            await story(world, server, resolver)

    simulate(begin)


async def ask(host: Host, count: int, *, pause_s: float = 0.0) -> None:
    """Ask to be let in, and name hosts whose names take long."""
    async with host.aeron(DRIVER) as aeron:
        publication = await aeron.add_exclusive_publication(CONTROL, 10)
        for number in range(count):
            channel = f"aeron:udp?endpoint=slow-{host.name}-{number}:9999"
            await publication.offer(CODEC.encode(connect_request(channel)))
            await asyncio.sleep(pause_s)
        await asyncio.sleep(30)


async def connect(host: Host, where: str) -> None:
    channel = f"aeron:udp?endpoint={where}:0"
    async with (
        host.aeron(DRIVER) as aeron,
        RemoteArchive.connect(
            aeron, control_channel=CONTROL, response_channel=channel, replay_channel=channel
        ) as remote,
    ):
        assert remote.archive_id == 77


def test_a_place_is_free_again_while_its_name_is_still_looked_up() -> None:
    async def story(world: World, server: ControlServer, resolver: SlowResolver) -> None:
        asking = asyncio.create_task(ask(world.host("mallory"), 4))
        while not server.session_count:
            await world.sleep(0.01)
        await world.sleep(1.1)
        assert server.session_count == server.waiting_room.session_count == 0
        assert resolver.under_way == LOOK_UPS_MAX
        # Those whose turn did not come in time were not looked up at all.
        await world.sleep(SLOW_S)
        assert (resolver.under_way, resolver.slow_count) == (0, LOOK_UPS_MAX)
        asking.cancel()
        await asyncio.wait((asking,))

    play(story)


def test_few_names_of_strangers_are_looked_up_at_once_and_numeric_hosts_need_no_turn() -> None:
    async def story(world: World, _: ControlServer, resolver: SlowResolver) -> None:
        strangers = [world.host(f"mallory{number}") for number in range(8)]
        asking = [asyncio.create_task(ask(each, 10, pause_s=1)) for each in strangers]
        await world.sleep(0.5)
        honest = world.host("honest")
        asked_ns = world.now_ns
        await connect(honest, honest.address)
        assert world.now_ns - asked_ns < 2_000_000_000
        await world.sleep(20)
        assert resolver.slow_count > LOOK_UPS_MAX
        assert resolver.most_under_way == LOOK_UPS_MAX
        # And names are looked up again when the slow ones are done with.
        await connect(honest, "honest")
        for each in asking:
            each.cancel()
        await asyncio.wait(asking)

    play(story)


def test_no_look_up_for_a_client_outlives_its_server() -> None:
    async def story(world: World, server: ControlServer, _: SlowResolver) -> None:
        asking = asyncio.create_task(ask(world.host("mallory"), 1))
        await world.sleep(0.5)
        (task,) = server.look_ups._under_way
        await server.aclose()
        await world.sleep(0.01)
        assert task.cancelled()
        asking.cancel()
        await asyncio.wait((asking,))

    play(story)


async def test_every_name_of_a_channel_is_looked_up_and_nothing_else_is_changed() -> None:
    asked: list[str] = []

    async def look_up(host: str, port: int) -> tuple[str, int]:
        asked.append(host)
        return {"here": "10.0.0.1", "there": "fd00::2"}.get(host, host), port

    look_ups = LookUps(look_up)
    for channel, numeric in (
        ("aeron:udp?endpoint=there:5|mtu=1408", "aeron:udp?endpoint=[fd00::2]:5|mtu=1408"),
        (
            "aeron:udp?endpoint=10.0.0.2:5|interface=here:7/24",
            "aeron:udp?endpoint=10.0.0.2:5|interface=10.0.0.1:7/24",
        ),
        (
            "aeron:udp?control=here:5|control-mode=response",
            "aeron:udp?control=10.0.0.1:5|control-mode=response",
        ),
        ("aeron:udp?endpoint=10.0.0.2:5", "aeron:udp?endpoint=10.0.0.2:5"),
        ("aeron:ipc", "aeron:ipc"),
    ):
        assert await look_ups.numeric(ChannelUri.parse(channel)) == ChannelUri.parse(numeric)
    assert asked == ["there", "here", "here"]


async def test_a_look_up_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_channel, "LOOK_UP_TIMEOUT_S", 0.01)

    async def look_up(*_: object) -> tuple[str, int]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    look_ups = LookUps(look_up)
    for _ in range(2 * LOOK_UPS_MAX):
        with pytest.raises(RegistrationError, match="cannot resolve host 'nobody'"):
            await look_ups.numeric(ChannelUri.parse("aeron:udp?endpoint=nobody:1"))
