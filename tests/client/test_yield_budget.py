"""How long one task may go on before the event loop has its turn."""

from __future__ import annotations

import asyncio

import aeron_async as aa
from aeron_async.client.home_loop import (
    LONG_NS,
    LONGEST_NS,
    LONGEST_STRIDE,
    MOST_MESSAGES,
    SHORT_NS,
    YieldBudget,
)
from aeron_async.driver.media_driver import MediaDriver
from tests.drivers import CLOCK, embedded_only


class SetClock:
    """A clock that stands where it was set."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def epoch_ms(self) -> int:
        return 0

    def epoch_ns(self) -> int:
        return 0


async def test_a_turn_is_over_after_its_time_or_its_messages() -> None:
    clock = SetClock()
    turn = YieldBudget(asyncio.get_running_loop(), clock)
    assert not turn.is_over(), "nothing is known before the first look"
    count = 0
    while True:
        count += turn.stride
        if turn.is_over():
            break
    assert MOST_MESSAGES < count <= MOST_MESSAGES + LONGEST_STRIDE
    turn.begin()
    clock.ns += LONGEST_NS - 1
    assert not turn.is_over()
    clock.ns += 1
    assert turn.is_over()


async def test_what_others_did_meanwhile_does_not_count() -> None:
    clock = SetClock()
    turn = YieldBudget(asyncio.get_running_loop(), clock)
    for _ in range(10):
        assert not turn.is_over()
        clock.ns += 2 * LONGEST_NS
        stride = turn.stride
        await asyncio.sleep(0)
        assert not turn.is_over()
        assert turn.stride == stride
        await asyncio.sleep(0)


async def test_looks_are_rare_where_messages_are_quick_and_frequent_where_they_are_slow() -> None:
    clock = SetClock()
    turn = YieldBudget(asyncio.get_running_loop(), clock)
    for _ in range(20):
        turn.is_over()
    assert turn.stride == LONGEST_STRIDE
    for _ in range(20):
        clock.ns += LONG_NS + 1
        turn.is_over()
    assert turn.stride == 1
    clock.ns += SHORT_NS
    turn.is_over()
    assert turn.stride == 1


async def turns_beside(count: int, *, work_ns: int) -> tuple[int, int]:
    """Return how many turns others had while `count` messages were offered, and taken."""
    clock = SetClock()
    async with MediaDriver.launch(clock=clock) as driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", stream_id=7)
        publication = await aeron.add_publication("aeron:ipc?term-length=1m", stream_id=7)
        await publication.wait_connected(5)
        turns = 0
        handle: asyncio.Handle | None = None

        def count_turn() -> None:
            nonlocal turns, handle
            turns += 1
            handle = asyncio.get_running_loop().call_soon(count_turn)

        count_turn()
        for _ in range(count):
            await publication.offer(b"x")
            clock.ns += work_ns
        offered = turns
        taken = 0
        async for _ in subscription:
            clock.ns += work_ns
            taken += 1
            if taken == count:
                break
        assert handle is not None
        handle.cancel()
        return offered, turns - offered


@embedded_only(CLOCK)
async def test_work_between_messages_brings_the_others_their_turn_sooner() -> None:
    idle_offered, idle_taken = await turns_beside(4_096, work_ns=0)
    busy_offered, busy_taken = await turns_beside(4_096, work_ns=20_000)
    assert idle_offered <= 4_096 // 1_024 + 4
    assert busy_offered >= 4_096 // 128
    assert idle_taken <= 2 * 4_096 // 1_024 + 4
    assert busy_taken >= 4_096 // 128
