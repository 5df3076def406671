"""A forger on the path of a run: it sees what publishers send, and sends more in their names.

It sees each datagram on its way to a receiver, and now and then has another one arrive there, just
before it or just after it, from the publisher's own address.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import DATA_HEADER_LENGTH, FrameType
from aeron_async.protocol.setup import Setup
from aeron_async.testing.forgeries import FORGERIES, Genuine, mutate
from aeron_async.testing.trace import Verdict
from aeron_async.testing.victim import Victim

if TYPE_CHECKING:
    from random import Random

    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.world import World

__all__ = ["Forger"]

FORGED_MAX: Final = 40
"""In one run: it is to be seen what one frame does, not what a flood does."""
MUTATION_CHANCE: Final = 0.5
DELAYS_NS: Final = (10_000, 60_000, 2_000_000)
"""Before, and soon or long after, the genuine datagram where nothing delays that."""
SETTLED_NS: Final = 500_000_000
"""From the beginning on the publishers are left alone for so long: whose SETUP comes first has the
session, and nothing tells a forger's."""


class Forger:
    """Watches the network of a world, until it is told to stop.

    Args:
        world: Where.
        random: The dice.

    Attributes:
        is_active: Whether it goes on.
        count: Datagrams that it has sent.
    """

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._chance = 10 ** random.uniform(-2.5, -1)
        self._victims: dict[tuple[int, int, SocketAddress], Victim] = {}
        self._begun_ns = world.now_ns
        self.is_active = True
        self.count = 0
        world.network.trace.watch(self._on_event)

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        if not self.is_active or verdict is not Verdict.SENT or self.count >= FORGED_MAX:
            return
        kind = frame_type(datagram)
        if kind == FrameType.SETUP:
            self._on_setup(source, Setup.decode(datagram))
        elif kind in {FrameType.DATA, FrameType.PAD} and now_ns > self._begun_ns + SETTLED_NS:
            victim = self._victim_of(source, datagram)
            if victim is not None and self._random.random() < self._chance:
                self._forge(victim, source, destination, datagram)

    def _victim_of(self, source: SocketAddress, datagram: bytes) -> Victim | None:
        fields = DATA_HEADER.unpack_from(datagram)
        return self._victims.get((fields[5], fields[6], source))

    def _on_setup(self, source: SocketAddress, setup: Setup) -> None:
        self._victims[setup.session_id, setup.stream_id, source] = Victim(
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            initial_term_id=setup.initial_term_id,
            term_length=setup.term_length,
            mtu_length=setup.mtu_length,
            position=0,
        )

    def _forge(
        self, victim: Victim, source: SocketAddress, destination: SocketAddress, datagram: bytes
    ) -> None:
        random = self._random
        if random.random() < MUTATION_CHANCE:
            forged = mutate(datagram[: len(datagram)], random)
        else:
            _, _, _, _, term_offset, _, _, term_id, _ = DATA_HEADER.unpack_from(datagram)
            position = compute_position(
                term_id,
                term_offset,
                initial_term_id=victim.initial_term_id,
                bits=position_bits(victim.term_length),
            )
            forged = random.choice(FORGERIES)(Genuine(victim, datagram, position), random)
        if forged is None or len(forged) < DATA_HEADER_LENGTH:
            return
        self.count += 1
        arrive_ns = self._world.now_ns + random.choice(DELAYS_NS)
        for host in self._world.hosts:
            if destination[0] in host.machine.addresses:
                arrive = host.machine.arrive
                self._world.loop.call_at_ns(
                    arrive_ns, arrive, None, source, destination, forged, context=Context()
                )
