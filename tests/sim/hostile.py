"""An honest stream of any kind, and a third host that shoots at both of its ends."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.testing.fates import Conditions
from aeron_async.testing.recorder import Recorder
from aeron_async.testing.trace import Verdict
from aeron_async.testing.world import World, simulate, tell_and_close
from tests.support.hostile import Attack, shots
from tests.support.victim import Target, Victim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image
    from aeron_async.client.publication import Publication
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.recorder import Received

__all__ = ["DYNAMIC", "MULTICAST", "UNICAST", "Figures", "Kind", "run_attacked"]

PORT: Final = 20_121
STREAM_ID: Final = 1001
STRANGER: Final = ("10.0.0.3", 6_666)
SHOT_INTERVAL_S: Final = 0.001
SHOT_COUNT: Final = 700
MESSAGE_INTERVAL_S: Final = 0.004
LENGTHS: Final = (0, 20, 200, 1_000, 3_000)
WARM_UP_S: Final = 0.2
COOL_DOWN_S: Final = 0.2
NORMAL_AFTER_S: Final = 5
GONE_AFTER_S: Final = 30
"""Images that strangers made are silent for 10 s, say goodbye for 1 s, and linger for 10 s."""
LEFT: Final = (Verdict.SENT, Verdict.LOST, Verdict.NO_ROUTE)
"""What is noted of a datagram when it leaves."""


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of stream: its channels, and where its ends can be shot at.

    Attributes:
        publish: Channel of the publication.
        subscribe: Channel of the subscription.
        control: Where the publication hears; None is the socket that it sends from.
        data: Where the subscription hears.
        is_open: Whether the publication hears everybody, and not only the address of `data`.
        socket_counts: How many sockets the two ends have.
        context: Settings of the publication's driver.
    """

    publish: str
    subscribe: str
    control: SocketAddress | None = None
    data: SocketAddress = ("10.0.0.2", PORT)
    is_open: bool = True
    socket_counts: tuple[int, int] = (1, 1)
    context: DriverContext = attrs.field(factory=DriverContext)


UNICAST: Final = Kind(
    publish=f"aeron:udp?endpoint=bob:{PORT}|term-length=64k",
    subscribe=f"aeron:udp?endpoint=bob:{PORT}|term-length=64k",
    is_open=False,
)
DYNAMIC: Final = Kind(
    publish="aeron:udp?control=alice:20120|control-mode=dynamic|term-length=64k",
    subscribe=f"aeron:udp?endpoint=bob:{PORT}|control=alice:20120|control-mode=dynamic",
    control=("10.0.0.1", 20_120),
    context=DriverContext(max_destinations=8),
)
GROUP: Final = f"aeron:udp?endpoint=224.20.30.39:{PORT}|interface=10.0.0.0/8"
MULTICAST: Final = Kind(
    publish=f"{GROUP}|term-length=64k|fc=min,t:1s",
    subscribe=GROUP,
    control=("224.20.30.40", PORT),
    data=("224.20.30.39", PORT),
    socket_counts=(2, 1),
    context=DriverContext(max_flow_control_receivers=50),
)


@attrs.define
class Figures:
    """What one run came to.

    Attributes:
        shot_length: Bytes that the attacker sent.
        sent_length: Bytes that the two honest hosts sent, up to half a minute after the attack.
        reflected_length: Those of them that went to the attacker.
        counts: By label, the counters of both drivers, added up.
    """

    shot_length: int = 0
    sent_length: int = 0
    reflected_length: int = 0
    counts: dict[str, int] = attrs.field(factory=dict)

    def count(self, label: str) -> int:
        """Return the counters whose label begins like this, added up."""
        return sum(value for each, value in self.counts.items() if each.startswith(label))


class Battle:
    """One run of the honest stream, attacked or not."""

    def __init__(self, world: World, attacks: Sequence[Attack], seed: int, kind: Kind) -> None:
        self.world = world
        self.kind = kind
        self.figures = Figures()
        self.recorder = Recorder()
        self.received: dict[int, Received] = {}
        self.images: dict[int, Image] = {}
        self.gone: list[int] = []
        self._attacks = attacks
        self._random = Random(seed)
        self._lengths = Random(seed)
        self._alice, self._bob = world.host("alice"), world.host("bob")
        self._mallory = world.host("mallory")
        self._is_shooting = False
        self._is_counting = True
        self._is_over = False
        world.network.trace.watch(self._on_event)

    async def run(self, *, is_idle: bool) -> None:
        kind = self.kind
        async with self._alice.aeron(kind.context) as sending, self._bob.aeron() as receiving:
            subscription = await receiving.add_subscription(
                kind.subscribe,
                STREAM_ID,
                on_available_image=self._on_available_image,
                on_unavailable_image=lambda image: self.gone.append(image.session_id),
            )
            publication = await sending.add_publication(kind.publish, STREAM_ID)
            offered = self.recorder.publishing(publication)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(subscription, publication.session_id))
                offering = group.create_task(self._offer(publication, offered))
                await publication.wait_connected(timeout=5)
                await self.world.sleep(WARM_UP_S)
                self._is_over = is_idle
                await self._shoot(publication)
                await self.world.sleep(COOL_DOWN_S)
                self._is_over = True
                await offering
                await self._until_all_has_come(offered)
                await self.world.sleep(GONE_AFTER_S)
                self._is_counting = False
                self._check_that_all_is_gone(publication)
                self._count(sending, receiving)
                await publication.aclose()
                await self._until(
                    lambda: publication.session_id in self.gone, "the image has not ended"
                )
                assert self.images[publication.session_id].is_end_of_stream
                reading.cancel()

    async def _offer(self, publication: Publication, offered: Any) -> None:
        while not self._is_over:
            length = self._lengths.choice(LENGTHS)
            number, payload = offered.next_message(length)
            offered.on_offered(await publication.offer(payload), number, length)
            await self.world.sleep(MESSAGE_INTERVAL_S)

    async def _read(self, subscription: Any, session_id: int) -> None:
        async for message in subscription:
            # What strangers publish is theirs: whoever wants one session says so in the channel.
            if message.session_id == session_id:
                self.received[message.image.image_id].on_message(message.position, message.data)

    async def _shoot(self, publication: Publication) -> None:
        conductor = self._alice.drivers[0].conductor
        endpoint = next(iter(conductor._publications.endpoints))
        sender = ("10.0.0.1", int(endpoint.local_address.rpartition(":")[2]))
        victim = Victim(
            session_id=publication.session_id,
            stream_id=STREAM_ID,
            initial_term_id=publication.initial_term_id,
            term_length=publication.term_length,
            mtu_length=publication.mtu_length,
            position=0,
        )
        receivers = [("10.0.0.2", PORT)] + [STRANGER] * self.kind.is_open
        shooting = shots(victim, self._random, self._attacks) if self._attacks else None
        for _ in range(SHOT_COUNT):
            await self.world.sleep(SHOT_INTERVAL_S)
            if shooting is None:
                continue
            victim.position = self.images[publication.session_id].position
            target, datagram = next(shooting)
            self.figures.shot_length += len(datagram)
            # Whoever can send can say that it is somebody else.
            if target is Target.SENDER:
                source = self._random.choice(receivers)
                self._send(source, self.kind.control or sender, datagram)
            else:
                source = self._random.choice((sender, STRANGER))
                self._send(source, self.kind.data, datagram)

    def _send(self, source: SocketAddress, destination: SocketAddress, datagram: bytes) -> None:
        self._is_shooting = True
        self.world.network.send(self._mallory.machine, None, source, destination, datagram)
        self._is_shooting = False

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        if self._is_counting and not self._is_shooting and verdict in LEFT:
            self.figures.sent_length += len(datagram)
            if destination[0] == "10.0.0.3":
                self.figures.reflected_length += len(datagram)

    def _on_available_image(self, image: Image) -> None:
        self.images[image.session_id] = image
        self.received[image.image_id] = self.recorder.receiving(image, "bob")

    async def _until_all_has_come(self, offered: Any) -> None:
        def has_come() -> bool:
            image = self.images[offered.session_id]
            return bool(image.position == offered.position)

        await self._until(has_come, "the stream has not come through")
        for received in self.received.values():
            assert received.missing() == ""

    async def _until(self, has_happened: Any, what: str) -> None:
        end_ns = self.world.now_ns + NORMAL_AFTER_S * NS_PER_SECOND
        while not has_happened():
            assert self.world.now_ns < end_ns, what
            await self.world.sleep(0.01)

    def _check_that_all_is_gone(self, publication: Publication) -> None:
        conductor = self._bob.drivers[0].conductor
        assert [each.session_id for each in conductor.publication_images] == [
            publication.session_id
        ]
        images = conductor._subscriptions.images
        assert images._budget.log_length == 3 * publication.term_length
        machines = self._alice.machine, self._bob.machine
        assert tuple(each.socket_count for each in machines) == self.kind.socket_counts

    def _count(self, *aerons: Aeron) -> None:
        counts = self.figures.counts
        for aeron in aerons:
            for record in aeron.counters:
                counts[record.label] = counts.get(record.label, 0) + record.value


def run_attacked(
    *attacks: Attack, seed: int = 1, is_idle: bool = False, kind: Kind = UNICAST
) -> Figures:
    """Run the honest stream under these attacks, or none, and return what that came to.

    Where it is idle, it has nothing to say from the first shot to its end.
    """

    async def story(world: World) -> Figures:
        battle = Battle(world, attacks, seed, kind)
        await battle.run(is_idle=is_idle)
        return battle.figures

    figures: Figures = simulate(
        lambda world: tell_and_close(story, world), seed=seed, conditions=Conditions(loss=0.05)
    )
    return figures
