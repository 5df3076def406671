"""The engine's stream of fills: what a gateway gets that comes back with a number."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aeron_async.errors import CallFailedError, Status
from examples.exchange.engine import FILLS_KEPT, Engine
from examples.exchange.messages import FILL, Fill


def engine_with(first: int, last: int) -> Engine:
    nothing: Any = None
    engine = Engine(nothing, nothing)
    engine._fills.extend(
        Fill(number, "ann", 1, "AERN", "BUY", 100, 1, 0) for number in range(first, last + 1)
    )
    return engine


async def found(engine: Engine, behind: int) -> list[int]:
    """Return the numbers of the fills that come until one would have to wait."""
    numbers: list[int] = []

    async def read() -> None:
        async for data in engine.fills(behind.to_bytes(8, "little")):
            number = FILL.decode(data).number
            numbers.append(number)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert not reading.done()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    return numbers


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, [7, 8, 9]), (6, [7, 8, 9]), (8, [9]), (9, []), (10, []), (2**64 - 1, [])],
)
async def test_those_behind_a_number_come(number: int, expected: list[int]) -> None:
    """Also behind one that nobody can have had, for callers choose it."""
    assert await found(engine_with(7, 9), number) == expected


async def test_the_latest_are_kept() -> None:
    numbers = await found(engine_with(1, FILLS_KEPT + 5), 0)
    assert (numbers[0], numbers[-1], len(numbers)) == (6, FILLS_KEPT + 5, FILLS_KEPT)


async def test_a_request_without_a_number_is_refused() -> None:
    with pytest.raises(CallFailedError) as caught:
        async for _ in engine_with(1, 1).fills(b"1"):
            pass
    assert caught.value.status == Status.INVALID_ARGUMENT
