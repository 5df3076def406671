"""Requests that name hosts whose names take long to look up: they hold up nobody else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async import Aeron, AeronTimeoutError, ClosedError, RegistrationError
from aeron_async.archive import ControlServer, ControlSettings, RemoteArchive
from aeron_async.archive.control import response_channel
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.response_channel import (
    LOOK_UPS_MAX,
    OF_A_KIND_MAX,
    LookUps,
    source_of,
)
from aeron_async.protocol.address import Address
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.testing.world import simulate
from tests.archive.control.fake_archive import FakeArchive
from tests.archive.control.test_reflection import CONTROL, DRIVER, connect_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

SLOW_S = 4.0
NOBODY = ChannelUri.parse("aeron:udp?endpoint=nobody:1")


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
            return {"localhost": "127.0.0.1", **self.world.network.names}[host], port
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


async def connect(host: Host, where: str | None = None) -> None:
    channel = None if where is None else f"aeron:udp?endpoint={where}:0"
    async with (
        host.aeron(DRIVER) as aeron,
        RemoteArchive.connect(
            aeron, control_channel=CONTROL, response_channel=channel, replay_channel=channel
        ) as remote,
    ):
        assert remote.archive_id == 77


async def stop(*tasks: asyncio.Task[None]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)


async def keep_all_places(world: World, resolver: SlowResolver) -> list[asyncio.Task[None]]:
    """Let strangers ask for slow names until no look-up of a new source can begin."""
    strangers = [world.host(f"mallory{number}") for number in range(OF_A_KIND_MAX)]
    asking = [asyncio.create_task(ask(each, 40, pause_s=0.5)) for each in strangers]
    while resolver.under_way < OF_A_KIND_MAX:
        await world.sleep(0.01)
    return asking


def test_a_place_is_free_again_while_its_name_is_still_looked_up() -> None:
    async def story(world: World, server: ControlServer, resolver: SlowResolver) -> None:
        asking = asyncio.create_task(ask(world.host("mallory"), 4))
        while not server.session_count:
            await world.sleep(0.01)
        await world.sleep(1.1)
        assert server.session_count == server.waiting_room.session_count == 0
        assert resolver.under_way == 1
        # Those whose turn did not come in time were not looked up at all.
        await world.sleep(SLOW_S)
        assert (resolver.under_way, resolver.slow_count) == (0, 1)
        await stop(asking)

    play(story)


def test_a_client_on_the_host_of_the_archive_needs_no_turn() -> None:
    """Its response channel is one of localhost, unless it names another."""

    async def story(world: World, _: ControlServer, resolver: SlowResolver) -> None:
        asking = await keep_all_places(world, resolver)
        asked_ns = world.now_ns
        await connect(world.host("archive"))
        assert world.now_ns - asked_ns < 2_000_000_000
        assert resolver.under_way == OF_A_KIND_MAX
        await stop(*asking)

    play(story)


def test_a_source_with_slow_names_holds_up_no_other_source() -> None:
    """It has several publications, and so several images."""

    async def story(world: World, _: ControlServer, resolver: SlowResolver) -> None:
        mallory = world.host("mallory")
        asking = [asyncio.create_task(ask(mallory, 40, pause_s=0.2)) for _ in range(3)]
        for number in range(4):
            await world.sleep(2)
            assert resolver.under_way == 1
            asked_ns = world.now_ns
            honest = world.host(f"honest{number}")
            await connect(honest, honest.name)
            assert world.now_ns - asked_ns < 2_000_000_000
        assert resolver.most_under_way == 1
        await stop(*asking)

    play(story)


def test_sources_whose_names_were_slow_leave_a_place_for_others() -> None:
    async def story(world: World, _: ControlServer, resolver: SlowResolver) -> None:
        asking = await keep_all_places(world, resolver)
        await world.sleep(SLOW_S)
        for number in range(4):
            await world.sleep(2)
            assert resolver.under_way <= OF_A_KIND_MAX
            asked_ns = world.now_ns
            honest = world.host(f"honest{number}")
            await connect(honest, honest.name)
            assert world.now_ns - asked_ns < 2_000_000_000
        await stop(*asking)

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
        await stop(*asking)

    play(story)


def test_no_look_up_for_a_client_outlives_its_server() -> None:
    async def story(world: World, server: ControlServer, _: SlowResolver) -> None:
        async def look_up(*_: object) -> tuple[str, int]:
            try:
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
            finally:
                # A resolver may have something to close.
                await world.sleep(0.1)

        server.look_ups = LookUps(look_up)
        asking = asyncio.create_task(ask(world.host("mallory"), 1))
        await world.sleep(0.5)
        (task,) = server.look_ups._under_way
        await server.aclose()
        assert task.cancelled()
        await stop(asking)

    play(story)


def in_(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


class HeldResolver:
    """Answers when it is told to; the names that it knows of lead somewhere."""

    def __init__(self) -> None:
        self.asked: dict[str, asyncio.Future[tuple[str, int]]] = {}

    async def look_up(self, host: str, port: int) -> tuple[str, int]:
        del port
        self.asked[host] = asyncio.get_running_loop().create_future()
        return await self.asked[host]

    def answer(self, host: str) -> None:
        self.asked.pop(host).set_result(("10.0.0.1", 1))

    def fail(self, host: str) -> None:
        self.asked.pop(host).set_exception(RegistrationError("nobody is called that"))


Look = asyncio.Task[ChannelUri]


async def look(look_ups: LookUps, source: str, host: str = "", *, within_s: float = 60) -> Look:
    """Ask for a name, and let it be begun if it may be."""
    channel = ChannelUri.parse(f"aeron:udp?endpoint={host or source}:1")
    looking = asyncio.ensure_future(
        look_ups.numeric(channel, source=source, deadline=in_(within_s))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return looking


async def settle(*looking: Look) -> None:
    await asyncio.wait(looking)
    await asyncio.sleep(0)
    for each in looking:
        if not each.cancelled():
            each.exception()


async def test_who_leaves_before_the_deadline_makes_no_source_suspect() -> None:
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    looking = await look(look_ups, "honest")
    looking.cancel()
    await settle(looking)
    assert not look_ups._suspects
    resolver.answer("honest")
    # A cancellation that meets an answer is none of the source's doing either.
    looking = await look(look_ups, "other")
    resolver.answer("other")
    while look_ups._under_way:
        await asyncio.sleep(0)
    looking.cancel()
    await settle(looking)
    assert not look_ups._suspects


async def test_a_look_up_that_outlasts_the_deadline_makes_its_source_suspect() -> None:
    """Also where its caller has left before: the place is taken all the same."""
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    looking = await look(look_ups, "mallory", within_s=0.01)
    looking.cancel()
    await settle(looking)
    async with asyncio.timeout(20):
        while "mallory" not in look_ups._suspects:
            await asyncio.sleep(0)
    resolver.answer("mallory")
    while look_ups._under_way:
        await asyncio.sleep(0)
    assert list(look_ups._suspects) == ["mallory"], "the answer came too late"


async def test_a_name_that_is_looked_up_in_time_clears_its_source() -> None:
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    looking = await look(look_ups, "honest", "misspelt")
    resolver.fail("misspelt")
    await settle(looking)
    assert list(look_ups._suspects) == ["honest"]
    looking = await look(look_ups, "honest", "well-spelt")
    resolver.answer("well-spelt")
    await settle(looking)
    assert not look_ups._suspects


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_honest_host_whose_address_was_forged_has_its_turn(*, is_new: bool) -> None:
    """Another source that had a look-up under way was enough to keep it out for ever."""
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    suspects = ["honest"] if is_new else ["honest", "mallory0"]
    for source in suspects:
        looking = await look(look_ups, source, "forged")
        resolver.fail("forged")
        await settle(looking)
    others = [
        await look(look_ups, f"mallory{number}") for number in range(LOOK_UPS_MAX if is_new else 1)
    ]
    honest = await look(look_ups, "honest")
    resolver.answer("honest")
    assert (await honest).endpoint == Address.of("10.0.0.1", 1)
    look_ups.close()
    await settle(*others)


async def test_suspect_sources_take_turns() -> None:
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    for source in ("honest", "mallory0", "mallory1"):
        looking = await look(look_ups, source)
        resolver.fail(source)
        await settle(looking)
    # One of them has its turn again, and asks once more before the other does.
    first = [await look(look_ups, each) for each in ("mallory0", "mallory1")]
    waiting = [await look(look_ups, each) for each in ("mallory1", "mallory0", "honest")]
    assert set(resolver.asked) == {"mallory0", "mallory1"}
    resolver.fail("mallory1")
    await settle(first[1])
    await asyncio.sleep(0)
    assert set(resolver.asked) == {"mallory0", "honest"}
    look_ups.close()
    await settle(*waiting, first[0])


async def test_who_waits_for_a_turn_is_let_go_when_it_is_closed() -> None:
    resolver = HeldResolver()
    look_ups = LookUps(resolver.look_up)
    begun = await look(look_ups, "mallory")
    waiting = await look(look_ups, "mallory")
    look_ups.close()
    await settle(begun, waiting)
    assert begun.cancelled()
    assert waiting.cancelled()
    with pytest.raises(ClosedError):
        await look_ups.numeric(NOBODY, source="honest", deadline=in_(60))
    await look_ups.wait_closed()
    assert not look_ups._under_way


@pytest.mark.parametrize(
    ("identity", "source"),
    [
        ("10.0.0.9:5000", "10.0.0.9"),
        ("[fd00::1:2:3:4]:5000", "fd00::/64"),
        ("[fd00:0:0:1::2]:5000", "fd00:0:0:1::/64"),
        ("[fe80::1%eth0]:5000", "fe80::/64%eth0"),
        ("[::ffff:10.0.0.9]:5000", "::ffff:10.0.0.9"),
        ("aeron:ipc", "aeron"),
    ],
)
def test_the_addresses_of_one_ipv6_network_are_one_source(identity: str, source: str) -> None:
    assert source_of(identity) == source


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
        (
            "aeron:udp?endpoint=10.0.0.2:5|interface=10.0.0.3:7/24",
            "aeron:udp?endpoint=10.0.0.2:5|interface=10.0.0.3:7/24",
        ),
        ("aeron:udp?endpoint=localhost:5", "aeron:udp?endpoint=localhost:5"),
        ("aeron:udp?endpoint=10.0.0.2:5", "aeron:udp?endpoint=10.0.0.2:5"),
        ("aeron:ipc", "aeron:ipc"),
    ):
        found = await look_ups.numeric(
            ChannelUri.parse(channel), source="10.0.0.9", deadline=in_(60)
        )
        assert found == ChannelUri.parse(numeric)
    assert asked == ["there", "here", "here"]


async def test_a_look_up_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_channel, "LOOK_UP_TIMEOUT_S", 0.01)

    async def look_up(*_: object) -> tuple[str, int]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    look_ups = LookUps(look_up)
    for _ in range(2 * LOOK_UPS_MAX):
        with pytest.raises(RegistrationError, match="cannot resolve host 'nobody'"):
            await look_ups.numeric(NOBODY, source="10.0.0.9", deadline=in_(60))


async def test_the_sources_that_are_remembered_are_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_channel, "SUSPECTS_MAX", 3)

    async def look_up(*_: object) -> tuple[str, int]:
        message = "nobody is called that"
        raise RegistrationError(message)

    look_ups = LookUps(look_up)
    for source in "abcadefd":
        with pytest.raises(RegistrationError):
            await look_ups.numeric(NOBODY, source=source, deadline=in_(60))
    assert list(look_ups._suspects) == ["e", "f", "d"]


async def test_a_look_up_that_heeds_no_cancellation_is_not_waited_for_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_channel, "CLOSE_TIMEOUT_S", 0.01)
    began, ending = asyncio.Event(), asyncio.Event()

    async def look_up(*_: object) -> tuple[str, int]:
        began.set()
        while not ending.is_set():
            with suppress(asyncio.CancelledError):
                await ending.wait()
        return "10.0.0.1", 1

    look_ups = LookUps(look_up)
    asking = asyncio.create_task(look_ups.numeric(NOBODY, source="10.0.0.9", deadline=in_(60)))
    await began.wait()
    look_ups.close()
    await look_ups.wait_closed()
    assert not asking.done()
    ending.set()
    assert (await asking).endpoint == Address.of("10.0.0.1", 1)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_driver_that_is_slow_to_add_a_publication_is_not_taken_for_a_slow_name(
    *, is_slow: bool
) -> None:
    class Busy:
        """A client whose driver adds no publication."""

        def __init__(self, aeron: Aeron) -> None:
            self._aeron = aeron

        def __getattr__(self, name: str) -> Any:
            return getattr(self._aeron, name)

        async def add_exclusive_publication(self, *_: object, **__: object) -> None:
            if is_slow:
                await asyncio.get_running_loop().create_future()
            message = "the conductor is busy"
            raise AeronTimeoutError(message)

    async def story(world: World, server: ControlServer, _: SlowResolver) -> None:
        server.aeron = Busy(server.aeron)  # type: ignore[assignment]
        asking = asyncio.create_task(connect(world.host("honest"), "honest"))
        await world.sleep(2)
        assert server.session_count == 0
        await stop(asking)

    with capture_logs() as lines:
        play(story)
    (reason,) = [
        line["reason"] for line in lines if line["event"] == "archive_control_session_ended"
    ]
    if is_slow:
        assert reason == (
            "the driver did not add the publication for the answers within "
            "unconnected_session_timeout_ns=1000000000"
        )
    else:
        assert reason == "the conductor is busy"
