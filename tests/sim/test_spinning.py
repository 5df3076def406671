"""Loops that pause ever so shortly, and still spin."""

from __future__ import annotations

import asyncio

import pytest

from aeron_async.testing import LivelockError, VirtualLoop, run_virtual


def test_a_timer_that_is_always_due_is_a_livelock_where_turns_are_limited() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1e-9)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.span_turns_max = 10_000
        await asyncio.create_task(tick(), name="tick")

    with pytest.raises(LivelockError, match=r"10001 turns within 100 virtual ms: .*tick at "):
        run_virtual(main())


def test_as_many_turns_over_a_longer_time_are_no_livelock() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.span_turns_max = 1_000
        for _ in range(10_000):
            await asyncio.sleep(0.000_2)
        return loop.turn_count

    assert run_virtual(main()) > 10_000
