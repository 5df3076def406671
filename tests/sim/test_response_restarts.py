"""A server of responses that comes back: its clients hear the new one, or that there is none.

`AERON_ASYNC_RESTARTS` and `AERON_ASYNC_RESTART_CLIENTS` say how often the server restarts under
load, and how many clients ask it. What the guide to requests and responses promises is that of 20
restarts and 50 clients.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

import attrs
import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.driver.subscriptions import ResponseSubscriptions
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.sim.wire import Peer, Wire, until

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

REQUESTS, RESPONSES = 10, 11
ASKED, CONTROL = "aeron:udp?endpoint=server:20121", "server:20122"
CLIENT_COUNT: Final = int(os.environ.get("AERON_ASYNC_RESTART_CLIENTS", "8"))
RESTART_COUNT: Final = int(os.environ.get("AERON_ASYNC_RESTARTS", "4"))
LIMIT_S: Final = 2.0
PATIENCE_S: Final = 0.5
"""How long a client waits for an answer before it asks again: what was asked of a server that was
killed then is lost with it."""
TERM: Final = "term-length=64k"


def answering(image: aa.Image) -> str:
    """Return the channel of what answers the requests of an image."""
    return (
        f"aeron:udp?control={CONTROL}|control-mode=response|{TERM}"
        f"|response-correlation-id={image.correlation_id}"
    )


@attrs.define
class Server:
    """Answers each client on a publication of its own, one request after the other."""

    terms: str = TERM
    lives: int = 0

    async def serve(self, host: Host) -> None:
        """Answer until the host stops."""
        self.lives += 1
        answers: dict[aa.Image, aa.ExclusivePublication] = {}
        async with host.aeron() as aeron:

            def on_gone(image: aa.Image) -> None:
                if (publication := answers.pop(image, None)) is not None:
                    publication.close()

            requests = await aeron.add_subscription(ASKED, REQUESTS, on_unavailable_image=on_gone)
            async for request in requests:
                image, life = request.image, self.lives
                if image not in answers:
                    answers[image] = await aeron.add_exclusive_publication(
                        f"aeron:udp?control={CONTROL}|control-mode=response|{self.terms}"
                        f"|response-correlation-id={image.correlation_id}",
                        RESPONSES,
                    )
                await answers[image].offer(b"%d %s" % (life, request.data), timeout=5)


@attrs.define
class Client:
    """Asks, and knows which life of the server answered last."""

    name: bytes
    asking: aa.ExclusivePublication
    answers: aa.Subscription
    life: int = 0
    count: int = 0

    @classmethod
    async def of(cls, aeron: aa.Aeron, number: int = 0) -> Client:
        """Make one of many at one host."""
        answers = await aeron.add_subscription(
            f"aeron:udp?endpoint=client:{21_000 + number}|control={CONTROL}|control-mode=response",
            RESPONSES,
        )
        asking = await aeron.add_exclusive_publication(
            f"{ASKED}|response-correlation-id={answers.registration_id}|{TERM}", REQUESTS
        )
        return cls(b"client %d" % number, asking, answers)

    async def ask(self) -> None:
        """Ask once, and wait for the answer to that."""
        self.count += 1
        question = b"%s asks %d" % (self.name, self.count)
        await self.asking.offer(question)
        while True:
            life, _, answered = (await anext(self.answers)).data.partition(b" ")
            self.life = int(life)
            if answered == question:
                return

    async def ask_on(self) -> None:
        """Ask again and again, as a client does that gives up a request in time."""
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.ask()
                await asyncio.sleep(0.05)
            except TimeoutError:
                continue


@pytest.mark.parametrize("terms", [TERM, f"{TERM}|session-id=77"], ids=["new session", "same"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_one_request_is_enough_after_a_restart(
    is_killed: bool,  # noqa: FBT001 - of a table
    terms: str,
) -> None:
    """The response subscription kept the session of the old server for ever."""

    async def story(world: World) -> None:
        host, server = world.host("server"), Server(terms)
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            for life in (2, 3):
                if is_killed:
                    await host.crash()
                    # From now on the publication sends to nobody, though it is still connected.
                    await world.sleep(0.31)
                await host.restart()
                async with asyncio.timeout(LIMIT_S):
                    await client.ask()
                assert client.life == life
            await until(world, lambda: len(client.answers.images) == 1)

    simulate(story)


def test_what_was_asked_of_nobody_is_answered_by_the_next_server() -> None:
    """A connected publication lost what it sent between two servers, without a word."""

    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            await host.crash()
            await world.sleep(0.5)
            assert client.asking.is_connected
            for number in range(20):
                await client.asking.offer(b"%d" % number)
                await world.sleep(0.1)
            await host.restart()
            heard = [(await anext(client.answers)).data for _ in range(20)]
            assert heard == [b"2 %d" % number for number in range(20)]

    simulate(story)


def test_a_bound_response_subscription_hardly_wakes_its_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[ResponseSubscriptions] = Counter()
    poll = ResponseSubscriptions.poll

    def counted(self: ResponseSubscriptions, now_ns: int) -> int:
        looks[self] += 1
        return poll(self, now_ns)

    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            monkeypatch.setattr(ResponseSubscriptions, "poll", counted)
            await world.sleep(20)
            monkeypatch.setattr(ResponseSubscriptions, "poll", poll)
            subscriptions = embedded(aeron).conductor._subscriptions
            # Its own every two seconds, and the server's when it has something else to do.
            assert 9 <= looks.pop(subscriptions.responses) < 15
            assert looks.total() < 5

    simulate(story)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_client_is_told_that_no_server_follows(
    is_killed: bool,  # noqa: FBT001 - of a table
) -> None:
    """Nothing was logged, and nothing raised."""

    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            (image,) = client.answers.images
            events = client.answers.image_events()
            assert (await anext(events)).kind is aa.ImageEventKind.AVAILABLE
            with capture_logs() as logs:
                await (host.crash() if is_killed else host.stop())
                gone_ns = world.now_ns
                assert await anext(events) == (aa.ImageEventKind.UNANSWERED, image)
            assert 1.5 <= (world.now_ns - gone_ns) / 1e9 < 3.1
            (line,) = [each for each in logs if each["event"] == "response_session_silent"]
            assert line["reason"] == client.answers.last_error
            assert f"session {image.session_id} does not answer" in str(client.answers.last_error)
            client.answers.poll(lambda *_: None)
            assert str(aa.why(client.answers)).endswith(
                "the server has named no other within 2 s: the server is gone, or adds no "
                "publication for this client's image; start the server again, or let it add a "
                "response publication for each client"
            )
            await host.restart()
            await client.ask()
            assert client.answers.last_error is None

    simulate(story)


@pytest.mark.parametrize("is_reading", [False, True], ids=["waiting", "reading"])
@pytest.mark.parametrize("offset_s", [0.5, 5.0, 5.5, 6.0, 6.5])
def test_a_client_is_told_in_time_whenever_a_response_stream_ends(
    offset_s: float,
    is_reading: bool,  # noqa: FBT001 - of a table
) -> None:
    """An image may come and go between two looks, which are two seconds apart."""

    async def story(world: World) -> None:
        async with world.host("server").aeron() as serving, world.host("client").aeron() as aeron:
            requests = await serving.add_subscription(ASKED, REQUESTS)
            client = await Client.of(aeron)
            await client.asking.offer(b"once")
            image = (await anext(requests)).image
            publication = await serving.add_exclusive_publication(
                f"aeron:udp?control={CONTROL}|control-mode=response|{TERM}"
                f"|response-correlation-id={image.correlation_id}",
                RESPONSES,
            )
            await publication.offer(b"answered")
            await anext(client.answers)
            events = client.answers.image_events()
            assert (await anext(events)).kind is aa.ImageEventKind.AVAILABLE
            reading = asyncio.ensure_future(anext(client.answers)) if is_reading else None
            await world.sleep(offset_s)
            await publication.aclose()
            gone_ns = world.now_ns
            while (await anext(events)).kind is not aa.ImageEventKind.UNANSWERED:
                pass
            assert 1.9 <= (world.now_ns - gone_ns) / 1e9 <= 2.5
            if reading is not None:
                reading.cancel()

    simulate(story)


@pytest.mark.parametrize("pause_s", [1.9, 2.0, 2.1])
def test_a_client_is_told_nothing_where_the_next_session_is_named_in_time(pause_s: float) -> None:
    """It was told just before the session was joined, and told the opposite just after."""

    async def story(world: World) -> None:
        async with world.host("server").aeron() as serving, world.host("client").aeron() as aeron:
            # The name of the next session comes 200 ms before its first SETUP.
            world.set_conditions(Conditions(delay_ns=100_000_000))
            requests = await serving.add_subscription(ASKED, REQUESTS)
            client = await Client.of(aeron)
            await client.asking.offer(b"once")
            image = (await anext(requests)).image
            channel = answering(image)
            publication = await serving.add_exclusive_publication(channel, RESPONSES)
            events = client.answers.image_events()
            assert (await anext(events)).kind is aa.ImageEventKind.AVAILABLE
            await publication.aclose()
            await world.sleep(pause_s)
            await serving.add_exclusive_publication(channel, RESPONSES)
            found = []
            while aa.ImageEventKind.AVAILABLE not in found:
                found.append((await anext(events)).kind)
            assert aa.ImageEventKind.UNANSWERED not in found

    simulate(story)


def test_a_client_is_told_when_its_server_is_heard_again() -> None:
    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            with world.partitioned(host):
                await until(world, lambda: client.answers.last_error)
            await until(world, lambda: not client.answers.last_error)
            await client.ask()
            assert len(client.answers.images) == 1

    simulate(story)


def test_a_client_that_asks_no_more_is_told_nothing() -> None:
    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            await client.asking.aclose()
            await world.sleep(30)
            assert client.answers.last_error is None

    simulate(story)


def test_a_server_that_leaves_one_publication_for_another_is_followed() -> None:
    """Within one life of a server, too."""

    async def story(world: World) -> None:
        async with world.host("server").aeron() as serving, world.host("client").aeron() as aeron:
            requests = await serving.add_subscription(ASKED, REQUESTS)
            client = await Client.of(aeron)
            await client.asking.offer(b"again and again")
            image = (await anext(requests)).image
            channel = answering(image)
            for number in range(3):
                response = await serving.add_exclusive_publication(channel, RESPONSES)
                for part in range(100):
                    await response.offer(b"%d %d" % (number, part), timeout=3)
                response.close()
            heard = [(await anext(client.answers)).data.split() for _ in range(300)]
            # Of several images each is read in order.
            for number in range(3):
                parts = [int(part) for life, part in heard if int(life) == number]
                assert parts == list(range(100))

    simulate(story)


def test_a_forged_frame_takes_no_stream_that_is_heard() -> None:
    """To follow must not mean to follow anybody."""

    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        wire = Wire(world)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await client.ask()
            (image,) = client.answers.images
            publisher = wire.of(Setup)[0].source
            forged = ResponseSetup(
                session_id=client.asking.session_id, stream_id=REQUESTS, response_session_id=666
            )
            begun_again = attrs.evolve(
                next(each.frame for each in wire.of(Setup) if each.frame.stream_id == RESPONSES),
                initial_term_id=1,
                active_term_id=1,
            )
            for _ in range(100):
                # As if they came from the server, whose addresses are no secret.
                for source, target, frame in (
                    (("10.0.0.1", 20_121), publisher, forged),
                    (("10.0.0.1", 20_122), (world.host("client").address, 21_000), begun_again),
                ):
                    world.host("client").machine.arrive(None, source, target, frame.encode())
                async with asyncio.timeout(1):
                    await client.ask()
            assert client.answers.images == (image,)

    simulate(story)


def test_a_session_that_never_came_gives_way_to_the_true_one() -> None:
    """One forged frame kept the responses from a client for ever."""

    async def story(world: World) -> None:
        host = world.host("server")
        peer = await Peer.open(host, 20_121)
        wire = Wire(world)
        async with world.host("client").aeron() as aeron:
            client = await Client.of(aeron)
            await until(world, lambda: wire.of(Setup))
            forged = ResponseSetup(
                session_id=client.asking.session_id, stream_id=REQUESTS, response_session_id=666
            )
            peer.say(forged.encode(), wire.of(Setup)[0].source)
            await world.sleep(0.1)
            why = aa.why(client.answers)
            assert why.reason is aa.WaitReason.NOTHING_HEARD
            assert str(why).endswith(
                "hears nothing of session 666, with which the server at control address "
                "10.0.0.1:20122 answers; let datagrams through from 10.0.0.1:20122, and back; "
                "if the server has gone, start it again; if it lives, let it add a response "
                "publication for each client"
            )
            # A publisher that takes receivers in is told of where there is one, and not here.
            assert "control-mode=dynamic" not in str(why)
            peer.transport.close()
            await world.sleep(0.1)
            host.start(Server().serve)
            async with asyncio.timeout(LIMIT_S):
                await client.ask()

    simulate(story)


def test_every_client_is_answered_within_two_seconds_of_a_restart_under_load() -> None:
    """By SIGTERM and by SIGKILL in turn, while all clients go on asking."""
    took_s: list[float] = []

    async def story(world: World) -> None:
        host, server = world.host("server"), Server()
        host.start(server.serve)
        asker = world.host("client")
        async with asker.aeron() as aeron:
            clients = [await Client.of(aeron, number) for number in range(CLIENT_COUNT)]
            asking = [asker.spawn(client.ask_on()) for client in clients]
            await until(world, lambda: all(client.life for client in clients))
            for number in range(RESTART_COUNT):
                if number % 2:
                    await host.crash()
                    await world.sleep(world.random.choice((0.0, 0.1, 0.4, 1, 6)))
                await host.restart()
                returned_ns, waiting = world.now_ns, set(range(CLIENT_COUNT))
                while waiting:
                    assert world.now_ns < returned_ns + LIMIT_S * 1e9, f"{waiting} wait"
                    await world.sleep(0.005)
                    for each in [each for each in waiting if clients[each].life == server.lives]:
                        waiting.remove(each)
                        took_s.append((world.now_ns - returned_ns) / 1e9)
                await world.sleep(world.random.uniform(0, 1))
            for task in asking:
                task.cancel()

    simulate(story)
    print(f"{len(took_s)} answers: median {median(took_s):.3f} s, longest {max(took_s):.3f} s")  # noqa: T201 - the figure
    assert len(took_s) == CLIENT_COUNT * RESTART_COUNT
