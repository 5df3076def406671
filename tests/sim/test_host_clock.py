"""The clock of a host that drifts and jumps."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.testing.host import BOOT_NS, EPOCH_MS, HostClock
from aeron_async.testing.virtual_clock import VirtualTime, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run_clock(story: Callable[[HostClock, VirtualTime], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTime)
        return await story(HostClock(loop), loop)

    return run_virtual(main())


def test_a_clock_starts_some_time_after_boot_and_keeps_true_time() -> None:
    async def story(clock: HostClock, loop: VirtualTime) -> None:
        assert clock.now_ns() == BOOT_NS
        assert clock.epoch_ms() == EPOCH_MS
        started_ns = loop.now_ns
        await asyncio.sleep(2.5)
        assert clock.now_ns() == BOOT_NS + loop.now_ns - started_ns
        assert clock.epoch_ms() == EPOCH_MS + 2_500

    run_clock(story)


@pytest.mark.parametrize("rate", [0.5, 2, Fraction(3, 2), 1.0001])
def test_a_clock_drifts_from_when_it_is_told(rate: float | Fraction) -> None:
    async def story(clock: HostClock, loop: VirtualTime) -> None:
        await asyncio.sleep(10)
        before_ns, since_ns = clock.now_ns(), loop.now_ns
        clock.set_rate(rate)
        assert clock.now_ns() == before_ns
        await asyncio.sleep(100)
        passed_ns = loop.now_ns - since_ns
        assert clock.now_ns() - before_ns == pytest.approx(passed_ns * float(rate), abs=1)
        clock.set_rate(1)
        after_ns, since_ns = clock.now_ns(), loop.now_ns
        await asyncio.sleep(1)
        assert clock.now_ns() - after_ns == loop.now_ns - since_ns

    run_clock(story)


def test_monotonic_time_jumps_alone() -> None:
    async def story(clock: HostClock, loop: VirtualTime) -> None:
        clock.jump(-NS_PER_SECOND)
        assert clock.now_ns() == BOOT_NS - NS_PER_SECOND
        assert clock.epoch_ms() == EPOCH_MS
        clock.jump(5 * NS_PER_SECOND + NS_PER_MS)
        assert clock.now_ns() == BOOT_NS + 4 * NS_PER_SECOND + NS_PER_MS
        assert clock.epoch_ms() == EPOCH_MS

    run_clock(story)


def test_wall_clock_time_jumps_alone() -> None:
    async def story(clock: HostClock, loop: VirtualTime) -> None:
        clock.jump_epoch(-262_000)
        assert clock.epoch_ms() == EPOCH_MS - 262_000
        assert clock.now_ns() == BOOT_NS

    run_clock(story)
