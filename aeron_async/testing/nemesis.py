"""Whoever makes the trouble: breaks a world by a timetable, and heals it at the end.

Source: the name and the trade are Jepsen's.
"""

from __future__ import annotations

import asyncio
import errno
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.protocol.datagram import frame_type
from aeron_async.testing.attacker import Attacker
from aeron_async.testing.fates import Conditions
from aeron_async.testing.forger import Forger
from aeron_async.testing.scenario import TroubleKind

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.scenario import Scenario, Trouble
    from aeron_async.testing.world import World

__all__ = ["Nemesis"]

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
                Random(f"{scenario.seed}/hostile"),  # noqa: S311 - seeded on purpose
                is_unreliable="unreliable" in scenario.features,
            )
        self._forger: Forger | None = None
        if scenario.has_forger:
            self._forger = Forger(world, Random(f"{scenario.seed}/forger"))  # noqa: S311 - seeded
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
        if amount < 0.5:  # noqa: PLR2004 - half of the jumps are of the wall clock
            host.clock.jump_epoch(round((4 * amount - 1) * JUMP_EPOCH_MS))
        elif amount < 0.75:  # noqa: PLR2004 - and a quarter go back
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
