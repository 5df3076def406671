"""The troubles of a run: a timetable of faults, and an attacker on the network.

`Attacker` learns only what any listener on the network could: the stream from its SETUP, how far it
has come from the status messages, the addresses from either.

Source: the name and the trade of `Nemesis` are Jepsen's.
"""

from __future__ import annotations

import asyncio
import errno
from contextvars import Context
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.fates import Conditions
from aeron_async.testing.trace import Verdict
from tests.support import hostile
from tests.support.forgeries import Forger
from tests.support.scenario import TroubleKind
from tests.support.victim import Target, Victim

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World
    from tests.support.scenario import Scenario, Trouble

__all__ = [
    "Attacker",
    "Nemesis",
]

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


FLAP_DOWN_S: Final = 2.0
FLAP_UP_S: Final = 5.0
SEND_ERRORS: Final = (
    errno.EAGAIN,
    errno.ENOBUFS,
    errno.ECONNREFUSED,
    errno.EPERM,
    errno.ENETUNREACH,
)
JUMP_BACK_NS: Final = -NS_PER_SECOND
JUMP_AHEAD_NS: Final = 3_600 * NS_PER_SECOND
JUMP_EPOCH_MS: Final = 262_000


class Nemesis:
    """The troubles of one scenario, in one world.

    Args:
        world: To be broken.
        scenario: Says how.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self._to_lose = [[kind, count] for kind, count in scenario.first_frames]
        self._attacker: Attacker | None = None
        if "hostile" in scenario.features:
            self._attacker = Attacker(
                world,
                Random(f"{scenario.seed}/hostile"),
                is_unreliable="unreliable" in scenario.features,
            )
        self._forger: Forger | None = None
        if scenario.has_forger:
            self._forger = Forger(world, Random(f"{scenario.seed}/forger"))
        self._makers = {
            TroubleKind.PARTITION: self._partition,
            TroubleKind.ONE_WAY: self._partition,
            TroubleKind.FLAPPING: self._flap,
            TroubleKind.PAUSE: self._pause,
            TroubleKind.CRASH: self._crash,
            TroubleKind.RESTART: self._restart,
            TroubleKind.DRIFT: self._drift,
            TroubleKind.JUMP: self._jump,
            TroubleKind.SEND_ERRORS: self._refuse_sends,
        }

    def set_up(self) -> None:
        """Make the links as bad as they are to be."""
        towards_receiver, towards_publisher = self._scenario.conditions
        receiver = self._world.hosts[0]
        for source, destination in permutations(self._world.hosts, 2):
            link = self._world.link(source, destination)
            link.set_conditions(towards_publisher if source is receiver else towards_receiver)
            if self._to_lose:
                link.is_lost = self._is_one_of_the_first

    async def make_trouble(self) -> None:
        """Break things by the timetable; returns when the last trouble is over."""
        started_ns = self._world.now_ns
        async with asyncio.TaskGroup() as group:
            for trouble in self._scenario.troubles:
                group.create_task(self._make(trouble))
            if self._attacker is not None:
                group.create_task(self._attacker.shoot())
            left_ns = started_ns + self._scenario.duration_ns - self._world.now_ns
            await self._world.sleep(left_ns / NS_PER_SECOND)

    async def heal(self) -> None:
        """Let all be well from now on: good links, right clocks, hosts that run."""
        if self._forger is not None:
            self._forger.is_active = False
        self._world.heal()
        for source, destination in permutations(self._world.hosts, 2):
            link = self._world.link(source, destination)
            link.is_lost = None
            link.set_conditions(Conditions(delay_ns=min(link.conditions.delay_ns, 50 * NS_PER_MS)))
        for host in self._world.hosts:
            host.machine.send_errors = {}
            host.clock.set_rate(1)
            if host.is_down:
                await host.restart()

    async def _make(self, trouble: Trouble) -> None:
        host = self._world.hosts[trouble.host]
        await self._world.sleep(trouble.at_ns / NS_PER_SECOND)
        await self._makers[trouble.kind](host, trouble)

    async def _partition(self, host: Host, trouble: Trouble) -> None:
        await self._cut(host, trouble.duration_s, is_one_way=trouble.kind is TroubleKind.ONE_WAY)

    async def _flap(self, host: Host, trouble: Trouble) -> None:
        left_s = trouble.duration_s
        while left_s > 0:
            await self._cut(host, FLAP_DOWN_S, is_one_way=False)
            await self._world.sleep(FLAP_UP_S)
            left_s -= FLAP_DOWN_S + FLAP_UP_S

    async def _pause(self, host: Host, trouble: Trouble) -> None:
        if not host.machine.is_paused and not host.is_down:
            await host.pause_for(trouble.duration_s)

    async def _crash(self, host: Host, trouble: Trouble) -> None:
        if not host.is_down:
            await host.crash()
            await self._world.sleep(trouble.duration_s)
            await host.restart()

    async def _restart(self, host: Host, trouble: Trouble) -> None:
        del trouble
        if not host.is_down:
            await host.restart()

    async def _drift(self, host: Host, trouble: Trouble) -> None:
        host.clock.set_rate(0.5 + 1.5 * trouble.amount)
        await self._world.sleep(trouble.duration_s)
        host.clock.set_rate(1)

    async def _jump(self, host: Host, trouble: Trouble) -> None:
        amount = trouble.amount
        if amount < 0.5:
            host.clock.jump_epoch(round((4 * amount - 1) * JUMP_EPOCH_MS))
        elif amount < 0.75:
            host.clock.jump(round(JUMP_BACK_NS * (4 * amount - 2)))
        else:
            host.clock.jump(round(JUMP_AHEAD_NS * (4 * amount - 3)))

    async def _refuse_sends(self, host: Host, trouble: Trouble) -> None:
        number = SEND_ERRORS[int(trouble.amount * len(SEND_ERRORS)) % len(SEND_ERRORS)]
        host.machine.send_errors = {number: trouble.amount}
        await self._world.sleep(trouble.duration_s)
        host.machine.send_errors = {}

    async def _cut(self, host: Host, duration_s: float, *, is_one_way: bool) -> None:
        with self._world.partitioned(host, is_one_way=is_one_way):
            await self._world.sleep(duration_s)

    def _is_one_of_the_first(self, datagram: bytes) -> bool:
        kind = frame_type(memoryview(datagram))
        for victims in self._to_lose:
            if victims[0] == kind and victims[1]:
                victims[1] -= 1
                return True
        return False
