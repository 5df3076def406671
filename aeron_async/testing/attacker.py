"""A stranger on the network of a run, who overhears every stream and shoots at both of its ends.

What it overhears it learns as anybody could: the stream from its SETUP, how far it has come from
the status messages, the addresses from either.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing import hostile
from aeron_async.testing.trace import Verdict
from aeron_async.testing.victim import Target, Victim

if TYPE_CHECKING:
    from random import Random

    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.world import World

__all__ = ["Attacker"]

ADDRESS: Final = ("10.99.0.1", 6_666)
INTERVAL_S: Final = 0.002
SHOTS_MAX: Final = 600
IMPERSONATIONS: Final = frozenset(
    {hostile.setup_of_the_stream_with_other_terms, hostile.streams_full_of_gaps}
)
"""Not shot: where the stream's own SETUP has yet to come, a stranger's is as good; and what a
stranger publishes is delivered, as it should be, but was offered by nobody that is recorded."""
ABOUT_TO_BE_FILLED: Final = frozenset({hostile.heartbeats_ahead})
"""Not shot where gaps are filled rather than repaired: what is filled does not come any more."""

DELAY_NS: Final = 50_000
OVERHEARD: Final = frozenset({Verdict.SENT, Verdict.LOST})

Ends = tuple["SocketAddress", "SocketAddress"]
"""Where a stream is sent from, and where to."""


class Attacker:
    """Overhears, then shoots.

    Args:
        world: Where; it is none of the world's hosts, and no answer reaches it.
        random: The dice.
        is_unreliable: Whether there are readers whose gaps are filled.
    """

    def __init__(self, world: World, random: Random, *, is_unreliable: bool) -> None:
        left_out = IMPERSONATIONS | (ABOUT_TO_BE_FILLED if is_unreliable else frozenset())
        self._attacks = [each for each in hostile.ATTACKS if each not in left_out]
        self._world = world
        self._random = random
        self._victims: dict[tuple[Ends, int, int], Victim] = {}
        world.network.trace.watch(self._overhear)

    async def shoot(self) -> None:
        """Shoot at one stream after the other, for a second or so."""
        for _ in range(self._random.randint(100, SHOTS_MAX)):
            await self._world.sleep(INTERVAL_S)
            if self._victims:
                self._shoot_once()

    def _shoot_once(self) -> None:
        (sender, receiver), *_ = key = self._random.choice(list(self._victims))
        attack = self._random.choice(self._attacks)
        target, datagram = attack(self._victims[key], self._random)
        if target is Target.SENDER:
            self._send(receiver, sender, datagram)
        else:
            # Whoever can send can say that it is somebody else.
            self._send(self._random.choice((sender, ADDRESS)), receiver, datagram)

    def _send(self, source: SocketAddress, destination: SocketAddress, datagram: bytes) -> None:
        # Not over a link: whoever watches what is sent takes the source for the truth.
        now_ns = self._world.now_ns
        for host in self._world.hosts:
            if destination[0] in host.machine.addresses:
                arrive = host.machine.arrive
                self._world.loop.call_at_ns(
                    now_ns + DELAY_NS,
                    arrive,
                    None,
                    source,
                    destination,
                    datagram,
                    context=Context(),
                )

    def _overhear(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        del now_ns
        if verdict not in OVERHEARD:
            return
        kind = frame_type(datagram)
        if kind == FrameType.SETUP:
            self._on_setup((source, destination), Setup.decode(datagram))
        elif kind == FrameType.SM:
            self._on_status_message((destination, source), StatusMessage.decode(datagram))

    def _on_setup(self, ends: Ends, setup: Setup) -> None:
        self._victims.setdefault(
            (ends, setup.session_id, setup.stream_id),
            Victim(
                session_id=setup.session_id,
                stream_id=setup.stream_id,
                initial_term_id=setup.initial_term_id,
                term_length=setup.term_length,
                mtu_length=setup.mtu_length,
                position=0,
            ),
        )

    def _on_status_message(self, ends: Ends, sm: StatusMessage) -> None:
        victim = self._victims.get((ends, sm.session_id, sm.stream_id))
        if victim is not None and not sm.is_setup_elicit:
            position = compute_position(
                sm.consumption_term_id,
                sm.consumption_term_offset,
                initial_term_id=victim.initial_term_id,
                bits=position_bits(victim.term_length),
            )
            victim.position = max(victim.position, position)
